//! Allows only one transaction at a time.

use std::fmt;
use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use crate::journal::Processes;
use crate::knob::Error;
use crate::vault::Vault;

const NAME: &str = "lock";

/// The lock that a transaction holds while it changes or rolls back settings. If the process does not release it, the
/// kernel does so when the process ends (flock(2)).
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// The holder of the lock, as recorded in the lock file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Owner {
    /// Number of the process that holds the lock.
    pub pid: u32,
    /// The command line of the process that holds the lock.
    pub command: String,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.pid, self.command)
    }
}

impl Lock {
    /// Takes the lock. If another process holds it, waits for at most `patience`.
    pub fn take(vault: &Vault, command: &str, patience: Duration) -> Result<Self, Error> {
        /// Time between attempts to take the lock. A transaction takes milliseconds to seconds.
        const PAUSE: Duration = Duration::from_millis(20);
        let what = || format!("take the lock {}", vault.show(NAME));
        let mut file = vault.ensure(NAME)?;
        let end = Instant::now() + patience;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < end => std::thread::sleep(PAUSE),
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    let owner = owner(&mut file).map_or("another process".into(), |owner| owner.to_string());
                    return Err(Error::Refused {
                        what: "change the machine's settings".into(),
                        why: format!("{owner} is doing so now"),
                        fix: "wait for it (--wait 30s), or stop it".into(),
                    });
                }
                Err(e) => return Err(Error::of(what(), &e.into())),
            }
        }
        // Others who reach the same root see this process by the PID that it has there.
        let me = Processes::of(vault.access())?.own()?.map_or(std::process::id(), |(pid, _)| pid);
        let text = format!("{me} {}\n", command.replace('\n', " "));
        let access = vault.access();
        let written = access
            .act("truncate", vault.show(NAME), || file.set_len(0))
            .and_then(|()| file.rewind())
            .and_then(|()| access.act("write", vault.show(NAME), || file.write_all(text.as_bytes())));
        match written {
            Err(e) if !is_full(&e) => Err(Error::of(what(), &e)),
            // On a full disk, only the owner's name is missing. Settings must be restored all the same.
            _ => Ok(Self { _file: file }),
        }
    }
}

fn is_full(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}

fn owner(file: &mut File) -> Option<Owner> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.read_to_string(&mut text).ok()?;
    let (pid, command) = text.trim().split_once(' ')?;
    Some(Owner { pid: pid.parse().ok()?, command: command.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Folder;

    fn started(pid: u32) -> Option<u64> {
        Processes::of(&crate::knob::Access::live().unwrap()).unwrap().started(pid).unwrap()
    }

    #[test]
    fn the_second_waits_or_learns_who() {
        let folder = Folder::new(&[]);
        let vault = Vault::create(&folder.access()).unwrap();
        let first = Lock::take(&vault, "the first", Duration::ZERO).unwrap();
        let error = Lock::take(&vault, "the second", Duration::ZERO).unwrap_err();
        assert!(error.to_string().contains("(the first)"), "{error}");
        std::thread::scope(|scope| {
            let second = scope.spawn(|| Lock::take(&vault, "the second", Duration::from_secs(60)));
            drop(first);
            second.join().unwrap().unwrap();
        });
    }

    #[test]
    fn processes_are_told_apart_by_their_start() {
        assert!(started(std::process::id()).is_some());
        assert_eq!(started(u32::MAX), None);
    }

    #[test]
    fn a_zombie_is_not_alive() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        assert!(started(child.id()).is_some());
        child.kill().unwrap();
        // The ended process is a zombie until its parent waits for it, so it can be observed.
        let end = Instant::now() + Duration::from_secs(60);
        while started(child.id()).is_some() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(started(child.id()), None);
        let state = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        assert!(state.contains(") Z "), "{state}");
        child.wait().unwrap();
    }

    #[test]
    fn a_process_whose_first_thread_has_ended_is_alive() {
        // The process's first thread ends while another one continues: /proc then calls the process a zombie (proc(5)).
        let program = "import ctypes, threading, time\n\
                       threading.Thread(target=time.sleep, args=(600,)).start()\n\
                       ctypes.CDLL(None).pthread_exit(None)";
        let Ok(mut child) = std::process::Command::new("python3").args(["-c", program]).spawn() else {
            testkit::skip("python3 (apt-get install python3)");
            return;
        };
        let stat = || std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
        let end = Instant::now() + Duration::from_secs(60);
        while !stat().contains(") Z ") && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        let (stat, alive) = (stat(), started(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(stat.contains(") Z ") && alive.is_some(), "{stat} {alive:?}");
    }
}
