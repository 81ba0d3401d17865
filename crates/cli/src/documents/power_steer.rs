//! `apus power steer --json`, its `status --json`, and what `apus top` and `apus metrics` show of running instances.

use policy::frequency::outside::{self, Unsure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use steer::frequency::Phase;
use steer::frequency::place::Way;
use tester::document::Name;

use super::top::Leftover;

/// Name and version of the schema of `apus power steer --json`.
pub const SCHEMA: &str = "apus.power-steer/1";
/// Name and version of the schema of `apus power steer status --json`.
pub const STATUS: &str = "apus.power-steer-status/1";

units::named! {
    /// Whether a CPU met its latency goal, judged by all packets since the command began.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Verdict {
        /// No more packets were late than the goal allows.
        Held = "held",
        /// More packets were late than the goal allows.
        Missed = "missed",
        /// Unknown: there is no latency goal, or too few packets were measured.
        Unmeasured = "unmeasured",
    }
}

units::named! {
    /// How a frequency is set.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Via {
        /// The frequency of the governor `userspace`, scaling_setspeed.
        Setspeed = "setspeed",
        /// The lowest and the highest frequency of the cpufreq policy.
        Limits = "limits",
        /// The HWP request of each CPU, MSR 0x774.
        Hwp = "hwp",
        /// The energy-performance preference of the cpufreq policy.
        Epp = "epp",
        /// Requests from this guest to its host.
        Host = "host",
    }
}

impl From<Way> for Via {
    fn from(way: Way) -> Self {
        match way {
            Way::Setspeed => Self::Setspeed,
            Way::Limits => Self::Limits,
            Way::Hwp => Self::Hwp,
            Way::Epp => Self::Epp,
        }
    }
}

/// The state of `apus power steer` while it runs, or the results when it ends.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.power-steer/1`.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// Whether this was a dry run (`--dry-run`), which changes nothing.
    pub dry_run: bool,
    /// Time for which the command controlled frequencies, in ns.
    pub duration_ns: u64,
    /// The policy, such as `goal` or `fixed:2.1GHz`.
    pub policy: String,
    /// The goal, such as `p99=50us` or `busy=80%`; `null` if the policy has none.
    pub goal: Option<String>,
    /// Longest time from a frequency request until the end of the change, in ns, as stated on the command line.
    pub change_ns: u64,
    /// Time that a core halts at each change, in ns, as stated on the command line.
    pub stall_ns: u64,
    /// The controlled CPUs.
    pub cpus: Vec<Cpu>,
    /// The frequency domains: sets of CPUs that share one frequency.
    pub domains: Vec<Domain>,
    /// Settings that many CPUs share and that the command lowers while no controlled CPU needs them (`--turbo`,
    /// `--uncore`).
    pub shared: Vec<SharedSetting>,
    /// Whether all settings that the command still controlled were restored to their original values. `null` while the
    /// command is running, if it changed no setting, or if no setting was left to restore.
    pub restored: Option<bool>,
}

/// A controlled CPU.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Cpu {
    /// The number of the CPU.
    pub cpu: u32,
    /// Number of the CPU's frequency domain.
    pub domain: u32,
    /// Where the CPU's load is read: the names of workers, or an interface with a queue. `null` if the policy does not
    /// need the load.
    pub watches: Option<String>,
    /// Frequency that the policy requests for this CPU, in Hz.
    pub wish_hz: u64,
    /// Frequency in Hz that was last requested for the CPU's domain, or the lower one that the machine granted.
    pub frequency_hz: u64,
    /// Highest frequency that the firmware allows, in Hz.
    pub ceiling_hz: u64,
    /// Mean frequency in Hz, weighted by time; `null` if no load was read.
    pub mean_frequency_hz: Option<u64>,
    /// What the CPU was doing at the last reading, as far as known.
    pub phase: Name<Phase>,
    /// Why the frequency was chosen or kept.
    pub reason: String,
    /// The policy's reason; `null` if the policy did not decide.
    pub policy_reason: Option<Name<outside::Reason>>,
    /// Why the CPU's load is unknown; `null` if it is known, or if the policy does not need it.
    pub unsure: Option<Name<Unsure>>,
    /// Share of time that the CPU spent on useful work, over the times in which this was known; `null` if it was never
    /// known.
    pub busy_ratio: Option<f64>,
    /// Number of packets that the CPU received; `null` if they were not counted.
    pub packets: Option<u64>,
    /// Number of packets whose delay was measured; `null` if delays were not measured.
    pub judged: Option<u64>,
    /// Number of the `judged` packets that were later than the goal allows; `null` if delays were not measured.
    pub late: Option<u64>,
    /// Whether the latency goal was met.
    pub verdict: Name<Verdict>,
    /// Upper bound of the cost of a packet in cycles, as learned during the run; `null` if it was not learned.
    pub cycles_per_packet: Option<u64>,
    /// Number of times that the policy requested another frequency for the CPU.
    pub wishes: u64,
    /// What was observed in the last full second; `null` if nothing was observed.
    pub last_second: Option<LastSecond>,
    /// What the machine did instead of using the requested frequency (the value that it uses, or why it refused), or
    /// why the CPU's load cannot be read. `null` if neither is the case.
    pub trouble: Option<String>,
    /// Whether the machine refuses the requested frequency; `trouble` says why.
    pub refused: bool,
    /// Why Apus stopped controlling the CPU early; `null` if it controlled the CPU until the command ended.
    pub lost: Option<String>,
    /// Longest exit latency, in ns, of the idle states that the command allows the CPU; 0 if it allows none. `null` if
    /// the command does not limit idle states.
    pub idle_limit_ns: Option<u64>,
    /// Why `idle_limit_ns` is not in force: the machine refused the limit, or somebody else has changed it. `null` if
    /// the limit is in force, or if there is none.
    pub idle_trouble: Option<String>,
}

/// What was observed of a CPU in the last full second.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct LastSecond {
    /// Time that was observed, in ns.
    pub span_ns: u64,
    /// Mean frequency in Hz, weighted by time.
    pub mean_frequency_hz: u64,
    /// Share of time that the CPU spent on useful work, over the times in which this was known; `null` if it was never
    /// known.
    pub busy_ratio: Option<f64>,
    /// Number of packets that the CPU received; `null` if they were not counted.
    pub packets: Option<u64>,
    /// Number of packets whose delay was measured; `null` if delays were not measured.
    pub judged: Option<u64>,
    /// Number of the `judged` packets that were later than the goal allows; `null` if delays were not measured.
    pub late: Option<u64>,
}

/// A set of CPUs that share one frequency.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Domain {
    /// Number of the kernel's cpufreq policy for these CPUs, or of the vCPU if the host sets the frequency.
    pub domain: u32,
    /// CPUs of the domain, such as `2-3`.
    pub cpus: String,
    /// The cpufreq driver; `null` if the kernel does not report it, or if the host sets the frequency.
    pub driver: Option<String>,
    /// The setting through which the frequency is controlled.
    pub via: Name<Via>,
    /// Number of frequency changes that were requested.
    pub changes: u64,
    /// Number of requested frequency changes per second.
    pub changes_per_second: f64,
    /// Predicted share of time in which the cores halt because of the frequency changes.
    pub stall_ratio: f64,
}

/// A setting that many CPUs share.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct SharedSetting {
    /// Name of the setting: `turbo`, or `uncore` with the name of its domain, such as `uncore package_00_die_00`.
    pub setting: String,
    /// Whether the setting is lowered now: turbo is off, or the uncore runs at its lowest frequency.
    pub lowered: bool,
    /// Share of the command's run time, from 0 to 1, for which the setting was lowered.
    pub lowered_ratio: f64,
    /// Number of times that the command changed the setting.
    pub changes: u64,
    /// Why the setting does not have the value that Apus wants; `null` if it has the value.
    pub trouble: Option<String>,
}

/// The running instances of `apus power steer` and their CPUs.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct StatusDocument {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.power-steer-status/1`.
    #[schemars(extend("const" = STATUS))]
    pub schema: String,
    /// The running instances, by process ID.
    pub instances: Vec<Instance>,
    /// Files in the state folder that belong to no running instance. They belong to killed processes or to other
    /// versions of Apus.
    pub leftovers: Vec<Leftover>,
}

/// A running instance of `apus power steer`.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Instance {
    /// Process ID.
    pub pid: u32,
    /// Time since the instance last published its state, in ns. A running instance publishes its state every second.
    pub silent_ns: u64,
    /// The state that the instance published.
    pub document: Document,
}

impl Document {
    /// Whether a CPU missed the goal, or a setting does not have the value that Apus wants, because it was refused or
    /// changed by somebody else.
    pub fn has_findings(&self) -> bool {
        let missed = Name::of(&Verdict::Missed);
        let is_one = |cpu: &Cpu| {
            cpu.lost.is_some()
                || cpu.refused
                || cpu.idle_trouble.is_some()
                || self.goal.is_some() && cpu.verdict == missed
        };
        self.cpus.iter().any(is_one) || self.shared.iter().any(|shared| shared.trouble.is_some())
    }
}
