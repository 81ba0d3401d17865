//! How many packets a second of the reader's time are simulated: `cargo bench -p sim`.
//!
//! Not a test: the figures depend on the machine. Each scenario runs a few times; the best one counts,
//! because whatever else the machine does only makes it slower.
#![allow(clippy::disallowed_methods)] // a benchmark reads the clock

use std::time::Instant;

use sim::scenario::Scenario;
use sim::strict::Override;
use sim::world;

const LINE_RATE: &str = include_str!("../../../scenarios/poll-line-rate.toml");

/// Names, texts, and what stands in for what they say. Nanoseconds a packet must not grow with the cores.
const SCENARIOS: &[(&str, &str, &[&str])] = &[
    ("poll at 14.88 Mpps", LINE_RATE, &[]),
    ("the same, 4 cores", LINE_RATE, &["worker.cores=4", "queues.count=4"]),
    ("the same, 16 cores", LINE_RATE, &["worker.cores=16", "queues.count=16"]),
    ("the same, 32 cores", LINE_RATE, &["worker.cores=32", "queues.count=32"]),
    ("the same, 256 cores", LINE_RATE, &["worker.cores=256", "queues.count=256"]),
    ("adaptive, 16 cores", LINE_RATE, &["worker.cores=16", "queues.count=16", "worker.wait=adaptive"]),
];

fn main() {
    println!("{:<24} {:>14} {:>12} {:>12} {:>14}", "scenario", "packets/s", "ns/packet", "frames", "steps/packet");
    for (name, text, instead) in SCENARIOS {
        let instead: Vec<Override> = instead.iter().map(|text| text.parse().expect("KEY=VALUE")).collect();
        let scenario = Scenario::parse(name, text, &instead, &mut |_| Err("no files here".into())).expect("a scenario");
        // The warm-up's frames are simulated, too.
        let share = (scenario.duration + scenario.warm_up).as_nanos() as f64 / scenario.duration.as_nanos() as f64;
        let (mut best, mut frames, mut steps) = (0.0f64, 0, 0.0);
        for _ in 0..3 {
            let began = Instant::now();
            let outcome = world::run(&scenario, None).expect("a world");
            frames = outcome.offered();
            let all = frames as f64 * share;
            best = best.max(all / began.elapsed().as_secs_f64());
            steps = outcome.steps as f64 / all;
        }
        println!("{name:<24} {best:>14.0} {:>12.0} {frames:>12} {steps:>14.2}", 1e9 / best);
    }
}
