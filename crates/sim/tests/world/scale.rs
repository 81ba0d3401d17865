use sim::outcome::Outcome;

use crate::support::{run, summary};

/// Frames a second and core: so few that a core mostly waits.
const RATE: u64 = 40_000;

/// One stream over all queues, one queue a core.
fn cores(count: u64, milliseconds: u64, sections: &str) -> Outcome {
    run(&format!(
        "machine = \"machine.toml\"\nwarm_up = \"1ms\"\nduration = \"{milliseconds}ms\"\n[[traffic]]\nkind = \"poisson\"\nrate = \
         \"{}pps\"\n[queues]\ncount = {count}\n{}",
        count * RATE,
        sections.replace("COUNT", &count.to_string())
    ))
}

fn steps_per_frame(outcome: &Outcome) -> f64 {
    outcome.steps as f64 / outcome.offered() as f64
}

const POLL: &str = "[worker]\ndriver = \"user\"\nwait = \"poll\"\ncores = COUNT\n";

/// Before, each frame woke all cores that polled, and each step of a core looked at all armed queues.
#[test]
fn a_frame_costs_the_same_work_with_any_number_of_cores() {
    let ways = [
        ("poll", POLL, 4, 6.0),
        (
            "interrupt",
            "[worker]\ndriver = \"user\"\nwait = \"interrupt\"\ncores = COUNT\n[moderation]\npolicy = \"off\"\n[idle]\ndeepest = \"C1\"",
            4,
            16.0,
        ),
        (
            "kernel",
            "[worker]\ndriver = \"kernel\"\ncores = COUNT\n[moderation]\npolicy = \"static\"\ndelay = \"8us\"",
            4,
            20.0,
        ),
        // So loose a goal that hardly a core has to poll until it has learned more. Those few poll often: among 16 cores, chance
        // decides how many they are.
        (
            "adaptive",
            "[worker]\ndriver = \"user\"\nwait = \"adaptive\"\ncores = COUNT\n[goal]\nlatency = \"p99=500us\"\n[idle]\ndeepest = \"C1\"",
            64,
            60.0,
        ),
    ];
    for (name, sections, least, most) in ways {
        let few = steps_per_frame(&cores(least, 10, sections));
        for count in [16, 64, 128, 256].into_iter().filter(|count| *count > least) {
            let outcome = cores(count, 10, sections);
            let many = steps_per_frame(&outcome);
            assert!(
                many < few * 1.15 && many < most,
                "{name}: {few:.2} steps a frame with {least} cores, {many:.2} with {count}"
            );
            assert_eq!((outcome.cores.len() as u64, outcome.lost()), (count, 0), "{name}");
        }
    }
}

/// A stream for each core: the next frame of many streams is found without asking all of them.
#[test]
fn many_streams_and_more_cores_than_a_package_has() {
    let streams = |count: u64| {
        let traffic: String = (1..count)
            .map(|queue| format!("[[traffic]]\nkind = \"constant\"\nrate = \"10kpps\"\nqueue = {queue}\n"))
            .collect();
        format!("{POLL}{traffic}")
    };
    let outcome = cores(128, 5, &streams(128));
    assert_eq!(outcome.offered(), outcome.departed() + outcome.in_flight(), "{}", summary(&outcome));
    assert!(steps_per_frame(&outcome) < 6.0, "{}", steps_per_frame(&outcome));
    // machine.toml's package has 32 cores: four packages, each with its uncore, and no core that is not simulated.
    assert_eq!(outcome.package.others, 0);
    let one = cores(1, 5, POLL);
    assert_eq!(outcome.package.uncore, 4 * one.package.uncore);
}

/// With several cores, polls that find nothing are counted when their time is over, not ahead of it.
#[test]
fn a_core_polls_as_often_beside_others_as_alone() {
    let only = "[worker]\ndriver = \"user\"\nwait = \"poll\"\ncores = COUNT\n[scheduler]\ndisturbance = false\n";
    let text = |count: u64| {
        format!(
            "machine = \"machine.toml\"\nwarm_up = \"1ms\"\nduration = \"20ms\"\n[[traffic]]\nkind = \"constant\"\nrate = \
             \"100kpps\"\nqueue = 0\n[queues]\ncount = {count}\n{}",
            only.replace("COUNT", &count.to_string())
        )
    };
    let (alone, beside) = (run(&text(1)), run(&text(3)));
    assert_eq!(
        (alone.cores[0].polls, alone.cores[0].empty_polls),
        (beside.cores[0].polls, beside.cores[0].empty_polls)
    );
    assert_eq!(alone.latency.mean(), beside.latency.mean());
    // A core without frames polls all the time: 60 cycles at 2.2 GHz, 27 ns.
    assert_eq!(
        (beside.cores[2].polls, beside.cores[2].empty_polls),
        (20_000_000u64.div_ceil(27), 20_000_000u64.div_ceil(27))
    );
}

/// All that a scenario may ask for at once: what is reserved ahead does not go by the largest rings and sockets.
#[test]
fn the_largest_scenario_fits() {
    let outcome = run(
        "machine = \"machine.toml\"\nwarm_up = \"0us\"\nduration = \"100us\"\n[[traffic]]\nkind = \"poisson\"\nrate = \
                       \"5Mpps\"\n[queues]\ncount = 1536\nrx_descriptors = 65536\ntx_descriptors = 65536\n[worker]\ndriver = \
                       \"kernel\"\ncores = 1536\nsocket = 1000000\n",
    );
    assert_eq!((outcome.cores.len(), outcome.lost()), (1_536, 0));
}
