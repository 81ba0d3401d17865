use crate::support::run;
use sim::outcome::Outcome;

/// A core that receives traffic of this kind for 2 s, after 2 s of warm-up. All idle states are allowed.
fn receives(machine: &str, traffic: &str, goal: &str, limits: bool, seed: u64) -> Outcome {
    run(&format!(
        "machine = \"{machine}\"\nnic = \"82599\"\nseed = {seed}\nwarm_up = \"2s\"\nduration = \"2s\"\n[goal]\nlatency = \
         \"{goal}\"\n[[traffic]]\n{traffic}\n[queues]\nrx_descriptors = 4096\nflush = \"0us\"\n[worker]\ndriver = \
         \"user\"\nwait = \"adaptive\"\nlimits_idle = {limits}\n[moderation]\npolicy = \"off\"\n[frequency]\npolicy = \
         \"goal\"\n"
    ))
}

/// Power, late packets, packets and changes of the limit over three seeds.
fn over_seeds(machine: &str, traffic: &str, goal: &str, limits: bool) -> (u64, u64, u64, u64) {
    let runs = [1, 2, 3].map(|seed| receives(machine, traffic, goal, limits, seed));
    let sum = |of: fn(&Outcome) -> u64| runs.iter().map(of).sum::<u64>();
    let result = (
        sum(|run| run.core_power().as_microwatts()),
        sum(|run| run.goal.as_ref().expect("there is a goal").late),
        sum(Outcome::departed),
        sum(|run| run.cores[0].idle_limit_changes),
    );
    println!("{machine}, {traffic:?}, {goal}, {}: {result:?}", if limits { "limited" } else { "not limited" });
    result
}

const MACHINES: [&str; 4] = ["xeon-gold-6338n", "xeon-platinum-8260l", "xeon-platinum-8360y", "xeon-e5-2699v3"];
const POISSON: &str = "kind = \"poisson\"\nrate = \"10kpps\"";

/// Packets that wake the core from C6 are too late: without a limit, it polls or sleeps too briefly for C6.
#[test]
fn a_goal_tighter_than_the_deepest_state_takes_less_power_with_a_limit() {
    for machine in MACHINES {
        for (goal, percent) in [("p99.9=20us", 75), ("p99.9=50us", 95)] {
            let ([without, _, _, never], [with, late, packets, _]) =
                (over_seeds(machine, POISSON, goal, false).into(), over_seeds(machine, POISSON, goal, true).into());
            assert_eq!(never, 0);
            assert!(late * 1_000 <= packets, "{machine}, {goal}: {late} of {packets}");
            assert!(with * 100 < without * percent, "{machine}, {goal}: {with} and {without}");
        }
    }
}

/// Where the deepest state holds the goal, the power is about the same.
#[test]
fn a_loose_goal_takes_no_more_power() {
    for machine in MACHINES {
        let ((without, ..), (with, late, packets, _)) =
            (over_seeds(machine, POISSON, "p99.9=500us", false), over_seeds(machine, POISSON, "p99.9=500us", true));
        assert!(late * 1_000 <= packets, "{machine}: {late} of {packets}");
        assert!(with * 100 < without * 105, "{machine}: {with} and {without}");
    }
}

/// A packet each 200 ms: the core idles as deep as it can, whatever the goal.
#[test]
fn an_idle_core_is_not_limited() {
    let sparse = "kind = \"constant\"\nrate = \"5pps\"";
    for machine in MACHINES {
        let ((without, ..), (with, ..)) =
            (over_seeds(machine, sparse, "p99.9=20us", false), over_seeds(machine, sparse, "p99.9=20us", true));
        assert!(with * 100 < without * 102, "{machine}: {with} and {without}");
    }
}

/// A burst of 74 packets in each slot of about 0.5 ms: each change of the limit makes at least one whole burst late. While
/// the policy polls to make up for that, deeper states look cheap, but another trial would make more packets late.
#[test]
fn a_policy_in_debt_tries_no_deeper_states() {
    let slots = "kind = \"slots\"\nperiod = \"497.281us\"\nburst = 74\nspacing = \"68ns\"\njitter = \"10us\"";
    let (_, late, packets, _) = over_seeds("xeon-e5-2699v3", slots, "p99.9=15us", true);
    // The policy aims at three quarters of the allowed share. With trials in debt, 884 of 892,884 packets were late.
    assert!(late * 1_000 * 8 <= packets * 7, "{late} of {packets}");
}
