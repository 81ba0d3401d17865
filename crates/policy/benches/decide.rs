//! What a step of a moderation or frequency policy costs: `cargo bench -p policy --bench decide`.
//!
//! Each figure is the median of 15 runs, by the thread's CPU time. A moderation policy takes a step each
//! interrupt, a frequency policy each poll.
#![allow(clippy::disallowed_methods)] // a benchmark reads a clock

use std::hint::black_box;

use policy::frequency::{self, Frequency, FrequencyPolicy, GoalFrequency, GoalFrequencyConfig, L3fwdPower, PStates};
use policy::moderation::{
    Action, Delays, Direction, GoalModeration, GoalModerationConfig, Limits, Moderation, ModerationPolicy, NetDim,
    PeriodMode, Sample,
};
use policy::{Goal, wait};
use units::{Hertz, Instant, Nanos, Quantile, Simulated};

const RUNS: usize = 15;
const STEPS: u64 = 400_000;

fn main() {
    let goal = Some(Goal { quantile: Quantile::P99_9, latency: Nanos::from_micros(100) });
    let direction = Direction::Rx;
    let net_dim = || Moderation::NetDim(NetDim::new(direction, PeriodMode::Eqe, 0).unwrap());
    let limits = Limits { usecs: 8_160, usecs_step: 2, frames: 0 };
    let config = GoalModerationConfig { goal, direction, loss: None, limits, ends_empty: false, remaining: None };
    let goal_moderation = || Moderation::Goal(GoalModeration::new(config));
    for (name, observed) in [("delays not observed", false), ("delays observed", true)] {
        println!("dim              {name:<22} step_ns={:.1}", median(|| moderation(net_dim(), observed)));
        println!("goal-moderation  {name:<22} step_ns={:.1}", median(|| moderation(goal_moderation(), observed)));
    }
    let pstates = PStates::steps(Hertz::new(800_000_000), Hertz::new(2_200_000_000), Hertz::new(100_000_000)).unwrap();
    let platform = frequency::Platform {
        pstates,
        power: None,
        sequencing: Nanos::from_micros(500),
        stall: Nanos::from_micros(12),
    };
    let l3fwd = || Frequency::L3fwdPower(L3fwdPower::new(pstates));
    let config = GoalFrequencyConfig { goal, platform, loss: None, peak_is_stated: true };
    let goal_frequency = || Frequency::Goal(GoalFrequency::new(config));
    for (name, received) in [("empty polls", 0), ("32 frames a poll", 32)] {
        println!("l3fwd-power      {name:<22} step_ns={:.1}", median(|| frequency(l3fwd(), received)));
        println!("goal-frequency   {name:<22} step_ns={:.1}", median(|| frequency(goal_frequency(), received)));
    }
}

fn median(mut run: impl FnMut() -> f64) -> f64 {
    let mut all: Vec<f64> = (0..RUNS).map(|_| run()).collect();
    all.sort_by(f64::total_cmp);
    all[RUNS / 2]
}

/// An interrupt each 50 us, with 30 packets that were 3 to 53 us late.
fn moderation(mut policy: Moderation<Simulated>, observed: bool) -> f64 {
    let delays = Delays { packets: 30, shortest: Nanos::from_micros(3), longest: Nanos::from_micros(53) };
    let began = cpu_time();
    for step in 1..=STEPS {
        let now = Instant::from_nanos(step * 50_000);
        let (events, packets, bytes) = (step, step * 30, step * 3_000);
        let delays = observed.then_some(delays);
        let sample = Sample { now, events, packets, bytes, completions: 0, delays };
        if let Action::Apply(profile) = black_box(policy.decide(black_box(&sample))).action {
            policy.applied(now, profile);
        }
    }
    (cpu_time() - began) as f64 / STEPS as f64
}

/// Polls, each with so many frames that came in the 8 us since the one before, and cost 150 ns each.
fn frequency(mut policy: Frequency<Simulated>, received: u32) -> f64 {
    let began = cpu_time();
    for step in 1..=STEPS {
        let now = Instant::from_nanos(step * 8_000);
        let arrivals = (received > 0).then_some(wait::Arrivals::stamped(now, now, now));
        let queues = [wait::Queue { received, fill: received, arrivals }];
        let poll = wait::Observation { now, queues: &queues, ended: None };
        let busy = Nanos::from_nanos(u64::from(received) * 150);
        let seen = frequency::Observation { poll: &poll, busy, asleep: Nanos::ZERO, running: None, waiting: None };
        black_box(policy.decide(black_box(&seen)));
    }
    (cpu_time() - began) as f64 / STEPS as f64
}

/// This thread's CPU time in nanoseconds.
fn cpu_time() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
