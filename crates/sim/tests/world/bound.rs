use proptest::prelude::*;
use sim::bound::{self, Bound, Why};
use sim::goals::{Files, MACHINES, full_rate};
use sim::outcome::{GoalOutcome, Outcome};
use sim::scenario::Scenario;
use sim::world;

use crate::support::scenario;

/// Packets of a case, about: so few that all modes take little time.
const PACKETS: u64 = 6_000;
const LOWEST_FREQUENCY: &str = "policy = \"l3fwd-power\"";

/// The modes, with who chooses the frequency.
const MODES: [(&str, &str); 9] = [
    ("driver = \"user\"\nwait = \"adaptive\"", "policy = \"goal\""),
    ("driver = \"user\"\nwait = \"interrupt\"", "policy = \"fixed\""),
    ("driver = \"user\"\nwait = \"interrupt\"", "policy = \"powersave\""),
    ("driver = \"user\"\nwait = \"backoff\"\nsleep_max = \"20us\"", "policy = \"fixed\""),
    ("driver = \"user\"\nwait = \"backoff\"\nsleep_max = \"50us\"", "policy = \"powersave\""),
    ("driver = \"user\"\nwait = \"backoff\"\nsleep_max = \"100us\"", "policy = \"powersave\""),
    ("driver = \"user\"\nwait = \"hybrid300\"", LOWEST_FREQUENCY),
    ("driver = \"user\"\nwait = \"poll\"", "policy = \"powersave\""),
    ("driver = \"user\"\nwait = \"poll\"", "policy = \"toggle\"\nevery = \"500us\""),
];
/// The kernel's way, with its own prices.
const KERNEL: [(&str, &str); 2] = [
    ("driver = \"kernel\"\nforward = true", "policy = \"powersave\""),
    ("driver = \"kernel\"\nforward = true", "policy = \"schedutil\""),
];

#[derive(Clone, Debug)]
struct Case {
    machine: usize,
    deepest: &'static str,
    traffic: String,
    goal: String,
    duration_us: u64,
    seed: u64,
}

impl Case {
    fn text(&self, (worker, frequency): (&str, &str)) -> String {
        let (machine, nic) = MACHINES[self.machine];
        let Self { deepest, traffic, goal, duration_us, seed, .. } = self;
        format!(
            "machine = \"{machine}\"\nnic = \"{nic}\"\nseed = {seed}\nwarm_up = \"20ms\"\nduration = \
             \"{duration_us}us\"\n[goal]\nlatency = \"{goal}\"\n[[traffic]]\n{traffic}\n[queues]\nrx_descriptors = \
             4096\ntx_descriptors = 4096\n[worker]\n{worker}\n[moderation]\npolicy = \"off\"\n[frequency]\n{frequency}\n[idle]\ndeepest \
             = \"{deepest}\"\n"
        )
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let quantile = prop::sample::select(vec!["p90", "p99", "p99.9"]);
    // Loads from 0.01 to 90 %, evenly over the decades.
    (0..MACHINES.len(), any::<bool>(), 0usize..5, 0u32..=395, quantile, 12u64..200, 1u64..1_000).prop_map(
        |(machine, deep, kind, decade, quantile, latency, seed)| {
            let full = full_rate(MACHINES[machine].0, MACHINES[machine].1, &Files::new()).unwrap();
            let rate = (full as f64 * 1e-4 * 10f64.powf(f64::from(decade) / 100.0)) as u64;
            let burst = (rate * 4).min(full);
            let traffic = match kind {
                0 | 1 => format!("kind = \"poisson\"\nrate = \"{rate}pps\""),
                2 => format!("kind = \"on-off\"\nrate = \"{burst}pps\"\non = \"500us\"\noff = \"2ms\""),
                3 => format!("kind = \"constant\"\nrate = \"{rate}pps\""),
                _ => {
                    let period = (1_000_000 * 4 / rate.max(1)).max(50);
                    format!("kind = \"slots\"\nperiod = \"{period}us\"\nburst = 4\nspacing = \"1us\"\njitter = \"5us\"")
                }
            };
            let duration_us = (PACKETS * 1_000_000 / rate).clamp(3_000, 400_000);
            let deepest = if deep { "C6" } else { "C1" };
            Case { machine, deepest, traffic, goal: format!("{quantile}={latency}us"), duration_us, seed }
        },
    )
}

pub fn holds(outcome: &Outcome) -> bool {
    let GoalOutcome { goal, packets, late, .. } = outcome.goal.unwrap();
    let share = u128::from(goal.quantile.above_ppm());
    packets > 0 && u128::from(late) * 1_000_000 <= u128::from(packets) * share
}

/// The modes that hold the goal draw at least the bound: those that do, as multiples.
fn checked(case: &Case, modes: &[(&str, &str)]) -> Result<Vec<f64>, TestCaseError> {
    let read = |mode| -> Scenario { scenario(&case.text(mode)) };
    let bound = bound::least_power(&read(modes[0]), None);
    let mut multiples = Vec::new();
    prop_assert_eq!(&bound::least_power(&read(modes[1]), None), &bound, "it depends on the mode");
    for mode in modes {
        let scenario = read(*mode);
        let outcome = world::run(&scenario, None).unwrap();
        match &bound {
            Ok(bound) => {
                prop_assert_eq!(bound.packets, outcome.offered(), "other arrivals");
                let power = outcome.core_power();
                prop_assert!(!holds(&outcome) || power >= bound.power, "{mode:?} draws {power:?}: {bound:?} {case:?}");
                if holds(&outcome) {
                    multiples.push(bound.multiple(power));
                }
            }
            Err(Why::Impossible { .. }) => prop_assert!(!holds(&outcome), "{mode:?} holds it: {bound:?} {case:?}"),
            Err(why) => return Err(TestCaseError::fail(format!("{why}: {case:?}"))),
        }
    }
    Ok(multiples)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever the machine, the idle limit, the traffic, the load and the goal.
    #[test]
    fn no_mode_that_holds_the_goal_draws_less(case in cases()) {
        checked(&case, &MODES)?;
    }

    #[test]
    fn nor_does_the_kernel(case in cases()) {
        checked(&case, &KERNEL)?;
    }
}

fn fixed(traffic: &str, deepest: &'static str, goal: &str) -> Case {
    let (traffic, goal) = (traffic.to_owned(), goal.to_owned());
    Case { machine: 3, deepest, traffic, goal, duration_us: 300_000, seed: 1 }
}

/// It is of use: some mode comes near it, at low, middle and high loads.
#[test]
fn the_best_mode_comes_near() {
    for (traffic, goal, at_most) in [
        ("kind = \"poisson\"\nrate = \"1kpps\"", "p99=100us", 1.1),
        ("kind = \"poisson\"\nrate = \"20kpps\"", "p99=100us", 1.6),
        ("kind = \"constant\"\nrate = \"100kpps\"", "p99=100us", 1.6),
        ("kind = \"poisson\"\nrate = \"7Mpps\"", "p99=100us", 1.3),
    ] {
        let multiples = checked(&fixed(traffic, "C1", goal), &MODES).unwrap();
        let best = multiples.into_iter().fold(f64::INFINITY, f64::min);
        assert!((1.0..at_most).contains(&best), "{traffic} {goal}: the best is {best}");
    }
}

fn least(case: &Case) -> Result<Bound, Why> {
    bound::least_power(&scenario(&case.text(MODES[0])), None)
}

/// Looser goals and deeper idle states never need more; more packets never need less.
#[test]
fn it_goes_the_right_way() {
    let traffic = |rate| format!("kind = \"poisson\"\nrate = \"{rate}pps\"");
    let power = |rate, deepest, goal: &str| least(&fixed(&traffic(rate), deepest, goal)).unwrap().power;
    assert!(power(20_000, "C1", "p99.9=30us") >= power(20_000, "C1", "p99=30us"));
    assert!(power(20_000, "C1", "p99=30us") > power(20_000, "C1", "p99=100us"));
    assert!(power(20_000, "C1", "p99=100us") > power(1_000, "C1", "p99=100us"));
    assert!(power(1_000, "C1", "p99=100us") > power(1_000, "C6", "p99=100us"));
}

#[test]
fn where_there_is_none_it_says_why() {
    let case = fixed("kind = \"poisson\"\nrate = \"20kpps\"", "C1", "p99=2us");
    assert!(matches!(least(&case), Err(Why::Impossible { late, allowed }) if late > allowed));
    let case = fixed("kind = \"request\"\nconnections = 4\ndistance = \"10us\"", "C1", "p99=50us");
    assert_eq!(least(&case), Err(Why::Closed));
    let text = fixed("kind = \"poisson\"\nrate = \"20kpps\"", "C1", "p99=50us").text(MODES[0]);
    let without = |from: &str, to: &str| bound::least_power(&scenario(&text.replace(from, to)), None);
    assert_eq!(without("[moderation]", "[vm]\n[moderation]"), Err(Why::Guest));
    assert_eq!(without("[moderation]", "[scheduler]\nbackground = true\n[moderation]"), Err(Why::Background));
    assert_eq!(without("wait = \"adaptive\"", "cores = 3\nwait = \"metronome\""), Err(Why::Shared));
    let no_goal = text.replace("[goal]\nlatency = \"p99=50us\"\n", "").replace("\"adaptive\"", "\"poll\"");
    let no_goal = no_goal.replace("policy = \"goal\"", "policy = \"fixed\"");
    assert_eq!(bound::least_power(&scenario(&no_goal), None), Err(Why::NoGoal));
}
