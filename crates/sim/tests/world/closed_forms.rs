//! Queueing theory beside the world. A mean is compared with its closed form by replications: it must lie within four
//! of their standard errors, and that error must be small beside what is compared.

use sim::outcome::{Activity, Drop, Outcome, Term};
use sim::random::Random;
use sim::scenario::Scenario;
use sim::world;
use units::{BitRate, Nanos};

use crate::support::scenario;

/// A NIC that always takes the same time, nobody who takes the core away.
fn quiet(duration: &str, sections: &str) -> Scenario {
    scenario(&format!(
        "machine = \"machine.toml\"\nwarm_up = \"5ms\"\nduration = \"{duration}\"\n{sections}\n[scheduler]\n\
         disturbance = false\n"
    ))
}

/// A loop that takes next to no time.
const INSTANT: &str =
    "[worker]\ndriver = \"user\"\nwait = \"poll\"\npoll = \"1cycles\"\nburst = \"1cycles\"\nframe = \"1cycles\"\n";

fn run(scenario: &Scenario, seed: u64) -> Outcome {
    world::run(scenario, Some(seed)).unwrap()
}

/// Mean and standard error of replications.
fn replicate(runs: u64, mut of: impl FnMut(u64) -> f64) -> (f64, f64) {
    let values: Vec<f64> = (1..=runs).map(&mut of).collect();
    let count = runs as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0) / count).sqrt())
}

/// `share`: how large the standard error may be beside the theory.
fn agrees(what: &str, (mean, error): (f64, f64), theory: f64, share: f64) {
    assert!(error < theory * share, "{what}: {mean} ± {error} tells too little of {theory}");
    assert!((mean - theory).abs() < 4.0 * error + 0.5, "{what}: {mean} ± {error}, {theory} by theory");
}

/// Mean of a term to fractions of a nanosecond.
fn mean(outcome: &Outcome, term: Term) -> f64 {
    let term = outcome.term(term);
    term.sum_ns() as f64 / term.count() as f64
}

/// Octets of answers, and their shares of the traffic.
type Answers = [(u32, f64)];
const ONE: &Answers = &[(1_518, 1.0)];
const MIXED: &Answers = &[(64, 0.5), (594, 0.35), (1_518, 0.15)];

/// Shortest frames come at random, and answers of other sizes leave by a wire that is loaded to `load`.
struct Line<'a> {
    answers: &'a Answers,
    /// Frames a nanosecond.
    rate: f64,
    load: f64,
}

impl<'a> Line<'a> {
    fn new(answers: &'a Answers, load: f64) -> Self {
        let mean: f64 = answers.iter().map(|(octets, share)| share * service(*octets)).sum();
        Self { answers, rate: load / mean, load }
    }

    fn scenario(&self, fetches_at: Option<BitRate>) -> Scenario {
        let streams: String = self
            .answers
            .iter()
            .map(|(octets, share)| {
                let pps = self.rate * share * 1e9;
                format!("[[traffic]]\nkind = \"poisson\"\nrate = \"{pps:.0}pps\"\nanswer = {octets}\n")
            })
            .collect();
        let mut scenario = quiet("100ms", &format!("{streams}{INSTANT}"));
        scenario.host.nic.bus = fetches_at.unwrap_or(scenario.host.nic.bus);
        scenario
    }

    /// The mean wait for the wire: the term of transmission less all that is no wait.
    fn waits(&self, scenario: &Scenario, seed: u64) -> f64 {
        let nic = &scenario.host.nic;
        let own = |octets: u32| (f64::from(octets) + 8.0) * 0.8 + nic.bus_time(octets.into()).as_nanos() as f64;
        let own: f64 = self.answers.iter().map(|(octets, share)| share * own(*octets)).sum();
        mean(&run(scenario, seed), Term::Transmit) - nic.transmit.as_nanos() as f64 - own
    }

    /// Pollaczek and Khinchine, less what the frames waited for the wire by which they came: that wire is the same
    /// traffic's, each frame takes less time on it, and so its waits are no further delay.
    fn theory(&self) -> f64 {
        let squares: f64 = self.answers.iter().map(|(octets, share)| share * service(*octets).powi(2)).sum();
        let wait = |load: f64, squares: f64| self.rate * squares / (2.0 * (1.0 - load));
        wait(self.load, squares) - wait(self.rate * service(64), service(64).powi(2))
    }
}

/// From a frame's first bit to the next one's, at 10 Gbit/s.
fn service(octets: u32) -> f64 {
    f64::from(octets + 20) * 0.8
}

/// Frames are in the controller at once.
const AT_ONCE: Option<BitRate> = Some(BitRate::new(1_000_000_000_000_000));

#[test]
fn the_wire_is_m_d_1() {
    for load in [0.5, 0.8] {
        let line = Line::new(ONE, load);
        let scenario = line.scenario(AT_ONCE);
        let seen = replicate(20, |seed| line.waits(&scenario, seed));
        agrees(&format!("M/D/1 at {load}"), seen, line.theory(), 0.02);
    }
}

#[test]
fn the_wire_is_m_g_1() {
    for load in [0.3, 0.5, 0.8] {
        let line = Line::new(MIXED, load);
        let scenario = line.scenario(AT_ONCE);
        let seen = replicate(20, |seed| line.waits(&scenario, seed));
        agrees(&format!("M/G/1 at {load}"), seen, line.theory(), 0.02);
    }
}

/// A controller fetches a frame before it sends it, the longer the later, and sends in order: a short frame behind a
/// long one waits for more than the wire. So the wait is above that of M/G/1, as the recursion has it by itself:
/// frame n begins at the later of the end of n - 1 and its own arrival with its fetch.
#[test]
fn fetching_adds_to_m_g_1_what_the_recursion_says() {
    for (load, more) in [(0.3, 0.10..0.20), (0.8, 0.03..0.08)] {
        let line = Line::new(MIXED, load);
        let scenario = line.scenario(None);
        let (mean, error) = replicate(20, |seed| line.waits(&scenario, seed));
        let nic = &scenario.host.nic;
        let (expected, noise) = replicate(20, |seed| {
            let mut random = Random::stream(seed, 77);
            // Gaps are drawn in units of 0.1 ps, finer than the world's.
            let (mut arrival, mut free_in, mut free_out, mut waited) = (0.0f64, 0.0f64, 0.0f64, 0.0f64);
            let frames = 200_000;
            for _ in 0..frames {
                arrival += random.exponential(Nanos::from_nanos((10_000.0 / line.rate) as u64)).as_nanos() as f64 / 1e4;
                free_in = free_in.max(arrival) + service(64);
                let mut drawn = random.below(1_000_000) as f64 / 1e6;
                let octets = line.answers.iter().find(|(_, share)| {
                    drawn -= share;
                    drawn < 0.0
                });
                let octets = octets.map_or(64, |(octets, _)| *octets);
                let ready = free_in + nic.bus_time(octets.into()).as_nanos() as f64;
                let begins = free_out.max(ready);
                waited += begins - ready;
                free_out = begins + service(octets);
            }
            waited / f64::from(frames)
        });
        let both = (error.powi(2) + noise.powi(2)).sqrt();
        assert!((mean - expected).abs() < 4.0 * both + 0.5, "load {load}: {mean} ± {error}, {expected} ± {noise}");
        let share = mean / line.theory() - 1.0;
        assert!(more.contains(&share), "load {load}: {:.1} % above M/G/1", share * 100.0);
    }
}

/// Sleeps of one length: a frame that comes at random waits for half of the distance of two polls, and for what the
/// distance varies. The distance is sleep, lateness, exit, and the switch back to the thread.
#[test]
fn a_sleeping_loop_is_late_by_half_its_period_and_saves_its_idle_time() {
    let (sleep, rate) = (20_000.0f64, 10_000.0);
    let text = "[[traffic]]\nkind = \"poisson\"\nrate = \"10kpps\"\n[worker]\ndriver = \"user\"\nwait = \"backoff\"\n\
                sleep_max = \"20us\"\npoll = \"1cycles\"\nburst = \"1cycles\"\nframe = \"1cycles\"\n[idle]\ndeepest = \"C1\"\n";
    let scenario = quiet("1s", text);
    // machine.toml: 1.5 us and exponentially 0.3 us more; C1's 1 us; 2,800 cycles at 2.2 GHz.
    let switch = 2_800.0 / 2.2;
    let period = sleep + 1_800.0 + 1_000.0 + switch;
    let waits = (period.powi(2) + 300.0f64.powi(2)) / (2.0 * period);
    // The frames before it in its batch, one after the other on the wire.
    let before = rate * waits / 1e9 * service(64);
    let nic = &scenario.host.nic;
    let bus = nic.bus_time(64).as_nanos() as f64;
    let way = (nic.receive + nic.transmit).as_nanos() as f64 + 2.0 * bus + 72.0 * 0.8;
    let seen = replicate(10, |seed| {
        let outcome = run(&scenario, seed);
        outcome.latency.sum_ns() as f64 / outcome.latency.count() as f64
    });
    agrees("sleeping loop", seen, way + waits + before, 0.005);

    let outcome = run(&scenario, 1);
    let core = &outcome.cores[0];
    // Idle from the end of the switch away to the timer; all else is at full power.
    let idle = core.book.time_in(|activity| matches!(activity, Activity::Idle(_))).as_nanos() as f64 / 1e9;
    let expected = (sleep - switch) / period;
    assert!((idle / expected - 1.0).abs() < 0.002, "idle {idle}, {expected} by theory");
    let power = &scenario.host.processor.power;
    let base = scenario.host.processor.base;
    let gate = scenario.host.processor.cstates.states[1].gate;
    let (active, resting) =
        (power.active(base, 1_000).as_microwatts() as f64, power.idle(gate, base).as_microwatts() as f64);
    let expected = resting * expected + active * (1.0 - expected);
    let got = core.power(outcome.duration).as_microwatts() as f64;
    assert!((got / expected - 1.0).abs() < 0.003, "{got} uW, {expected} by theory");
}

#[test]
fn an_overloaded_loop_loses_what_is_beyond_its_rate() {
    // 4,400 cycles: 2 us; 800,000 a second come.
    let scenario = quiet(
        "200ms",
        "[[traffic]]\nkind = \"poisson\"\nrate = \"800kpps\"\n[worker]\ndriver = \"user\"\nwait = \"poll\"\n\
         burst = \"1cycles\"\nframe = \"4400cycles\"\n",
    );
    let seen = replicate(10, |seed| {
        let outcome = run(&scenario, seed);
        assert_eq!(outcome.lost(), outcome.dropped(Drop::RxFull));
        outcome.lost() as f64 / outcome.offered() as f64 * 1e3
    });
    // Of the ring's 1,024 frames, those that came before the window take turns from those that come within.
    let ring = 1_024.0 / 160_000.0 * 1e3;
    assert!(seen.1 < 1.0, "{seen:?}");
    assert!((seen.0 - 375.0).abs() < 4.0 * seen.1 + ring, "{seen:?} per mille lost, 375 by theory");
}

/// Frames in the system at a moment at random: their rate times the mean time that they spend there.
#[test]
fn littles_law() {
    let text = "[[traffic]]\nkind = \"poisson\"\nrate = \"300kpps\"\n[worker]\ndriver = \"user\"\nwait = \"backoff\"\n\
                sleep_max = \"20us\"\n[idle]\ndeepest = \"C1\"\n";
    let long = run(&quiet("500ms", text), 99);
    let spent = long.latency.sum_ns() as f64 / long.latency.count() as f64;
    let mut scenario = quiet("1ms", text);
    let seen = replicate(600, |seed| {
        // Moments that keep no step with the sleeps.
        scenario.duration = Nanos::from_nanos(1_000_000 + Random::stream(seed, 5).below(100_000));
        run(&scenario, seed).in_flight() as f64
    });
    agrees("Little", seen, 300e3 * spent / 1e9, 0.04);
}
