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

use super::energy::Modelled;
use super::procedure::{Compare, Mlr, Rfc2544, Soak};
use super::values::{deferral, filter, mac, one_of, parts, rate, ring, span, width};

/// What to measure.
#[derive(Subcommand, Debug)]
pub enum Bench {
    /// Measures how long frames take to come back at one load, and the CPU time of the device under test.
    ///
    /// Latency counts from the time at which a frame was due to be sent, so a tester that sends late does not hide
    /// latency. Exit status 1 if no frame came back, if the goal is missed or undecided (see --goal), or after Ctrl-C.
    Latency(Latency),
    /// Searches for the highest rate without loss, and measures the latency at that rate. With --flood, floods the
    /// device under test instead.
    ///
    /// Exit status 1 if no rate passed, if no frame of a flood came back, or after Ctrl-C.
    Load(Load),
    /// Benchmarks a device according to RFC 2544: throughput, latency, frame loss, back-to-back frames, recovery,
    /// reset.
    ///
    /// With the durations and repetitions that the RFC requires, each frame size takes hours. With --quick it takes
    /// seconds, and the result is marked as not conforming to RFC 2544. The result lists every deviation from the RFC.
    /// A trial is repeated, at most twice, if bursts of overdue frames after stalls of the tester explain its losses.
    /// After Ctrl-C, the measurements made so far are kept and marked as incomplete. Exit status 1 if the result is
    /// incomplete, or if no throughput was found for a frame size.
    Rfc2544(Box<Rfc2544>),
    /// Searches for the throughput at several loss goals at once, with MLRsearch (RFC 9971).
    ///
    /// A trial is repeated, at most twice, if bursts of overdue frames after stalls of the tester explain its losses.
    /// Exit status 1 if no throughput was found for a goal, or if the result is incomplete.
    Mlr(Box<Mlr>),
    /// Sends at one rate for a long time, and gives an upper bound on the loss ratio.
    ///
    /// A warning says in how many windows bursts of overdue frames after stalls of the tester explain the losses. Exit
    /// status 1 if a frame was lost or the soak is incomplete.
    Soak(Box<Soak>),
    /// Compares two results of `apus bench rfc2544`, and tells significant differences from noise.
    Compare(Compare),
}

/// Arguments of `apus bench latency`.
#[derive(Args, Debug)]
pub struct Latency {
    /// The tester's port, the frames and the device under test.
    #[command(flatten)]
    pub bed: Bed,
    /// When to send frames, as FORM:VALUES. The forms are constant, poisson, burst, slot, pareto, ramp, phases and
    /// pcap.
    ///
    /// `constant:20kpps` or `constant:350us`: evenly spaced frames, at 20 kpps or one every 350 us.
    ///
    /// `poisson:20kpps`: Poisson arrivals, 20 kpps on average.
    ///
    /// `burst:32@1ms[,rate=1Mpps]`: a burst of 32 frames every 1 ms. The frames of a burst are sent at `rate` or, by
    /// default, all at once.
    ///
    /// `slot:500us,frames=4,jitter=20us`: 4 frames at once in every slot of 500 us. Each slot is delayed by a random
    /// time, up to 20 us.
    ///
    /// `pareto:30kpps[,alpha=1.5]`: 30 kpps on average, in clusters: the gaps are Pareto-distributed with the shape
    /// `alpha` (1.5 by default).
    ///
    /// `ramp:1kpps-100kpps@2s[,gaps=even]`: a rate that rises from 1 to 100 kpps and falls again, once every 2 s.
    /// Arrivals are Poisson or, with `gaps=even`, evenly spaced.
    ///
    /// `phases:2kpps@60s+1kpps@60s`: 2 kpps for 60 s, then 1 kpps.
    ///
    /// `pcap:FILE`: the frames of a capture, with their recorded gaps and sizes.
    #[arg(long, value_name = "SCHEDULE", default_value = "constant:350us")]
    pub schedule: Schedule,
    /// Random seed of the schedule: the same seed gives the same send times.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Frames")]
    pub seed: u64,
    /// Time to send frames, not counting --warm-up.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "5s")]
    pub duration: Nanos,
    /// Latency goal, such as p99=40us [default: none]. Only undisturbed frames count. A frame is disturbed if other
    /// work interrupts the tester (or, with --instance, the instance under test) while the frame is on its way. The
    /// goal is undecided if more than 10 % of the frames were disturbed, or if too few undisturbed frames remain.
    #[arg(long, value_name = "GOAL")]
    pub goal: Option<Goal>,
    /// Number of measurements. Each has its own result.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,
    /// Write a histogram of the latencies as CSV to FILE. Its columns are latency_ns (the lower bound of a bucket),
    /// samples (the number of frames in the bucket) and samples_outside_gaps (how many of them were undisturbed; see
    /// --goal).
    #[arg(long, value_name = "FILE")]
    pub histogram: Option<PathBuf>,
}

/// Arguments of `apus bench load`.
#[derive(Args, Debug)]
pub struct Load {
    /// The tester's port, the frames and the device under test.
    #[command(flatten)]
    pub bed: Bed,
    /// Lowest rate to try.
    #[arg(long, value_name = "RATE", value_parser = rate, default_value = "1kpps", conflicts_with = "flood")]
    pub min_rate: PacketRate,
    /// Highest rate to try; set it to what this tester can send. A trial needs 12 bytes of memory per frame, and may take
    /// half of the available memory [default: 2Mpps, or the highest rate that fits into memory].
    #[arg(long, value_name = "RATE", value_parser = rate, conflicts_with = "flood")]
    pub max_rate: Option<PacketRate>,
    /// Share of frames that may be lost, such as 0, 100ppm or 0.1%.
    #[arg(long, value_name = "SHARE", value_parser = parts, default_value = "0", conflicts_with = "flood")]
    pub loss: u32,
    /// End the search when the highest rate that passed and the lowest rate that failed differ by at most this share,
    /// such as 100ppm or 5% [default: 5%; 0.5% with --rfc2544].
    #[arg(long, value_name = "SHARE", value_parser = width, conflicts_with = "flood")]
    pub width: Option<u32>,
    /// Follow RFC 2544: trials of 60 s, and a --width of 0.5 % unless you set another one. RFC 2544 also requires
    /// --loss 0, the default.
    #[arg(long, conflicts_with = "flood")]
    pub rfc2544: bool,
    /// Do not search: send as fast as possible, and report how many frames come back.
    #[arg(long)]
    pub flood: bool,
    /// Duration of each trial after the search: those that confirm the rate found, and the one that measures the
    /// latency. With --flood, duration of the flood. The trials of the search always take 0.3 s, or 60 s with --rfc2544
    /// [default: 1s; 60s with --rfc2544].
    #[arg(long, value_name = "DURATION", value_parser = span)]
    pub duration: Option<Nanos>,
}

/// Arguments that `bench latency` and `bench load` share.
#[derive(Args, Debug)]
pub struct Bed {
    /// Network interface of the tester. Frames leave and return through it.
    #[arg(long, value_name = "IF", help_heading = "Tester's port")]
    pub port: String,
    /// Queue of the interface.
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Tester's port")]
    pub queue: u32,
    /// Network namespace of the interface, as `ip netns list` shows it [default: the current one].
    #[arg(long, value_name = "NAME", help_heading = "Tester's port")]
    pub netns: Option<String>,
    /// CPU on which the tester busy-loops [default: not pinned].
    #[arg(long, value_name = "CPU", help_heading = "Tester's port")]
    pub cpu: Option<usize>,
    /// Run the tester under SCHED_FIFO at this priority, 1 to 99 [default: the normal scheduling class].
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u8).range(1..=99), help_heading = "Tester's port")]
    pub fifo: Option<u8>,
    /// Defer the queue's interrupts (the kernel's napi_defer_hard_irqs=COUNT and gro_flush_timeout=TIMEOUT). With
    /// `3,50us`, the COUNT is 3 and the TIMEOUT 50 us: the kernel polls the queue every 50 us while frames arrive, and
    /// enables its interrupt again after 3 polls in a row that found none. Before Linux 6.13, the setting applies to
    /// all queues of the interface [default: keep the interface's setting].
    #[arg(long, value_name = "COUNT,TIMEOUT", value_parser = deferral, help_heading = "Tester's port")]
    pub defer: Option<NapiDeferral>,
    /// Where to run the tester's XDP program.
    #[arg(long, value_parser = one_of::<XdpMode>(), default_value_t = XdpMode::Auto, help_heading = "Tester's port")]
    pub xdp: XdpMode,
    /// Whether the driver receives directly into Apus's memory.
    #[arg(long, value_parser = one_of::<ZeroCopy>(), default_value_t = ZeroCopy::Auto, help_heading = "Tester's port")]
    pub zero_copy: ZeroCopy,
    /// Number of descriptors in each ring: a power of two from 64 to 1048576.
    #[arg(long, value_name = "N", value_parser = ring, default_value_t = 2048, help_heading = "Tester's port")]
    pub ring: u32,
    /// Frames that the tester receives: `all`, `ethertype=0x88b5[,...]` (up to four EtherTypes) or `udp=7[-9]`
    /// (destination ports). The kernel gets all other frames [default: ethertype=0x88b5; with --udp, or with a pcap
    /// schedule in `apus bench latency`, all].
    #[arg(long, value_parser = filter, help_heading = "Tester's port")]
    pub filter: Option<Filter>,

    /// Size of each frame in bytes, including the 4-byte check sequence: 64 to 9004.
    #[arg(long, value_name = "BYTES", default_value = "64", help_heading = "Frames")]
    pub frame: FrameSize,
    /// Destination MAC address, or `broadcast`. The default is the address of dut0 in a lab created by `apus lab up
    /// pair`.
    #[arg(long, value_name = "MAC", value_parser = mac, default_value = "02:61:70:75:00:01", help_heading = "Frames")]
    pub mac: MacAddress,
    /// Send UDP over IPv4 from SRC:PORT to DST:PORT, such as 10.77.0.1:5000-10.77.0.2:7 [default: send frames of
    /// EtherType 0x88b5, without IP].
    #[arg(long, value_name = "SRC:PORT-DST:PORT", help_heading = "Frames")]
    pub udp: Option<UdpText>,
    /// Time to send frames before the measurement. In the summary and in the search, these frames do not count as sent,
    /// lost or late; the frame counts in JSON include them [default: 100ms; with a pcap schedule, none, because the
    /// frames of the warm-up are the first ones of the capture].
    #[arg(long, value_name = "DURATION", help_heading = "Frames")]
    pub warm_up: Option<Nanos>,

    /// Name of the Apus instance under test (`apus run --name`). The tester reports the CPU time of this instance's
    /// workers. It reports separately the latencies of frames that were delayed by other work on the workers' CPUs.
    #[arg(long, value_name = "NAME", help_heading = "Device under test")]
    pub instance: Option<String>,
    /// Folder with the telemetry of the instance under test.
    #[arg(long, value_name = "DIR", default_value = live::telemetry::ROOT, help_heading = "Device under test")]
    pub telemetry: PathBuf,
    /// Process under test: report the CPU time of all its threads. May be combined with --instance, which by itself
    /// reports only the CPU time of the workers.
    #[arg(long, conflicts_with = "tid", help_heading = "Device under test")]
    pub pid: Option<u32>,
    /// Thread under test: report its CPU time.
    #[arg(long, conflicts_with = "instance", help_heading = "Device under test")]
    pub tid: Option<u32>,

    /// Print the result as JSON (schema apus.bench/2).
    #[arg(long, help_heading = "Results")]
    pub json: bool,
    /// Write the result as JSON to FILE, for `apus report`.
    #[arg(short, long, value_name = "FILE", help_heading = "Results")]
    pub output: Option<PathBuf>,
    /// The machine whose energy to model.
    #[command(flatten)]
    pub modelled: Modelled,
}

impl Bed {
    /// The warm-up time of trials with the schedule.
    pub fn warm_up(&self, schedule: &Schedule) -> Nanos {
        let usual = if matches!(schedule, Schedule::Pcap(_)) { Nanos::ZERO } else { Nanos::from_millis(100) };
        self.warm_up.unwrap_or(usual)
    }
}

/// The six bytes of a MAC address. An alias, because clap reads a bare array differently.
pub type MacAddress = [u8; 6];

/// `SRC:PORT-DST:PORT` over IPv4, such as `10.77.0.1:5000-10.77.0.2:7`. Ports must not be 0, and addresses must not be
/// 0.0.0.0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpText {
    source: SocketAddrV4,
    destination: SocketAddrV4,
}

impl FromStr for UdpText {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = "expected SRC:PORT-DST:PORT, such as 10.77.0.1:5000-10.77.0.2:7";
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

    /// The first 100 ms of a capture were the warm-up, whose frames do not count.
    #[test]
    fn a_capture_has_no_warm_up_unless_it_is_given() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            latency: Latency,
        }
        let warm_up = |schedule: &str, more: &[&str]| {
            let words = [&["latency", "--port", "a", "--schedule", schedule], more].concat();
            let typed = <Line as clap::Parser>::try_parse_from(words).unwrap().latency;
            typed.bed.warm_up(&typed.schedule)
        };
        assert_eq!(warm_up("poisson:1kpps", &[]), Nanos::from_millis(100));
        assert_eq!(warm_up("pcap:a.pcap", &[]), Nanos::ZERO);
        assert_eq!(warm_up("pcap:a.pcap", &["--warm-up", "5ms"]), Nanos::from_millis(5));
    }
}
