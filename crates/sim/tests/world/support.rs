use std::fmt::Write as _;
use std::path::Path;

use sim::outcome::{Drop, Outcome, Term};
use sim::scenario::Scenario;
use sim::world;
use units::Quantile;

/// Reads a scenario; these are the files that it may name.
pub fn scenario(text: &str) -> Scenario {
    let mut load = |name: &str| match name {
        "machine.toml" => Ok(include_bytes!("machine.toml").to_vec()),
        "four.csv" => Ok(b"time_ns,octets\n0,64\n2000,64\n250000,1518\n400000,64\n".to_vec()),
        _ => Err("there is no such file".to_owned()),
    };
    Scenario::parse("test.toml", text, &[], &mut load).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Reads a scenario's file.
pub fn folder_scenario(path: &Path) -> Scenario {
    let text = std::fs::read_to_string(path).unwrap();
    let mut load = |name: &str| std::fs::read(path.with_file_name(name)).map_err(|error| error.to_string());
    Scenario::parse(&path.display().to_string(), &text, &[], &mut load).unwrap_or_else(|error| panic!("{error}"))
}

/// Reads and runs it.
pub fn run(text: &str) -> Outcome {
    world::run(&scenario(text), None).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// All that an outcome says, in lines.
pub fn summary(outcome: &Outcome) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "seed {}, {}", outcome.seed, outcome.duration);
    for (number, queue) in outcome.queues.iter().enumerate() {
        let dropped: Vec<String> =
            Drop::ALL.into_iter().map(|why| format!("{} {}", why.name(), queue.dropped[why as usize])).collect();
        let _ = writeln!(
            text,
            "queue {number}: offered {}, departed {}, {}, in flight {}, interrupts {}",
            queue.offered,
            queue.departed,
            dropped.join(", "),
            queue.in_flight,
            queue.interrupts
        );
        if let Some(moderated) = &queue.moderation {
            let _ = writeln!(text, "  profiles {:?}, {} changes", moderated.profiles, moderated.changes);
        }
    }
    let shown = |quantile| outcome.latency.quantile(quantile).map_or("-".to_owned(), |span| span.to_string());
    let latency = &outcome.latency;
    let _ = writeln!(
        text,
        "latency: least {:?}, mean {:?}, p50 {}, p99 {}, p99.9 {}, most {:?}",
        latency.least(),
        latency.mean(),
        shown(Quantile::P50),
        shown(Quantile::P99),
        shown(Quantile::P99_9),
        latency.most()
    );
    for term in Term::ALL {
        let read = outcome.term(term);
        let p99 = read.quantile(Quantile::P99);
        let _ = writeln!(text, "  {}: mean {:?}, p99 {p99:?}, most {:?}", term.name(), read.mean(), read.most());
    }
    for core in &outcome.cores {
        let _ = writeln!(
            text,
            "core: polls {}, empty {}, woken {}, frequency changes {} of {} requests",
            core.polls, core.empty_polls, core.wakeups, core.frequency_changes, core.frequency_requests
        );
        let _ = writeln!(text, "  waits {:?}, reasons {:?}", core.waits, core.reasons);
        for entry in &core.book.entries {
            let mhz = entry.frequency.as_hertz() / 1_000_000;
            let _ = writeln!(text, "  {:?} at {mhz} MHz: {} at {:?}", entry.activity, entry.time, entry.power);
        }
    }
    let _ = writeln!(text, "package: {:?}", outcome.package);
    if let Some(goal) = &outcome.goal {
        let _ = writeln!(text, "goal {}: {:?}, {} late of {}", goal.goal, goal.verdict, goal.late, goal.packets);
    }
    text
}
