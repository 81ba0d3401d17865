//! The records of a journal.

use serde::{Deserialize, Serialize};

use crate::knob::{AnySetting, Value};

/// The format version that this version of Apus writes. This version also reads older formats, and leaves journals in a
/// newer format unchanged. Version 2 added the effects of a change on other settings, and refusals; version 3 added
/// settings that a controller moves.
pub const FORMAT: u32 = 3;

/// One record of a journal, which is one line of its file.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// A transaction begins. Always the first record, and only the first.
    Begin(Begin),
    /// A setting is about to be changed.
    Intent(Intent),
    /// The setting was changed.
    Done {
        /// Number of the [`Intent`] record to which this record belongs.
        number: u32,
        /// The value that was read back.
        now: Value,
    },
    /// From now on, a controller changes the setting repeatedly. The file next to the journal contains the value that
    /// the controller set last ([`moves`](super::moves)).
    Steered {
        /// Number of the [`Intent`] record to which this record belongs.
        number: u32,
    },
    /// The setting disappeared with the change that affects it, as a governor's tunables disappear with the governor.
    Vanished {
        /// Number of the [`Intent`] record to which this record belongs.
        number: u32,
    },
    /// The change that had this setting as a side effect is about to be rolled back. From now on, the setting's value
    /// does not show whether Apus or someone else set it.
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
        /// Why the setting does not have the wanted value.
        why: String,
    },
    /// A setting already had the wanted value.
    Already {
        /// The setting.
        setting: AnySetting,
        /// The wanted value.
        wanted: Value,
    },
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
    /// The version of Apus.
    pub apus: String,
    /// The name of the transaction: the name of a profile or a command.
    pub name: String,
    /// The command line that was typed.
    pub command: String,
    /// When the transaction began, in seconds since 1970-01-01 UTC. Only shown to users.
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
    /// How long the transaction lasts.
    pub lease: Lease,
}

/// How long a transaction lasts.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Lease {
    /// The changes stay until a user rolls them back.
    Open,
    /// The changes last as long as a process. The process rolls the transaction back when it ends. If the process is
    /// killed, the next transaction of any process rolls it back.
    Process {
        /// The number of the process.
        pid: u32,
        /// When the process started, in clock ticks after boot.
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
    /// Identifies the device to which the setting belonged before the change, to detect another device that has the
    /// same name now: `ifindex 3`, `diskseq 9`, the names of an interrupt's actions. `None` if nothing distinguishes
    /// two such devices.
    pub identity: Option<String>,
    /// The value before the change.
    pub before: Value,
    /// The wanted value. For a setting that is only a side effect of another change, the value that the setting should
    /// keep.
    pub wanted: Value,
    /// The number of the intent whose change affects this setting. `None` if the change of this setting was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub along: Option<u32>,
}
