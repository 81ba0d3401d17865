use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::Mutex;

use live::app::l2fwd::L2Fwd;
use live::app::macswap::MacSwap;
use live::device::fault::{FaultMeter, FaultPlan, FaultRates, Faulty, Outage};
use live::device::memory::{LinkConfig, MemoryDevice};
use live::device::pcap::{PcapDevice, PcapPlay};
use live::telemetry::{DropReason, Reader, State};
use live::worker::Finish;
use policy::wait::{Decision, Mode, Observation, WaitPolicy};
use proptest::prelude::*;
use units::{Instant, Monotonic, Nanos};

use super::scripted::{Event, Quirky, Script, udp};

/// A policy that looks at the books, every so often, before it decides.
#[derive(Clone)]
struct Audited<P> {
    inner: P,
    books: std::rc::Rc<Reader>,
    decisions: u64,
}

impl<P: WaitPolicy<Monotonic>> WaitPolicy<Monotonic> for Audited<P> {
    fn decide(&mut self, seen: &Observation<'_, Monotonic>) -> Decision<Monotonic> {
        self.decisions += 1;
        if self.decisions.is_multiple_of(4096) || seen.received() > 0 {
            let counts = self.books.snapshot().counts;
            let dropped: u64 = counts.dropped.iter().sum();
            assert_eq!(counts.received_frames, counts.sent_frames + dropped, "decision {}", self.decisions);
        }
        self.inner.decide(seen)
    }
}

fn rates() -> impl Strategy<Value = FaultRates> {
    let ppm = || prop_oneof![2 => Just(0u32), 1 => 0u32..300_000];
    (ppm(), ppm(), ppm(), ppm(), ppm(), ppm(), 1u32..40).prop_map(
        |(drop_ppm, duplicate_ppm, corrupt_ppm, truncate_ppm, delay_ppm, reorder_ppm, hold_polls)| FaultRates {
            drop_ppm,
            duplicate_ppm,
            corrupt_ppm,
            truncate_ppm,
            delay_ppm,
            reorder_ppm,
            hold_polls,
        },
    )
}

fn plans() -> impl Strategy<Value = FaultPlan> {
    let outage = proptest::option::of((1u64..300, 1u32..4));
    (any::<u64>(), rates(), rates(), outage).prop_map(|(seed, rx, tx, outage)| FaultPlan {
        seed,
        rx,
        tx,
        fail_after: outage.map(|(frames, health_checks)| (frames, Outage::Down { health_checks })),
    })
}

fn modes() -> impl Strategy<Value = Mode> {
    use policy::wait::AdaptiveConfig;
    prop_oneof![
        Just(Mode::Poll),
        Just(Mode::Interrupt),
        Just(Mode::Backoff { max: Nanos::from_micros(80) }),
        Just(Mode::Hybrid300),
        Just(Mode::ADAPTIVE),
        Just(Mode::Adaptive(AdaptiveConfig { interrupts: false, ..AdaptiveConfig::default() })),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    /// At every decision: received = sent + drops. At the end: every frame of the wire is accounted for.
    #[test]
    fn received_is_sent_and_dropped(
        plans in [plans(), plans()],
        mode in modes(),
        tx_room in prop_oneof![Just(usize::MAX), 0usize..70],
        gaps_us in proptest::collection::vec((0u64..400, 1usize..90), 1..60),
    ) {
        let mut script = Script::new(2);
        script.late = Nanos::from_micros(5);
        let mut meters: Vec<FaultMeter> = Vec::new();
        for (port, plan) in plans.into_iter().enumerate() {
            script.wrap(port, |inner| {
                let (faulty, meter) = Faulty::new(inner, plan).unwrap();
                meters.push(meter);
                Box::new(Quirky { tx_room, ..Quirky::new(Box::new(faulty)) })
            });
        }
        let frame = udp([10, 0, 0, 1]);
        let (mut at, mut pushed) = (Nanos::from_micros(1), [0u64; 2]);
        for (number, (gap, burst)) in gaps_us.into_iter().enumerate() {
            at += Nanos::from_micros(gap);
            for _ in 0..burst {
                script.frame(at, number % 2, &frame);
            }
            pushed[number % 2] += burst as u64;
        }
        // Long enough for outages of three looks at the health to end, and for what was held to go on.
        script.at(at + Nanos::from_millis(500), Event::Stop);
        let ended = script.run_watched(L2Fwd::transparent(), |books| Audited {
            inner: mode.policy(), books: std::rc::Rc::new(books), decisions: 0,
        });
        prop_assert_eq!(ended.finish.unwrap(), Finish::Stopped);
        let counts = &ended.snapshot.counts;
        prop_assert_eq!(counts.received_frames, counts.sent_frames + counts.dropped.iter().sum::<u64>());
        let rx = [meters[0].rx(), meters[1].rx()];
        let tx = [meters[0].tx(), meters[1].tx()];
        prop_assert_eq!(rx[0].passed + rx[1].passed, counts.received_frames);
        let injected = counts.dropped(DropReason::Injected);
        prop_assert_eq!(tx[0].seen + tx[1].seen, counts.sent_frames + injected);
        // Frames that are held back when the port is lost are not dropped by `tx`, but these plans lose no port.
        prop_assert_eq!(tx.iter().map(|of| of.dropped + of.lost).sum::<u64>(), injected);
        for port in 0..2 {
            let overflow = counts.ports[port].statistics.rx_ring_full;
            prop_assert_eq!(rx[port].seen + overflow, pushed[port], "port {}", port);
        }
    }
}

#[test]
fn what_a_full_ring_does_not_take_is_dropped_and_counted() {
    let mut script = Script::new(1);
    script.wrap(0, |inner| Box::new(Quirky { tx_room: 10, ..Quirky::new(inner) }));
    for _ in 0..64 {
        script.frame(Nanos::from_micros(5), 0, &udp([10, 0, 0, 1]));
    }
    script.at(Nanos::from_millis(1), Event::Stop);
    let ended = script.run(MacSwap, policy::wait::Poll);
    let counts = &ended.snapshot.counts;
    assert_eq!((counts.received_frames, counts.sent_frames), (64, 10));
    assert_eq!(counts.dropped(DropReason::TxFull), 54);
    assert_eq!(counts.sent_bytes * 64, counts.received_bytes * 10);
}

/// Both reasons were once documented, but never counted.
#[test]
fn frames_that_the_port_cannot_send_and_faults_have_reasons_of_their_own() {
    let mut script = Script::new(2);
    let (short, far) = MemoryDevice::scripted("p1", LinkConfig { longest_frame: 60, ..LinkConfig::default() }).unwrap();
    script.wires[1] = far;
    let tx = FaultRates { drop_ppm: 1_000_000, ..FaultRates::default() };
    script.wrap(0, |inner| Box::new(Faulty::new(inner, FaultPlan { tx, ..FaultPlan::default() }).unwrap().0));
    script.wrap(1, |_| Box::new(short));
    let (long, fits) = (vec![1; 61], vec![1; 60]);
    for frame in [&long, &fits] {
        script.frame(Nanos::from_micros(5), 0, frame);
    }
    script.frame(Nanos::from_micros(5), 1, &fits);
    script.at(Nanos::from_millis(1), Event::Stop);
    let ended = script.run(L2Fwd::transparent(), policy::wait::Poll);
    let counts = &ended.snapshot.counts;
    assert_eq!((counts.received_frames, counts.sent_frames, counts.sent_bytes), (3, 1, 60));
    assert_eq!((counts.dropped(DropReason::TooLong), counts.dropped(DropReason::Injected)), (1, 1));
    assert_eq!(ended.wires[1].take_sent(0), Some(fits));
}

/// Frames sent since the last check of the ports were once lost in silence when the worker was asked to stop.
#[test]
fn frames_that_do_not_reach_their_file_are_told_at_the_end() {
    let folder = std::env::temp_dir().join(format!("apus-worker-unwritten-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (input, output) = (folder.join("in.pcap"), folder.join("fifo"));
    pcap::PcapWriter::create(&input, pcap::Resolution::Nanos).unwrap().finish().unwrap();
    // The reader takes the header, and is gone when the first frame is sent: from then on, no write succeeds.
    let (mode, fifo) = (rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR, rustix::fs::FileType::Fifo);
    rustix::fs::mknodat(rustix::fs::CWD, &output, fifo, mode, 0).unwrap();
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let reader = std::fs::OpenOptions::new().read(true).custom_flags(nonblocking).open(&output).unwrap();
    let reader = Mutex::new(Some(reader));
    let clock = move || {
        reader.lock().unwrap().take();
        Instant::ORIGIN
    };
    let mut script = Script::new(2);
    let play = PcapPlay { output: Some(output), ..PcapPlay::new(input) };
    script.wrap(1, |_| Box::new(PcapDevice::open(play, clock).unwrap()));
    // Between the first check of the ports and the second one.
    script.frame(Nanos::from_millis(1), 0, &udp([10, 0, 0, 1]));
    script.at(Nanos::from_millis(2), Event::Stop);
    let ended = script.run(L2Fwd::transparent(), policy::wait::Poll);
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(ended.snapshot.counts.sent_frames, 1, "it went to the buffer");
    let error = ended.finish.unwrap_err();
    assert!(error.lacks() && error.to_string().contains("fifo"), "{error}");
    assert_eq!(ended.snapshot.state, Some(State::Failed));
}
