//! Never waits.

use super::{Action, Decision, Observation, Reason, WaitPolicy};

/// Polls forever: the lowest latency, at the price of a whole core.
#[derive(Clone, Copy, Debug, Default)]
pub struct Poll;

impl<C> WaitPolicy<C> for Poll {
    #[inline]
    fn decide(&mut self, _: &Observation<'_, C>) -> Decision<C> {
        Decision { action: Action::Poll, reason: Reason::Fixed }
    }
}
