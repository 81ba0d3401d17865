//! A search that is preceded by a trial which does not count.

use units::Nanos;

use super::{Outcome, Search, Step, Verdict};

/// Runs one trial at a given load before a search starts, and ignores its outcome: caches, flow tables and clock
/// frequencies of a device are cold at first, and a bad early trial would bind the whole search.
#[derive(Clone, Debug)]
pub struct WarmedUp<S> {
    search: S,
    warm_up: Option<Step>,
}

impl<S: Search> WarmedUp<S> {
    /// Puts a trial of `duration` at `load_pps` before `search`.
    pub fn new(search: S, load_pps: u64, duration: Nanos) -> Self {
        Self { search, warm_up: Some(Step { load_pps, duration, confirms: false }) }
    }

    /// The search itself.
    pub fn search(&self) -> &S {
        &self.search
    }
}

impl<S: Search> Search for WarmedUp<S> {
    fn next_step(&self) -> Option<Step> {
        self.warm_up.or_else(|| self.search.next_step())
    }

    fn record(&mut self, step: Step, outcome: Outcome) -> Verdict {
        match self.warm_up.take() {
            Some(_) => Verdict::Pass,
            None => self.search.record(step, outcome),
        }
    }
}
