//! Observes the measured CPU from another CPU: collects the events on the measured CPU, and explains what used it.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant as StdInstant};

use units::{Instant, Monotonic, Nanos};

use super::charge::{Event, charge};
use super::counters::{Counters, Usual};
use super::sys::{PerfRing, Record};
use super::trace::Tracepoints;
use super::{Cause, Causes, Charge, Evidence, Explanation, main_cause};

/// Number of events kept: two seconds at 100,000 per second.
const HISTORY: usize = 200_000;
/// Time between two readings of the counters while there is nothing to explain.
const READ: Duration = Duration::from_millis(100);

/// Collects trace events or counters of one CPU. Call [`poll`](Self::poll) from another CPU, so that the watcher takes
/// no time from the watched CPU.
#[derive(Debug)]
pub struct Watcher {
    root: PathBuf,
    cpu: usize,
    own: String,
    tid: Option<u32>,
    tracing: Option<Tracing>,
    counting: Option<Counting>,
    not_traced: Option<String>,
}

#[derive(Debug)]
struct Tracing {
    ring: PerfRing,
    points: Tracepoints,
    history: VecDeque<Event>,
    /// Time of the newest discarded event. `None` if no event was discarded.
    forgotten: Option<Instant<Monotonic>>,
    lost: u64,
}

#[derive(Debug)]
struct Counting {
    last: Counters,
    read: StdInstant,
    usual: Usual,
}

impl Watcher {
    /// Starts watching `cpu`, on which the thread named `own` measures. `root` is `/`, except in tests.
    ///
    /// If tracepoints are not available, the watcher uses counters, provided that `causes` allows counters.
    /// [`Self::not_traced`] then returns the reason.
    pub fn start(root: &Path, cpu: usize, own: &str, causes: Causes) -> Self {
        let tracing = match causes {
            Causes::Auto | Causes::Trace => Some(Tracing::open(root, cpu)),
            Causes::Counters | Causes::None => None,
        };
        let (tracing, not_traced) = match tracing {
            Some(Ok(tracing)) => (Some(tracing), None),
            Some(Err(why)) => (None, Some(why)),
            None => (None, None),
        };
        let counting = match causes {
            Causes::Auto | Causes::Counters => {
                let last = read(root, cpu, None, tracing.is_some());
                Some(Counting { last, read: StdInstant::now(), usual: Usual::default() })
            }
            Causes::Trace | Causes::None => None,
        };
        Self { root: root.to_path_buf(), cpu, own: comm(own), tid: None, tracing, counting, not_traced }
    }

    /// The kind of evidence on which the explanations of this watcher are based.
    pub fn evidence(&self) -> Evidence {
        match (&self.tracing, &self.counting) {
            (Some(_), _) => Evidence::Trace,
            (None, Some(_)) => Evidence::Counters,
            (None, None) => Evidence::Nothing,
        }
    }

    /// The reason why requested tracepoints are not available. `None` if they are available or were not requested.
    pub fn not_traced(&self) -> Option<&str> {
        self.not_traced.as_deref()
    }

    /// Changes the name by which the watcher recognizes the measuring thread.
    pub fn own_is(&mut self, own: &str) {
        self.own = comm(own);
    }

    /// Sets the thread identifier of the measuring thread. Its scheduling counters show whether other threads or
    /// interrupts delayed it.
    pub fn thread_is(&mut self, tid: u32) {
        self.tid = Some(tid);
        self.count();
    }

    /// Fetches new events.
    pub fn collect(&mut self) {
        if let Some(tracing) = &mut self.tracing {
            tracing.collect();
        }
    }

    /// Fetches new events, and reads the counters from time to time. Call it about a hundred times per second while
    /// nothing is waiting to be explained.
    pub fn poll(&mut self) {
        self.collect();
        let Some(counting) = &mut self.counting else { return };
        if counting.read.elapsed() >= READ {
            let now = read(&self.root, self.cpu, self.tid, self.tracing.is_some());
            counting.usual.learn(counting.last.moved(&now));
            (counting.last, counting.read) = (now, StdInstant::now());
        }
    }

    /// Explains what used the CPU from `from` to `to`. Call [`collect`](Self::collect) after `to` first. `running` is
    /// true if the measuring thread is known to have run at `from`. `present` is the time for which the measuring
    /// thread ran between `from` and `to`; it is not part of the explanation.
    pub fn explain(
        &mut self,
        (from, to): (Instant<Monotonic>, Instant<Monotonic>),
        running: bool,
        present: Nanos,
    ) -> Explanation {
        let length = to.since(from).unwrap_or(Nanos::ZERO).saturating_sub(present);
        let mut explanation = Explanation {
            length_ns: length.as_nanos(),
            cause: Cause::Unaccounted,
            throttled: false,
            charges: Vec::new(),
            evidence: self.evidence(),
            events_lost: 0,
        };
        if let Some(tracing) = &mut self.tracing {
            let history = tracing.history.make_contiguous();
            (explanation.charges, explanation.throttled) = charge(&self.own, running, (from, to), history);
            without(&mut explanation.charges, present);
            explanation.cause = main_cause(&explanation.charges);
            explanation.events_lost = std::mem::take(&mut tracing.lost);
            let incomplete = tracing.forgotten.is_some_and(|at| at > from);
            explanation.events_lost += u64::from(incomplete);
        }
        let Some(counting) = &mut self.counting else { return explanation };
        if self.tracing.is_some() {
            if explanation.cause == Cause::Unaccounted {
                let now = Counters::read_outside(&self.root, self.cpu);
                explanation.cause = counting.last.outside(&now).unwrap_or(Cause::Unaccounted);
                (counting.last, counting.read) = (now, StdInstant::now());
            }
        } else {
            let now = read(&self.root, self.cpu, self.tid, false);
            (explanation.cause, explanation.charges) = counting.last.likely(&now, &counting.usual, length);
            (counting.last, counting.read) = (now, StdInstant::now());
        }
        explanation
    }

    /// Discards the events before `before`. Later calls of [`explain`](Self::explain) must not ask for earlier times.
    pub fn forget(&mut self, before: Instant<Monotonic>) {
        if let Some(tracing) = &mut self.tracing {
            let keep = tracing.history.partition_point(|event| event.at < before);
            tracing.history.drain(..keep);
        }
    }

    fn count(&mut self) {
        if let Some(counting) = &mut self.counting {
            counting.last = read(&self.root, self.cpu, self.tid, self.tracing.is_some());
            counting.read = StdInstant::now();
        }
    }
}

/// A thread name as the kernel truncates it: TASK_COMM_LEN is 16 with the terminating zero (include/linux/sched.h).
fn comm(name: &str) -> String {
    name.chars().take(15).collect()
}

/// Subtracts the measuring thread's own time from the unaccounted time: no event shows when its loop ran.
fn without(charges: &mut Vec<Charge>, present: Nanos) {
    if let Some(unaccounted) = charges.iter_mut().find(|charge| charge.cause == Cause::Unaccounted) {
        unaccounted.ns = unaccounted.ns.saturating_sub(present.as_nanos());
    }
    charges.retain(|charge| charge.ns > 0);
    charges.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| a.cause.cmp(&b.cause)));
}

fn read(root: &Path, cpu: usize, tid: Option<u32>, traced: bool) -> Counters {
    if traced { Counters::read_outside(root, cpu) } else { Counters::read(root, cpu, tid) }
}

impl Tracing {
    fn open(root: &Path, cpu: usize) -> Result<Self, String> {
        let points = Tracepoints::read(root)?;
        let ring = PerfRing::open(cpu, &points.ids()).map_err(|error| {
            format!("perf_event_open: {error} (needs root or CAP_PERFMON; see kernel.perf_event_paranoid)")
        })?;
        Ok(Self { ring, points, history: VecDeque::new(), forgotten: None, lost: 0 })
    }

    fn collect(&mut self) {
        let Self { ring, points, history, lost, .. } = self;
        let old = history.len();
        ring.drain(|record| match record {
            Record::Sample(at, raw) => history.extend(points.event(at, raw)),
            Record::Lost(n) => *lost += n,
        });
        // A nested context may write its record before the one that it interrupted.
        let new = history.make_contiguous();
        if !new[old.min(new.len())..].is_sorted_by_key(|event| event.at) {
            new.sort_by_key(|event| event.at);
        }
        while self.history.len() > HISTORY {
            self.forgotten = self.history.pop_front().map(|event| event.at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use live::cpu::{Cpu as _, LinuxCpu};

    #[test]
    fn a_watcher_without_anything_explains_nothing() {
        let mut watcher = Watcher::start(Path::new("/nonexistent"), 0, "x", Causes::Trace);
        assert_eq!(watcher.evidence(), Evidence::Nothing);
        assert!(watcher.not_traced().unwrap().contains("tracing file system"));
        watcher.poll();
        let explanation = watcher.explain((Instant::from_nanos(5), Instant::from_nanos(9)), true, Nanos::ZERO);
        assert_eq!((explanation.length_ns, &explanation.cause), (4, &Cause::Unaccounted));
        assert_eq!(explanation.to_string(), "causes were not recorded");
    }

    #[test]
    fn a_sleep_is_seen_as_one() {
        let cpu = *crate::place::allowed().unwrap().last().unwrap();
        let mut watcher = Watcher::start(Path::new("/"), cpu, "apus-sleeper", Causes::Trace);
        if let Some(why) = watcher.not_traced() {
            testkit::skip(why);
            return;
        }
        let (from, to) = std::thread::spawn(move || {
            crate::place::Place::on(cpu).take("apus-sleeper").unwrap();
            let from = LinuxCpu.now();
            std::thread::sleep(Duration::from_millis(30));
            (from, LinuxCpu.now())
        })
        .join()
        .unwrap();
        watcher.poll();
        let explanation = watcher.explain((from, to), true, Nanos::ZERO);
        // The events show what used the CPU in the meantime, idle or another thread. Little time is left unexplained.
        let named: u64 = explanation.charges.iter().filter(|of| of.cause != Cause::Unaccounted).map(|of| of.ns).sum();
        assert!(named * 2 > explanation.length_ns, "{explanation:#?}");
        assert_eq!(explanation.charges.iter().map(|of| of.ns).sum::<u64>(), explanation.length_ns);
    }
}
