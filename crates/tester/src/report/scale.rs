//! Converts values to positions in a drawing: axes, their ticks, and numbers as text.

use super::model::{Axis, Scale};

/// An axis with its range of values, mapped to positions in the drawing.
#[derive(Clone, Debug)]
pub(super) struct Mapped {
    scale: Scale,
    /// Lowest and highest value of the axis.
    range: (f64, f64),
    /// Positions of the lowest and of the highest value in the drawing, in pixels.
    onto: (f64, f64),
}

/// A tick of an axis. Minor ticks have no label.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Tick {
    pub value: f64,
    pub label: Option<String>,
}

/// Whether `value` can be drawn on `axis`.
pub(super) fn drawable(axis: &Axis, value: f64) -> bool {
    value.is_finite() && (axis.scale == Scale::Linear || value > 0.0)
}

impl Mapped {
    /// An axis that covers all of `values` with a small margin; `None` if none can be drawn.
    pub fn new(axis: &Axis, values: impl Iterator<Item = f64>, onto: (f64, f64)) -> Option<Self> {
        let (low, high) = values
            .filter(|v| drawable(axis, *v))
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
        if low > high {
            return None;
        }
        let range = match axis.scale {
            Scale::Linear => {
                let (low, high) = (low.min(0.0), high.max(0.0));
                let room = if high > low { (high - low) * 0.06 } else { 1.0 };
                (if low < 0.0 { low - room } else { low }, high + room)
            }
            // The ends are at least a factor of 4 apart, so that there are ticks. The limits 1e-290 and 1e290 keep all
            // products finite.
            Scale::Log => {
                let (low, high) = (low.clamp(1e-290, 1e290), high.clamp(1e-290, 1e290));
                let room = (high / low).powf(0.06).max(if high / low < 4.0 { 2.0 } else { 1.15 });
                (low / room, high * room)
            }
        };
        // The difference of very large floating-point numbers can overflow; then there is no axis.
        (range.1 - range.0).is_finite().then_some(Self { scale: axis.scale, range, onto })
    }

    /// An axis with exactly this range.
    pub fn exactly(scale: Scale, range: (f64, f64), onto: (f64, f64)) -> Self {
        Self { scale, range, onto }
    }

    /// The same axis, mapped to other positions in the drawing.
    pub fn onto(&self, onto: (f64, f64)) -> Self {
        Self { onto, ..self.clone() }
    }

    /// Position of `value` in the drawing. A value outside the range is placed at the nearer end.
    pub fn at(&self, value: f64) -> f64 {
        let (low, high) = self.range;
        let share = match self.scale {
            Scale::Linear => (value - low) / (high - low),
            Scale::Log => (value.max(f64::MIN_POSITIVE) / low).ln() / (high / low).ln(),
        };
        let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
        self.onto.0 + share * (self.onto.1 - self.onto.0)
    }

    /// Whether `value` lies in the range.
    pub fn covers(&self, value: f64) -> bool {
        (self.range.0..=self.range.1).contains(&value)
    }

    /// Ticks of the axis, of which at most about `most` have a label. On a linear axis, labelled ticks are 1, 2 or 5
    /// times a power of ten apart. On a logarithmic axis, they lie at 1, 2 and 5 times powers of ten, or at fewer
    /// multiples.
    pub fn ticks(&self, most: usize) -> Vec<Tick> {
        match self.scale {
            Scale::Linear => self.linear_ticks(most),
            Scale::Log => self.log_ticks(most),
        }
    }

    fn linear_ticks(&self, most: usize) -> Vec<Tick> {
        let (low, high) = self.range;
        let rough = (high - low) / most.max(1) as f64;
        let decade = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * decade).find(|s| *s >= rough * 0.999).unwrap_or(rough);
        let first = (low / step).ceil();
        (0..=most as i64 + 1)
            .map(|i| (first + i as f64) * step)
            .take_while(|v| *v <= high)
            .map(|value| Tick { value, label: Some(plain(value, step)) })
            .collect()
    }

    fn log_ticks(&self, most: usize) -> Vec<Tick> {
        let (low, high) = self.range;
        let decades = (low.log10().floor() as i32)..=(high.log10().ceil() as i32);
        let in_range = |multiples: &[f64]| -> Vec<f64> {
            let all = decades.clone().flat_map(|d| multiples.iter().map(move |m| m * 10f64.powi(d)));
            all.filter(|v| self.covers(*v)).collect()
        };
        let every: Vec<f64> = (1..10).map(f64::from).collect();
        let labelled = [&[1.0, 2.0, 5.0][..], &[1.0, 3.0], &[1.0]]
            .map(in_range)
            .into_iter()
            .find(|ticks| ticks.len() <= most.max(2))
            .unwrap_or_else(|| {
                let all = in_range(&[1.0]);
                let step = all.len().div_ceil(most.max(1));
                all.into_iter().step_by(step.max(1)).collect()
            });
        let mut ticks: Vec<Tick> =
            labelled.iter().map(|&value| Tick { value, label: Some(plain(value, value)) }).collect();
        if decades.clone().count() <= 8 {
            let minor = in_range(&every).into_iter().filter(|v| !labelled.iter().any(|l| (l / v - 1.0).abs() < 1e-9));
            ticks.extend(minor.map(|value| Tick { value, label: None }));
        }
        ticks
    }
}

/// Formats a number with as many decimals as `step` needs, and with grouped thousands. Very large and very small
/// numbers get an exponent.
fn plain(value: f64, step: f64) -> String {
    if value != 0.0 && !(1e-6..1e9).contains(&value.abs()) {
        return format!("{value:.0e}");
    }
    let decimals = if step >= 1.0 { 0 } else { (-step.log10()).ceil().clamp(0.0, 9.0) as usize };
    grouped(&format!("{value:.decimals$}"))
}

/// Formats a measured number with three significant digits, but never drops digits before the decimal point.
pub(super) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "no data".into();
    }
    let size = value.abs();
    if size != 0.0 && !(1e-4..1e12).contains(&size) {
        return format!("{value:.2e}");
    }
    let decimals = match size {
        0.0 => 0,
        s if s >= 99.95 => 0,
        s if s >= 9.995 => 1,
        s if s >= 0.9995 => 2,
        s => (2.0 - s.log10().floor()).clamp(0.0, 9.0) as usize,
    };
    grouped(&format!("{value:.decimals$}"))
}

/// Separates the thousands with a narrow no-break space (ISO 80000-1, 7.3.1), in numbers from 10 000.
pub(super) fn grouped(text: &str) -> String {
    let (sign, rest) = text.strip_prefix('-').map_or(("", text), |rest| ("\u{2212}", rest));
    let (whole, fraction) = rest.split_once('.').map_or((rest, String::new()), |(w, f)| (w, format!(".{f}")));
    let mut out = String::from(sign);
    for (i, c) in whole.chars().enumerate() {
        if i > 0 && whole.len() > 4 && (whole.len() - i).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(c);
    }
    out + &fraction
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(axis: &Axis, values: &[f64], most: usize) -> Vec<String> {
        let mapped = Mapped::new(axis, values.iter().copied(), (0.0, 100.0)).unwrap();
        mapped.ticks(most).into_iter().filter_map(|t| t.label).collect()
    }

    #[test]
    fn ticks_are_1_2_5_or_decades() {
        let linear = Axis::linear("CPU", "%");
        assert_eq!(labels(&linear, &[4.0, 100.0], 6), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(labels(&linear, &[0.3], 4), ["0.0", "0.1", "0.2", "0.3"]);
        let log = Axis::log("latency", "us");
        assert_eq!(labels(&log, &[6.0, 230.0], 8), ["5", "10", "20", "50", "100", "200"]);
        assert_eq!(labels(&log, &[1.0, 100_000.0], 7), ["1", "10", "100", "1000", "10\u{202f}000", "100\u{202f}000"]);
        assert_eq!(labels(&log, &[0.0001, 0.5], 5), ["0.0001", "0.001", "0.01", "0.1"]);
    }

    #[test]
    fn numbers_have_three_digits() {
        let texts = [14.66, 9.999, 0.01234, 557_000.4, 0.0, -3.0, 99.99, f64::NAN].map(number);
        assert_eq!(texts, ["14.7", "10.0", "0.0123", "557\u{202f}000", "0", "\u{2212}3.00", "100", "no data"]);
    }

    #[test]
    fn nothing_to_draw_is_no_axis() {
        assert!(Mapped::new(&Axis::log("a", "b"), [0.0, -1.0, f64::NAN].into_iter(), (0.0, 1.0)).is_none());
        assert!(Mapped::new(&Axis::linear("a", "b"), [f64::INFINITY].into_iter(), (0.0, 1.0)).is_none());
        assert!(Mapped::new(&Axis::linear("a", "b"), [f64::MAX, f64::MIN].into_iter(), (0.0, 1.0)).is_none());
    }

    proptest! {
        #[test]
        fn every_value_has_a_place(values in prop::collection::vec(any::<f64>(), 0..6), log in any::<bool>(), most in 0usize..12) {
            let axis = if log { Axis::log("a", "b") } else { Axis::linear("a", "b") };
            if let Some(mapped) = Mapped::new(&axis, values.iter().copied(), (50.0, 10.0)) {
                for value in &values {
                    prop_assert!((10.0..=50.0).contains(&mapped.at(*value)));
                }
                let ticks = mapped.ticks(most);
                prop_assert!(ticks.iter().filter(|t| t.label.is_some()).count() <= most.max(2) + 2);
                prop_assert!(ticks.iter().all(|t| mapped.covers(t.value)));
            }
        }
    }
}
