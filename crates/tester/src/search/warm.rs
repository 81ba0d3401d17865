//! A search that starts with a warm-up trial.

use units::Nanos;

use super::{Outcome, Search, Step, Verdict};

/// Runs one trial at a given load before a search starts, and ignores its outcome. Before the warm-up, the caches and
/// flow tables of a device are cold, and its clock frequency may be low. A trial that fails for this reason would
/// mislead the whole search.
#[derive(Clone, Debug)]
pub struct WarmedUp<S> {
    search: S,
    warm_up: Option<Step>,
}

impl<S: Search> WarmedUp<S> {
    /// Adds a warm-up trial of `duration` at `load_pps` before `search`.
    pub fn new(search: S, load_pps: u64, duration: Nanos) -> Self {
        Self { search, warm_up: Some(Step { load_pps, duration, confirms: false }) }
    }

    /// The search that follows the warm-up trial.
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
