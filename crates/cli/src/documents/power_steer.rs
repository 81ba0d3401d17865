//! `apus power steer --json`.

use policy::frequency::outside::{self, Unsure};
use schemars::JsonSchema;
use serde::Serialize;
use steer::frequency::Phase;
use steer::frequency::place::Way;
use tester::document::Name;

/// Name and version of the schema.
pub const SCHEMA: &str = "apus.power-steer/1";

units::named! {
    /// Whether a CPU held its latency goal, judged by all packets since the command began.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Verdict {
        /// No more packets were late than the goal allows.
        Held = "held",
        /// More packets were late than the goal allows.
        Missed = "missed",
        /// It cannot be told: there is no latency goal, or too few packets were measured.
        Unmeasured = "unmeasured",
    }
}

/// What the command did.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Document {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.power-steer/1`.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// Whether nothing was changed (`--dry-run`).
    pub dry_run: bool,
    /// How long the command steered.
    pub duration_ns: u64,
    /// The policy, such as `goal` or `fixed:2.1GHz`.
    pub policy: String,
    /// The goal, such as `p99=50us` or `busy=80%`; `null` if the policy has none.
    pub goal: Option<String>,
    /// Longest time from a request until the end of the change, as it was stated.
    pub change_ns: u64,
    /// How long a core stands still at a change, as it was stated.
    pub stall_ns: u64,
    /// The steered CPUs.
    pub cpus: Vec<Cpu>,
    /// The frequency domains: CPUs that have one frequency.
    pub domains: Vec<Domain>,
    /// Whether all settings that are still steered have their original values again; `null` if none was changed, or none
    /// is left.
    pub restored: Option<bool>,
}

/// A steered CPU.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Cpu {
    /// The number of the CPU.
    pub cpu: u32,
    /// The number of its frequency domain.
    pub domain: u32,
    /// What tells of its work: the names of workers, or an interface with a queue; `null` if the policy does not ask.
    pub watches: Option<String>,
    /// The frequency that the policy wants for it.
    pub wish_hz: u64,
    /// The frequency that was last requested for its domain, as far as the machine granted it.
    pub frequency_hz: u64,
    /// Highest frequency that the firmware grants.
    pub ceiling_hz: u64,
    /// Mean of the frequencies in force, weighted by time; `null` if nothing was seen.
    pub mean_frequency_hz: Option<u64>,
    /// What the CPU is doing.
    pub phase: Name<Phase>,
    /// Why the frequency was chosen or kept.
    pub reason: String,
    /// The policy's reason; `null` if it was not asked.
    pub policy_reason: Option<Name<outside::Reason>>,
    /// Why the occupancy is unknown; `null` if it is known, or the policy does not ask.
    pub unsure: Option<Name<Unsure>>,
    /// Share of the time in which the CPU did useful work, while that was known; `null` if it never was.
    pub busy_ratio: Option<f64>,
    /// Packets; `null` if nobody counts them.
    pub packets: Option<u64>,
    /// Packets whose delay was measured; `null` if nobody measures delays.
    pub judged: Option<u64>,
    /// Number of the `judged` packets that were later than the goal.
    pub late: Option<u64>,
    /// Whether the latency goal was held.
    pub verdict: Name<Verdict>,
    /// Highest cost of a packet in cycles, as it was learned; `null` if it was not.
    pub cycles_per_packet: Option<u64>,
    /// How often the CPU's wish changed.
    pub wishes: u64,
    /// What the machine did with the request: the value that it uses instead, or why it refused; `null` if it uses what
    /// was requested.
    pub trouble: Option<String>,
    /// Why the CPU is no longer steered; `null` if it was to the end.
    pub lost: Option<String>,
}

/// CPUs that have one frequency.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Domain {
    /// The number of the kernel's frequency policy.
    pub domain: u32,
    /// Its CPUs, such as `2-3`.
    pub cpus: String,
    /// The driver; `null` if the kernel does not say.
    pub driver: Option<String>,
    /// By which setting it is steered.
    pub via: Name<Way>,
    /// How often another frequency was requested.
    pub changes: u64,
    /// The same, per second.
    pub changes_per_second: f64,
    /// Predicted share of the time in which the cores stand still because of these changes.
    pub stall_ratio: f64,
}
