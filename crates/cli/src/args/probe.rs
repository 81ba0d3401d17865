//! `apus probe`: what to measure, where, and under which load.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use host::facts::{CpuSet, CpuSetError};
use probe::cause::Causes;
use probe::frequency::Via as Asks;
use probe::idle::{How, Source};
use probe::interrupt::Wait as Wakes;
use probe::load::Load;
use probe::platform::ROUNDS;
use probe::switch::Via;
use probe::timer::Wait;
use units::{Hertz, Nanos, PacketRate};

use super::bench::MacAddress;
use super::energy::Modelled;
use super::values::{mac, span};

/// What to measure.
#[derive(Subcommand, Debug)]
pub enum Probe {
    /// Measures how late a periodic timer fires. If the thread does not run for several periods, the expiries that it
    /// misses also count as late.
    Timer(Timer),
    /// Measures gaps in a loop that never sleeps: what took the CPU away from it, for how long, and the effect on
    /// packets.
    Jitter(Jitter),
    /// Measures the time to hand over from one thread to another: context switches, and wake-ups across CPUs.
    Switch(Switch),
    /// Measures how long a frame takes to reach user space: over a veth pair, or through a port that gets its own
    /// frames back (--port).
    Interrupt(Interrupt),
    /// Measures the time to wake from each idle state, by a timer and by other sources. Changes idle states while it
    /// runs, and rolls them back afterwards.
    Idle(Idle),
    /// Measures the time from a frequency request to the new frequency, and how long the core halts during the change.
    /// Changes the frequency while it runs, and rolls it back afterwards.
    Frequency(Frequency),
    /// Measures the cost and resolution of each clock, and whether the CPUs' time stamp counters agree.
    Clock(Clock),
    /// Runs all probes in several short rounds. With -o, writes a platform profile for `apus run --platform`: the
    /// latency and CPU time of each way to wait on this host. A probe that fails is left out.
    All(All),
    /// Compares two platform profiles or two probe results, figure by figure, and tells real differences from those
    /// that may be chance.
    ///
    /// Exit status 1 if a figure is higher (slower) in B, the second file, than in A, by more than chance can explain.
    Compare(Compare),
    /// Converts results of cyclictest and oslat (their --json output) and of rtla hist (text) into probe results.
    Import(Import),
}

/// Where the results go.
#[derive(Args, Clone, Debug)]
pub struct Outputs {
    /// Print the result as JSON (schema apus.probe/2).
    #[arg(long, help_heading = "Results")]
    pub json: bool,
    /// Write the result as JSON to FILE, for `apus report` and `apus probe compare`.
    #[arg(short, long, value_name = "FILE", help_heading = "Results")]
    pub output: Option<PathBuf>,
    /// Write a report, one self-contained HTML file, to FILE.
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub html: Option<PathBuf>,
    /// The machine whose energy to model.
    #[command(flatten)]
    pub modelled: Modelled,
}

/// The scheduling class and load under which a probe runs, and its threshold.
#[derive(Args, Clone, Debug)]
pub struct Conditions {
    /// Run the measuring threads under SCHED_FIFO at this priority, 1 to 99 [default: the normal scheduling class].
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u8).range(1..=99))]
    pub priority: Option<u8>,
    /// Load to run on the host during the measurement: none, cpu, memory, network or io (needs stress-ng).
    #[arg(long, value_name = "KIND", default_value = "none")]
    pub load: Load,
    /// Stop at the first sample longer than DURATION, explain it, and exit with status 1. A sample is the lateness of
    /// one timer expiry (probe timer), one gap (probe jitter), one handover (probe switch), the delay of one frame
    /// (probe interrupt), or the mean cost of a clock reading in one batch of readings (probe clock).
    #[arg(long, value_name = "DURATION", value_parser = span)]
    pub fail_over: Option<Nanos>,
}

/// Arguments of `apus probe timer`.
#[derive(Args, Debug)]
pub struct Timer {
    /// CPUs to measure on, one thread each: 1, 0-3 or 0,2 [default: the last CPU that this process may run on].
    #[arg(long, value_name = "CPUS")]
    pub cpu: Option<CpuList>,
    /// Time from one timer expiry to the next, at least 10us.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "1ms")]
    pub interval: Nanos,
    /// Time to measure.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "10s")]
    pub duration: Nanos,
    /// System call to wait with: clock_nanosleep, timerfd or epoll.
    #[arg(long, value_name = "HOW", default_value = "clock_nanosleep")]
    pub wait: Wait,
    /// Timer slack of the measuring threads. The kernel's default for the normal scheduling class is 50us.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "1ns")]
    pub slack: Nanos,
    /// Scheduling class, load and threshold.
    #[command(flatten)]
    pub conditions: Conditions,
    /// Where the results go.
    #[command(flatten)]
    pub outputs: Outputs,
}

/// Arguments of `apus probe jitter`.
#[derive(Args, Debug)]
pub struct Jitter {
    /// CPUs on which to busy-loop, one thread each: 1, 0-3 or 0,2 [default: the last CPU that this process may run
    /// on].
    #[arg(long, value_name = "CPUS")]
    pub cpu: Option<CpuList>,
    /// Time to measure.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "10s")]
    pub duration: Nanos,
    /// Count as a gap each pass of the loop that takes longer than DURATION (at most 100us).
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "1us")]
    pub gap_over: Nanos,
    /// Explain gaps longer than DURATION, or than --fail-over if that is shorter. Gaps less than 5us apart are
    /// explained as one.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "10us")]
    pub explain_over: Nanos,
    /// How to find what caused a gap: trace (kernel tracepoints; exact, but each event costs the measured CPU a few
    /// hundred nanoseconds), counters (in /proc; shows only likely causes), auto (trace if possible, otherwise
    /// counters) or none.
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub causes: Causes,
    /// Estimate how many packets would have been lost at this packet rate.
    #[arg(long, value_name = "RATE", help_heading = "Packets")]
    pub rate: Option<PacketRate>,
    /// Size of the receive ring that the estimates assume, in descriptors.
    #[arg(long, value_name = "N", default_value_t = 1024, help_heading = "Packets")]
    pub ring: u32,
    /// Packets per second that the application can process after a gap; more than --rate [default: unlimited].
    #[arg(long, value_name = "RATE", requires = "rate", help_heading = "Packets")]
    pub capacity: Option<PacketRate>,
    /// Scheduling class, load and threshold.
    #[command(flatten)]
    pub conditions: Conditions,
    /// Where the results go.
    #[command(flatten)]
    pub outputs: Outputs,
}

/// Arguments of `apus probe switch`.
#[derive(Args, Debug)]
pub struct Switch {
    /// CPU of the first thread [default: the last CPU that this process may run on].
    #[arg(long, value_name = "CPU")]
    pub cpu: Option<usize>,
    /// CPU of the second thread. If it is also the CPU of the first thread, the probe measures a context switch
    /// [default: measure two cases: the same CPU, and the first other CPU that this process may run on].
    #[arg(long, value_name = "CPU")]
    pub peer: Option<usize>,
    /// How the threads wake each other: futex, pipe or eventfd [default: all].
    #[arg(long, value_name = "HOW")]
    pub via: Option<Via>,
    /// Time that each thread busy-loops before it wakes the other one. It must be long enough for the other one to
    /// block.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "20us")]
    pub pause: Nanos,
    /// Time to measure each case.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "1s")]
    pub duration: Nanos,
    /// Scheduling class, load and threshold.
    #[command(flatten)]
    pub conditions: Conditions,
    /// Where the results go.
    #[command(flatten)]
    pub outputs: Outputs,
}

/// Arguments of `apus probe interrupt`.
#[derive(Args, Debug)]
pub struct Interrupt {
    /// How the receiver waits: block, spin, busy (kernel busy polling) or suspend (IRQ suspension) [default: all; with
    /// --port, all but suspend].
    #[arg(long, value_name = "HOW")]
    pub wait: Option<Wakes>,
    /// CPU of the receiver [default: the last CPU that this process may run on].
    #[arg(long, value_name = "CPU")]
    pub cpu: Option<usize>,
    /// CPU of the sender; may be the CPU of the receiver [default: the first other CPU that this process may run on.
    /// With block, the probe then also measures a sender on the receiver's CPU].
    #[arg(long, value_name = "CPU", conflicts_with = "port")]
    pub sender: Option<usize>,
    /// Time from one frame to the next.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "350us")]
    pub interval: Nanos,
    /// Time to measure each case.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "2s")]
    pub duration: Nanos,
    /// Interface to send and receive on. Its frames must come back to it, through a loopback plug or from a reflector
    /// [default: a veth pair made for the measurement].
    #[arg(long, value_name = "IF", help_heading = "Port")]
    pub port: Option<String>,
    /// Receive queue at which the returned frames arrive.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "port", help_heading = "Port")]
    pub queue: u32,
    /// Network namespace of the interface, as `ip netns list` shows it [default: the current one].
    #[arg(long, value_name = "NAME", requires = "port", help_heading = "Port")]
    pub netns: Option<String>,
    /// Destination MAC address of the frames, or broadcast.
    #[arg(long, value_name = "MAC", value_parser = mac, default_value = "broadcast", requires = "port", help_heading = "Port")]
    pub mac: MacAddress,
    /// Scheduling class, load and threshold.
    #[command(flatten)]
    pub conditions: Conditions,
    /// Where the results go.
    #[command(flatten)]
    pub outputs: Outputs,
}

/// Arguments of `apus probe idle`.
#[derive(Args, Debug)]
pub struct Idle {
    /// CPU that sleeps [default: the last CPU that this process may run on].
    #[arg(long, value_name = "CPU")]
    pub cpu: Option<usize>,
    /// CPU that wakes the sleeping one [default: the first other CPU that this process may run on].
    #[arg(long, value_name = "CPU")]
    pub peer: Option<usize>,
    /// How to enter each idle state: alone (disable all others) or pm-qos (limit the exit latency).
    #[arg(long, value_name = "HOW", default_value = "alone")]
    pub how: How,
    /// What wakes the sleeping CPU (comma-separated): timer, cpu or frame (over a veth pair) [default: timer,cpu].
    #[arg(long, value_name = "SOURCES", value_delimiter = ',')]
    pub source: Vec<Source>,
    /// Sleep times to measure (comma-separated) [default: twice the target residency of each idle state, at least
    /// 200us; in a virtual machine whose idle CPUs only halt: 50us,100us,350us,1ms,10ms].
    #[arg(long, value_name = "DURATIONS", value_delimiter = ',', value_parser = span)]
    pub sleep: Vec<Nanos>,
    /// Time to measure each case.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "1s")]
    pub duration: Nanos,
    /// Run the measuring threads under SCHED_FIFO at this priority, 1 to 99 [default: the normal scheduling class].
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u8).range(1..=99))]
    pub priority: Option<u8>,
    /// Where the results go.
    #[command(flatten)]
    pub outputs: Outputs,
}

/// Arguments of `apus probe frequency`.
#[derive(Args, Debug)]
pub struct Frequency {
    /// CPU whose frequency to change. It repeats a fixed work item (--work); the time that each repetition takes shows
    /// the frequency [default: the last CPU that this process may run on].
    #[arg(long, value_name = "CPU")]
    pub cpu: Option<usize>,
    /// How to request a frequency: governor, limits, hwp (MSR 0x774) or auto.
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub via: Asks,
    /// Frequencies to request in turn, such as 800MHz,2.1GHz [default: the lowest and the highest].
    #[arg(long, value_name = "FREQUENCIES", value_delimiter = ',')]
    pub levels: Vec<Hertz>,
    /// Size of one work item: the time that it takes at the CPU's frequency at the start of the measurement.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "10us")]
    pub work: Nanos,
    /// Time from one request to the next, at least 4ms.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "50ms")]
    pub period: Nanos,
    /// Number of frequency requests.
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub changes: u32,
    /// Work items per plotted point; the point is the slowest of them.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub batch: usize,
    /// Run the work under SCHED_FIFO at this priority, 1 to 99 [default: the normal scheduling class].
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u8).range(1..=99))]
    pub priority: Option<u8>,
    /// Where the results go.
    #[command(flatten)]
    pub outputs: Outputs,
}

/// Arguments of `apus probe clock`.
#[derive(Args, Debug)]
pub struct Clock {
    /// CPUs to check. The time stamp counter of each is compared with that of the first CPU in the list [default: all
    /// CPUs that this process may run on].
    #[arg(long, value_name = "CPUS")]
    pub cpu: Option<CpuList>,
    /// Time from the first comparison of the counters to the second.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "1s")]
    pub duration: Nanos,
    /// Scheduling class, load and threshold.
    #[command(flatten)]
    pub conditions: Conditions,
    /// Where the results go.
    #[command(flatten)]
    pub outputs: Outputs,
}

/// Arguments of `apus probe all`.
#[derive(Args, Debug)]
pub struct All {
    /// CPU to measure [default: the last CPU that this process may run on].
    #[arg(long, value_name = "CPU")]
    pub cpu: Option<usize>,
    /// Second CPU, which wakes the measured one and sends to it [default: the first other CPU that this process may
    /// run on].
    #[arg(long, value_name = "CPU")]
    pub peer: Option<usize>,
    /// Run the measuring threads under SCHED_FIFO at this priority, 1 to 99 [default: the normal scheduling class].
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u8).range(1..=99))]
    pub priority: Option<u8>,
    /// Load to run on the host during the measurement: none, cpu, memory, network or io (needs stress-ng).
    #[arg(long, value_name = "KIND", default_value = "none")]
    pub load: Load,
    /// Number of rounds. Each round gives `apus probe compare` one sample of each figure.
    #[arg(long, value_name = "N", default_value_t = ROUNDS, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Time to measure each case in each round.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "500ms")]
    pub slice: Nanos,
    /// Print the platform profile as JSON (schema apus.platform/2).
    #[arg(long, help_heading = "Results")]
    pub json: bool,
    /// Write the platform profile as JSON to FILE.
    #[arg(short, long, value_name = "FILE", help_heading = "Results")]
    pub output: Option<PathBuf>,
    /// Write a report, one self-contained HTML file, to FILE.
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub html: Option<PathBuf>,
    /// The machine whose energy to model.
    #[command(flatten)]
    pub modelled: Modelled,
}

/// Arguments of `apus probe compare`.
#[derive(Args, Debug)]
pub struct Compare {
    /// First file: a platform profile written by `apus probe all`, or the JSON result of one probe.
    pub a: PathBuf,
    /// Second file, of the same kind as the first.
    pub b: PathBuf,
    /// Print the comparison as JSON (schema apus.probe-compare/1).
    #[arg(long)]
    pub json: bool,
    /// Write a report on both files, one self-contained HTML file, to FILE.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Arguments of `apus probe import`.
#[derive(Args, Debug)]
pub struct Import {
    /// Output files of cyclictest, oslat or rtla.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Where the results go.
    #[command(flatten)]
    pub outputs: Outputs,
}

/// CPU numbers in the order in which they were typed, without repetitions: `1`, `0-3` or `0,2`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CpuList(pub Vec<usize>);

impl FromStr for CpuList {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: String| format!("{text:?} is not a list of CPUs; write 1, 0-3 or 0,2 ({why})");
        let mut cpus = Vec::new();
        for part in text.split(',') {
            let set: CpuSet = part.parse().map_err(|error: CpuSetError| wrong(error.to_string()))?;
            if set.is_empty() {
                return Err(wrong("a part of it is empty".into()));
            }
            cpus.extend(set.iter().map(|cpu| cpu as usize).filter(|cpu| !cpus.contains(cpu)).collect::<Vec<_>>());
        }
        Ok(Self(cpus))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus() {
        assert_eq!("0-2,5,1".parse(), Ok(CpuList(vec![0, 1, 2, 5])));
        for text in ["", "1-", "3-1", "x", "8192", "1,,2"] {
            assert!(text.parse::<CpuList>().is_err(), "{text:?} was taken");
        }
    }
}
