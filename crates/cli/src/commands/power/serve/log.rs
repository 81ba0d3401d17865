//! The log of requests: one JSON line each in a file, and one line of text each on standard output.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use steer::guests::Record;
use tester::document::Name;
use units::Hertz;

use crate::documents::guests::{LOG, LogLine};
use crate::terminal::{self, Clean};

/// Size in bytes at which the file is renamed to `NAME.1` and started anew, so that no guest can fill the disk with its
/// requests. There are at most two such files.
const LARGEST: u64 = 64 << 20;

/// The log of requests.
#[derive(Debug)]
pub(super) struct Log {
    path: Option<PathBuf>,
    file: Option<Clean<File>>,
    /// Number of bytes in the file.
    size: u64,
    aloud: bool,
    /// Why the last line could not be written, so that a full disk is reported only once.
    trouble: Option<String>,
    /// Whether a line is missing from the file.
    lost: bool,
}

impl Log {
    /// Opens the log. `path` is the file to append to, if any. `aloud` says whether to print text lines too.
    pub(super) fn open(path: Option<&Path>, aloud: bool) -> io::Result<Self> {
        let (path, trouble) = (path.map(Path::to_owned), None);
        let mut log = Self { path, file: None, size: 0, aloud, trouble, lost: false };
        log.reopen()?;
        Ok(log)
    }

    /// Opens the file again, after it was renamed.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let file = File::options().append(true).create(true).open(path)?;
        let metadata = file.metadata()?;
        // A terminal, a pipe and a device do not grow.
        self.size = if metadata.is_file() { metadata.len() } else { 0 };
        self.file = Some(Clean::new(file, false));
        Ok(())
    }

    /// Writes a line with one write, so that a killed process leaves no incomplete line. A full file is renamed before.
    fn append(&mut self, line: &str) -> io::Result<()> {
        if self.size + line.len() as u64 > LARGEST
            && let Some(path) = &self.path
        {
            let mut full = path.clone().into_os_string();
            full.push(".1");
            if std::fs::symlink_metadata(path)?.is_file() {
                std::fs::rename(path, full)?;
            }
            self.reopen()?;
        }
        self.size += line.len() as u64;
        self.file.as_mut().map_or(Ok(()), |file| file.write_all(line.as_bytes()))
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
        if self.file.is_some() {
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
            let text = serde_json::to_string(&line).map_err(io::Error::other);
            let written = text.and_then(|text| self.append(&format!("{text}\n")));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_file_is_renamed() {
        let folder = std::env::temp_dir().join(format!("apus-log-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (path, full) = (folder.join("log"), folder.join("log.1"));
        std::fs::write(&full, "older").unwrap();
        // It has holes, and takes no space on the disk.
        File::create(&path).unwrap().set_len(LARGEST - 5).unwrap();
        let mut log = Log::open(Some(&path), false).unwrap();
        log.append("1234\n").unwrap();
        assert_eq!(path.metadata().unwrap().len(), LARGEST);
        log.append("more\n").unwrap();
        assert_eq!(
            (full.metadata().unwrap().len(), std::fs::read_to_string(&path).unwrap()),
            (LARGEST, "more\n".into())
        );
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
