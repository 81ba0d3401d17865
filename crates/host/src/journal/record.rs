//! The records of a journal.

use serde::{Deserialize, Serialize};

use crate::knob::{AnySetting, Value};

/// The journal format that this version of Apus writes. This version also reads older formats, and leaves journals in a
/// newer format unchanged. Format 2 added the side effects of a change on other settings, and rejected settings; format
/// 3 added settings that a controller changes repeatedly.
pub const FORMAT: u32 = 4;

/// One record of a journal, which is one line of its file.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// A transaction begins. This is always the first record of a journal, and occurs only once.
    Begin(Begin),
    /// A setting is about to be changed.
    Intent(Intent),
    /// The setting was changed.
    Done {
        /// Number of the [`Intent`] record to which this record belongs.
        number: u32,
        /// The value that was read back after the change.
        now: Value,
    },
    /// From now on, a controller changes the setting repeatedly. The file next to the journal contains the value that
    /// the controller set last ([`moves`](super::moves)).
    Steered {
        /// Number of the [`Intent`] record to which this record belongs.
        number: u32,
    },
    /// The setting disappeared when another setting was changed, as a governor's tunables disappear with the governor.
    Vanished {
        /// Number of the [`Intent`] record to which this record belongs.
        number: u32,
    },
    /// The setting is a side effect of a change that is about to be rolled back. From now on, the setting's value does
    /// not show whether Apus or someone else set it.
    InDoubt {
        /// Number of the [`Intent`] record to which this record belongs.
        number: u32,
    },
    /// The machine rejected a setting or set another value, and the transaction continued.
    Refused {
        /// The setting that was rejected.
        setting: AnySetting,
        /// The wanted value.
        wanted: Value,
        /// Why the setting does not have the wanted value now.
        why: String,
    },
    /// A setting already had the wanted value.
    Already {
        /// The setting.
        setting: AnySetting,
        /// The wanted value.
        wanted: Value,
    },
    /// The process to which the transaction was bound gave it up and continued to run, because not everything could be
    /// rolled back. What is left is rolled back later, as after the end of the process.
    Released,
    /// The transaction is complete: all wanted changes are made, and they stay in force.
    Kept,
    /// A change was rolled back, or there is nothing left to roll back.
    Undone {
        /// Number of the [`Intent`] record to which this record belongs.
        number: u32,
    },
}

/// The first record of a transaction.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Begin {
    /// The format version, at most [`FORMAT`].
    pub format: u32,
    /// The version of Apus that wrote the journal.
    pub apus: String,
    /// The name of the transaction: the name of a profile or a command.
    pub name: String,
    /// The command line that started the transaction.
    pub command: String,
    /// When the transaction began, in seconds since 1970-01-01 UTC. Used only for display.
    pub at_unix_s: u64,
    /// The ID of the boot in which the transaction began (`/proc/sys/kernel/random/boot_id`). `None` if the root
    /// directory is not `/` and lacks this file.
    pub boot: Option<String>,
    /// The network namespace in which the transaction began (`net:[4026531840]`). `None` if the root directory is not
    /// `/`.
    pub network: Option<String>,
    /// The cookie of the network namespace in which the transaction began. Unlike the number in `network`, a cookie is
    /// not reused before the next boot. `None` before Linux 5.14, or if the root directory is not `/`.
    #[serde(default)]
    pub network_cookie: Option<u64>,
    /// The file handle of the network namespace in which the transaction began, in hexadecimal digits. `None` before
    /// Linux 6.18, or if the root directory is not `/`.
    #[serde(default)]
    pub network_handle: Option<String>,
    /// The boot and the PID namespace in which the PID of the lease counts ([`Processes::seen_from`]). `None` if the
    /// root directory has a procfs: then the PID is that of this procfs.
    ///
    /// [`Processes::seen_from`]: super::Processes::seen_from
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_from: Option<String>,
    /// How long the transaction lasts.
    pub lease: Lease,
}

/// How long a transaction lasts.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Lease {
    /// The changes stay until a user rolls them back.
    Open,
    /// The changes last as long as a process runs. This process rolls the transaction back when it ends. If it is
    /// killed, the next transaction rolls the changes back.
    Process {
        /// The number of the process that keeps the changes.
        pid: u32,
        /// When the process that keeps the changes started, in clock ticks after boot.
        started: u64,
    },
}

/// A change that is about to be made.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Intent {
    /// Number of the change in the transaction.
    pub number: u32,
    /// The setting to change.
    pub setting: AnySetting,
    /// Identifies the device to which the setting belongs, to detect if another device has the same name later:
    /// `ifindex 3`, `diskseq 9`, or the names of an interrupt's actions. `None` if nothing distinguishes two devices
    /// with the same name.
    pub identity: Option<String>,
    /// The value before the change.
    pub before: Value,
    /// The wanted value. If the setting is only a side effect of another change, the value that it should keep.
    pub wanted: Value,
    /// The number of the intent that affects this setting as a side effect. `None` if the setting's own change was
    /// requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub along: Option<u32>,
}
