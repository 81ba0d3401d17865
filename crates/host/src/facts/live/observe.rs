//! Samples sockets, queueing disciplines and NAPI instances of the calling thread's network namespace.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use units::Nanos;

use super::{MAX_FILES, processes};
use crate::facts::{NapiSeen, Observed, QdiscSeen, Root, SocketSeen, TcpSeen};
use crate::nic::{Client, Interface, Napi, Qdisc, SocketState, TcpInfo, Transport};
use crate::watch::{BUCKETS, NapiWatch, bounds};

/// Mean time between two samples. It is much shorter than the conditions that the samples should show (windows and
/// queues that stay full), and much longer than one sample takes (about 100 us with ten connections).
const BETWEEN: Duration = Duration::from_millis(10);
/// Minimum memory in bytes that the kernel charges a socket for a packet with data. For an acknowledgement without
/// data, the kernel charges only 2 bytes (include/net/tcp.h, `skb_set_tcp_pure_ack`).
const LEAST_PACKET: u32 = 256;
/// Maximum number of sockets that are reported; the busiest are kept.
const MAX_SOCKETS: usize = 256;
/// Maximum number of NAPI instances that are watched. One [`NapiWatch`] cannot watch more.
const MAX_NAPIS: usize = 256;
/// Minimum number of packets from which a 99th percentile is computed.
const P99_NEEDS: u64 = 368;

/// Sums over the samples of one socket so far.
struct Followed {
    first: SocketState,
    last: SocketState,
    samples: u32,
    rx_queue: f64,
    half_full: u32,
    in_transmission: f64,
    in_transmission_least: Option<u32>,
    rtt: Mean,
    send_window: Mean,
    receive_window: Mean,
}

#[derive(Default)]
struct Mean {
    sum: f64,
    count: u32,
}

impl Mean {
    fn add(&mut self, value: Option<u32>) {
        if let Some(value) = value {
            self.sum += f64::from(value);
            self.count += 1;
        }
    }

    fn get(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / f64::from(self.count))
    }
}

/// Takes samples for the duration `length`.
pub(crate) fn observe(root: &Root, length: Nanos) -> Observed {
    let mut client = Client::new();
    let links = links(root);
    // Before the clock starts, because loading the watch's programs may take longer than the observation.
    let (napis, watch) = watch(&mut client, &links);
    let start = Instant::now();
    let end = start + Duration::from_nanos(length.as_nanos());
    let mut sockets: HashMap<u64, Followed> = HashMap::new();
    let mut qdiscs: BTreeMap<(usize, usize), (Qdisc, Qdisc, Mean)> = BTreeMap::new();
    let mut seen = Observed::default();
    // Takes at least two samples, even if this thread runs late: a single sample shows no change.
    for pass in 1.. {
        match sample(&mut client) {
            Ok(all) => {
                all.into_iter().for_each(|state| follow(&mut sockets, state));
                seen.samples += 1;
            }
            Err(why) => seen.sockets_unknown = Some(why),
        }
        for (at, link) in links.iter().enumerate() {
            for (n, now) in client.qdiscs(link).unwrap_or_default().into_iter().enumerate() {
                let entry = qdiscs.entry((at, n)).or_insert_with(|| (now.clone(), now.clone(), Mean::default()));
                entry.2.add(now.backlog_bytes);
                entry.1 = now;
            }
        }
        let now = Instant::now();
        if now >= end && pass >= 2 {
            break;
        }
        thread::sleep(pause(pass).min(end.saturating_duration_since(now)));
    }
    seen.length_ns = start.elapsed().as_nanos() as u64;
    if seen.samples > 0 {
        seen.sockets_unknown = None;
    }
    for ((at, _), (first, last, backlog)) in qdiscs {
        // Skips a queueing discipline that was replaced by one of another kind.
        if first.kind == last.kind {
            seen.qdiscs.entry(links[at].name().to_owned()).or_default().push(qdisc(&first, &last, &backlog));
        }
    }
    match watch {
        Ok(watch) => seen.napis = napis.iter().enumerate().filter_map(|(n, napi)| of_napi(&watch, n, napi)).collect(),
        Err(why) => seen.napis_unknown = Some(why),
    }
    seen.sockets = moved(sockets);
    seen
}

/// How long to wait after a sample: 0.5 to 1.5 times [`BETWEEN`], which is the mean. With equal intervals, all samples
/// could meet periodic traffic in the same phase.
fn pause(pass: u32) -> Duration {
    // Multiples of the golden ratio's fraction spread evenly over the range (H. Weyl, "Über die Gleichverteilung von
    // Zahlen mod. Eins", 1916).
    let fraction = (f64::from(pass) * 0.618_033_988_749_895).fract();
    BETWEEN.mul_f64(0.5 + fraction)
}

/// All interfaces except the loopback interface.
fn links(root: &Root) -> Vec<Interface> {
    let names = root.list("sys/class/net").into_value().unwrap_or_default();
    let index = |name: &String| root.number::<u32>(&format!("sys/class/net/{name}/ifindex")).get();
    let names = names.into_iter().filter(|name| name != "lo");
    names.filter_map(|name| Some(Interface::new(name.as_str(), index(&name)?))).collect()
}

/// Name of the interface, index of the NAPI instance on this interface, and the NAPI instance.
type Placed = (String, u32, Napi);

/// Lists the NAPI instances of all interfaces and starts to watch them.
fn watch(client: &mut Client, links: &[Interface]) -> (Vec<Placed>, Result<NapiWatch, String>) {
    let mut all = Vec::new();
    for link in links {
        match client.napis(link) {
            Ok(napis) => all.extend((0..).zip(napis).map(|(place, napi)| (link.name().to_owned(), place, napi))),
            Err(error) => return (Vec::new(), Err(error.to_string())),
        }
    }
    all.truncate(MAX_NAPIS);
    if all.is_empty() {
        return (all, Err("no interface has a NAPI instance".into()));
    }
    let ids: Vec<u32> = all.iter().map(|(_, _, napi)| napi.id).collect();
    (all, NapiWatch::new(&ids).map_err(|error| error.to_string()))
}

fn sample(client: &mut Client) -> Result<Vec<SocketState>, String> {
    let mut all = client.sockets(Transport::Tcp).map_err(|error| error.to_string())?;
    all.extend(client.sockets(Transport::Udp).map_err(|error| error.to_string())?);
    all.retain(|socket| !socket.loopback);
    Ok(all)
}

fn follow(sockets: &mut HashMap<u64, Followed>, now: SocketState) {
    let seen = sockets.entry(now.cookie).or_insert_with(|| Followed {
        first: now,
        last: now,
        samples: 0,
        rx_queue: 0.0,
        half_full: 0,
        in_transmission: 0.0,
        in_transmission_least: None,
        rtt: Mean::default(),
        send_window: Mean::default(),
        receive_window: Mean::default(),
    });
    seen.samples += 1;
    seen.rx_queue += f64::from(now.rx_queue_bytes);
    if let Some(memory) = now.memory {
        seen.half_full += u32::from(memory.received > memory.receive_limit / 2);
        seen.in_transmission += f64::from(memory.in_transmission);
        let inside = Some(memory.in_transmission).filter(|bytes| *bytes >= LEAST_PACKET);
        seen.in_transmission_least = seen.in_transmission_least.into_iter().chain(inside).min();
    }
    let tcp = now.tcp.unwrap_or_default();
    // 0 means that the kernel has not measured the round-trip time yet.
    seen.rtt.add(tcp.rtt_us.filter(|rtt| *rtt > 0));
    seen.send_window.add(tcp.send_window);
    seen.receive_window.add(tcp.receive_window);
    seen.last = now;
}

/// The sockets that transferred, queued or dropped data, and all connected UDP sockets, with their processes.
fn moved(sockets: HashMap<u64, Followed>) -> Vec<SocketSeen> {
    let mut kept: Vec<(u64, Followed)> =
        sockets.into_values().filter(|seen| seen.samples >= 2).map(|seen| (work(&seen), seen)).collect();
    // A connected UDP socket counts as a flow even if none of its datagrams ever waited.
    kept.retain(|(work, seen)| *work > 0 || (seen.last.tcp.is_none() && seen.last.remote_port != 0));
    kept.sort_by_key(|(work, seen)| (std::cmp::Reverse(*work), seen.last.local_port));
    kept.truncate(MAX_SOCKETS);
    let owners = owners(&kept);
    kept.iter().map(|(_, seen)| socket(seen, owners.get(&seen.last.inode).copied())).collect()
}

/// How busy a TCP socket was: the bytes that it transferred plus the bytes that waited in it. A connection with a
/// closed window transfers nothing, but is the most interesting one. UDP sockets have no byte counters, so their queued
/// and dropped data count.
fn work(seen: &Followed) -> u64 {
    let tcp = |info: TcpInfo| info.bytes_acked.unwrap_or(0) + info.bytes_received.unwrap_or(0);
    match (seen.first.tcp, seen.last.tcp) {
        // A listening socket, which has no remote port, reports the queues of its connections.
        (Some(first), Some(last)) => {
            let moved = tcp(last).saturating_sub(tcp(first));
            let waits = u64::from(seen.last.rx_queue_bytes) + u64::from(seen.last.tx_queue_bytes);
            moved + if seen.last.remote_port == 0 { 0 } else { waits }
        }
        _ => {
            let drops = |state: SocketState| state.memory.map_or(0, |memory| u64::from(memory.drops));
            drops(seen.last).saturating_sub(drops(seen.first)) + seen.rx_queue as u64 + seen.in_transmission as u64
        }
    }
}

fn socket(seen: &Followed, pid: Option<u32>) -> SocketSeen {
    let (first, last) = (&seen.first, &seen.last);
    let count = f64::from(seen.samples);
    let memory = |of: fn(&crate::nic::SocketMemory) -> u32| last.memory.as_ref().map(|memory| u64::from(of(memory)));
    SocketSeen {
        transport: last.transport.name().to_owned(),
        local_port: last.local_port,
        remote_port: last.remote_port,
        pid,
        samples: seen.samples,
        rx_queue_mean_bytes: seen.rx_queue / count,
        rx_half_full_share: last.memory.map(|_| f64::from(seen.half_full) / count),
        receive_limit_bytes: memory(|memory| memory.receive_limit),
        send_limit_bytes: memory(|memory| memory.send_limit),
        in_transmission_mean_bytes: last.memory.map(|_| seen.in_transmission / count),
        in_transmission_least_bytes: seen.in_transmission_least.map(u64::from),
        drops: first.memory.zip(last.memory).map(|(a, b)| u64::from(b.drops.wrapping_sub(a.drops))),
        tcp: first.tcp.zip(last.tcp).map(|(a, b)| tcp(seen, &a, &b)),
    }
}

fn tcp(seen: &Followed, first: &TcpInfo, last: &TcpInfo) -> TcpSeen {
    // 32-bit counters wrap.
    let short = |of: fn(&TcpInfo) -> Option<u32>| Some(u64::from(of(last)?.wrapping_sub(of(first)?)));
    let long = |of: fn(&TcpInfo) -> Option<u64>| of(last)?.checked_sub(of(first)?);
    TcpSeen {
        rtt_mean_us: seen.rtt.get(),
        min_rtt_us: last.min_rtt_us.map(u64::from),
        send_mss_bytes: last.send_mss.map(u64::from),
        segments_out: short(|tcp| tcp.segments_out),
        data_segments_out: short(|tcp| tcp.data_segments_out),
        data_segments_in: short(|tcp| tcp.data_segments_in),
        retransmitted: short(|tcp| tcp.total_retrans),
        bytes_acked: long(|tcp| tcp.bytes_acked),
        bytes_received: long(|tcp| tcp.bytes_received),
        busy_us: long(|tcp| tcp.busy_us),
        rwnd_limited_us: long(|tcp| tcp.rwnd_limited_us),
        sndbuf_limited_us: long(|tcp| tcp.sndbuf_limited_us),
        send_window_mean_bytes: seen.send_window.get(),
        receive_window_mean_bytes: seen.receive_window.get(),
    }
}

fn qdisc(first: &Qdisc, last: &Qdisc, backlog: &Mean) -> QdiscSeen {
    let short = |of: fn(&Qdisc) -> Option<u32>| Some(u64::from(of(last)?.wrapping_sub(of(first)?)));
    QdiscSeen {
        kind: last.kind.clone(),
        packets: last.packets.zip(first.packets).and_then(|(now, then)| now.checked_sub(then)),
        drops: short(|qdisc| qdisc.drops),
        overlimits: short(|qdisc| qdisc.overlimits),
        backlog_mean_bytes: backlog.get(),
        netem_delay_ns: last.netem.and_then(|netem| netem.delay_ns),
        netem_loss_ppm: last.netem.map(|netem| netem.loss_ppm),
        tbf_bps: last.tbf_bps,
    }
}

fn of_napi(watch: &NapiWatch, n: usize, (interface, place, napi): &(String, u32, Napi)) -> Option<NapiSeen> {
    let counts = watch.read(n).ok()?;
    let measured: u64 = counts.delays.iter().sum();
    let quantile = |share: u64| {
        let mut before = 0;
        let bucket = (0..BUCKETS).find(|bucket| {
            before += counts.delays[*bucket];
            before * 100 >= measured * share
        })?;
        Some(bounds(bucket).0.as_nanos())
    };
    Some(NapiSeen {
        interface: interface.clone(),
        place: *place,
        irq: napi.irq,
        thread: napi.pid,
        packets: counts.packets,
        polls: counts.polls,
        full_polls: counts.full_polls,
        delay_p50_ns: if measured > 0 { quantile(50) } else { None },
        delay_p99_ns: if measured >= P99_NEEDS { quantile(99) } else { None },
        gro_flush_timeout_ns: napi.settings.gro_flush_timeout_ns,
        defer_hard_irqs: napi.settings.defer_hard_irqs,
    })
}

/// The process that has each socket open, by the socket's inode.
fn owners(kept: &[(u64, Followed)]) -> HashMap<u32, u32> {
    let wanted: HashMap<String, u32> =
        kept.iter().map(|(_, seen)| (format!("socket:[{}]", seen.last.inode), seen.last.inode)).collect();
    let mut found = HashMap::new();
    let mut looked = 0;
    for pid in processes() {
        for entry in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            looked += 1;
            if looked > MAX_FILES || found.len() == wanted.len() {
                return found;
            }
            let target = fs::read_link(entry.path()).ok();
            if let Some(inode) = target.and_then(|target| wanted.get(target.to_str()?).copied()) {
                found.entry(inode).or_insert(pid);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::SocketMemory;

    fn state(received: u32, drops: u32, tcp: Option<TcpInfo>) -> SocketState {
        SocketState {
            transport: if tcp.is_some() { Transport::Tcp } else { Transport::Udp },
            cookie: 7,
            inode: 1,
            local_port: 5001,
            remote_port: 0,
            loopback: false,
            rx_queue_bytes: received,
            tx_queue_bytes: 0,
            memory: Some(SocketMemory { received, receive_limit: 1000, in_transmission: 1000, send_limit: 1, drops }),
            tcp,
        }
    }

    #[test]
    fn an_acknowledgement_is_no_packet_of_data() {
        let mut sockets = HashMap::new();
        for bytes in [0, 2, 804, 802, 1600] {
            let mut now = state(900, 0, None);
            now.memory.as_mut().unwrap().in_transmission = bytes;
            follow(&mut sockets, now);
        }
        assert_eq!(moved(sockets)[0].in_transmission_least_bytes, Some(802));
    }

    #[test]
    fn samples_are_in_every_phase_of_periodic_traffic() {
        let mean = (1..=400).map(pause).sum::<Duration>() / 400;
        assert!(mean.abs_diff(BETWEEN) < BETWEEN / 100, "{mean:?}");
        for period_us in [500, 800, 1_000, 2_500, 5_000, 10_000] {
            let mut now = 0;
            let mut seen = [0; 10];
            for pass in 1..=400 {
                now += pause(pass).as_micros() as u64;
                seen[(now % period_us * 10 / period_us) as usize] += 1;
            }
            assert!(seen.iter().all(|n| (20..60).contains(n)), "{period_us} us: {seen:?}");
        }
    }

    #[test]
    fn samples_become_means_and_differences() {
        let mut sockets = HashMap::new();
        let _ =
            [state(0, u32::MAX, None), state(900, 1, None), state(600, 4, None)].map(|now| follow(&mut sockets, now));
        let all = moved(sockets);
        let [seen] = all.as_slice() else { panic!("{all:?}") };
        assert_eq!((seen.samples, seen.rx_queue_mean_bytes, seen.drops), (3, 500.0, Some(5)));
        assert_eq!(seen.rx_half_full_share, Some(2.0 / 3.0));
        assert_eq!((seen.in_transmission_mean_bytes, seen.in_transmission_least_bytes), (Some(1000.0), Some(1000)));
        assert!(seen.tcp.is_none());
    }

    #[test]
    fn a_connection_that_moved_nothing_is_left_out_unless_data_waits() {
        let info = |bytes| Some(TcpInfo { bytes_acked: Some(bytes), rtt_us: Some(90), ..TcpInfo::default() });
        let mut sockets = HashMap::new();
        let _ = [state(0, 0, info(5)), state(0, 0, info(5))].map(|now| follow(&mut sockets, now));
        assert!(moved(sockets).is_empty());
        // The connection is kept if data waits in it: the receiver's window is closed.
        let mut sockets = HashMap::new();
        let waits = SocketState { remote_port: 9, tx_queue_bytes: 64_000, ..state(0, 0, info(5)) };
        let _ = [waits, waits].map(|now| follow(&mut sockets, now));
        assert_eq!(moved(sockets)[0].tcp.clone().unwrap().bytes_acked, Some(0));
        let mut sockets = HashMap::new();
        let _ = [state(0, 0, info(5)), state(0, 0, info(25))].map(|now| follow(&mut sockets, now));
        let tcp = moved(sockets)[0].tcp.clone().unwrap();
        assert_eq!((tcp.bytes_acked, tcp.rtt_mean_us, tcp.segments_out), (Some(20), Some(90.0), None));
    }
}
