use sim::goals::Measured;
use sim::outcome::{Drop, Outcome, Term, Verdict};
use sim::scenario::Scenario;
use sim::world;
use units::Nanos;

use crate::support::{run, summary};

/// A machine whose NIC always takes the same time, and nobody who takes the core away.
const HEAD: &str = "machine = \"machine.toml\"\nwarm_up = \"20ms\"\n";
const REST: &str = "[scheduler]\ndisturbance = false\n";

fn world(duration: &str, traffic: &str, sections: &str) -> Outcome {
    run(&format!("{HEAD}duration = \"{duration}\"\n[[traffic]]\n{traffic}\n{sections}\n{REST}"))
}

fn mean(outcome: &Outcome, term: Term) -> f64 {
    outcome.term(term).mean().unwrap().as_nanos() as f64
}

/// A loop that takes all that waits, serves it, and sends it together: what came while n frames were served is
/// the next batch, so batches are a Markov chain. A frame waits for half of the batch that it came in, on
/// average, and then for its own whole batch.
fn mean_delay_of_batches(load: f64, service_ns: f64) -> f64 {
    const MOST: usize = 64;
    let poisson = |mean: f64| {
        let mut term = (-mean).exp();
        (0..=MOST)
            .map(|count| {
                let this = term;
                term *= mean / (count + 1) as f64;
                this
            })
            .collect::<Vec<f64>>()
    };
    // next[n][m]: m frames come while n are served.
    let next: Vec<Vec<f64>> = (0..=MOST).map(|n| poisson(load * n as f64)).collect();
    let mut sizes = vec![0.0; MOST + 1];
    sizes[1] = 1.0;
    for _ in 0..1_000 {
        let mut after = vec![0.0; MOST + 1];
        for (n, share) in sizes.iter().enumerate() {
            next[n].iter().enumerate().for_each(|(m, p)| after[m.max(1)] += share * p);
        }
        sizes = after;
    }
    let (mut delays, mut frames) = (0.0, 0.0);
    for (n, share) in sizes.iter().enumerate() {
        for (m, p) in next[n].iter().enumerate() {
            let (count, waited) = if m == 0 { (1.0, 0.0) } else { (m as f64, n as f64 / 2.0) };
            delays += share * p * count * (waited + count) * service_ns;
            frames += share * p * count;
        }
    }
    delays / frames
}

/// The interrupt comes after the window: of a packet each microsecond, those of the first 4 of 5 ms should have left.
#[test]
fn a_packet_that_is_overdue_at_the_end_is_late() {
    let goal: policy::Goal = "p99=1ms".parse().unwrap();
    let outcome = run(&format!(
        "machine = \"machine.toml\"\nwarm_up = \"0us\"\nduration = \"5ms\"\n[[traffic]]\nkind = \"constant\"\nrate = \
         \"1Mpps\"\n[goal]\nlatency = \"{goal}\"\n[queues]\nrx_descriptors = 8192\n[moderation]\npolicy = \
         \"static\"\ndelay = \"8ms\"\n[worker]\ndriver = \"user\"\nwait = \"interrupt\"\n{REST}"
    ));
    let judged = outcome.goal.unwrap();
    assert_eq!((outcome.departed(), judged.packets, judged.late), (0, 4_000, 4_000), "{}", summary(&outcome));
    assert_eq!((judged.verdict, outcome.waiting.count()), (Verdict::Missed, outcome.offered()));
    let measured = Measured::of(&outcome, &[goal]);
    let (late, all) = (measured.late(goal.latency), measured.judged(goal.latency));
    assert!(late == all && late.abs_diff(4_000) <= 4, "to 0.1 %: {late} of {all}");
    assert_eq!(measured.latency, [(goal.quantile, None)]);
}

/// The third packet, at 20 ms, is the first after the time of the toggle. The frequency changes at the next multiple of
/// 500 us, when the core rests again, for longer than the window.
#[test]
fn a_frequency_change_during_the_last_rest_counts() {
    let outcome = run(&format!(
        "machine = \"machine.toml\"\nwarm_up = \"0us\"\nduration = \"22ms\"\n[[traffic]]\nkind = \"constant\"\nrate = \
         \"100pps\"\n[worker]\ndriver = \"user\"\nwait = \"interrupt\"\n[frequency]\npolicy = \"toggle\"\nlow = \
         \"1GHz\"\nevery = \"15ms\"\n{REST}"
    ));
    let core = &outcome.cores[0];
    assert_eq!((core.frequency_requests, core.frequency_changes), (1, 1), "{}", summary(&outcome));
    let low = core.book.entries.iter().filter(|entry| entry.frequency.as_hertz() == 1_000_000_000);
    let idle: Nanos = low.fold(Nanos::ZERO, |sum, entry| sum + entry.time);
    assert!(idle > Nanos::from_micros(1_400), "{idle} at the low frequency");
}

/// Nobody could say when such a packet leaves.
#[test]
fn wake_ups_that_take_seconds_are_refused_if_they_must_be_known() {
    let machine = include_str!("machine.toml")
        .replace("lateness = { value = \"1500ns\", excess = \"300ns\", most = \"10us\"", "lateness = { value = \"5s\"");
    let text = "machine = \"machine.toml\"\nduration = \"5ms\"\n[[traffic]]\nkind = \"constant\"\nrate = \"1kpps\"\n[worker]\ndriver = \
                \"user\"\nwait = \"adaptive\"\nknows = true\n";
    let scenario = Scenario::parse("test", text, &[], &mut |_| Ok(machine.clone().into_bytes())).unwrap();
    let error = world::run(&scenario, None).unwrap_err().to_string();
    assert!(error.contains("wake-ups") && error.contains("4s"), "{error}");
}

#[test]
fn a_loop_that_polls_is_as_late_as_theory_says() {
    for load in [0.2, 0.5, 0.8] {
        // 2,200 cycles at 2.2 GHz.
        let service = 1_000.0;
        let outcome = world(
            "2s",
            &format!("kind = \"poisson\"\nrate = \"{}pps\"", (load / service * 1e9) as u64),
            "[worker]\ndriver = \"user\"\nwait = \"poll\"\npoll = \"1cycles\"\nburst = \"1cycles\"\nframe = \"2200cycles\"",
        );
        let got = mean(&outcome, Term::Queueing) + mean(&outcome, Term::Work);
        let theory = mean_delay_of_batches(load, service);
        assert!((got / theory - 1.0).abs() < 0.01, "load {load}: {got} ns, {theory} by theory");
    }
}

#[test]
fn moderation_is_the_delay_that_was_set() {
    let outcome = world(
        "1s",
        "kind = \"constant\"\nrate = \"1kpps\"",
        "[worker]\ndriver = \"kernel\"\n[moderation]\npolicy = \"static\"\ndelay = \"50us\"\n[idle]\ndeepest = \"C1\"",
    );
    let moderation = outcome.term(Term::Moderation);
    assert_eq!((moderation.least(), moderation.most()), (Some(Nanos::from_micros(50)), Some(Nanos::from_micros(50))));
    assert_eq!((outcome.offered(), outcome.departed()), (1_000, 1_000));
}

#[test]
fn each_idle_state_costs_its_exit() {
    let exit = |deepest: &str| {
        let sections = format!(
            "[worker]\ndriver = \"user\"\nwait = \"interrupt\"\n[moderation]\npolicy = \"off\"\n[idle]\ndeepest = \"{deepest}\""
        );
        // The governor has to learn first.
        let outcome = world("1s", "kind = \"constant\"\nrate = \"1kpps\"", &sections);
        assert_eq!(outcome.cores[0].wakeups, 1_000, "{deepest}");
        let term = outcome.term(Term::CStateExit);
        (term.least().unwrap().as_nanos(), term.most().unwrap().as_nanos())
    };
    assert_eq!(exit("POLL"), (50, 50));
    assert_eq!(exit("C1"), (1_000, 1_000));
    assert_eq!(exit("C1E"), (4_000, 4_000));
    // 41 us or somewhat more, and 22,000 cycles to fill the caches again.
    let (least, most) = exit("C6");
    assert!(least >= 41_000 + 10_000 && most > least && most <= 128_000 + 10_000, "{least} {most}");
}

#[test]
fn a_latency_limit_keeps_the_core_out_of_deep_states() {
    let outcome = world(
        "1s",
        "kind = \"constant\"\nrate = \"500pps\"",
        "[worker]\ndriver = \"user\"\nwait = \"interrupt\"\n[idle]\nlatency_limit = \"4us\"",
    );
    assert!(outcome.term(Term::CStateExit).most().unwrap() <= Nanos::from_micros(4), "{}", summary(&outcome));
}

#[test]
fn what_a_core_cannot_bear_is_lost() {
    // 4,400 cycles: 2 us at 2.2 GHz, and 4 us at 1.1 GHz.
    for (at, bears) in [("2.2GHz", 500_000.0), ("1.1GHz", 250_000.0)] {
        let sections = format!(
            "[worker]\ndriver = \"user\"\nwait = \"poll\"\nburst = \"1cycles\"\nframe = \"4400cycles\"\n\
             [frequency]\npolicy = \"fixed\"\nat = \"{at}\""
        );
        let outcome = world("1s", "kind = \"constant\"\nrate = \"1Mpps\"", &sections);
        let departed = outcome.departed_per_second();
        // At the end a ring's worth is still under way.
        assert!((departed / bears - 1.0).abs() < 0.005, "{at}: {departed}");
        assert_eq!(outcome.dropped(Drop::RxFull) + outcome.departed() + outcome.in_flight(), 1_000_000);
        assert_eq!(outcome.lost(), outcome.dropped(Drop::RxFull));
        // A full ring's worth of work lies before each frame.
        let ring = 1_024.0 * 1e9 / bears;
        assert!((mean(&outcome, Term::Queueing) / ring - 1.0).abs() < 0.1, "{at}: {}", mean(&outcome, Term::Queueing));
    }
}

#[test]
fn a_lost_packet_is_late_and_a_goal_of_loss_is_missed() {
    let sections = |loss: &str| {
        format!(
            "[goal]\nlatency = \"p50=10ms\"\n{loss}\n[worker]\ndriver = \"user\"\nwait = \"poll\"\nframe = \"2300cycles\""
        )
    };
    let traffic = "kind = \"constant\"\nrate = \"1Mpps\"";
    let verdict = |loss| world("100ms", traffic, &sections(loss)).goal.unwrap();
    let without = verdict("");
    assert_eq!((without.verdict, without.late), (Verdict::Held, without.lost));
    assert!(without.lost > 0);
    assert_eq!(verdict("loss = \"50%\"").verdict, Verdict::Held);
    assert_eq!(verdict("loss = \"0%\"").verdict, Verdict::Missed);
    let few = world("1ms", "kind = \"constant\"\nrate = \"5kpps\"", &sections(""));
    assert_eq!(few.goal.unwrap().verdict, Verdict::TooFew);
}

#[test]
fn requests_come_as_fast_as_they_are_answered() {
    for connections in [1, 4] {
        let outcome = world(
            "1s",
            &format!("kind = \"request\"\nconnections = {connections}\ndistance = \"20us\"\nthink = \"5us\""),
            "[worker]\ndriver = \"user\"\nwait = \"poll\"",
        );
        // 72 octets of preamble and frame at 10 Gbit/s, and the PHYs, are on the client's way here.
        let phys = outcome.latency.mean().unwrap().as_nanos() as f64 + 45_000.0 + 57.6;
        let expected = f64::from(connections) * 1e9 / phys;
        let got = outcome.departed_per_second();
        assert!((got / expected - 1.0).abs() < 0.02, "{connections}: {got}, expected about {expected}");
    }
}

#[test]
fn energy_lies_between_idle_and_busy() {
    let power = |wait: &str| {
        let sections = format!("[worker]\ndriver = \"user\"\nwait = \"{wait}\"\n[idle]\ndeepest = \"C6\"");
        let outcome = world("1s", "kind = \"constant\"\nrate = \"1kpps\"", &sections);
        let core = &outcome.cores[0];
        let powers: Vec<u64> = core.book.entries.iter().map(|entry| entry.power.as_microwatts()).collect();
        let got = core.power(outcome.duration).as_microwatts();
        assert!(*powers.iter().min().unwrap() <= got && got <= *powers.iter().max().unwrap(), "{}", summary(&outcome));
        got
    };
    assert!(power("interrupt") * 2 < power("poll"));
}

#[test]
fn a_change_of_frequency_stalls_for_its_block_time() {
    let outcome = world(
        "1s",
        "kind = \"constant\"\nrate = \"1Mpps\"",
        "[worker]\ndriver = \"user\"\nwait = \"poll\"\n[frequency]\npolicy = \"toggle\"\nlow = \"1.2GHz\"\nhigh = \
         \"2.4GHz\"\nevery = \"10ms\"",
    );
    let core = &outcome.cores[0];
    assert!((99..=100).contains(&core.frequency_changes), "{}", core.frequency_changes);
    let stall = outcome.term(Term::FrequencyStall);
    assert_eq!(stall.most(), Some(Nanos::from_micros(12)));
    let frames = stall.counts().filter(|(value, _)| *value > 0).map(|(_, count)| count).sum::<u64>();
    // Those of 12 us a change are caught by it, at 1 Mpps.
    assert!((frames as f64 / (core.frequency_changes * 12) as f64 - 1.0).abs() < 0.15, "{frames}");
}

/// A policy that counts polls keeps the world from leaving any out; with one frequency it changes nothing
/// else.
#[test]
fn empty_polls_that_are_left_out_would_have_changed_nothing() {
    let of = |wait: &str, frequency: &str| {
        let sections = format!(
            "[goal]\nlatency = \"p99=20us\"\n[worker]\ndriver = \"user\"\nwait = \"{wait}\"\n[moderation]\npolicy = \
             \"off\"\n[idle]\ndeepest = \"C1\"\n[frequency]\n{frequency}"
        );
        world("300ms", "kind = \"poisson\"\nrate = \"30kpps\"", &sections)
    };
    let fixed = "policy = \"fixed\"\nat = \"2GHz\"";
    let counting = "policy = \"two-level\"\nlowest = \"2GHz\"\nhighest = \"2GHz\"";
    let (skipping, plain) = (of("poll", fixed), of("poll", counting));
    assert!(plain.cores[0].empty_polls > 5_000_000, "{}", plain.cores[0].empty_polls);
    assert_eq!(summary(&skipping), summary(&plain));
    // Adaptive changes its mind up to half a microsecond later.
    let (skipping, plain) = (of("adaptive", fixed), of("adaptive", counting));
    let near = |what: &str, a: f64, b: f64| assert!((a / b - 1.0).abs() < 0.02, "{what}: {a} and {b}");
    let tail = |outcome: &Outcome| outcome.latency.quantile(units::Quantile::P99).unwrap().as_nanos() as f64;
    near("p99", tail(&skipping), tail(&plain));
    near("power", skipping.core_power().as_microwatts() as f64, plain.core_power().as_microwatts() as f64);
}

#[test]
fn dim_climbs_to_its_longest_timer_under_poisson_traffic() {
    let outcome = world(
        "5s",
        "kind = \"poisson\"\nrate = \"30kpps\"\nframe = 100",
        "[worker]\ndriver = \"kernel\"\nforward = true\nframe = \"100cycles\"\n[moderation]\npolicy = \"dim\"\nsent = \
         \"1ms\"\n[idle]\ndeepest = \"C1\"",
    );
    let moderated = outcome.queues[0].moderation.as_ref().unwrap();
    let time: Nanos = moderated.profiles.iter().filter(|(p, _)| p.usecs == 256).map(|(_, time)| *time).sum_of();
    assert!(time > Nanos::from_secs(3), "{}", summary(&outcome));
    assert!(moderated.changes > 5, "{}", moderated.changes);
}

/// Sums spans.
trait SumOf {
    fn sum_of(self) -> Nanos;
}

impl<I: Iterator<Item = Nanos>> SumOf for I {
    fn sum_of(self) -> Nanos {
        self.fold(Nanos::ZERO, |sum, span| sum + span)
    }
}
