//! Traffic that changes: from 200 ms after a change on, until 1 s after it, no more packets are late than the goal allows.

use super::*;

/// When the traffic changes: by then it is known.
const CHANGE: u64 = 2_000;
/// Counted from so long after the change, for so long, in milliseconds.
const WINDOW: (u64, u64) = (200, 800);
/// The end of the traffic.
const END: u64 = (CHANGE + 1_050) * 1_000_000;
const AT: u64 = CHANGE * 1_000_000;

/// Poisson arrivals from `from` to `to`.
fn poisson(r: &mut Random, from: u64, to: u64, rate: u64) -> Vec<u64> {
    let mut at = from;
    std::iter::from_fn(|| {
        at += r.exponential(Nanos::from_nanos(1_000_000_000 / rate)).as_nanos().max(1);
        (at < to).then_some(at)
    })
    .collect()
}

/// Bursts of `frames`, 500 ns apart, each `period(at)` after the one before, each up to `jitter` late.
fn regular(r: &mut Random, from: u64, to: u64, frames: u64, jitter: u64, period: impl Fn(u64) -> u64) -> Vec<u64> {
    let (mut at, mut all) = (from, Vec::new());
    while at < to {
        let begins = at + r.below(jitter + 1);
        all.extend((0..frames).map(|n| begins + n * 500));
        at += period(at);
    }
    all
}

/// Equal gaps at `rate` for `on`, then nothing for `off`.
fn on_off(from: u64, to: u64, rate: u64, on: u64, off: u64) -> Vec<u64> {
    let cycles = (from..to).step_by((on + off) as usize);
    cycles.flat_map(|begins| (begins..(begins + on).min(to)).step_by((1_000_000_000 / rate) as usize)).collect()
}

/// All of them in their order, the first at once.
fn merged(parts: Vec<Vec<u64>>) -> Vec<u64> {
    let mut all = parts.concat();
    all.push(0);
    all.sort_unstable();
    all
}

const MS: u64 = 1_000_000;
const US: u64 = 1_000;

type Traffic = (&'static str, u64, fn(&mut Random) -> Vec<Vec<u64>>);

/// Traffic with its highest rate.
const TRAFFIC: [Traffic; 32] = [
    ("poisson 1k to 100k", 200_000, |r| vec![poisson(r, 0, AT, 1_000), poisson(r, AT, END, 100_000)]),
    ("poisson 100k to 1k", 200_000, |r| vec![poisson(r, 0, AT, 100_000), poisson(r, AT, END, 1_000)]),
    ("poisson 200 to 20k", 40_000, |r| vec![poisson(r, 0, AT, 200), poisson(r, AT, END, 20_000)]),
    ("poisson 300k to 3k", 600_000, |r| vec![poisson(r, 0, AT, 300_000), poisson(r, AT, END, 3_000)]),
    ("poisson 3k to 300k", 600_000, |r| vec![poisson(r, 0, AT, 3_000), poisson(r, AT, END, 300_000)]),
    ("constant 1k to 100k", 100_000, |r| vec![regular(r, 0, AT, 1, 0, |_| MS), regular(r, AT, END, 1, 0, |_| 10 * US)]),
    ("constant 100k to 1k", 100_000, |r| vec![regular(r, 0, AT, 1, 0, |_| 10 * US), regular(r, AT, END, 1, 0, |_| MS)]),
    ("poisson 2k and 200k, 100 ms each, up at the end", 400_000, |r| {
        let each = |r: &mut Random, from| {
            vec![poisson(r, from, from + 100 * MS, 2_000), poisson(r, from + 100 * MS, from + 200 * MS, 200_000)]
        };
        let mut parts: Vec<Vec<u64>> = (0..10).flat_map(|n| each(r, n * 200 * MS)).collect();
        parts.push(poisson(r, AT, END, 2_000));
        parts
    }),
    ("poisson 20k to on-off 10/40 ms of 100k", 100_000, |r| {
        vec![poisson(r, 0, AT, 20_000), on_off(AT, END, 100_000, 10 * MS, 30 * MS)]
    }),
    ("poisson 2k to on-off 2/18 ms of 200k", 200_000, |r| {
        vec![poisson(r, 0, AT, 2_000), on_off(AT, END, 200_000, 2 * MS, 18 * MS)]
    }),
    ("on-off 10/40 ms of 100k to poisson 20k", 100_000, |r| {
        vec![on_off(0, AT, 100_000, 10 * MS, 30 * MS), poisson(r, AT, END, 20_000)]
    }),
    ("on-off 10/40 ms to 1/4 ms of 100k", 100_000, |_| {
        vec![on_off(0, AT, 100_000, 10 * MS, 30 * MS), on_off(AT, END, 100_000, MS, 4 * MS)]
    }),
    ("a frame each 350 us to poisson 3k", 6_000, |r| {
        vec![regular(r, 0, AT, 1, 0, |_| 350 * US), poisson(r, AT, END, 3_000)]
    }),
    ("8 each 500 us to poisson 16k", 2_000_000, |r| {
        vec![regular(r, 0, AT, 8, 5 * US, |_| 500 * US), poisson(r, AT, END, 16_000)]
    }),
    ("a frame each 2 ms to poisson 1k", 2_000, |r| {
        vec![regular(r, 0, AT, 1, 2 * US, |_| 2 * MS), poisson(r, AT, END, 1_000)]
    }),
    ("poisson 3k to a frame each 350 us", 6_000, |r| {
        vec![poisson(r, 0, AT, 3_000), regular(r, AT, END, 1, 0, |_| 350 * US)]
    }),
    ("a frame each 350 us to 470 us", 4_000, |r| {
        vec![regular(r, 0, AT, 1, 0, |_| 350 * US), regular(r, AT, END, 1, 0, |_| 470 * US)]
    }),
    ("a period of 1 ms grows by 30 % in 1 s", 2_000, |r| {
        vec![regular(r, 0, END, 1, 0, |at| MS + at.saturating_sub(AT) * 300 / 1_000_000)]
    }),
    ("a period of 1 ms shrinks by 30 % in 1 s", 2_000, |r| {
        vec![regular(r, 0, END, 1, 0, |at| MS - at.saturating_sub(AT) * 280 / 1_000_000)]
    }),
    ("a period of 350 us grows by 3 % in 1 s", 4_000, |r| {
        vec![regular(r, 0, END, 4, 2 * US, |at| 350 * US + at.saturating_sub(AT) * 10 / 1_000_000)]
    }),
    ("a period of 500 us swings by 10 %, each 200 ms", 3_000, |r| {
        vec![regular(r, 0, END, 1, 0, |at| {
            let phase = at.saturating_sub(AT) % (200 * MS);
            500 * US + phase.min(200 * MS - phase) / 2_000
        })]
    }),
    ("a second period of 1.3 ms beside 1 ms", 4_000_000, |r| {
        vec![regular(r, 0, END, 1, 0, |_| MS), regular(r, AT, END, 1, 0, |_| 1_300 * US)]
    }),
    ("a second period of 500 us beside 350 us", 4_000_000, |r| {
        vec![regular(r, 0, END, 1, 2 * US, |_| 350 * US), regular(r, AT, END, 1, 2 * US, |_| 500 * US)]
    }),
    ("a second period of 330 us beside 8 each 500 us", 4_000_000, |r| {
        vec![regular(r, 0, END, 8, 5 * US, |_| 500 * US), regular(r, AT, END, 1, 0, |_| 330 * US)]
    }),
    ("poisson 20k to two periods of 200 and 270 us", 4_000_000, |r| {
        vec![
            poisson(r, 0, AT, 20_000),
            regular(r, AT, END, 2, 0, |_| 200 * US),
            regular(r, AT, END, 1, 0, |_| 270 * US),
        ]
    }),
    ("two periods of 1 and 1.3 ms to poisson 2k", 4_000_000, |r| {
        vec![regular(r, 0, AT, 1, 0, |_| MS), regular(r, 0, AT, 1, 0, |_| 1_300 * US), poisson(r, AT, END, 2_000)]
    }),
    ("90 each 3 ms to poisson 30k", 2_000_000, |r| {
        vec![regular(r, 0, AT, 90, 20 * US, |_| 3 * MS), poisson(r, AT, END, 30_000)]
    }),
    ("poisson 30k to 90 each 3 ms", 2_000_000, |r| {
        vec![poisson(r, 0, AT, 30_000), regular(r, AT, END, 90, 20 * US, |_| 3 * MS)]
    }),
    ("90 each 3 ms to 90 at random times", 2_000_000, |r| {
        let bursts = |begins: u64| (0..90).map(move |n| begins + n * 500);
        vec![
            regular(r, 0, AT, 90, 20 * US, |_| 3 * MS),
            poisson(r, AT, END, 333).into_iter().flat_map(bursts).collect(),
        ]
    }),
    ("8 each 500 us to 40 each 2.5 ms", 2_000_000, |r| {
        vec![regular(r, 0, AT, 8, 5 * US, |_| 500 * US), regular(r, AT, END, 40, 5 * US, |_| 2_500 * US)]
    }),
    ("20 each 1 ms, jitter from 0 to 300 us", 2_000_000, |r| {
        vec![regular(r, 0, AT, 20, 0, |_| MS), regular(r, AT, END, 20, 300 * US, |_| MS)]
    }),
    ("20 each 1 ms, from then on half a period later", 2_000_000, |r| {
        vec![regular(r, 0, AT, 20, US, |_| MS), regular(r, AT + MS / 2, END, 20, US, |_| MS)]
    }),
];
/// From those that only a core that polls holds, to those that any wake-up does.
const GOALS: [&str; 10] = [
    "p99=20us",
    "p99=26us",
    "p99=35us",
    "p99=50us",
    "p99=100us",
    "p99.9=24us",
    "p99.9=30us",
    "p99.9=40us",
    "p99.9=60us",
    "p99.9=120us",
];

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (machine, nic, deepest) in MACHINES {
        for (name, peak, arrivals) in TRAFFIC {
            for goal in GOALS {
                for scales in [false, true] {
                    let arrivals: Arrivals = Arc::new(move |seed| merged(arrivals(&mut Random::stream(5, seed))));
                    cases.push(Case {
                        name: name.to_owned(),
                        machine,
                        nic,
                        deepest,
                        tables: RECORD.to_owned(),
                        arrivals: Some(arrivals),
                        frames: 0,
                        peak,
                        goal: goal.parse().unwrap(),
                        scales,
                        knows: false,
                        interrupts: true,
                        warm_up: Nanos::from_millis(CHANGE + WINDOW.0),
                        duration: Nanos::from_millis(WINDOW.1),
                    });
                }
            }
        }
    }
    cases
}

/// One in many, where the core rests no deeper than C1.
#[test]
fn after_a_change_no_more_are_late_than_allowed() {
    let slow = |case: &Case| !case.name.contains("300k") && !case.name.contains("200k");
    let cases = cases().into_iter().filter(|case| case.deepest == "C1" && slow(case)).step_by(71);
    assert_none_is_beyond(cases.collect(), 3, 20);
}

/// The worst of the table.
#[test]
#[ignore = "does not hold: up to 3.8 times as many as allowed"]
fn after_a_change_that_deep_idle_states_make_late() {
    let worst = [
        ("constant 100k to 1k", "p99=20us", "xeon-gold-6338n", false),
        ("constant 100k to 1k", "p99.9=40us", "xeon-e5-2699v3", true),
        ("90 each 3 ms to 90 at random times", "p99.9=60us", "xeon-e5-2699v3", true),
        ("poisson 300k to 3k", "p99.9=24us", "xeon-platinum-8360y", true),
        ("8 each 500 us to 40 each 2.5 ms", "p99.9=40us", "xeon-platinum-8360y", true),
        ("a frame each 350 us to poisson 3k", "p99.9=30us", "xeon-e5-2699v3", true),
    ];
    let wanted = |case: &Case| {
        let is = |(name, goal, machine, scales): &(&str, &str, &str, bool)| {
            case.name == *name
                && case.goal == goal.parse().unwrap()
                && case.machine == *machine
                && case.scales == *scales
        };
        case.deepest == "C6" && worst.iter().any(is)
    };
    let cases: Vec<Case> = cases().into_iter().filter(wanted).collect();
    assert_eq!(cases.len(), worst.len());
    let rows = spread(cases, |case| Row::of(case, 8));
    rows.iter().for_each(|row| println!("{row}"));
    assert!(rows.iter().all(|row| row.factor <= 1.0));
}

#[test]
#[ignore = "minutes: a table"]
fn table_of_changes() {
    let mut random = Random::stream(2, 0);
    let cases: Vec<Case> = cases().into_iter().filter(|_| random.chance(45_000)).collect();
    let mut rows: Vec<Row> =
        spread(cases, |case: Case| case.can_be_held().then(|| Row::of(case, 5)).inspect(|row| eprintln!("{row}")))
            .into_iter()
            .flatten()
            .collect();
    table("changes", &mut rows);
    println!("\nthe worst, by 100 ms from 100 ms before the change on, as multiples of the allowed share (all seeds):");
    for row in rows.iter().filter(|row| row.factor > 0.5).take(25) {
        let at = |n: u64| {
            let from = Nanos::from_millis(CHANGE - 100 + n * 100);
            let case = Case { warm_up: from, duration: Nanos::from_millis(100), ..row.case.clone() };
            format!("{:.1}", Row::of(case, 5).factor)
        };
        let line: Vec<String> = (0..11).map(at).collect();
        println!("{} | {} {} {}", line.join(" "), row.case.machine, row.case.goal, row.case.name);
    }
}
