//! What the kernel's error numbers mean for an AF_XDP port, and what to do about each.

use std::error::Error as StdError;
use std::fs;
use std::io;

use rustix::io::Errno;

use crate::Error;
use crate::pool::HEADROOM;

use super::config::XdpMode;

/// The system's error number in `e` or in the errors that caused it. `None` if there is none.
pub(super) fn errno_of(e: &(dyn StdError + 'static)) -> Option<Errno> {
    let mut at = Some(e);
    while let Some(e) = at {
        if let Some(code) = e.downcast_ref::<io::Error>().and_then(Errno::from_io_error) {
            return Some(code);
        }
        at = e.source();
    }
    None
}

/// The messages of an error and of all its causes, because a library's outermost message often says only "a system call
/// failed".
pub(super) fn whole(e: &(dyn StdError + 'static)) -> String {
    let mut text = e.to_string();
    let mut at = e.source();
    while let Some(e) = at {
        let cause = e.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        at = e.source();
    }
    text
}

fn no_permission(what: String, why: String) -> Error {
    // CAP_PERFMON: the XDP program compares packet pointers, which the verifier allows only with this capability.
    // CAP_IPC_LOCK: for locked memory and the memory of the sockets.
    let fix =
        "run as root, or grant the capabilities CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF, CAP_PERFMON and CAP_IPC_LOCK (setcap cap_net_admin,cap_net_raw,cap_bpf,cap_perfmon,cap_ipc_lock+ep on the binary)"
            .into();
    Error::Lacking { what, why, fix }
}

pub(super) fn unknown_interface(name: &str, e: Errno) -> Error {
    // /proc/thread-self/net/dev shows the thread's own namespace, unlike /sys/class/net.
    let table = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let mut names: Vec<_> = table.lines().filter_map(|line| line.split_once(':')).map(|(n, _)| n.trim()).collect();
    names.sort_unstable();
    Error::Lacking {
        what: format!("open port {name}"),
        why: format!("there is no such interface in this network namespace ({e})"),
        fix: if names.is_empty() {
            "list the interfaces with ip link".into()
        } else {
            format!("use one of: {}", names.join(", "))
        },
    }
}

pub(super) fn load(e: &(dyn StdError + 'static)) -> Error {
    let (what, why) = ("load the XDP program".to_owned(), whole(e));
    match errno_of(e) {
        Some(Errno::PERM | Errno::ACCESS) => no_permission(what, why),
        Some(Errno::NOMEM) => {
            Error::Lacking { what, why, fix: "raise the limit for locked memory: ulimit -l unlimited".into() }
        }
        _ => Error::Lacking {
            what,
            why,
            fix: "use Linux 5.18 or later with CONFIG_BPF_SYSCALL and CONFIG_XDP_SOCKETS (for xdp.frags)".into(),
        },
    }
}

pub(super) fn attach(name: &str, ifindex: u32, mode: XdpMode, e: &(dyn StdError + 'static)) -> Error {
    let mode = if mode == XdpMode::Generic { "generic" } else { "native" };
    let what = format!("attach {mode} XDP to {name}");
    match errno_of(e) {
        Some(Errno::BUSY | Errno::EXIST) => {
            let holders = holders(ifindex);
            let why = match holders.as_slice() {
                [] => "another XDP program is attached to it (see bpftool net)".to_owned(),
                some => format!("another XDP program is attached to it, held by {}", some.join(" and ")),
            };
            let fix = match holders.is_empty() {
                true => format!("remove it with: ip link set dev {name} xdp off"),
                false => format!(
                    "stop that process (another instance?); a program that no process holds is removed with: ip link set dev {name} xdp off"
                ),
            };
            Error::Lacking { what, why, fix }
        }
        Some(Errno::PERM | Errno::ACCESS) => no_permission(what, whole(e)),
        _ => Error::Lacking {
            what,
            why: whole(e),
            fix: match mode {
                "native" => {
                    "the driver may not support XDP, or not with this MTU or number of queues; use --xdp generic".into()
                }
                _ => "look at dmesg; Linux 5.18 or later is needed".into(),
            },
        },
    }
}

/// The processes that hold an XDP link to the interface, such as "apus (pid 17)".
fn holders(ifindex: u32) -> Vec<String> {
    let mine = fs::read_link("/proc/thread-self/ns/net").ok();
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
        let path = process.path();
        // An interface's number is only valid in its namespace, so look only at processes in our namespace. Our own
        // process always counts: one of its threads may have changed the namespace.
        let same = pid == std::process::id() || fs::read_link(path.join("ns/net")).ok() == mine;
        let of_ours = |info: &str| {
            let number = info.lines().find_map(|l| l.strip_prefix("ifindex:")).and_then(|n| n.trim().parse().ok());
            info.contains("link_type:\txdp") && number == Some(ifindex)
        };
        let mut infos = fs::read_dir(path.join("fdinfo")).into_iter().flatten().flatten();
        if same && infos.any(|info| fs::read_to_string(info.path()).is_ok_and(|info| of_ours(&info))) {
            let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
            found.push(format!("{} (pid {pid})", name.trim()));
        }
    }
    found
}

pub(super) fn socket(e: Errno) -> Error {
    let what = "open an AF_XDP socket".to_owned();
    match e {
        Errno::AFNOSUPPORT => Error::Lacking {
            what,
            why: e.to_string(),
            fix: "use a kernel that was built with CONFIG_XDP_SOCKETS".into(),
        },
        Errno::PERM | Errno::ACCESS => no_permission(what, e.to_string()),
        e => Error::system(what, e),
    }
}

/// The requested properties of a socket that could not be bound.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bound {
    /// Whether the interface has this queue. `None` if it is not known.
    pub exists: Option<bool>,
    /// Whether zero copy was forced.
    pub zero_copy: bool,
    /// Whether the socket was to share the UMEM of another socket.
    pub shared: bool,
    /// Whether a frame was to take several descriptors.
    pub multi_buffer: bool,
}

pub(super) fn bind(name: &str, queue: u32, how: Bound, e: Errno) -> Error {
    let what = format!("bind an AF_XDP socket to queue {queue} of {name}");
    match e {
        Errno::BUSY => Error::Lacking {
            what,
            why: format!("queue {queue} of {name} is in use by another socket (another instance?)"),
            fix: "stop the other instance, or use another queue".into(),
        },
        Errno::PERM | Errno::ACCESS => no_permission(what, e.to_string()),
        Errno::NODEV => Error::PortLost { port: name.to_owned(), why: "the interface was deleted".into() },
        Errno::NETDOWN => {
            Error::Lacking { what, why: "the interface is down".into(), fix: format!("ip link set dev {name} up") }
        }
        // The kernel checks the queue's number first (net/core/xsk_buff_pool.c, `xp_assign_dev`).
        Errno::INVAL if how.exists == Some(false) => Error::Lacking {
            what,
            why: format!("{name} no longer has a queue {queue}: the number of its queues was lowered"),
            fix: format!("raise it again with ethtool -L {name}, or use another queue"),
        },
        Errno::INVAL if how.exists.is_none() && queue > 0 => Error::Lacking {
            what,
            why: format!("{name} may not have a queue {queue}; its driver does not report how many it has ({e})"),
            fix: "use queue 0".into(),
        },
        // Before Linux 6.6, xsk_bind (net/xdp/xsk.c) does not support XDP_USE_SG.
        Errno::INVAL if how.multi_buffer && !how.shared => Error::Lacking {
            what,
            why: "a frame larger than a page takes several AF_XDP buffers, which this kernel does not support".into(),
            fix: format!(
                "use Linux 6.6 or later; or --frame-size 4096, which loses frames of more than {} bytes",
                4096 - HEADROOM
            ),
        },
        Errno::OPNOTSUPP | Errno::INVAL if how.zero_copy || how.shared => Error::Lacking {
            what,
            why: format!("its driver does not support AF_XDP zero copy here ({e})"),
            fix: match how.shared {
                true => "ports that share a pool share the copy mode: use --zero-copy off for all of them".into(),
                false => "use --zero-copy auto or off".into(),
            },
        },
        e => Error::system(what, e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_names_its_remedy() {
        let says = |e: Error, texts: &[&str]| {
            let text = e.to_string();
            assert!(texts.iter().all(|t| text.contains(t)), "{text}");
        };
        says(socket(Errno::AFNOSUPPORT), &["CONFIG_XDP_SOCKETS"]);
        says(socket(Errno::PERM), &["CAP_NET_ADMIN", "CAP_BPF", "root"]);
        says(
            bind("eth0", 3, Bound::default(), Errno::BUSY),
            &["queue 3 of eth0 is in use by another socket (another instance?)"],
        );
        let how = Bound { zero_copy: true, ..Bound::default() };
        says(bind("eth0", 0, how, Errno::OPNOTSUPP), &["zero-copy"]);
        let how = Bound { multi_buffer: true, ..Bound::default() };
        says(bind("eth0", 0, how, Errno::INVAL), &["Linux 6.6", "--frame-size 4096"]);
        says(unknown_interface("nosuch0", Errno::NODEV), &["nosuch0", "lo"]);
        let denied = io::Error::from(Errno::PERM);
        says(load(&denied), &["CAP_NET_ADMIN", "CAP_BPF", "root"]);
        says(
            attach("eth0", u32::MAX, XdpMode::Native, &io::Error::from(Errno::BUSY)),
            &["ip link set dev eth0 xdp off"],
        );
    }

    #[test]
    fn finds_the_number_below_other_errors() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer")]
        struct Outer(#[source] io::Error);
        let outer = Outer(io::Error::from(Errno::BUSY));
        assert_eq!(errno_of(&outer), Some(Errno::BUSY));
        assert_eq!(whole(&outer), format!("outer: {}", io::Error::from(Errno::BUSY)));
    }
}
