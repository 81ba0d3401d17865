//! Whether `adaptive` makes no more packets late than its goal allows: in the long run ([`stationary`]), in the first
//! second ([`starts`]), after its traffic changed ([`changes`]).
//!
//! Each has a table of many cases, worst first, that takes minutes:
//!
//! ```text
//! cargo test -p sim --test world -- --ignored --nocapture late::
//! ```
//! and leaves the scenarios that are beyond what is allowed in `target/tmp/late`, for `apus sim run`. The tests that are not
//! ignored assert what held there.

mod changes;
mod starts;
mod stationary;

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use policy::Goal;
use sim::goals::{Held, Measured, Tried, Way};
use sim::random::Random;
use sim::scenario::Scenario;
use sim::world;
use units::Nanos;

/// Frames of a seed, as times from the first on, in nanoseconds.
type Arrivals = Arc<dyn Fn(u64) -> Vec<u64> + Send + Sync>;

/// A machine, its traffic, a goal, and when is counted.
#[derive(Clone)]
struct Case {
    name: String,
    machine: &'static str,
    nic: &'static str,
    deepest: &'static str,
    /// `[[traffic]]` tables; [`RECORD`] stands for what `arrivals` gives.
    tables: String,
    arrivals: Option<Arrivals>,
    /// About so many frames come in the time that counts; 0: it was not worked out.
    frames: u64,
    /// The highest rate that the policies are told.
    peak: u64,
    goal: Goal,
    /// Whether Apus chooses the frequency too, or the core runs at its base frequency.
    scales: bool,
    /// Whether it starts with what the platform's wake-ups cost.
    knows: bool,
    interrupts: bool,
    warm_up: Nanos,
    duration: Nanos,
}

/// Traffic that a case makes itself.
const RECORD: &str = "[[traffic]]\nkind = \"replay\"\nfile = \"arrivals.csv\"\n";
/// The machines of the judge, with the idle states that they are tried with.
const MACHINES: [(&str, &str, &str); 6] = [
    ("xeon-e5-2699v3", "x540", "C1"),
    ("xeon-e5-2699v3", "x540", "C6"),
    ("xeon-platinum-8260l", "xl710", "C1"),
    ("xeon-platinum-8360y", "xl710", "C6"),
    ("xeon-gold-6338n", "82599", "C1"),
    ("xeon-gold-6338n", "82599", "C6"),
];

impl Case {
    /// As `apus sim run` takes it.
    fn text(&self, seed: u64, wait: &str) -> String {
        let Self { machine, nic, deepest, goal, warm_up, duration, peak, interrupts, .. } = self;
        let ours = wait == "adaptive";
        let frequency = if ours && self.scales { "goal" } else { "fixed" };
        let knows = if ours && self.knows { "knows = true\n" } else { "" };
        format!(
            "# {}\nmachine = \"{machine}\"\nnic = \"{nic}\"\nseed = {seed}\nwarm_up = \"{warm_up}\"\nduration = \
             \"{duration}\"\n\n[goal]\nlatency = \"{goal}\"\nloss = \"0%\"\npeak = \"{peak}pps\"\n\n{}\n[queues]\nrx_descriptors = \
             4096\ntx_descriptors = 4096\nflush = \"0us\"\n\n[moderation]\npolicy = \"off\"\n\n[idle]\ndeepest = \
             \"{deepest}\"\n\n[worker]\ndriver = \"user\"\nwait = \"{wait}\"\ninterrupts = {interrupts}\n{knows}\n[frequency]\npolicy \
             = \"{frequency}\"\n",
            self.name, self.tables
        )
    }

    fn record(&self, seed: u64) -> String {
        let mut text = "time_ns,octets\n".to_owned();
        for at in self.arrivals.iter().flat_map(|arrivals| arrivals(seed)) {
            let _ = writeln!(text, "{at},64");
        }
        text
    }

    fn run(&self, seed: u64, wait: &str) -> Measured {
        let mut load = |_: &str| Ok(self.record(seed).into_bytes());
        let text = self.text(seed, wait);
        let scenario = Scenario::parse(&self.name, &text, &[], &mut load).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let outcome = world::run(&scenario, None).unwrap_or_else(|e| panic!("{e}\n{text}"));
        Measured::of(&outcome, &[self.goal])
    }

    fn tried(&self, seeds: u64, wait: &str) -> Tried {
        Tried { way: Way::OURS, runs: (1..=seeds).map(|seed| self.run(seed, wait)).collect() }
    }

    fn allowed(&self) -> f64 {
        f64::from(self.goal.quantile.above_ppm()) / 1e6
    }

    /// Whether a core that polls holds the goal with room: it makes at most half of the allowed packets late.
    fn can_be_held(&self) -> bool {
        let poll = self.run(1, "poll");
        poll.lost == 0 && poll.packets > 0 && poll.late_share(self.goal.latency) <= self.allowed() / 2.0
    }

    /// Leaves it for `apus sim run`.
    fn keep(&self, name: &str) {
        let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("late").join(name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("scenario.toml"), self.text(1, "adaptive")).unwrap();
        if self.arrivals.is_some() {
            std::fs::write(folder.join("arrivals.csv"), self.record(1)).unwrap();
        }
    }
}

/// What became of a case.
struct Row {
    case: Case,
    ours: Tried,
    /// The share of late packets of all seeds, as a multiple of the allowed one.
    factor: f64,
}

impl Row {
    fn of(case: Case, seeds: u64) -> Self {
        let ours = case.tried(seeds, "adaptive");
        let factor = ours.late_share(case.goal.latency) / case.allowed();
        Self { case, ours, factor }
    }

    fn held(&self) -> Held {
        self.ours.held(self.case.goal)
    }

    fn is_beyond(&self) -> bool {
        self.held() == Held::No
    }
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { case, ours, factor } = self;
        let bound = case.goal.latency;
        let low = ours.late_interval(bound).map_or(f64::NAN, |(low, _)| low / case.allowed());
        let verdict = match self.held() {
            Held::Yes => "yes",
            Held::WithinInterval => "within",
            Held::No => "NO",
            Held::TooFew => "too few",
        };
        let (late, packets, lost) = (ours.late(bound), ours.judged(bound), ours.lost());
        let busy = ours.runs.iter().map(|run| run.busy_ppm).sum::<u64>() as f64 / ours.runs.len() as f64 / 1e4;
        write!(
            f,
            "{verdict:7} {factor:6.2} ({low:5.2}) {late:6} of {packets:7} lost {lost} busy {busy:4.1}% | {} {} {} {} {}",
            case.machine,
            case.deepest,
            case.goal,
            if case.scales { "scales" } else { "fixed" },
            case.name
        )
    }
}

/// Does the same with all, on all cores; in their order.
fn spread<T: Send, R: Send>(all: Vec<T>, each: impl Fn(T) -> R + Sync) -> Vec<R> {
    let (left, done) = (Mutex::new(all.into_iter().enumerate()), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let next = left.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some((number, one)) = next else { return };
                    let result = each(one);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((number, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Prints the rows, worst first, and keeps the scenarios of those that are beyond what is allowed.
fn table(title: &str, rows: &mut [Row]) {
    rows.sort_by(|a, b| b.is_beyond().cmp(&a.is_beyond()).then(b.factor.total_cmp(&a.factor)));
    let (beyond, all) = (rows.iter().filter(|row| row.is_beyond()).count(), rows.len());
    let above = rows.iter().filter(|row| row.factor > 1.0).count();
    println!("\n## {title}: {beyond} of {all} beyond what is allowed, {above} above it");
    println!("held    factor (from)  late of packets | case");
    for (number, row) in rows.iter().enumerate() {
        println!("{row}");
        if row.is_beyond() {
            row.case.keep(&format!("{title}-{number}"));
        }
    }
}

/// Judges those that can be held, and fails with those that are beyond what is allowed.
fn assert_none_is_beyond(cases: Vec<Case>, seeds: u64, at_least: usize) {
    let judged = spread(cases, |case: Case| case.can_be_held().then(|| Row::of(case, seeds)));
    let rows: Vec<Row> = judged.into_iter().flatten().collect();
    assert!(rows.len() >= at_least, "only {} goals can be held at all", rows.len());
    let beyond: Vec<String> = rows.iter().filter(|row| row.is_beyond()).map(Row::to_string).collect();
    assert!(beyond.is_empty(), "{} of {} make too many late:\n{}", beyond.len(), rows.len(), beyond.join("\n"));
}

/// One of several.
fn one<T: Clone>(random: &mut Random, of: &[T]) -> T {
    of[random.below(of.len() as u64) as usize].clone()
}

/// From `from` to `to`, each factor as likely as any other.
fn scaled(random: &mut Random, from: f64, to: f64) -> f64 {
    from * (to / from).powf(random.below(1 << 20) as f64 / f64::from(1 << 20))
}
