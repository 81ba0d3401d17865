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
