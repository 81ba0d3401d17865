//! Telemetry: what other programs can see of a running worker. Each worker writes one file in shared memory, and anyone
//! can read it. Counting needs no system call, no lock and no locked instruction.
//!
//! ```text
//!   worker ──► Telemetry ──► /dev/shm/apus[-<uid>]/<instance>/worker-<n> ──► Reader ──► apus top, metrics, bench
//!               (writer.rs)         (layout.rs, mapped by sys.rs)          (reader.rs)
//! ```
//! Root's files are below `/dev/shm/apus`. Each other user has a folder `/dev/shm/apus-<uid>`, and only that user can
//! write there (folder.rs).
//!
//! A file gets its name only when it is complete, and is unlinked when its worker ends. A killed worker leaves its file
//! behind. From the pid and start time in the file, readers see that the worker no longer runs. Readers that look for
//! living workers ignore such a file. The next worker with the same instance name removes it.

mod folder;
pub mod histogram;
mod layout;
mod process;
mod reader;
mod refused;
mod sys;
mod writer;

pub use folder::{Folder, own};
pub use histogram::Histogram;
pub use layout::{PORTS as MOST_PORTS, VERSION as FILE_VERSION};
pub use process::{Process, Scheduling, SchedulingClass, Usage};
pub use reader::{Choice, Counts, Gaps, Leftover, PortCounts, Reader, Snapshot, Wait, instances, remove_leftovers};
pub use refused::Refused;
pub use writer::Telemetry;

use units::{Instant, Monotonic};

/// Size of a worker's file, in bytes.
pub const FILE_SIZE: usize = size_of::<layout::Page>();
/// The default telemetry directory. It contains one directory per instance of the user root. Other users have their own
/// directory, for example `/dev/shm/apus-1000` ([`own`]). A reader of the default directory also searches the other
/// users' directories.
pub const ROOT: &str = "/dev/shm/apus";

/// Identifies a worker in its telemetry file. Set when the worker starts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The instance's name: at most 64 characters of `A-Z a-z 0-9 - _ .`, not starting with a dot.
    pub instance: String,
    /// The worker's number within the instance, from 0.
    pub worker: u32,
    /// Name of the instance's application, for example `macswap`.
    pub app: String,
    /// Name of the instance's waiting mode, for example `adaptive`.
    pub mode: String,
    /// The latency goal as the user wrote it. `None` if the mode has none.
    pub goal: Option<String>,
    /// Names of the instance's ports, at most [`MOST_PORTS`], by port number.
    pub ports: Vec<String>,
    /// The CPU to which the worker is pinned. `None` if it is not pinned.
    pub cpu: Option<u32>,
}

units::named! {
    /// The state of a worker.
    ///
    /// ```text
    ///   Starting ──► Running ◄──► LinkDown
    ///                   │            │
    ///                   ▼            ▼
    ///                Stopping ──► Stopped        any ──► Failed
    /// ```
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(u64)]
    pub enum State {
        /// The worker is opening its ports.
        Starting = "starting",
        /// The worker moves frames.
        Running = "running",
        /// A port's link is down. The worker continues with the other ports.
        LinkDown = "link_down",
        /// The worker was asked to stop and is ending.
        Stopping = "stopping",
        /// The worker has ended as requested.
        Stopped = "stopped",
        /// The worker has ended with an error.
        Failed = "failed",
    }
}

/// The current time of CLOCK_MONOTONIC, the clock of all times in telemetry.
fn now() -> Instant<Monotonic> {
    // This does not use rustix, which finds the vDSO through /proc/self/auxv. Programs with libapus may run under
    // valgrind, which hides that file.
    crate::os::monotonic()
}

units::named! {
    /// Why a received frame was not sent. With these reasons, received = sent + all drops.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(usize)]
    pub enum DropReason {
        /// The application drops all frames on purpose.
        Discard = "discard",
        /// The frame is truncated, or its headers contradict themselves.
        Malformed = "malformed",
        /// The frame is well formed, but this application does not answer or forward such frames.
        NotHandled = "not_handled",
        /// There is no route to the destination.
        NoRoute = "no_route",
        /// The time to live, or hop limit, is used up.
        TtlExpired = "ttl_expired",
        /// The frame is too long for the outgoing port.
        TooLong = "too_long",
        /// The transmit ring was full.
        TxFull = "tx_full",
        /// The outgoing port's link is down.
        LinkDown = "link_down",
        /// A fault wrapper dropped the frame on purpose.
        Injected = "injected",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A directory for one test, removed on drop.
    pub struct Root(pub PathBuf);

    impl Root {
        pub fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("apus-telemetry-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    pub fn identity(instance: &str, worker: u32) -> Identity {
        Identity {
            instance: instance.to_owned(),
            worker,
            app: "macswap".to_owned(),
            mode: "adaptive".to_owned(),
            goal: Some("p99=40us".to_owned()),
            ports: vec!["veth0".to_owned(), "veth1".to_owned()],
            cpu: Some(1),
        }
    }

    #[test]
    fn numbers_are_those_of_the_lists() {
        for (number, state) in State::ALL.into_iter().enumerate() {
            assert_eq!(state as usize, number);
        }
        for (number, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, number);
        }
    }
}
