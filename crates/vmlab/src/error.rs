//! What can go wrong with a guest; each text says what to do next, or shows what the guest said last.

use std::io;
use std::time::Duration;

/// An error of the VM lab.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This machine has not what a guest needs: QEMU, a tool, the packages. Tests skip then.
    #[error("{what}: {why}\nfix: {fix}")]
    Lacking {
        /// What was tried.
        what: String,
        /// What came back.
        why: String,
        /// What to do next.
        fix: String,
    },
    /// A guest that cannot be.
    #[error("{what}: {why}")]
    Invalid {
        /// What was asked for.
        what: String,
        /// What is wrong with it and what would be right.
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
    /// The guest ended by itself: a panic, a reset, or QEMU refused to start it.
    #[error("the guest ended during {doing:?} ({status}); its last words:\n{words}")]
    Ended {
        /// What it was doing.
        doing: String,
        /// How QEMU ended.
        status: String,
        /// The end of the console, and what QEMU said.
        words: String,
    },
    /// The guest did not answer in time. It has been ended.
    #[error("no answer within {within:?} to {doing:?}; the guest was ended; its last words:\n{words}")]
    Silent {
        /// What it was doing.
        doing: String,
        /// How long it had.
        within: Duration,
        /// The end of the console, and what QEMU said.
        words: String,
    },
    /// A script in the guest ended with a status other than 0.
    #[error("in the guest, {script:?} ended with status {status}\nstdout: {stdout}\nstderr: {stderr}")]
    Failed {
        /// The script.
        script: String,
        /// Its exit status.
        status: i32,
        /// What it printed.
        stdout: String,
        /// What it complained about.
        stderr: String,
    },
}

impl Error {
    /// Whether the environment lacks something, so that a test is to be skipped and not to fail.
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
