//! The files of a host in a directory: `/` for the live host, or another folder. No path leads out of the folder.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::Look;
use crate::below;

/// Maximum number of names that are read from one directory.
const MAX_NAMES: usize = 1 << 17;

/// An open directory that stands for a host's `/`.
#[derive(Debug)]
pub(crate) struct Directory {
    /// The open folder; links inside it do not lead outside. `None` for the live host, where links are followed
    /// normally.
    top: Option<OwnedFd>,
}

impl Directory {
    pub(super) fn live() -> Self {
        Self { top: None }
    }

    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Self { top: Some(top) })
    }

    /// Opens a path without blocking: a FIFO in a folder must not hang the reader.
    fn at(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let relative = path.trim_start_matches('/');
        match &self.top {
            Some(top) => below::open(top, relative, flags, Mode::empty()),
            None => rustix::fs::open(format!("/{relative}"), flags, Mode::empty()),
        }
    }

    /// Opens a file for reading.
    pub(super) fn open_file(&self, path: &str) -> Result<File, Errno> {
        self.at(path, OFlags::RDONLY).map(File::from)
    }

    pub(super) fn read(&self, path: &str, limit: usize) -> Look<Vec<u8>> {
        let fd = match self.at(path, OFlags::RDONLY) {
            Ok(fd) => fd,
            Err(error) => return refused(error),
        };
        match rustix::fs::fstat(&fd) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile => {
                return Look::Refused("it is not a regular file".into());
            }
            Ok(_) => {}
            Err(error) => return refused(error),
        }
        let mut contents = Vec::new();
        match File::from(fd).take(limit as u64 + 1).read_to_end(&mut contents) {
            Ok(read) if read > limit => Look::Refused(format!("it is longer than {limit} bytes")),
            Ok(_) => Look::Found(contents),
            Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(error) => refused(error),
                None => Look::Refused(error.to_string()),
            },
        }
    }

    pub(super) fn list(&self, path: &str, directories: bool) -> Look<Vec<String>> {
        let entries = self.at(path, OFlags::RDONLY | OFlags::DIRECTORY).and_then(Dir::new);
        let entries = match entries {
            Ok(entries) => entries,
            Err(error) => return refused(error),
        };
        let mut names = Vec::new();
        for entry in entries {
            match entry {
                Ok(entry) if directories && !matches!(entry.file_type(), FileType::Directory | FileType::Unknown) => {}
                Ok(entry) => names.push(entry.file_name().to_string_lossy().into_owned()),
                Err(error) => return refused(error),
            }
            if names.len() > MAX_NAMES {
                return Look::Refused(format!("it contains more than {MAX_NAMES} names"));
            }
        }
        names.retain(|name| name != "." && name != "..");
        names.sort_unstable();
        Look::Found(names)
    }

    pub(super) fn link(&self, path: &str) -> Look<String> {
        let (folder, name) = path.trim_end_matches('/').rsplit_once('/').unwrap_or(("", path));
        let target = self
            .at(folder, OFlags::PATH | OFlags::DIRECTORY)
            .and_then(|folder| rustix::fs::readlinkat(&folder, name, Vec::new()));
        match target {
            Ok(target) => Look::Found(target.to_string_lossy().into_owned()),
            Err(Errno::INVAL) => Look::Refused("it is not a symbolic link".into()),
            Err(error) => refused(error),
        }
    }
}

fn refused<T>(error: Errno) -> Look<T> {
    match error {
        Errno::NOENT | Errno::NOTDIR => Look::Absent,
        Errno::ACCESS | Errno::PERM => Look::NotPermitted,
        Errno::LOOP => Look::Refused("too many symbolic links".into()),
        error => Look::Refused(error.to_string()),
    }
}
