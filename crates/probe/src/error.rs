//! Errors of the probes. Each message says what to do next.

use std::io;

/// An error of this crate. [`Error::lacks`] distinguishes wrong usage from an environment that lacks something.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something that the measurement needs is missing: a feature of the host or the kernel, or a permission.
    #[error("cannot {what}: {why}\nfix: {fix}")]
    Lacking {
        /// The operation that failed, worded to follow "cannot", such as "measure on CPU 3".
        what: String,
        /// Why the operation failed.
        why: String,
        /// What to do next.
        fix: String,
    },
    /// A probe has changed settings and could not restore them.
    #[error("cannot restore {what}: {why}\nfix: apus tune rollback")]
    NotRestored {
        /// The settings, such as "the idle states of CPU 3".
        what: String,
        /// What is left of the change, and why.
        why: String,
    },
    /// The request is impossible: an invalid value, or a file that does not parse.
    #[error("{what}: {why}")]
    Invalid {
        /// What is wrong: the option, or the file and its line.
        what: String,
        /// What is wrong with the value, and what is expected.
        why: String,
    },
    /// An error of the crate `live`: of a thread's placement, of a socket, or of the network lab.
    #[error(transparent)]
    Live(#[from] live::Error),
    /// An error of the crate `tester`: of a histogram, or of the counters of a process.
    #[error(transparent)]
    Tester(#[from] tester::Error),
}

impl Error {
    /// Whether the environment lacks something, for which `apus` exits with status 3. Otherwise the usage was wrong
    /// (status 2).
    pub fn lacks(&self) -> bool {
        match self {
            Self::Lacking { .. } | Self::NotRestored { .. } => true,
            Self::Invalid { .. } => false,
            Self::Live(error) => error.lacks(),
            Self::Tester(error) => error.lacks(),
        }
    }

    pub(crate) fn lacking(what: impl Into<String>, why: impl ToString, fix: impl Into<String>) -> Self {
        let why = why.to_string();
        // The errors of the crate `host` end with a fix of their own, which fits better.
        let (why, fix) = match why.rsplit_once("\nfix: ") {
            Some((why, own)) => (why.replace('\n', "; "), own.to_owned()),
            None => (why, fix.into()),
        };
        Self::Lacking { what: what.into(), why, fix }
    }

    pub(crate) fn invalid(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Invalid { what: what.into(), why: why.into() }
    }

    /// A failed system call without a specific remedy.
    pub(crate) fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Live(live::Error::System { what: what.into(), source: source.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `apus probe idle` without root printed two fixes, the last of which was wrong.
    #[test]
    fn an_error_has_one_fix() {
        let inner = "cannot set idle state 1: all changes were rolled back\nwrite 1: not permitted\nfix: run as root";
        let Error::Lacking { why, fix, .. } = Error::lacking("enter POLL", inner, "look at apus tune status") else {
            panic!("another kind of error");
        };
        assert_eq!(why, "cannot set idle state 1: all changes were rolled back; write 1: not permitted");
        assert_eq!(fix, "run as root");
    }
}
