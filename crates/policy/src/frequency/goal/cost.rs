//! How many cycles polls and frames cost.

/// The cost of a poll that returns frames: a fixed number of cycles, plus a number of cycles per frame.
///
/// The two parts are kept apart because a busier core takes more frames per poll. By the mean cost per frame alone, a
/// load that the core can handle would look too high.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cost {
    pub per_poll: u64,
    pub per_frame: u64,
}

/// A measured cost below the estimate lowers the estimate by 1/`FALLS_BY` of the difference. A higher cost replaces the
/// estimate at once, because an estimate that is too low makes frames late.
const FALLS_BY: u64 = 8;
/// Lower limit for the cost of a frame: 1/`LEAST_PART` of the mean cost per frame.
const LEAST_PART: i128 = 4;
/// A line is fitted only if the variance of the number of frames per poll is at least 1/`LEAST_VARIANCE_ONE_IN`.
const LEAST_VARIANCE_ONE_IN: i128 = 64;

/// Sums over polls with frames, to which a straight line can be fitted (least squares).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Polls {
    count: u64,
    frames: u64,
    frames_squared: u64,
    cycles: u64,
    frames_times_cycles: u64,
}

impl Polls {
    #[inline]
    pub fn add(&mut self, frames: u64, cycles: u64) {
        self.count += 1;
        self.frames = self.frames.saturating_add(frames);
        self.frames_squared = self.frames_squared.saturating_add(frames.saturating_mul(frames));
        self.cycles = self.cycles.saturating_add(cycles);
        self.frames_times_cycles = self.frames_times_cycles.saturating_add(frames.saturating_mul(cycles));
    }

    /// The cost according to the fitted line. `None` without frames. If the polls' sizes differ too little for a fit,
    /// the known cost is scaled so that it gives the total cost of these polls. If no cost is known either, all cycles
    /// are attributed to the frames.
    pub fn cost(&self, known: Option<Cost>) -> Option<Cost> {
        if self.frames == 0 {
            return None;
        }
        let [count, frames, squared, cycles, product] =
            [self.count, self.frames, self.frames_squared, self.cycles, self.frames_times_cycles].map(i128::from);
        let clip = |n: i128| u64::try_from(n).unwrap_or(u64::MAX);
        let mean = (cycles / frames).max(1);
        // The variance of the sizes, multiplied by the square of the number of polls.
        let spread = count * squared - frames * frames;
        if spread * LEAST_VARIANCE_ONE_IN >= count * count {
            let per_frame = ((count * product - frames * cycles) / spread).clamp((mean / LEAST_PART).max(1), mean);
            let per_poll = ((cycles - per_frame * frames) / count).max(0);
            return Some(Cost { per_poll: clip(per_poll), per_frame: clip(per_frame) });
        }
        let Some(known) = known else { return Some(Cost { per_poll: 0, per_frame: clip(mean) }) };
        let expected = (i128::from(known.per_poll) * count + i128::from(known.per_frame) * frames).max(1);
        let scaled = |part: u64| clip(i128::from(part).saturating_mul(cycles) / expected);
        Some(Cost { per_poll: scaled(known.per_poll), per_frame: scaled(known.per_frame).max(1) })
    }
}

impl Cost {
    /// Adopts a higher cost at once, and approaches a lower one step by step.
    pub fn learn(known: Option<Self>, new: Self) -> Self {
        let toward = |old: u64, new: u64| if new < old { old - (old - new).div_ceil(FALLS_BY) } else { new };
        match known {
            None => new,
            Some(old) => {
                Self { per_poll: toward(old.per_poll, new.per_poll), per_frame: toward(old.per_frame, new.per_frame) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn polls_of_one_size_tell_only_the_mean() {
        let mut polls = Polls::default();
        assert_eq!(polls.cost(None), None);
        polls.add(4, 1_000);
        polls.add(4, 1_200);
        assert_eq!(polls.cost(None), Some(Cost { per_poll: 0, per_frame: 275 }));
        // 200 + 4 * 200 were expected, a tenth less than what they cost.
        let known = Cost { per_poll: 200, per_frame: 200 };
        assert_eq!(polls.cost(Some(known)), Some(Cost { per_poll: 220, per_frame: 220 }));
    }

    #[test]
    fn costs_rise_at_once_and_fall_by_and_by() {
        let old = Cost { per_poll: 100, per_frame: 300 };
        assert_eq!(
            Cost::learn(Some(old), Cost { per_poll: 120, per_frame: 220 }),
            Cost { per_poll: 120, per_frame: 290 }
        );
    }

    proptest! {
        #[test]
        fn a_line_is_found_exactly(
            per_poll in 0u64..500,
            per_frame in 200u64..2_000,
            sizes in prop::collection::vec(1u64..64, 2..200),
        ) {
            let mean = sizes.iter().sum::<u64>() / sizes.len() as u64;
            prop_assume!(sizes.iter().map(|n| n.abs_diff(mean).pow(2)).sum::<u64>() >= 2 * sizes.len() as u64);
            let mut polls = Polls::default();
            for n in sizes {
                polls.add(n, per_poll + per_frame * n);
            }
            prop_assert_eq!(polls.cost(None), Some(Cost { per_poll, per_frame }));
        }

        #[test]
        fn no_numbers_overflow(adds in prop::collection::vec((1u64..1 << 32, any::<u64>()), 1..20)) {
            let mut polls = Polls::default();
            for (frames, cycles) in adds {
                polls.add(frames, cycles);
                prop_assert!(polls.cost(None).unwrap().per_frame > 0);
                let known = Cost { per_poll: u64::MAX, per_frame: 1 };
                prop_assert!(polls.cost(Some(known)).unwrap().per_frame > 0);
            }
        }
    }
}
