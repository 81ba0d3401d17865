//! What recent waits cost, by kind and length.

use super::depth::{DEPTHS, Depth};
use super::slower::SAME;

/// Number of length classes: one below 16 us, then one per octave; the last begins at 1 ms.
pub(super) const CLASSES: usize = 8;
/// A new sample moves the mean by `1 / MEMORY` of the difference, or by more while there are fewer samples than this.
const MEMORY: u64 = 32;
/// An outdated mean counts as only this many samples.
const STALE: u64 = 2;
/// Sums are kept in nanoseconds divided by this number.
const FRACTION: u64 = 16;
/// Longer and more expensive waits count as this long, in nanoseconds (18 minutes).
const LONGEST: u64 = 1 << 40;

/// The class of a wait of this length in nanoseconds.
pub(super) fn class(nanos: u64) -> usize {
    let octaves = (nanos / 16_000).checked_ilog2().map_or(0, |o| o as usize + 1);
    octaves.min(CLASSES - 1)
}

/// What ends a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(super) enum Kind {
    Timer,
    Device,
}

/// With which limit of the idle states costs were learned, compared with the one for which they are expected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum From {
    Same,
    Shallower,
    Deeper,
}

/// Mean length and cost of the waits of a class, in sixteenths of a nanosecond.
#[derive(Clone, Copy, Default, Debug)]
struct Mean {
    samples: u64,
    length: u64,
    /// The mean cost of the waits, including the part that the idle state caused.
    spent: u64,
    /// The part of the cost that the idle state caused.
    idle: u64,
}

/// The costs of waits, for each limit of the idle states. Each cost is the time for which a polling core costs the same.
#[derive(Clone, Debug)]
pub(super) struct Prices {
    means: [[[Mean; CLASSES]; 2]; DEPTHS],
    /// The limit to which costs are added, and of which costs are read.
    pub(super) depth: Depth,
    /// Whether the cost of idle states was ever measured. Otherwise, costs are CPU time.
    weighs_idle: bool,
}

impl Prices {
    pub(super) const fn new() -> Self {
        const NONE: Mean = Mean { samples: 0, length: 0, spent: 0, idle: 0 };
        Self { means: [[[NONE; CLASSES]; 2]; DEPTHS], depth: Depth::NONE, weighs_idle: false }
    }

    /// Whether costs include those of idle states. If not, they are CPU time.
    pub(super) fn weighs_idle(&self) -> bool {
        self.weighs_idle
    }

    /// Learns that a wait of `length` cost `spent`, of which the idle state caused `idle`. All are in nanoseconds.
    pub(super) fn add(&mut self, kind: Kind, length: u64, spent: u64, idle: u64) {
        self.weighs_idle |= idle > 0;
        let mean = &mut self.means[self.depth.number()][kind as usize][class(length)];
        mean.samples += 1;
        let samples = mean.samples;
        // The divisor is nearly always a constant, so that no division is needed.
        let part = |difference: u64| if samples >= MEMORY { difference / MEMORY } else { difference / samples };
        let toward = |old: u64, new: u64| {
            let new = new.min(LONGEST) * FRACTION;
            if new >= old { old + part(new - old) } else { old - part(old - new) }
        };
        // A sample that is many times the mean is a stall of the machine: it is limited to four times the mean.
        let bounded = if mean.samples > 8 { spent.min(4 * mean.spent / FRACTION + 1_000) } else { spent };
        mean.length = toward(mean.length, length);
        mean.spent = toward(mean.spent, bounded);
        mean.idle = toward(mean.idle, idle.min(bounded));
    }

    /// The cost in nanoseconds of a wait of this length. It is interpolated between the neighbouring known classes, and
    /// rises by at most one nanosecond per nanosecond. Beyond the known classes, it is the cost of the nearest one,
    /// with the idle state's part proportional to the length. If nothing is known, the cost is 0, so that the wait is
    /// tried.
    ///
    /// Where nothing is known with a limit of the idle states, the cost is that of timed waits without a limit for which
    /// the deepest allowed state is chosen. If there were none, it is the cost with a shallower limit, but with an idle
    /// state that draws half (a guess), or what the idle state costs with a deeper limit, without the wake-up.
    ///
    /// The core's own part of the cost is multiplied by `slower` / 256.
    pub(super) fn of(&self, kind: Kind, length: u64, slower: u64) -> u64 {
        let (means, from) = self.known(kind);
        let want = length.min(LONGEST) * FRACTION;
        let known = || means.iter().filter(|mean| mean.samples > 0);
        let below = known().rfind(|mean| mean.length <= want);
        let above = known().find(|mean| mean.length > want);
        let idle = |mean: &Mean| mean.idle.min(mean.spent);
        let spent = |mean: &Mean| match from {
            From::Same => idle(mean) + (mean.spent - idle(mean)) * slower / SAME,
            From::Shallower => idle(mean) / 2 + (mean.spent - idle(mean)) * slower / SAME,
            From::Deeper => idle(mean),
        };
        match (below, above) {
            (Some(below), Some(above)) => {
                let run = i128::from(above.length) - i128::from(below.length);
                // With each further nanosecond, the cost of a wait rises by at most one nanosecond (a polling core's),
                // and never falls.
                let rise = (i128::from(spent(above)) - i128::from(spent(below))).clamp(0, run);
                let on = (i128::from(want) - i128::from(below.length)).min(run);
                ((i128::from(spent(below)) + rise * on / run) / i128::from(FRACTION)) as u64
            }
            (Some(nearest), None) | (None, Some(nearest)) => {
                // The cost of the idle state is proportional to the time spent in it.
                let idle = if from == From::Shallower { idle(nearest) / 2 } else { idle(nearest) };
                let scaled = u128::from(idle) * u128::from(want) / u128::from(nearest.length.max(1));
                (spent(nearest) - idle + u64::try_from(scaled).unwrap_or(u64::MAX).min(LONGEST)) / FRACTION
            }
            (None, None) => 0,
        }
    }

    /// The costs from which those with the present limit follow.
    fn known(&self, kind: Kind) -> (&[Mean], From) {
        let of = |depth: usize| &self.means[depth][kind as usize];
        let is_known = |means: &[Mean]| means.iter().any(|mean| mean.samples > 0);
        let own = of(self.depth.number());
        if is_known(own) {
            return (own, From::Same);
        }
        let without = &self.means[0][Kind::Timer as usize][self.depth.classes()];
        if is_known(without) {
            return (without, From::Same);
        }
        let shallower = self.depth.shallower().rev().map(|(limit, _)| (of(limit + 1), From::Shallower));
        let deeper = self.depth.deeper().map(|(number, _)| (of(number), From::Deeper));
        let known = shallower.chain(deeper).find(|(means, _)| is_known(&means[..]));
        known.map_or((own, From::Same), |(means, from)| (&means[..], from))
    }

    /// Rescales the part of the costs that the core's own work causes by `slower` / 256.
    pub(super) fn scale(&mut self, kind: Kind, slower: u64) {
        for mean in self.means.iter_mut().flat_map(|means| &mut means[kind as usize]) {
            mean.spent = mean.idle + (mean.spent - mean.idle.min(mean.spent)) * slower / SAME;
        }
    }

    /// Lowers the known costs by an eighth and reduces their weight, so that waits that once were too expensive are
    /// eventually tried again.
    pub(super) fn age(&mut self) {
        for mean in self.means.as_flattened_mut().iter_mut().flatten() {
            mean.spent -= mean.spent / 8;
            mean.idle -= mean.idle / 8;
            mean.samples = mean.samples.min(STALE);
        }
    }
}

impl Kind {
    /// The other kind of wait.
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
