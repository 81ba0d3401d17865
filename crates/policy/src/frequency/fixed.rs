//! The frequency that an administrator set.

use units::Hertz;

use super::{Decision, FrequencyPolicy, Observation, Reason};

/// Requests one frequency and never changes it, like `cpupower frequency-set`, or like an equal minimum and maximum in
/// the HWP request register (Intel 637284-001US, appendix A.7.1: MSR 0x774).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fixed {
    frequency: Hertz,
}

impl Fixed {
    /// Requests `frequency` from the start.
    pub const fn new(frequency: Hertz) -> Self {
        Self { frequency }
    }
}

impl<C> FrequencyPolicy<C> for Fixed {
    fn requested(&self) -> Hertz {
        self.frequency
    }

    fn decide(&mut self, _: &Observation<'_, C>) -> Decision {
        Decision::keep(Reason::Fixed)
    }
}
