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

use super::energy::Modelled;
use super::values::{FaultText, PortText, deferral, filter, one_of, ring, span};

/// What the program does with each frame.
#[derive(Subcommand, Debug)]
pub enum App {
    /// Discards every frame, to measure what receiving costs.
    Drop {
        /// Ports, waiting mode, workers and results.
        #[command(flatten)]
        common: Common,
    },
    /// Returns every frame to its sender, with the MAC addresses swapped.
    Macswap {
        /// Ports, waiting mode, workers and results.
        #[command(flatten)]
        common: Common,
    },
    /// Forwards every frame between two ports, unchanged, like a wire.
    L2fwd {
        /// Rewrite MAC addresses as DPDK's l2fwd does, instead of leaving frames unchanged.
        #[arg(long)]
        rewrite: bool,
        /// Compute the TCP and UDP checksums that a sender on a veth pair leaves to the hardware.
        #[arg(long)]
        finish_checksums: bool,
        /// Ports, waiting mode, workers and results.
        #[command(flatten)]
        common: Common,
    },
    /// Returns UDP datagrams to their sender; also answers ARP, neighbor discovery and ping.
    UdpEcho {
        /// IP addresses to answer for (comma-separated).
        #[arg(long = "address", value_name = "IP", required = true, value_delimiter = ',')]
        addresses: Vec<IpAddr>,
        /// UDP ports to answer on: any, 7 or 5000-5010.
        #[arg(long, value_name = "PORTS", default_value = "any")]
        udp_ports: UdpPorts,
        /// Drop datagrams with a wrong checksum instead of returning them.
        #[arg(long)]
        verify_checksum: bool,
        /// Ports, waiting mode, workers and results.
        #[command(flatten)]
        common: Common,
    },
    /// Routes IPv4 and IPv6 packets by longest prefix match.
    L3fwd {
        /// TOML file with the routes; docs/run.md describes it.
        #[arg(long, value_name = "FILE")]
        routes: PathBuf,
        /// Ports, waiting mode, workers and results.
        #[command(flatten)]
        common: Common,
    },
}

impl App {
    /// Separates the application from the arguments that all applications share.
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

/// Arguments that all applications have in common.
#[derive(Args, Debug)]
pub struct Common {
    /// Ports to receive from and send to (`drop` only receives): network interfaces, memory ports, capture files or
    /// DPDK ports.
    ///
    /// Network interface: `eth0` (queue 0), `eth0:0-3` or `eth0:0,2`.
    ///
    /// Memory port: `memory:SIZE[,frames=N]`. It delivers the same frame of SIZE bytes (60 to 9000, without the frame
    /// check sequence) N times; without frames=N, it never ends. It needs no privilege.
    ///
    /// Capture file: `pcap:FILE[,out=FILE][,timing=recorded][,repeat]`. With timing=recorded, its frames arrive with
    /// the recorded gaps between them; otherwise as fast as Apus takes them. With repeat, it starts again at the end of
    /// the file. Sent frames are written to the file given by out=; without it, they are discarded.
    ///
    /// DPDK port: `dpdk:DEVICE`, with DPDK's own device options, such as `dpdk:0000:03:00.0` or
    /// `dpdk:net_af_xdp0,iface=eth0`; docs/dpdk.md describes them.
    #[arg(required = true, value_name = "PORT[:QUEUES]")]
    pub ports: Vec<PortText>,

    /// How to wait when no frames arrive.
    #[arg(long, value_parser = modes(), default_value = Mode::ADAPTIVE.name(), help_heading = "Waiting")]
    pub mode: Mode,
    /// Latency goal, from the arrival of a frame until it is sent, such as p99.9=50us [adaptive only; default:
    /// p99=100us].
    #[arg(long, value_name = "GOAL", help_heading = "Waiting")]
    pub goal: Option<Goal>,
    /// Platform profile of this host, written by `apus probe all -o FILE`. With it, `adaptive` knows from the start how
    /// much each way to wait costs [adaptive only; default: learn the costs from the first packets].
    #[arg(long, value_name = "FILE", help_heading = "Waiting")]
    pub platform: Option<PathBuf>,
    /// Longest sleep, from 0 to 10ms [backoff only; default: 100us].
    #[arg(long, value_name = "DURATION", help_heading = "Waiting")]
    pub sleep_max: Option<Nanos>,
    /// Highest packet rate to expect on one queue. A timed sleep of `adaptive` never lasts longer than the receive ring
    /// takes to fill at this rate [adaptive only; default: the rate of 64-byte frames at the port's line rate].
    #[arg(long, value_name = "RATE", help_heading = "Waiting")]
    pub peak_rate: Option<PacketRate>,

    /// Let `adaptive` choose a hold-off: how long the kernel delays frames so that one wake-up serves several (NAPI
    /// deferral of the queues). Apus restores the original deferral at the end. Needs Linux 6.13 or later, and root
    /// [adaptive only; default: keep the interface's setting].
    #[arg(long, conflicts_with_all = ["defer", "busy_poll"], help_heading = "Waiting")]
    pub hold_off: bool,
    /// Let `adaptive` choose how deep the workers' CPUs may idle: a limit of the exit latency of their idle states
    /// (`pm_qos_resume_latency_us`), never beyond the present one. A CPU that leaves its idle state sooner can sleep
    /// under a tighter goal, but draws more power while it sleeps. Apus restores the original limit at the end. Needs
    /// `--cpu`, two idle states besides polling, and root [adaptive only; default: keep the CPU's setting].
    #[arg(long, help_heading = "Waiting")]
    pub limit_idle: bool,

    /// CPUs to use, such as 1,2. One worker is pinned to each CPU [default: one worker, not pinned].
    #[arg(long, value_name = "CPU,…", value_delimiter = ',', help_heading = "Workers")]
    pub cpu: Vec<usize>,
    /// Run the workers under SCHED_FIFO at this priority, 1 to 99 [default: the normal scheduling class].
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u8).range(1..=99), help_heading = "Workers")]
    pub fifo: Option<u8>,
    /// Do not lock the memory of this process into RAM. By default, Apus locks it if any port is a network interface or
    /// a DPDK port.
    #[arg(long, help_heading = "Workers")]
    pub no_lock_memory: bool,

    /// Name of this instance, for `apus top` and `apus bench` [default: APP-PID].
    #[arg(long, help_heading = "Workers")]
    pub name: Option<String>,
    /// Write the telemetry to the folder DIR, which must belong to the user who runs the command. For users other than
    /// root, the default is /dev/shm/apus-UID.
    #[arg(long, value_name = "DIR", default_value = live::telemetry::ROOT, help_heading = "Workers")]
    pub telemetry: PathBuf,

    /// Where to run the XDP program: in the driver, in the kernel's network stack, or wherever it works.
    #[arg(long, value_parser = one_of::<XdpMode>(), default_value_t = XdpMode::Auto, help_heading = "Ports")]
    pub xdp: XdpMode,
    /// Whether the driver receives directly into Apus's memory.
    #[arg(long, value_parser = one_of::<ZeroCopy>(), default_value_t = ZeroCopy::Auto, help_heading = "Ports")]
    pub zero_copy: ZeroCopy,
    /// Number of descriptors in each ring: a power of two from 64 to 1048576 [default: 2048; with `adaptive`, receive
    /// rings of network interfaces have up to 8192, to take twice the goal's latency to fill at the peak rate].
    #[arg(long, value_name = "N", value_parser = ring, help_heading = "Ports")]
    pub ring: Option<u32>,
    /// Let the worker poll the driver (kernel busy polling), at most BUDGET frames at a time. Apus warns if the driver
    /// ignores it [default: off].
    #[arg(long, value_name = "BUDGET", help_heading = "Ports")]
    pub busy_poll: Option<u16>,
    /// Defer the queues' interrupts during the run. COUNT is the kernel's napi_defer_hard_irqs, TIMEOUT its
    /// gro_flush_timeout. With `3,50us`, the COUNT is 3 and the TIMEOUT 50 us: the kernel polls the queue every 50 us
    /// while frames arrive, and enables its interrupt again after 3 polls in a row that found none. Before Linux 6.13,
    /// the setting applies to all queues of the interface [default: keep the interface's setting].
    #[arg(long, value_name = "COUNT,TIMEOUT", value_parser = deferral, help_heading = "Ports")]
    pub defer: Option<NapiDeferral>,
    /// Frames to receive: `all`, `ethertype=0x88b5[,...]` (up to four EtherTypes) or `udp=7[-9]` (destination ports).
    /// The kernel gets all other frames.
    #[arg(long, value_parser = filter, default_value = "all", help_heading = "Ports")]
    pub filter: Filter,
    /// Memory for each frame, in bytes: a power of two from 2048 to 65536. Apus reserves 256 bytes of it, so the
    /// longest frame has BYTES - 256 bytes. If BYTES is more than 4096, network interfaces need Linux 6.6 or newer
    /// [default: the smallest size that fits the largest MTU of the ports, but at least 2048 (4096 if any port is a
    /// DPDK port) and at most 16384].
    #[arg(long, value_name = "BYTES", help_heading = "Ports")]
    pub frame_size: Option<u32>,
    /// Allocate the frame memory from huge pages.
    #[arg(long, help_heading = "Ports")]
    pub huge_pages: bool,
    /// Arguments for DPDK's EAL, separated by spaces, such as "-l 2 --huge-dir /mnt/huge" [DPDK ports only].
    #[arg(long, value_name = "ARGUMENTS", allow_hyphen_values = true, help_heading = "Ports")]
    pub eal: Option<String>,
    /// Maximum number of frames to take from a queue at once, 1 to 64 [DPDK ports only; default: 64].
    #[arg(long, value_name = "FRAMES", value_parser = clap::value_parser!(u16).range(1..=64), help_heading = "Ports")]
    pub burst: Option<u16>,
    /// Network namespace of the ports, as `ip netns list` shows it [default: the current one].
    #[arg(long, value_name = "NAME", help_heading = "Ports")]
    pub netns: Option<String>,

    /// Stop after DURATION [default: run until Ctrl-C].
    #[arg(long, value_name = "DURATION", value_parser = span, help_heading = "Results")]
    pub duration: Option<Nanos>,
    /// Print one JSON document (schema apus.run/2) at the end.
    #[arg(long, help_heading = "Results")]
    pub json: bool,
    /// Record in FILE what the waiting policy observes and decides, for `apus replay`. Needs exactly one worker.
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub record: Option<PathBuf>,
    /// Maximum number of decisions to record, 1 to 10000000. Memory for them is allocated at the start.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = record_limit, requires = "record", help_heading = "Results")]
    pub record_limit: usize,
    /// Write all received and sent frames to the pcap file FILE. With several workers or ports, Apus writes one file
    /// for each port of each worker, named FILE-WORKER-PORT.
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub capture: Option<PathBuf>,
    /// For debugging, write to FILE the last 100,000 operations of each port: receive, send, arm (ask for a wake-up
    /// when a frame arrives) and disarm (cancel that request).
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub trace: Option<PathBuf>,
    /// Inject faults, such as seed=1,rx_drop=100ppm,tx_delay=1%,hold=10,lost_after=1000; docs/run.md lists all faults.
    #[arg(long, value_name = "FAULTS", help_heading = "Results")]
    pub fault: Option<FaultText>,
    /// The machine whose energy to model.
    #[command(flatten)]
    pub modelled: Modelled,
}

/// Parses the number of decisions to record.
fn record_limit(text: &str) -> Result<usize, String> {
    /// So many take some GB of memory.
    const MOST: usize = 10_000_000;
    let number = text.parse().ok().filter(|number| (1..=MOST).contains(number));
    number.ok_or_else(|| format!("expected a whole number from 1 to {MOST}"))
}

/// Parses a waiting mode by its name. The mode has its default settings.
fn modes() -> impl TypedValueParser<Value = Mode> {
    let value = |mode: Mode| {
        PossibleValue::new(mode.name()).help(match mode {
            Mode::Poll => "Polls all the time; uses a whole core",
            Mode::Interrupt => "As soon as a poll finds no frame, blocks until the next interrupt",
            Mode::Backoff { .. } => {
                "Sleeps a little longer after each poll that finds few frames or none (OVS-DPDK's pmd-sleep-max)"
            }
            Mode::Hybrid300 => "After 300 empty polls, blocks until the next interrupt (DPDK's l3fwd-power)",
            Mode::Adaptive(_) => "Picks the cheapest wait that still meets the goal",
        })
    };
    PossibleValuesParser::new(Mode::ALL.map(value)).try_map(|name| Mode::named(&name).ok_or("there is no such mode"))
}
