//! The network namespace in which a transaction was made, and whether that namespace still exists.
//!
//! From Linux 6.18 on, a namespace has a file handle, by which a process with CAP_SYS_ADMIN in the initial user
//! namespace can find out whether the namespace still exists. Otherwise Apus searches for the namespace. A namespace
//! exists while a thread is in it, a file descriptor is open on it, or it is mounted (namespaces(7), "Namespace
//! lifetime"). So the search reads `ns/net` of every thread, `fd` of every process, and the mounts of type nsfs in
//! every mount namespace (`ip netns add` makes one in /run/netns).
//!
//! **Limits** of the search. It finds neither namespaces that only a socket or a device keeps alive, nor descriptors in
//! transit through a UNIX socket. In a PID namespace, or without CAP_SYS_PTRACE, threads of other users are hidden, and
//! a security module may hide more. In these cases, a namespace that is not found counts as existing.

mod sys;

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use rustix::thread::{CapabilitySet, capabilities};

use super::Transaction;
use crate::knob::{Access, Setting as _};

/// The calling thread's network namespace.
pub(super) const OWN: &str = "/proc/thread-self/ns/net";

/// A network namespace, as recorded in a journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Network {
    /// Name with the inode of the namespace, such as `net:[4026531840]`. When a namespace ends, the kernel may give its
    /// inode number to a new one.
    pub(super) name: String,
    /// The namespace's cookie, a number that the kernel does not reuse before the next boot. `None` before Linux 5.14.
    pub(super) cookie: Option<u64>,
    /// File handle of the namespace, in hexadecimal digits; `None` before Linux 6.18.
    pub(super) handle: Option<String>,
}

/// Whether a transaction belongs to the calling thread's network namespace, to another one, or to one that no longer
/// exists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Whereabouts {
    /// The transaction's network namespace is the calling thread's, or none of the transaction's settings belongs to a
    /// network namespace.
    Here,
    /// The transaction's network namespace is not the calling thread's, and it exists or may exist.
    Elsewhere {
        /// Name of the network namespace, such as `net:[4026532287]`.
        name: String,
        /// Why the namespace may exist although it was not found. `None` if it was found.
        doubt: Option<String>,
    },
    /// The transaction's network namespace is gone; its interfaces and sysctls ended with it.
    Gone {
        /// Name of the network namespace, such as `net:[4026532287]`.
        name: String,
    },
}

impl fmt::Display for Whereabouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here => f.write_str("this network namespace"),
            Self::Elsewhere { name, doubt: None } => write!(f, "the network namespace {name}"),
            Self::Elsewhere { name, doubt: Some(doubt) } => {
                write!(f, "the network namespace {name} (which may no longer exist: {doubt})")
            }
            Self::Gone { name } => write!(f, "the network namespace {name}, which no longer exists"),
        }
    }
}

/// The network namespace of this thread. `None` if the root directory is not `/`.
pub(super) fn network(access: &Access) -> Option<Network> {
    if !access.is_live() {
        return None;
    }
    // Reads the thread's namespace, not the process's: a thread may be in another one.
    let link = std::fs::read_link(OWN).ok()?;
    let handle = std::fs::File::open(OWN).ok().and_then(|file| sys::handle(&file));
    let handle = handle.map(|octets| octets.iter().map(|octet| format!("{octet:02x}")).collect());
    Some(Network { name: link.to_string_lossy().into_owned(), cookie: sys::cookie().ok(), handle })
}

impl Transaction {
    /// Determines whether the transaction's network namespace is the calling thread's, another one, or gone.
    pub fn whereabouts(&self, access: &Access) -> Whereabouts {
        let Some((then, now)) = self.another(access) else { return Whereabouts::Here };
        let name = then.name;
        // This thread's namespace has the number now. So the old namespace has ended.
        if now.is_some_and(|now| now.name == name) {
            return Whereabouts::Gone { name };
        }
        match then.handle.as_deref().and_then(exists) {
            Some(true) => return Whereabouts::Elsewhere { name, doubt: None },
            Some(false) => return Whereabouts::Gone { name },
            None => {}
        }
        match search(Path::new("/proc"), &name) {
            Search::Found => Whereabouts::Elsewhere { name, doubt: None },
            Search::Nowhere => Whereabouts::Gone { name },
            Search::Doubtful(doubt) => Whereabouts::Elsewhere { name, doubt: Some(doubt) },
        }
    }

    /// The capabilities that a process with user ID 0 needs for [`Self::whereabouts`].
    pub fn capability_to_look(&self, access: &Access) -> CapabilitySet {
        // The namespace is found by its handle, or else by a search of all threads. A thread with more capabilities
        // hides its namespace from one with fewer (ptrace(2), "Ptrace access mode checking").
        if self.another(access).is_some() {
            CapabilitySet::SYS_ADMIN | CapabilitySet::SYS_PTRACE
        } else {
            CapabilitySet::empty()
        }
    }

    /// The transaction's namespace and this process's namespace, if the transaction has settings in another namespace.
    fn another(&self, access: &Access) -> Option<(Network, Option<Network>)> {
        let begin = self.begin.as_ref()?;
        let then = Network {
            name: begin.network.clone()?,
            cookie: begin.network_cookie,
            handle: begin.network_handle.clone(),
        };
        if self.is_past {
            return None;
        }
        let changed = self.open_entries().map(|entry| &entry.intent.setting);
        let of_network =
            changed.chain(self.already.iter().map(|(setting, _)| setting)).any(|setting| setting.is_of_network());
        let now = network(access);
        let same = now.as_ref().is_some_and(|now| {
            now.name == then.name
                && now.handle.as_ref().zip(then.handle.as_ref()).is_none_or(|(now, then)| now == then)
                && now.cookie.zip(then.cookie).is_none_or(|(now, then)| now == then)
        });
        (of_network && !same).then_some((then, now))
    }
}

/// Whether the namespace with this handle exists. `None` if that cannot be determined from the handle.
fn exists(handle: &str) -> Option<bool> {
    /// The initial user namespace maps all IDs to themselves (user_namespaces(7)).
    const ALL: [&str; 3] = ["0", "0", "4294967295"];
    let users = std::fs::read_to_string("/proc/self/uid_map").ok()?;
    let capable = capabilities(None).ok()?.effective.contains(CapabilitySet::SYS_ADMIN);
    if !capable || !users.split_whitespace().eq(ALL) {
        return None;
    }
    let mut octets = [0; 16];
    for (place, octet) in octets.iter_mut().enumerate() {
        *octet = u8::from_str_radix(handle.get(2 * place..2 * place + 2)?, 16).ok()?;
    }
    let own = std::fs::File::open(OWN).ok()?;
    // If even our own namespace has no handle, the kernel does not support handles.
    sys::handle(&own)?;
    match sys::open(&own, octets) {
        Ok(_) => Some(true),
        Err(e) => (e.raw_os_error() == Some(libc::ESTALE)).then_some(false),
    }
}

/// Result of a search for a namespace.
#[derive(PartialEq, Eq, Debug)]
enum Search {
    Found,
    Nowhere,
    Doubtful(String),
}

/// The initial PID namespace: `PROC_PID_INIT_INO` of include/uapi/linux/nsfs.h (earlier: include/linux/proc_ns.h).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Searches all processes in the folder `proc` for the namespace `name`.
fn search(proc: &Path, name: &str) -> Search {
    let link = |path: PathBuf| std::fs::read_link(path).map(|link| link.to_string_lossy().into_owned());
    match link(proc.join("self/ns/pid")) {
        Ok(pid) if pid == FIRST_PID_NAMESPACE => {}
        Ok(pid) => return Search::Doubtful(format!("processes outside the PID namespace {pid} are not visible")),
        Err(e) => return Search::Doubtful(format!("read {}: {e}", proc.join("self/ns/pid").display())),
    }
    let names = |folder: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let numbered = entries.filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok());
        numbered.map(|entry| entry.path()).collect()
    };
    let mut hidden = 0;
    let mut mounts = BTreeSet::new();
    for process in names(proc) {
        let hides = |e: &std::io::Error| e.kind() == std::io::ErrorKind::PermissionDenied;
        for thread in names(&process.join("task")) {
            match link(thread.join("ns/net")) {
                Ok(net) if net == name => return Search::Found,
                Ok(_) => {}
                // A process that has ended, or is a zombie, is in no namespace.
                Err(e) => hidden += u32::from(hides(&e)),
            }
        }
        if names(&process.join("fd")).into_iter().any(|fd| link(fd).is_ok_and(|to| to == name)) {
            return Search::Found;
        }
        let Ok(space) = link(process.join("ns/mnt")) else { continue };
        if mounts.insert(space) {
            match std::fs::read_to_string(process.join("mountinfo")) {
                Ok(text) if mounted(&text, name) => return Search::Found,
                Ok(_) => {}
                Err(e) => hidden += u32::from(hides(&e)),
            }
        }
    }
    match hidden {
        0 => Search::Nowhere,
        n => Search::Doubtful(format!("{n} threads or mount tables are not readable: run as root")),
    }
}

/// Whether the mount table `table` contains the namespace `name`. If so, the fourth field of a line, the root within
/// the file system, is the namespace's name (proc_pid_mountinfo(5)).
fn mounted(table: &str, name: &str) -> bool {
    table.lines().any(|line| line.split(' ').nth(3) == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Folder;
    use std::os::unix::fs::symlink;

    /// A /proc with one process of one thread.
    fn proc(pid: &str, net: &str, mountinfo: &str) -> Folder {
        let folder = Folder::new(&[("proc/7/mountinfo", mountinfo), ("proc/7/task/7/x", ""), ("proc/self/x", "")]);
        for (path, to) in [
            ("proc/self/ns/pid", pid),
            ("proc/7/task/7/ns/net", net),
            ("proc/7/ns/mnt", "mnt:[1]"),
            ("proc/7/fd/3", "net:[5]"),
        ] {
            std::fs::create_dir_all(folder.path(path).parent().unwrap()).unwrap();
            symlink(to, folder.path(path)).unwrap();
        }
        folder
    }

    #[test]
    fn threads_descriptors_and_mounts_keep_a_namespace() {
        let mount = "36 35 0:4 net:[4] /run/netns/a rw shared:2 - nsfs nsfs rw\n";
        let folder = proc(FIRST_PID_NAMESPACE, "net:[3]", mount);
        let look = |name: &str| search(&folder.path("proc"), name);
        assert_eq!([look("net:[3]"), look("net:[4]"), look("net:[5]")], [Search::Found, Search::Found, Search::Found]);
        assert_eq!(look("net:[6]"), Search::Nowhere);
    }

    #[test]
    fn from_within_a_pid_namespace_nothing_is_gone() {
        let folder = proc("pid:[4026532000]", "net:[3]", "");
        assert!(matches!(search(&folder.path("proc"), "net:[6]"), Search::Doubtful(_)));
    }

    #[test]
    fn every_namespace_has_a_cookie_of_its_own() {
        let access = Access::live().unwrap();
        let outside = network(&access).unwrap();
        crate::testing::in_own_namespace(|| {
            let inside = network(&access).unwrap();
            assert_ne!(inside.name, outside.name);
            let handle = |network: &Network| network.handle.clone();
            match (handle(&inside), handle(&outside)) {
                (Some(inside), Some(outside)) => {
                    assert_ne!(inside, outside);
                    assert_eq!((exists(&inside), exists(&outside)), (Some(true), Some(true)));
                    // The handle begins with the namespace's unique number. No namespace will ever have the number used
                    // here.
                    assert_eq!(exists(&inside.replacen(&inside[..16], "ffffffffffffff7f", 1)), Some(false));
                }
                (None, None) => println!("the kernel has no handles of namespaces (Linux 6.18)"),
                other => panic!("{other:?}"),
            }
            assert!(inside.cookie.is_none() || inside.cookie != outside.cookie, "{inside:?} {outside:?}");
        });
    }
}
