//! A child process in a process group of its own, which can be ended together with its children.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use live::os::Signals;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

/// Time for a command to end after Apus has asked it to.
const GRACE: Duration = Duration::from_secs(2);
/// Time between two checks whether it has ended.
const STEP: Duration = Duration::from_millis(10);

/// The process group of a child.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group(Pid);

impl Group {
    /// Starts a command. Ctrl-C at the terminal does not reach it, so the caller must end it.
    pub(super) fn start(command: &mut Command) -> io::Result<(Child, Self)> {
        let child = Signals::spawn(command.process_group(0))?;
        let group = Self(Pid::from_child(&child));
        Ok((child, group))
    }

    /// Asks the group to end (SIGTERM), and kills what is left of it after two seconds (SIGKILL). `over` tells whether the
    /// child itself has ended, and must reap it.
    pub(super) fn end(self, mut over: impl FnMut() -> bool) {
        let _ = kill_process_group(self.0, Signal::TERM);
        let began = Instant::now();
        while !over() || test_kill_process_group(self.0).is_ok() {
            if began.elapsed() > GRACE {
                let _ = kill_process_group(self.0, Signal::KILL);
                return;
            }
            std::thread::sleep(STEP);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_of_the_child_that_ignores_the_request_is_killed_too() {
        let script = "(trap '' TERM; exec sleep 100) & echo up; wait";
        let mut command = Command::new("sh");
        let (mut child, group) =
            Group::start(command.args(["-c", script]).stdout(std::process::Stdio::piped())).unwrap();
        io::Read::read_exact(&mut child.stdout.take().unwrap(), &mut [0; 3]).unwrap();
        group.end(|| child.try_wait().unwrap().is_some());
        let end = Instant::now() + Duration::from_secs(20);
        while test_kill_process_group(group.0).is_ok() {
            assert!(Instant::now() < end, "it still runs");
            std::thread::sleep(STEP);
        }
    }
}
