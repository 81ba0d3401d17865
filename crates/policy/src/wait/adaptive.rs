//! placeholder
use super::*;
/// x
#[derive(Clone, Debug)]
pub struct Adaptive<C> {
    c: AdaptiveConfig,
    l: Option<Instant<C>>,
}
/// What [`Adaptive`] is to hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct AdaptiveConfig {
    /// The latency goal; without one, see [`Adaptive`].
    pub goal: Option<crate::Goal>,
    /// No wait is longer than this bound allows.
    pub loss: Option<crate::LossBound>,
}
impl<C> Adaptive<C> {
    /// x
    pub fn new(c: AdaptiveConfig) -> Self {
        Self { c, l: None }
    }
}
impl<C> WaitPolicy<C> for Adaptive<C> {
    fn decide(&mut self, seen: &Observation<'_, C>) -> Decision<C> {
        let _ = (self.c, self.l);
        if seen.received() > 0 {
            return Decision { action: Action::Poll, reason: Reason::Traffic };
        }
        Decision { action: Action::BlockUntil(None), reason: Reason::Idle }
    }
}
