//! Converts the arguments of `apus run` into the configuration of an instance. Arguments that contradict each other are
//! reported here.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use host::knob::NapiDeferral;
use live::app::AppConfig;
use live::device::afxdp::{Filter, InterfaceConfig, RingSizes, SocketConfig, XdpMode, ZeroCopy};
use live::device::pcap::PcapPlay;
use live::instance::InstanceConfig;
use live::os::{self, InterfaceFacts, Scheduling};
use live::pool::{HEADROOM, LARGEST_SLOT, PoolConfig, slot_for};
use live::port::{MemoryConfig, PortConfig, Wrappers, captures, clock_to_realtime};
use policy::wait::{AdaptiveConfig, Backoff, DEFAULT_GOAL, Mode};
use tester::frame::{Encapsulation, FrameSize, Layout, Template};
use units::{Instant, Nanos};

use super::{dpdk, platform};
use crate::Failure;
use crate::args::energy::Modelled;
use crate::args::run::{App, Common};
use crate::args::values::PortText;
use crate::commands::output;
use crate::documents::run::{Config, Deferral, Place};

/// Number of calls of each device that `--trace` keeps.
const TRACED_CALLS: usize = 100_000;
/// Without `--ring`, the receive rings should take this many times the goal's latency to fill. The longest sleep takes
/// up to the goal's latency, and it may end late.
const LASTING: u64 = 2;
/// The largest slot size in bytes that is chosen automatically. It holds the jumbo frames of Ethernet cards; the
/// loopback interface's frames of 64 KiB would take four times the memory.
const LARGEST_CHOSEN: u32 = 16_384;

/// Everything that a run needs.
pub struct Meaning {
    pub instance: InstanceConfig,
    /// The options, in the form of the JSON document.
    pub config: Config,
    pub netns: Option<String>,
    /// The network interfaces that the run opens with AF_XDP.
    pub interfaces: Vec<String>,
    /// Those of them for which the user stated no queues.
    pub without_queues: Vec<String>,
    /// Whether the user stated the size of a slot.
    frame_size_stated: bool,
    /// Interrupt deferral of the interfaces' NAPI instances. `None` leaves it unchanged.
    pub defer: Option<NapiDeferral>,
    pub duration: Option<Duration>,
    pub json: bool,
    /// The machine whose energy to model.
    pub modelled: Modelled,
    pub record: Option<PathBuf>,
    pub trace: Option<PathBuf>,
    /// Warnings about the options, for the user.
    pub warnings: Vec<String>,
}

impl Meaning {
    /// Makes slots large enough for the longest frames of the interfaces, unless the user stated the slot size. Warns
    /// of each interface whose longest frames do not fit. Must be called in the network namespace of the ports.
    pub fn fit_slots(&mut self) {
        // Ignores interfaces that cannot be opened; opening them later reports the error.
        let facts: Vec<_> =
            self.interfaces.iter().filter_map(|name| Some((name, os::interface_facts(name).ok()?))).collect();
        let needed = facts.iter().map(|(_, facts)| slot_for(facts.longest_frame())).max().unwrap_or(0);
        let slot = &mut self.instance.frame_size;
        if !self.frame_size_stated {
            *slot = needed.min(LARGEST_CHOSEN).max(*slot);
            self.config.frame_size_octets = *slot;
        }
        let holds = slot.saturating_sub(HEADROOM as u32);
        let lost = facts.iter().filter(|(_, facts)| facts.longest_frame() > holds);
        self.warnings.extend(lost.map(|(name, facts)| too_long(name, facts, holds)));
    }
}

fn too_long(name: &str, facts: &InterfaceFacts, holds: u32) -> String {
    let needed = slot_for(facts.longest_frame());
    let lower = format!("lower its MTU to {}", holds - (facts.longest_frame() - facts.mtu));
    let fix = if needed <= LARGEST_SLOT { format!("use --frame-size {needed}, or {lower}") } else { lower };
    format!(
        "{name} has an MTU of {}, but frames of more than {holds} bytes do not fit into --frame-size and are lost; {fix}",
        facts.mtu
    )
}

pub fn of(typed: App) -> Result<Meaning, anyhow::Error> {
    let (app, common) = typed.into_parts();
    let mode = mode(&common)?;
    let platform = match &common.platform {
        Some(path) => Some(platform::read(path, common.fifo)?),
        None => None,
    };
    let workers = workers(&common)?;
    if common.record.is_some() && workers.len() > 1 {
        let why = format!("there are {} workers, but a record file holds the decisions of one", workers.len());
        return Err(Failure::wrong("cannot record the decisions", why, "give one CPU, or omit --record").into());
    }
    let kernel = common.ports.iter().any(|port| matches!(port, PortText::Interface { .. }));
    let dpdk = common.ports.iter().any(|port| matches!(port, PortText::Dpdk { .. }));
    ports(&common, kernel, dpdk)?;
    check_files(&app, &common, workers.len())?;
    // A slot of DPDK also contains its packet header (rte_mbuf).
    let frame_size = match (common.frame_size, dpdk) {
        (Some(size), _) => size,
        (None, true) => dpdk::FRAME_SIZE,
        (None, false) => PoolConfig::default().frame_size,
    };
    let name = common.name.clone().unwrap_or_else(|| format!("{}-{}", app.name(), std::process::id()));
    // In non-promiscuous mode, a NIC discards frames to addresses other than its own.
    let promiscuous = matches!(app, AppConfig::L2Fwd { .. });
    let ports = common.ports.iter().enumerate().map(|(number, port)| self::port(port, number, &common, promiscuous));
    let rings = common.ring.map_or_else(RingSizes::default, |size| RingSizes {
        fill: size,
        rx: size,
        tx: size,
        completion: size,
    });
    let lasting = match mode {
        Mode::Adaptive(config) if common.ring.is_none() => Some(config.goal.unwrap_or(DEFAULT_GOAL).latency * LASTING),
        _ => None,
    };
    let instance = InstanceConfig {
        name: name.clone(),
        ports: ports.collect::<Result<_, _>>()?,
        sockets: SocketConfig {
            rings,
            lasting,
            zero_copy: common.zero_copy,
            need_wakeup: true,
            busy_poll: common.busy_poll,
        },
        mode,
        costs: platform.as_ref().map(|platform| platform.costs),
        peak_rate: common.peak_rate,
        workers: workers.clone(),
        pool_frames: None,
        frame_size,
        huge_pages: common.huge_pages,
        lock_memory: (kernel || dpdk) && !common.no_lock_memory,
        longest_hold_off: None,
        idle_limits: Vec::new(),
        telemetry_root: common.telemetry.clone(),
        record: common.record.as_ref().map(|_| common.record_limit),
        wrappers: Wrappers {
            fault: common.fault.as_ref().map(|fault| fault.plan),
            trace: common.trace.as_ref().map(|_| TRACED_CALLS),
            capture: common.capture.clone(),
        },
        app,
    };
    let config = Config {
        instance: name,
        app: (&instance.app).into(),
        app_options: app_options(&instance.app),
        mode: (&mode).into(),
        goal: mode.goal().map(|goal| goal.to_string()),
        sleep_max_ns: if let Mode::Backoff { max } = mode { Some(max.as_nanos()) } else { None },
        platform: common.platform.as_ref().map(|path| path.display().to_string()),
        workers: workers.iter().map(|place| Place { cpu: place.cpu, fifo: place.fifo }).collect(),
        lock_memory: instance.lock_memory,
        hold_off: common.hold_off,
        limit_idle: common.limit_idle,
        ring_descriptors: rings.rx,
        frame_size_octets: frame_size,
        huge_pages: common.huge_pages,
        busy_poll_frames: common.busy_poll,
        deferral: common.defer.map(|defer| Deferral {
            defer_hard_irqs: defer.defer_hard_irqs,
            gro_flush_timeout_ns: defer.gro_flush_timeout.as_nanos(),
        }),
        filter: filter(&common.filter),
        netns: common.netns.clone(),
        duration_ns: common.duration.map(Nanos::as_nanos),
        fault: common.fault.as_ref().map(ToString::to_string),
    };
    Ok(Meaning {
        instance,
        config,
        netns: common.netns,
        interfaces: common.ports.iter().filter_map(interface).map(|(name, _)| name).collect(),
        without_queues: common
            .ports
            .iter()
            .filter_map(interface)
            .filter(|(_, stated)| !stated)
            .map(|(name, _)| name)
            .collect(),
        frame_size_stated: common.frame_size.is_some(),
        defer: common.defer,
        duration: common.duration.map(|span| Duration::from_nanos(span.as_nanos())),
        json: common.json,
        modelled: common.modelled,
        record: common.record,
        trace: common.trace,
        warnings: platform.map(|platform| platform.warnings).unwrap_or_default(),
    })
}

/// Fails if the ports cannot be used together, or if options apply to none of them.
fn ports(typed: &Common, kernel: bool, dpdk: bool) -> Result<(), Failure> {
    let mut names: Vec<&str> = Vec::new();
    for port in &typed.ports {
        let PortText::Interface { name, .. } = port else { continue };
        if names.contains(&name.as_str()) {
            let why = "it is given twice, but an interface can have only one XDP program".to_owned();
            return Err(Failure::wrong(
                format!("port {name}"),
                why,
                format!("give it once, with its queues: {name}:0,1"),
            ));
        }
        names.push(name);
    }
    let of_interfaces = [
        ("--busy-poll", typed.busy_poll.is_some()),
        ("--defer", typed.defer.is_some()),
        ("--filter", typed.filter != Filter::All),
        ("--hold-off", typed.hold_off),
        ("--xdp", typed.xdp != XdpMode::Auto),
        ("--zero-copy", typed.zero_copy != ZeroCopy::Auto),
    ];
    if let Some((option, _)) = of_interfaces.into_iter().find(|(_, given)| *given && !kernel) {
        let why = "it applies to network interfaces that AF_XDP opens, and no port is one";
        return Err(Failure::wrong(option, why, "omit it"));
    }
    let interfaces = |port: &PortText| matches!(port, PortText::Interface { .. });
    if typed.hold_off && !typed.ports.iter().all(interfaces) {
        let why = "it applies to network interfaces that AF_XDP opens, and a port is none";
        return Err(Failure::wrong("--hold-off", why, "omit it, or run the other ports in another instance"));
    }
    let of_hardware = [
        ("--netns", typed.netns.is_some(), "it applies to network interfaces"),
        ("--no-lock-memory", typed.no_lock_memory, "memory is locked for network interfaces and DPDK ports"),
    ];
    if let Some((option, _, why)) = of_hardware.into_iter().find(|(_, given, _)| *given && !kernel && !dpdk) {
        let why = format!("{why}, but all ports are memory or pcap files");
        return Err(Failure::wrong(option, why, "omit it"));
    }
    let of_dpdk = [("--eal", typed.eal.is_some()), ("--burst", typed.burst.is_some())];
    match of_dpdk.into_iter().find(|(_, given)| *given && !dpdk) {
        Some((option, _)) => Err(Failure::wrong(option, "it applies to dpdk: ports, and no port is one", "omit it")),
        None => Ok(()),
    }
}

/// The name of a network interface, and whether the user stated its queues.
fn interface(port: &PortText) -> Option<(String, bool)> {
    if let PortText::Interface { name, queues } = port { Some((name.clone(), queues.is_some())) } else { None }
}

fn mode(typed: &Common) -> Result<Mode, Failure> {
    let name = format!("--mode {}", typed.mode.name());
    let adaptive = matches!(typed.mode, Mode::Adaptive(_));
    if typed.goal.is_some() && !adaptive {
        let why = "only the mode adaptive has a latency goal".to_owned();
        return Err(Failure::wrong(format!("--goal with {name}"), why, "omit --goal, or use --mode adaptive"));
    }
    if typed.platform.is_some() && !adaptive {
        let why = "only the mode adaptive uses the costs of waits".to_owned();
        return Err(Failure::wrong(format!("--platform with {name}"), why, "omit it, or use --mode adaptive"));
    }
    if typed.sleep_max.is_some() && !matches!(typed.mode, Mode::Backoff { .. }) {
        let why = "only the mode backoff has a longest sleep".to_owned();
        return Err(Failure::wrong(format!("--sleep-max with {name}"), why, "omit it, or use --mode backoff"));
    }
    if typed.peak_rate.is_some() && !adaptive {
        let why = "only the mode adaptive limits its sleeps by the size of the ring".to_owned();
        return Err(Failure::wrong(format!("--peak-rate with {name}"), why, "omit it, or use --mode adaptive"));
    }
    if typed.hold_off && !adaptive {
        let why = "only the mode adaptive chooses a hold-off".to_owned();
        return Err(Failure::wrong(format!("--hold-off with {name}"), why, "omit it, or use --mode adaptive"));
    }
    if typed.limit_idle && !adaptive {
        let why = "only the mode adaptive chooses how deep its CPU may idle".to_owned();
        return Err(Failure::wrong(format!("--limit-idle with {name}"), why, "omit it, or use --mode adaptive"));
    }
    if typed.peak_rate.is_some_and(|rate| rate.as_pps() == 0) {
        let why = "at a rate of 0 the ring never fills, so sleeps would have no limit".to_owned();
        return Err(Failure::wrong("--peak-rate 0pps", why, "give the highest rate, or omit it for line rate"));
    }
    Ok(match typed.mode {
        Mode::Backoff { max } => {
            let max = typed.sleep_max.unwrap_or(max);
            if max > Backoff::LONGEST_MAX {
                let why = format!("{max} is above {}", Backoff::LONGEST_MAX);
                return Err(Failure::wrong("--sleep-max", why, "give a shorter duration"));
            }
            Mode::Backoff { max }
        }
        // The instance fills in the loss bound, because it knows the ports.
        Mode::Adaptive(config) => Mode::Adaptive(AdaptiveConfig { goal: typed.goal, ..config }),
        other => other,
    })
}

fn workers(typed: &Common) -> Result<Vec<Scheduling>, Failure> {
    let mut seen = typed.cpu.clone();
    seen.sort_unstable();
    seen.dedup();
    if seen.len() != typed.cpu.len() {
        let why = "a CPU is given twice, and two busy-looping workers on one CPU starve each other";
        return Err(Failure::wrong("--cpu", why, "give each CPU once"));
    }
    if typed.limit_idle && typed.cpu.is_empty() {
        let why = "it limits how deep the CPU of a worker may idle, and the worker is not pinned to a CPU";
        return Err(Failure::wrong("--limit-idle", why, "add --cpu N, or omit it"));
    }
    let place = |cpu| Scheduling { cpu, fifo: typed.fifo };
    Ok(match typed.cpu.as_slice() {
        [] => vec![place(None)],
        cpus => cpus.iter().map(|cpu| place(Some(*cpu))).collect(),
    })
}

fn port(typed: &PortText, number: usize, common: &Common, promiscuous: bool) -> Result<PortConfig, anyhow::Error> {
    Ok(match typed {
        PortText::Interface { name, queues } => Arc::new(InterfaceConfig {
            name: name.clone(),
            queues: queues.clone().unwrap_or_else(|| vec![0]),
            mode: common.xdp,
            filter: common.filter.clone(),
            promiscuous,
            all_multicast: false,
        }),
        PortText::Memory { octets, frames } => {
            let mac = memory_mac(number);
            Arc::new(MemoryConfig { frame: frame(*octets, mac)?, mac, frames: *frames })
        }
        PortText::Pcap { input, output, timing, repeat } => Arc::new(PcapPlay {
            input: input.clone(),
            timing: *timing,
            repeat: *repeat,
            output: output.clone(),
            clock_to_realtime: clock_to_realtime(),
        }),
        PortText::Dpdk { device } => dpdk::port(device, common)?,
    })
}

/// Fails if a result would be written to a file that the run reads, or two results to one file.
fn check_files(app: &AppConfig, common: &Common, workers: usize) -> Result<(), Failure> {
    let pcap = |port: &PortText| match port {
        PortText::Pcap { input, output, .. } => Some((input.clone(), output.clone())),
        _ => None,
    };
    let mut inputs: Vec<PathBuf> = common.ports.iter().filter_map(pcap).map(|(input, _)| input).collect();
    let mut outputs: Vec<PathBuf> = common.ports.iter().filter_map(pcap).filter_map(|(_, output)| output).collect();
    inputs.extend(common.platform.clone());
    if let AppConfig::L3Fwd { path } = app {
        inputs.push(path.clone());
    }
    outputs.extend([&common.record, &common.trace].into_iter().flatten().cloned());
    if let Some(capture) = &common.capture {
        outputs.extend(captures(capture, workers, common.ports.len()));
    }
    output::are_apart(&outputs, &inputs)
}

/// MAC address of a memory port: locally administered (IEEE 802-2014, 8.4), "apu" and the number of the port.
fn memory_mac(number: usize) -> [u8; 6] {
    [0x02, b'a', b'p', b'u', 0, number as u8]
}

/// The frame of a memory port: a UDP datagram to the echo port, between the test addresses of RFC 2544, C.2.2.
fn frame(octets: u32, mac: [u8; 6]) -> Result<Vec<u8>, tester::Error> {
    let layout = Layout {
        destination: mac,
        source: [0x02, b'a', b'p', b'u', 1, mac[5]],
        encapsulation: Encapsulation::Udp {
            source: [198, 18, 0, 1].into(),
            destination: [198, 18, 0, 2].into(),
            source_port: 49_184,
            destination_port: 7,
        },
        size: FrameSize::from_data(octets)?,
    };
    let template = Template::new(&layout, layout.size, 0)?;
    let mut frame = vec![0; template.data()];
    template.write(&mut frame, 0, Instant::ORIGIN);
    Ok(frame)
}

fn app_options(app: &AppConfig) -> BTreeMap<String, String> {
    let option = |name: &str, value: String| (name.to_owned(), value);
    match app {
        AppConfig::Drop | AppConfig::MacSwap => BTreeMap::new(),
        AppConfig::L2Fwd { rewrite, finish_checksums } => BTreeMap::from([
            option("rewrite", rewrite.to_string()),
            option("finish_checksums", finish_checksums.to_string()),
        ]),
        AppConfig::UdpEcho { addresses, ports, verify_checksum } => BTreeMap::from([
            option("address", addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")),
            option("udp_ports", ports.to_string()),
            option("verify_checksum", verify_checksum.to_string()),
        ]),
        AppConfig::L3Fwd { path } => BTreeMap::from([option("routes", path.display().to_string())]),
    }
}

fn filter(filter: &Filter) -> String {
    match filter {
        Filter::All => "all".to_owned(),
        Filter::EtherTypes(types) => {
            let types: Vec<String> = types.iter().map(|ethertype| format!("{ethertype:#06x}")).collect();
            format!("ethertype={}", types.join(","))
        }
        Filter::UdpPorts { first, last } if first == last => format!("udp={first}"),
        Filter::UdpPorts { first, last } => format!("udp={first}-{last}"),
    }
}
