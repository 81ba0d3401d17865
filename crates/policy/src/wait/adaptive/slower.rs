//! How much longer work and wake-ups take at another frequency.

/// The factor 1, in 256ths. Factors by which times are scaled are in 256ths.
pub(super) const SAME: u64 = 256;

/// Largest ratio of two frequencies that counts. The widest range of a server CPU is about 1 to 8 (0.5 to 4 GHz).
const STEEPEST: u64 = 16;

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

    /// The factors for a change from the frequency `before` to `after` (in kHz) if nothing but the frequency matters:
    /// everything takes longer in the ratio of the two, but at most 16 times as long, and at least 1/16 as long.
    pub fn in_proportion(before: u32, after: u32) -> Self {
        let factor = (SAME * u64::from(before) / u64::from(after.max(1))).clamp(SAME / STEEPEST, SAME * STEEPEST);
        Self { work: factor, timer: factor, device: factor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_in_the_ratio_of_the_frequencies() {
        let factor = |before, after| {
            let Slower { work, timer, device } = Slower::in_proportion(before, after);
            assert!(work == timer && timer == device);
            work
        };
        assert_eq!((factor(3_200_000, 800_000), factor(800_000, 3_200_000)), (4 * SAME, SAME / 4));
        assert_eq!((factor(1, 1), factor(u32::MAX, 1), factor(1, u32::MAX), factor(5, 0)), (SAME, 4096, 16, 5 * SAME));
    }
}
