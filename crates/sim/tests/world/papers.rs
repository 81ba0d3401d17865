use sim::outcome::{Outcome, Verdict};
use units::{Hertz, Nanos};

use crate::support::{run, summary};

const HEAD: &str = "machine = \"machine.toml\"\nwarm_up = \"20ms\"\nduration = \"200ms\"\n";

fn metronome(rate: &str, threads: u64, vacation: &str) -> Outcome {
    run(&format!(
        "{HEAD}[[traffic]]\nkind = \"poisson\"\nrate = \"{rate}\"\n[worker]\ndriver = \"user\"\nwait = \"metronome\"\ncores = {threads}\n\
         vacation = \"{vacation}\"\n[idle]\ndeepest = \"POLL\"\n[scheduler]\ndisturbance = false\n"
    ))
}

/// Without load each thread sleeps M times V, and they come one after the other: every V, but for what falling asleep,
/// the timer and waking take, of which each vacation has its share.
#[test]
fn threads_that_share_a_queue_leave_it_alone_for_as_long_as_asked() {
    for (threads, us) in [(1, 20u64), (3, 10), (3, 50), (5, 20)] {
        let outcome = metronome("1kpps", threads, &format!("{us}us"));
        let cycle = outcome.queues[0].shared;
        let vacation = cycle.vacation.as_nanos() as f64 / cycle.count as f64;
        assert!(vacation >= us as f64 * 990.0, "{threads} threads, {us} us: {vacation} ns");
        // 1.8 us of lateness at the mean, a switch both ways, and exits: less than 6 us a sleep.
        let most = us as f64 * 1e3 + 6_000.0 / threads as f64;
        assert!(vacation <= most, "{threads} threads, {us} us: {vacation} ns, not {most}");
        assert_eq!(outcome.offered(), outcome.departed() + outcome.in_flight(), "{}", summary(&outcome));
    }
}

/// Under load the threads that find another at work sleep for T_L, and fewer are left to come by: T_S goes down to V, so that the
/// vacation stays between V and T_S. One thread alone leaves its queue for V whatever the load.
#[test]
fn the_vacation_stays_near_what_was_asked_for_under_load() {
    for (rate, threads) in [("100kpps", 1), ("5Mpps", 1), ("100kpps", 3), ("2Mpps", 3), ("5Mpps", 3), ("8Mpps", 3)] {
        let outcome = metronome(rate, threads, "10us");
        let cycle = outcome.queues[0].shared;
        let mean = |span: Nanos| span.as_nanos() as f64 / cycle.count as f64 / 1e3;
        let (vacation, busy) = (mean(cycle.vacation), mean(cycle.busy));
        let load = busy / (busy + vacation);
        let sum: f64 = (0..threads).map(|power| load.powi(power as i32)).sum();
        // A sleep takes up to 6 us more than was asked for.
        let most = threads as f64 * 10.0 / sum + 6.0;
        assert!((9.9..most).contains(&vacation), "{rate}, {threads}: {vacation} us, at most {most}; load {load}");
        assert_eq!(outcome.lost(), 0, "{rate}: {}", summary(&outcome));
        assert_eq!(cycle.refused > 0, threads > 1, "{rate}: {}", summary(&outcome));
    }
    // More threads for the same packets cost more.
    let power = |threads| metronome("100kpps", threads, "10us").core_power();
    assert!(power(1) < power(4));
}

/// Each governor on the same bursts: `performance` never leaves the highest frequency, `powersave` never the lowest.
fn governed(policy: &str, sections: &str) -> Outcome {
    run(&format!(
        "machine = \"machine.toml\"\nwarm_up = \"100ms\"\nduration = \"900ms\"\n[goal]\nlatency = \"p99=1ms\"\n[[traffic]]\nkind = \
         \"poisson\"\nrate = \"5kpps\"\n[[traffic]]\nkind = \"on-off\"\nrate = \"140kpps\"\non = \"20ms\"\noff = \"80ms\"\n[worker]\ndriver = \"kernel\"\nsocket = 4096\n{sections}\n\
         [frequency]\npolicy = \"{policy}\"\n"
    ))
}

fn share_at(outcome: &Outcome, frequency: u64) -> f64 {
    let at = outcome.cores[0].book.entries.iter().filter(|entry| entry.frequency == Hertz::new(frequency * 1_000_000));
    at.map(|entry| entry.time.as_nanos()).sum::<u64>() as f64 / outcome.duration.as_nanos() as f64
}

/// A kernel as distributions configure it.
const FAIR: &str = "[scheduler]\nclass = \"fair\"\nnohz_full = false";

#[test]
fn governors_are_what_the_kernel_makes_of_them() {
    let (performance, powersave) = (governed("performance", FAIR), governed("powersave", FAIR));
    assert_eq!((share_at(&performance, 2_200), share_at(&powersave, 800)), (1.0, 1.0));
    assert_eq!((performance.cores[0].frequency_requests, powersave.cores[0].frequency_requests), (0, 0));
    let (ondemand, conservative, schedutil) =
        (governed("ondemand", FAIR), governed("conservative", FAIR), governed("schedutil", FAIR));
    for (name, outcome) in [("ondemand", &ondemand), ("conservative", &conservative), ("schedutil", &schedutil)] {
        assert!(outcome.cores[0].frequency_changes > 3, "{name}: {}", summary(outcome));
        assert!(outcome.core_power() < performance.core_power(), "{name}: {}", summary(outcome));
        // A sample each 10 ms at most: 900 ms have 90.
        assert!(outcome.cores[0].frequency_requests <= 90, "{name}: {}", summary(outcome));
    }
    assert!(conservative.latency.mean() > performance.latency.mean());
    // A FIFO thread has the highest frequency under schedutil, always.
    let fifo = governed("schedutil", "");
    assert_eq!((fifo.cores[0].frequency_changes, share_at(&fifo, 2_200)), (0, 1.0));
}

/// What NMAP is for: ondemand notices a burst at its next sample, NMAP at the first interrupt that leaves packets to a
/// second poll.
#[test]
fn nmap_answers_a_burst_before_ondemand_samples_it() {
    let ondemand = governed("ondemand", FAIR);
    let nmap = governed("nmap\"\nni_threshold = 16\ncu_threshold = \"0.2", FAIR);
    let p99 = |outcome: &Outcome| outcome.latency.quantile(units::Quantile::P99).unwrap();
    assert!(p99(&nmap) < p99(&ondemand), "{}\n{}", summary(&nmap), summary(&ondemand));
    assert_eq!(nmap.goal.unwrap().verdict, Verdict::Held, "{}", summary(&nmap));
    let performance = governed("performance", FAIR);
    assert!(nmap.core_power() < performance.core_power());
    assert!(p99(&performance) <= p99(&nmap) + Nanos::from_micros(50));
}

/// DIM walks the profiles that the scenario gives it, those of its own mode.
#[test]
fn dim_with_profiles_of_ones_own() {
    let outcome = |mode: &str| {
        run(&format!(
            "{HEAD}[[traffic]]\nkind = \"poisson\"\nrate = \"100kpps\"\n[worker]\ndriver = \"kernel\"\nforward = true\n[moderation]\n\
             policy = \"dim\"\nmode = \"{mode}\"\n[moderation.profiles]\nrx-eqe = \"3,256_5,256_9,256_17,256_33,n\"\n\
             rx-cqe = \"n,n_n,n_19,64_n,n_n,n\"\n"
        ))
    };
    let usecs = |outcome: &Outcome| {
        let mut all: Vec<u32> =
            outcome.queues[0].moderation.as_ref().unwrap().profiles.iter().map(|(profile, _)| profile.usecs).collect();
        all.sort_unstable();
        all
    };
    let own = usecs(&outcome("rx-eqe"));
    assert!(own.len() >= 2 && own.iter().all(|us| [3, 5, 9, 17, 33].contains(us)), "{own:?}");
    let merged = usecs(&outcome("rx-cqe"));
    assert!(merged.len() >= 2 && merged.iter().all(|us| [2, 8, 19, 32, 64].contains(us)), "{merged:?}");
}
