//! What one step of a policy costs: `cargo bench -p policy --bench step`.
//!
//! Each figure is the median of 15 runs, by the thread's CPU time, so that a busy machine counts for
//! little. It includes the making of the observation; what that costs by itself stands beside it. The
//! reason is the one that most decisions had: it tells which path was measured.
//!
//! Bounds of `adaptive`, without the observation: at most 30 ns in the median of the cases, and 60 ns in the worst. The
//! bench fails if one is missed.
#![allow(clippy::disallowed_methods)] // a benchmark reads a clock

use std::hint::black_box;

use policy::wait::{
    Action, Adaptive, AdaptiveConfig, Arrivals, Backoff, Decision, Ended, Hybrid300, Interrupt, Observation, Poll,
    Queue, Reason, WaitPolicy,
};
use policy::{Goal, LossBound};
use units::{Instant, Nanos, PacketRate, Quantile, Simulated};

const RUNS: usize = 15;
const STEPS: u64 = 400_000;
/// Bounds in nanoseconds: of the median of the cases, and of the worst one.
const MEDIAN_NS: f64 = 30.0;
const WORST_NS: f64 = 60.0;

/// What a policy meets.
#[derive(Clone, Copy)]
enum Situation {
    /// Polls without a wait, all empty: a core that spins.
    Spinning,
    /// Every poll brings 32 frames.
    Traffic,
    /// A sleep of 20 us has ended 3 to 5 us late, and brought nothing.
    SleptForNothing,
    /// A sleep has ended so, and brought a frame.
    SleptForAFrame,
    /// One frame each 350 us; the polls between are those of a core that spins.
    Periodic,
}

fn main() {
    let loss = Some(LossBound { descriptors: 2048, peak: PacketRate::new(14_880_000) });
    let adaptive = |us, interrupts| {
        let goal = Goal { quantile: Quantile::P99, latency: Nanos::from_micros(us) };
        Adaptive::new(AdaptiveConfig { goal: Some(goal), loss, interrupts })
    };
    use Situation::*;
    for situation in [Spinning, Traffic] {
        report("poll", || Poll, situation);
        report("interrupt", || Interrupt, situation);
        report("backoff", || Backoff::new(Nanos::from_micros(60)), situation);
        report("hybrid300", Hybrid300::new, situation);
    }
    let mut steps = Vec::new();
    for situation in [Spinning, Traffic, Periodic, SleptForNothing, SleptForAFrame] {
        steps.push(report("adaptive p99=40us", || adaptive(40, true), situation));
    }
    for situation in [Spinning, Periodic, SleptForNothing, SleptForAFrame] {
        steps.push(report("the same, no interrupts", || adaptive(40, false), situation));
    }
    steps.push(report("adaptive p99=1us", || adaptive(1, false), Periodic));
    steps.sort_by(f64::total_cmp);
    let (median, worst) = (steps[steps.len() / 2], steps[steps.len() - 1]);
    let holds = median <= MEDIAN_NS && worst <= WORST_NS;
    println!(
        "adaptive, without the observation: median {median:.1} ns (at most {MEDIAN_NS}), worst {worst:.1} ns (at most \
         {WORST_NS}): {}",
        if holds { "holds" } else { "MISSED" }
    );
    if !holds {
        std::process::exit(1);
    }
}

/// Prints what a step costs. Returns the cost without the observation, in nanoseconds.
fn report<P: WaitPolicy<Simulated>>(name: &str, policy: impl Fn() -> P, situation: Situation) -> f64 {
    let whole = median(|| run(policy(), situation));
    let observation = median(|| run(Nothing, situation));
    let reason = most_common_reason(policy(), situation);
    let situation = match situation {
        Situation::Spinning => "empty polls",
        Situation::Traffic => "32 frames a poll",
        Situation::SleptForNothing => "after a sleep, no frame",
        Situation::SleptForAFrame => "after a sleep, a frame",
        Situation::Periodic => "a frame each 350 us",
    };
    println!("{name:<24} {situation:<24} step_ns={whole:.1} of_it_observation_ns={observation:.1} reason={reason}");
    whole - observation
}

fn median(mut run: impl FnMut() -> f64) -> f64 {
    let mut all: Vec<f64> = (0..RUNS).map(|_| run()).collect();
    all.sort_by(f64::total_cmp);
    all[RUNS / 2]
}

/// Nanoseconds of the thread's CPU time for one step.
fn run(mut policy: impl WaitPolicy<Simulated>, situation: Situation) -> f64 {
    let mut now = Instant::<Simulated>::from_nanos(1_000_000_000);
    steps(&mut policy, &mut now, situation, STEPS / 4, |_| ());
    let began = cpu_time();
    steps(&mut policy, &mut now, situation, STEPS, |_| ());
    (cpu_time() - began) as f64 / STEPS as f64
}

fn most_common_reason(mut policy: impl WaitPolicy<Simulated>, situation: Situation) -> &'static str {
    let mut counts = [0u64; Reason::ALL.len()];
    let mut now = Instant::from_nanos(1_000_000_000);
    steps(&mut policy, &mut now, situation, STEPS, |reason| counts[reason as usize] += 1);
    let most = Reason::ALL.into_iter().max_by_key(|reason| counts[*reason as usize]);
    most.map_or("none", Reason::name)
}

fn steps(
    policy: &mut impl WaitPolicy<Simulated>,
    now: &mut Instant<Simulated>,
    situation: Situation,
    steps: u64,
    mut decided: impl FnMut(Reason),
) {
    let nothing = Queue { received: 0, fill: 0, arrivals: None };
    let mut due = *now;
    for step in 0..steps {
        let (mut queue, mut ended) = (nothing, None);
        let mut frames = |count: u32, at: Instant<Simulated>, now| {
            queue = Queue { received: count, fill: count, arrivals: Some(Arrivals::stamped(at, at, now)) };
        };
        match situation {
            Situation::Spinning => *now = *now + Nanos::from_nanos(100),
            Situation::Traffic => {
                *now = *now + Nanos::from_micros(4);
                frames(32, now.before(Nanos::from_micros(2)).unwrap(), *now);
            }
            Situation::SleptForNothing | Situation::SleptForAFrame => {
                let (began, until) = (*now, *now + Nanos::from_micros(20));
                *now = until + Nanos::from_nanos(3_000 + step * 37 % 2_000);
                ended = Some(Ended {
                    action: Action::SleepUntil(until),
                    began,
                    ended: *now,
                    spent: None,
                    idle: Nanos::ZERO,
                });
                if matches!(situation, Situation::SleptForAFrame) {
                    frames(1, now.before(Nanos::from_micros(9)).unwrap(), *now);
                }
            }
            Situation::Periodic => {
                *now = *now + Nanos::from_nanos(100);
                if *now >= due {
                    frames(1, due, *now);
                    due = due + Nanos::from_micros(350);
                }
            }
        }
        let queues = [queue];
        decided(black_box(policy.decide(black_box(&Observation { now: *now, queues: &queues, ended }))).reason);
    }
}

/// A policy that does nothing: what remains is the cost of the observations.
struct Nothing;

impl WaitPolicy<Simulated> for Nothing {
    #[inline(never)]
    fn decide(&mut self, _: &Observation<'_, Simulated>) -> Decision<Simulated> {
        Decision { action: Action::Poll, reason: Reason::Fixed }
    }
}

/// This thread's CPU time in nanoseconds.
fn cpu_time() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
