//! What was seen of waits at frequencies that are not in force.

use crate::wait::Evidence;

/// Frequencies that are remembered: the best of late, and those that are tried beside it.
const MOST: usize = 4;

/// The last few frequencies, by the number of their P-state, the last one first.
#[derive(Clone, Debug)]
pub(super) struct Known {
    list: [Option<(usize, Evidence)>; MOST],
}

impl Known {
    pub(super) const fn new() -> Self {
        Self { list: [const { None }; MOST] }
    }

    /// This was seen at a P-state until now.
    pub(super) fn keep(&mut self, state: usize, evidence: &Evidence) {
        let is_it = |known: &Option<(usize, Evidence)>| known.as_ref().is_none_or(|(other, _)| *other == state);
        let place = self.list.iter().position(is_it).unwrap_or(MOST - 1);
        self.list[..=place].rotate_right(1);
        self.list[0] = Some((state, evidence.clone()));
    }

    /// What was seen at a P-state.
    pub(super) fn of(&self, state: usize) -> Option<&Evidence> {
        self.list.iter().flatten().find(|(other, _)| *other == state).map(|(_, evidence)| evidence)
    }

    /// The traffic is another.
    pub(super) fn forget(&mut self) {
        self.list = [const { None }; MOST];
    }
}
