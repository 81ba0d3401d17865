//! Tests of the diagnosis: given these numbers, which cause is ranked first? `crates/cli/tests/it/diagnose.rs` and
//! `benches/diagnose.py` test it in a lab.

use host::Facts;
use host::facts::{CpuSet, Root};
use proptest::prelude::*;

use super::*;

/// An end of a healthy connection: a thousand requests per second between two hosts, one at a time.
fn healthy(name: &str) -> End {
    End {
        name: name.into(),
        length_s: 4.0,
        interface: "eth0".into(),
        driver: Some("ixgbe".into()),
        speed_bps: Some(10e9),
        rx_slots: Some(512),
        tx_slots: Some(512),
        rx_slots_max: Some(4096),
        rx_hold_us: Some(20.0),
        rx_packets: Some(4000.0),
        tx_packets: Some(4000.0),
        rx_bytes: Some(512e3),
        tx_bytes: Some(512e3),
        queue_count: Some(4),
        queues: (0..4).map(|n| QueueShare { queue: format!("rx-{n}"), amount: 1000.0 }).collect(),
        polls: Some(4000.0),
        offloads_on: vec!["tx-tcp-segmentation".into()],
        rps_packets: Some(0.0),
        sockets: vec![socket("tcp")],
        queue_cpus: CpuSet::from([2]),
        busy: [(0, 0.2), (1, 0.3)].into(),
        steal: [(0, 0.0)].into(),
        retransmitted: Some((0.0, 4000.0)),
        ..End::default()
    }
}

fn socket(transport: &str) -> Socket {
    let tcp = transport == "tcp";
    let of_tcp = |n: f64| tcp.then_some(n);
    Socket {
        transport: transport.into(),
        local_port: 5001,
        remote_port: 5001,
        half_full: Some(0.0),
        receive_limit: Some(131_072.0),
        send_limit: Some(87_040.0),
        in_transmission: Some(10.0),
        in_transmission_least: Some(1344.0),
        rtt_us: of_tcp(60.0),
        min_rtt_us: of_tcp(40.0),
        segments_s: of_tcp(1000.0),
        sent_bps: of_tcp(512e3),
        received_bps: of_tcp(512e3),
        retransmitted: of_tcp(0.0),
        segments: of_tcp(4000.0),
        window_limited: of_tcp(0.0),
        sndbuf_limited: of_tcp(0.0),
        busy: of_tcp(0.1),
        send_window: of_tcp(65_536.0),
        process: Some(("server (1)".into(), 0.1, CpuSet::from([0]))),
        ..Socket::default()
    }
}

fn case(kind: SymptomKind, change: impl FnOnce(&mut End, &mut End)) -> Case {
    let (mut here, mut peer) = (healthy("here"), healthy("peer"));
    change(&mut here, &mut peer);
    Case { symptom: Symptom { kind, ..Symptom::default() }, ends: vec![here, peer] }
}

fn first(case: &Case) -> Option<(&'static str, Option<String>)> {
    let said = diagnose(case);
    said.found().next().map(|cause| (cause.id, cause.hit.end.clone()))
}

#[test]
fn nothing_wrong_is_a_result() {
    for kind in SymptomKind::ALL {
        let said = diagnose(&case(kind, |_, _| {}));
        assert_eq!(said.found().count(), 0, "{said:#?}");
    }
    let blind = diagnose(&Case::default());
    assert!(blind.causes.is_empty());
}

/// Changes the observations of the two ends.
type Change = fn(&mut End, &mut End);

/// Each cause is ranked first if its setting and the counters that show its effect are present.
#[test]
fn each_cause_has_its_marks() {
    let cases: &[(&str, SymptomKind, Option<&str>, Change)] = &[
        ("rx-moderation", SymptomKind::Late, Some("peer"), |here, peer| {
            (peer.rx_hold_us, peer.polls) = (Some(1000.0), Some(3600.0));
            here.sockets[0].rtt_us = Some(1100.0);
        }),
        ("tx-moderation", SymptomKind::Late, Some("here"), |here, _| {
            // 0.8 of a segment is always inside, of 800 a second: 1 ms each.
            (here.sockets[0].segments_s, here.sockets[0].in_transmission) = (Some(800.0), Some(0.8 * 1344.0));
            here.sockets[0].rtt_us = Some(1150.0);
        }),
        ("tx-moderation", SymptomKind::Late, Some("here"), |here, _| {
            // Seen in a lab with a kernel that charges 896 bytes for a small segment: 150 us of each request.
            let socket = &mut here.sockets[0];
            (socket.segments_s, socket.sent_bps, socket.rtt_us) = (Some(1283.0), Some(657e3), Some(245.0));
            (socket.in_transmission, socket.in_transmission_least) = (Some(175.0), Some(896.0));
        }),
        ("tx-moderation", SymptomKind::Slow, Some("here"), |here, _| {
            (here.tx_hold_us, here.tx_slots, here.speed_bps) = (Some(250.0), Some(1024), Some(40e9));
        }),
        ("one-queue", SymptomKind::Slow, Some("peer"), |_, peer| {
            peer.sockets = (0..8).map(|_| socket("udp")).collect();
            peer.queues[0].amount = 40_000.0;
            peer.queues[1..].iter_mut().for_each(|queue| queue.amount = 0.0);
        }),
        ("ring", SymptomKind::Drops, Some("peer"), |_, peer| {
            peer.rx_slots = Some(64);
            peer.drops = vec![Drops { counter: "rx_missed_errors".into(), count: 80, sending: false }];
        }),
        ("offloads", SymptomKind::Slow, Some("here"), |here, _| {
            here.offloads_off = vec!["tx-tcp-segmentation".into()];
            here.offloads_on.clear();
            (here.tx_packets, here.tx_bytes) = (Some(1e6), Some(1514e6));
            here.sockets[0].sent_bps = Some(3e9);
            here.busy.insert(0, 1.0);
        }),
        // The sender's CPU has no idle time left, but the hypervisor took some of it away: `steal` came first.
        ("offloads", SymptomKind::Slow, Some("here"), |here, _| {
            here.offloads_off = vec!["tx-tcp-segmentation".into()];
            here.offloads_on.clear();
            (here.tx_packets, here.tx_bytes) = (Some(1e6), Some(1514e6));
            here.sockets[0].sent_bps = Some(2e9);
            here.busy.insert(0, 0.65);
            here.steal.insert(0, 0.3);
        }),
        ("slow-app", SymptomKind::Slow, Some("peer"), |here, peer| {
            here.sockets[0].window_limited = Some(0.8);
            (peer.sockets[0].half_full, peer.sockets[0].receive_limit) = (Some(0.97), Some(3e6));
        }),
        ("slow-app", SymptomKind::Drops, Some("peer"), |_, peer| {
            peer.sockets =
                vec![Socket { half_full: Some(0.9), receive_limit: Some(212_992.0), drops: 5000.0, ..socket("udp") }];
        }),
        ("buffer", SymptomKind::Slow, Some("peer"), |here, peer| {
            (here.sockets[0].window_limited, here.sockets[0].send_window) = (Some(0.7), Some(4096.0));
            (peer.sockets[0].half_full, peer.sockets[0].receive_limit) = (Some(0.6), Some(8192.0));
        }),
        ("buffer", SymptomKind::Slow, Some("peer"), |here, peer| {
            // Two segments in a round trip of 34 us are 681 Mbit/s. The sender is hardly ever seen waiting.
            let sender = &mut here.sockets[0];
            (sender.window_limited, sender.send_window) = (Some(0.17), Some(2896.0));
            (sender.rtt_us, sender.sent_bps, sender.busy) = (Some(34.0), Some(767e6), Some(1.0));
            (peer.sockets[0].half_full, peer.sockets[0].receive_limit) = (Some(0.02), Some(7532.0));
        }),
        ("buffer", SymptomKind::Drops, Some("peer"), |_, peer| {
            peer.sockets =
                vec![Socket { half_full: Some(0.1), receive_limit: Some(16_384.0), drops: 500.0, ..socket("udp") }];
        }),
        ("buffer", SymptomKind::Slow, Some("here"), |here, _| {
            (here.sockets[0].sndbuf_limited, here.sockets[0].send_limit) = (Some(0.8), Some(16_384.0));
        }),
        ("fifo", SymptomKind::Late, Some("peer"), |_, peer| {
            peer.threaded = true;
            peer.hogs = vec![Hog { name: "hog (9)".into(), cpu: 2, share: 0.8, priority: 50 }];
        }),
        ("delay", SymptomKind::Late, None, |here, _| {
            (here.sockets[0].rtt_us, here.sockets[0].min_rtt_us) = (Some(5300.0), Some(5100.0));
        }),
        ("delay", SymptomKind::Late, Some("here"), |here, _| here.netem = Some((5000.0, 0.0))),
        ("loss", SymptomKind::Slow, None, |here, _| here.sockets[0].retransmitted = Some(60.0)),
        ("loss", SymptomKind::Slow, Some("peer"), |_, peer| peer.netem = Some((0.0, 0.01))),
        ("rps", SymptomKind::Late, Some("peer"), |_, peer| {
            (peer.rps_cpus, peer.rps_packets) = (CpuSet::from([3]), Some(3900.0));
        }),
        ("shaper", SymptomKind::Slow, Some("here"), |here, _| here.shaper = Some(("tbf".into(), Some(50e6), 3000.0))),
        ("steal", SymptomKind::Any, Some("here"), |here, _| _ = here.steal.insert(1, 0.5)),
        ("cpu-full", SymptomKind::Slow, Some("peer"), |_, peer| {
            peer.loads = vec![Load { name: "ksoftirqd/2 (20)".into(), share: 0.99 }];
        }),
        ("idle-states", SymptomKind::Late, Some("here"), |here, _| here.idle_exit = Some((133.0, "C6".into(), 900.0))),
        ("frequency", SymptomKind::Slow, Some("here"), |here, _| here.frequency_share = Some(0.4)),
        ("pcie", SymptomKind::Slow, Some("here"), |here, _| here.pcie_share = Some(0.25)),
        ("throttling", SymptomKind::Slow, Some("here"), |here, _| here.throttles = Some(40.0)),
    ];
    for (id, kind, end, change) in cases {
        let case = case(*kind, *change);
        let said = diagnose(&case);
        assert_eq!(first(&case), Some((*id, end.map(str::to_owned))), "{said:#?}");
        assert!(!said.causes[0].hit.evidence.is_empty() && !said.causes[0].hit.experiment.text.is_empty(), "{id}");
    }
    let known: std::collections::BTreeSet<&str> =
        CAUSES.iter().flat_map(|table| table.iter()).map(|cause| cause.id).collect();
    let tried: std::collections::BTreeSet<&str> = cases.iter().map(|(id, ..)| *id).collect();
    assert_eq!(known, tried, "causes, and those with a case");
}

/// A setting alone proves nothing. Retransmissions do not prove loss between the ends if drops at an end explain them.
#[test]
fn half_of_the_evidence_is_not_enough() {
    let not =
        |id: &str, case: Case| assert_ne!(first(&case).map(|(first, _)| first), Some(id), "{:#?}", diagnose(&case));
    not("rps", case(SymptomKind::Late, |_, peer| peer.rps_cpus = CpuSet::from([3])));
    // The delay is set, but round trips of 60 us show that no packet waits for 5 ms.
    not("rx-moderation", case(SymptomKind::Late, |_, peer| peer.rx_hold_us = Some(5000.0)));
    let unseen = |_: &mut End, peer: &mut End| {
        // A ping of another program, one packet per poll: the rate of the polls is that of the packets.
        (peer.rx_hold_us, peer.rx_packets, peer.polls) = (Some(5000.0), Some(400.0), Some(400.0));
        peer.sockets.clear();
    };
    let mut pinged = case(SymptomKind::Late, unseen);
    pinged.ends.remove(0);
    not("rx-moderation", pinged.clone());
    pinged.symptom.ping_ns = Some(14_000);
    not("rx-moderation", pinged.clone());
    pinged.ends[0].polls = None;
    not("rx-moderation", pinged.clone());
    // With a ping of 4 ms, it is the cause.
    pinged.symptom.ping_ns = Some(4_000_000);
    assert_eq!(first(&pinged).map(|(id, _)| id), Some("rx-moderation"));
    not("ring", case(SymptomKind::Drops, |_, peer| peer.rx_slots = Some(64)));
    not(
        "fifo",
        case(SymptomKind::Late, |_, peer| {
            peer.hogs = vec![Hog { name: "hog (9)".into(), cpu: 7, share: 0.9, priority: 50 }];
        }),
    );
    not("buffer", case(SymptomKind::Slow, |_, peer| peer.sockets[0].receive_limit = Some(4096.0)));
    not(
        "buffer",
        case(SymptomKind::Slow, |here, peer| {
            // A small window that is filled now and then, by a sender that seldom has data; and one that is never full.
            let sender = &mut here.sockets[0];
            (sender.send_window, sender.rtt_us, sender.sent_bps) = (Some(2896.0), Some(34.0), Some(600e6));
            peer.sockets[0].receive_limit = Some(7532.0);
            let mut other =
                Socket { busy: Some(1.0), sent_bps: Some(100e6), local_port: 5002, ..here.sockets[0].clone() };
            other.remote_port = 5002;
            here.sockets.push(other);
            peer.sockets.push(Socket { local_port: 5002, remote_port: 5002, ..peer.sockets[0].clone() });
        }),
    );
    not(
        "one-queue",
        case(SymptomKind::Slow, |_, peer| {
            // One flow has nowhere else to go.
            peer.queues[0].amount = 40_000.0;
            peer.queues[1..].iter_mut().for_each(|queue| queue.amount = 0.0);
        }),
    );
    not(
        "loss",
        case(SymptomKind::Slow, |here, peer| {
            here.sockets[0].retransmitted = Some(60.0);
            peer.drops = vec![Drops { counter: "rx_missed_errors".into(), count: 70, sending: false }];
        }),
    );
    not(
        "loss",
        case(SymptomKind::Slow, |here, _| {
            // A tail loss probe that came too early: the receiver has both.
            here.sockets[0].retransmitted = Some(60.0);
            (here.retransmitted, here.duplicates) = (Some((60.0, 4000.0)), Some(60.0));
        }),
    );
    not(
        "loss",
        case(SymptomKind::Slow, |here, _| {
            // A bulk stream whose segments overtake each other on a busy machine; seen in a lab.
            (here.sockets[0].retransmitted, here.sockets[0].segments) = (Some(77_656.0), Some(2_319_346.0));
            (here.retransmitted, here.duplicates) = (Some((77_656.0, 2_319_346.0)), Some(73_976.0));
        }),
    );
    not("offloads", case(SymptomKind::Slow, |here, _| here.offloads_off = vec!["tx-tcp-segmentation".into()]));
}

/// The host in the FreeBSD thread: a 40G card reaches 3.36 Gbit/s and 116 us; a 10G card in the same machines reaches
/// 9.39 Gbit/s and 17 us. The settings are in the format of FreeBSD's tools; the numbers are the thread's.
fn thread() -> Facts {
    Facts::read(&Root::given([
        ("apus-snapshot", "apus-snapshot 1\nos: FreeBSD\n"),
        (
            "commands/sysctl_-a",
            "hw.ixl.dynamic_rx_itr: 0\nhw.ixl.dynamic_tx_itr: 0\nhw.ixl.rx_itr: 62\nhw.ixl.tx_itr: 125\nhw.ixl.ringsz: 1024\n\
             hw.ixl.max_queues: 32\nhw.acpi.cpu.cx_lowest: C2\n",
        ),
        ("boot/loader.conf", "# none\n"),
        (
            "commands/ifconfig_-a",
            "ixl1: flags=8843<UP,BROADCAST,RUNNING> metric 0 mtu 1500\n\toptions=e407bb<RXCSUM,TXCSUM,TSO4,TSO6,LRO>\n\
             \tmedia: Ethernet autoselect (40Gbase-CR4 <full-duplex>)\n",
        ),
        (
            "commands/top_-bSH",
            "   11      0   -92    -     0K  1152K CPU2    2   0:19  50.98% intr{irq293: ixl1:q2}\n   \
             11      0   -92    -     0K  1152K WAIT    3   0:02   5.18% intr{irq294: ixl1:q3}\n   \
             11      0   -92    -     0K  1152K WAIT    1   0:01   0.00% intr{irq292: ixl1:q1}\n",
        ),
    ]))
}

/// Finds the causes that the thread names: receive moderation for the ping; for the throughput, transmit moderation
/// close to the time in which the ring fills, and one hot queue. After them come idle states, which cannot explain a
/// difference between two cards of one host, and offloads, which can only be tried.
#[test]
fn the_founding_thread_is_found_out() {
    let facts = thread();
    let symptom = Symptom {
        kind: SymptomKind::Any,
        measured_bps: Some(3_360_000_000),
        expected_bps: Some(9_390_000_000),
        ping_ns: Some(116_000),
        expected_ping_ns: Some(17_000),
        reference: Reference::SameHost,
    };
    let end = end_of("ixl host", &facts, None);
    assert_eq!((end.rx_hold_us, end.tx_hold_us, end.tx_slots), (Some(124.0), Some(250.0), Some(1024)));
    let said = diagnose(&Case { symptom, ends: vec![end] });
    let order: Vec<&str> = said.causes.iter().map(|cause| cause.id).collect();
    assert_eq!(order, ["rx-moderation", "tx-moderation", "one-queue", "idle-states", "offloads"], "{said:#?}");
    let found: Vec<&str> = said.found().map(|cause| cause.id).collect();
    assert_eq!(found, ["rx-moderation", "tx-moderation", "one-queue"]);
    let text = |id: &str| -> String {
        let cause = said.causes.iter().find(|cause| cause.id == id).unwrap();
        cause.hit.evidence.iter().map(|seen| seen.text.clone() + "\n").collect()
    };
    assert!(text("rx-moderation").contains("99 us longer than expected"), "{}", text("rx-moderation"));
    let reclaim = text("tx-moderation");
    for part in ["1024 slots x 1500 bytes = 1.54 MB", "40.00 Gbit/s = 307 us", "250 us / 307 us = 81 %"] {
        assert!(reclaim.contains(part), "{part} is not in {reclaim}");
    }
    assert!(text("one-queue").contains("3.36 Gbit/s needs 51 % of a CPU, so one CPU can handle at most 6.59 Gbit/s"));
    assert!(text("idle-states").contains("same host"));

    // Without the other card, nothing exonerates the idle states.
    let alone = Symptom { expected_ping_ns: None, reference: Reference::Elsewhere, ..symptom };
    let again = diagnose(&Case { symptom: alone, ends: vec![end_of("ixl host", &facts, None)] });
    assert!(again.found().any(|cause| cause.id == "idle-states"), "{again:#?}");
}

proptest! {
    /// Whatever the numbers are, all likelihoods are percentages, and nothing panics.
    #[test]
    fn any_numbers_give_percentages(
        numbers in proptest::collection::vec(prop_oneof![Just(0.0), Just(1.0), Just(f64::MAX), 0.0..1e12_f64], 24),
        slots in 0_u64..100_000, count in 0_u32..5000,
    ) {
        let mut end = healthy("here");
        let n = |at: usize| Some(numbers[at]);
        end.length_s = numbers[0];
        (end.rx_hold_us, end.tx_hold_us, end.rx_packets, end.tx_packets) = (n(1), n(2), n(3), n(4));
        (end.polls, end.rps_packets, end.speed_bps, end.pcie_share) = (n(5), n(6), n(7), n(8));
        (end.rx_slots, end.tx_slots, end.queue_count) = (Some(slots), Some(slots), Some(count));
        end.drops = vec![Drops { counter: "x".into(), count: slots, sending: count % 2 == 0 }];
        let socket = &mut end.sockets[0];
        (socket.half_full, socket.receive_limit, socket.in_transmission, socket.rtt_us) = (n(9), n(10), n(11), n(12));
        (socket.min_rtt_us, socket.segments_s, socket.sent_bps, socket.retransmitted) = (n(13), n(14), n(15), n(16));
        (socket.window_limited, socket.sndbuf_limited, socket.send_window, socket.segments) = (n(17), n(18), n(19), n(20));
        let case = Case { symptom: Symptom::default(), ends: vec![end, healthy("peer")] };
        for cause in diagnose(&case).causes {
            prop_assert!((1..=99).contains(&cause.hit.likelihood_percent));
        }
    }
}

/// A truncated recording was diagnosed without a word.
#[test]
fn notes_on_the_recording_are_told() {
    let mut facts = thread();
    facts.origin.notes.push("the archive is truncated".into());
    let said = diagnose(&Case { ends: vec![end_of("a.tar", &facts, None)], ..Case::default() });
    assert!(said.unknown.contains(&"a.tar: the archive is truncated".to_owned()), "{:?}", said.unknown);
}

/// The findings of a rule are not neighbours in a list sorted by delay if another rule's delay lies between theirs.
#[test]
fn a_rule_is_suspected_once_with_its_largest_delay() {
    let suspect = |rule, micros| Suspect {
        end: "here".to_owned(),
        rule,
        found: format!("{micros} us"),
        adds: Some(Nanos::from_micros(micros)),
    };
    let all = vec![suspect("irq.rate", 1), suspect("nic.lro", 2), suspect("irq.rate", 3)];
    let kept: Vec<_> = largest_of_each_rule(all).into_iter().map(|suspect| (suspect.rule, suspect.found)).collect();
    assert_eq!(kept, [("irq.rate", "3 us".to_owned()), ("nic.lro", "2 us".to_owned())]);
}
