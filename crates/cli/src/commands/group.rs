//! A child process in a process group of its own, which can be ended together with its children.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use live::os::Signals;
use rustix::process::{Pid, Signal, kill_process_group};

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

    /// Asks the group to end (SIGTERM), and kills it after two seconds (SIGKILL). `over` tells whether it has ended.
    pub(super) fn end(self, mut over: impl FnMut() -> bool) {
        let _ = kill_process_group(self.0, Signal::TERM);
        let began = Instant::now();
        while !over() {
            if began.elapsed() > GRACE {
                let _ = kill_process_group(self.0, Signal::KILL);
                return;
            }
            std::thread::sleep(STEP);
        }
    }
}
