//! PCI Express active-state power management: an idle link goes to sleep and must be woken.

use units::Nanos;

use super::{ModelError, check};
use crate::At;

/// When an idle link goes to sleep, and how long it takes to wake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AspmModel {
    /// Idle time after which the link enters L1.
    pub idle: Nanos,
    /// Time to return from L1 to L0.
    pub exit: Nanos,
}

impl AspmModel {
    /// Returns an error if the idle time before L1 is 0.
    pub fn validate(&self) -> Result<(), ModelError> {
        check(self.idle > Nanos::ZERO, "ASPM", || "enters L1 after an idle time of 0: omit ASPM instead".into())
    }
}

/// The state of one link.
///
/// ```text
///   L0 ── idle elapsed ──► L1 ── access: exit latency ──► L0
/// ```
#[derive(Clone, Debug)]
pub struct Aspm {
    model: AspmModel,
    active_until: At,
    exits: u64,
}

impl Aspm {
    /// Makes a link that is in L0.
    pub fn new(model: AspmModel) -> Result<Self, ModelError> {
        model.validate()?;
        Ok(Self { model, active_until: At::ORIGIN, exits: 0 })
    }

    /// Starts a transfer at `now`. Returns its delay.
    pub fn access(&mut self, now: At) -> Nanos {
        let asleep = now > self.active_until + self.model.idle;
        let delay = if asleep { self.model.exit } else { Nanos::ZERO };
        self.exits += u64::from(asleep);
        self.active_until = self.active_until.max(now + delay);
        delay
    }

    /// When the link enters L1 if no transfer comes before that.
    pub fn poll_at(&self) -> At {
        self.active_until + self.model.idle
    }

    /// Number of times the link was woken.
    pub const fn exits(&self) -> u64 {
        self.exits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_idle_link_is_late() {
        let model = AspmModel { idle: Nanos::from_micros(7), exit: Nanos::from_micros(8) };
        let mut link = Aspm::new(model).unwrap();
        let us = |n: u64| At::from_nanos(n * 1_000);
        assert_eq!(link.access(us(5)), Nanos::ZERO);
        assert_eq!(link.access(us(13)), Nanos::from_micros(8));
        assert_eq!(link.poll_at(), us(28));
        assert_eq!(link.access(us(28)), Nanos::ZERO);
        assert_eq!(link.exits(), 1);
        assert!(Aspm::new(AspmModel { idle: Nanos::ZERO, ..model }).is_err());
    }
}
