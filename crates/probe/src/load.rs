//! Generates load on the host during a measurement, because real hosts are never idle. The load is made by
//! stress-ng(1).

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use live::os::Signals;
use rustix::process::{Pid, Signal, kill_process};
use units::Nanos;

use crate::Error;

/// How long stress-ng may take to end after it was asked to.
const END_WITHIN: Duration = Duration::from_secs(3);
/// How long the workers of stress-ng may take to start.
const WARM_UP: Duration = Duration::from_millis(500);
/// stress-ng ends by itself this long after the measurement, in case this process is killed and cannot end it.
const SPARE: Nanos = Nanos::from_secs(60);

units::named! {
    /// A kind of load that stress-ng(1) generates.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Load {
        /// No load.
        None = "none",
        /// Arithmetic on every CPU, in the normal class.
        Cpu = "cpu",
        /// Memory streams on every CPU.
        Memory = "memory",
        /// UDP over the loopback interface, one pair of processes per CPU.
        Network = "network",
        /// Reads, writes and syncs of files.
        Io = "io",
    }
}

impl Load {
    /// Arguments for stress-ng(1); 0 means one worker per CPU.
    fn words(self) -> Option<[&'static str; 2]> {
        match self {
            Self::None => None,
            Self::Cpu => Some(["--cpu", "0"]),
            Self::Memory => Some(["--stream", "0"]),
            Self::Network => Some(["--udp", "0"]),
            Self::Io => Some(["--iomix", "0"]),
        }
    }

    /// Starts the load for a measurement of at most `time`. The load ends when the returned value is dropped.
    pub fn start(self, time: Nanos) -> Result<Running, Error> {
        let Some(words) = self.words() else { return Ok(Running(None)) };
        let seconds = (time + SPARE).as_nanos().div_ceil(1_000_000_000);
        let mut command = Command::new("stress-ng");
        command.args(words).args(["--quiet", "--timeout", &format!("{seconds}s")]);
        command.args(["--temp-path".as_ref(), std::env::temp_dir().as_os_str()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // In its own process group, so that Ctrl-C reaches only this process, which then ends the load.
        command.process_group(0);
        let what = || format!("run the load {self}");
        let child = Signals::spawn(&mut command).map_err(|error| {
            Error::lacking(what(), format!("stress-ng: {error}"), "apt-get install stress-ng, or --load none")
        })?;
        let mut running = Running(Some(child));
        std::thread::sleep(WARM_UP);
        if let Some(child) = &mut running.0
            && let Ok(Some(status)) = child.try_wait()
        {
            let words = words.join(" ");
            return Err(Error::lacking(
                what(),
                format!("stress-ng ended with {status}"),
                format!("run it by hand to see its error: stress-ng {words} --timeout 1s"),
            ));
        }
        Ok(running)
    }
}

/// A running load.
#[derive(Debug)]
pub struct Running(Option<Child>);

impl Running {
    /// Ends the load. If stress-ng had already ended by itself, so that part of the measurement had no load, returns a
    /// message that says so.
    pub fn end(mut self) -> Option<String> {
        let ended = self.0.as_mut().and_then(|child| child.try_wait().ok().flatten());
        ended.map(|status| format!("the load ended before the measurement did: stress-ng, {status}"))
    }
}

impl Drop for Running {
    /// Asks stress-ng to end, which also ends its workers. Kills stress-ng if it does not end in time.
    fn drop(&mut self) {
        let Some(child) = &mut self.0 else { return };
        let _ = kill_process(Pid::from_child(child), Signal::TERM);
        let give_up = Instant::now() + END_WITHIN;
        while Instant::now() < give_up {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_shown() {
        for load in Load::ALL {
            assert_eq!(load.to_string().parse(), Ok(load));
        }
        assert!("disk".parse::<Load>().is_err());
    }

    #[test]
    fn a_load_that_dies_is_told() {
        let Ok(mut running) = Load::Cpu.start(Nanos::from_secs(1)) else {
            testkit::skip("stress-ng is not installed (apt-get install stress-ng)");
            return;
        };
        let child = running.0.as_mut().unwrap();
        kill_process(Pid::from_child(child), Signal::TERM).unwrap();
        let give_up = Instant::now() + END_WITHIN;
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < give_up {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(running.end().unwrap().contains("ended before the measurement did"));
    }

    #[test]
    fn a_load_ends_with_its_guard() {
        let running = match Load::Cpu.start(Nanos::from_secs(1)) {
            Ok(running) => running,
            Err(error) => {
                testkit::skip(error.to_string());
                return;
            }
        };
        let pid = running.0.as_ref().unwrap().id();
        assert!(std::path::Path::new(&format!("/proc/{pid}")).exists());
        assert_eq!(running.end(), None);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}
