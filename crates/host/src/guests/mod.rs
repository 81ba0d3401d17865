//! The vCPU threads of a virtual machine, and the CPUs on which each vCPU thread may run.
//!
//! ```text
//!   QMP query-cpus-fast ────────────┐
//!   libvirt's state of a domain ────┼──► thread of each vCPU ──► /proc/PID/task/TID/status, Cpus_allowed_list
//!   QEMU's names of its threads ────┘
//! ```
//!
//! Linux does not report changes of a thread's CPUs, so the caller must repeat the lookup. A lookup reads one small
//! file per vCPU.

mod qmp;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::CpuSet;
use crate::knob::{Access, Error};

pub use qmp::{Qmp, QmpEvent};

/// The folder in which libvirt's QEMU driver keeps the state of running domains (src/qemu/qemu_conf.c, `stateDir`).
const LIBVIRT: &str = "/run/libvirt/qemu";

/// Connects to a UNIX socket of QEMU without blocking. The returned stream is non-blocking too.
///
/// An ordinary `connect` would block forever if the listener accepts no connections and its backlog is full
/// (connect(2), `EAGAIN`).
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

/// Opens one end of a channel between host and guest without blocking. The end is a socket, or a character device such
/// as a virtio-serial port.
pub fn open_channel(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::FileTypeExt as _;
    let kind = std::fs::metadata(path)?.file_type();
    if kind.is_socket() {
        return Ok(OwnedFd::from(connect(path)?).into());
    }
    if !kind.is_char_device() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is neither a socket nor a character device"));
    }
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

/// The vCPU threads of a virtual machine.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct VcpuThreads {
    /// Process ID of the virtual machine's process.
    pub pid: u32,
    /// The thread number of each vCPU, by the number of the vCPU.
    pub threads: BTreeMap<u16, u32>,
}

impl VcpuThreads {
    /// The vCPU threads of a running libvirt domain, from the file in which libvirt keeps the domain's state. `None` if
    /// no such domain runs.
    pub fn of_libvirt(access: &Access, domain: &str) -> Result<Option<Self>, Error> {
        if domain.is_empty() || domain.contains('/') || domain.starts_with('.') {
            return Err(Error::invalid(format!("domain {domain:?}"), "this is not a valid name of a libvirt domain"));
        }
        let path = format!("{LIBVIRT}/{domain}.xml");
        let Some(text) = access.read(&path)? else { return Ok(None) };
        let what = || format!("read {}", access.show(&path));
        let unreadable =
            || Error::unreadable(what(), text.lines().next().unwrap_or_default(), "libvirt's domain status");
        // libvirt writes no document type. Without one there are no entities that could expand.
        let parsed = roxmltree::Document::parse(&text).map_err(|_| unreadable())?;
        let status =
            Some(parsed.root_element()).filter(|root| root.has_tag_name("domstatus")).ok_or_else(unreadable)?;
        let number = |node: roxmltree::Node<'_, '_>, name: &str| node.attribute(name)?.parse::<u32>().ok();
        let pid = number(status, "pid").ok_or_else(unreadable)?;
        let vcpus = status.children().filter(|node| node.has_tag_name("vcpus")).flat_map(|node| node.children());
        let threads = vcpus.filter(|node| node.has_tag_name("vcpu")).map(|vcpu| {
            let id = number(vcpu, "id").and_then(|id| u16::try_from(id).ok());
            // 0 means that the vCPU is offline.
            id.zip(number(vcpu, "pid")).ok_or_else(unreadable)
        });
        let threads: BTreeMap<u16, u32> = threads.collect::<Result<_, _>>()?;
        Ok(Some(Self { pid, threads: threads.into_iter().filter(|(_, thread)| *thread != 0).collect() }))
    }

    /// The vCPU threads of a QEMU process, found by their names, such as `CPU 0/KVM`. QEMU names its threads only with
    /// `-name …,debug-threads=on`, which libvirt always sets. `None` if there is no such process.
    pub fn of_process(access: &Access, pid: u32) -> Result<Option<Self>, Error> {
        let folder = format!("/proc/{pid}/task");
        if access.list(&folder)?.is_none() {
            return Ok(None);
        }
        let mut threads = BTreeMap::new();
        for thread in access.numbered(&folder, "")? {
            // A thread may end during the lookup.
            let Some(name) = access.line(&format!("{folder}/{thread}/comm")).ok().flatten() else { continue };
            if let Some(vcpu) = vcpu_of(&name) {
                threads.insert(vcpu, thread);
            }
        }
        if threads.is_empty() {
            return Err(Error::invalid(
                format!("process {pid}"),
                "none of its threads has the name of a vCPU; start QEMU with -name NAME,debug-threads=on",
            ));
        }
        Ok(Some(Self { pid, threads }))
    }

    /// The vCPU threads of the QEMU process whose process ID is in the file at `path` (QEMU's `-pidfile`). `None` if
    /// there is no such file, or no such process.
    pub fn of_pid_file(access: &Access, path: &str) -> Result<Option<Self>, Error> {
        match access.number(path)?.and_then(|pid| u32::try_from(pid).ok()) {
            Some(pid) => Self::of_process(access, pid),
            None => Ok(None),
        }
    }

    /// The CPUs on which each vCPU may run, or why they are unknown.
    pub fn allowed(&self, access: &Access) -> BTreeMap<u16, Result<CpuSet, String>> {
        let allowed = |thread: u32| {
            let path = format!("/proc/{}/task/{thread}/status", self.pid);
            let text = access.read(&path).map_err(|error| error.to_string().replace('\n', "; "))?;
            let text = text.ok_or_else(|| format!("thread {thread} of process {} is gone", self.pid))?;
            let list = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            let list = list.ok_or_else(|| format!("{path} has no Cpus_allowed_list"))?;
            CpuSet::parse_list(list.trim()).map_err(|error| format!("{path}: {error}"))
        };
        self.threads.iter().map(|(vcpu, thread)| (*vcpu, allowed(*thread))).collect()
    }
}

/// The number of the vCPU that a thread's name contains: `CPU 3/KVM`, `CPU 3/TCG` (QEMU, accel/kvm/kvm-accel-ops.c and
/// accel/tcg/tcg-accel-ops-mttcg.c).
fn vcpu_of(name: &str) -> Option<u16> {
    let (number, accelerator) = name.strip_prefix("CPU ")?.split_once('/')?;
    number.parse().ok().filter(|_| ["KVM", "TCG", "HAX", "DUMMY"].contains(&accelerator))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Folder;

    const STATUS: &str = "<!--\nWARNING\n-->\n<domstatus state='running' reason='booted' pid='100'>\n\
        <monitor path='/x' type='unix'/>\n<vcpus>\n<vcpu id='0' pid='101'/>\n<vcpu id='1' pid='102'/>\n\
        <vcpu id='2' pid='0'/>\n</vcpus>\n<domain type='kvm' id='1'><name>vm1</name><vcpu placement='static'>3</vcpu>\n\
        <cputune><vcpupin vcpu='0' cpuset='7'/></cputune></domain></domstatus>\n";

    fn status(cpus: &str) -> String {
        format!("Name:\tCPU 0/KVM\nCpus_allowed:\tff\nCpus_allowed_list:\t{cpus}\nMems_allowed_list:\t0\n")
    }

    #[test]
    fn libvirt_tells_the_threads_and_the_kernel_their_cpus() {
        let (one, two) = (status("2"), status("0-3,8"));
        let folder = Folder::new(&[
            ("run/libvirt/qemu/vm1.xml", STATUS),
            ("proc/100/task/101/status", &one),
            ("proc/100/task/102/status", &two),
        ]);
        let access = folder.access();
        let threads = VcpuThreads::of_libvirt(&access, "vm1").unwrap().unwrap();
        assert_eq!(threads, VcpuThreads { pid: 100, threads: BTreeMap::from([(0, 101), (1, 102)]) });
        let allowed = threads.allowed(&access);
        assert_eq!(allowed[&0], Ok(CpuSet::from([2])));
        assert_eq!(allowed[&1], Ok(CpuSet::from([0, 1, 2, 3, 8])));
        assert_eq!(VcpuThreads::of_libvirt(&access, "vm2").unwrap(), None);
        for name in ["", "../vm1", ".vm1", "a/b"] {
            assert!(VcpuThreads::of_libvirt(&access, name).is_err(), "{name}");
        }
        std::fs::remove_file(folder.path("proc/100/task/102/status")).unwrap();
        assert!(threads.allowed(&access)[&1].as_ref().unwrap_err().contains("is gone"));
    }

    #[test]
    fn a_listener_that_accepts_nothing_makes_nobody_wait() {
        let folder = Folder::new(&[]);
        let path = folder.path("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let mut streams = Vec::new();
        let refused = loop {
            match connect(&path) {
                Ok(stream) => streams.push(stream),
                Err(error) => break error,
            }
            assert!(streams.len() < 20_000, "the backlog has no end");
            if streams.len() > 500 {
                return; // a limit of open files or a large backlog: nothing waited
            }
        };
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn what_is_no_status_of_libvirt_is_an_error() {
        for wrong in [
            "",
            "<domain/>",
            "<domstatus/>",
            "<domstatus pid='x'/>",
            "<domstatus pid='1'><vcpus><vcpu id='70000' pid='1'/></vcpus></domstatus>",
            "<domstatus pid='1'><vcpus><vcpu id='0'/></vcpus></domstatus>",
            "<!DOCTYPE a [<!ENTITY b 'c'>]><domstatus pid='1'/>",
        ] {
            let folder = Folder::new(&[("run/libvirt/qemu/vm1.xml", wrong)]);
            assert!(VcpuThreads::of_libvirt(&folder.access(), "vm1").is_err(), "{wrong}");
        }
    }

    #[test]
    fn threads_are_known_by_the_names_that_qemu_gives_them() {
        let folder = Folder::new(&[
            ("proc/7/task/7/comm", "qemu-system-x86\n"),
            ("proc/7/task/8/comm", "CPU 0/KVM\n"),
            ("proc/7/task/9/comm", "CPU 11/TCG\n"),
            ("proc/7/task/10/comm", "CPU x/KVM\n"),
            ("proc/7/task/11/comm", "worker\n"),
            ("proc/6/task/6/comm", "qemu-system-x86\n"),
            ("run/vm.pid", "7\n"),
        ]);
        let access = folder.access();
        let threads = VcpuThreads::of_pid_file(&access, "/run/vm.pid").unwrap().unwrap();
        assert_eq!(threads, VcpuThreads { pid: 7, threads: BTreeMap::from([(0, 8), (11, 9)]) });
        assert!(VcpuThreads::of_process(&access, 6).unwrap_err().to_string().contains("debug-threads=on"));
        assert_eq!(VcpuThreads::of_process(&access, 5).unwrap(), None);
        assert_eq!(VcpuThreads::of_pid_file(&access, "/run/other.pid").unwrap(), None);
    }
}
