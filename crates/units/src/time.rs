//! Spans of time, points in time, frequencies and cycles.

use core::fmt;
use core::marker::PhantomData;
use core::ops::{Add, AddAssign, Div, Mul};
use core::str::FromStr;

use crate::parse::{ParseError, scaled};

/// A span of time, in nanoseconds. Never negative.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Nanos(u64);

impl Nanos {
    /// A span of 0 ns.
    pub const ZERO: Self = Self(0);
    /// The longest span, about 584 years.
    pub const MAX: Self = Self(u64::MAX);

    /// Makes a span of `n` nanoseconds.
    pub const fn from_nanos(n: u64) -> Self {
        Self(n)
    }
    /// Makes a span of `n` microseconds. Saturates at [`Nanos::MAX`].
    pub const fn from_micros(n: u64) -> Self {
        Self(n.saturating_mul(1_000))
    }
    /// Makes a span of `n` milliseconds. Saturates at [`Nanos::MAX`].
    pub const fn from_millis(n: u64) -> Self {
        Self(n.saturating_mul(1_000_000))
    }
    /// Makes a span of `n` seconds. Saturates at [`Nanos::MAX`].
    pub const fn from_secs(n: u64) -> Self {
        Self(n.saturating_mul(1_000_000_000))
    }
    /// The span in nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    /// The span in whole microseconds, rounded down.
    pub const fn as_micros_floor(self) -> u64 {
        self.0 / 1_000
    }
    /// The sum of both spans, at most [`Nanos::MAX`].
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
    /// This span minus `other`. `None` if `other` is longer.
    pub const fn checked_sub(self, other: Self) -> Option<Self> {
        match self.0.checked_sub(other.0) {
            Some(n) => Some(Self(n)),
            None => None,
        }
    }
    /// This span minus `other`, but at least [`Nanos::ZERO`]. Use it for budgets, where a negative result means that
    /// nothing is left.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
    /// `self * numerator / denominator`, rounded down. Computed with 128 bits; saturates.
    ///
    /// A `denominator` of 0 gives [`Nanos::MAX`].
    pub const fn scale(self, numerator: u64, denominator: u64) -> Self {
        if denominator == 0 {
            return Self::MAX;
        }
        let n = self.0 as u128 * numerator as u128 / denominator as u128;
        Self(if n > u64::MAX as u128 { u64::MAX } else { n as u64 })
    }
}

impl Add for Nanos {
    type Output = Self;
    /// Adds two spans. Saturates at [`Nanos::MAX`].
    fn add(self, other: Self) -> Self {
        self.saturating_add(other)
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Mul<u64> for Nanos {
    type Output = Self;
    /// Multiplies the span. Saturates at [`Nanos::MAX`].
    fn mul(self, times: u64) -> Self {
        Self(self.0.saturating_mul(times))
    }
}

impl Div<u64> for Nanos {
    type Output = Self;
    /// Divides the span and rounds down. Panics if `parts` is 0, as integer division does.
    fn div(self, parts: u64) -> Self {
        Self(self.0 / parts)
    }
}

/// Writes the exact value, in the largest unit that is not longer than the span: `1.5ms`, `12.345678ms`.
impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            0..1_000 => (1, "ns"),
            1_000..1_000_000 => (1_000, "us"),
            1_000_000..1_000_000_000 => (1_000_000, "ms"),
            _ => (1_000_000_000, "s"),
        };
        decimal(f, self.0, unit, name)
    }
}

/// Writes `number / unit` exactly, without trailing zeros, and then the unit's name.
fn decimal(f: &mut fmt::Formatter<'_>, number: u64, unit: u64, name: &str) -> fmt::Result {
    write!(f, "{}", number / unit)?;
    let (mut rest, mut place) = (number % unit, unit / 10);
    if rest > 0 {
        f.write_str(".")?;
    }
    while rest > 0 {
        write!(f, "{}", rest / place)?;
        rest %= place;
        place /= 10;
    }
    f.write_str(name)
}

/// Writes the exact value in the form that [`FromStr`] reads: `2.1GHz`.
impl fmt::Display for Hertz {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            0..1_000 => (1, "Hz"),
            1_000..1_000_000 => (1_000, "kHz"),
            1_000_000..1_000_000_000 => (1_000_000, "MHz"),
            _ => (1_000_000_000, "GHz"),
        };
        decimal(f, self.0, unit, name)
    }
}

impl fmt::Debug for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Reads `50us`, `1.5ms`, `300 ns` or `2s`. A number without a unit is an error.
impl FromStr for Nanos {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        const UNITS: &[(&str, u64)] =
            &[("ns", 1), ("us", 1_000), ("µs", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
        scaled(text, UNITS, "a duration such as 50us, 1.5ms or 2s (ns, us, ms, s)").map(Self)
    }
}

/// Marks the clock from which a point in time was read. Points of different clocks have different types.
pub trait Clock {}

/// Linux `CLOCK_MONOTONIC`, which `bpf_ktime_get_ns` reads too (bpf-helpers(7)).
#[derive(Clone, Copy, Debug)]
pub enum Monotonic {}
/// The clock of a simulation. Only the simulator advances it.
#[derive(Clone, Copy, Debug)]
pub enum Simulated {}
impl Clock for Monotonic {}
impl Clock for Simulated {}

/// A point in time on clock `C`, in nanoseconds since that clock's origin.
pub struct Instant<C> {
    nanos: u64,
    clock: PhantomData<C>,
}

impl<C> Instant<C> {
    /// The clock's origin, 0 ns.
    pub const ORIGIN: Self = Self::from_nanos(0);

    /// Makes the point `nanos` nanoseconds after the clock's origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self { nanos, clock: PhantomData }
    }
    /// Nanoseconds since the clock's origin.
    pub const fn as_nanos(self) -> u64 {
        self.nanos
    }
    /// The span from `earlier` to this point. `None` if `earlier` is after this point.
    pub const fn since(self, earlier: Self) -> Option<Nanos> {
        match self.nanos.checked_sub(earlier.nanos) {
            Some(n) => Some(Nanos(n)),
            None => None,
        }
    }
    /// The point `span` before this one. `None` if the result would be before the clock's origin.
    pub const fn before(self, span: Nanos) -> Option<Self> {
        match self.nanos.checked_sub(span.0) {
            Some(n) => Some(Self::from_nanos(n)),
            None => None,
        }
    }
}

impl<C> Add<Nanos> for Instant<C> {
    type Output = Self;
    /// The point `span` after this one. Saturates at the end of the clock's range.
    fn add(self, span: Nanos) -> Self {
        Self::from_nanos(self.nanos.saturating_add(span.0))
    }
}

// These traits are written out, because a derive would also require them of the marker type `C`.
impl<C> Clone for Instant<C> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<C> Copy for Instant<C> {}
impl<C> PartialEq for Instant<C> {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}
impl<C> Eq for Instant<C> {}
impl<C> PartialOrd for Instant<C> {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<C> Ord for Instant<C> {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.nanos.cmp(&other.nanos)
    }
}
impl<C> fmt::Debug for Instant<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}ns", self.nanos)
    }
}

/// A frequency, in hertz.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Hertz(u64);

impl Hertz {
    /// Makes a frequency of `n` hertz.
    pub const fn new(n: u64) -> Self {
        Self(n)
    }
    /// Makes a frequency of `n` kilohertz, the unit of the kernel's cpufreq.
    pub const fn from_khz(n: u32) -> Self {
        Self(n as u64 * 1_000)
    }
    /// The frequency in hertz.
    pub const fn as_hertz(self) -> u64 {
        self.0
    }
    /// The number of cycles in `span`, rounded down. Computed with 128 bits; saturates.
    pub const fn cycles_in(self, span: Nanos) -> Cycles {
        let n = self.0 as u128 * span.0 as u128 / 1_000_000_000;
        Cycles(if n > u64::MAX as u128 { u64::MAX } else { n as u64 })
    }
}

/// Reads `2.1GHz`, `800MHz`, `100kHz` or `250Hz`.
impl FromStr for Hertz {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        const UNITS: &[(&str, u64)] = &[("GHz", 1_000_000_000), ("MHz", 1_000_000), ("kHz", 1_000), ("Hz", 1)];
        scaled(text, UNITS, "a frequency such as 2.1GHz or 800MHz (Hz, kHz, MHz, GHz)").map(Self)
    }
}

/// A number of cycles: the difference of two readings of a cycle counter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Cycles(u64);

impl Cycles {
    /// Makes a count of `n` cycles.
    pub const fn new(n: u64) -> Self {
        Self(n)
    }
    /// The number of cycles as a plain integer.
    pub const fn count(self) -> u64 {
        self.0
    }
}

impl Div<Hertz> for Cycles {
    type Output = Nanos;
    /// The time that the cycles take at `frequency`, rounded down. [`Nanos::MAX`] at 0 Hz.
    fn div(self, frequency: Hertz) -> Nanos {
        Nanos(self.0).scale(1_000_000_000, frequency.0)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;

    #[test]
    fn shows_and_reads_the_same_text() {
        for text in ["0ns", "999ns", "50us", "1.5ms", "1.05ms", "1.005ms", "2s"] {
            assert_eq!(text.parse::<Nanos>().unwrap().to_string(), text);
        }
        assert_eq!("1.5 us".parse::<Nanos>().unwrap(), Nanos::from_nanos(1_500));
    }

    #[test]
    fn refuses_what_has_no_unit_or_no_number() {
        for text in ["50", "us", "", "-1us", "1.2.3ms", "5 minutes", "1e3us", "99999999999999999999s", "18446744074s"] {
            assert!(text.parse::<Nanos>().is_err(), "{text:?} was taken");
        }
    }

    /// "expected a duration such as 50us" hid that only the number was wrong.
    #[test]
    fn a_value_that_is_too_large_is_called_so() {
        for (text, too_large) in
            [("99999999999999999999s", true), ("18446744074s", true), ("1.2.3ms", false), ("5 minutes", false)]
        {
            let why = text.parse::<Nanos>().unwrap_err().to_string();
            assert_eq!(why.starts_with("the value is too large"), too_large, "{text}: {why}");
            assert!(why.contains("expected a duration such as 50us"), "{why}");
        }
    }

    #[test]
    fn backwards_time_is_visible() {
        let (a, b) = (Instant::<Monotonic>::from_nanos(5), Instant::from_nanos(7));
        assert_eq!(b.since(a), Some(Nanos::from_nanos(2)));
        assert_eq!(a.since(b), None);
    }

    #[test]
    fn cycles_over_hertz_are_nanoseconds() {
        assert_eq!(Cycles::new(2_100) / Hertz::new(2_100_000_000), Nanos::from_micros(1));
        assert_eq!(Cycles::new(1) / Hertz::new(0), Nanos::MAX);
    }

    proptest! {
        #[test]
        fn scale_never_exceeds_the_exact_value(n: u64, num in 0u64..1_000_000, den in 1u64..1_000_000) {
            let exact = u128::from(n) * u128::from(num) / u128::from(den);
            let got = Nanos::from_nanos(n).scale(num, den).as_nanos();
            prop_assert_eq!(u128::from(got), exact.min(u128::from(u64::MAX)));
        }

        #[test]
        fn a_span_added_to_a_point_is_the_span_between(start in 0u64..1 << 62, span in 0u64..1 << 62) {
            let (a, d) = (Instant::<Simulated>::from_nanos(start), Nanos::from_nanos(span));
            prop_assert_eq!((a + d).since(a), Some(d));
        }

        #[test]
        fn text_is_exact(n: u64) {
            prop_assert_eq!(Nanos::from_nanos(n).to_string().parse(), Ok(Nanos::from_nanos(n)));
        }

        #[test]
        fn parsing_never_panics(text in ".*") {
            let _ = text.parse::<Nanos>();
            let _ = text.parse::<Hertz>();
        }
    }
}
