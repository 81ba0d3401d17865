//! The log of requests: one JSON line each in a file, and one line of text each on standard output.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use steer::guests::Record;
use tester::document::Name;
use units::Hertz;

use crate::documents::guests::{LOG, LogLine};
use crate::terminal::{self, Clean};

/// The log of requests.
#[derive(Debug)]
pub(super) struct Log {
    path: Option<PathBuf>,
    file: Option<Clean<File>>,
    aloud: bool,
    /// Why the last line could not be written, so that a full disk is reported only once.
    trouble: Option<String>,
    /// Whether a line is missing from the file.
    lost: bool,
}

impl Log {
    /// Opens the log. `path` is the file to append to, if any. `aloud` says whether to print text lines too.
    pub(super) fn open(path: Option<&Path>, aloud: bool) -> io::Result<Self> {
        let file = path.map(append).transpose()?;
        Ok(Self { path: path.map(Path::to_owned), file, aloud, trouble: None, lost: false })
    }

    /// Opens the file again, after it was renamed.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        self.file = self.path.as_deref().map(append).transpose()?;
        Ok(())
    }

    /// Whether a line is missing from the file.
    pub(super) fn is_incomplete(&self) -> bool {
        self.lost
    }

    /// Why lines are missing from the file. Each problem is returned only once.
    pub(super) fn trouble(&mut self) -> Option<String> {
        self.trouble.take()
    }

    /// Writes a record to the file, and prints it as text, as chosen in [`Log::open`].
    pub(super) fn write(&mut self, record: &Record<'_>) {
        if let Some(file) = &mut self.file {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
            let line = LogLine {
                schema: LOG.to_owned(),
                time_ns: time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs(),
                event: Name::of(&record.event),
                guest: record.guest.to_owned(),
                channel: record.channel,
                protocol: record.protocol.as_ref().map(Name::of),
                asked: record.asked.clone(),
                vcpu: record.vcpu,
                cpu: record.cpu,
                fixed_khz: record.khz,
                verdict: record.verdict.as_ref().map(Name::of),
                why: record.why.clone(),
            };
            // Writes each line with one write, so that a killed process leaves no incomplete line.
            let text = serde_json::to_string(&line).map_err(io::Error::other);
            let written = text.and_then(|text| file.write_all(format!("{text}\n").as_bytes()));
            if let Err(error) = written {
                let path = self.path.as_deref().unwrap_or(Path::new("")).display();
                self.trouble = Some(format!("cannot write {path} ({error}); requests are no longer logged there"));
                self.file = None;
                self.lost = true;
            }
        }
        if self.aloud {
            terminal::aside::print(terminal::line(&text(record)));
        }
    }
}

fn append(path: &Path) -> io::Result<Clean<File>> {
    let file = File::options().append(true).create(true).open(path)?;
    Ok(Clean::new(file, false))
}

/// Describes a record in one line: `vm1: vCPU 0 requests max: granted, CPU 2 fixed at 3GHz: as requested`.
fn text(record: &Record<'_>) -> String {
    let vcpu = record.vcpu.map_or_else(String::new, |vcpu| format!(" vCPU {vcpu}"));
    let cpu = record.cpu.map_or_else(String::new, |cpu| format!(", CPU {cpu}"));
    let khz = record.khz.map_or_else(String::new, |khz| format!(" fixed at {}", Hertz::from_khz(khz)));
    match record.verdict {
        Some(verdict) => {
            format!("{}:{vcpu} requests {}: {verdict}{cpu}{khz}: {}", record.guest, record.asked, record.why)
        }
        None if record.asked.is_empty() => format!("{}:{vcpu} {}{cpu}: {}", record.guest, record.event, record.why),
        None => format!("{}: {} messages {}: {}", record.guest, record.asked, record.event, record.why),
    }
}
