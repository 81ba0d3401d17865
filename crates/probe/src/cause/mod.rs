//! Finds out what used a CPU while the measuring thread was runnable on it but did not run.
//!
//! ```text
//!   tracepoints of that CPU (perf_event_open(2)) ─► events ─► charge ─► Charge, Charge, … ─┐
//!   irq, irq_vectors, softirq, sched_switch, nmi                                           ├─► Explanation
//!   /proc/interrupts, softirqs, stat, schedstat; SMI count ─► before and after ────────────┘
//! ```
//! Tracepoints answer this exactly, at a cost of a few hundred nanoseconds for each event on the measured CPU. They are
//! opened for this process alone and close with it, so nothing is left behind. Without tracepoints, a likely cause is
//! inferred from counters that changed, and the explanation says that it is only likely.
//!
//! Times are *net*: if an interrupt is itself interrupted, the time of the inner one is not counted for the outer one.
//! Time that no event accounts for was taken by the hypervisor, the firmware or the hardware. Steal time and the count
//! of system management interrupts tell these apart, where they are available.

mod charge;
mod counters;
mod sys;
mod trace;
mod watcher;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Nanos;

pub use charge::{Event, Source, Task, What, charge};
pub use watcher::Watcher;

/// What used the CPU.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The interrupt of a device.
    Interrupt {
        /// Number in /proc/interrupts.
        irq: u32,
        /// Name in /proc/interrupts.
        name: String,
    },
    /// An interrupt of the CPU itself, such as `local_timer`, `reschedule` or `call_function_single`.
    Vector {
        /// Name, as in the tracepoints.
        name: String,
    },
    /// A non-maskable interrupt.
    Nmi,
    /// A softirq, in an interrupt or in its thread.
    Softirq {
        /// Name of the softirq, such as `NET_RX` or `TIMER`.
        name: String,
    },
    /// A thread other than the measuring one.
    Thread {
        /// Name of the thread; `?` if the only evidence is counters, which do not name threads.
        name: String,
        /// Thread identifier in the initial PID namespace; null if the only evidence is counters.
        pid: Option<i32>,
    },
    /// The CPU was idle and had to leave its idle state first.
    Idle,
    /// The hypervisor ran something else on the physical CPU (steal time).
    Steal,
    /// The firmware, in a system management interrupt (SMI).
    Smi,
    /// Unknown: the kernel reported nothing. The hypervisor, the firmware, the hardware, or the entry to and exit from
    /// an interrupt may have used the CPU.
    Unaccounted,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interrupt { irq, name } => write!(f, "interrupt {irq} ({name})"),
            Self::Vector { name } => write!(f, "interrupt {name} of the CPU"),
            Self::Nmi => f.write_str("non-maskable interrupt"),
            Self::Softirq { name } => write!(f, "softirq {name}"),
            Self::Thread { name, pid: Some(pid) } => write!(f, "thread {name} ({pid})"),
            Self::Thread { name, pid: None } => write!(f, "thread {name}"),
            Self::Idle => f.write_str("idle: waking the CPU"),
            Self::Steal => f.write_str("hypervisor: steal time"),
            Self::Smi => f.write_str("system management interrupt"),
            Self::Unaccounted => f.write_str("nothing that the kernel reports: hypervisor, firmware or hardware"),
        }
    }
}

/// The part of a time span in which one cause used the CPU.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Charge {
    /// What used the CPU.
    pub cause: Cause,
    /// Time for which the cause used the CPU, in nanoseconds, not counting interrupts that interrupted it; 0 if the
    /// evidence is counters.
    pub ns: u64,
    /// Number of times that the cause began to use the CPU. If the evidence is counters, the increase of the counter.
    pub times: u64,
}

/// The kind of evidence on which an [`Explanation`] is based.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// Tracepoints: every event with its time of occurrence.
    Trace,
    /// Counters before and after: the cause is likely, not certain.
    Counters,
    /// None: nothing was recorded.
    Nothing,
}

/// What used the CPU during a time span in which the measuring thread was runnable but did not run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Explanation {
    /// Length of the time span in nanoseconds.
    pub length_ns: u64,
    /// The cause of most of the time, as [`main_cause`] chooses it.
    pub cause: Cause,
    /// Whether a thread of a lower scheduling class ran although the measuring thread was runnable. This happens when
    /// the kernel throttles real-time threads so that they do not starve others.
    pub throttled: bool,
    /// All causes, the largest first.
    pub charges: Vec<Charge>,
    /// The evidence for this explanation.
    pub evidence: Evidence,
    /// Number of trace events that were lost because the buffer was full. Their time is charged to other causes.
    pub events_lost: u64,
}

/// Unaccounted time up to this length is attributed to the entry to and exit from an interrupt. On bare metal, entry
/// and exit take about a microsecond. Under a nested hypervisor they take 9 to 20 us, varying from hour to hour (storms
/// of inter-processor interrupts on a VM with 2 CPUs, Linux 6.18).
const ENTRY_AND_EXIT: Nanos = Nanos::from_micros(25);

/// Chooses the main cause: the known cause with the most time. The result is [`Cause::Unaccounted`] if more than half
/// of the time is unaccounted for, and the unaccounted time is too long for the entries to and exits from the known
/// interrupts.
pub fn main_cause(charges: &[Charge]) -> Cause {
    let total: u64 = charges.iter().map(|charge| charge.ns).sum();
    let unaccounted: u64 = charges.iter().filter(|of| of.cause == Cause::Unaccounted).map(|of| of.ns).sum();
    let named = charges.iter().filter(|of| of.cause != Cause::Unaccounted).max_by_key(|of| of.ns);
    let times: u64 = charges.iter().filter(|of| of.cause != Cause::Unaccounted).map(|of| of.times).sum();
    let excused = (ENTRY_AND_EXIT * times).as_nanos();
    match named {
        Some(named) if unaccounted <= total / 2 || unaccounted <= excused => named.cause.clone(),
        _ => Cause::Unaccounted,
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.evidence {
            Evidence::Nothing => return f.write_str("causes were not recorded"),
            Evidence::Counters => write!(f, "likely {}", self.cause)?,
            // Even with tracepoints, steal time and SMIs come from counters, which cover the time since they were last
            // read.
            Evidence::Trace if matches!(self.cause, Cause::Steal | Cause::Smi) => write!(f, "likely {}", self.cause)?,
            Evidence::Trace => write!(f, "{}", self.cause)?,
        }
        if self.throttled {
            f.write_str(", because the kernel throttles real-time threads (kernel.sched_rt_runtime_us)")?;
        }
        for (at, charge) in self.charges.iter().take(5).enumerate() {
            f.write_str(match (at, self.evidence) {
                (0, Evidence::Trace) => ". In it: ",
                (0, _) => ". Since the last reading of the counters: ",
                _ => "; ",
            })?;
            match self.evidence {
                Evidence::Trace => write!(f, "{} {}", micros(charge.ns), charge.cause)?,
                _ => write!(f, "{} x {}", charge.times, charge.cause)?,
            }
            if self.evidence == Evidence::Trace && charge.times > 1 {
                write!(f, " ({} times)", charge.times)?;
            }
        }
        if self.charges.len() > 5 {
            write!(f, "; and {} more", self.charges.len() - 5)?;
        }
        if self.events_lost > 0 {
            write!(f, ". {} events were lost", self.events_lost)?;
        }
        Ok(())
    }
}

fn micros(ns: u64) -> String {
    format!("{:.1}us", ns as f64 / 1e3)
}

units::named! {
    /// How to find the causes of delays.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Causes {
        /// By tracepoints, or by counters if there are no tracepoints.
        Auto = "auto",
        /// By tracepoints. Without them no cause is given.
        Trace = "trace",
        /// By counters.
        Counters = "counters",
        /// Causes are not looked for.
        None = "none",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(cause: Cause, micros: u64, times: u64) -> Charge {
        Charge { cause, ns: micros * 1_000, times }
    }
    fn tick() -> Cause {
        Cause::Vector { name: "local_timer".into() }
    }

    #[test]
    fn a_tick_excuses_its_own_way_in_and_out_but_no_more() {
        // The handler took 3 us of 14 us. The rest was the entry to and exit from the interrupt.
        assert_eq!(main_cause(&[of(tick(), 3, 1), of(Cause::Unaccounted, 11, 1)]), tick());
        // The handler took 3 us of 5 ms. The hypervisor had the CPU, so the tick was late.
        assert_eq!(main_cause(&[of(tick(), 3, 1), of(Cause::Unaccounted, 4_997, 1)]), Cause::Unaccounted);
        // With many interrupts, all of their entries and exits count.
        assert_eq!(main_cause(&[of(tick(), 100, 50), of(Cause::Unaccounted, 400, 1)]), tick());
        assert_eq!(main_cause(&[]), Cause::Unaccounted);
    }

    #[test]
    fn an_explanation_reads_as_a_sentence() {
        let thread = Cause::Thread { name: "thief".into(), pid: Some(7) };
        let explanation = Explanation {
            length_ns: 2_010_000,
            cause: thread.clone(),
            throttled: true,
            charges: vec![of(thread, 2_000, 1), of(tick(), 10, 2)],
            evidence: Evidence::Trace,
            events_lost: 0,
        };
        assert_eq!(
            explanation.to_string(),
            "thread thief (7), because the kernel throttles real-time threads (kernel.sched_rt_runtime_us). \
             In it: 2000.0us thread thief (7); 10.0us interrupt local_timer of the CPU (2 times)"
        );
    }

    #[test]
    fn names_of_the_ways_to_look() {
        for causes in Causes::ALL {
            assert_eq!(causes.to_string().parse(), Ok(causes));
        }
        assert!("ftrace".parse::<Causes>().is_err());
    }
}
