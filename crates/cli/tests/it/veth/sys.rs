#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Makes `command` run on a kernel that seems to have no AF_XDP: socket(2) says what it says where
/// CONFIG_XDP_SOCKETS is not set. Source: seccomp(2), filters; net/socket.c, `__sock_create`.
pub fn without_af_xdp(command: &mut Command) {
    // Offsets in struct seccomp_data (include/uapi/linux/seccomp.h): nr 0, args[0] 16, of which the
    // lower half is where this little-endian machine has it.
    const NUMBER: u32 = 0;
    const FIRST_ARGUMENT: u32 = if cfg!(target_endian = "little") { 16 } else { 20 };
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    let step = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let filter = [
        step(LOAD, 0, 0, NUMBER),
        step(IF_EQUAL, 0, 3, libc::SYS_socket as u32),
        step(LOAD, 0, 0, FIRST_ARGUMENT),
        step(IF_EQUAL, 0, 1, libc::AF_XDP as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EAFNOSUPPORT as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let install = move || {
        let mut filter = filter;
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: prctl with this option takes four numbers.
        if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `program` points to `filter`, whose length it states; both live through the call,
        // and the kernel copies them.
        match unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: between fork and exec only prctl(2) is called, which is a bare system call; nothing
    // allocates, `filter` is a copy in the closure.
    unsafe { command.pre_exec(install) };
}
