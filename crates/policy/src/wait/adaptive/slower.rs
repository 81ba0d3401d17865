//! How much longer work and wake-ups take at another frequency.

/// The factor 1, in 256ths. Factors by which times are scaled are in 256ths.
pub(super) const SAME: u64 = 256;

/// How much longer work and wake-ups take at another frequency than at the current one, in 256ths. 256 means equally
/// long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slower {
    /// Factor for the work on packets, in 256ths.
    pub work: u64,
    /// Factor for the return from a timed wait, in 256ths.
    pub timer: u64,
    /// Factor for the return from a wait that the device ends, in 256ths.
    pub device: u64,
}

impl Slower {
    /// No difference, as at the current frequency.
    pub const NOT: Self = Self { work: SAME, timer: SAME, device: SAME };
}
