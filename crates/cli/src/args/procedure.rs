//! `apus bench rfc2544`, `mlr`, `soak` and `compare`: ports, frames and goals.

use std::path::PathBuf;

use clap::Args;
use live::device::afxdp::{XdpMode, ZeroCopy};
use tester::flows::Family;
use tester::procedure::{Effort, Test};
use tester::search::mlr::{Goal, Preset};
use tester::sizes::Sizes;
use units::{BitRate, Nanos, PacketRate};

use super::bench::MacAddress;
use super::values::{bit_rate, mac, one_of, parts, rate, ring, span};

/// Arguments of `apus bench rfc2544`.
#[derive(Args, Debug)]
pub struct Rfc2544 {
    /// Tests to run in addition to the throughput test (comma-separated): latency, loss, back-to-back, recovery, reset
    /// [default: all but reset].
    #[arg(long = "test", value_name = "LIST", value_delimiter = ',', value_parser = one_of::<Test>())]
    pub tests: Vec<Test>,
    /// Use short trials, so that each frame size takes seconds instead of hours. The result is marked as not conforming
    /// to RFC 2544. Without --quick, the tests of one frame size take up to 16 min (throughput), 43 min (latency), 12
    /// min (loss), 16 h (back-to-back) and 43 min (recovery). The command says at its start how long it may take.
    #[arg(long)]
    pub quick: bool,
    /// Number of times to search for the throughput at each frame size; `apus bench compare` needs at least 4, and more
    /// for several frame sizes or quantities.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub searches: u32,
    /// Number of times to measure the latency at each frame size (RFC 2544 calls each measurement a stream) [default:
    /// 20; 3 with --quick].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub streams: Option<u32>,
    /// Number of times to search for the longest burst without loss at each frame size [default: 50; 3 with --quick].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub bursts: Option<u32>,
    /// Duration of each trial of the throughput and loss tests [default: 60s; 200ms with --quick].
    #[arg(long, value_name = "DURATION", value_parser = span)]
    pub duration: Option<Nanos>,
    /// Command that resets the device, for --test reset. Apus runs it with `sh -c` during a trial.
    #[arg(long, value_name = "COMMAND")]
    pub reset_command: Option<String>,
    /// Result of an earlier `apus bench rfc2544 -o`, run while the tester's ports were connected directly to each
    /// other. Apus shows its throughput next to that of the device, and says at which frame sizes the tester may be the
    /// limit.
    #[arg(long, value_name = "FILE")]
    pub tester: Option<PathBuf>,
    /// Frame sizes and rates.
    #[command(flatten)]
    pub range: Range,
    /// Ports, frames and results.
    #[command(flatten)]
    pub ports: Ports,
}

/// Arguments of `apus bench mlr`.
#[derive(Args, Debug)]
pub struct Mlr {
    /// Predefined set of goals.
    #[arg(long, value_parser = one_of::<Preset>(), default_value_t = Preset::Csit, conflicts_with = "goals")]
    pub preset: Preset,
    /// Your own goal, instead of the preset, such as `final=1s,sum=21s,loss=0.5%,exceed=50%`. May be given several
    /// times.
    ///
    /// The keys are terms of RFC 9971. `final`: duration of a full-length trial (default: 60s). `sum`: total duration
    /// of the full-length trials that decide on a rate (60s). `loss`: highest loss ratio of a good trial (0). `exceed`:
    /// share of `sum` that trials with a higher loss ratio may take (0). `width`: how close the bounds must be,
    /// relative to the upper bound (0.5%). `initial`: duration of the first, shortest trials (1s).
    #[arg(long = "goal", value_name = "GOAL", value_parser = goal)]
    pub goals: Vec<Goal>,
    /// Duration of the warm-up trial, which sends at the highest rate before each search. Its result does not count.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "1s")]
    pub warm_up: Nanos,
    /// End each search when its trials, without repetitions, have taken this long in total.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "3600s")]
    pub longest: Nanos,
    /// Pause between trials.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "500ms")]
    pub pause: Nanos,
    /// Frame sizes and rates.
    #[command(flatten)]
    pub range: Range,
    /// Ports, frames and results.
    #[command(flatten)]
    pub ports: Ports,
}

/// Arguments of `apus bench compare`.
#[derive(Args, Debug)]
pub struct Compare {
    /// First result, a file written by `apus bench rfc2544 -o`.
    #[arg(value_name = "A")]
    pub a: PathBuf,
    /// Second result, a file of the same kind.
    #[arg(value_name = "B")]
    pub b: PathBuf,
    /// Print the comparison as JSON (schema apus.bench-compare/1).
    #[arg(long)]
    pub json: bool,
    /// Write a report with both results side by side, one self-contained HTML file, to FILE.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Arguments of `apus bench soak`.
#[derive(Args, Debug)]
pub struct Soak {
    /// Rate at which to send, in each direction.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub rate: PacketRate,
    /// Length of the soak.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "1800s")]
    pub duration: Nanos,
    /// Length of a window, at least 100ms. Loss and latency are reported for each window; the last one may be shorter.
    /// Between two windows, the load pauses for about 20 ms, or 70 ms after a loss, and for the time that the tester needs
    /// to evaluate the window: longer with more frames.
    #[arg(long, value_name = "DURATION", value_parser = window, default_value = "10s")]
    pub window: Nanos,
    /// Frame size in bytes, including the 4-byte check sequence, or an IMIX genome (RFC 6985), such as
    /// imix:aaaaaaaddddg [default: 64; 84 with --ip ipv6; 4 more with --vlan].
    #[arg(long, value_name = "BYTES", help_heading = "Frames")]
    pub frame: Option<Sizes>,
    /// Ports, frames and results.
    #[command(flatten)]
    pub ports: Ports,
}

/// The frame sizes and the rates of a search.
#[derive(Args, Debug)]
pub struct Range {
    /// Frame sizes in bytes, including the 4-byte check sequence, or IMIX genomes (RFC 6985), such as
    /// imix:aaaaaaaddddg. Each is measured separately [default: 64,128,256,512,1024,1280,1518; the first is 84 with
    /// --ip ipv6, and 4 more with --vlan, so that the headers fit].
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "Frames")]
    pub frame: Vec<Sizes>,
    /// Lowest rate to try.
    #[arg(long, value_name = "RATE", value_parser = rate, default_value = "1kpps", help_heading = "Search")]
    pub min_rate: PacketRate,
    /// Highest rate to try [default: the line rate (5 Mpps if it is unknown), what the tester can send, or the highest
    /// rate that fits into memory, whichever is the lowest]. A trial needs 12 bytes of memory per frame, and may take
    /// half of the available memory.
    #[arg(long, value_name = "RATE", value_parser = rate, help_heading = "Search")]
    pub max_rate: Option<PacketRate>,
    /// Speed of the line, such as 10Gbps [default: the speed that the driver of the slower port reports].
    #[arg(long, value_name = "SPEED", value_parser = bit_rate, help_heading = "Search")]
    pub line: Option<BitRate>,
}

/// The ports of the tester and the frames that they send.
#[derive(Args, Debug)]
pub struct Ports {
    /// Network interface that sends (the sending port).
    #[arg(long, value_name = "IF", help_heading = "Tester's ports")]
    pub tx: String,
    /// Network interface that receives [default: the sending port].
    #[arg(long, value_name = "IF", help_heading = "Tester's ports")]
    pub rx: Option<String>,
    /// Network namespace of the sending port [default: the current one].
    #[arg(long, value_name = "NAME", help_heading = "Tester's ports")]
    pub tx_netns: Option<String>,
    /// Network namespace of the receiving port [default: that of the sending port].
    #[arg(long, value_name = "NAME", requires = "rx", help_heading = "Tester's ports")]
    pub rx_netns: Option<String>,
    /// Send in both directions at the same time. Rates are per direction.
    #[arg(long, requires = "rx", help_heading = "Tester's ports")]
    pub bidirectional: bool,
    /// Queue to use on both ports.
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Tester's ports")]
    pub queue: u32,
    /// CPU on which the tester busy-loops [default: not pinned].
    #[arg(long, value_name = "CPU", help_heading = "Tester's ports")]
    pub cpu: Option<usize>,
    /// Run the tester under SCHED_FIFO at this priority, 1 to 99 [default: the normal scheduling class].
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u8).range(1..=99), help_heading = "Tester's ports")]
    pub fifo: Option<u8>,
    /// Where to run the tester's XDP program.
    #[arg(long, value_parser = one_of::<XdpMode>(), default_value_t = XdpMode::Auto, help_heading = "Tester's ports")]
    pub xdp: XdpMode,
    /// Whether the driver receives directly into Apus's memory.
    #[arg(long, value_parser = one_of::<ZeroCopy>(), default_value_t = ZeroCopy::Auto, help_heading = "Tester's ports")]
    pub zero_copy: ZeroCopy,
    /// Number of descriptors in each ring: a power of two from 64 to 1048576.
    #[arg(long, value_name = "N", value_parser = ring, default_value_t = 2048, help_heading = "Tester's ports")]
    pub ring: u32,

    /// Destination MAC address of the frames from the sending port, such as the address of a router [default: the
    /// address of the receiving port; with one port, the address of dut0 in a lab created by `apus lab up pair`].
    #[arg(long, value_name = "MAC", value_parser = mac, help_heading = "Frames")]
    pub mac: Option<MacAddress>,
    /// Destination MAC address of the frames from the receiving port, with --bidirectional [default: the address of the
    /// sending port].
    #[arg(long, value_name = "MAC", value_parser = mac, requires = "bidirectional", help_heading = "Frames")]
    pub back_mac: Option<MacAddress>,
    /// Send UDP over IPv4 (198.18.0.0/15) or IPv6 (2001:2::/48), and answer ARP and neighbor discovery for the addresses
    /// of the flows. The ports must have one receive queue each [default: frames of EtherType 0x88b5, without IP].
    #[arg(long, value_parser = one_of::<Family>(), help_heading = "Frames")]
    pub ip: Option<Family>,
    /// Number of flows, up to 64000. Their UDP ports are pseudorandom (RFC 4814).
    #[arg(long, value_name = "N", default_value_t = 1, requires = "ip", value_parser = clap::value_parser!(u32).range(1..=64_000), help_heading = "Frames")]
    pub flows: u32,
    /// VLAN tag of the frames, 1 to 4094 [default: none].
    #[arg(long, value_name = "ID", requires = "ip", value_parser = clap::value_parser!(u16).range(1..=4094), help_heading = "Frames")]
    pub vlan: Option<u16>,
    /// Random seed for the choice of the flows' UDP ports.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Frames")]
    pub seed: u64,

    /// Name by which the result calls the device under test, such as "l2fwd, native".
    #[arg(long, value_name = "NAME", help_heading = "Results")]
    pub device: Option<String>,
    /// Print the result as JSON (schema apus.bench-rfc2544/1, apus.bench-mlr/1 or apus.bench-soak/1).
    #[arg(long, help_heading = "Results")]
    pub json: bool,
    /// Write the result as JSON to FILE. `apus report` and `apus bench compare` read only results of `apus bench
    /// rfc2544`.
    #[arg(short, long, value_name = "FILE", help_heading = "Results")]
    pub output: Option<PathBuf>,
}

impl Rfc2544 {
    /// The durations and repetitions of all tests, according to the options.
    pub fn effort(&self) -> Effort {
        let base = if self.quick { Effort::QUICK } else { Effort::FULL };
        Effort {
            searches: self.searches,
            streams: self.streams.unwrap_or(base.streams),
            bursts: self.bursts.unwrap_or(base.bursts),
            trial: self.duration.unwrap_or(base.trial),
            ..base
        }
    }

    /// The tests to run, including the throughput test.
    pub fn tests(&self) -> Vec<Test> {
        if self.tests.is_empty() {
            return Test::ALL.into_iter().filter(|test| *test != Test::Reset).collect();
        }
        Test::ALL.into_iter().filter(|test| *test == Test::Throughput || self.tests.contains(test)).collect()
    }
}

/// Parses the length of a window. The pause between two windows would take too large a part of a shorter one.
fn window(text: &str) -> Result<Nanos, String> {
    match span(text)? {
        window if window < Nanos::from_millis(100) => Err("expected at least 100ms".into()),
        window => Ok(window),
    }
}

/// Parses a goal in the terms of RFC 9971: `final=1s,sum=21s,loss=0.5%,…`.
fn goal(text: &str) -> Result<Goal, String> {
    let mut goal = Goal::RFC2544;
    let mut given = Vec::new();
    for part in text.split(',') {
        let (key, value) = part.trim().split_once('=').ok_or_else(|| format!("{part:?} is not KEY=VALUE"))?;
        if given.contains(&key) {
            return Err(format!("{key} is given twice"));
        }
        given.push(key);
        match key {
            "final" => goal.final_trial = span(value)?,
            "sum" => goal.duration_sum = span(value)?,
            "initial" => goal.initial_trial = span(value)?,
            "loss" => goal.loss_ratio_ppm = parts(value)?,
            "exceed" => goal.exceed_ratio_ppm = parts(value)?,
            "width" => goal.width_ppm = parts(value)?,
            _ => return Err(format!("there is no {key:?}; expected final, sum, initial, loss, exceed or width")),
        }
    }
    goal.check().map_err(|error| error.to_string())?;
    Ok(goal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals() {
        let parsed = goal("final=1s,sum=21s,loss=0.5%,exceed=50%,initial=1s").unwrap();
        assert_eq!(parsed, Goal::CSIT_PDR);
        for (text, said) in [
            ("final", "KEY=VALUE"),
            ("loss=1%,loss=2%", "twice"),
            ("lost=1%", "expected final"),
            ("exceed=100%", "below 100 %"),
            ("sum=1s", "at least one final trial"),
        ] {
            let error = goal(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
