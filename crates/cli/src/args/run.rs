//! `apus run`: an application, ports, and how to wait.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use host::knob::NapiDeferral;
use live::app::AppConfig;
use live::app::udp_echo::UdpPorts;
use live::device::afxdp::{Filter, XdpMode, ZeroCopy};
use policy::Goal;
use policy::wait::Mode;
use units::{Nanos, PacketRate};

use super::values::{FaultText, PortText, deferral, filter, one_of, span};

/// What is done to each frame.
#[derive(Subcommand, Debug)]
pub enum App {
    /// Discards every frame: to see what receiving costs.
    Drop {
        /// Ports and waiting.
        #[command(flatten)]
        common: Common,
    },
    /// Swaps the MAC addresses and returns every frame: what a tester needs at the other end.
    Macswap {
        /// Ports and waiting.
        #[command(flatten)]
        common: Common,
    },
    /// Forwards between two ports, as a wire does.
    L2fwd {
        /// Rewrite MAC addresses as DPDK's l2fwd does, instead of being a wire.
        #[arg(long)]
        rewrite: bool,
        /// Finish TCP and UDP checksums that a sender on a veth pair left to hardware.
        #[arg(long)]
        finish_checksums: bool,
        /// Ports and waiting.
        #[command(flatten)]
        common: Common,
    },
    /// Answers UDP datagrams with themselves; also ARP, neighbour discovery and ping.
    UdpEcho {
        /// The addresses to answer for.
        #[arg(long = "address", value_name = "IP", required = true, value_delimiter = ',')]
        addresses: Vec<IpAddr>,
        /// The UDP ports to answer on: any, 7 or 5000-5010.
        #[arg(long, value_name = "PORTS", default_value = "any")]
        udp_ports: UdpPorts,
        /// Drop datagrams with a wrong checksum, instead of returning them as wrong as they are.
        #[arg(long)]
        verify_checksum: bool,
        /// Ports and waiting.
        #[command(flatten)]
        common: Common,
    },
    /// Routes IPv4 and IPv6 by longest prefix.
    L3fwd {
        /// The file of routes.
        #[arg(long, value_name = "FILE")]
        routes: PathBuf,
        /// Ports and waiting.
        #[command(flatten)]
        common: Common,
    },
}

impl App {
    /// The application, and what is common to all.
    pub fn into_parts(self) -> (AppConfig, Common) {
        match self {
            Self::Drop { common } => (AppConfig::Drop, common),
            Self::Macswap { common } => (AppConfig::MacSwap, common),
            Self::L2fwd { rewrite, finish_checksums, common } => {
                (AppConfig::L2Fwd { rewrite, finish_checksums }, common)
            }
            Self::UdpEcho { addresses, udp_ports, verify_checksum, common } => {
                (AppConfig::UdpEcho { addresses, ports: udp_ports, verify_checksum }, common)
            }
            Self::L3fwd { routes, common } => (AppConfig::L3Fwd { path: routes }, common),
        }
    }
}

/// What is common to all applications.
#[derive(Args, Debug)]
pub struct Common {
    /// eth0 (queue 0), eth0:0-3, eth0:0,2; memory:OCTETS[,frames=N], an endless supply of one frame that
    /// needs no privilege; pcap:FILE, and after it any of ,out=FILE ,timing=recorded ,repeat.
    #[arg(required = true, value_name = "PORT[:QUEUES]")]
    pub ports: Vec<PortText>,

    /// How to wait while no frames come.
    #[arg(long, value_parser = modes(), default_value = Mode::ADAPTIVE.name(), help_heading = "Waiting")]
    pub mode: Mode,
    /// How late frames may be, such as p99.9=50us [adaptive only; default: p99=100us].
    #[arg(long, value_name = "GOAL", help_heading = "Waiting")]
    pub goal: Option<Goal>,
    /// A platform profile of this host (apus probe all -o FILE): what waits cost is then known from the start
    /// [adaptive only; default: learned from the first packets].
    #[arg(long, value_name = "FILE", help_heading = "Waiting")]
    pub platform: Option<PathBuf>,
    /// The longest sleep [backoff only; default: 100us; from 0 to 10ms].
    #[arg(long, value_name = "DURATION", help_heading = "Waiting")]
    pub sleep_max: Option<Nanos>,
    /// The highest rate at which frames may arrive at one queue: no wait of adaptive is longer than the
    /// ring lasts then [default: 64-octet frames at the port's line rate].
    #[arg(long, value_name = "RATE", help_heading = "Waiting")]
    pub peak_rate: Option<PacketRate>,

    /// CPUs, with one pinned worker each, such as 1,2 [default: one worker, not pinned].
    #[arg(long, value_name = "CPU,…", value_delimiter = ',', help_heading = "Workers")]
    pub cpu: Vec<usize>,
    /// Run the workers in SCHED_FIFO at this priority, 1 to 99.
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u8).range(1..=99), help_heading = "Workers")]
    pub fifo: Option<u8>,
    /// Do not keep the process's memory in RAM. Ports of memory and pcap only never do.
    #[arg(long, help_heading = "Workers")]
    pub no_lock_memory: bool,

    /// The name under which `apus top` and `apus bench` find it [default: APP-PID].
    #[arg(long, help_heading = "Workers")]
    pub name: Option<String>,
    /// Directory for the telemetry; must belong to the user who runs this. By default, users other than root
    /// have /dev/shm/apus-UID.
    #[arg(long, value_name = "DIR", default_value = live::telemetry::ROOT, help_heading = "Workers")]
    pub telemetry: PathBuf,

    /// Where the XDP program runs: in the driver, in the kernel's stack, or whichever works.
    #[arg(long, value_parser = one_of::<XdpMode>(), default_value_t = XdpMode::Auto, help_heading = "Ports")]
    pub xdp: XdpMode,
    /// Whether the driver receives straight into our memory.
    #[arg(long, value_parser = one_of::<ZeroCopy>(), default_value_t = ZeroCopy::Auto, help_heading = "Ports")]
    pub zero_copy: ZeroCopy,
    /// Descriptors of each ring, a power of two.
    #[arg(long, value_name = "N", default_value_t = 2048, help_heading = "Ports")]
    pub ring: u32,
    /// Poll the driver from the worker, so many frames at a time. Whether that has an effect is checked.
    #[arg(long, value_name = "BUDGET", help_heading = "Ports")]
    pub busy_poll: Option<u16>,
    /// Defer the queues' interrupts while we run: empty polls, and the time until the next poll, such as
    /// 2,200us.
    #[arg(long, value_name = "COUNT,TIMEOUT", value_parser = deferral, help_heading = "Ports")]
    pub defer: Option<NapiDeferral>,
    /// Which frames are ours, the kernel getting the others: all, ethertype=0x88b5[,…], udp=7[-9].
    #[arg(long, value_parser = filter, default_value = "all", help_heading = "Ports")]
    pub filter: Filter,
    /// Octets of memory for each frame, a power of two from 2048 to a page.
    #[arg(long, value_name = "OCTETS", default_value_t = 2048, help_heading = "Ports")]
    pub frame_size: u32,
    /// Take the frames' memory from huge pages.
    #[arg(long, help_heading = "Ports")]
    pub huge_pages: bool,
    /// The network namespace of the ports, as `ip netns list` shows it.
    #[arg(long, value_name = "NAME", help_heading = "Ports")]
    pub netns: Option<String>,

    /// End after this time [default: at Ctrl-C].
    #[arg(long, value_name = "DURATION", value_parser = span, help_heading = "Results")]
    pub duration: Option<Nanos>,
    /// Print one JSON document (schema apus.run/2) at the end.
    #[arg(long, help_heading = "Results")]
    pub json: bool,
    /// Record what the wait policy saw and decided, for `apus replay`. One worker only.
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub record: Option<PathBuf>,
    /// Decisions to record; memory for them is taken at the start.
    #[arg(long, value_name = "N", default_value_t = 100_000, requires = "record", help_heading = "Results")]
    pub record_limit: usize,
    /// Write all frames to a pcap file, received and sent. Several devices: FILE-WORKER-PORT each.
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub capture: Option<PathBuf>,
    /// Write the last 100,000 calls of each device to a file.
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub trace: Option<PathBuf>,
    /// Let things go wrong: seed=1,rx_drop=100ppm,tx_delay=1%,hold=10,lost_after=1000 and others.
    #[arg(long, value_name = "FAULTS", help_heading = "Results")]
    pub fault: Option<FaultText>,
}

/// The modes by their names, with their default settings.
fn modes() -> impl TypedValueParser<Value = Mode> {
    let value = |mode: Mode| {
        PossibleValue::new(mode.name()).help(match mode {
            Mode::Poll => "Never waits: a whole core",
            Mode::Interrupt => "Blocks at each empty poll",
            Mode::Backoff { .. } => "Sleeps longer and longer (OVS-DPDK's pmd-sleep-max)",
            Mode::Hybrid300 => "Interrupts after 300 empty polls (DPDK's l3fwd-power)",
            Mode::Adaptive(_) => "The cheapest wait that holds the goal",
        })
    };
    PossibleValuesParser::new(Mode::ALL.map(value)).try_map(|name| Mode::named(&name).ok_or("no such mode"))
}
