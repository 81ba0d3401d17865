//! PCI Express active-state power management: a link that was idle has to be woken.

use units::Nanos;

use super::{ModelError, check};
use crate::At;

/// What a link does when it is idle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AspmModel {
    /// Idle time until L1 is entered.
    pub idle: Nanos,
    /// From L1 back to L0.
    pub exit: Nanos,
}

impl AspmModel {
    /// Refuses a link that would wake more slowly than it sleeps.
    pub fn validate(&self) -> Result<(), ModelError> {
        check(self.idle > Nanos::ZERO, "ASPM", || "enters L1 after an idle time of 0: omit ASPM instead".into())
    }
}

/// One link.
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
    /// A link that is in L0.
    pub fn new(model: AspmModel) -> Result<Self, ModelError> {
        model.validate()?;
        Ok(Self { model, active_until: At::ORIGIN, exits: 0 })
    }

    /// A transfer at `now`: how long it is delayed.
    pub fn access(&mut self, now: At) -> Nanos {
        let asleep = now > self.active_until + self.model.idle;
        let delay = if asleep { self.model.exit } else { Nanos::ZERO };
        self.exits += u64::from(asleep);
        self.active_until = self.active_until.max(now + delay);
        delay
    }

    /// When the link will enter L1, if nothing comes.
    pub fn poll_at(&self) -> At {
        self.active_until + self.model.idle
    }

    /// Times that it was woken.
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
