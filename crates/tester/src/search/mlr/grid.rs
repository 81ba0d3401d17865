//! A grid of loads. The ratio between neighbouring loads is the same on the whole grid. So a ratio between two loads (a
//! width) is a whole number of steps, and widths can be added and halved exactly.

/// A load on the grid, as its number of steps above the lowest load.
pub type Load = i64;
/// The ratio between two loads, as the number of steps between them.
pub type Width = i64;

/// Range of a width on the grid: 99 % to just below 100 % of the requested width, so that rounding never makes an
/// interval wider than requested. The reference controller uses the same range.
const QUALITY: (f64, f64) = (0.99, 0.999_999);

/// The grid of loads between a lowest and a highest rate.
#[derive(Clone, Debug)]
pub struct Grid {
    min: f64,
    max: f64,
    last: Load,
}

impl Grid {
    /// Creates the coarsest grid on which each of `widths` (relative to the higher load) is nearly a whole number of
    /// steps.
    pub fn new(min_pps: u64, max_pps: u64, widths: &[f64]) -> Self {
        let (min, max) = (min_pps as f64, max_pps as f64);
        let range = max.ln() - min.ln();
        let mut widths: Vec<f64> = widths.to_vec();
        widths.sort_by(f64::total_cmp);
        widths.dedup();
        let mut last: Load = 1;
        loop {
            let unit = range / last as f64;
            let mut next = (last + 1) as f64;
            let mut fits = true;
            for width in &widths {
                let units = -(-width).ln_1p() / unit;
                let whole = units.floor();
                if !(QUALITY.0..=QUALITY.1).contains(&(whole / units)) {
                    fits = false;
                    next = next.max((whole + 1.0) / QUALITY.1 / units * last as f64);
                }
            }
            if fits {
                return Self { min, max, last };
            }
            last = next.ceil() as Load;
        }
    }

    /// The highest load.
    pub fn last(&self) -> Load {
        self.last
    }

    /// The rate of a load, in frames per second.
    pub fn rate(&self, load: Load) -> f64 {
        if load <= 0 {
            return self.min;
        }
        if load >= self.last {
            return self.max;
        }
        self.descend(|middle, _| load.cmp(&middle)).1
    }

    /// The highest load whose rate is at most `rate`. A rate beyond the ends of the grid gives the lowest or the
    /// highest load.
    pub fn load(&self, rate: f64) -> Load {
        if rate <= self.min {
            return 0;
        }
        if rate >= self.max {
            return self.last;
        }
        self.descend(|_, middle| rate.total_cmp(&middle)).0
    }

    /// Converts a width, as a share of the higher load, to a number of steps, rounded down.
    pub fn width(&self, relative: f64) -> Width {
        let higher = self.min / (1.0 - relative);
        let width = self.load(higher);
        if self.rate(width) > higher { width - 1 } else { width }
    }

    /// Finds a load or rate by bisection. Computes the intermediate rates in the same order as the reference
    /// controller, so the rates are bit-identical to those of the controller.
    fn descend(&self, beside: impl Fn(Load, f64) -> std::cmp::Ordering) -> (Load, f64) {
        let (mut low, mut high) = ((0, self.min), (self.last, self.max));
        while high.0 - low.0 >= 2 {
            let middle = (low.0 + high.0) / 2;
            let part = (middle - low.0) as f64 / (high.0 - low.0) as f64;
            let rate = low.1 * ((high.1.ln() - low.1.ln()) * part).exp();
            match beside(middle, rate) {
                std::cmp::Ordering::Equal => return (middle, rate),
                std::cmp::Ordering::Less => high = (middle, rate),
                std::cmp::Ordering::Greater => low = (middle, rate),
            }
        }
        low
    }
}

/// A load strictly between `low` and `high`, which splits the interval in two. One part is a power of two times `goal`;
/// if `goal` is odd and the interval is shorter than 2 * `goal`, the interval is halved instead. The lower part is
/// never the larger one. `high - low` must be more than `goal`.
pub fn middle(low: Load, high: Load, goal: Width) -> Load {
    let whole = high - low;
    if whole == 2 * goal {
        return low + goal;
    }
    if whole < 2 * goal {
        return if goal % 2 == 0 { middle(low, high, goal / 2) } else { low + whole / 2 };
    }
    let mut upper = goal;
    while whole - 2 * upper > 2 * upper {
        upper *= 2;
    }
    // The more even split has a part of either `upper` or twice `upper`.
    let (lower, twice) = (whole - upper, 2 * upper);
    low + if upper * lower > twice * (whole - twice) { upper } else { whole - twice }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_loads_are_inverse() {
        let grid = Grid::new(1_000, 14_880_952, &[0.005, 0.05]);
        for load in [0, 1, 7, grid.last() / 3, grid.last() - 1, grid.last()] {
            assert_eq!(grid.load(grid.rate(load)), load);
        }
        assert_eq!((grid.rate(-5), grid.rate(grid.last() + 1)), (1_000.0, 14_880_952.0));
        let width = grid.width(0.005);
        let (low, high) = (grid.rate(500), grid.rate(500 + width));
        assert!((high - low) / high <= 0.005 && (high - low) / high > 0.004_9, "{low} {high}");
    }

    #[test]
    fn middles_leave_a_power_of_two() {
        assert_eq!(middle(0, 4, 2), 2);
        assert_eq!(middle(0, 40, 2), 16); // 16 = 8 * 2, and 24: more even than 8 and 32
        assert_eq!(middle(10, 13, 2), 11);
        assert_eq!(middle(0, 5, 3), 2);
    }
}
