//! Blocks as soon as a poll finds no frame.

use super::{Action, Decision, Observation, Reason, WaitPolicy};

/// Polls while frames arrive. At the first empty poll it arms the interrupts, polls once more and blocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interrupt;

impl<C> WaitPolicy<C> for Interrupt {
    #[inline]
    fn decide(&mut self, seen: &Observation<'_, C>) -> Decision<C> {
        if seen.received() > 0 {
            Decision { action: Action::Poll, reason: Reason::Traffic }
        } else {
            Decision { action: Action::BlockUntil(None), reason: Reason::Fixed }
        }
    }
}
