extern crate std;

use std::vec::Vec;

use super::*;
use crate::frequency::{Action, PStates};
use crate::wait::{self, Arrivals, Queue};
use proptest::prelude::*;
use units::{PacketRate, Quantile, Simulated};

const MHZ: u64 = 1_000_000;
const MS: u64 = 1_000_000;

fn platform(sequencing_ns: u64, stall_ns: u64) -> Platform {
    let pstates = PStates::steps(Hertz::new(800 * MHZ), Hertz::new(2_200 * MHZ), Hertz::new(100 * MHZ)).unwrap();
    Platform { pstates, power: None, sequencing: Nanos::from_nanos(sequencing_ns), stall: Nanos::from_nanos(stall_ns) }
}

fn policy(us: u64, platform: Platform) -> GoalFrequency<Simulated> {
    policy_at(Quantile::P99_9, us, platform)
}

fn policy_at(quantile: Quantile, us: u64, platform: Platform) -> GoalFrequency<Simulated> {
    let goal = Some(Goal { quantile, latency: Nanos::from_micros(us) });
    GoalFrequency::new(GoalFrequencyConfig { goal, platform, loss: None, peak_is_stated: true })
}

/// Polls once per microsecond. One poll in `every` returns a frame, which costs `cycles`. Returns the requested
/// frequencies in MHz.
fn steady(policy: &mut GoalFrequency<Simulated>, from_ms: u64, ms: u64, every: u64, cycles: u64) -> Vec<u64> {
    let mut requests = Vec::new();
    for us in from_ms * 1_000..(from_ms + ms) * 1_000 {
        let now = Instant::from_nanos(us * 1_000);
        let received = u32::from(us % every == 0);
        let running = FrequencyPolicy::<Simulated>::requested(policy);
        let busy = Nanos::from_nanos(u64::from(received) * cycles * 1_000 / (running.as_hertz() / MHZ));
        let arrivals = (received > 0).then_some(Arrivals::stamped(now, now, now));
        let queues = [Queue { received, fill: received, arrivals }];
        let poll = wait::Observation { now, queues: &queues, ended: None };
        let seen = Observation { poll: &poll, busy, asleep: Nanos::ZERO, running: Some(running), waiting: None };
        if let Action::Request(frequency) = policy.decide(&seen).action {
            requests.push(frequency.as_hertz() / MHZ);
        }
    }
    requests
}

#[test]
fn stays_at_the_highest_until_it_knows_what_a_frame_costs() {
    let mut policy = policy(100, platform(500_000, 12_000));
    // The window is 20 changes of 512 us, and the first tells costs only.
    assert_eq!(steady(&mut policy, 0, 20, 10, 1_000), []);
    // Two windows more; 1,000 cycles each 10 us are a load of 100 MHz.
    assert_eq!(steady(&mut policy, 20, 60, 10, 1_000), [800]);
}

#[test]
fn no_traffic_teaches_nothing() {
    let mut policy = policy(100, platform(0, 300));
    assert_eq!(steady(&mut policy, 1, 1_200, u64::MAX, 0), []);
}

#[test]
fn a_load_that_rises_is_followed_at_once_and_one_that_falls_by_and_by() {
    let stays_ms = 60;
    for platform in [platform(500_000, 12_000), platform(0, 300)] {
        let mut policy = policy_at(Quantile::P99, 100, platform);
        assert_eq!(steady(&mut policy, 1, 150, 10, 1_800).last(), Some(&800));
        // 1,800 cycles each microsecond: 1.8 GHz.
        let up = steady(&mut policy, 151, 5, 1, 1_800);
        assert!(!up.is_empty() && *up.last().unwrap() >= 1_800, "{up:?}");
        steady(&mut policy, 156, 100, 1, 1_800);
        assert!(policy.requested >= Hertz::new(1_800 * MHZ));
        assert_eq!(steady(&mut policy, 256, stays_ms, 10, 1_800), []);
        // It has been wrong once, and the late frames of the change are to be earned first.
        let down = steady(&mut policy, 256 + stays_ms, 3_000, 10, 1_800);
        assert_eq!(down.last(), Some(&800), "{down:?}");
    }
}

#[test]
fn what_is_late_at_the_highest_frequency_is_not_paid_for() {
    let mut policy = policy(100, platform(0, 300));
    // 3,000 cycles each microsecond are more than 2.2 GHz.
    assert_eq!(steady(&mut policy, 1, 300, 1, 3_000), []);
    assert_eq!(steady(&mut policy, 301, 200, 10, 3_000), [800]);
}

#[test]
fn changes_are_rarer_where_a_stall_makes_frames_late() {
    let patience = |stall_ns| policy(100, platform(500_000, stall_ns)).patience;
    // p99.9 allows one in a thousand, and changes may take a quarter of that: 12 us each 48 ms.
    assert_eq!(patience(12_000), Nanos::from_millis(48));
    assert_eq!(patience(0), Nanos::from_micros(500));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Under a steady load that the core can handle, the policy ends at the frequency that the load needs, or higher.
    #[test]
    fn never_below_what_the_load_needs_once_learned(every in 1u64..20, megahertz in 100u64..2_000, generation in 2u32..4) {
        let platform = if generation == 2 { platform(500_000, 12_000) } else { platform(0, 300) };
        let mut policy = policy(100, platform);
        steady(&mut policy, 0, 150, every, megahertz * every);
        prop_assert!(policy.requested >= Hertz::new(megahertz * MHZ), "{:?} for {megahertz} MHz", policy.requested);
        // And not far above: the next but one would do.
        let enough = (megahertz.max(800) + 200).min(2_200);
        prop_assert!(policy.requested <= Hertz::new(enough * MHZ), "{:?} for {megahertz} MHz", policy.requested);
    }
}

/// Anything that a loop could report, sane or not.
type Step = (u64, u32, u32, u64, u64, u64, Option<usize>);

fn step() -> impl Strategy<Value = Step> {
    (
        0..2 * MS,
        prop_oneof![2 => Just(0u32), 1 => 0u32..200],
        0u32..3_000,
        0u64..300_000,
        0u64..200_000,
        prop_oneof![2 => Just(0u64), 1 => 0u64..500_000],
        prop::option::of(0usize..15),
    )
}

proptest! {
    #[test]
    fn keeps_its_bounds_whatever_comes(
        goal_us in 1u64..1_000,
        sequencing in 0u64..600_000,
        stall in 0u64..20_000,
        ring in prop::option::of((1u32..4_096, 1_000u64..30_000_000)),
        steps in prop::collection::vec(step(), 1..600),
    ) {
        let platform = platform(sequencing, stall);
        let loss = ring.map(|(descriptors, pps)| LossBound { descriptors, peak: PacketRate::new(pps) });
        let goal = Goal { quantile: Quantile::P99, latency: Nanos::from_micros(goal_us) };
        let mut policy =
            GoalFrequency::<Simulated>::new(GoalFrequencyConfig { goal: Some(goal), platform, loss, peak_is_stated: true });
        let mut again = policy.clone();
        let mut now = Instant::ORIGIN;
        let mut requests: Vec<(Instant<Simulated>, Hertz)> = Vec::new();
        let mut last = platform.pstates.highest();
        for (advance, received, more, busy, age, asleep, running) in steps {
            now = now + Nanos::from_nanos(advance);
            let first = now.before(Nanos::from_nanos(age)).unwrap_or(Instant::ORIGIN);
            let arrivals = (received > 0).then_some(Arrivals::stamped(first, now, now));
            let queues = [Queue { received, fill: received + more, arrivals }, Queue { received: 0, fill: 0, arrivals: None }];
            let poll = wait::Observation { now, queues: &queues, ended: None };
            let seen = Observation {
                poll: &poll,
                busy: Nanos::from_nanos(busy),
                asleep: Nanos::from_nanos(asleep),
                running: running.map(|state| platform.pstates.as_slice()[state]),
                waiting: None,
            };
            let decision = policy.decide(&seen);
            prop_assert_eq!(decision, again.decide(&seen), "the same observations, another decision");
            if let Action::Request(frequency) = decision.action {
                prop_assert!(platform.pstates.as_slice().contains(&frequency));
                prop_assert!(frequency != last, "a request that changes nothing");
                if let Some((before, _)) = requests.last() {
                    let since = now.since(*before).unwrap();
                    prop_assert!(since >= platform.settling(), "{since} after another");
                    if frequency < last {
                        prop_assert!(since >= SHORTEST_WINDOW.min(policy.patience), "{since}");
                    }
                }
                last = frequency;
                requests.push((now, frequency));
            }
            prop_assert_eq!(FrequencyPolicy::<Simulated>::requested(&policy), last);
        }
    }
}
