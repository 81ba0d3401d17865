//! What can go wrong between the process and the machine; each text says what to do next.

use std::io;

/// An error of this crate. [`Error::lacks`] tells wrong use from a lacking environment.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The machine, the kernel or the permissions lack something.
    #[error("{what}: {why}\nfix: {fix}")]
    Lacking {
        /// What was tried, with its object: "attach XDP to veth0".
        what: String,
        /// What came back.
        why: String,
        /// What to do next.
        fix: String,
    },
    /// What was asked for cannot be: a bad value, a file that does not parse.
    #[error("{what}: {why}")]
    Invalid {
        /// The thing that is wrong, with its place: "routes.toml, line 3".
        what: String,
        /// What is wrong with it and what would be right.
        why: String,
    },
    /// A port that worked no longer does.
    #[error("port {port}: {why}")]
    PortLost {
        /// The interface's name.
        port: String,
        /// What happened to it.
        why: String,
    },
    /// An operation of the system failed for a reason that has no remedy of its own.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What the system said.
        source: io::Error,
    },
}

impl From<pcap::Error> for Error {
    fn from(error: pcap::Error) -> Self {
        match error {
            pcap::Error::Invalid { what, why } => Self::Invalid { what, why },
            pcap::Error::System { what, source } => Self::System { what, source },
        }
    }
}

impl Error {
    /// Whether the environment lacks something (exit status 3) rather than the use being wrong (2).
    pub fn lacks(&self) -> bool {
        !matches!(self, Self::Invalid { .. })
    }

    pub(crate) fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::System { what: what.into(), source: source.into() }
    }
}
