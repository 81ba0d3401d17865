//! The errors of this crate. Each message says what to do next.

use std::io;
use std::path::PathBuf;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The user gave an invalid string or value.
    #[error("{what}: {expected}")]
    Invalid {
        /// The invalid string or value.
        what: String,
        /// What is expected instead.
        expected: String,
    },
    /// A file that cannot be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A file with invalid content.
    #[error("{path}: {why}", path = path.display())]
    Malformed {
        /// Path of the file.
        path: PathBuf,
        /// Where the content is wrong, and what is expected.
        why: String,
    },
    /// A packet capture that cannot be read.
    #[error(transparent)]
    Capture(#[from] pcap::Error),
    /// An error from a device, the lab or a thread.
    #[error(transparent)]
    Device(#[from] live::Error),
}

impl Error {
    /// Whether the machine lacks something that the test needs (exit status 3), rather than that the user gave wrong
    /// input (exit status 2).
    pub fn lacks(&self) -> bool {
        match self {
            Self::Invalid { .. } | Self::Malformed { .. } => false,
            Self::Capture(error) => matches!(error, pcap::Error::System { .. }),
            Self::File { .. } => true,
            Self::Device(error) => error.lacks(),
        }
    }

    pub(crate) fn invalid(what: impl Into<String>, expected: impl Into<String>) -> Self {
        Self::Invalid { what: what.into(), expected: expected.into() }
    }

    pub(crate) fn malformed(path: impl Into<PathBuf>, why: impl Into<String>) -> Self {
        Self::Malformed { path: path.into(), why: why.into() }
    }
}
