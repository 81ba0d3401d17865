//! How many packets a second of the reader's time are simulated: `cargo bench -p sim`.
//!
//! Not a test: the figures depend on the machine. Each scenario runs a few times; the best one counts,
//! because whatever else the machine does only makes it slower.
#![allow(clippy::disallowed_methods)] // a benchmark reads the clock

use std::time::Instant;

use sim::scenario::Scenario;
use sim::world;

const SCENARIOS: &[(&str, &str)] = &[("poll at 14.88 Mpps", include_str!("../../../scenarios/poll-line-rate.toml"))];

fn main() {
    println!("{:<40} {:>14} {:>12}", "scenario", "packets/s", "frames");
    for (name, text) in SCENARIOS {
        let scenario = Scenario::parse(name, text, &[], &mut |_| Err("no files here".into())).expect("a scenario");
        let (mut best, mut frames) = (0.0f64, 0);
        for _ in 0..3 {
            let began = Instant::now();
            let outcome = world::run(&scenario, None).expect("a world");
            frames = outcome.offered();
            // The warm-up's frames are simulated, too.
            let all = frames as f64 * (scenario.duration + scenario.warm_up).as_nanos() as f64
                / scenario.duration.as_nanos() as f64;
            best = best.max(all / began.elapsed().as_secs_f64());
        }
        println!("{name:<40} {best:>14.0} {frames:>12}");
    }
}
