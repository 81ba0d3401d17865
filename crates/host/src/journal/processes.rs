//! Where the PIDs in a journal are looked up.
//!
//! A PID means something only in one PID namespace. The journal of a host belongs to that host, also if a
//! container reaches it below another root folder: so it has the PIDs of the host, which are in the host's /proc
//! below that folder.

use rustix::fs::{Mode, OFlags};

use crate::knob::{Access, Error, process_started};

/// The processes that the journals below a root folder name.
pub struct Processes {
    /// The machine whose /proc shows them.
    access: Access,
    /// Where this process's own /proc counts, for a root folder without a procfs. `None` if the root has its own.
    seen_from: Option<String>,
}

impl Processes {
    /// The processes of the machine below `access`'s root folder.
    pub fn of(access: &Access) -> Result<Self, Error> {
        if access.is_live() || is_procfs(access) {
            return Ok(Self { access: access.clone(), seen_from: None });
        }
        let live = Access::live()?;
        let boot = live.line("/proc/sys/kernel/random/boot_id")?.unwrap_or_default();
        let namespace = live.link("/proc/self/ns/pid")?.unwrap_or_default();
        Ok(Self { access: live, seen_from: Some(format!("{boot} {namespace}")) })
    }

    /// The boot and the PID namespace of this process, if the root folder has no procfs: only there, the PIDs of its
    /// journals say which processes they are. `None` if they are looked up below the root folder.
    pub fn seen_from(&self) -> Option<&str> {
        self.seen_from.as_deref()
    }

    /// When process `pid` started, in clock ticks after boot. `None` if no such process runs; a zombie does not count.
    pub fn started(&self, pid: u32) -> Result<Option<u64>, Error> {
        process_started(&self.access, pid)
    }

    /// The PID and the start of this process, as a journal names them. `None` if /proc does not show this process.
    pub fn own(&self) -> Result<Option<(u32, u64)>, Error> {
        let pid = self.access.link("/proc/self")?.and_then(|pid| pid.parse().ok());
        Ok(match pid {
            Some(pid) => self.started(pid)?.map(|started| (pid, started)),
            None => None,
        })
    }

    /// Whether a process of a journal has certainly ended. `seen_from` is what [`Self::seen_from`] was when the journal
    /// was written. False if the process could only be seen elsewhere.
    pub(crate) fn has_ended(&self, pid: u32, started: u64, seen_from: Option<&str>) -> bool {
        let is_seen = self.seen_from.is_none() || self.seen_from() == seen_from;
        is_seen && self.started(pid).is_ok_and(|now| now != Some(started))
    }
}

/// Whether `/proc` below the root folder is the kernel's, and not a recording.
fn is_procfs(access: &Access) -> bool {
    /// Magic number of procfs (include/uapi/linux/magic.h).
    const PROC_SUPER_MAGIC: u64 = 0x9fa0;
    let folder = access.open("/proc", OFlags::PATH | OFlags::DIRECTORY, Mode::empty());
    folder.is_ok_and(|folder| rustix::fs::fstatfs(folder).is_ok_and(|stat| stat.f_type as u64 == PROC_SUPER_MAGIC))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Folder;

    /// Regression test: the process of a recorded host was looked up on this machine, and said to have ended.
    #[test]
    fn a_process_that_can_be_seen_only_elsewhere_is_not_said_to_have_ended() {
        let folder = Folder::new(&[("proc/sys/kernel/random/boot_id", "boot-1\n")]);
        let recorded = Processes::of(&folder.access()).unwrap();
        let here = recorded.seen_from().unwrap().to_owned();
        let (pid, started) = recorded.own().unwrap().unwrap();
        assert_eq!(pid, std::process::id());
        assert!(!recorded.has_ended(pid, started, Some(&here)));
        assert!(recorded.has_ended(pid, started + 1, Some(&here)), "another process has its number");
        for elsewhere in [None, Some("another boot pid:[1]")] {
            assert!(!recorded.has_ended(pid, started + 1, elsewhere), "{elsewhere:?}");
        }
        // The running machine has its processes itself.
        let live = Processes::of(&Access::live().unwrap()).unwrap();
        assert_eq!(live.own().unwrap(), Some((pid, started)));
        assert!(live.seen_from().is_none() && live.has_ended(pid, started + 1, None));
    }
}
