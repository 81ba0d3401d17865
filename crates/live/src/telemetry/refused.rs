//! Why a worker's telemetry file was not created.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::folder::LOCK;
use crate::Error;

/// Why [`Telemetry::publish`](super::Telemetry::publish) did not create a file.
#[derive(Debug)]
pub enum Refused {
    /// The instance's name or its number of ports is invalid.
    Invalid {
        /// What is wrong, and what would be right.
        why: String,
    },
    /// Another process runs a worker of this instance.
    Taken {
        /// Number of the worker.
        worker: u32,
        /// The process that runs it.
        pid: u32,
    },
    /// This process already runs this worker.
    TakenHere {
        /// Number of the worker.
        worker: u32,
    },
    /// The folder or the file cannot be used.
    Lacking {
        /// The folder or file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

impl Refused {
    pub(super) fn lacking(path: &Path, error: io::Error) -> Self {
        Self::Lacking { path: path.to_owned(), error }
    }

    /// What to do about a folder or file that cannot be used. `setting` is where the user sets the folder. `None` for
    /// other errors.
    pub fn remedy(&self, setting: &str) -> Option<String> {
        let Self::Lacking { path, error } = self else { return None };
        let parent = path.parent().unwrap_or(path).display();
        Some(match error.kind() {
            ErrorKind::PermissionDenied => {
                format!("run as the user who owns that directory, or choose your own folder: {setting}")
            }
            ErrorKind::StorageFull => "free some space there (df -h /dev/shm)".to_owned(),
            ErrorKind::TimedOut => {
                format!("find the process that holds it (fuser -v {LOCK} in that folder), and continue or end it")
            }
            _ => format!("check that {parent} is on a writable tmpfs"),
        })
    }

    /// The error for the command line.
    pub(super) fn told(self, instance: &str) -> Error {
        let fix = self.remedy("--telemetry DIR").unwrap_or_default();
        let invalid = |why| Error::Invalid { what: format!("instance {instance:?}"), why };
        match self {
            Self::Invalid { why } => invalid(why),
            Self::Taken { worker, pid } => invalid(format!(
                "worker {worker} of that name is already running as process {pid}; choose another name, or stop it: kill {pid}"
            )),
            Self::TakenHere { worker } => invalid(format!(
                "worker {worker} of that name is already running in this process; give each worker its own number, or end the first"
            )),
            Self::Lacking { path, error } => {
                Error::Lacking { what: format!("create telemetry {}", path.display()), why: error.to_string(), fix }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_held_has_its_own_remedy() {
        let refused = Refused::lacking(Path::new("/a/b"), ErrorKind::TimedOut.into());
        assert!(refused.remedy("x").unwrap().contains("fuser -v .lock"));
        let error = refused.told("b");
        assert!(error.lacks() && error.to_string().contains("continue or end it"), "{error}");
    }
}
