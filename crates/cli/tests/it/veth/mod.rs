//! Tests of `apus run` on real namespaces, veth pairs and AF_XDP. They need root; without it each says
//! on one line that it was skipped.

/// Ordinary programs that use what Apus forwards and echoes.
mod clients;
/// What goes wrong on a real machine, and how `apus run` takes it.
mod faults;
/// Frames of any content, sent past the kernel's stack.
mod inject;
/// Capabilities, users, their folders.
mod privilege;
/// `apus run` as a child, and what the kernel says about its interfaces.
mod run;
/// System calls that neither std nor rustix offers.
mod sys;

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tester::lab::{Guard, Lab, in_namespace, spawn};

use crate::support::{Root, Running, turn};

/// A lab of a test's own, and a directory for telemetry.
pub struct Bed {
    pub guard: Guard,
    pub root: Root,
    _turn: MutexGuard<'static, ()>,
}

impl Bed {
    /// Takes the turn and makes the lab that `make` describes for a name. `None`, and a line that
    /// says why, if this machine lacks root or one of `programs`.
    pub fn new(programs: &[&str], make: impl FnOnce(&str) -> Lab) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            testkit::skip("needs root (CAP_NET_ADMIN, CAP_SYS_ADMIN)");
            return None;
        }
        for program in programs {
            if !is_installed(program) {
                testkit::skip(format!("{program} is not installed (apt-get install {program})"));
                return None;
            }
        }
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let turn = turn();
        let name = format!("it{}n{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let guard = make(&name).up().unwrap();
        Some(Self { guard, root: Root::new(), _turn: turn })
    }

    /// Where the journal of what runs in it lies: bound over /var/lib.
    pub fn journal(&self) -> PathBuf {
        let folder = self.root.0.with_extension("lib");
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// A shell command in the namespace of `role`, which ends within a minute or is ended.
    pub fn sh(&self, role: &str, script: &str) -> Output {
        let mut child = self.start(role, Command::new("timeout").args(["60", "sh", "-c", script]));
        let (stdout, stderr) = (child.0.stdout.take().unwrap(), child.0.stderr.take().unwrap());
        let (stdout, stderr) = (collect(stdout), collect(stderr));
        let status = child.0.wait().unwrap();
        Output { status, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
    }

    /// The same, which must succeed; returns its standard output.
    #[track_caller]
    pub fn good(&self, role: &str, script: &str) -> String {
        let output = self.sh(role, script);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{script}: {}\n{text}{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        text
    }

    /// Whether ten pings, 10 ms apart, all come back. ping(8) waits two round trips for the last ones
    /// and then calls them lost, which on a busy machine is too early: so it may try again.
    #[track_caller]
    pub fn pings(&self, role: &str, address: &str) {
        wait_for(&format!("ten answers from {address}"), Duration::from_secs(20), || {
            let said = self.sh(role, &format!("ping -q -c 10 -i 0.01 -W 5 {address}"));
            String::from_utf8_lossy(&said.stdout).contains("10 received, 0% packet loss").then_some(())
        });
    }

    /// What the hosts' ends of the links have (sent, received), in frames.
    pub fn hosts(&self) -> (u64, u64) {
        let ends = self.guard.lab().links.iter().flat_map(|(a, b)| [a, b]).filter(|end| end.namespace != "dut");
        let links = ends.map(|end| self.link(&end.namespace, &end.interface));
        links.fold((0, 0), |(tx, rx), link| (tx + link.tx, rx + link.rx))
    }

    /// Starts a program in the namespace of `role`; it is killed, by its id, when dropped.
    pub fn start(&self, role: &str, command: &mut Command) -> Running {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running(spawn(&self.guard.namespace(role), command).unwrap())
    }

    /// Runs `f` on a thread in the namespace of `role`.
    pub fn inside<T: Send>(&self, role: &str, f: impl FnOnce() -> T + Send) -> T {
        in_namespace(&self.guard.namespace(role), f).unwrap()
    }

    /// What the kernel says of an interface.
    #[track_caller]
    pub fn link(&self, role: &str, interface: &str) -> Link {
        let text = self.good(role, &format!("ip -j -d -s link show dev {interface}"));
        let all: Value = serde_json::from_str(&text).unwrap();
        let link = &all[0];
        let count = |way: &str, what: &str| link["stats64"][way][what].as_u64().expect(&text);
        Link {
            rx: count("rx", "packets"),
            tx: count("tx", "packets"),
            tx_dropped: count("tx", "dropped"),
            has_program: link.get("xdp").is_some(),
        }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.root.0.with_extension("lib"));
    }
}

/// Counters of an interface since it was made.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub rx: u64,
    /// Those that reached the other end of the veth pair.
    pub tx: u64,
    /// Those that did not, as the other end's ring was full or it was down.
    pub tx_dropped: u64,
    /// An XDP program is attached.
    pub has_program: bool,
}

/// Asks until there is an answer; panics with `what` after `limit`.
#[track_caller]
pub fn wait_for<T>(what: &str, limit: Duration, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Reads a pipe to its end, so that its writer never waits.
pub fn collect(mut pipe: impl std::io::Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut all = Vec::new();
        let _ = pipe.read_to_end(&mut all); // what came is what counts
        all
    })
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}
