//! Measures the time to hand over from one thread to another: from the call that wakes the other thread to the first
//! clock reading in that thread.
//!
//! ```text
//!   A   pause, stamp, wake ─┐  block ·························► woken: stamp, pause, wake …
//!   B   ···· blocked ·······└► woken: stamp │ pause, stamp, wake ─┘
//! ```
//! On one CPU, a handover is a context switch: the waker's call, its own blocking, and the other thread's return. On
//! two CPUs, it is a wake-up across CPUs: the waker's call, an interrupt to the other CPU (unless that CPU polls), its
//! exit from an idle state, and the return. The pause lets the other thread block before it is woken. Without the
//! pause, a call that never blocked would count as a switch.
//!
//! The result is a distribution, while `perf bench sched pipe` and lmbench's lat_ctx give only the mean of a loop.

pub(crate) mod way;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use live::cpu::{Cpu as _, LinuxCpu};
use tester::histogram::HIGHEST_NS;
use tester::host::Reading;
use units::{Instant, Monotonic, Nanos};

use crate::cause::{Causes, Watcher};
use crate::conditions::Conditions;
use crate::detail::Detail;
use crate::detail::switch::SwitchDetail;
use crate::mark::{Mark, MarkKind};
use crate::measured::{Counter, Exceeded, Measured, Name, Overhead, Term, suspicion};
use crate::observe::{Observation, settings};
use crate::place::Place;
use crate::record::Recorder;
use crate::{Control, Error, Probe};

pub use crate::detail::switch::Via;
use way::Way;

/// The probe `switch` and its settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Switch {
    /// CPU of the first thread.
    pub cpu: usize,
    /// CPU of the second thread; the same CPU measures a context switch.
    pub peer: usize,
    /// How the two threads wake each other.
    pub via: Via,
    /// SCHED_FIFO priority of both threads, 1 to 99. `None` measures in the normal class (SCHED_OTHER).
    pub priority: Option<u8>,
    /// Time for which a thread busy-loops before it wakes the other thread.
    pub pause: Nanos,
    /// Duration of the measurement.
    pub duration: Nanos,
    /// Load on the host during the measurement, such as `none` or `cpu`: a label that is copied to [`Conditions`].
    pub load: String,
}

impl Switch {
    /// Creates a probe for handovers between threads on `cpu` and `peer`: normal scheduling class, a pause of 20 us,
    /// for one second.
    pub fn new(cpu: usize, peer: usize, via: Via) -> Self {
        let (pause, duration) = (Nanos::from_micros(20), Nanos::from_secs(1));
        Self { cpu, peer, via, priority: None, pause, duration, load: "none".into() }
    }

    fn cpus(&self) -> Vec<usize> {
        if self.cpu == self.peer { vec![self.cpu] } else { vec![self.cpu, self.peer] }
    }

    fn variant(&self) -> String {
        format!("{}, {}", self.via, if self.cpu == self.peer { "same CPU" } else { "different CPUs" })
    }

    fn settings(&self) -> BTreeMap<String, String> {
        settings(
            self.priority,
            [
                ("cpu", self.cpu.to_string()),
                ("peer", self.peer.to_string()),
                ("via", self.via.to_string()),
                ("pause", self.pause.to_string()),
                ("duration", self.duration.to_string()),
            ],
        )
    }
}

/// What both threads share.
struct Shared<'a> {
    control: &'a Control,
    ways: [Way; 2],
    /// Time of the last wake.
    stamp: AtomicU64,
    end: AtomicBool,
    until: Instant<Monotonic>,
    pause: Nanos,
}

/// Results of a thread.
struct Ran {
    handovers: Recorder,
    conditions: Conditions,
    over: Option<(Instant<Monotonic>, Nanos, usize)>,
}

impl Probe for Switch {
    fn counter(&self) -> Counter {
        let idle = if self.cpu == self.peer {
            "the threads use little memory, which stays in the cache; a switch between large threads also refills caches".to_owned()
        } else {
            format!("the woken CPU was idle for only {}: a longer sleep may be deeper", self.pause)
        };
        Counter {
            counts: format!(
                "from the clock reading before the waking call ({}) to the first clock reading of the woken thread, in both directions; CLOCK_MONOTONIC",
                self.via
            ),
            resolution_ns: 1,
            highest_ns: HIGHEST_NS,
            blind_spots: vec![idle],
        }
    }

    fn run(&self, control: &Control) -> Result<Measured, Error> {
        let observation = Observation::begin(control, &self.cpus())?;
        let overhead = overhead(self.via)?;
        let causes = if control.fail_over.is_some() { Causes::Auto } else { Causes::None };
        let watch = |cpu: usize| Watcher::start(&control.root, cpu, &thread_name(cpu == self.cpu), causes);
        let mut watchers: Vec<(usize, Watcher)> = self.cpus().into_iter().map(|cpu| (cpu, watch(cpu))).collect();
        let began = LinuxCpu.now();
        let shared = Shared {
            control,
            ways: [Way::new(self.via)?, Way::new(self.via)?],
            stamp: AtomicU64::new(0),
            end: AtomicBool::new(false),
            until: began + self.duration,
            pause: self.pause,
        };
        let ran: Vec<Ran> = std::thread::scope(|scope| {
            let spawn = |first: bool| {
                let (shared, locked) = (&shared, &observation.memory_locked);
                let body = move || {
                    let ran = self.hand_over(first, shared, locked);
                    // A thread that ends wakes the other one, so that the other one sees the end.
                    shared.end.store(true, Ordering::SeqCst);
                    shared.ways[usize::from(first)].wake()?;
                    ran
                };
                std::thread::Builder::new().spawn_scoped(scope, body).map_err(|e| Error::system("start a thread", e))
            };
            let threads = [spawn(true), spawn(false)];
            if threads.iter().any(Result::is_err) {
                shared.end.store(true, Ordering::SeqCst);
                shared.ways.iter().try_for_each(Way::wake)?;
            }
            while threads.iter().flatten().any(|thread| !thread.is_finished()) {
                watchers.iter_mut().for_each(|(_, watcher)| watcher.poll());
                std::thread::sleep(FETCH);
            }
            let join = |thread: Result<std::thread::ScopedJoinHandle<'_, _>, _>| {
                thread?.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect::<Result<Vec<_>, Error>>()
        })?;
        let duration = LinuxCpu.now().since(began).unwrap_or(Nanos::ZERO);
        let mut conditions = ran[0].conditions.clone();
        let seen = observation.end(&mut conditions);
        let mut marks = seen.marks;
        let mut all = ran[0].handovers.clone();
        all.add(&ran[1].handovers);
        let term = Term::new("handover", all.series(seen.refused.as_deref()), None, None);
        marks.extend(suspicion(&term.name, &term.raw));
        let over = ran.iter().zip([true, false]).find_map(|(of, first)| of.over.map(|over| (over, first)));
        if let Some(why) = watchers.iter().find_map(|(_, watcher)| watcher.not_traced()) {
            marks.push(Mark::new(MarkKind::NotAvailable, format!("no tracepoints: {why}")));
        }
        let exceeded = over.map(|((from, late, cpu), first)| {
            let watcher = watchers.iter_mut().find(|(of, _)| *of == cpu).map(|(_, watcher)| watcher);
            let explained = watcher.map_or_else(String::new, |watcher| {
                watcher.collect();
                // On one CPU, both threads belong to the measurement.
                watcher.own_is(&thread_name(first));
                watcher.explain((from, from + late), false, Nanos::ZERO).to_string()
            });
            Exceeded {
                threshold_ns: control.fail_over.unwrap_or(Nanos::ZERO).as_nanos(),
                sample_ns: late.as_nanos(),
                at_ns: from.since(began).unwrap_or(Nanos::ZERO).as_nanos(),
                explained,
            }
        });
        Ok(Measured {
            probe: Name::Switch,
            variant: self.variant(),
            settings: self.settings(),
            counter: self.counter(),
            overhead,
            conditions,
            duration_ns: Some(duration.as_nanos()),
            interrupted: control.stopped(),
            terms: vec![term],
            detail: Detail::Switch(SwitchDetail {
                via: self.via.into(),
                same_cpu: self.cpu == self.peer,
                pause_ns: self.pause.as_nanos(),
            }),
            exceeded,
            marks,
        })
    }
}

/// Number of handovers at the start of each thread that are not counted, because the other thread may still be moving
/// to its CPU.
const WARM_UP: u32 = 4;
/// Time between two fetches of events.
const FETCH: std::time::Duration = std::time::Duration::from_millis(5);

fn thread_name(first: bool) -> String {
    if first { "apus-switch-a" } else { "apus-switch-b" }.to_owned()
}

impl Switch {
    /// Runs one of the two threads. `ways[0]` wakes the first thread, `ways[1]` the second.
    fn hand_over(&self, first: bool, shared: &Shared<'_>, memory_locked: &Reading<bool>) -> Result<Ran, Error> {
        let cpu = if first { self.cpu } else { self.peer };
        Place { cpu, priority: self.priority, slack: Nanos::from_nanos(1) }.take(&thread_name(first))?;
        let control = shared.control;
        let conditions = Conditions::of_this_thread(&control.root, &self.cpus(), memory_locked, &self.load);
        let (mine, others) = (&shared.ways[usize::from(!first)], &shared.ways[usize::from(first)]);
        let mut ran = Ran { handovers: Recorder::new(), conditions, over: None };
        if first {
            // Gives the other thread time to reach its place, which it usually does.
            std::thread::sleep(std::time::Duration::from_millis(5));
            wake(others, shared)?;
        }
        let mut passed = 0;
        loop {
            mine.wait()?;
            let now = LinuxCpu.now();
            if shared.end.load(Ordering::SeqCst) {
                return Ok(ran);
            }
            let from = Instant::from_nanos(shared.stamp.load(Ordering::Acquire));
            let late = now.since(from).unwrap_or(Nanos::ZERO);
            passed += 1;
            if passed > WARM_UP {
                ran.handovers.record(late);
                if first {
                    control.show(late);
                }
            }
            if passed > WARM_UP && control.is_over(late) {
                ran.over = Some((from, late, cpu));
                return Ok(ran);
            }
            if now >= shared.until || control.stopped() {
                return Ok(ran);
            }
            wake(others, shared)?;
        }
    }
}

/// Pauses, stores the time, and wakes the other thread.
fn wake(way: &Way, shared: &Shared<'_>) -> Result<(), Error> {
    let mut cpu = LinuxCpu;
    let now = cpu.now();
    cpu.pause_until(now + shared.pause);
    shared.stamp.store(LinuxCpu.now().as_nanos(), Ordering::Release);
    way.wake()
}

/// Measures the cost of the waking call when no thread waits.
fn overhead(via: Via) -> Result<Vec<Overhead>, Error> {
    const N: u64 = 1_000;
    let way = Way::new(via)?;
    let (mut call, mut clock) = (Recorder::new(), Recorder::new());
    for _ in 0..N {
        let before = LinuxCpu.now();
        let between = LinuxCpu.now();
        way.wake()?;
        let after = LinuxCpu.now();
        way.wait()?;
        clock.record(between.since(before).unwrap_or(Nanos::ZERO));
        call.record(after.since(between).unwrap_or(Nanos::ZERO));
    }
    let median = |of: &Recorder| of.median().unwrap_or(Nanos::ZERO).as_nanos();
    Ok(vec![
        Overhead { what: "reading the clock".into(), median_ns: median(&clock), in_samples: true, n: N },
        Overhead {
            what: format!("the waking call ({via}) when no thread waits"),
            median_ns: median(&call).saturating_sub(median(&clock)),
            in_samples: true,
            n: N,
        },
    ])
}
