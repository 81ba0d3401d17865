//! Stationary arrivals: in the long run no more packets are late than the goal allows, if polling holds it with room.

use super::*;

/// Worlds of the table.
const WORLDS: u64 = 400;

/// The same number is the same world.
fn random_world(number: u64) -> Case {
    let mut random = Random::stream(12, number);
    let r = &mut random;
    let (machine, nic, deepest) = one(r, &MACHINES);
    let rate = scaled(r, 200.0, 300_000.0);
    let quantile = one(r, &["p99", "p99.9"]);
    let goal: Goal = format!("{quantile}={}us", scaled(r, 15.0, 500.0) as u64).parse().unwrap();
    let (kind, tables, peak) = traffic(r, rate as u64);
    // The goal allows 12 late packets a seed.
    let packets = 12.0 / (f64::from(goal.quantile.above_ppm()) / 1e6);
    let duration = Nanos::from_micros((packets / rate * 1e6) as u64).clamp(Nanos::from_secs(1), Nanos::from_secs(40));
    Case {
        name: format!("#{number} {kind} {} pps", rate as u64),
        machine,
        nic,
        deepest,
        tables,
        arrivals: None,
        frames: (rate * duration.as_nanos() as f64 / 1e9) as u64,
        peak: if r.chance(500_000) { peak } else { 8_000_000 },
        goal,
        scales: r.chance(500_000),
        knows: false,
        interrupts: r.chance(850_000),
        warm_up: Nanos::from_secs(1),
        duration,
    }
}

fn traffic(r: &mut Random, rate: u64) -> (String, String, u64) {
    let kind = one(r, &["poisson", "constant", "on-off", "slots", "self-similar"]);
    let (text, peak) = match kind {
        "on-off" => {
            let (share, cycle) = (scaled(r, 0.05, 0.8), scaled(r, 1e6, 45e6));
            let peak = (rate as f64 / share) as u64;
            let (on, off) = ((cycle * share) as u64, (cycle * (1.0 - share)) as u64);
            let lengths = one(r, &["fixed", "exponential"]);
            let text = format!("rate = \"{peak}pps\"\non = \"{on}ns\"\noff = \"{off}ns\"\nlengths = \"{lengths}\"\n");
            (text, peak)
        }
        "slots" => {
            let period = scaled(r, 1e5, 1e7) as u64;
            let burst = (rate * period / 1_000_000_000).max(1);
            let period = burst * 1_000_000_000 / rate;
            let spacing = (period / burst / 4).min(scaled(r, 150.0, 5_000.0) as u64);
            let jitter = scaled(r, 10.0, (period / 8) as f64) as u64;
            let text = format!(
                "period = \"{period}ns\"\nburst = {burst}\nspacing = \"{spacing}ns\"\njitter = \"{jitter}ns\"\n"
            );
            (text, 1_000_000_000 / spacing.max(1))
        }
        "self-similar" => {
            let sources = 4 + r.below(28);
            let each = (rate / sources + 1) * (2 + r.below(8));
            let (burst, hurst) = (scaled(r, 1e6, 2e7) as u64, 550 + r.below(400));
            let text = format!(
                "rate = \"{rate}pps\"\npeak = \"{each}pps\"\nsources = {sources}\nburst = \"{burst}ns\"\nhurst = \"0.{hurst}\"\n"
            );
            (text, each * sources)
        }
        _ => (format!("rate = \"{rate}pps\"\n"), rate * 2),
    };
    let tables = format!("[[traffic]]\nkind = \"{kind}\"\n{text}");
    (kind.to_owned(), tables, peak.clamp(1_000, 8_000_000))
}

/// Those that take little time to simulate.
#[test]
fn in_the_long_run_no_more_are_late_than_allowed() {
    let short = |case: &Case| case.duration <= Nanos::from_secs(8) && case.frames <= 20_000;
    let cases = (0..WORLDS).map(random_world).filter(short).take(30);
    assert_none_is_beyond(cases.collect(), 5, 25);
}

/// Bursts that one wake-up too late makes late as a whole: 91 frames each 2.7 ms, 141 each 9.6 ms, 1,263 each 7 ms.
#[test]
#[ignore = "does not hold: 2.7, 5.1 and 4.5 times as many as allowed; a try costs more than what may be owed"]
fn a_try_that_makes_a_burst_late_is_paid_for() {
    // Of so few tries in a second, five seconds.
    let world = |number| Case { duration: Nanos::from_secs(5), ..random_world(number) };
    let rows = spread([290, 40, 100].map(world).to_vec(), |case| Row::of(case, 3));
    rows.iter().for_each(|row| println!("{row}"));
    assert!(rows.iter().all(|row| row.factor <= 1.0));
}

#[test]
#[ignore = "minutes: a table"]
fn table_of_random_worlds() {
    let cases = (0..WORLDS).map(random_world).collect();
    let mut rows: Vec<Row> =
        spread(cases, |case: Case| case.can_be_held().then(|| Row::of(case, 5)).inspect(|row| eprintln!("{row}")))
            .into_iter()
            .flatten()
            .collect();
    table("stationary", &mut rows);
}
