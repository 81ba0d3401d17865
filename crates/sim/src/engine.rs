//! The event queue: which component acts next, and when.
//!
//! Every component of a world has one slot. The slot holds the time at which the component next wants to act, or
//! nothing if it does not. The next event is the earliest of these times; among equal times, the lowest id comes first.
//! The number of slots is fixed, so nothing is allocated after construction. A component that changes its mind
//! overwrites its time, so there are no stale events.

use crate::At;

/// A component's number in the [`Agenda`].
pub type Id = usize;

/// Stands for "no event is due".
const NEVER: u64 = u64::MAX;

/// The times at which the components next want to act, as a winner tree over their slots.
///
/// Setting a time takes log2(components) steps; reading the earliest takes none. Source: D. E. Knuth, "The Art of
/// Computer Programming", vol. 3, 5.4.1 (tree of losers and winners).
#[derive(Clone, Debug)]
pub struct Agenda {
    /// Times in nanoseconds, by id, padded to a power of two.
    due: Vec<u64>,
    /// `winner[n]` is the id with the earliest time below node n. Node 1 is the root.
    winner: Vec<u32>,
}

impl Agenda {
    /// Makes an agenda with `components` empty slots, ids 0 to `components` - 1.
    ///
    /// # Panics
    /// Panics if there are more than 2^31 components.
    pub fn new(components: usize) -> Self {
        let leaves = components.next_power_of_two();
        assert!(leaves <= 1 << 31, "an agenda holds at most 2^31 components");
        let mut winner = vec![0; 2 * leaves];
        for node in (1..2 * leaves).rev() {
            winner[node] = if node >= leaves { (node - leaves) as u32 } else { winner[2 * node] };
        }
        Self { due: vec![NEVER; leaves], winner }
    }

    /// Sets the time at which component `id` wants to act, and overwrites the previous one. `None` if it does not want
    /// to act.
    #[inline]
    pub fn set(&mut self, id: Id, at: Option<At>) {
        let nanos = at.map_or(NEVER, |at| at.as_nanos().min(NEVER - 1));
        if self.due[id] == nanos {
            return;
        }
        self.due[id] = nanos;
        let mut node = (self.due.len() + id) / 2;
        while node > 0 {
            let (left, right) = (self.winner[2 * node], self.winner[2 * node + 1]);
            // The left one has the lower id, so it wins a tie.
            self.winner[node] = if self.due[right as usize] < self.due[left as usize] { right } else { left };
            node /= 2;
        }
    }

    /// The time at which `id` wants to act. `None` if it does not want to act.
    #[inline]
    pub fn get(&self, id: Id) -> Option<At> {
        Some(self.due[id]).filter(|due| *due != NEVER).map(At::from_nanos)
    }

    /// The time and component of the earliest event. `None` if no component wants to act.
    #[inline]
    pub fn next(&self) -> Option<(At, Id)> {
        let id = self.winner[1] as usize;
        self.get(id).map(|at| (at, id))
    }

    /// Whether an event of `id` at `at` would come before all events that are set.
    #[inline]
    pub fn would_be_next(&self, id: Id, at: At) -> bool {
        self.next().is_none_or(|earliest| (at, id) < earliest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_tie_goes_to_the_lower_id() {
        let mut agenda = Agenda::new(3);
        assert_eq!(agenda.next(), None);
        for id in [2, 1, 0] {
            agenda.set(id, Some(At::from_nanos(5)));
            assert_eq!(agenda.next(), Some((At::from_nanos(5), id)));
        }
        assert!(!agenda.would_be_next(1, At::from_nanos(5)));
        agenda.set(0, None);
        assert_eq!(agenda.next(), Some((At::from_nanos(5), 1)));
        assert!(agenda.would_be_next(0, At::from_nanos(5)));
    }

    #[test]
    fn one_component_is_enough() {
        let mut agenda = Agenda::new(1);
        agenda.set(0, Some(At::from_nanos(u64::MAX)));
        assert_eq!(agenda.next(), Some((At::from_nanos(u64::MAX - 1), 0)));
    }

    proptest! {
        #[test]
        fn agrees_with_a_plain_search(
            components in 1usize..20,
            steps in prop::collection::vec((0usize..20, prop::option::of(0u64..50)), 0..200),
        ) {
            let mut agenda = Agenda::new(components);
            let mut plain: Vec<Option<u64>> = vec![None; components];
            for (id, at) in steps {
                let id = id % components;
                plain[id] = at;
                agenda.set(id, at.map(At::from_nanos));
                let expected = plain.iter().enumerate().filter_map(|(id, at)| at.map(|at| (At::from_nanos(at), id))).min();
                prop_assert_eq!(agenda.next(), expected);
            }
        }
    }
}
