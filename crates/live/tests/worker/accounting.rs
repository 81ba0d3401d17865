use live::app::l2fwd::L2Fwd;
use live::app::macswap::MacSwap;
use live::device::fault::{FaultMeter, FaultPlan, FaultRates, Faulty, Outage};
use live::telemetry::{DropReason, Reader};
use live::worker::Finish;
use policy::wait::{Decision, Observation, Policy, WaitPolicy};
use proptest::prelude::*;
use units::{Monotonic, Nanos};

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

fn policies() -> impl Strategy<Value = Policy<Monotonic>> {
    use policy::wait::{AdaptiveConfig, Mode};
    prop_oneof![
        Just(Mode::Poll),
        Just(Mode::Interrupt),
        Just(Mode::Backoff { max: Nanos::from_micros(80) }),
        Just(Mode::Hybrid300),
        Just(Mode::ADAPTIVE),
        Just(Mode::Adaptive(AdaptiveConfig { interrupts: false, ..AdaptiveConfig::default() })),
    ]
    .prop_map(|mode| mode.policy())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    /// At every decision: received = sent + drops. At the end: every frame of the wire is accounted for.
    #[test]
    fn received_is_sent_and_dropped(
        plans in [plans(), plans()],
        policy in policies(),
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
            inner: policy, books: std::rc::Rc::new(books), decisions: 0,
        });
        prop_assert_eq!(ended.finish.unwrap(), Finish::Stopped);
        let counts = &ended.snapshot.counts;
        prop_assert_eq!(counts.received_frames, counts.sent_frames + counts.dropped.iter().sum::<u64>());
        let rx = [meters[0].rx(), meters[1].rx()];
        let tx = [meters[0].tx(), meters[1].tx()];
        prop_assert_eq!(rx[0].passed + rx[1].passed, counts.received_frames);
        prop_assert_eq!(tx[0].seen + tx[1].seen, counts.sent_frames);
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
