//! What the journal says, record by record.

use serde::{Deserialize, Serialize};

use crate::knob::{AnySetting, Value};

/// The version of the format that this version writes. It reads older ones too; a journal of a later version is not
/// touched. 2 added what a change takes along, and refusals.
pub const FORMAT: u32 = 2;

/// One record.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// A transaction begins. The first record, and no other.
    Begin(Begin),
    /// A setting is about to be changed.
    Intent(Intent),
    /// It was changed.
    Done {
        /// The intent's number.
        number: u32,
        /// What was read back.
        now: Value,
    },
    /// It went away with the change that takes it along: a governor's tunables with the governor.
    Vanished {
        /// The intent's number.
        number: u32,
    },
    /// The change that takes it along is about to be undone: what is read of it from now on says nothing about who set it.
    InDoubt {
        /// The intent's number.
        number: u32,
    },
    /// A setting was refused, or the machine made something else of it, and the rest went on.
    Refused {
        /// Which.
        setting: AnySetting,
        /// What was wanted.
        wanted: Value,
        /// Why.
        why: String,
    },
    /// A setting already was as wanted.
    Already {
        /// Which.
        setting: AnySetting,
        /// What was wanted.
        wanted: Value,
    },
    /// All that was wanted is done, and stays.
    Kept,
    /// A change was taken back, or there is nothing left to take back.
    Undone {
        /// The intent's number.
        number: u32,
    },
}

/// A transaction.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Begin {
    /// At most [`FORMAT`].
    pub format: u32,
    /// The version of Apus.
    pub apus: String,
    /// What it is called: a profile's name, or that of a command.
    pub name: String,
    /// What was typed.
    pub command: String,
    /// When, in seconds since 1970-01-01 UTC, for people.
    pub at_unix_s: u64,
    /// The boot in which it was (`/proc/sys/kernel/random/boot_id`); `None` below another root that does not say.
    pub boot: Option<String>,
    /// The network namespace in which it was (`net:[4026531840]`); `None` below another root.
    pub network: Option<String>,
    /// That namespace's cookie, which unlike its number is not given again before the next boot; `None` before Linux 5.14,
    /// or below another root.
    #[serde(default)]
    pub network_cookie: Option<u64>,
    /// That namespace's file handle, in hexadecimal digits; `None` before Linux 6.18, or below another root.
    #[serde(default)]
    pub network_handle: Option<String>,
    /// How long it is to last.
    pub lease: Lease,
}

/// How long a transaction is to last.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Lease {
    /// Until someone takes it back.
    Open,
    /// As long as a process lives, which takes it back. If it died before that, anyone does.
    Process {
        /// The process.
        pid: u32,
        /// When it started, in clock ticks after the boot.
        started: u64,
    },
}

/// A change that is about to be made.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Intent {
    /// Its number in the transaction.
    pub number: u32,
    /// Which setting.
    pub setting: AnySetting,
    /// Which device it belongs to, if there could be another one of that name.
    pub identity: Option<String>,
    /// What it is.
    pub before: Value,
    /// What it is to be; what is taken along is to stay.
    pub wanted: Value,
    /// The number of the intent whose change takes this setting along; `None` if it is changed for its own sake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub along: Option<u32>,
}
