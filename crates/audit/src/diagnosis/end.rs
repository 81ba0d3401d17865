//! What was observed at one end of a connection, extracted from the facts of its host.

use std::collections::{BTreeMap, BTreeSet};

use host::Facts;
use host::facts::{CpuSet, Interval, Link, Observed, SchedClass, Task};

/// What was observed at one end of a connection: the input of the causes' judges. `None` means unknown.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct End {
    /// Name of the end for messages: `this host`, a network namespace, or the file of a recording.
    pub name: String,
    /// Length of the observed interval in seconds. All counts are for this interval.
    pub length_s: f64,
    /// Name of the examined interface; empty if no interface carried packets.
    pub interface: String,
    /// Name of the interface's driver.
    pub driver: Option<String>,
    /// Line rate of the interface in bit/s.
    pub speed_bps: Option<f64>,
    /// Number of slots of the receive ring.
    pub rx_slots: Option<u64>,
    /// Number of slots of the transmit ring.
    pub tx_slots: Option<u64>,
    /// Maximum number of slots that the driver accepts for the receive ring.
    pub rx_slots_max: Option<u64>,
    /// Longest time for which interrupt moderation may delay received packets, in us.
    pub rx_hold_us: Option<f64>,
    /// Longest time for which interrupt moderation may delay completions of sent packets, in us.
    pub tx_hold_us: Option<f64>,
    /// Name of the setting from which `rx_hold_us` was taken.
    pub rx_hold_by: String,
    /// Packets that the interface received during the interval.
    pub rx_packets: Option<f64>,
    /// Packets that the interface sent during the interval.
    pub tx_packets: Option<f64>,
    /// Bytes that the interface received during the interval.
    pub rx_bytes: Option<f64>,
    /// Bytes that the interface sent during the interval.
    pub tx_bytes: Option<f64>,
    /// Counters of dropped packets, only those above 0.
    pub drops: Vec<Drops>,
    /// Number of packets of each receive queue, or its CPU load if packets were not counted. Queues without packets are
    /// left out.
    pub queues: Vec<QueueShare>,
    /// Number of receive queues.
    pub queue_count: Option<u32>,
    /// Number of polls of all NAPI instances of the interface during the interval.
    pub polls: Option<f64>,
    /// Supported segmentation offloads that are off (`tx-tcp-segmentation`, `tx-generic-segmentation`).
    pub offloads_off: Vec<String>,
    /// Names of the offloads that are on.
    pub offloads_on: Vec<String>,
    /// CPUs to which receive packet steering (RPS) passes packets. Empty if it is off.
    pub rps_cpus: CpuSet,
    /// Number of packets that receive packet steering (RPS) passed to another CPU during the interval.
    pub rps_packets: Option<f64>,
    /// Sockets that transferred data during the interval.
    pub sockets: Vec<Socket>,
    /// Real-time threads, except the kernel's own, that use at least a tenth of a CPU.
    pub hogs: Vec<Hog>,
    /// Threads that use at least a twentieth of a CPU, the busiest first.
    pub loads: Vec<Load>,
    /// CPUs that serve the interface's queues, according to the affinity of NAPI threads and interrupts. Empty if not
    /// known.
    pub queue_cpus: CpuSet,
    /// Whether NAPI is threaded: kernel threads poll the queues instead of softirqs.
    pub threaded: bool,
    /// Share of the interval for which each CPU was busy, 0 to 1, by CPU number.
    pub busy: BTreeMap<u32, f64>,
    /// Share of the interval for which the hypervisor took each CPU away (steal time), 0 to 1, by CPU number.
    pub steal: BTreeMap<u32, f64>,
    /// The idle state with the longest exit latency, among those that a CPU entered at least 10 times per second: exit
    /// latency in us, name, and entries per second. `None` if there was no such state.
    pub idle_exit: Option<(f64, String, f64)>,
    /// Lowest ratio of actual to maximum frequency, 0 to 1, among the CPUs that were busy for at least half of the
    /// interval.
    pub frequency_share: Option<f64>,
    /// Bandwidth of the NIC's PCI Express link (lanes times transfer rate), divided by the bandwidth that the NIC
    /// supports, 0 to 1.
    pub pcie_share: Option<f64>,
    /// Number of thermal throttling events during the interval.
    pub throttles: Option<f64>,
    /// Delay in us, and share of lost packets (0 to 1), of a `netem` queueing discipline. `None` if there is none.
    pub netem: Option<(f64, f64)>,
    /// A shaping queueing discipline that delayed packets: its kind, its rate in bit/s, and the number of times that it
    /// delayed packets. `None` if there is none.
    pub shaper: Option<(String, Option<f64>, f64)>,
    /// Number of segments that TCP retransmitted, and number of segments that TCP sent in total (Tcp.RetransSegs,
    /// Tcp.OutSegs).
    pub retransmitted: Option<(f64, f64)>,
    /// Number of segments that TCP retransmitted needlessly, because the receiver already had them
    /// (TcpExt.TCPDSACKRecvSegs).
    pub duplicates: Option<f64>,
    /// Messages about what could not be observed, with the reasons.
    pub unknown: Vec<String>,
}

/// A counter of dropped packets, with its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Drops {
    /// Name of the counter, such as `rx_missed_errors`.
    pub counter: String,
    /// Number of packets dropped during the interval.
    pub count: u64,
    /// Whether the packets were dropped in the transmit direction. If false, in the receive direction.
    pub sending: bool,
}

/// One receive queue, with the number of its packets or its CPU load.
#[derive(Clone, PartialEq, Debug)]
pub struct QueueShare {
    /// Name of the queue, such as `rx-0`, or of the queue's interrupt.
    pub queue: String,
    /// Number of packets received. If packets were not counted: CPU time of the queue's interrupt thread, in units of
    /// 0.01 % of a CPU.
    pub amount: f64,
}

/// A real-time thread that uses at least a tenth of a CPU.
#[derive(Clone, PartialEq, Debug)]
pub struct Hog {
    /// Name and identifier of the thread.
    pub name: String,
    /// The CPU on which the thread last ran.
    pub cpu: u32,
    /// CPU time of the thread as a share of one CPU, 0 to 1.
    pub share: f64,
    /// Real-time priority of the thread, 1 to 99.
    pub priority: u32,
}

/// A thread, and the CPU time that it uses.
#[derive(Clone, PartialEq, Debug)]
pub struct Load {
    /// Name and identifier of the thread.
    pub name: String,
    /// CPU time of the thread as a share of one CPU, 0 to 1.
    pub share: f64,
}

/// A socket that transferred data, and the process that owns it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Socket {
    /// Transport protocol: `tcp` or `udp`.
    pub transport: String,
    /// Local port number.
    pub local_port: u16,
    /// Port number at the other end; 0 if the socket is not connected.
    pub remote_port: u16,
    /// Share of the samples in which at least half of the receive buffer was in use, 0 to 1.
    pub half_full: Option<f64>,
    /// Size limit of the receive buffer in bytes.
    pub receive_limit: Option<f64>,
    /// Size limit of the send buffer in bytes.
    pub send_limit: Option<f64>,
    /// Mean number of bytes that were received but not yet read by the application.
    pub rx_queue: f64,
    /// Mean memory, in bytes, of the packets that the socket has sent and whose transmission the driver has not yet
    /// completed.
    pub in_transmission: Option<f64>,
    /// Minimum memory in transmission, in bytes, among the samples with a data packet in transmission. Usually the
    /// memory of one packet.
    pub in_transmission_least: Option<f64>,
    /// Number of packets that the socket dropped during the interval.
    pub drops: f64,
    /// Mean round-trip time in us.
    pub rtt_us: Option<f64>,
    /// Shortest round-trip time in us.
    pub min_rtt_us: Option<f64>,
    /// Number of data segments per second that the socket sent.
    pub segments_s: Option<f64>,
    /// Rate at which data was sent and acknowledged, in bit/s.
    pub sent_bps: Option<f64>,
    /// Rate at which data was received, in bit/s.
    pub received_bps: Option<f64>,
    /// Number of segments that the socket retransmitted during the interval.
    pub retransmitted: Option<f64>,
    /// Number of data segments that the socket sent during the interval.
    pub segments: Option<f64>,
    /// While the socket has data to send: share of the time in which the full receive window stopped it, 0 to 1.
    pub window_limited: Option<f64>,
    /// While the socket has data to send: share of the time in which its full send buffer stopped it, 0 to 1.
    pub sndbuf_limited: Option<f64>,
    /// Share of the interval in which the socket had data to send, 0 to 1.
    pub busy: Option<f64>,
    /// Mean size of the receive window that the other end advertised, in bytes.
    pub send_window: Option<f64>,
    /// The process that owns the socket: name, CPU time of all its threads as a share of one CPU, and the CPUs on which
    /// these threads may run. `None` if unknown.
    pub process: Option<(String, f64, CpuSet)>,
}

/// Substrings of the names of drop counters, both of drivers and of the kernel. `NOT_DROPS` excludes counters of frames
/// that were rejected on purpose.
const DROP_WORDS: [&str; 9] =
    ["missed", "fifo_errors", "over_errors", "no_buf", "nobuf", "out_of_buffer", "drops", "_dropped", "discard"];
const NOT_DROPS: [&str; 3] = ["nohandler", "filter", "xdp_drop"];

impl End {
    pub(super) fn of(name: &str, facts: &Facts, interface: Option<&str>) -> Self {
        let mut end = Self { name: name.to_owned(), ..Self::default() };
        let empty = Interval::default();
        let interval = facts.interval.value().unwrap_or_else(|| {
            end.unknown.push("rates: the counters were read only once; record with `apus snapshot --watch`".into());
            &empty
        });
        end.length_s = interval.length.as_nanos() as f64 / 1e9;
        let observed = facts.observed.value();
        match observed {
            None => end.unknown.push(format!("sockets and polls: {}", reason(&facts.observed))),
            Some(seen) => {
                end.unknown.extend(seen.sockets_unknown.iter().map(|why| format!("sockets: {why}")));
                end.unknown.extend(seen.napis_unknown.iter().map(|why| format!("polls of NAPI instances: {why}")));
            }
        }
        end.processors(facts, interval);
        let tcp = |name: &str| Some(*interval.change.snmp.value()?.get(name)? as f64);
        end.retransmitted = tcp("Tcp.RetransSegs").zip(tcp("Tcp.OutSegs"));
        end.duplicates = tcp("TcpExt.TCPDSACKRecvSegs");
        match busiest(facts, interval, interface) {
            None => end.unknown.push("packets: no interface carried any".into()),
            Some(link) => {
                end.link(facts, link, interval);
                if let Some(seen) = observed {
                    end.napis(facts, link, seen);
                    end.qdiscs(link, seen);
                }
            }
        }
        if let Some(seen) = observed {
            let all = seen.sockets.iter().map(|socket| of_socket(socket, facts, interval, end.length_s));
            end.sockets = all.collect();
        }
        end
    }

    /// Packets received per second.
    pub(super) fn rx_rate(&self) -> Option<f64> {
        Some(self.rx_packets? / self.length_s).filter(|rate| rate.is_finite())
    }

    /// Packets sent per second.
    pub(super) fn tx_rate(&self) -> Option<f64> {
        Some(self.tx_packets? / self.length_s).filter(|rate| rate.is_finite())
    }

    /// Longest time for which moderation may hold a received packet, in us; 0 if unknown.
    pub(super) fn hold_us(&self) -> f64 {
        self.rx_hold_us.unwrap_or(0.0)
    }

    /// TCP connections, the busiest first.
    pub(super) fn tcp(&self) -> impl Iterator<Item = &Socket> {
        self.sockets.iter().filter(|socket| socket.transport == "tcp")
    }

    fn link(&mut self, facts: &Facts, link: &Link, interval: &Interval) {
        self.interface.clone_from(&link.name);
        self.driver = link.driver.value().cloned();
        self.speed_bps = link.speed.get().map(|speed| speed.as_bps() as f64);
        if let Some(rings) = link.rings.value() {
            self.rx_slots = rings.rx.map(u64::from);
            self.tx_slots = rings.tx.map(u64::from);
            self.rx_slots_max = rings.rx_max.map(u64::from);
        }
        // A tap has a single ring, for what the host sends; its size is that of the queue (drivers/net/tun.c,
        // `tun_queue_resize`).
        if self.driver.as_deref() == Some("tun") {
            self.tx_slots = link.tx_queue_len.get().map(u64::from);
        }
        let coalesce = link.coalesce.value().copied().unwrap_or_default();
        if coalesce.adaptive_rx != Some(true) {
            self.rx_hold_us = coalesce.rx_usecs.map(f64::from);
            self.rx_hold_by = format!("ethtool -c {}: rx-usecs", link.name);
        }
        if coalesce.adaptive_tx != Some(true) {
            self.tx_hold_us = coalesce.tx_usecs.map(f64::from);
        }
        self.defer(
            link.gro_flush_timeout_ns.get(),
            link.defer_hard_irqs.get(),
            &format!("/sys/class/net/{}: napi_defer_hard_irqs, gro_flush_timeout", link.name),
        );
        let counts = interval.change.links.get(&link.name);
        let count = |name: &str| counts.and_then(|counts| counts.get(name)).map(|n| *n as f64);
        (self.rx_packets, self.tx_packets) = (count("rx_packets"), count("tx_packets"));
        (self.rx_bytes, self.tx_bytes) = (count("rx_bytes"), count("tx_bytes"));
        self.drops = counts.map(dropped).unwrap_or_default();
        self.offloads(link);
        self.rps_cpus = link
            .rx_queues
            .iter()
            .filter_map(|queue| queue.rps_cpus.value())
            .fold(CpuSet::new(), |all, set| all.union(set));
        self.rps_packets =
            interval.change.softnet.value().map(|rows| rows.values().map(|row| row.received_rps as f64).sum());
        self.threaded = link.threaded.get() == Some(true);
        let queues = link.rx_queues.len() as u32;
        self.queue_count = (queues > 0).then_some(queues);
        if let Some(counts) = counts {
            self.queues = by_queue(counts);
        }
        let irqs = &facts.irqs;
        for queue in link.queue_irqs.iter().filter(|queue| queue.rx) {
            if let Some(cpus) = irqs.irq(queue.irq).and_then(|irq| irq.effective.value()) {
                self.queue_cpus = self.queue_cpus.union(cpus);
            }
        }
        if let Some(device) = link.pci.value().and_then(|address| facts.pci.device(address)) {
            let product = |lanes: Option<u32>, speed: Option<u32>| Some(f64::from(lanes?) * f64::from(speed?));
            let now = product(device.width.get(), device.speed_mts.get());
            let most = product(device.max_width.get(), device.max_speed_mts.get());
            self.pcie_share = now.zip(most).map(|(now, most)| now / most).filter(|share| share.is_finite());
        }
    }

    /// Records the delay of NAPI deferral if it is longer than the receive moderation found so far. NAPI deferral
    /// delays packets only if `defers` is above 0.
    fn defer(&mut self, timeout_ns: Option<u64>, defers: Option<u32>, source: &str) {
        let held = timeout_ns.filter(|_| defers.is_some_and(|defers| defers > 0)).map(|ns| ns as f64 / 1e3);
        if let Some(held) = held.filter(|held| *held > self.hold_us()) {
            self.rx_hold_us = Some(held);
            self.rx_hold_by = source.to_owned();
        }
    }

    fn offloads(&mut self, link: &Link) {
        const BULK: [&str; 2] = ["tx-tcp-segmentation", "tx-generic-segmentation"];
        for name in BULK {
            let Some(feature) = link.features.value().and_then(|features| features.get(name)) else { continue };
            match (feature.on, feature.fixed) {
                (true, _) => self.offloads_on.push(name.into()),
                (false, false) => self.offloads_off.push(name.into()),
                (false, true) => {}
            }
        }
    }

    fn napis(&mut self, facts: &Facts, link: &Link, seen: &Observed) {
        let own: Vec<_> = seen.napis.iter().filter(|napi| napi.interface == link.name).collect();
        if own.iter().any(|napi| napi.packets > 0) {
            self.polls = Some(own.iter().map(|napi| napi.polls as f64).sum());
            let share = |napi: &&host::facts::NapiSeen| QueueShare {
                queue: format!("NAPI instance {}", napi.place),
                amount: napi.packets as f64,
            };
            self.queues = own.iter().map(share).collect();
        }
        for napi in own {
            let source = format!("netlink netdev napi-get, instance {} of {}", napi.place, link.name);
            self.defer(napi.gro_flush_timeout_ns, napi.defer_hard_irqs, &source);
            if let Some(thread) = napi.thread {
                self.threaded = true;
                let task = facts.tasks().find(|task| task.tid == thread);
                if let Some(cpus) = task.and_then(|task| task.affinity.value()) {
                    self.queue_cpus = self.queue_cpus.union(cpus);
                }
            }
        }
    }

    fn qdiscs(&mut self, link: &Link, seen: &Observed) {
        for qdisc in seen.qdiscs.get(&link.name).into_iter().flatten() {
            if qdisc.kind == "netem" {
                let delay = qdisc.netem_delay_ns.unwrap_or(0) as f64 / 1e3;
                self.netem = Some((delay, f64::from(qdisc.netem_loss_ppm.unwrap_or(0)) / 1e6));
            }
            let held = qdisc.overlimits.unwrap_or(0) as f64;
            if matches!(qdisc.kind.as_str(), "tbf" | "htb" | "hfsc" | "cbs" | "taprio" | "cake") && held > 0.0 {
                self.shaper = Some((qdisc.kind.clone(), qdisc.tbf_bps.map(|rate| rate as f64), held));
            }
        }
    }

    fn processors(&mut self, facts: &Facts, interval: &Interval) {
        for (cpu, times) in interval.change.cpu_times.value().into_iter().flatten() {
            let parts = [times.user, times.nice, times.system, times.irq, times.softirq];
            let busy: f64 = parts.iter().map(|time| time.as_nanos() as f64).sum();
            let steal = times.steal.as_nanos() as f64;
            let all = busy + steal + (times.idle.as_nanos() + times.iowait.as_nanos()) as f64;
            if all > 0.0 {
                self.busy.insert(*cpu, busy / all);
                self.steal.insert(*cpu, steal / all);
            }
        }
        let length = self.length_s.max(f64::MIN_POSITIVE);
        for task in facts.tasks() {
            let Some(share) = share(task, interval, length) else { continue };
            let name = format!("{} ({})", task.comm, task.tid);
            if share >= 0.05 {
                self.loads.push(Load { name: name.clone(), share });
            }
            let realtime = matches!(task.class, SchedClass::Fifo | SchedClass::RoundRobin | SchedClass::Deadline);
            // The kernel's own real-time threads serve interrupts and migrate tasks, so they do not disturb packet
            // processing.
            if let (true, false, Some(cpu)) = (realtime && share >= 0.1, task.kernel, task.last_cpu) {
                self.hogs.push(Hog { name, cpu, share, priority: task.rt_priority });
            }
        }
        self.loads.sort_by(|a, b| b.share.total_cmp(&a.share));
        self.hogs.sort_by(|a, b| b.share.total_cmp(&a.share));
        self.idle_exit = idle_exit(facts, interval, length);
        self.frequency_share = frequency(facts, &self.busy);
        let throttles = interval.change.throttles.values().map(|counts| (counts.core + counts.package) as f64);
        self.throttles = (!interval.change.throttles.is_empty()).then(|| throttles.sum());
    }
}

fn reason<T>(fact: &host::Fact<T>) -> String {
    fact.why().map_or_else(String::new, |why| format!("{why} ({})", fact.source()))
}

/// The interface with this name. Without a name, the interface with the most packets, except the loopback interface.
fn busiest<'a>(facts: &'a Facts, interval: &Interval, name: Option<&str>) -> Option<&'a Link> {
    let links = facts.links.value()?;
    if let Some(name) = name {
        return links.iter().find(|link| link.name == name);
    }
    let packets = |link: &&Link| {
        let counts = interval.change.links.get(&link.name);
        let count = |name: &str| counts.and_then(|counts| counts.get(name)).copied().unwrap_or(0);
        count("rx_packets") + count("tx_packets")
    };
    links.iter().filter(|link| link.name != "lo" && packets(link) > 0).max_by_key(packets)
}

/// Counters of dropped packets that are above 0, largest first: the kernel and the driver may both count the same
/// drops.
fn dropped(counts: &BTreeMap<String, u64>) -> Vec<Drops> {
    let is_drop = |name: &str| {
        DROP_WORDS.iter().any(|word| name.contains(word)) && !NOT_DROPS.iter().any(|word| name.contains(word))
    };
    let of =
        |(name, count): (&String, &u64)| Drops { counter: name.clone(), count: *count, sending: name.contains("tx") };
    let mut all: Vec<Drops> = counts.iter().filter(|(name, count)| **count > 0 && is_drop(name)).map(of).collect();
    all.sort_by_key(|drops| std::cmp::Reverse(drops.count));
    all
}

/// Number of packets of each receive queue, from counters such as `ethtool.rx_queue_3_xdp_packets` (veth),
/// `ethtool.rx_queue_3_packets`, `ethtool.rx3_packets` and `ethtool.rx-3.packets`.
fn by_queue(counts: &BTreeMap<String, u64>) -> Vec<QueueShare> {
    let queue = |name: &str| -> Option<u32> {
        let rest = name.strip_prefix("ethtool.")?.strip_prefix("rx")?;
        let rest = rest.trim_start_matches(['_', '-']).trim_start_matches("queue").trim_start_matches(['_', '-']);
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let rest_name = rest[digits..].trim_start_matches(['_', '.', '-']);
        matches!(rest_name, "packets" | "xdp_packets").then(|| rest[..digits].parse().ok())?
    };
    let rows: BTreeMap<u32, u64> = counts.iter().filter_map(|(name, count)| Some((queue(name)?, *count))).collect();
    rows.into_iter().map(|(queue, count)| QueueShare { queue: format!("rx-{queue}"), amount: count as f64 }).collect()
}

fn share(task: &Task, interval: &Interval, length_s: f64) -> Option<f64> {
    let counts = interval.change.tasks.get(&task.tid)?;
    Some((counts.user.as_nanos() + counts.system.as_nanos()) as f64 / 1e9 / length_s)
}

fn idle_exit(facts: &Facts, interval: &Interval, length_s: f64) -> Option<(f64, String, f64)> {
    let mut worst: Option<(f64, String, f64)> = None;
    for cpu in facts.cpus.list.iter() {
        for state in cpu.idle_states.value().into_iter().flatten() {
            let used = interval.change.idle.get(&(cpu.id, state.index)).map_or(0, |counts| counts.usage);
            let rate = used as f64 / length_s;
            let Some(exit) = state.exit_latency.get().map(|latency| latency.as_nanos() as f64 / 1e3) else { continue };
            if rate >= 10.0 && worst.as_ref().is_none_or(|(most, _, _)| exit > *most) {
                worst = Some((exit, state.name.value().cloned().unwrap_or_default(), rate));
            }
        }
    }
    worst
}

/// Lowest ratio of actual to maximum frequency, among the CPUs that were busy for at least half of the interval.
fn frequency(facts: &Facts, busy: &BTreeMap<u32, f64>) -> Option<f64> {
    let busy: BTreeSet<u32> = busy.iter().filter(|(_, share)| **share >= 0.5).map(|(cpu, _)| *cpu).collect();
    let of = |cpu: &host::facts::Cpu| {
        let frequency = &cpu.frequency;
        let (now, most) = (frequency.current.get()?, frequency.hardware_max.get()?);
        Some(now.as_hertz() as f64 / most.as_hertz() as f64)
    };
    facts.cpus.list.iter().filter(|cpu| busy.contains(&cpu.id)).filter_map(of).min_by(f64::total_cmp)
}

fn of_socket(seen: &host::facts::SocketSeen, facts: &Facts, interval: &Interval, length_s: f64) -> Socket {
    let length = length_s.max(f64::MIN_POSITIVE);
    let tcp = seen.tcp.clone().unwrap_or_default();
    let number = |n: Option<u64>| n.map(|n| n as f64);
    let busy = number(tcp.busy_us).filter(|busy| *busy > 0.0);
    let part = |of: Option<u64>| Some((number(of)? / busy?).min(1.0));
    let process = seen.pid.and_then(|pid| {
        let threads: Vec<&Task> = facts.tasks().filter(|task| task.pid == pid).collect();
        let first = threads.first()?;
        let spent = threads.iter().filter_map(|task| share(task, interval, length)).sum();
        let cpus =
            threads.iter().filter_map(|task| task.affinity.value()).fold(CpuSet::new(), |all, set| all.union(set));
        Some((format!("{} ({pid})", first.process), spent, cpus))
    });
    Socket {
        transport: seen.transport.clone(),
        local_port: seen.local_port,
        remote_port: seen.remote_port,
        half_full: seen.rx_half_full_share,
        receive_limit: number(seen.receive_limit_bytes),
        send_limit: number(seen.send_limit_bytes),
        rx_queue: seen.rx_queue_mean_bytes,
        in_transmission: seen.in_transmission_mean_bytes,
        in_transmission_least: number(seen.in_transmission_least_bytes),
        drops: number(seen.drops).unwrap_or(0.0),
        rtt_us: tcp.rtt_mean_us,
        min_rtt_us: number(tcp.min_rtt_us),
        segments_s: number(tcp.data_segments_out).map(|n| n / length),
        sent_bps: number(tcp.bytes_acked).map(|n| n * 8.0 / length),
        received_bps: number(tcp.bytes_received).map(|n| n * 8.0 / length),
        retransmitted: number(tcp.retransmitted),
        segments: number(tcp.data_segments_out),
        window_limited: part(tcp.rwnd_limited_us),
        sndbuf_limited: part(tcp.sndbuf_limited_us),
        busy: busy.map(|busy| busy / 1e6 / length),
        send_window: tcp.send_window_mean_bytes,
        process,
    }
}
