//! Least, most and average of many spans, weighted where a part stands for more than itself.

use units::Nanos;

/// What is kept of many spans.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    count: u64,
    least: u64,
    most: u64,
    /// Sum of the spans times their weights, and of the weights.
    weighted: (u128, u128),
}

impl Summary {
    /// Adds a span that stands for itself.
    pub fn add(&mut self, span: Nanos) {
        self.add_weighted(span, 1);
    }

    /// Adds a span that stands for `weight` of its like.
    pub fn add_weighted(&mut self, span: Nanos, weight: u64) {
        let nanos = span.as_nanos();
        self.least = if self.count == 0 { nanos } else { self.least.min(nanos) };
        self.most = self.most.max(nanos);
        self.count += 1;
        self.weighted.0 += u128::from(nanos) * u128::from(weight);
        self.weighted.1 += u128::from(weight);
    }

    /// Spans added.
    pub const fn count(&self) -> u64 {
        self.count
    }
    /// The shortest, in nanoseconds; 0 without any.
    pub const fn least(&self) -> f64 {
        self.least as f64
    }
    /// The longest, in nanoseconds; 0 without any.
    pub const fn most(&self) -> f64 {
        self.most as f64
    }
    /// The weighted average, in nanoseconds; 0 without any.
    pub fn average(&self) -> f64 {
        if self.weighted.1 == 0 { 0.0 } else { self.weighted.0 as f64 / self.weighted.1 as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_move_the_average_alone() {
        let mut summary = Summary::default();
        summary.add_weighted(Nanos::from_nanos(10), 9);
        summary.add(Nanos::from_nanos(110));
        assert_eq!((summary.least(), summary.most(), summary.average()), (10.0, 110.0, 20.0));
        assert_eq!((summary.count(), Summary::default().average()), (2, 0.0));
    }
}
