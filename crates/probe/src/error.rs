//! What can go wrong in a probe. Each message says what to do next.

use std::io;

/// An error of this crate. [`Error::lacks`] distinguishes wrong usage from an environment that lacks something.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The host, the kernel or a permission lacks something.
    #[error("cannot {what}: {why}\nfix: {fix}")]
    Lacking {
        /// What was tried, worded to follow "cannot", such as "measure on CPU 3".
        what: String,
        /// The reason.
        why: String,
        /// What to do next.
        fix: String,
    },
    /// The request is impossible: an invalid value, or a file that does not parse.
    #[error("{what}: {why}")]
    Invalid {
        /// What is wrong, with its place.
        what: String,
        /// What is wrong with the value, and what is expected.
        why: String,
    },
    /// An error of a thread's placement, a socket or the lab.
    #[error(transparent)]
    Live(#[from] live::Error),
    /// An error of a histogram, or of the counters of a process.
    #[error(transparent)]
    Tester(#[from] tester::Error),
}

impl Error {
    /// Whether the environment lacks something (exit status 3), as opposed to wrong usage (2).
    pub fn lacks(&self) -> bool {
        match self {
            Self::Lacking { .. } => true,
            Self::Invalid { .. } => false,
            Self::Live(error) => error.lacks(),
            Self::Tester(error) => error.lacks(),
        }
    }

    pub(crate) fn lacking(what: impl Into<String>, why: impl ToString, fix: impl Into<String>) -> Self {
        Self::Lacking { what: what.into(), why: why.to_string(), fix: fix.into() }
    }

    pub(crate) fn invalid(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Invalid { what: what.into(), why: why.into() }
    }

    /// A failed system call without a specific remedy.
    pub(crate) fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Live(live::Error::System { what: what.into(), source: source.into() })
    }
}
