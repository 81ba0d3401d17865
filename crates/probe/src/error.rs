//! What can go wrong in a probe; each text says what to do next.

use std::io;

/// An error of this crate. [`Error::lacks`] tells wrong use from a lacking environment.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The machine, the kernel or the permissions lack something.
    #[error("cannot {what}: {why}\nfix: {fix}")]
    Lacking {
        /// What was tried, as it follows "cannot": "measure on CPU 3".
        what: String,
        /// What came back.
        why: String,
        /// What to do next.
        fix: String,
    },
    /// What was asked for cannot be: a bad value, a file that does not parse.
    #[error("{what}: {why}")]
    Invalid {
        /// The thing that is wrong, with its place.
        what: String,
        /// What is wrong with it and what would be right.
        why: String,
    },
    /// The thread's place, a socket or the lab.
    #[error(transparent)]
    Live(#[from] live::Error),
    /// The histogram, or the counters of a process.
    #[error(transparent)]
    Tester(#[from] tester::Error),
}

impl Error {
    /// Whether the environment lacks something (exit status 3) rather than the use being wrong (2).
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

    /// A system call that failed for a reason that has no remedy of its own.
    pub(crate) fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Live(live::Error::System { what: what.into(), source: source.into() })
    }
}
