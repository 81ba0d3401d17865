//! The part of the calling thread: fetches the disturbances and explains them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

use units::{Instant, Monotonic, Nanos};

use super::spin::Disturbance;
use super::{CauseTotal, Explained, Jitter};
use crate::Control;
use crate::cause::{Cause, Evidence, Explanation, Watcher};
use crate::ring::Ring;

/// Maximum number of disturbances that wait to be explained.
const PENDING: usize = 1 << 14;
/// Maximum number of disturbances that are reported individually.
const REPORTED: usize = 32;

/// Connects the measuring thread of one CPU with the observer.
#[derive(Debug)]
pub(super) struct Channel {
    /// Disturbances to be explained.
    pub disturbances: Ring<4>,
    /// Identifier of the measuring thread; 0 until it is known.
    pub tid: AtomicU32,
}

impl Channel {
    pub(super) fn new() -> Self {
        Self { disturbances: Ring::new(PENDING), tid: AtomicU32::new(0) }
    }
}

/// What is known about the disturbances of one CPU.
#[derive(Debug)]
pub(super) struct Looker {
    pub watcher: Watcher,
    totals: HashMap<Cause, CauseTotal>,
    largest: Vec<(Disturbance, Explanation)>,
    /// The disturbance that was explained last. If a gap ended the run, the gap is in it.
    last: Option<(Disturbance, Explanation)>,
    pub unexplained: u64,
    named: bool,
}

impl Looker {
    pub(super) fn new(jitter: &Jitter, cpu: usize, control: &Control) -> Self {
        let watcher = Watcher::start(&control.root, cpu, &thread_name(cpu), jitter.causes);
        Self { watcher, totals: HashMap::new(), largest: Vec::new(), last: None, unexplained: 0, named: false }
    }

    /// Fetches and explains the disturbances since the last call.
    pub(super) fn fetch(&mut self, channel: &Channel, control: &Control) {
        let tid = channel.tid.load(Ordering::Relaxed);
        if tid != 0 && !self.named {
            self.watcher.thread_is(tid);
            self.named = true;
        }
        let mut new = Vec::new();
        channel.disturbances.drain(|numbers| new.push(Disturbance::from_numbers(numbers)));
        new.iter().for_each(|of| control.show(of.away));
        if self.watcher.evidence() != Evidence::Trace && new.len() > 1 {
            // Counters cannot distinguish several disturbances. The longest one is explained by all changes since the
            // last look.
            self.unexplained += new.len() as u64 - 1;
            new.sort_by_key(|of| of.away);
            new.drain(..new.len() - 1);
        }
        self.watcher.collect();
        for of in new {
            let present = of.to.since(of.from).unwrap_or(Nanos::ZERO).saturating_sub(of.away);
            let explanation = self.watcher.explain((of.from, of.to), true, present);
            self.keep(of, explanation);
            self.watcher.forget(of.to);
        }
        self.watcher.poll();
    }

    fn keep(&mut self, of: Disturbance, explanation: Explanation) {
        self.last = Some((of, explanation.clone()));
        let (cause, length) = (&explanation.cause, explanation.length_ns);
        if explanation.evidence == Evidence::Nothing {
            self.unexplained += 1;
        } else {
            let new = || CauseTotal { cause: cause.clone(), disturbances: 0, away_ns: 0, largest_ns: 0 };
            let total = self.totals.entry(cause.clone()).or_insert_with(new);
            total.disturbances += 1;
            total.away_ns += length;
            total.largest_ns = total.largest_ns.max(length);
        }
        let at = self.largest.partition_point(|(_, other)| other.length_ns >= length);
        if at < REPORTED {
            self.largest.insert(at, (of, explanation));
            self.largest.truncate(REPORTED);
        }
    }

    /// The explanation of the disturbance that contains the time `from`, if it is the last or among the largest.
    pub(super) fn explanation(&self, from: Instant<Monotonic>) -> Option<&Explanation> {
        self.last
            .iter()
            .chain(&self.largest)
            .find(|(of, _)| of.from <= from && from < of.to)
            .map(|(_, explanation)| explanation)
    }

    /// The main causes and the largest disturbances of a run that began at `begin`.
    pub(super) fn result(self, begin: Instant<Monotonic>) -> (Vec<CauseTotal>, Vec<Explained>) {
        let mut causes: Vec<CauseTotal> = self.totals.into_values().collect();
        causes.sort_by(|a, b| b.away_ns.cmp(&a.away_ns).then_with(|| a.cause.cmp(&b.cause)));
        let nanos = |to: Instant<Monotonic>, from| to.since(from).unwrap_or(Nanos::ZERO).as_nanos();
        let largest = self.largest.into_iter().map(|(of, explanation)| Explained {
            at_ns: nanos(of.from, begin),
            span_ns: nanos(of.to, of.from),
            gaps: of.gaps,
            explanation,
        });
        (causes, largest.collect())
    }
}

/// Name of the measuring thread, which identifies it in sched_switch. The PIDs there belong to the initial PID
/// namespace, which a container does not know.
pub(super) fn thread_name(cpu: usize) -> String {
    format!("apus-jitter-{cpu}")
}
