//! The published state of running instances of `apus power serve`: one file for each, as for `apus moderate`.

use std::io::{self, Read as _, Write as _};
use std::path::Path;

use live::telemetry::{Folder, Process};
use serde::{Deserialize, Serialize};
use tester::clock::{MonotonicClock, TrialClock as _};
use units::{Instant, Monotonic, Nanos};

use crate::args::power::serve::ROOT;
use crate::documents::guests::{Document, Instance};

/// Maximum size of a file in bytes: a few hundred bytes for each of thousands of vCPUs.
const LARGEST: u64 = 4 << 20;

/// The content of a file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    pid: u32,
    /// Field 22 of /proc/PID/stat (proc_pid_stat(5)).
    start_ticks: u64,
    /// Time of writing, by CLOCK_MONOTONIC.
    published_ns: u64,
    document: Document,
}

/// Publishes the state of this process, and removes the file when dropped.
pub(super) struct Published {
    to: io::Result<(Folder, Process)>,
    /// Whether the last attempt failed, so that a lasting failure is reported only once.
    has_failed: bool,
}

impl Published {
    /// Prepares the file under `root`, and removes the files of killed instances.
    pub(super) fn below(root: &Path) -> Self {
        let to = Folder::create(&root.join(ROOT.trim_start_matches('/')));
        let to = to.and_then(|folder| Ok((folder, Process::current()?)));
        if let Ok((folder, _)) = &to {
            for name in folder.names().unwrap_or_default() {
                if read(folder, &name).is_ok_and(|contents| !runs(&contents)) {
                    let _ = folder.remove(&name);
                }
            }
        }
        Self { to, has_failed: false }
    }

    /// Writes the file. Returns a message for the user if this fails for the first time in a row.
    pub(super) fn publish(&mut self, document: &Document) -> Option<String> {
        let written = match &self.to {
            Ok((folder, process)) => write(folder, process, document),
            Err(e) => Err(io::Error::new(e.kind(), e.to_string())),
        };
        let is_news = written.is_err() && !self.has_failed;
        self.has_failed = written.is_err();
        let error = written.err().filter(|_| is_news)?;
        Some(format!("cannot write {ROOT} ({error}), so apus power serve status does not show this instance"))
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        if let Ok((folder, process)) = &self.to {
            // If it stays, readers see that its process has gone.
            let _ = folder.remove(&name(process.pid));
        }
    }
}

fn name(pid: u32) -> String {
    format!("{pid}.json")
}

fn write(folder: &Folder, process: &Process, document: &Document) -> io::Result<()> {
    let contents = Contents {
        pid: process.pid,
        start_ticks: process.start_ticks,
        published_ns: MonotonicClock.now().as_nanos(),
        document: document.clone(),
    };
    let text = serde_json::to_vec(&contents).map_err(io::Error::other)?;
    let (name, unnamed) = (name(process.pid), format!(".{}", name(process.pid)));
    folder.remove(&unnamed)?;
    let written = folder.make(&unnamed).and_then(|mut file| file.write_all(&text));
    let named = written.and_then(|()| folder.rename(&unnamed, &name));
    if named.is_err() {
        let _ = folder.remove(&unnamed);
    }
    named
}

/// The running instances, sorted by PID. Files of ended processes and untrusted files are left out.
pub(in crate::commands) fn all(root: &Path) -> io::Result<Vec<Instance>> {
    let Some(folder) = Folder::open(root)? else { return Ok(Vec::new()) };
    let folder = folder.believable()?;
    let mut found = Vec::new();
    for name in folder.names()? {
        if let Some(contents) = read(&folder, &name).ok().filter(runs) {
            let published: Instant<Monotonic> = Instant::from_nanos(contents.published_ns);
            let silent = MonotonicClock.now().since(published).unwrap_or(Nanos::ZERO);
            found.push(Instance { pid: contents.pid, silent_ns: silent.as_nanos(), document: contents.document });
        }
    }
    found.sort_by_key(|instance| instance.pid);
    Ok(found)
}

fn read(folder: &Folder, name: &str) -> io::Result<Contents> {
    let file = folder.file(name)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a file"));
    }
    let mut text = Vec::new();
    file.take(LARGEST).read_to_end(&mut text)?;
    serde_json::from_slice(&text).map_err(io::Error::other)
}

/// Whether the process that wrote this file is still running.
fn runs(contents: &Contents) -> bool {
    Process { pid: contents.pid, start_ticks: contents.start_ticks }.is_alive()
}
