//! Errors of the VM lab. Each message says what to do next, or shows the guest's last output.

use std::io;
use std::time::Duration;

/// An error of the VM lab.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This host lacks what a guest needs: QEMU, a tool or the packages. Tests are then skipped.
    #[error("{what}: {why}\nfix: {fix}")]
    Lacking {
        /// The operation that failed, worded to follow "cannot", such as "open trace.pcap".
        what: String,
        /// Why the operation failed.
        why: String,
        /// What the user can do about it.
        fix: String,
    },
    /// The requested configuration is impossible, such as more P-states than the emulation supports.
    #[error("{what}: {why}")]
    Invalid {
        /// The part of the configuration that is impossible.
        what: String,
        /// What is wrong with that part, and which values are allowed.
        why: String,
    },
    /// A system call or a file operation failed, and no specific remedy is known.
    #[error("{what}: {source}")]
    System {
        /// The operation that failed, worded to follow "cannot", such as "open trace.pcap".
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
        /// The last lines of the guest's console and of QEMU's messages.
        words: String,
    },
    /// The guest did not answer in time, and was killed.
    #[error("no answer within {within:?} to {doing:?}; the guest was ended; its last words:\n{words}")]
    Silent {
        /// What the guest was doing.
        doing: String,
        /// Time limit that the guest exceeded.
        within: Duration,
        /// The last lines of the guest's console and of QEMU's messages.
        words: String,
    },
    /// A script in the guest exited with a status other than 0.
    #[error("in the guest, {script:?} ended with status {status}\nstdout: {stdout}\nstderr: {stderr}")]
    Failed {
        /// Text of the script.
        script: String,
        /// Exit status of the script.
        status: i32,
        /// Standard output of the script.
        stdout: String,
        /// Standard error of the script.
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
