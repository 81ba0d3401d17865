//! The errors of this crate. Each message says what to do next.

use std::io;

/// An error of this crate. [`Error::lacks`] distinguishes a missing prerequisite from wrong input.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A prerequisite is missing on the machine, in the kernel or in the permissions.
    #[error("cannot {what}: {why}\nfix: {fix}")]
    Lacking {
        /// What was tried, worded to follow "cannot", such as "attach XDP to veth0".
        what: String,
        /// The system's answer, or what is missing.
        why: String,
        /// What the user can do about it.
        fix: String,
    },
    /// The request itself is wrong: a bad value, or a file that does not parse.
    #[error("{what}: {why}")]
    Invalid {
        /// The wrong input and its location, such as "routes.toml, line 3".
        what: String,
        /// What is wrong with the input, and what would be right.
        why: String,
    },
    /// A port stopped working while it was in use.
    #[error("port {port}: {why}")]
    PortLost {
        /// The interface's name.
        port: String,
        /// What happened to the port.
        why: String,
    },
    /// A system operation failed, and no specific remedy is known.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried, worded to follow "cannot", such as "open trace.pcap".
        what: String,
        /// The system's error.
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
    /// Whether the machine lacks something (exit status 3), rather than the user gave wrong input (exit status 2).
    pub fn lacks(&self) -> bool {
        !matches!(self, Self::Invalid { .. })
    }

    /// The same error once more, because an [`io::Error`] cannot be cloned.
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::Lacking { what, why, fix } => {
                Self::Lacking { what: what.clone(), why: why.clone(), fix: fix.clone() }
            }
            Self::Invalid { what, why } => Self::Invalid { what: what.clone(), why: why.clone() },
            Self::PortLost { port, why } => Self::PortLost { port: port.clone(), why: why.clone() },
            Self::System { what, source } => Self::System {
                what: what.clone(),
                source: match source.raw_os_error() {
                    Some(number) => io::Error::from_raw_os_error(number),
                    None => io::Error::new(source.kind(), source.to_string()),
                },
            },
        }
    }

    pub(crate) fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::System { what: what.into(), source: source.into() }
    }
}
