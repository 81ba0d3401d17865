use std::fmt::Write as _;

use crate::support::{run, summary};
use sim::outcome::{Outcome, QueueOutcome};
use sim::random::Random;

/// Scenarios that are tried.
const SCENARIOS: u64 = 10_000;
/// One in so many is run twice.
const TWICE: u64 = 50;

#[test]
fn random_scenarios_lose_nothing_and_add_up() {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()) as u64;
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let numbers = |thread| (thread..SCENARIOS).step_by(threads as usize);
        let started: Vec<_> =
            (0..threads).map(|t| scope.spawn(move || numbers(t).filter_map(check).collect::<Vec<_>>())).collect();
        started.into_iter().flat_map(|thread| thread.join().expect("a scenario panicked: see above")).collect()
    });
    assert!(wrong.is_empty(), "{} of {SCENARIOS} scenarios are wrong, such as\n{}", wrong.len(), wrong[0]);
}

/// What is wrong with the outcome of a scenario, if anything is.
fn check(number: u64) -> Option<String> {
    let text = random_scenario(number);
    let outcome = run(&text);
    let lost =
        |queue: &QueueOutcome| queue.offered != queue.departed + queue.dropped.iter().sum::<u64>() + queue.in_flight;
    let delays = outcome.latency.count();
    let terms = || outcome.terms.iter();
    let books = || outcome.cores.iter().map(|core| &core.book);
    let what = if outcome.queues.iter().any(lost) {
        "frames were lost or made"
    } else if outcome.unsound > 0 {
        "the terms of a delay are more than the delay"
    } else if delays != outcome.departed() || terms().any(|term| term.count() != delays) {
        "a delay was not counted"
    } else if terms().map(|term| term.sum_ns()).sum::<u128>() != outcome.latency.sum_ns() {
        "the terms do not add up to the delays"
    } else if books().any(|book| book.time() != outcome.duration) {
        "a core's times do not add up to the window"
    } else if books().any(|book| book.femtojoules() / 1_000_000 != u128::from(book.metered.as_nanojoules())) {
        "a core's energy is not the sum of powers and times"
    } else if books().map(|book| book.femtojoules()).sum::<u128>() != outcome.package.simulated {
        "the package's energy is not that of its cores"
    } else if number.is_multiple_of(TWICE) && summary(&run(&text)) != summary(&outcome) {
        "twice is not the same"
    } else {
        return None;
    };
    Some(format!("number {number}: {what}\n{text}\n{}", summary(&outcome)))
}

/// One of several.
fn one<'a>(random: &mut Random, of: &[&'a str]) -> &'a str {
    of[random.below(of.len() as u64) as usize]
}

/// A number from 10^`from` to 10^`to`, small ones as likely as large ones.
fn magnitude(random: &mut Random, from: u32, to: u32) -> u64 {
    let decade = 10u64.pow(from + random.below(u64::from(to - from)) as u32);
    decade + random.below(9 * decade)
}

fn random_scenario(number: u64) -> String {
    let mut random = Random::stream(20_26, number);
    let r = &mut random;
    let mut text = String::new();
    let machines = ["xeon-e5-2699v3", "xeon-gold-6338n", "xeon-platinum-8260l", "xeon-platinum-8360y"];
    let (machine, nic) = (one(r, &machines), one(r, &["82599", "x540", "xl710"]));
    let (warm_up, duration) = (r.below(300), 50 + r.below(1_500));
    let _ = writeln!(text, "machine = \"{machine}\"\nnic = \"{nic}\"\nseed = {number}");
    let _ = writeln!(text, "warm_up = \"{warm_up}us\"\nduration = \"{duration}us\"");
    let queues = if r.chance(700_000) { 1 } else { 2 + r.below(4) };
    let cores = 1 + r.below(queues);
    let ring = if r.chance(200_000) { 1 + r.below(16) } else { 64 + r.below(1_000) };
    let sent = if r.chance(200_000) { 1 + r.below(16) } else { 64 + r.below(1_000) };
    let _ = writeln!(text, "[queues]\ncount = {queues}\nrx_descriptors = {ring}\ntx_descriptors = {sent}");
    if r.chance(500_000) {
        let quantile = one(r, &["p50", "p99", "p99.9"]);
        let _ = writeln!(text, "[goal]\nlatency = \"{quantile}={}us\"", magnitude(r, 0, 3));
        if r.chance(500_000) {
            let _ = writeln!(text, "loss = \"0.{}%\"", r.below(100));
        }
    }
    let has_goal = text.contains("[goal]");
    for _ in 0..1 + r.below(2) {
        traffic(r, &mut text, queues, duration);
    }
    let kernel = r.chance(350_000);
    worker(r, &mut text, kernel, queues, cores);
    moderation(r, &mut text, kernel, has_goal);
    if r.chance(300_000) {
        let policies = ["two-level", "l3fwd-power", "goal"];
        let policy = one(r, if has_goal { &policies } else { &policies[..2] });
        let _ = writeln!(text, "[frequency]\npolicy = \"{policy}\"\nlowest = \"1.5GHz\"\nhighest = \"2.1GHz\"");
    } else if r.chance(300_000) {
        let governors = ["performance", "powersave", "ondemand", "conservative", "schedutil", "nmap"];
        let governor = one(r, if kernel { &governors } else { &governors[..5] });
        let _ = writeln!(text, "[frequency]\npolicy = \"{governor}\"\nlowest = \"1.5GHz\"\nhighest = \"2.1GHz\"");
        match governor {
            "ondemand" | "conservative" => text.push_str("sampling_rate = \"100us\"\n"),
            "schedutil" => text.push_str("rate_limit = \"100us\"\n"),
            "nmap" => {
                let _ =
                    writeln!(text, "ni_threshold = {}\ncu_threshold = \"0.5\"\ntimer = \"200us\"", 1 + r.below(100));
                text.push_str("sampling_rate = \"100us\"\n");
            }
            _ => {}
        }
    } else if r.chance(300_000) {
        let every = magnitude(r, 1, 3);
        let _ = writeln!(
            text,
            "[frequency]\npolicy = \"toggle\"\nlow = \"1.5GHz\"\nhigh = \"2.1GHz\"\nevery = \"{every}us\""
        );
        if r.chance(300_000) {
            text.push_str("period = \"0us\"\n");
        }
    }
    rest(r, &mut text);
    text
}

fn traffic(r: &mut Random, text: &mut String, queues: u64, duration: u64) {
    let kind = one(r, &["constant", "poisson", "on-off", "slots", "request", "self-similar"]);
    let _ = writeln!(text, "[[traffic]]\nkind = \"{kind}\"");
    match r.below(4) {
        0 => {}
        1 => text.push_str("frame = \"aaaaaaaddddg\"\n"),
        _ => {
            let _ = writeln!(text, "frame = {}", 64 + r.below(1_455));
        }
    }
    if r.chance(300_000) {
        let _ = writeln!(text, "queue = {}", r.below(queues));
    }
    if r.chance(100_000) {
        let _ = writeln!(text, "answer = {}", 64 + r.below(1_455));
    }
    if r.chance(200_000) {
        let _ = writeln!(text, "start = \"{}us\"", r.below(duration));
    }
    // Two streams of the longest frames must still fit 10 Gbit/s.
    let rate = |r: &mut Random| magnitude(r, 3, 6).min(400_000);
    match kind {
        "constant" | "poisson" => {
            if r.chance(100_000) {
                let _ = writeln!(text, "rate = \"{}%\"", 1 + r.below(49));
            } else {
                let _ = writeln!(text, "rate = \"{}pps\"", rate(r));
            }
        }
        "on-off" => {
            let (rate, on, off) = (rate(r), magnitude(r, 0, 3), magnitude(r, 0, 3));
            let lengths = one(r, &["fixed", "exponential"]);
            let _ = writeln!(text, "rate = \"{rate}pps\"\non = \"{on}us\"\noff = \"{off}us\"\nlengths = \"{lengths}\"");
        }
        "slots" => {
            let (period, burst, spacing) = (100 + r.below(900), 1 + r.below(8), r.below(8_000));
            let jitter = r.below(30);
            let _ = writeln!(text, "period = \"{period}us\"\nburst = {burst}\nspacing = \"{spacing}ns\"");
            let _ = writeln!(text, "jitter = \"{jitter}us\"");
        }
        "request" => {
            let (connections, distance, think) = (1 + r.below(20), magnitude(r, 0, 2), r.below(50));
            let _ = writeln!(text, "connections = {connections}\ndistance = \"{distance}us\"\nthink = \"{think}us\"");
            let _ = writeln!(text, "think_varies = {}\ntimeout = \"200us\"", r.chance(500_000));
        }
        _ => {
            let peak = 50_000 + r.below(50_000);
            let _ =
                writeln!(text, "rate = \"{}pps\"\nsources = {}\npeak = \"{peak}pps\"", rate(r) / 20, 4 + r.below(20));
            let _ = writeln!(text, "burst = \"{}us\"\nhurst = \"0.{}\"", magnitude(r, 1, 3), 501 + r.below(499));
        }
    }
}

fn worker(r: &mut Random, text: &mut String, kernel: bool, queues: u64, cores: u64) {
    if kernel {
        let _ = writeln!(text, "[worker]\ndriver = \"kernel\"\ncores = {cores}\nforward = {}", r.chance(500_000));
        if r.chance(200_000) {
            let _ = writeln!(text, "socket = {}", 1 + r.below(20));
        }
    } else {
        let wait = one(r, &["poll", "interrupt", "backoff", "hybrid300", "adaptive", "metronome"]);
        // Threads that share queues are as many as these, or more.
        let cores = if wait == "metronome" { queues + r.below(4) } else { cores };
        let _ = writeln!(text, "[worker]\ndriver = \"user\"\ncores = {cores}\nwait = \"{wait}\"");
        if wait == "metronome" {
            let (vacation, timeout) = (magnitude(r, 0, 2), magnitude(r, 1, 3));
            let _ = writeln!(text, "vacation = \"{vacation}us\"\ntimeout = \"{timeout}us\"");
        }
        if wait == "backoff" {
            let _ = writeln!(text, "sleep_max = \"{}us\"", r.below(200));
        }
        let _ = writeln!(text, "forward = {}\ninterrupts = {}", r.chance(800_000), r.chance(900_000));
    }
    let _ = writeln!(text, "stamps = {}", r.chance(800_000));
    if r.chance(400_000) {
        let (poll, frame) = (1 + r.below(300), magnitude(r, 1, 4));
        let _ = writeln!(text, "poll = \"{poll}cycles\"\nframe = \"{frame}cycles\"");
    }
}

fn moderation(r: &mut Random, text: &mut String, kernel: bool, has_goal: bool) {
    let of_kernel = ["nic", "off", "static", "dim", "goal"];
    // The waiting policy chooses the delay of its interrupts.
    let holds_off = text.contains("wait = \"adaptive\"") && !text.contains("interrupts = false");
    let of_user = ["nic", "off", "static", "hold-off"];
    let choices = match (kernel, has_goal) {
        (true, true) => &of_kernel[..],
        (true, false) => &of_kernel[..4],
        (false, _) => &of_user[..if holds_off { 4 } else { 3 }],
    };
    let policy = one(r, choices);
    let _ = writeln!(text, "[moderation]\npolicy = \"{policy}\"");
    match policy {
        "static" => {
            let (delay, frames, interval) = (1 + r.below(200), r.below(64), r.below(60));
            let from = one(r, &["first-frame", "last-frame"]);
            let _ = writeln!(
                text,
                "delay = \"{delay}us\"\nframes = {frames}\ninterval = \"{interval}us\"\nfrom = \"{from}\""
            );
        }
        "hold-off" => {
            let _ = writeln!(text, "every = \"{}us\"", 1 + r.below(300));
        }
        "dim" => {
            let _ = writeln!(text, "mode = \"{}\"\nprofile = {}", one(r, &["rx-eqe", "rx-cqe"]), r.below(5));
        }
        _ => {}
    }
    if r.chance(200_000) {
        let _ = writeln!(text, "sent = \"{}us\"", r.below(100));
    }
}

/// Idleness, scheduling, interrupts, and where the worker runs.
fn rest(r: &mut Random, text: &mut String) {
    if r.chance(600_000) {
        let _ = writeln!(text, "[idle]\ndeepest = \"{}\"\naspm = {}", one(r, &["POLL", "C1", "C6"]), r.chance(300_000));
        if r.chance(200_000) {
            let _ = writeln!(text, "latency_limit = \"{}us\"", r.below(200));
        }
    }
    if r.chance(600_000) {
        let class = one(r, &["fifo", "fair"]);
        let _ = writeln!(text, "[scheduler]\nclass = \"{class}\"\nbackground = {}", r.chance(300_000));
        let _ = writeln!(text, "disturbance = {}", r.chance(500_000));
        if class == "fifo" {
            let _ = writeln!(text, "throttle = {}", r.chance(300_000));
        }
    }
    if r.chance(300_000) {
        let _ = writeln!(text, "[interrupt]\nhandling = \"{}\"", one(r, &["direct", "threaded"]));
        let _ = writeln!(text, "affinity = \"{}\"", one(r, &["right", "wrong"]));
    }
    if r.chance(200_000) {
        let _ = writeln!(text, "[vm]\ndirect = {}\nhalt_poll = \"{}us\"", r.chance(500_000), r.below(300));
    }
}

/// So that the generator is known to reach what it is meant to.
#[test]
fn the_generator_reaches_all_kinds() {
    let all: String = (0..300).map(random_scenario).collect();
    let parts = ["constant", "poisson", "on-off", "slots", "request", "self-similar", "adaptive", "hybrid300", "dim"];
    for part in parts.into_iter().chain(["metronome", "ondemand", "conservative", "schedutil", "nmap"]) {
        assert!(all.contains(part), "no {part} in 300 scenarios");
    }
    let outcomes: Vec<Outcome> = (0..300).map(|number| run(&random_scenario(number))).collect();
    assert!(outcomes.iter().any(|outcome| outcome.lost() > 0), "no loss in 300 scenarios");
    assert!(outcomes.iter().any(|outcome| outcome.in_flight() > 0), "nothing in flight in 300 scenarios");
    let moving = outcomes.iter().filter(|outcome| outcome.departed() > 0).count();
    assert!(moving > 200, "only {moving} of 300 scenarios move a frame");
}
