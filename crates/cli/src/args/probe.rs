//! `apus probe`: what to measure, where, and under which load.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
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
use super::values::{mac, span};

/// What is measured.
#[derive(Subcommand, Debug)]
pub enum Probe {
    /// Lateness of a periodic timer. A stall counts with every period that it swallowed.
    Timer(Timer),
    /// Gaps in a loop that never sleeps: who took the CPU, for how long, and what it means for packets.
    Jitter(Jitter),
    /// Handing over from one thread to another: context switch, and wake-up across CPUs.
    Switch(Switch),
    /// Delivery of a frame to user space, in a lab of its own or on a port whose frames come back.
    Interrupt(Interrupt),
    /// What it takes to come out of each idle state, woken by a timer and by others. Changes idle states while it
    /// runs, through the journal.
    Idle(Idle),
    /// From asking for a frequency to having it, and how long the core stands still. Changes the frequency while it
    /// runs, through the journal.
    Frequency(Frequency),
    /// What reading a clock costs, how fine it is, and whether the CPUs' counters agree.
    Clock(Clock),
    /// All probes, in several short rounds: the platform profile.
    All(All),
    /// Two profiles, or two results, term by term: what differs, and whether that is more than chance.
    ///
    /// Exit status 1: some term takes longer in B.
    Compare(Compare),
    /// Results of cyclictest and oslat (--json) and of rtla hist (text), as results of ours.
    Import(Import),
}

/// Where the results go, and what ends a run.
#[derive(Args, Clone, Debug)]
pub struct Outputs {
    /// Print the result as JSON (schema apus.probe/2).
    #[arg(long, help_heading = "Results")]
    pub json: bool,
    /// Write the result as JSON to a file, for `apus report` and `apus probe compare`.
    #[arg(short, long, value_name = "FILE", help_heading = "Results")]
    pub output: Option<PathBuf>,
    /// Write the result as one self-contained HTML file.
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub html: Option<PathBuf>,
}

/// Where and under what a probe runs.
#[derive(Args, Clone, Debug)]
pub struct Conditions {
    /// Run the measuring threads in SCHED_FIFO at this priority, 1 to 99 [default: the normal class].
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u8).range(1..=99))]
    pub priority: Option<u8>,
    /// What the host is given to do meanwhile: none, cpu, memory, network or io (with stress-ng).
    #[arg(long, value_name = "KIND", default_value = "none")]
    pub load: Load,
    /// End at the first sample above this, explain it, and exit with status 1.
    #[arg(long, value_name = "DURATION", value_parser = span)]
    pub fail_over: Option<Nanos>,
}

/// `apus probe timer`
#[derive(Args, Debug)]
pub struct Timer {
    /// CPUs to measure on, a thread each: 1, 0-3 or 0,2 [default: the last CPU of this process].
    #[arg(long, value_name = "CPUS")]
    pub cpu: Option<CpuList>,
    /// From one activation to the next, from 10us on.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "1ms")]
    pub interval: Nanos,
    /// How long to measure.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "10s")]
    pub duration: Nanos,
    /// How to wait: clock_nanosleep, timerfd or epoll.
    #[arg(long, value_name = "HOW", default_value = "clock_nanosleep")]
    pub wait: Wait,
    /// Timer slack of the threads; 50us is the kernel's default for the normal class.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "1ns")]
    pub slack: Nanos,
    /// Class, load and threshold.
    #[command(flatten)]
    pub conditions: Conditions,
    /// Where the results go.
    #[command(flatten)]
    pub outputs: Outputs,
}

/// `apus probe jitter`
#[derive(Args, Debug)]
pub struct Jitter {
    /// CPUs to spin on, a thread each: 1, 0-3 or 0,2 [default: the last CPU of this process].
    #[arg(long, value_name = "CPUS")]
    pub cpu: Option<CpuList>,
    /// How long to measure.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "10s")]
    pub duration: Nanos,
    /// Rounds of the loop longer than this are gaps, up to 100us.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "1us")]
    pub gap_over: Nanos,
    /// Gaps longer than this are explained, those with less than 5us between them together.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "10us")]
    pub explain_over: Nanos,
    /// How causes are looked for: auto, trace, counters or none. Tracepoints cost the measured CPU some
    /// hundred nanoseconds for each event.
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub causes: Causes,
    /// Reckon the packets that would have been lost at this rate.
    #[arg(long, value_name = "RATE", help_heading = "Packets")]
    pub rate: Option<PacketRate>,
    /// Descriptors of the ring that they wait in.
    #[arg(long, value_name = "N", default_value_t = 1024, help_heading = "Packets")]
    pub ring: u32,
    /// Packets a second that the reader can take [default: any number].
    #[arg(long, value_name = "RATE", requires = "rate", help_heading = "Packets")]
    pub capacity: Option<PacketRate>,
    /// Class, load and threshold.
    #[command(flatten)]
    pub conditions: Conditions,
    /// Where the results go.
    #[command(flatten)]
    pub outputs: Outputs,
}

/// `apus probe switch`
#[derive(Args, Debug)]
pub struct Switch {
    /// The CPU of one thread [default: the last CPU of this process].
    #[arg(long, value_name = "CPU")]
    pub cpu: Option<usize>,
    /// The CPU of the other; the same one for a context switch [default: both cases, with the first CPU of
    /// this process for different CPUs].
    #[arg(long, value_name = "CPU")]
    pub peer: Option<usize>,
    /// How they wake each other: futex, pipe or eventfd [default: all].
    #[arg(long, value_name = "HOW")]
    pub via: Option<Via>,
    /// For how long a thread spins before it wakes the other: until then the other has blocked.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "20us")]
    pub pause: Nanos,
    /// How long to measure each case.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "1s")]
    pub duration: Nanos,
    /// Class, load and threshold.
    #[command(flatten)]
    pub conditions: Conditions,
    /// Where the results go.
    #[command(flatten)]
    pub outputs: Outputs,
}

/// `apus probe interrupt`
#[derive(Args, Debug)]
pub struct Interrupt {
    /// How the receiver waits: block, spin, busy (kernel busy polling) or suspend (interrupt suspension)
    /// [default: all].
    #[arg(long, value_name = "HOW")]
    pub wait: Option<Wakes>,
    /// The receiver's CPU [default: the last CPU of this process].
    #[arg(long, value_name = "CPU")]
    pub cpu: Option<usize>,
    /// The sender's CPU; the receiver's own for the right one [default: the first CPU of this process, and for
    /// block the receiver's too].
    #[arg(long, value_name = "CPU", conflicts_with = "port")]
    pub sender: Option<usize>,
    /// From one frame to the next.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "350us")]
    pub interval: Nanos,
    /// How long to measure each case.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "2s")]
    pub duration: Nanos,
    /// An interface whose frames come back by themselves (a loopback plug, a reflector) [default: a veth pair].
    #[arg(long, value_name = "IF", help_heading = "Port")]
    pub port: Option<String>,
    /// The receive queue on which they come back.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "port", help_heading = "Port")]
    pub queue: u32,
    /// Its network namespace, as `ip netns list` shows it.
    #[arg(long, value_name = "NAME", requires = "port", help_heading = "Port")]
    pub netns: Option<String>,
    /// Destination MAC address of the frames, or broadcast.
    #[arg(long, value_name = "MAC", value_parser = mac, default_value = "broadcast", requires = "port", help_heading = "Port")]
    pub mac: MacAddress,
    /// Class, load and threshold.
    #[command(flatten)]
    pub conditions: Conditions,
    /// Where the results go.
    #[command(flatten)]
    pub outputs: Outputs,
}

/// `apus probe idle`
#[derive(Args, Debug)]
pub struct Idle {
    /// The CPU that sleeps [default: the last CPU of this process].
    #[arg(long, value_name = "CPU")]
    pub cpu: Option<usize>,
    /// The CPU that wakes it [default: the first CPU of this process].
    #[arg(long, value_name = "CPU")]
    pub peer: Option<usize>,
    /// How one state is had: alone (all others disabled), or pm-qos (the exit latency limited).
    #[arg(long, value_name = "HOW", default_value = "alone")]
    pub how: How,
    /// What wakes it: timer, cpu, frame (over veth) [default: timer,cpu].
    #[arg(long, value_name = "SOURCES", value_delimiter = ',')]
    pub source: Vec<Source>,
    /// For how long it sleeps [default: twice the state's target residency, at least 200us; in a guest that halts
    /// 50us,100us,350us,1ms,10ms].
    #[arg(long, value_name = "DURATIONS", value_delimiter = ',', value_parser = span)]
    pub sleep: Vec<Nanos>,
    /// How long to measure each case.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "1s")]
    pub duration: Nanos,
    /// Run the measuring threads in SCHED_FIFO at this priority, 1 to 99 [default: the normal class].
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u8).range(1..=99))]
    pub priority: Option<u8>,
    /// Where the results go.
    #[command(flatten)]
    pub outputs: Outputs,
}

/// `apus probe frequency`
#[derive(Args, Debug)]
pub struct Frequency {
    /// The CPU that works and is changed [default: the last CPU of this process].
    #[arg(long, value_name = "CPU")]
    pub cpu: Option<usize>,
    /// How frequencies are asked for: governor, limits, hwp (MSR 0x774), or auto.
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub via: Asks,
    /// The frequencies, asked for in turn, such as 800MHz,2.1GHz [default: the lowest and the highest].
    #[arg(long, value_name = "FREQUENCIES", value_delimiter = ',')]
    pub levels: Vec<Hertz>,
    /// How long a unit of work takes at the start.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "10us")]
    pub work: Nanos,
    /// From one request to the next, from 4ms on.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "50ms")]
    pub period: Nanos,
    /// Requests.
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub changes: u32,
    /// Units of work of which the longest makes a point of the figure.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub batch: usize,
    /// Run the work in SCHED_FIFO at this priority, 1 to 99 [default: the normal class].
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u8).range(1..=99))]
    pub priority: Option<u8>,
    /// Where the results go.
    #[command(flatten)]
    pub outputs: Outputs,
}

/// `apus probe clock`
#[derive(Args, Debug)]
pub struct Clock {
    /// CPUs whose counters are compared, each with the first [default: all of this process].
    #[arg(long, value_name = "CPUS")]
    pub cpu: Option<CpuList>,
    /// From the first comparison of the counters to the second.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "1s")]
    pub duration: Nanos,
    /// Class, load and threshold.
    #[command(flatten)]
    pub conditions: Conditions,
    /// Where the results go.
    #[command(flatten)]
    pub outputs: Outputs,
}

/// `apus probe all`
#[derive(Args, Debug)]
pub struct All {
    /// The CPU that is measured [default: the last CPU of this process].
    #[arg(long, value_name = "CPU")]
    pub cpu: Option<usize>,
    /// Another one, to wake it and to send to it [default: the first CPU of this process].
    #[arg(long, value_name = "CPU")]
    pub peer: Option<usize>,
    /// Run the measuring threads in SCHED_FIFO at this priority, 1 to 99 [default: the normal class].
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u8).range(1..=99))]
    pub priority: Option<u8>,
    /// What the host is given to do meanwhile: none, cpu, memory, network or io (with stress-ng).
    #[arg(long, value_name = "KIND", default_value = "none")]
    pub load: Load,
    /// Rounds: each is one sample of a comparison.
    #[arg(long, value_name = "N", default_value_t = ROUNDS, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// How long each case is measured in a round.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "500ms")]
    pub slice: Nanos,
    /// Print the profile as JSON (schema apus.platform/2).
    #[arg(long, help_heading = "Results")]
    pub json: bool,
    /// Write the profile as JSON to a file.
    #[arg(short, long, value_name = "FILE", help_heading = "Results")]
    pub output: Option<PathBuf>,
    /// Write it as one self-contained HTML file.
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub html: Option<PathBuf>,
}

/// `apus probe compare`
#[derive(Args, Debug)]
pub struct Compare {
    /// A profile of `apus probe all`, or a result of a probe.
    pub a: PathBuf,
    /// Another one.
    pub b: PathBuf,
    /// Print the comparison as JSON (schema apus.probe-compare/1).
    #[arg(long)]
    pub json: bool,
    /// Write it, with both sets, as one self-contained HTML file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// `apus probe import`
#[derive(Args, Debug)]
pub struct Import {
    /// What other tools wrote.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Where the results go.
    #[command(flatten)]
    pub outputs: Outputs,
}

/// `1`, `0-3`, `0,2`: in this order, each once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CpuList(pub Vec<usize>);

impl FromStr for CpuList {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no list of CPUs; write 1, 0-3 or 0,2");
        let mut cpus = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (usize, usize) =
                (first.trim().parse().map_err(|_| wrong())?, last.trim().parse().map_err(|_| wrong())?);
            // More CPUs than Linux can have (CONFIG_NR_CPUS is at most 8192) would be a typing mistake.
            if first > last || last >= 8192 {
                return Err(wrong());
            }
            cpus.extend((first..=last).filter(|cpu| !cpus.contains(cpu)).collect::<Vec<_>>());
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
