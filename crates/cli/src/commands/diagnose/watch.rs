//! Watches both ends of a connection at the same time. For each end, a separate process runs `apus snapshot --watch` in
//! the network namespace of that end. So watching records the same facts as a snapshot of another host.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use host::facts::Facts;
use live::os::Signals;

use super::recorded;
use crate::args::diagnose::Diagnose;
use crate::commands::output::Output;
use crate::{Failure, terminal};

/// A temporary folder for the recordings or for the plan of an experiment, removed when dropped.
pub(super) struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("apus-diagnose-{}", std::process::id()));
        // Other users must not read a snapshot, nor replace a plan, whose command may run as root. An existing folder
        // could belong to another user, so it is an error.
        fs::DirBuilder::new().mode(0o700).create(&path).map_err(|error| {
            Failure::lacking(
                format!("cannot create {}", path.display()),
                error,
                "set TMPDIR to a folder that you may write",
            )
        })?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process that takes a snapshot. It is killed when this value is dropped.
struct Taking {
    child: Child,
    name: String,
    file: PathBuf,
}

impl Drop for Taking {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What was observed at this end, and at the other end if the user named its namespace or a recording of it.
pub(super) fn ends(typed: &Diagnose) -> anyhow::Result<Vec<(String, Facts)>> {
    let signals = Signals::hold()?;
    let folder = Folder::new()?;
    let file = |which: &str| match &typed.keep {
        Some(prefix) => {
            let mut name = prefix.clone().into_os_string();
            name.push(format!(".{which}.tar"));
            PathBuf::from(name)
        }
        None => folder.0.join(format!("{which}.tar")),
    };
    if let Some(prefix) = &typed.keep {
        // Checked here, because the snapshots would name an option of their own.
        drop(Output::open(&file("here")).map_err(|failure| Failure {
            what: format!("cannot save recordings with the prefix {}", prefix.display()),
            fix: "choose a --keep PREFIX in a folder that you can write to".into(),
            ..failure
        })?);
    }
    let mut takings = vec![start(typed, typed.netns.as_deref(), file("here"))?];
    if let Some(peer) = &typed.peer_netns {
        takings.push(start(typed, Some(peer), file("peer"))?);
    }
    if terminal::err_is_terminal() {
        use std::io::Write as _;
        writeln!(terminal::err(), "watching for {}; keep the load running...", typed.watch)?;
    }
    let mut ends = Vec::new();
    for taking in &mut takings {
        finish(taking, &signals)?;
        ends.push((taking.name.clone(), recorded(&taking.file)?));
    }
    if let Some(peer) = &typed.peer {
        ends.push((super::named(peer), recorded(peer)?));
    }
    Ok(ends)
}

fn start(typed: &Diagnose, netns: Option<&str>, file: PathBuf) -> anyhow::Result<Taking> {
    let program = std::env::current_exe()?;
    let mut command = match netns {
        // `ip netns exec` also mounts the namespace's /sys, which a thread that only enters the namespace would not
        // see.
        Some(name) => {
            check(name)?;
            let mut command = Command::new("ip");
            command.args(["netns", "exec", name]).arg(program);
            command
        }
        None => Command::new(program),
    };
    command.args(["snapshot", "--watch", "--for", &typed.watch.to_string(), "--json", "--output"]).arg(&file);
    let child =
        Signals::spawn(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped())).map_err(|error| {
            Failure::lacking(
                "cannot watch",
                format!("{}: {error}", command.get_program().display()),
                "install iproute2",
            )
        })?;
    Ok(Taking { child, name: netns.unwrap_or("this host").to_owned(), file })
}

fn check(name: &str) -> Result<(), Failure> {
    if Path::new("/run/netns").join(name).exists() && !name.contains('/') {
        return Ok(());
    }
    Err(Failure::lacking(
        format!("cannot watch the network namespace {name}"),
        "there is no such namespace",
        "use a name that `ip netns list` shows",
    ))
}

fn finish(taking: &mut Taking, signals: &Signals) -> anyhow::Result<()> {
    loop {
        if let Some(status) = taking.child.try_wait()? {
            if status.code().is_some_and(|code| code <= 1) {
                return Ok(());
            }
            let mut why = String::new();
            if let Some(mut errors) = taking.child.stderr.take() {
                std::io::Read::read_to_string(&mut errors, &mut why)?;
            }
            return Err(Failure::lacking(
                format!("cannot watch {}", taking.name),
                why.trim(),
                "run as root; if that fails too, `apus snapshot --watch` on the same end shows the details",
            )
            .into());
        }
        if signals.wait(Duration::from_millis(20)).is_some() {
            return Err(Failure::interrupted(
                format!("cannot judge {}: interrupted", taking.name),
                "a signal arrived before the counters were read a second time",
                "let it finish, or watch for a shorter time with --watch",
            )
            .into());
        }
    }
}
