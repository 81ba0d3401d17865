//! What waits have cost of late, by kind and length.

/// Lengths are told apart by octave: below 16 us, then one an octave, the last from 1 ms on.
pub(super) const CLASSES: usize = 8;
/// A new sample moves the mean by this part at least.
const MEMORY: u64 = 32;
/// Of what is stale a sample stands for so many.
const STALE: u64 = 2;
/// Times are scaled in 256ths: this is once.
pub(super) const SAME: u64 = 256;
/// Sums are kept in this part of a nanosecond.
const FRACTION: u64 = 16;

/// The class of a wait of this length.
pub(super) fn class(nanos: u64) -> usize {
    let octaves = (nanos / 16_000).checked_ilog2().map_or(0, |o| o as usize + 1);
    octaves.min(CLASSES - 1)
}

/// Who ends a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(super) enum Kind {
    Timer,
    Device,
}

/// Means of what waits of a class took and cost, in sixteenths of a nanosecond.
#[derive(Clone, Copy, Default, Debug)]
struct Mean {
    samples: u64,
    length: u64,
    /// All that they cost.
    spent: u64,
    /// What of it the idle state cost.
    idle: u64,
}

/// What waits cost: the time for which a core that polls costs as much.
#[derive(Clone, Debug)]
pub(super) struct Prices {
    means: [[Mean; CLASSES]; 2],
}

impl Prices {
    pub(super) const fn new() -> Self {
        const NONE: Mean = Mean { samples: 0, length: 0, spent: 0, idle: 0 };
        Self { means: [[NONE; CLASSES]; 2] }
    }

    /// A wait of `length` cost `spent`, of which the idle state cost `idle`, all in nanoseconds.
    pub(super) fn add(&mut self, kind: Kind, length: u64, spent: u64, idle: u64) {
        let mean = &mut self.means[kind as usize][class(length)];
        mean.samples += 1;
        let samples = mean.samples;
        // By a constant, nearly always: no division.
        let part = |difference: u64| if samples >= MEMORY { difference / MEMORY } else { difference / samples };
        let toward = |old: u64, new: u64| {
            let new = new.min(1 << 40) * FRACTION;
            if new >= old { old + part(new - old) } else { old - part(old - new) }
        };
        // One sample that is many times the mean is a stall of the machine: it counts as four times as much.
        let bounded = if mean.samples > 8 { spent.min(4 * mean.spent / FRACTION + 1_000) } else { spent };
        mean.length = toward(mean.length, length);
        mean.spent = toward(mean.spent, bounded);
        mean.idle = toward(mean.idle, idle.min(bounded));
    }

    /// What a wait of this length costs: on the line through the classes around it, or as the nearest that is known, but for the
    /// idle state. What is not known costs nothing: so it is tried, and then it is known.
    ///
    /// Of it, what the core's work costs is scaled by `slower`, in 256ths.
    pub(super) fn of(&self, kind: Kind, length: u64, slower: u64) -> u64 {
        let means = &self.means[kind as usize];
        let want = length * FRACTION;
        let known = || means.iter().filter(|mean| mean.samples > 0);
        let below = known().rfind(|mean| mean.length <= want);
        let above = known().find(|mean| mean.length > want);
        let spent = |mean: &Mean| match slower {
            SAME => mean.spent,
            _ => mean.idle + (mean.spent - mean.idle.min(mean.spent)) * slower / SAME,
        };
        match (below, above) {
            (Some(below), Some(above)) => {
                let run = i128::from(above.length) - i128::from(below.length);
                // No wait costs more with each nanosecond than a core that polls, nor less than one that waits less.
                let rise = (i128::from(spent(above)) - i128::from(spent(below))).clamp(0, run);
                let on = (i128::from(want) - i128::from(below.length)).min(run);
                ((i128::from(spent(below)) + rise * on / run) / i128::from(FRACTION)) as u64
            }
            (Some(nearest), None) | (None, Some(nearest)) => {
                // What the idle state costs is proportional to the time in it.
                let idle = nearest.idle.min(nearest.spent);
                let scaled = u128::from(idle) * u128::from(want) / u128::from(nearest.length.max(1));
                (spent(nearest) - idle + u64::try_from(scaled).unwrap_or(u64::MAX).min(1 << 40)) / FRACTION
            }
            (None, None) => 0,
        }
    }

    /// What the core's work costs has changed.
    pub(super) fn scale(&mut self, kind: Kind, slower: u64) {
        for mean in &mut self.means[kind as usize] {
            mean.spent = mean.idle + (mean.spent - mean.idle.min(mean.spent)) * slower / SAME;
        }
    }

    /// Time has passed: what is known is worth less, so that what was too dear is tried again by and by.
    pub(super) fn age(&mut self) {
        for mean in self.means.iter_mut().flatten() {
            mean.spent -= mean.spent / 8;
            mean.idle -= mean.idle / 8;
            mean.samples = mean.samples.min(STALE);
        }
    }
}

impl Kind {
    /// Who could end it instead.
    pub(super) fn other(self) -> Self {
        match self {
            Self::Timer => Self::Device,
            Self::Device => Self::Timer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_two_lengths_the_price_is_on_their_line() {
        let mut prices = Prices::new();
        assert_eq!(prices.of(Kind::Timer, 50_000, SAME), 0);
        prices.add(Kind::Timer, 20_000, 7_000, 0);
        assert_eq!(prices.of(Kind::Timer, 500_000, SAME), 7_000);
        assert_eq!(prices.of(Kind::Device, 500_000, SAME), 0, "not known: to be tried");
        prices.add(Kind::Timer, 220_000, 27_000, 0);
        assert_eq!(prices.of(Kind::Timer, 120_000, SAME), 17_000);
        assert_eq!(prices.of(Kind::Timer, 1_220_000, SAME), 27_000);
        assert_eq!(prices.of(Kind::Timer, 10_000, SAME), 7_000);
        prices.add(Kind::Device, 1_000_000, 3_000, 0);
        assert_eq!(prices.of(Kind::Device, 20_000, SAME), 3_000);
    }

    #[test]
    fn what_is_not_tried_gets_cheaper_until_it_is() {
        let mut prices = Prices::new();
        for _ in 0..100 {
            prices.add(Kind::Timer, 20_000, 40_000, 0);
        }
        (0..10).for_each(|_| prices.age());
        assert!(prices.of(Kind::Timer, 20_000, SAME) < 11_000);
        prices.add(Kind::Timer, 20_000, 40_000, 0);
        assert!(prices.of(Kind::Timer, 20_000, SAME) > 19_000);
    }

    #[test]
    fn a_stall_moves_the_price_little() {
        let mut prices = Prices::new();
        for _ in 0..100 {
            prices.add(Kind::Device, 100_000, 8_000, 0);
        }
        prices.add(Kind::Device, 100_000, 50_000_000, 0);
        assert!(prices.of(Kind::Device, 100_000, SAME) < 9_000);
    }

    #[test]
    fn the_idle_state_costs_by_the_time_in_it() {
        let mut prices = Prices::new();
        // 200 us at half the power, and 10 us to come and go.
        prices.add(Kind::Timer, 200_000, 110_000, 100_000);
        assert_eq!(prices.of(Kind::Timer, 100_000, SAME), 60_000);
        assert_eq!(prices.of(Kind::Timer, 400_000, SAME), 210_000);
    }
}
