//! What can go wrong with a guest. Each message says what to do next, or shows the last output of the guest.

use std::io;
use std::time::Duration;

/// An error of the VM lab.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This host lacks what a guest needs: QEMU, a tool or the packages. Tests are then skipped.
    #[error("{what}: {why}\nfix: {fix}")]
    Lacking {
        /// What was tried, worded to follow "cannot", such as "open trace.pcap".
        what: String,
        /// The reason.
        why: String,
        /// What the user can do about it.
        fix: String,
    },
    /// An impossible guest was requested.
    #[error("{what}: {why}")]
    Invalid {
        /// The impossible part of the request.
        what: String,
        /// What is wrong with it, and what is expected.
        why: String,
    },
    /// A failed operation of the system without a specific remedy.
    #[error("{what}: {source}")]
    System {
        /// What was tried, worded to follow "cannot", such as "open trace.pcap".
        what: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The guest ended by itself: a panic, a reset, or QEMU refused to start it.
    #[error("the guest ended during {doing:?} ({status}); its last words:\n{words}")]
    Ended {
        /// What the guest was doing.
        doing: String,
        /// How QEMU ended.
        status: String,
        /// The end of the console and of QEMU's messages.
        words: String,
    },
    /// The guest did not answer in time, and was killed.
    #[error("no answer within {within:?} to {doing:?}; the guest was ended; its last words:\n{words}")]
    Silent {
        /// What the guest was doing.
        doing: String,
        /// The time that it had.
        within: Duration,
        /// The end of the console and of QEMU's messages.
        words: String,
    },
    /// A script in the guest exited with a status other than 0.
    #[error("in the guest, {script:?} ended with status {status}\nstdout: {stdout}\nstderr: {stderr}")]
    Failed {
        /// Text of the script.
        script: String,
        /// Exit status of the script.
        status: i32,
        /// Its standard output.
        stdout: String,
        /// Its standard error.
        stderr: String,
    },
}

impl Error {
    /// Whether the environment lacks something, so that a test should be skipped instead of failing.
    pub fn lacks(&self) -> bool {
        matches!(self, Self::Lacking { .. })
    }

    pub(super) fn invalid(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Invalid { what: what.into(), why: why.into() }
    }

    pub(super) fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::System { what: what.into(), source: source.into() }
    }
}
