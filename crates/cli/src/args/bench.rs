//! `apus bench`: the tester's port, its traffic, and the device under test.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use host::knob::NapiDeferral;
use live::device::afxdp::{Filter, XdpMode, ZeroCopy};
use policy::Goal;
use tester::frame::{Encapsulation, FrameSize};
use tester::schedule::Schedule;
use units::{Nanos, PacketRate};

use super::values::{deferral, filter, mac, one_of, parts, span};

/// What is measured.
#[derive(Subcommand, Debug)]
pub enum Bench {
    /// How late frames come back at one load, beside the CPU time that it costs the other end.
    ///
    /// Latency counts from the time at which a frame was meant to be sent. Exit status 1: the goal is
    /// missed, or not shown to be held.
    Latency(Latency),
    /// The highest rate without loss, and the latency there; or, with --flood, what comes back at most.
    Load(Load),
}

/// `apus bench latency`
#[derive(Args, Debug)]
pub struct Latency {
    /// Our port, the frames and the other end.
    #[command(flatten)]
    pub bed: Bed,
    /// When frames are due: constant:20kpps, constant:350us, poisson:20kpps, burst:32@1ms[,rate=1Mpps],
    /// slot:500us,frames=4,jitter=20us, pareto:30kpps[,alpha=1.5], ramp:1kpps-100kpps@2s[,gaps=even] or pcap:FILE.
    #[arg(long, value_name = "SCHEDULE", default_value = "constant:350us")]
    pub schedule: Schedule,
    /// How long to send, after the warm-up.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "5s")]
    pub duration: Nanos,
    /// What the latency must hold, such as p99=40us: judged by the samples outside the gaps in which the
    /// host took a spinning loop's CPU.
    #[arg(long, value_name = "GOAL")]
    pub goal: Option<Goal>,
    /// Measure so often; each time makes a result of its own.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,
    /// Write the latencies to a CSV file: lowest value of each bucket in ns, samples, samples outside gaps.
    #[arg(long, value_name = "FILE")]
    pub histogram: Option<PathBuf>,
}

/// `apus bench load`
#[derive(Args, Debug)]
pub struct Load {
    /// Our port, the frames and the other end.
    #[command(flatten)]
    pub bed: Bed,
    /// The lowest rate of interest.
    #[arg(long, value_name = "RATE", default_value = "1kpps")]
    pub min_rate: PacketRate,
    /// The highest rate to try: what this tester can do.
    #[arg(long, value_name = "RATE", default_value = "2Mpps")]
    pub max_rate: PacketRate,
    /// The share of the frames that may be lost: 0, 100ppm, 0.1%.
    #[arg(long, value_name = "SHARE", value_parser = parts, default_value = "0")]
    pub loss: u32,
    /// How close the bounds have to come.
    #[arg(long, value_name = "SHARE", value_parser = parts, default_value = "5%")]
    pub width: u32,
    /// Trials as RFC 2544 wants them: 60 s, no tolerance, to within 0.5 % unless --width says otherwise.
    #[arg(long, conflicts_with = "flood")]
    pub rfc2544: bool,
    /// No search: send as fast as possible, and say what came back.
    #[arg(long)]
    pub flood: bool,
    /// How long a confirming trial, the latency trial or the flood lasts [default: 1s; 60s with --rfc2544].
    #[arg(long, value_name = "DURATION", value_parser = span)]
    pub duration: Option<Nanos>,
}

/// What both have in common.
#[derive(Args, Debug)]
pub struct Bed {
    /// Our interface, the tester's. Frames go out there and come back there.
    #[arg(long, value_name = "IF", help_heading = "Tester's port")]
    pub port: String,
    /// Its queue.
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Tester's port")]
    pub queue: u32,
    /// Its network namespace, as `ip netns list` shows it.
    #[arg(long, value_name = "NAME", help_heading = "Tester's port")]
    pub netns: Option<String>,
    /// The CPU that the tester spins on [default: not pinned].
    #[arg(long, value_name = "CPU", help_heading = "Tester's port")]
    pub cpu: Option<usize>,
    /// Run the tester in SCHED_FIFO at this priority, 1 to 99.
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u8).range(1..=99), help_heading = "Tester's port")]
    pub fifo: Option<u8>,
    /// Defer our queue's interrupts: empty polls, and the time until the next poll, such as 2,200us.
    #[arg(long, value_name = "COUNT,TIMEOUT", value_parser = deferral, help_heading = "Tester's port")]
    pub defer: Option<NapiDeferral>,
    /// Where our XDP program runs.
    #[arg(long, value_parser = one_of::<XdpMode>(), default_value_t = XdpMode::Auto, help_heading = "Tester's port")]
    pub xdp: XdpMode,
    /// Whether the driver receives straight into our memory.
    #[arg(long, value_parser = one_of::<ZeroCopy>(), default_value_t = ZeroCopy::Auto, help_heading = "Tester's port")]
    pub zero_copy: ZeroCopy,
    /// Descriptors of each ring, a power of two.
    #[arg(long, value_name = "N", default_value_t = 2048, help_heading = "Tester's port")]
    pub ring: u32,
    /// Which frames we take from the kernel [default: ethertype=0x88b5; with --udp or a capture all].
    #[arg(long, value_parser = filter, help_heading = "Tester's port")]
    pub filter: Option<Filter>,

    /// Octets of each frame, its check sequence (4) included: 64 to 9004.
    #[arg(long, value_name = "OCTETS", default_value = "64", help_heading = "Frames")]
    pub frame: FrameSize,
    /// Destination MAC address, or broadcast [default: that of dut0 in a lab of `apus lab up pair`].
    #[arg(long, value_name = "MAC", value_parser = mac, default_value = "02:61:70:75:00:01", help_heading = "Frames")]
    pub mac: MacAddress,
    /// Send UDP over IPv4, such as 10.77.0.1:5000-10.77.0.2:7 [default: EtherType 0x88b5].
    #[arg(long, value_name = "SRC:PORT-DST:PORT", help_heading = "Frames")]
    pub udp: Option<UdpText>,
    /// For random schedules.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Frames")]
    pub seed: u64,
    /// Sent first, and left out of the result.
    #[arg(long, value_name = "DURATION", default_value = "100ms", help_heading = "Frames")]
    pub warm_up: Nanos,

    /// The Apus instance at the other end: for its CPU time, and the gaps in which the host took its CPU.
    #[arg(long, value_name = "NAME", help_heading = "Device under test")]
    pub instance: Option<String>,
    /// Where instances leave their telemetry.
    #[arg(long, value_name = "DIR", default_value = live::telemetry::ROOT, help_heading = "Device under test")]
    pub telemetry: PathBuf,
    /// The process at the other end, for its CPU time; with --instance, that of all its threads instead of the workers'.
    #[arg(long, conflicts_with = "tid", help_heading = "Device under test")]
    pub pid: Option<u32>,
    /// The thread at the other end, for its CPU time.
    #[arg(long, conflicts_with = "instance", help_heading = "Device under test")]
    pub tid: Option<u32>,

    /// Print the result as JSON (schema apus.bench/2).
    #[arg(long, help_heading = "Results")]
    pub json: bool,
    /// Write the result as JSON to a file, for `apus report`.
    #[arg(short, long, value_name = "FILE", help_heading = "Results")]
    pub output: Option<PathBuf>,
}

/// Six octets; clap would take the bare array for something else.
pub type MacAddress = [u8; 6];

/// `10.77.0.1:5000-10.77.0.2:7`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpText {
    source: SocketAddrV4,
    destination: SocketAddrV4,
}

impl FromStr for UdpText {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = "expected SRC:PORT-DST:PORT such as 10.77.0.1:5000-10.77.0.2:7";
        let (source, destination) = text.split_once('-').ok_or(wrong)?;
        let read = |text: &str| text.parse::<SocketAddrV4>().ok().filter(|a| a.port() > 0 && usable(*a.ip()));
        Ok(Self { source: read(source).ok_or(wrong)?, destination: read(destination).ok_or(wrong)? })
    }
}

fn usable(address: Ipv4Addr) -> bool {
    !address.is_unspecified()
}

impl From<UdpText> for Encapsulation {
    fn from(text: UdpText) -> Self {
        Self::Udp {
            source: *text.source.ip(),
            destination: *text.destination.ip(),
            source_port: text.source.port(),
            destination_port: text.destination.port(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn udp() {
        let text: UdpText = "10.77.0.1:5000-10.77.0.2:7".parse().unwrap();
        assert!(matches!(text.into(), Encapsulation::Udp { source_port: 5000, destination_port: 7, .. }));
        for text in ["", "10.77.0.1:5000", "10.77.0.1-10.77.0.2", "10.77.0.1:0-10.77.0.2:7", "[::1]:1-[::1]:2"] {
            assert!(text.parse::<UdpText>().is_err(), "{text:?} was taken");
        }
    }
}
