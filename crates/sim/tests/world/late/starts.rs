//! The first second, of a policy that knows nothing, and of one that knows what wake-ups cost here.

use super::*;

/// Starts of each case.
const STARTS: u64 = 20;

/// Traffic with its highest rate.
const TRAFFIC: [(&str, &str, u64); 11] = [
    ("poisson 5k", "kind = \"poisson\"\nrate = \"5kpps\"", 10_000),
    ("poisson 20k", "kind = \"poisson\"\nrate = \"20kpps\"", 40_000),
    ("poisson 100k", "kind = \"poisson\"\nrate = \"100kpps\"", 200_000),
    ("constant 350us", "kind = \"constant\"\nrate = \"2857pps\"", 2_857),
    ("on-off 10/40ms", "kind = \"on-off\"\nrate = \"100kpps\"\non = \"10ms\"\noff = \"40ms\"", 100_000),
    (
        "on-off 1/9ms",
        "kind = \"on-off\"\nrate = \"50kpps\"\non = \"1ms\"\noff = \"9ms\"\nlengths = \"exponential\"",
        50_000,
    ),
    (
        "slots 8/500us",
        "kind = \"slots\"\nperiod = \"500us\"\nburst = 8\nspacing = \"500ns\"\njitter = \"10us\"",
        2_000_000,
    ),
    (
        "slots 20/1ms",
        "kind = \"slots\"\nperiod = \"1ms\"\nburst = 20\nspacing = \"1us\"\njitter = \"100us\"",
        1_000_000,
    ),
    (
        "slots 90/3ms",
        "kind = \"slots\"\nperiod = \"3ms\"\nburst = 90\nspacing = \"500ns\"\njitter = \"20us\"",
        2_000_000,
    ),
    (
        "self-similar 10k",
        "kind = \"self-similar\"\nrate = \"10kpps\"\npeak = \"5kpps\"\nsources = 16\nburst = \"4ms\"\nhurst = \"0.8\"",
        80_000,
    ),
    // Nearly nothing for half a second, then all at once: what was learned of silence is of no use.
    (
        "late 100k",
        "kind = \"poisson\"\nrate = \"100pps\"\n[[traffic]]\nkind = \"poisson\"\nrate = \"100kpps\"\nstart = \"500ms\"",
        200_000,
    ),
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
        for (name, tables, peak) in TRAFFIC {
            for goal in GOALS {
                for knows in [false, true] {
                    cases.push(Case {
                        name: format!("{name} {}", if knows { "knows" } else { "cold" }),
                        machine,
                        nic,
                        deepest,
                        tables: format!("[[traffic]]\n{tables}\n"),
                        arrivals: None,
                        frames: 0,
                        peak,
                        goal: goal.parse().unwrap(),
                        scales: true,
                        knows,
                        interrupts: true,
                        warm_up: Nanos::ZERO,
                        duration: Nanos::from_secs(1),
                    });
                }
            }
        }
    }
    cases
}

/// The share of late packets of each start, as a multiple of the allowed one: the middle one and the worst.
fn multiples(row: &Row) -> (f64, f64) {
    let of = |run: &Measured| run.late_share(row.case.goal.latency) / row.case.allowed();
    let mut all: Vec<f64> = row.ours.runs.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    ((all[(all.len() - 1) / 2] + all[all.len() / 2]) / 2.0, all[all.len() - 1])
}

/// The packets of a start of which the goal allows so many late, that three times as many and one more are told apart by
/// no chance: fewer than this are too few to judge a single start by.
fn allows(row: &Row) -> f64 {
    row.ours.judged(row.case.goal.latency) as f64 / row.ours.runs.len() as f64 * row.case.allowed()
}

/// Whether the middle start makes at most half as many late again as allowed, and none three times as many.
fn holds(row: &Row) -> bool {
    let (median, most) = multiples(row);
    median <= 1.5 && most <= 3.0
}

/// One in many, where the core rests no deeper than C1.
#[test]
fn the_first_second_makes_hardly_more_late_than_allowed() {
    let slow = |case: &Case| !case.name.contains("100k");
    let cases = cases().into_iter().filter(|case| case.deepest == "C1" && slow(case)).step_by(61);
    let judged = spread(cases.collect(), |case: Case| case.can_be_held().then(|| Row::of(case, STARTS)));
    let rows: Vec<Row> = judged.into_iter().flatten().collect();
    assert!(rows.len() >= 8, "only {} goals can be held at all", rows.len());
    let wrong = rows.iter().filter(|row| !holds(row)).map(|row| format!("{:?} {row}", multiples(row)));
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}

/// Where interrupts are too late for the goal: who knows that makes no more late by them than the goal allows, anywhere, and over all
/// no more than a twentieth more than who has to learn it: both come near what the goal allows, and a count of 560 has a
/// standard deviation of 24.
#[test]
fn who_knows_what_wake_ups_cost_makes_no_more_late_than_who_has_to_learn_it() {
    let late = |machine: &str, name: &str| {
        let is_it = |case: &Case| {
            case.name == name
                && case.goal == "p99=35us".parse().unwrap()
                && (case.machine, case.deepest) == (machine, "C6")
        };
        let case = cases().into_iter().find(is_it).unwrap();
        let case = Case { scales: false, duration: Nanos::from_millis(200), ..case };
        let tried = case.tried(STARTS, "adaptive");
        (tried.late(case.goal.latency), tried.judged(case.goal.latency))
    };
    let mut all = (0, 0);
    for machine in ["xeon-platinum-8360y", "xeon-gold-6338n"] {
        for traffic in ["constant 350us", "on-off 1/9ms"] {
            let (cold, _) = late(machine, &format!("{traffic} cold"));
            let (knows, packets) = late(machine, &format!("{traffic} knows"));
            let place = format!("{machine}, {traffic}: {knows} of {packets} of those who know, {cold} cold");
            println!("{place}");
            assert!(knows * 100 <= packets, "{place}");
            all = (all.0 + knows, all.1 + cold);
        }
    }
    assert!(all.0 * 20 <= all.1 * 21, "{} of those who know, {} cold", all.0, all.1);
}

/// The worst of the table.
#[test]
#[ignore = "does not hold: up to 14 times as many as allowed; a new policy blocks until the third burst, and its first \
            forecasts are trusted too much"]
fn the_first_second_where_a_wake_up_makes_bursts_late() {
    let worst = [
        ("slots 90/3ms cold", "p99.9=24us", "xeon-e5-2699v3"),
        ("on-off 1/9ms cold", "p99.9=30us", "xeon-platinum-8360y"),
        ("slots 90/3ms knows", "p99.9=60us", "xeon-platinum-8360y"),
        ("slots 20/1ms knows", "p99.9=24us", "xeon-gold-6338n"),
        ("slots 20/1ms knows", "p99.9=30us", "xeon-platinum-8360y"),
        ("self-similar 10k cold", "p99.9=30us", "xeon-e5-2699v3"),
    ];
    let wanted = |case: &Case| {
        let is = |(name, goal, machine): &(&str, &str, &str)| {
            case.name == *name && case.goal == goal.parse().unwrap() && case.machine == *machine
        };
        case.deepest == "C6" && worst.iter().any(is)
    };
    let cases: Vec<Case> = cases().into_iter().filter(wanted).collect();
    assert_eq!(cases.len(), worst.len());
    let rows = spread(cases, |case| Row::of(case, STARTS));
    rows.iter().for_each(|row| println!("{:?} {row}", multiples(row)));
    assert!(rows.iter().all(holds));
}

#[test]
#[ignore = "minutes: a table"]
fn table_of_first_seconds() {
    let mut random = Random::stream(1, 0);
    let cases: Vec<Case> = cases().into_iter().filter(|_| random.chance(120_000)).collect();
    let rows: Vec<Row> = spread(cases, |case: Case| {
        case.can_be_held().then(|| Row::of(case, STARTS)).inspect(|row| eprintln!("{:?} {row}", multiples(row)))
    })
    .into_iter()
    .flatten()
    .collect();
    let mut told: Vec<(f64, f64, f64, &Row)> = rows
        .iter()
        .map(|row| {
            let (median, most) = multiples(row);
            (median, most, allows(row), row)
        })
        .collect();
    let bad = |t: &(f64, f64, f64, &Row)| t.0 > 1.5 || t.1 > 3.0;
    told.sort_by(|a, b| bad(b).cmp(&bad(a)).then((b.1 / 3.0).max(b.0 / 1.5).total_cmp(&(a.1 / 3.0).max(a.0 / 1.5))));
    for knows in [false, true] {
        let of = || told.iter().filter(|t| t.3.case.knows == knows);
        let (above_median, above_most) = (of().filter(|t| t.0 > 1.5).count(), of().filter(|t| t.1 > 3.0).count());
        let enough = of().filter(|t| t.1 > 3.0 && t.2 >= 5.0).count();
        println!(
            "## starts, knows {knows}: {} cases; median above 1.5: {above_median}; worst above 3: {above_most}, of which \
             {enough} where the goal allows 5 late or more in the second",
            of().count()
        );
    }
    println!("verdict median worst (late allowed a start) | mean over starts");
    for t in &told {
        let (median, most, allows, row) = t;
        println!("{} {median:5.2} {most:6.2} ({allows:6.1}) | {row}", if bad(t) { "NO " } else { "yes" });
    }
}
