//! Causes between the wire and the network stack, in the receive direction.

use super::super::{Case, Drops, End, Experiment, Hit, PossibleCause, grade};
use super::{bits, factor, percent, time};

pub(super) const CAUSES: &[PossibleCause] = &[
    PossibleCause {
        id: "rx-moderation",
        why: "The NIC or the kernel delays the processing of received packets, so that one interrupt serves several. Each answer \
              can be late by this time, and TCP gets at most one window of data through in it.",
        reference: "Documentation/networking/napi.rst; ixl(4); DIM slides (Gospodarek)",
        judge: rx_moderation,
    },
    PossibleCause {
        id: "fifo",
        why: "A real-time thread on the CPU of a queue preempts the thread that polls the queue, so packets wait until the real-time \
              thread sleeps.",
        reference: "sched(7); Documentation/networking/napi.rst, threaded NAPI",
        judge: fifo,
    },
    PossibleCause {
        id: "one-queue",
        why: "One CPU serves each queue. Flows that all arrive on the same queue wait for each other, and cannot use the other \
              CPUs.",
        reference: "Documentation/networking/scaling.rst, RSS",
        judge: one_queue,
    },
    PossibleCause {
        id: "ring",
        why: "Packets that arrive while the ring is full are dropped. A ring of N slots fills in N / rate when its reader stops, so \
              it cannot hold a burst of more than N packets.",
        reference: "ethtool(8), -g; drivers/net/tun.c",
        judge: ring,
    },
    PossibleCause {
        id: "rps",
        why: "Receive packet steering (RPS) passes packets to another CPU with an inter-processor interrupt. If the application \
              runs on a third CPU, each packet moves between CPUs twice.",
        reference: "Documentation/networking/scaling.rst, RPS",
        judge: rps,
    },
];

/// Moderation counts as a cause only if its delay is longer than this, in us. At low rates, the kernel's DIM profiles
/// use 1 to 16 us; the FreeBSD thread accepts 20 to 50 us.
const HARMLESS_HOLD_US: f64 = 50.0;

fn rx_moderation(case: &Case) -> Option<Hit> {
    case.worst(|end, peer| {
        let hold = end.rx_hold_us.filter(|hold| *hold > HARMLESS_HOLD_US)?;
        // The number of polls shows that the timer is in force if it is not much higher than one per timer period and
        // queue.
        let queues = f64::from(end.queue_count.unwrap_or(1));
        let polls = end.polls.map(|polls| polls / end.length_s);
        let paced = polls.map(|rate| (10.0..=2.0 * queues * 1e6 / hold).contains(&rate));
        // But few polls may also have come from few packets: then each poll finds about one.
        let batched = end.rx_packets.zip(end.polls).is_some_and(|(packets, polls)| packets > 1.5 * polls);
        let by_timer = paced.filter(|paced| !paced || batched);
        let rtt = end.tcp().chain(peer.into_iter().flat_map(|peer| peer.tcp())).filter_map(|tcp| tcp.rtt_us).reduce(f64::max);
        let ping = case.symptom.ping_ns.map(|ns| ns as f64 / 1e3);
        let late = case.symptom.excess_us().or(ping).or(rtt);
        let likelihood = 95.0
            * grade(hold, HARMLESS_HOLD_US, 2.0 * HARMLESS_HOLD_US)
            * match late.map(|late| late.max(1.0)) {
                // A round trip may contain several such delays; one of them is at least a quarter of it. Polls at the
                // timer's pace are equally good evidence: then a busy machine causes the rest of the round trip. A
                // round trip that is much shorter than the delay shows that packets do not wait.
                Some(late) => {
                    let part = grade(hold / late, 0.05, 0.25).max(if by_timer == Some(true) { 0.75 } else { 0.0 });
                    part * grade(late / hold, 0.1, 0.4)
                }
                None if by_timer == Some(true) => 0.7,
                // The setting alone proves nothing.
                None => 0.5,
            }
            * match by_timer {
                Some(false) => 0.5,
                Some(true) => 1.0,
                None => 0.95,
            };
        let likelihood = if case.symptom.is_late() { likelihood } else { likelihood * 0.8 };
        let mut hit = Hit::new(
            likelihood,
            Some(end),
            format!("Received packets wait up to {} before the kernel processes them", time(hold)),
            Experiment::text(format!(
                "switch the moderation of {} off, measure again, and restore it; afterwards, `apus moderate {} --goal p99=100us` \
                 delays packets only as long as the goal allows",
                end.interface, end.interface
            ))
            .with(factor("no receive moderation on", end, match end.rx_hold_by.starts_with("ethtool") {
                true => "coalesce = { rx-usecs = 0 }",
                false => "napi = { defer-hard-irqs = 0, gro-flush-timeout = 0 }",
            })),
        )
        .see(format!("packets may be delayed for {}", time(hold)), end.rx_hold_by.clone());
        if let Some(late) = case.symptom.excess_us() {
            hit = hit.see(
                format!("the round trip takes {} longer than expected; one such delay is {} of that", time(late), percent(hold / late)),
                "the symptom",
            );
        } else if let Some(ping) = ping {
            hit = hit.see(format!("the round trip takes {}", time(ping)), "the symptom");
        } else if let Some(rtt) = rtt {
            hit = hit.see(format!("round trips take {} on average", time(rtt)), "tcp_info, tcpi_rtt");
        }
        if let Some(polls) = polls {
            hit = hit.see(
                format!("the kernel polls {polls:.0} times per second; one poll every {} would be {:.0}", time(hold), 1e6 / hold),
                "tracepoint napi_poll",
            );
        }
        Some(hit)
    })
}

fn fifo(case: &Case) -> Option<Hit> {
    case.worst(|end, _| {
        let hog = end.hogs.iter().find(|hog| end.queue_cpus.contains(hog.cpu))?;
        // Other CPUs of the mask can take over the thread's work. A softirq preempts a real-time thread, unless
        // ksoftirqd runs it.
        let pinned = if end.queue_cpus.len() == 1 { 1.0 } else { 0.7 };
        let reached = if end.threaded { 1.0 } else { 0.65 };
        let hit = Hit::new(
            97.0 * grade(hog.share, 0.1, 0.4) * pinned * reached,
            Some(end),
            format!(
                "A real-time thread uses {} of CPU {}, which serves the queues of {}",
                percent(hog.share),
                hog.cpu,
                end.interface
            ),
            Experiment::text(format!(
                "move {} to a CPU that serves no queue (`taskset -p`), or move the queue to another CPU, and measure again",
                hog.name
            )),
        )
        .see(
            format!("{}, priority {}: {} of a CPU", hog.name, hog.priority, percent(hog.share)),
            "/proc/PID/task/TID/stat",
        )
        .see(format!("the queues are served by CPU {}", end.queue_cpus), "affinity of NAPI threads and interrupts");
        Some(hit)
    })
}

/// Packets per second below which a queue does not keep a CPU busy.
const FEW_PACKETS: f64 = 500.0;

fn one_queue(case: &Case) -> Option<Hit> {
    case.worst(|end, peer| {
        let count = end.queue_count.map_or(end.queues.len(), |count| count as usize).max(end.queues.len());
        let total: f64 = end.queues.iter().map(|queue| queue.amount).sum();
        let top = end.queues.iter().max_by(|a, b| a.amount.total_cmp(&b.amount)).filter(|_| count >= 2 && total > 0.0)?;
        let share = top.amount / total;
        if end.length_s == 0.0 {
            return hot_queue(case, end, &top.queue, top.amount, total);
        }
        let rate = total / end.length_s;
        let connected = |end: &End| end.sockets.iter().filter(|socket| socket.remote_port != 0).count();
        let flows = connected(end).max(peer.map_or(0, connected));
        // The probability that this many flows share one queue by chance.
        let by_chance = (count as f64).powi(1 - flows.max(1) as i32);
        let hit = Hit::new(
            95.0 * grade(share, 0.7, 0.9) * grade(rate, FEW_PACKETS, 2.0 * FEW_PACKETS) * grade(flows as f64, 1.0, 4.0) * (1.0 - by_chance),
            Some(end),
            format!("{} of the packets of {flows} flows arrive on one of the {count} queues of {}", percent(share), end.interface),
            Experiment::text(format!(
                "spread the flows over the queues, and watch the packets of each queue: equal weights in `ethtool -x {}`; \
                 `ethtool -N {} rx-flow-hash udp4 sdfn`; no XPS mask at the sender that selects a single queue",
                end.interface, end.interface
            )),
        )
        .see(format!("{}: {:.0} of {:.0} packets/s", top.queue, top.amount / end.length_s, rate), "packets by queue")
        .see(format!("the probability that {flows} flows all hash to one of {count} queues by chance is {by_chance:.1e}"), "arithmetic");
        Some(hit)
    })
}

/// Judges the queues by the load of their interrupt threads, for a recording that does not count packets per queue.
/// `top` is the load of the busiest thread and `total` that of all, in hundredths of a percent of a CPU.
fn hot_queue(case: &Case, end: &End, queue: &str, top: f64, total: f64) -> Option<Hit> {
    let (busy, others) = (top / 1e4, (total - top) / 1e4);
    let likelihood = 80.0 * grade(busy, 0.25, 0.6) * grade(busy / (busy + others).max(f64::MIN_POSITIVE), 0.5, 0.9);
    let hit = Hit::new(
        if case.symptom.is_slow() { likelihood } else { likelihood * 0.6 },
        Some(end),
        format!(
            "One queue does most of the work: its interrupt thread uses {} of a CPU, all others together use {}",
            percent(busy),
            percent(others)
        ),
        Experiment::text(
            "use several flows (`iperf3 -P 4`) and 4 to 8 queues, and check the load of the interrupt threads again",
        ),
    )
    .see(format!("{queue}: {} of a CPU", percent(busy)), "top -SH");
    Some(match case.symptom.measured_bps {
        Some(rate) => hit.see(
            format!(
                "{} needs {} of a CPU, so one CPU can handle at most {}",
                bits(rate as f64),
                percent(busy),
                bits(rate as f64 / busy)
            ),
            "arithmetic",
        ),
        None => hit,
    })
}

/// Limits for the share of dropped packets. Below the first, drops have no noticeable effect. At the second, they
/// reduce the throughput of TCP: with 0.1 % and a round trip of 1 ms, a connection with segments of 1460 bytes reaches
/// about 450 Mbit/s (Mathis et al. 1997).
const LOST: (f64, f64) = (1e-4, 1e-3);

fn ring(case: &Case) -> Option<Hit> {
    case.worst(|end, _| {
        let drops = end.drops.first()?;
        let (packets, rate, slots) = match drops.sending {
            true => (end.tx_packets?, end.tx_rate()?, end.tx_slots),
            false => (end.rx_packets?, end.rx_rate()?, end.rx_slots),
        };
        let lost = drops.count as f64 / (packets + drops.count as f64);
        let slots_text = slots.map_or("of unknown size".to_owned(), |slots| format!("of {slots} slots"));
        let small = match (slots, end.rx_slots_max.filter(|_| !drops.sending)) {
            (Some(slots), _) if slots <= 256 => 1.0,
            (Some(slots), Some(most)) if slots < most => 0.9,
            _ => 0.7,
        };
        let direction = if drops.sending { "send" } else { "receive" };
        let mut hit = Hit::new(
            98.0 * grade(lost, LOST.0, LOST.1) * small,
            Some(end),
            format!(
                "The {direction} ring of {} overflows: {} of the packets are dropped",
                end.interface,
                percent(lost)
            ),
            enlarge(end, drops),
        )
        .see(
            format!("{} = {} in {:.1} s", drops.counter, drops.count, end.length_s),
            format!("counters of {}", end.interface),
        );
        if let Some(slots) = slots {
            let lasts = slots as f64 / rate.max(1.0) * 1e6;
            let text = format!(
                "a ring {slots_text} fills in {} at the mean rate of {rate:.0} packets/s, and faster in a burst",
                time(lasts)
            );
            hit = hit.see(text, "ethtool -g, or txqueuelen of a tap; arithmetic");
        }
        Some(hit)
    })
}

fn enlarge(end: &End, drops: &Drops) -> Experiment {
    let (interface, counter) = (&end.interface, &drops.counter);
    if end.driver.as_deref() == Some("tun") {
        return Experiment::text(format!(
            "enlarge the ring (`ip link set {interface} txqueuelen 1000`), and watch {counter}"
        ));
    }
    let text = Experiment::text(format!("enlarge the ring (`ethtool -G {interface}`), and watch {counter}"));
    match end.rx_slots.zip(end.rx_slots_max) {
        Some((slots, most)) if slots < most && !drops.sending => {
            text.with(factor("the largest receive ring of", end, &format!("rings = {{ rx = {most} }}")))
        }
        _ => text,
    }
}

fn rps(case: &Case) -> Option<Hit> {
    case.worst(|end, _| {
        let (steered, packets) = (end.rps_packets?, end.rx_packets?);
        if end.rps_cpus.is_empty() {
            return None;
        }
        let share = (steered / packets.max(1.0)).min(1.0);
        let apps: Vec<_> = end.sockets.iter().filter_map(|socket| socket.process.as_ref()).collect();
        let elsewhere = apps.iter().any(|(_, _, cpus)| !cpus.is_empty() && cpus.intersection(&end.rps_cpus).is_empty());
        let far = if elsewhere { 1.0 } else { 0.65 };
        let mut hit = Hit::new(
            90.0 * grade(share, 0.1, 0.5) * far,
            Some(end),
            format!(
                "Receive packet steering (RPS) passes {} of the packets of {} to CPU {}",
                percent(share),
                end.interface,
                end.rps_cpus
            ),
            Experiment::text(format!(
                "switch it off (write 0 to /sys/class/net/{}/queues/rx-*/rps_cpus), and measure again",
                end.interface
            ))
            .with(factor("no receive packet steering on", end, "rps_cpus = \"none\"")),
        )
        .see(
            format!("{:.0} packets/s were passed on by RPS", steered / end.length_s.max(f64::MIN_POSITIVE)),
            "/proc/net/softnet_stat",
        )
        .see(format!("rps_cpus is {}", end.rps_cpus), format!("/sys/class/net/{}/queues/rx-*/rps_cpus", end.interface));
        if let Some((name, _, cpus)) = apps.iter().find(|_| elsewhere) {
            hit = hit.see(format!("{name} runs on CPU {cpus}"), "/proc/PID/task/TID/status");
        }
        Some(hit)
    })
}
