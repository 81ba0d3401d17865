//! `apus power sweep --json`.

use schemars::JsonSchema;
use serde::Serialize;
use tester::document::Energy;
use tester::gaps::Second as Seen;
use tester::host::{HostState, Reading};
use units::Nanos;

/// Name and version of the schema.
pub const SWEEP: &str = "apus.power-sweep/1";

/// Forwarding while the frequency changes, and at each frequency.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Sweep {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// `apus.power-sweep/1`
    #[schemars(extend("const" = SWEEP))]
    pub schema: String,
    /// The host on which it was measured.
    pub host: Reading<HostState>,
    /// CPU of the forwarder, whose frequency was changed.
    pub cpu: u32,
    /// Number of the frequency policy of this CPU.
    pub policy: u32,
    /// Root folder below which frequencies were set. Any folder other than `/` is a copy: then no core changed its
    /// frequency.
    pub root: String,
    /// Frequencies that were set in turn.
    pub levels_hz: Vec<u64>,
    /// Time between two changes.
    pub period_ns: u64,
    /// When frames were sent.
    pub schedule: String,
    /// The measured blocks, in order: without, with, with, and without frequency changes.
    pub blocks: Vec<Block>,
    /// Longest latency in the blocks with frequency changes, in ns. Samples during which the tester or the forwarder
    /// lost its CPU are left out.
    pub changing_longest_ns: Reading<u64>,
    /// The same for the blocks without frequency changes.
    pub steady_longest_ns: Reading<u64>,
    /// Forwarding at each frequency.
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
    /// Whether the frequency was changed meanwhile.
    pub changing: bool,
    /// Every second of it.
    pub seconds: Vec<Second>,
    /// Number of frequency changes that were requested; 0 in a block without changes.
    pub asked: u64,
    /// Number of changes that the machine carried out as requested.
    pub as_asked: u64,
    /// Number of changes that the machine did not carry out as requested.
    pub otherwise: u64,
    /// Energy of the block.
    pub energy: Energy,
}

/// One second: a dot of the figure.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct Second {
    /// Number of the second in its series, from 0.
    pub second: u64,
    /// Frames that were due.
    pub frames: u64,
    /// Frames that did not come back.
    pub lost: u64,
    /// The longest latency; null if no frame came back.
    pub longest_ns: Option<u64>,
    /// The longest latency of a frame during which neither the tester nor the forwarder lost its CPU; null if there was
    /// none.
    pub longest_clean_ns: Option<u64>,
}

impl Second {
    /// A second of a block that begins at second `first` of its series.
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

/// Forwarding at one frequency.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Level {
    /// The frequency that was requested.
    pub frequency_hz: u64,
    /// Whether the machine set the frequency as requested.
    pub as_asked: bool,
    /// CPU time of the forwarder in percent of one CPU; a forwarder that polls uses all of it.
    pub cpu_percent: Reading<f64>,
    /// Mean time that the forwarder spent on one frame, in ns. It depends on the frequency, even if the forwarder
    /// polls.
    pub service_time_ns: Reading<u64>,
    /// Longest latency of a frame during which neither the tester nor the forwarder lost its CPU, in ns.
    pub longest_clean_ns: Reading<u64>,
    /// Energy used at this frequency.
    pub energy: Energy,
}
