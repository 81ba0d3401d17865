//! The records of a journal.

use serde::{Deserialize, Serialize};

use crate::knob::{AnySetting, Value};

/// The format version that this version of Apus writes. It also reads older ones, and does not touch a journal of a
/// later version. Version 2 added the effects of a change on other settings, and refusals; version 3 added settings that
/// a controller moves.
pub const FORMAT: u32 = 3;

/// One record.
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
    /// A controller changes this setting repeatedly from now on. The file beside the journal says which value it set
    /// last ([`moves`](super::moves)).
    Steered {
        /// Number of the [`Intent`] record to which this record belongs.
        number: u32,
    },
    /// The setting disappeared with the change that affects it, as a governor's tunables disappear with the governor.
    Vanished {
        /// Number of the [`Intent`] record to which this record belongs.
        number: u32,
    },
    /// Another change, of which this setting is a side effect, is about to be undone. From now on, the value of the
    /// setting does not show who set it.
    InDoubt {
        /// Number of the [`Intent`] record to which this record belongs.
        number: u32,
    },
    /// A setting was refused, or the machine set another value, and the transaction continued.
    Refused {
        /// The setting that was refused.
        setting: AnySetting,
        /// The wanted value.
        wanted: Value,
        /// Why there is no value.
        why: String,
    },
    /// A setting already had the wanted value.
    Already {
        /// The setting.
        setting: AnySetting,
        /// The wanted value.
        wanted: Value,
    },
    /// All wanted changes are made, and they stay.
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
    /// The name of the transaction: that of a profile or a command.
    pub name: String,
    /// The command line that was typed.
    pub command: String,
    /// When the transaction began, in seconds since 1970-01-01 UTC, for people.
    pub at_unix_s: u64,
    /// The ID of the boot in which it began (`/proc/sys/kernel/random/boot_id`). `None` if the
    /// root directory is not `/` and lacks this file.
    pub boot: Option<String>,
    /// The network namespace in which the transaction began (`net:[4026531840]`). `None` if the root directory is not
    /// `/`.
    pub network: Option<String>,
    /// The cookie of that namespace. Unlike its number, it is not reused before the next boot. `None` before Linux
    /// 5.14, or if the root directory is not `/`.
    #[serde(default)]
    pub network_cookie: Option<u64>,
    /// The file handle of that namespace, in hexadecimal digits. `None` before Linux 6.18, or if the
    /// root directory is not `/`.
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
    /// As long as a process lives. The process rolls it back when it ends; if it was killed, the next transaction of
    /// any process does.
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
    /// Identifies the device to which the setting belonged before the change, so that another device that has since
    /// taken its name is noticed: `ifindex 3`, `diskseq 9`, the names of an interrupt's actions. `None` if there is
    /// nothing to tell two devices apart by.
    pub identity: Option<String>,
    /// The value before the change.
    pub before: Value,
    /// The wanted value. For a setting that is only affected by another change, the value that it should keep.
    pub wanted: Value,
    /// The number of the intent whose change affects this setting. `None` if the setting is changed for its own sake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub along: Option<u32>,
}
