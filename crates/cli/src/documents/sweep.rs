//! `apus power sweep --json`.

use schemars::JsonSchema;
use serde::Serialize;
use tester::document::Energy;
use tester::gaps::Second as Seen;
use tester::host::{HostState, Reading};
use units::Nanos;

/// Name and version of the schema.
pub const SWEEP: &str = "apus.power-sweep/1";

/// Results of forwarding frames while the CPU frequency changes, and at each fixed frequency.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Sweep {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.power-sweep/1`.
    #[schemars(extend("const" = SWEEP))]
    pub schema: String,
    /// The host on which the sweep ran.
    pub host: Reading<HostState>,
    /// CPU of the forwarder, whose frequency was changed.
    pub cpu: u32,
    /// Number of this CPU's cpufreq policy.
    pub policy: u32,
    /// Root folder below which the frequencies were set. A folder other than `/` is a copy of sysfs, so that no core
    /// changed its frequency.
    pub root: String,
    /// The frequencies that were set in turn, in Hz.
    pub levels_hz: Vec<u64>,
    /// Time between two frequency changes, in ns.
    pub period_ns: u64,
    /// The times at which frames were sent, in words.
    pub schedule: String,
    /// The measured blocks, in order: without, with, with, and without frequency changes.
    pub blocks: Vec<Block>,
    /// Longest latency in the blocks with frequency changes, in ns. A frame is left out if the tester or the forwarder
    /// lost its CPU while the frame was in flight.
    pub changing_longest_ns: Reading<u64>,
    /// Longest latency in the blocks without frequency changes, in ns. A frame is left out if the tester or the
    /// forwarder lost its CPU while the frame was in flight.
    pub steady_longest_ns: Reading<u64>,
    /// Results at each fixed frequency.
    pub levels: Vec<Level>,
    /// Whether all settings were restored.
    pub restored: bool,
    /// Whether the sweep was interrupted.
    pub interrupted: bool,
    /// Remarks about the result.
    pub notes: Vec<String>,
}

/// A block of the measurement, with or without frequency changes.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Block {
    /// Whether the frequency was changed during this block.
    pub changing: bool,
    /// The results of each second of the block.
    pub seconds: Vec<Second>,
    /// Number of frequency changes that were requested; 0 in a block without changes.
    pub asked: u64,
    /// Number of frequency changes that the machine carried out as requested.
    pub as_asked: u64,
    /// Number of frequency changes that the machine did not carry out as requested.
    pub otherwise: u64,
    /// Energy of the block.
    pub energy: Energy,
}

/// The results of one second: one dot of the plot.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct Second {
    /// Number of the second in its series, from 0. The blocks with frequency changes form one series, and the blocks
    /// without changes form the other.
    pub second: u64,
    /// Frames that were scheduled to be sent in this second.
    pub frames: u64,
    /// Frames that did not come back.
    pub lost: u64,
    /// Longest latency in ns; `null` if no frame came back.
    pub longest_ns: Option<u64>,
    /// Longest latency in ns among frames during which neither the tester nor the forwarder lost its CPU; `null` if
    /// there were none.
    pub longest_clean_ns: Option<u64>,
}

impl Second {
    /// Converts the results of one second. The block begins at second `first` of its series.
    pub fn of(seen: &Seen, first: u64) -> Self {
        Self {
            second: first + seen.second,
            frames: seen.frames,
            lost: seen.lost,
            longest_ns: seen.longest.map(Nanos::as_nanos),
            longest_clean_ns: seen.longest_clean.map(Nanos::as_nanos),
        }
    }
}

/// Results of forwarding at one frequency.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Level {
    /// The requested frequency, in Hz.
    pub frequency_hz: u64,
    /// Whether the machine set the frequency as requested.
    pub as_asked: bool,
    /// CPU time of the forwarder, in percent of one CPU. A forwarder that polls uses 100 %.
    pub cpu_percent: Reading<f64>,
    /// Mean time that the forwarder spent on one frame, in ns. It depends on the frequency even if the forwarder polls.
    pub service_time_ns: Reading<u64>,
    /// Longest latency of a frame during which neither the tester nor the forwarder lost its CPU, in ns.
    pub longest_clean_ns: Reading<u64>,
    /// Energy used at this frequency.
    pub energy: Energy,
}
