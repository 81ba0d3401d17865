//! Measures how long it takes to read a clock, the resolution of the clock, and whether the time stamp counters (TSC)
//! of the CPUs agree.
//!
//! These figures show how far the other probes can be trusted. A result of a few hundred nanoseconds means little if
//! reading the clock takes thirty nanoseconds. A time taken on one CPU and compared on another means little if their
//! counters disagree.

mod counters;
mod sys;

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use live::cpu::{Cpu as _, LinuxCpu};
use rustix::time::{ClockId, DynamicClockId, clock_getres, clock_gettime_dynamic};
use tester::histogram::HIGHEST_NS;
use units::{Instant, Monotonic, Nanos};

use crate::cause::{Causes, Watcher};
use crate::conditions::Conditions;
use crate::detail::Detail;
use crate::detail::clock::{ClockDetail, ClockFacts, TscPair};
use crate::mark::{Mark, MarkKind};
use crate::measured::{Counter, Exceeded, Measured, Name, Overhead, Term};
use crate::observe::{Observation, cpu_list, settings};
use crate::place::Place;
use crate::record::Recorder;
use crate::{Control, Error, Probe, clockcheck};

/// Name of the measuring thread.
const THREAD: &str = "apus-clock";
/// Number of readings that one sample averages. A batch is needed because taking the time costs as much as one reading.
const BATCH: u64 = 100;
/// Batches measured for each clock.
const BATCHES: u64 = 500;
/// Time between two checks for a stop while waiting.
const LOOK: Duration = Duration::from_millis(20);

/// The clocks of clock_gettime(2), except those that need a capability or a device.
const CLOCKS: [(&str, ClockId); 9] = [
    ("CLOCK_MONOTONIC", ClockId::Monotonic),
    ("CLOCK_MONOTONIC_RAW", ClockId::MonotonicRaw),
    ("CLOCK_MONOTONIC_COARSE", ClockId::MonotonicCoarse),
    ("CLOCK_REALTIME", ClockId::Realtime),
    ("CLOCK_REALTIME_COARSE", ClockId::RealtimeCoarse),
    ("CLOCK_BOOTTIME", ClockId::Boottime),
    ("CLOCK_PROCESS_CPUTIME_ID", ClockId::ProcessCPUTime),
    ("CLOCK_THREAD_CPUTIME_ID", ClockId::ThreadCPUTime),
    ("CLOCK_REALTIME_ALARM", ClockId::RealtimeAlarm),
];

/// The probe `clock` and its settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Clock {
    /// CPUs whose time stamp counters are compared, each with the counter of the first CPU. The clocks are read on the
    /// first CPU.
    pub cpus: Vec<usize>,
    /// SCHED_FIFO priority of the measuring threads, 1 to 99. `None` measures in the normal class (SCHED_OTHER).
    pub priority: Option<u8>,
    /// Time between the two comparisons of the time stamp counters. The drift is measured over this time.
    pub duration: Nanos,
    /// Load on the host during the measurement, such as `none` or `cpu`: a label that is copied to [`Conditions`].
    pub load: String,
}

impl Clock {
    /// Creates a probe for `cpus` that measures in the normal scheduling class, with 1 s between the two comparisons.
    pub fn new(cpus: Vec<usize>) -> Self {
        Self { cpus, priority: None, duration: Nanos::from_secs(1), load: "none".into() }
    }
}

impl Probe for Clock {
    fn counter(&self) -> Counter {
        Counter {
            counts: format!(
                "the mean of {BATCH} consecutive readings of a clock, timed with CLOCK_MONOTONIC; and half the round trip of a cache line between two CPUs, timed with the time stamp counter"
            ),
            resolution_ns: 1,
            highest_ns: HIGHEST_NS,
            blind_spots: vec![
                "consecutive readings find the clock's data in the cache, which a single reading may not".into(),
                "counters are compared only to within half a round trip of a cache line".into(),
            ],
        }
    }

    fn run(&self, control: &Control) -> Result<Measured, Error> {
        let observation = Observation::begin(control, &self.cpus)?;
        let began = LinuxCpu.now();
        let rate_from = (sys::tsc(), raw());
        let causes = if control.fail_over.is_some() { Causes::Auto } else { Causes::None };
        let mut watcher = Watcher::start(&control.root, self.cpus[0], THREAD, causes);
        let first = counters::compare(&self.cpus, self.priority)?;
        let (mut conditions, own, (clocks, over)) = {
            let locked = &observation.memory_locked;
            std::thread::scope(|scope| {
                let body = || -> Result<_, Error> {
                    let slack = Nanos::from_nanos(1);
                    Place { cpu: self.cpus[0], priority: self.priority, slack }.take(THREAD)?;
                    let conditions = Conditions::of_this_thread(&control.root, &self.cpus, locked, &self.load);
                    Ok((conditions, reading_cost(), read_all(control)))
                };
                scope.spawn(body).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })?
        };
        watcher.collect();
        let exceeded = over.map(|Over { from, to, sample }| Exceeded {
            threshold_ns: control.fail_over.map_or(0, Nanos::as_nanos),
            sample_ns: sample.as_nanos(),
            at_ns: from.since(began).unwrap_or(Nanos::ZERO).as_nanos(),
            explained: watcher.explain((from, to), true, Nanos::ZERO).to_string(),
        });
        while exceeded.is_none()
            && !control.stopped()
            && LinuxCpu.now().since(began).is_some_and(|passed| passed < self.duration)
        {
            std::thread::sleep(LOOK);
        }
        let hz = counters::rate(rate_from, (sys::tsc(), raw()));
        let second = counters::compare(&self.cpus, self.priority)?;
        let duration = LinuxCpu.now().since(began).unwrap_or(Nanos::ZERO);
        let seen = observation.end(&mut conditions);
        let refused = seen.refused.as_deref();
        let mut marks = seen.marks;
        let mut terms = Vec::new();
        let mut facts = Vec::new();
        for (cost, of) in clocks {
            control.show(cost.median().unwrap_or(Nanos::ZERO));
            if of.backwards > 0 {
                let text = format!("{} ran backwards {} times", of.name, of.backwards);
                marks.push(Mark::new(MarkKind::Suspect, text));
            }
            terms.push(Term::new(format!("reading {}", of.name), cost.series(refused), None, None));
            facts.push(of);
        }
        for pair in &second {
            let hz = hz.value.unwrap_or(1_000_000_000);
            let name = format!("cache line from CPU {} to {}", pair.from, pair.to);
            terms.push(Term::new(name, pair.ways(hz).series(refused), None, None));
        }
        let tsc_pairs: Vec<TscPair> =
            first.iter().zip(&second).map(|(first, second)| TscPair::new(first, second, hz.value)).collect();
        if tsc_pairs.iter().any(|pair| pair.warps > 0) {
            let text = "the time stamp counter of one CPU was behind that of another CPU that had been read earlier";
            marks.push(Mark::new(MarkKind::Suspect, text));
        }
        if self.cpus.len() < 2 {
            marks.push(Mark::new(MarkKind::NotAvailable, "only one CPU, so there is no other counter to compare with"));
        }
        Ok(Measured {
            probe: Name::Clock,
            variant: "all".into(),
            settings: self.settings(),
            counter: self.counter(),
            overhead: vec![own],
            conditions,
            duration_ns: Some(duration.as_nanos()),
            interrupted: control.stopped(),
            terms,
            detail: Detail::Clock(ClockDetail {
                clocks: facts,
                tsc_hz: hz,
                tsc_invariant: invariant(control).into(),
                tsc_pairs,
            }),
            exceeded,
            marks,
        })
    }
}

impl Clock {
    fn settings(&self) -> BTreeMap<String, String> {
        settings(self.priority, [("cpu", cpu_list(&self.cpus)), ("duration", self.duration.to_string())])
    }
}

/// The time that measuring a batch adds to each of its readings.
fn reading_cost() -> Overhead {
    let mut cost = Recorder::new();
    for _ in 0..BATCHES {
        let before = LinuxCpu.now();
        let after = LinuxCpu.now();
        cost.record(after.since(before).unwrap_or(Nanos::ZERO));
    }
    Overhead {
        what: format!("timing a batch of {BATCH}, divided among its readings"),
        median_ns: cost.median().unwrap_or(Nanos::ZERO).as_nanos() / BATCH,
        in_samples: true,
        n: BATCHES,
    }
}

/// The first batch whose readings took longer than the threshold.
struct Over {
    from: Instant<Monotonic>,
    to: Instant<Monotonic>,
    /// Mean cost of a reading.
    sample: Nanos,
}

/// Measures the cost of reading each clock. Stops at the first cost above the threshold, without the remaining clocks.
fn read_all(control: &Control) -> (Vec<(Recorder, ClockFacts)>, Option<Over>) {
    let mut over = None;
    let read = CLOCKS
        .iter()
        // Leaves out clocks that this kernel lacks: the alarm clocks need a real-time clock device.
        .filter(|(_, id)| clock_gettime_dynamic(DynamicClockId::Known(*id)).is_ok())
        .map(|(name, id)| {
            let mut cost = Recorder::new();
            let (mut smallest, mut backwards) = (None::<u64>, 0);
            let mut last = clockcheck::now(*id);
            for _ in 0..BATCHES {
                if over.is_some() {
                    break;
                }
                let before = LinuxCpu.now();
                for _ in 0..BATCH {
                    let now = clockcheck::now(*id);
                    match now - last {
                        0 => {}
                        step @ 1.. => smallest = Some(smallest.map_or(step as u64, |least| least.min(step as u64))),
                        _ => backwards += 1,
                    }
                    last = now;
                }
                let after = LinuxCpu.now();
                let sample = after.since(before).unwrap_or(Nanos::ZERO) / BATCH;
                cost.record(sample);
                if control.is_over(sample) {
                    over = Some(Over { from: before, to: after, sample });
                }
            }
            let resolution = clock_getres(*id);
            let resolution_ns = resolution.tv_sec.unsigned_abs() * 1_000_000_000 + resolution.tv_nsec.unsigned_abs();
            (cost, ClockFacts { name: (*name).into(), resolution_ns, smallest_step_ns: smallest, backwards })
        })
        .filter(|(cost, _): &(Recorder, ClockFacts)| !cost.is_empty())
        .collect();
    (read, over)
}

fn raw() -> i128 {
    clockcheck::now(ClockId::MonotonicRaw)
}

/// Ticks of the time stamp counter per second, measured over 20 ms on the first call; `None` without a counter.
pub(crate) fn tsc_hz() -> Option<u64> {
    static HZ: std::sync::OnceLock<Option<u64>> = std::sync::OnceLock::new();
    *HZ.get_or_init(|| {
        let from = (sys::tsc(), raw());
        std::thread::sleep(LOOK);
        counters::rate(from, (sys::tsc(), raw())).value
    })
}

fn invariant(control: &Control) -> Result<bool, String> {
    let path = control.root.join("proc/cpuinfo");
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let flags = text.lines().find_map(|line| line.strip_prefix("flags")?.trim_start().strip_prefix(':'));
    let flags = flags.ok_or("/proc/cpuinfo has no \"flags\" on this architecture")?;
    let has = |wanted: &str| flags.split_ascii_whitespace().any(|flag| flag == wanted);
    Ok(has("constant_tsc") && has("nonstop_tsc"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_clock_of_this_machine_is_read() {
        let (read, over) = read_all(&Control::new(None));
        assert!(over.is_none());
        let (few, over) = read_all(&Control::new(Some(Nanos::from_nanos(1))));
        assert!(few.len() == 1 && over.is_some_and(|over| over.sample > Nanos::from_nanos(1)));
        assert!(read.len() >= 8);
        for (cost, facts) in &read {
            assert_eq!(cost.len(), BATCHES, "{}", facts.name);
            assert!(cost.median().unwrap() > Nanos::ZERO, "{}", facts.name);
        }
        let of = |name: &str| read.iter().find(|(_, facts)| facts.name == name).unwrap();
        let (fine, coarse) = (of("CLOCK_MONOTONIC"), of("CLOCK_MONOTONIC_COARSE"));
        assert!(coarse.1.resolution_ns > 1_000 * fine.1.resolution_ns, "{coarse:?}");
        assert_eq!(fine.1.backwards, 0);
    }

    #[test]
    fn flags_of_the_processor() {
        let root = std::env::temp_dir().join(format!("apus-clock-{}", std::process::id()));
        fs::create_dir_all(root.join("proc")).unwrap();
        let mut control = Control::new(None);
        control.root = root.clone();
        for (flags, expected) in [("tsc constant_tsc nonstop_tsc", true), ("tsc constant_tsc", false)] {
            fs::write(root.join("proc/cpuinfo"), format!("model name\t: x\nflags\t\t: fpu {flags}\n")).unwrap();
            assert_eq!(invariant(&control), Ok(expected));
        }
        fs::write(root.join("proc/cpuinfo"), "Features\t: fp asimd\n").unwrap();
        assert!(invariant(&control).is_err());
        fs::remove_dir_all(root).unwrap();
    }
}
