//! How far the modes lie above the least power possible: machines x idle limits x traffic x goals.
//!
//! ```text
//! cargo run -p sim --example bound
//! ```
//! One line a case: the bound, each mode that held the goal as a multiple of it, and the best; then the distribution.
use sim::bound::{self, Why};
use sim::machine::Machine;
use sim::outcome::Verdict;
use sim::scenario::Scenario;
use sim::world;

const MACHINES: [(&str, &str); 2] = [("xeon-platinum-8260l", "xl710"), ("xeon-gold-6338n", "82599")];
const MODES: [(&str, &str, &str); 7] = [
    ("adaptive", "wait = \"adaptive\"", "policy = \"goal\""),
    ("interrupt", "wait = \"interrupt\"", "policy = \"fixed\""),
    ("interrupt, lowest", "wait = \"interrupt\"", "policy = \"fixed\"\nat = \"LOWEST\""),
    ("backoff 20us, lowest", "wait = \"backoff\"\nsleep_max = \"20us\"", "policy = \"fixed\"\nat = \"LOWEST\""),
    ("backoff 50us, lowest", "wait = \"backoff\"\nsleep_max = \"50us\"", "policy = \"fixed\"\nat = \"LOWEST\""),
    ("l3fwd-power", "wait = \"hybrid300\"", "policy = \"l3fwd-power\""),
    ("poll, lowest", "wait = \"poll\"", "policy = \"fixed\"\nat = \"LOWEST\""),
];

fn main() {
    let mut best_of: Vec<f64> = Vec::new();
    let mut ours: Vec<f64> = Vec::new();
    for (machine, nic) in MACHINES {
        let full = sim::goals::full_rate(machine, nic, &sim::goals::Files::new()).expect("the machine is built in");
        let processor = Machine::named(machine).expect("the machine is built in");
        let lowest = processor.processor().expect("a processor").pstates.lowest.as_hertz() / 1_000_000;
        for deepest in ["C1", "C6"] {
            for load_ppm in [100, 1_000, 10_000, 100_000, 500_000, 900_000] {
                let rate = full * load_ppm / 1_000_000;
                // About 100,000 packets, and more where the policies need the time to learn.
                let duration = &format!("{}ms", (100_000_000 / rate).clamp(50, 500));
                for (kind, traffic) in [
                    ("poisson", format!("kind = \"poisson\"\nrate = \"{rate}pps\"")),
                    (
                        "on-off",
                        format!(
                            "kind = \"on-off\"\nrate = \"{}pps\"\non = \"1ms\"\noff = \"4ms\"",
                            (rate * 5).min(full)
                        ),
                    ),
                    ("constant", format!("kind = \"constant\"\nrate = \"{rate}pps\"")),
                ] {
                    for goal in ["p99.9=20us", "p99.9=50us", "p99=100us"] {
                        case(
                            &Case {
                                machine,
                                nic,
                                deepest,
                                load_ppm,
                                kind,
                                traffic: &traffic,
                                goal,
                                duration,
                                lowest,
                                rate,
                                full,
                            },
                            &mut best_of,
                            &mut ours,
                        );
                    }
                }
            }
        }
    }
    distribution("best of modes", best_of);
    distribution("adaptive, where it held", ours);
}

struct Case<'a> {
    machine: &'a str,
    nic: &'a str,
    deepest: &'a str,
    load_ppm: u64,
    kind: &'a str,
    traffic: &'a str,
    goal: &'a str,
    duration: &'a str,
    lowest: u64,
    rate: u64,
    full: u64,
}

fn case(case: &Case<'_>, best_of: &mut Vec<f64>, ours: &mut Vec<f64>) {
    let Case { machine, nic, deepest, load_ppm, kind, traffic, goal, duration, lowest, rate, full } = *case;
    let peak = if kind == "on-off" { (rate * 5).min(full) } else { (rate * 2).min(full) };
    let scenario = |wait: &str, frequency: &str| {
        let text = format!(
            "machine = \"{machine}\"\nnic = \"{nic}\"\nwarm_up = \"100ms\"\nduration = \"{duration}\"\n[goal]\nlatency = \
             \"{goal}\"\nloss = \"0%\"\npeak = \"{peak}pps\"\n[[traffic]]\n{traffic}\n[queues]\nrx_descriptors = \
             4096\ntx_descriptors = 4096\nflush = \"0us\"\n[worker]\ndriver = \"user\"\n{wait}\n[moderation]\npolicy = \
             \"off\"\n[frequency]\n{frequency}\n[idle]\ndeepest = \"{deepest}\"\n"
        );
        let text = text.replace("LOWEST", &format!("{lowest}MHz"));
        Scenario::parse("case", &text, &[], &mut |_| Err("no files".into())).unwrap_or_else(|error| panic!("{error}"))
    };
    let head = format!("{machine} {deepest} {:.2}% {kind} {goal}", load_ppm as f64 / 1e4);
    let bound = match bound::least_power(&scenario(MODES[0].1, MODES[0].2), None) {
        Ok(bound) => bound,
        Err(why @ Why::Impossible { .. }) => return println!("{head}: {why}"),
        Err(why) => panic!("{head}: {why}"),
    };
    let mut held: Vec<(f64, &str)> = Vec::new();
    for (name, wait, frequency) in MODES {
        let outcome = world::run(&scenario(wait, frequency), None).unwrap_or_else(|error| panic!("{error}"));
        if outcome.goal.is_none_or(|goal| goal.verdict != Verdict::Held) {
            continue;
        }
        let multiple = bound.multiple(outcome.core_power());
        held.push((multiple, name));
        if name == "adaptive" {
            ours.push(multiple);
        }
    }
    held.sort_by(|a, b| a.0.total_cmp(&b.0));
    best_of.extend(held.first().map(|(multiple, _)| *multiple));
    let shown: Vec<String> = held.iter().map(|(multiple, name)| format!("{name} {multiple:.3}")).collect();
    let below = if held.first().is_some_and(|(multiple, _)| *multiple < 1.0) { "BELOW THE BOUND " } else { "" };
    println!(
        "{below}{head}: least {:.3} W ({}), {}",
        bound.power.as_microwatts() as f64 / 1e6,
        bound.by.name(),
        shown.join(", ")
    );
}

fn distribution(name: &str, mut multiples: Vec<f64>) {
    multiples.sort_by(f64::total_cmp);
    let at =
        |part: f64| multiples.get(((multiples.len() as f64 * part) as usize).min(multiples.len().saturating_sub(1)));
    println!(
        "{name}: n {}, least {:?}, 10 % {:?}, median {:?}, 90 % {:?}, most {:?}",
        multiples.len(),
        at(0.0),
        at(0.1),
        at(0.5),
        at(0.9),
        at(1.0)
    );
}
