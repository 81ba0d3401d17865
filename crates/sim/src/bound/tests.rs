//! Bounds that can be computed by hand.

use units::Hertz;

use super::*;
use crate::hw::cstate::Gate;

/// One second of `traffic` on a Xeon Gold 6338N without idle states deeper than `deepest`.
fn scenario(traffic: &str, goal: &str, deepest: &str) -> Scenario {
    let text = format!(
        "machine = \"xeon-gold-6338n\"\nnic = \"82599\"\nwarm_up = \"10ms\"\nduration = \"1s\"\n[goal]\nlatency = \
         \"{goal}\"\n[[traffic]]\n{traffic}\n[worker]\ndriver = \"user\"\nwait = \"poll\"\n[idle]\ndeepest = \"{deepest}\"\n"
    );
    Scenario::parse("test", &text, &[], &mut |_| Err("no files".into())).unwrap_or_else(|error| panic!("{error}"))
}

/// Powers at the lowest frequency, in microwatts: running, and with the clock off.
fn powers(scenario: &Scenario) -> (f64, f64) {
    let power = &scenario.host.processor.power;
    let lowest = scenario.host.processor.pstates.lowest;
    let watts = |power: Microwatts| power.as_microwatts() as f64;
    (watts(power.active(lowest, 1_000)), watts(power.idle(Gate::Clock, lowest)))
}

fn close(bound: &Bound, expected: f64) -> bool {
    (bound.power.as_microwatts() as f64 / expected - 1.0).abs() < 2e-3
}

#[test]
fn lone_packets_cost_a_wake_up_each() {
    let scenario = scenario("kind = \"constant\"\nrate = \"1kpps\"", "p99=100us", "C1");
    let (awake, idle) = powers(&scenario);
    // A cycle is cheapest at the lowest frequency, 800 MHz. A wake-up takes C1's exit and the timer's lateness, 1 and
    // 1.5 us, and the cycles of two switches, a burst and a frame: 2 · 2800 + 160 + 140.
    let wake = (awake - idle) * (2.5 + 5_900.0 / 800.0);
    let bound = least_power(&scenario, None).unwrap();
    assert_eq!((bound.may_be_late, bound.by), (bound.packets / 100, By::Schedule));
    // 990 of 1,000 packets cost a wake-up, in a second of 10^6 us.
    assert!(close(&bound, idle + 990.0 * wake / 1e6), "{bound:?}");
    assert!((bound.multiple(Microwatts::new(bound.power.as_microwatts() * 3)) - 3.0).abs() < 1e-9);
}

#[test]
fn without_an_idle_state_the_core_runs() {
    let scenario = scenario("kind = \"constant\"\nrate = \"1kpps\"", "p99=100us", "POLL");
    let (awake, _) = powers(&scenario);
    let bound = least_power(&scenario, None).unwrap();
    assert!(close(&bound, awake), "{bound:?} of {awake}");
}

#[test]
fn at_high_load_the_core_has_to_be_fast() {
    // 12 Mpps at 142.5 cycles per packet need 1.71 GHz, which lies between the frequencies 1.7 and 1.8 GHz.
    let scenario = scenario("kind = \"constant\"\nrate = \"12Mpps\"", "p99.9=50us", "C1");
    let power = |mhz: u64| {
        let power = scenario.host.processor.power.active(Hertz::new(mhz * 1_000_000), 1_000);
        power.as_microwatts() as f64
    };
    let bound = least_power(&scenario, None).unwrap();
    let expected = power(1_700) + (power(1_800) - power(1_700)) * 0.1;
    assert_eq!(bound.by, By::Work);
    assert!(close(&bound, expected), "{bound:?} of {expected}");
    // The same rate in bursts of 1 ms, for a fifth of the time.
    let bursts = "kind = \"on-off\"\nrate = \"12Mpps\"\non = \"1ms\"\noff = \"4ms\"";
    let text = super::tests::scenario(bursts, "p99.9=50us", "C1");
    let (_, idle) = powers(&text);
    let bound = least_power(&text, None).unwrap();
    let expected = 0.2 * expected + 0.8 * idle;
    let distance = bound.power.as_microwatts() as f64 / expected;
    assert!((0.85..=1.0).contains(&distance), "{distance}");
}

/// A seed that cannot meet the goal alone made the bound unknown, although all seeds together can.
#[test]
fn seeds_share_what_may_be_late() {
    let of = |goal: &str| scenario("kind = \"constant\"\nrate = \"100kpps\"", goal, "C1");
    let seeds = [1, 2, 3, 4, 5];
    // At this latency, the NIC alone makes some packets late. How many depends on the seed.
    let tight = of("p99.9999=4442ns");
    let late = seeds.map(|seed| match least_power(&tight, Some(seed)) {
        Err(Why::Impossible { late, .. }) => late,
        other => panic!("{other:?}"),
    });
    let (all, packets) = (late.iter().sum::<u64>(), 100_000 * seeds.len() as u64);
    let above_ppm = (all * 1_000_000).div_ceil(packets);
    let goal = format!("p{}=4442ns", (1_000_000 - above_ppm) as f64 / 1e4);
    let scenario = of(&goal);
    let alone = seeds.map(|seed| least_power(&scenario, Some(seed)));
    assert!(alone.iter().any(Result::is_err) && alone.iter().any(Result::is_ok), "{goal} {late:?}");
    let together = least_power_over(&scenario, &seeds).unwrap();
    assert_eq!((together.packets, together.may_be_late), (packets, packets * above_ppm / 1_000_000));
    let thrice = least_power_over(&scenario, &[1, 1, 1]).unwrap();
    assert!(close(&thrice, alone[0].as_ref().unwrap().power.as_microwatts() as f64), "{thrice:?}");
}

/// The window of this test had over a billion parts.
#[test]
fn packets_that_can_hardly_wait_make_no_more_parts() {
    let scenario = scenario("kind = \"constant\"\nrate = \"1kpps\"", "p50=100us", "C1");
    let machine = Machine::new(&scenario);
    let packets = (1..1_000).map(|n| schedule::Packets { release: n * 10_000_000, deadline: n * 10_000_000, count: 1 });
    let line = schedule::Line { window: (0, 10_000_000_000), packets: packets.collect() };
    let began = machine.parts_of(std::slice::from_ref(&line));
    assert!(began.iter().all(|length| *length >= 40_000), "{began:?}");
    let waits = schedule::Packets { release: 5, deadline: 100_005, count: 1 };
    let line = schedule::Line { packets: vec![waits], ..line };
    assert_eq!(machine.parts_of(&[line]), [800_000, 3_200_000, 12_800_000]);
}

#[test]
fn cores_add_up() {
    let one = "kind = \"constant\"\nrate = \"1kpps\"\nqueue = 0";
    let two = format!("{one}\n[[traffic]]\nkind = \"constant\"\nrate = \"1kpps\"\nqueue = 1\nstart = \"300us\"");
    let alone = scenario(one, "p99=100us", "C1");
    let text = |traffic: &str| {
        let text = format!(
            "machine = \"xeon-gold-6338n\"\nnic = \"82599\"\nwarm_up = \"10ms\"\nduration = \"1s\"\n[goal]\nlatency = \
             \"p99=100us\"\n[[traffic]]\n{traffic}\n[queues]\ncount = 2\n[worker]\ndriver = \"user\"\nwait = \"poll\"\ncores = \
             2\n[idle]\ndeepest = \"C1\"\n"
        );
        Scenario::parse("test", &text, &[], &mut |_| Err("no files".into())).unwrap_or_else(|error| panic!("{error}"))
    };
    let (alone, both) = (least_power(&alone, None).unwrap(), least_power(&text(&two), None).unwrap());
    assert!(close(&both, 2.0 * alone.power.as_microwatts() as f64), "{both:?} of twice {alone:?}");
}
