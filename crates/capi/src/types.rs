//! The structures and constants of `apus.h`. A test compares their sizes, offsets and values with those that a C
//! compiler reports.

use std::ffi::c_char;

/// The ABI version: the number in the library's soname.
pub const APUS_ABI: u32 = 0;
/// The end of a wait that only an event can end.
pub const APUS_NEVER: u64 = u64::MAX;
/// Stands for a time or cost that was not measured.
pub const APUS_UNKNOWN: u64 = u64::MAX;
/// Maximum number of queues per call. Also the maximum number of file descriptors that a waiter can watch.
pub const APUS_MAX_QUEUES: usize = 32;
/// Flag: do not change the thread's timer slack.
pub const APUS_KEEP_TIMER_SLACK: u32 = 1;

units::named! {
    /// What can end a blocking wait early: the values of `apus_config.wakes`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(u32)]
    pub enum Wakes {
        /// The descriptors and the memory that the waiter watches. If it watches nothing, only timed waits are used.
        Watched = "watched",
        /// Any event, because the caller carries out blocking waits itself.
        Caller = "caller",
        /// Nothing can end a blocking wait early, so only timed waits are used.
        Nothing = "nothing",
    }
}

units::named! {
    /// What ended a wait: the values of `apus_done.woken`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(u32)]
    pub enum Woken {
        /// There was no wait.
        Not = "not",
        /// The wait's end was reached, or a signal arrived.
        ByTime = "by_time",
        /// A watched descriptor is readable, or the watched memory changed.
        ByDevice = "by_device",
        /// A watched descriptor has an error, was hung up or was closed.
        ByError = "by_error",
    }
}

units::named! {
    /// What is known about the arrival times of packets: the values of `apus_queue.stamped`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(u32)]
    pub enum Stamped {
        /// Packets have no time stamps. All that is known is that they arrived after the previous poll of the queue.
        Not = "not",
        /// Packets have time stamps of the loop's own clock (`CLOCK_MONOTONIC` for waiters).
        Monotonic = "monotonic",
        /// Packets carry time stamps of `CLOCK_REALTIME`.
        Realtime = "realtime",
    }
}

/// The C structure `apus_config`. `apus.h` describes the fields.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // the header has them
pub struct Config {
    pub size: usize,
    pub mode: *const c_char,
    pub goal: *const c_char,
    pub peak_pps: u64,
    pub ring_descriptors: u32,
    pub wakes: u32,
    pub profile: *const c_char,
    pub profile_path: *const c_char,
    pub name: *const c_char,
    pub app: *const c_char,
    pub port: *const c_char,
    pub telemetry_root: *const c_char,
    pub longest_block_ns: u64,
    pub worker: u32,
    pub burst: u32,
    pub flags: u32,
    pub reserved: u32,
}

impl Default for Config {
    /// A configuration with all defaults and the right `size`.
    fn default() -> Self {
        let none = std::ptr::null();
        Self {
            size: size_of::<Self>(),
            mode: none,
            goal: none,
            peak_pps: 0,
            ring_descriptors: 0,
            wakes: 0,
            profile: none,
            profile_path: none,
            name: none,
            app: none,
            port: none,
            telemetry_root: none,
            longest_block_ns: 0,
            worker: 0,
            burst: 0,
            flags: 0,
            reserved: 0,
        }
    }
}

/// The C structure `apus_queue`. `apus.h` describes the fields.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
#[allow(missing_docs)] // the header has them
pub struct QueueIn {
    pub first_ns: u64,
    pub last_ns: u64,
    pub picked_up_ns: u64,
    pub received: u32,
    pub fill: u32,
    pub stamped: u32,
    pub reserved: u32,
}

/// The C structure `apus_ended`. `apus.h` describes the fields.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
#[allow(missing_docs)] // the header has them
pub struct EndedIn {
    pub began_ns: u64,
    pub ended_ns: u64,
    pub until_ns: u64,
    pub spent_ns: u64,
    pub idle_ns: u64,
    pub kind: u32,
    pub reserved: u32,
}

/// The C structure `apus_decision`. `apus.h` describes the fields.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // the header has them
pub struct DecisionOut {
    pub until_ns: u64,
    pub kind: u32,
    pub reason: u32,
}

/// The C structure `apus_done`. `apus.h` describes the fields.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // the header has them
pub struct Done {
    pub began_ns: u64,
    pub ended_ns: u64,
    pub until_ns: u64,
    pub kind: u32,
    pub reason: u32,
    pub woken: u32,
    pub reserved: u32,
}

/// The layout of a C structure: its name, its size, and its fields with their offsets, in bytes.
pub type Layout = (&'static str, usize, &'static [(&'static str, usize)]);

macro_rules! layout {
    ($c:literal, $rust:ty { $($field:ident),* $(,)? }) => {
        ($c, size_of::<$rust>(), &[$((stringify!($field), std::mem::offset_of!($rust, $field))),*])
    };
}

/// The layout of every structure. A test compares it with the header.
pub const LAYOUTS: [Layout; 5] = [
    layout!(
        "apus_config",
        Config {
            size,
            mode,
            goal,
            peak_pps,
            ring_descriptors,
            wakes,
            profile,
            profile_path,
            name,
            app,
            port,
            telemetry_root,
            longest_block_ns,
            worker,
            burst,
            flags,
            reserved,
        }
    ),
    layout!("apus_queue", QueueIn { first_ns, last_ns, picked_up_ns, received, fill, stamped, reserved }),
    layout!("apus_ended", EndedIn { began_ns, ended_ns, until_ns, spent_ns, idle_ns, kind, reserved }),
    layout!("apus_decision", DecisionOut { until_ns, kind, reason }),
    layout!("apus_done", Done { began_ns, ended_ns, until_ns, kind, reason, woken, reserved }),
];

/// Every constant of the header, with its value. A test compares them with the header.
pub fn constants() -> Vec<(String, i128)> {
    let upper = |prefix: &str, name: &str| format!("APUS_{prefix}{}", name.to_uppercase());
    let mut all = vec![
        ("APUS_ABI".to_owned(), i128::from(APUS_ABI)),
        ("APUS_NEVER".to_owned(), i128::from(APUS_NEVER)),
        ("APUS_UNKNOWN".to_owned(), i128::from(APUS_UNKNOWN)),
        ("APUS_MAX_QUEUES".to_owned(), APUS_MAX_QUEUES as i128),
        ("APUS_KEEP_TIMER_SLACK".to_owned(), i128::from(APUS_KEEP_TIMER_SLACK)),
        ("APUS_OK".to_owned(), 0),
    ];
    all.extend(crate::error::Code::ALL.map(|code| (upper("E_", code.name()), i128::from(code.returned()))));
    all.extend(policy::wait::WaitKind::ALL.map(|kind| (upper("", kind.name()), kind as i128)));
    all.extend(policy::wait::Reason::ALL.map(|reason| (upper("REASON_", reason.name()), reason as i128)));
    all.extend(Wakes::ALL.map(|wakes| (upper("WAKES_", wakes.name()), wakes as i128)));
    all.extend(Woken::ALL.map(|woken| (upper("WOKEN_", woken.name()), woken as i128)));
    all.extend(Stamped::ALL.map(|stamped| (upper("STAMPED_", stamped.name()), stamped as i128)));
    all
}
