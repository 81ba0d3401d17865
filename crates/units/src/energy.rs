//! Power and energy.

use core::ops::{Add, Mul};

use crate::Nanos;

/// A power, in microwatts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Microwatts(u64);

impl Microwatts {
    /// Makes a power of `n` microwatts.
    pub const fn new(n: u64) -> Self {
        Self(n)
    }
    /// The power in microwatts.
    pub const fn as_microwatts(self) -> u64 {
        self.0
    }
}

impl Mul<Nanos> for Microwatts {
    type Output = Nanojoules;
    /// The energy drawn at this power during `span`: 1 uW for 1 ms is 1 nJ. Rounded down. Computed with 128 bits;
    /// saturates.
    fn mul(self, span: Nanos) -> Nanojoules {
        Nanojoules(span.scale(self.0, 1_000_000).as_nanos())
    }
}

/// An energy, in nanojoules.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Nanojoules(u64);

impl Nanojoules {
    /// Makes an energy of `n` nanojoules.
    pub const fn new(n: u64) -> Self {
        Self(n)
    }
    /// The energy in nanojoules.
    pub const fn as_nanojoules(self) -> u64 {
        self.0
    }
    /// The mean power over `span`, rounded down. `None` if `span` is zero.
    pub const fn over(self, span: Nanos) -> Option<Microwatts> {
        match span.as_nanos() {
            0 => None,
            n => Some(Microwatts(Nanos::from_nanos(self.0).scale(1_000_000, n).as_nanos())),
        }
    }
}

impl Add for Nanojoules {
    type Output = Self;
    /// Adds two energies. Saturates at 18 GJ.
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power_times_time_is_energy_and_back() {
        let energy = Microwatts::new(1_800_000) * Nanos::from_secs(2);
        assert_eq!(energy, Nanojoules::new(3_600_000_000));
        assert_eq!(energy.over(Nanos::from_secs(2)), Some(Microwatts::new(1_800_000)));
        assert_eq!(energy.over(Nanos::ZERO), None);
    }
}
