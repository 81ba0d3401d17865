//! Measures gaps in a loop that never sleeps: when the CPU was taken away from it, for how long, and by what.
//!
//! ```text
//!   measuring thread, CPU n                 the calling thread, other CPUs
//!     read clock ─► count the round ─┐
//!          ▲         gap: record,    │
//!          └─────────────────────────┘
//!                    disturbance ───────────► explain it from the events of CPU n
//! ```
//! A *disturbance* is one gap, or several with at most 5 us between them. In a storm of interrupts, no single gap is
//! long, but together they leave the loop no time.
//!
//! The time for counting one pass of the loop belongs to the next pass, so no gap is missed: gaps and work add up to
//! the whole run. oslat (rt-tests) works in the same way; hwlat observes half of the time, on one CPU at a time (kernel
//! documentation, trace/hwlat_detector).
//!
//! The series `gap` contains each gap once. Its back-filled series answers another question: if a packet arrives at a
//! random time, how long does it wait until the loop polls? It assumes one arrival per microsecond over the whole run,
//! both in gaps and outside them.

mod look;
mod packets;
mod spin;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use live::cpu::LinuxCpu;
use tester::histogram::HIGHEST_NS;
use tester::host::Reading;
use units::Nanos;

use crate::cause::{Causes, Evidence, Explanation};
use crate::conditions::Conditions;
use crate::detail::Detail;
use crate::detail::jitter::{CauseTotal, Explained, JitterCpu, JitterDetail};
use crate::mark::{Mark, MarkKind};
use crate::measured::{Blocked, Counter, Exceeded, Measured, Name, Overhead, Term, suspicion};
use crate::observe::{Observation, Seen, cpu_list, settings};
use crate::place::Place;
use crate::record::Recorder;
use crate::ring::Ring;
use crate::{Control, Error, Probe};

use look::{Channel, Looker, thread_name};
pub use packets::Traffic;
use spin::{Look, Spun, spin};

/// Largest value allowed for [`Jitter::gap_over`]. It is limited because each nanosecond below the value needs a
/// counter.
pub const LONGEST_ROUND: Nanos = Nanos::from_micros(100);
/// Interval of the hypothetical arrivals in the back-filled series.
const ARRIVALS: Nanos = Nanos::from_micros(1);
/// Time between two fetches of events and gaps.
const FETCH: Duration = Duration::from_millis(5);
/// For how long the loop's own cost is measured.
const OWN_COST: Nanos = Nanos::from_millis(20);

/// The probe `jitter` and its settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Jitter {
    /// CPUs on which to busy-loop, one thread each, at the same time.
    pub cpus: Vec<usize>,
    /// SCHED_FIFO priority of the measuring threads, 1 to 99. `None` measures in the normal class (SCHED_OTHER).
    pub priority: Option<u8>,
    /// Duration of the measurement.
    pub duration: Nanos,
    /// A pass of the loop that takes longer than this is a gap. At most [`LONGEST_ROUND`].
    pub gap_over: Nanos,
    /// Disturbances longer than this are explained. Gaps at most 5 us apart are one disturbance, because in a storm of
    /// interrupts no single gap is long.
    pub explain_over: Nanos,
    /// How the causes of disturbances are found.
    pub causes: Causes,
    /// Assumed traffic and receive ring, for which lost packets are computed.
    pub traffic: Traffic,
    /// Load on the host during the measurement, such as `none` or `cpu`: a label that is copied to [`Conditions`].
    pub load: String,
}

impl Jitter {
    /// Creates a probe for `cpu` that measures in the normal scheduling class for 10 s. Passes above 1 us are gaps, and
    /// disturbances above 10 us are explained.
    pub fn new(cpu: usize) -> Self {
        Self {
            cpus: vec![cpu],
            priority: None,
            duration: Nanos::from_secs(10),
            gap_over: Nanos::from_micros(1),
            explain_over: Nanos::from_micros(10),
            causes: Causes::Auto,
            traffic: Traffic::default(),
            load: "none".into(),
        }
    }

    fn check(&self) -> Result<(), Error> {
        if self.gap_over == Nanos::ZERO || self.gap_over > LONGEST_ROUND {
            let why = format!("expected 1ns to {LONGEST_ROUND}");
            return Err(Error::invalid(format!("--gap-over {}", self.gap_over), why));
        }
        if self.explain_over < self.gap_over {
            let why = format!("only gaps can be explained, and they start at {}", self.gap_over);
            return Err(Error::invalid(format!("--explain-over {}", self.explain_over), why));
        }
        self.traffic.check()
    }

    fn settings(&self) -> BTreeMap<String, String> {
        let mut settings = settings(
            self.priority,
            [
                ("cpu", cpu_list(&self.cpus)),
                ("duration", self.duration.to_string()),
                ("gap_over", self.gap_over.to_string()),
                ("explain_over", self.explain_over.to_string()),
                ("causes", self.causes.to_string()),
                ("ring", self.traffic.ring.to_string()),
            ],
        );
        settings.extend(self.traffic.rate.map(|rate| ("rate".to_owned(), format!("{}pps", rate.as_pps()))));
        settings.extend(self.traffic.capacity.map(|rate| ("capacity".to_owned(), format!("{}pps", rate.as_pps()))));
        settings
    }
}

impl Probe for Jitter {
    fn counter(&self) -> Counter {
        Counter {
            counts: format!(
                "from one reading of CLOCK_MONOTONIC to the next in a loop that does nothing else; longer than {} is a gap; back-filled: the wait of a packet every {ARRIVALS} until the loop polls",
                self.gap_over
            ),
            resolution_ns: 1,
            highest_ns: HIGHEST_NS,
            blind_spots: vec![
                "no gap is missed, but the loop touches little memory: caches flushed by others cost it less than they cost a real worker"
                    .into(),
                "the loop keeps its CPU awake and at full speed: the costs of sleeping or of a low frequency are not included".into(),
            ],
        }
    }

    fn run(&self, control: &Control) -> Result<Measured, Error> {
        self.check()?;
        // The gap that ends the run must be among the explained ones.
        let explain_over = control.fail_over.map_or(self.explain_over, |fail_over| self.explain_over.min(fail_over));
        Self { explain_over, ..self.clone() }.measure_all(control)
    }
}

/// Results of a measuring thread.
struct Ran {
    cpu: usize,
    conditions: Conditions,
    own_cost: Recorder,
    spun: Spun,
}

impl Jitter {
    /// Measures on all CPUs, and explains the disturbances meanwhile.
    fn measure_all(&self, control: &Control) -> Result<Measured, Error> {
        let observation = Observation::begin(control, &self.cpus)?;
        let mut lookers: Vec<Looker> = self.cpus.iter().map(|cpu| Looker::new(self, *cpu, control)).collect();
        if self.causes == Causes::Trace
            && let Some(why) = lookers.iter().find_map(|looker| looker.watcher.not_traced())
        {
            let fix = "run as root, or find causes by counters (--causes counters)";
            return Err(Error::lacking("find causes by tracepoints", why, fix));
        }
        let channels: Vec<Channel> = self.cpus.iter().map(|_| Channel::new()).collect();
        let ended = AtomicBool::new(false);
        let ran: Vec<Ran> = std::thread::scope(|scope| {
            let spawn = |(cpu, channel)| {
                let (ended, locked) = (&ended, &observation.memory_locked);
                let body = move || {
                    let ran = self.measure(cpu, control, ended, locked, channel);
                    if ran.as_ref().map_or(true, |ran| ran.spun.over.is_some()) {
                        ended.store(true, Ordering::Relaxed);
                    }
                    ran
                };
                std::thread::Builder::new().spawn_scoped(scope, body).map_err(|e| Error::system("start a thread", e))
            };
            let threads: Vec<_> = self.cpus.iter().copied().zip(&channels).map(spawn).collect();
            if threads.iter().any(Result::is_err) {
                ended.store(true, Ordering::Relaxed);
            }
            loop {
                let done = threads.iter().flatten().all(|thread| thread.is_finished());
                lookers.iter_mut().zip(&channels).for_each(|(looker, channel)| looker.fetch(channel, control));
                if done {
                    break;
                }
                std::thread::sleep(FETCH);
            }
            let join = |thread: Result<std::thread::ScopedJoinHandle<'_, _>, _>| {
                thread?.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect::<Result<Vec<_>, Error>>()
        })?;
        let mut conditions = ran[0].conditions.clone();
        let mut seen = observation.end(&mut conditions);
        let backwards: u64 = ran.iter().map(|of| of.spun.backwards).sum();
        if backwards > 0 {
            seen.refuse(format!("the clock ran backwards {backwards} times"));
        }
        let mut own_cost = Recorder::new();
        ran.iter().for_each(|of| own_cost.add(&of.own_cost));
        if let Some(why) = self.slow_clock(&own_cost, &conditions.clocksource) {
            seen.marks.push(Mark::new(MarkKind::Suspect, why.clone()));
            seen.refuse(why);
        }
        seen.marks.extend(self.remarks(&lookers));
        let lost: Vec<u64> = channels.iter().map(|channel| channel.disturbances.lost()).collect();
        Ok(self.measured(control, (ran, own_cost), lookers, &lost, conditions, seen))
    }

    /// Why the passes of the loop cannot be told from gaps: reading the clock takes about as long as the shortest gap.
    fn slow_clock(&self, own_cost: &Recorder, source: &Reading<String>) -> Option<String> {
        own_cost.median().filter(|pass| *pass * 2 > self.gap_over)?;
        let source = source.value.as_deref().unwrap_or("unknown");
        Some(format!(
            "one pass of the loop takes more than half of {}, above which a pass is a gap: choose a longer --gap-over, or a faster clock source (it is {source})",
            self.gap_over
        ))
    }

    /// Measures on one CPU, in its own thread.
    fn measure(
        &self,
        cpu: usize,
        control: &Control,
        ended: &AtomicBool,
        memory_locked: &Reading<bool>,
        channel: &Channel,
    ) -> Result<Ran, Error> {
        Place { cpu, priority: self.priority, slack: Nanos::from_nanos(1) }.take(&thread_name(cpu))?;
        let conditions = Conditions::of_this_thread(&control.root, &self.cpus, memory_locked, &self.load);
        channel.tid.store(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs(), Ordering::Relaxed);
        let look = Look {
            gap_over: self.gap_over,
            explain_over: self.explain_over,
            fail_over: control.fail_over,
            traffic: self.traffic,
        };
        let stop = || ended.load(Ordering::Relaxed) || control.stopped();
        // Runs the same loop without reporting anything. The time of its passes is the loop's own cost.
        let nobody = Look { fail_over: None, ..look };
        let own_cost = spin(&LinuxCpu, OWN_COST, nobody, &Ring::new(1), stop).passes();
        let spun = spin(&LinuxCpu, self.duration, look, &channel.disturbances, stop);
        Ok(Ran { cpu, conditions, own_cost, spun })
    }

    fn remarks(&self, lookers: &[Looker]) -> Vec<Mark> {
        let mut marks = Vec::new();
        if let Some(why) = lookers.iter().find_map(|looker| looker.watcher.not_traced()) {
            marks.push(Mark::new(MarkKind::NotAvailable, format!("no tracepoints: {why}")));
        }
        if lookers.iter().any(|looker| looker.watcher.evidence() == Evidence::Trace) {
            let text = "tracepoints were on: each event cost the measured CPU some hundred nanoseconds";
            marks.push(Mark::new(MarkKind::Note, text));
        }
        marks
    }

    fn measured(
        &self,
        control: &Control,
        (ran, own_cost): (Vec<Ran>, Recorder),
        lookers: Vec<Looker>,
        lost: &[u64],
        conditions: Conditions,
        seen: Seen,
    ) -> Measured {
        let refused = seen.refused.as_deref();
        let mut marks = seen.marks;
        let (mut terms, mut cpus, mut exceeded) = (Vec::new(), Vec::new(), None);
        let alone = ran.len() == 1;
        let mut longest = Nanos::ZERO;
        for ((of, looker), lost) in ran.into_iter().zip(lookers).zip(lost) {
            let run = of.spun.end.since(of.spun.begin).unwrap_or(Nanos::ZERO);
            longest = longest.max(run);
            let name = if alone { "gap".into() } else { format!("gap on CPU {}", of.cpu) };
            let term = term(&name, &of.spun, run, refused);
            marks.extend(suspicion(&name, &term.raw));
            terms.push(term);
            if let (None, Some((from, gap))) = (&exceeded, of.spun.over) {
                let unknown = || "its disturbance was not among the explained ones".to_owned();
                exceeded = Some(Exceeded {
                    threshold_ns: control.fail_over.unwrap_or(Nanos::ZERO).as_nanos(),
                    sample_ns: gap.as_nanos(),
                    at_ns: from.since(of.spun.begin).unwrap_or(Nanos::ZERO).as_nanos(),
                    explained: looker.explanation(from).map_or_else(unknown, Explanation::to_string),
                });
            }
            cpus.push(cpu(of, run, looker, *lost));
        }
        Measured {
            probe: Name::Jitter,
            variant: "spin".into(),
            settings: self.settings(),
            counter: self.counter(),
            overhead: vec![Overhead {
                what: "one pass of the loop: reading the clock and counting the previous pass; shorter gaps cannot be seen"
                    .into(),
                median_ns: own_cost.median().unwrap_or(Nanos::ZERO).as_nanos(),
                in_samples: true,
                n: own_cost.len(),
            }],
            conditions,
            duration_ns: Some(longest.as_nanos()),
            interrupted: control.stopped(),
            terms,
            detail: Detail::Jitter(JitterDetail {
                gap_over_ns: self.gap_over.as_nanos(),
                explain_over_ns: self.explain_over.as_nanos(),
                cpus,
            }),
            exceeded,
            marks,
        }
    }
}

fn term(name: &str, spun: &Spun, run: Nanos, refused: Option<&str>) -> Term {
    let share = |part: Nanos| (run > Nanos::ZERO).then(|| part.as_nanos() as f64 / run.as_nanos() as f64);
    let away = spun.gaps.sum();
    let blocked =
        Blocked { stalls: spun.gaps.len(), blocked_ns: away.as_nanos(), share: share(away), late_share: share(away) };
    Term::new(name, spun.gaps.series(refused), Some(arrivals(spun).series(refused)), Some(blocked))
}

/// Waiting times of hypothetical arrivals, one every [`ARRIVALS`], until the loop polls. In a gap of length g, they
/// wait for g, g - 1 us, g - 2 us and so on; outside gaps, they wait for half a pass.
fn arrivals(spun: &Spun) -> Recorder {
    let mut waits = Recorder::new();
    let round = spun.work.median().unwrap_or(Nanos::ZERO) / 2;
    waits.record_n(round, spun.work.sum().as_nanos() / ARRIVALS.as_nanos());
    let wait = |waits: &mut Recorder, gap: Nanos, n: u64| {
        let mut rest = gap;
        while rest > Nanos::ZERO {
            waits.record_n(rest, n);
            rest = rest.saturating_sub(ARRIVALS);
        }
    };
    spun.gaps.each(|gap, n| wait(&mut waits, gap, n));
    let highest = Nanos::from_nanos(HIGHEST_NS);
    for gap in &spun.longest {
        // The waits above the histogram's range are only counted. Below the first one, all are recorded as their mean.
        let above = gap.saturating_sub(highest).as_nanos().div_ceil(ARRIVALS.as_nanos());
        wait(&mut waits, gap.saturating_sub(ARRIVALS * above), 1);
        waits.record(*gap);
        waits.record_n(gap.saturating_sub(ARRIVALS * above / 2), above - 1);
    }
    waits
}

fn cpu(of: Ran, run: Nanos, looker: Looker, lost: u64) -> JitterCpu {
    let Ran { cpu, spun, .. } = of;
    let (evidence, unexplained) = (looker.watcher.evidence(), looker.unexplained + lost);
    let (causes, largest) = looker.result(spun.begin);
    JitterCpu {
        cpu,
        run_ns: run.as_nanos(),
        rounds: spun.work.len(),
        work_ns: spun.work.sum().as_nanos(),
        round_median_ns: spun.work.median().map(Nanos::as_nanos),
        gaps: spun.gaps.len(),
        gaps_ns: spun.gaps.sum().as_nanos(),
        large_gaps: spun.large,
        large_gaps_ns: spun.large_sum.as_nanos(),
        unexplained,
        backwards: spun.backwards,
        evidence,
        causes,
        largest,
        packets: spun.packets,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Instant;

    #[test]
    fn refuses_what_cannot_be() {
        let good = Jitter::new(0);
        assert!(good.check().is_ok());
        for bad in [
            Jitter { gap_over: Nanos::ZERO, ..good.clone() },
            Jitter { gap_over: Nanos::from_millis(1), explain_over: Nanos::from_millis(2), ..good.clone() },
            Jitter { explain_over: Nanos::from_nanos(10), ..good.clone() },
        ] {
            assert!(matches!(bad.check(), Err(Error::Invalid { .. })), "{bad:?}");
        }
    }

    fn spun(work: Recorder, gap: Nanos) -> Spun {
        let zero = Instant::from_nanos(0);
        let mut gaps = Recorder::new();
        gaps.record(gap);
        Spun {
            begin: zero,
            end: zero,
            work,
            gaps,
            longest: Some(gap).filter(|gap| gap.as_nanos() > HIGHEST_NS).into_iter().collect(),
            large: 0,
            large_sum: Nanos::ZERO,
            backwards: 0,
            over: None,
            packets: packets::Backlog::new(Traffic::default()).end(Nanos::ZERO),
        }
    }

    #[test]
    fn arrivals_wait_as_long_as_is_left_of_the_gap() {
        let mut work = Recorder::new();
        work.record_n(Nanos::from_nanos(40), 25_000); // 1 ms
        let waits = arrivals(&spun(work, Nanos::from_micros(10)));
        // 1000 arrivals wait for half a pass, and the others for 10, 9, … 1 us.
        assert_eq!(
            (waits.len(), waits.max(), waits.min()),
            (1_010, Some(Nanos::from_micros(10)), Some(Nanos::from_nanos(20)))
        );
        assert_eq!(waits.sum(), Nanos::from_nanos(1_000 * 20 + 55_000));
    }

    #[test]
    fn arrivals_in_a_gap_above_the_histogram_count_too() {
        // 4.5 s and half a microsecond.
        let gap = Nanos::from_nanos(4_500_000_500);
        let waits = arrivals(&spun(Recorder::new(), gap));
        // One waits for 500 ns, and the others for 1 us more each.
        let sum = (0..=4_500_000u64).map(|n| n * 1_000 + 500).sum();
        assert_eq!((waits.len(), waits.max(), waits.min()), (4_500_001, Some(gap), Some(Nanos::from_nanos(500))));
        assert_eq!(waits.sum(), Nanos::from_nanos(sum));
        let above = (0..=4_500_000u64).filter(|n| n * 1_000 + 500 > HIGHEST_NS).count() as u64;
        assert_eq!(waits.series(None).histogram.overflow, above);
    }

    #[test]
    fn a_clock_as_slow_as_a_gap_is_named() {
        let jitter = Jitter::new(0);
        let passes = |ns: u64| {
            let mut passes = Recorder::new();
            passes.record_n(Nanos::from_nanos(ns), 100);
            jitter.slow_clock(&passes, &Reading::known("hpet".into()))
        };
        assert_eq!((passes(40), passes(500)), (None, None));
        let why = passes(1_600).unwrap();
        assert!(why.contains("more than half of 1us") && why.contains("it is hpet"), "{why}");
    }
}
