//! Measures the lateness of a periodic timer: the time from the expiry of a timer until the thread that waits for it
//! runs.
//!
//! ```text
//!   due 0     due 1     due 2     due 3     due 4
//!     |─────────|─────────|─────────|─────────|──────►
//!     └► woken        stopped ···········└► woken
//!       raw: 1 sample                      raw: 1 sample, from due 1
//!                                  back-filled: 3, from due 1, due 2 and due 3
//! ```
//! Waits are absolute, so lateness does not add up. If an activation becomes due while the thread is still stalled by
//! an earlier one, the stall hides the activation. cyclictest (rt-tests, cyclictest.c, `timerthread`) and timerlat
//! (kernel/trace/trace_osnoise.c, `wait_next_period`) skip such activations silently, so that a stall of a second
//! counts once instead of a thousand times. The raw series here does the same; the back-filled series contains the
//! lateness of each hidden activation. The result also contains the share of time lost in stalls.
//!
//! The first activation is due one interval after the start.

mod activations;
mod sleeper;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use live::cpu::{Cpu as _, LinuxCpu};
use tester::histogram::HIGHEST_NS;
use tester::host::Reading;
use units::{Instant, Monotonic, Nanos};

use crate::cause::{Causes, Watcher};
use crate::conditions::Conditions;
use crate::detail::Detail;
use crate::detail::timer::{TimerCpu, TimerDetail};
use crate::mark::{Mark, MarkKind};
use crate::measured::{Blocked, Counter, Exceeded, Measured, Name, Overhead, Term, suspicion};
use crate::observe::{Observation, cpu_list, reading_the_clock, settings};
use crate::place::Place;
use crate::record::Recorder;
use crate::{Control, Error, Probe};

pub use crate::detail::timer::Wait;
pub use activations::Activations;
use sleeper::Sleeper;

/// Shortest interval allowed. Below it, the work of the measuring loop would take a large part of each interval.
pub const SHORTEST_INTERVAL: Nanos = Nanos::from_micros(10);
/// Time between two fetches of events.
const FETCH: Duration = Duration::from_millis(5);

/// Default interval, as in cyclictest.
const USUAL_INTERVAL: Nanos = Nanos::from_millis(1);

/// The probe `timer` and its settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Timer {
    /// CPUs to measure. Each has its own measuring thread, and all run at the same time.
    pub cpus: Vec<usize>,
    /// SCHED_FIFO priority of the measuring threads, 1 to 99. `None` measures in the normal class (SCHED_OTHER).
    pub priority: Option<u8>,
    /// Timer slack of the threads.
    pub slack: Nanos,
    /// Time from one timer expiry to the next.
    pub interval: Nanos,
    /// Duration of the measurement.
    pub duration: Nanos,
    /// System call with which the threads wait.
    pub wait: Wait,
    /// Load on the host during the measurement, such as `none` or `cpu`: a label that is copied to [`Conditions`].
    pub load: String,
}

impl Timer {
    /// Creates a probe for `cpu` with these defaults: clock_nanosleep, normal scheduling class, 1 ns of timer slack, 1
    /// ms interval, 10 s duration.
    pub fn new(cpu: usize) -> Self {
        Self {
            cpus: vec![cpu],
            priority: None,
            slack: Nanos::from_nanos(1),
            interval: USUAL_INTERVAL,
            duration: Nanos::from_secs(10),
            wait: Wait::ClockNanosleep,
            load: "none".into(),
        }
    }

    fn check(&self) -> Result<(), Error> {
        if self.interval < SHORTEST_INTERVAL {
            let why = format!("expected at least {SHORTEST_INTERVAL}");
            return Err(Error::invalid(format!("an interval of {}", self.interval), why));
        }
        if self.duration < self.interval {
            let why = format!("not even one interval of {} fits in it", self.interval);
            return Err(Error::invalid(format!("a duration of {}", self.duration), why));
        }
        Ok(())
    }

    /// Name of the variant: the system call for waiting, and the interval if it is not the default.
    fn variant(&self) -> String {
        if self.interval == USUAL_INTERVAL {
            self.wait.to_string()
        } else {
            format!("{} each {}", self.wait, self.interval)
        }
    }

    fn settings(&self) -> BTreeMap<String, String> {
        settings(
            self.priority,
            [
                ("cpu", cpu_list(&self.cpus)),
                ("interval", self.interval.to_string()),
                ("duration", self.duration.to_string()),
                ("slack", self.slack.to_string()),
                ("wait", self.wait.to_string()),
            ],
        )
    }
}

/// Results of a measuring thread.
struct Ran {
    cpu: usize,
    activations: Activations,
    conditions: Conditions,
    early: u64,
    over: Option<(Instant<Monotonic>, Nanos)>,
    run: Nanos,
}

impl Probe for Timer {
    fn counter(&self) -> Counter {
        Counter {
            counts: format!(
                "from the requested time to the first clock reading of the thread that {} woke; CLOCK_MONOTONIC, absolute",
                self.wait
            ),
            resolution_ns: 1,
            highest_ns: HIGHEST_NS,
            blind_spots: vec![
                "disturbances that end while the thread still sleeps".into(),
                "which part of a wake-up was slow: timer, interrupt, idle exit or scheduler".into(),
                "the exit latency of an idle state that a packet would pay, on processors that wake before a timer expires"
                    .into(),
            ],
        }
    }

    fn run(&self, control: &Control) -> Result<Measured, Error> {
        self.check()?;
        let observation = Observation::begin(control, &self.cpus)?;
        let overhead = overhead(self);
        // Tracepoints are used only to explain the sample that ends the run, because they cost time on the measured
        // CPU.
        let causes = if control.fail_over.is_some() { Causes::Auto } else { Causes::None };
        let watch = |cpu: &usize| Watcher::start(&control.root, *cpu, &thread_name(*cpu), causes);
        let mut watchers: Vec<Watcher> = self.cpus.iter().map(watch).collect();
        let ended = AtomicBool::new(false);
        let ran: Vec<Ran> = std::thread::scope(|scope| {
            let spawn = |cpu: usize| {
                let (ended, locked) = (&ended, &observation.memory_locked);
                let body = move || {
                    let ran = self.measure(cpu, control, ended, locked);
                    if ran.is_err() {
                        ended.store(true, Ordering::Relaxed);
                    }
                    ran
                };
                std::thread::Builder::new().spawn_scoped(scope, body).map_err(|e| Error::system("start a thread", e))
            };
            let threads: Vec<_> = self.cpus.iter().map(|cpu| spawn(*cpu)).collect();
            if threads.iter().any(Result::is_err) {
                ended.store(true, Ordering::Relaxed);
            }
            while threads.iter().flatten().any(|thread| !thread.is_finished()) {
                watchers.iter_mut().for_each(Watcher::poll);
                std::thread::sleep(FETCH);
            }
            let join = |thread: Result<std::thread::ScopedJoinHandle<'_, _>, _>| {
                thread?.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect::<Result<Vec<_>, Error>>()
        })?;
        let mut conditions = ran[0].conditions.clone();
        let seen = observation.end(&mut conditions);
        let refused = seen.refused.as_deref();
        let mut marks = seen.marks;
        let mut terms = Vec::new();
        for of in &ran {
            let name = if ran.len() == 1 { "lateness".into() } else { format!("lateness on CPU {}", of.cpu) };
            let (raw, filled) = of.activations.series(refused);
            marks.extend(suspicion(&name, &raw));
            let share = |part: Nanos| (of.run > Nanos::ZERO).then(|| part.as_nanos() as f64 / of.run.as_nanos() as f64);
            let blocked = Blocked {
                stalls: of.activations.stalls(),
                blocked_ns: of.activations.blocked().as_nanos(),
                share: share(of.activations.blocked()),
                late_share: share(of.activations.late()),
            };
            terms.push(Term::new(name, raw, Some(filled), Some(blocked)));
        }
        let early: u64 = ran.iter().map(|of| of.early).sum();
        if early > 0 {
            marks.push(Mark::new(MarkKind::Note, format!("{early} waits returned too early and were repeated")));
        }
        if self.priority.is_none() && self.slack > Nanos::from_micros(1) {
            let text = format!("every sample includes the timer slack of {}", self.slack);
            marks.push(Mark::new(MarkKind::Note, text));
        }
        if let Some(why) = watchers.iter().find_map(Watcher::not_traced) {
            marks.push(Mark::new(MarkKind::NotAvailable, format!("no tracepoints: {why}")));
        }
        watchers.iter_mut().for_each(Watcher::collect);
        let exceeded = ran.iter().zip(&mut watchers).find_map(|(of, watcher)| {
            of.over.map(|(due, late)| Exceeded {
                threshold_ns: control.fail_over.map_or(0, Nanos::as_nanos),
                sample_ns: late.as_nanos(),
                at_ns: due.since(of.activations.start()).unwrap_or(Nanos::ZERO).as_nanos(),
                explained: watcher.explain((due, due + late), false, Nanos::ZERO).to_string(),
            })
        });
        Ok(Measured {
            probe: Name::Timer,
            variant: self.variant(),
            settings: self.settings(),
            counter: self.counter(),
            overhead,
            duration_ns: ran.iter().map(|of| of.run.as_nanos()).max(),
            interrupted: control.stopped(),
            conditions,
            terms,
            detail: Detail::Timer(TimerDetail {
                wait: self.wait.into(),
                interval_ns: self.interval.as_nanos(),
                cpus: ran
                    .iter()
                    .map(|of| TimerCpu {
                        cpu: of.cpu,
                        activations: of.activations.served(),
                        swallowed: of.activations.swallowed(),
                        early: of.early,
                    })
                    .collect(),
            }),
            exceeded,
            marks,
        })
    }
}

impl Timer {
    /// Measures on one CPU, in its own thread.
    fn measure(
        &self,
        cpu: usize,
        control: &Control,
        ended: &AtomicBool,
        memory_locked: &Reading<bool>,
    ) -> Result<Ran, Error> {
        Place { cpu, priority: self.priority, slack: self.slack }.take(&thread_name(cpu))?;
        let conditions = Conditions::of_this_thread(&control.root, &self.cpus, memory_locked, &self.load);
        // Only one thread may show its samples. The first thread is as good as any.
        let shows = self.cpus.first() == Some(&cpu);
        let (mut early, mut over) = (0, None);
        let mut activations = Activations::new(LinuxCpu.now(), self.interval);
        // The start time is read after the preparations: locked memory is filled when it is allocated, and half a
        // megabyte may take milliseconds.
        let start = LinuxCpu.now();
        activations.begin(start);
        let mut sleeper = Sleeper::new(self.wait, activations.due(), self.interval)?;
        let end = start + self.duration;
        let mut now = start;
        while activations.due() <= end && !ended.load(Ordering::Relaxed) && !control.stopped() {
            let due = activations.due();
            sleeper.wait_for(due)?;
            now = LinuxCpu.now();
            let Some(late) = activations.woke(now) else {
                early += 1;
                continue;
            };
            if shows {
                control.show(late);
            }
            if control.is_over(late) {
                over = Some((due, late));
                ended.store(true, Ordering::Relaxed);
            }
        }
        let run = now.since(start).unwrap_or(Nanos::ZERO);
        Ok(Ran { cpu, activations, conditions, early, over, run })
    }
}

fn thread_name(cpu: usize) -> String {
    format!("apus-timer-{cpu}")
}

/// Measures the cost of an activation without its wait, by serving activations that are due at once.
fn overhead(timer: &Timer) -> Vec<Overhead> {
    const N: u64 = 2_000;
    /// Number of activations timed together, because on many hosts a single activation takes less than the resolution
    /// of the clock.
    const BATCH: u64 = 50;
    let control = Control::new(None);
    let reading = reading_the_clock("reading the clock after waking");
    let mut keeping = Recorder::new();
    // The activations are far enough apart that none is hidden, and all are in the past.
    let mut at = LinuxCpu.now();
    let mut activations = Activations::new(at, timer.interval);
    for _ in 0..N {
        let before = LinuxCpu.now();
        for _ in 0..BATCH {
            at = at + timer.interval;
            if let Some(late) = activations.woke(at) {
                control.show(late);
            }
        }
        let after = LinuxCpu.now();
        keeping.record(after.since(before).unwrap_or(Nanos::ZERO));
    }
    let batch_ns = keeping.median().unwrap_or(Nanos::ZERO).as_nanos();
    let keeping = Overhead {
        what: "storing the samples of an activation before the next wait".into(),
        median_ns: batch_ns.saturating_sub(reading.median_ns).div_ceil(BATCH),
        in_samples: false,
        n: N * BATCH,
    };
    vec![reading, keeping]
}
