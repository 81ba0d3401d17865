//! The arithmetic of meters: units, wrap-around, differences, and integrals of power. It does no I/O.

use units::{Microwatts, Nanojoules, Nanos};

/// Maximum power that one meter is assumed to measure: twice the power of the largest packages with their memory (500 W
/// in 2025). It tells how soon a counter may wrap around, and whether it did or was reset.
pub(super) const LARGEST_POWER: Microwatts = Microwatts::new(1_000_000_000);

/// The energy of one count, stored exactly in units of 2^-32 nJ. RAPL counts in powers of two of a joule, sysfs in
/// microjoules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unit(u128);

impl Unit {
    /// One microjoule.
    pub const MICROJOULE: Self = Self(1_000 << 32);

    /// The unit 2^-`exponent` J, as in RAPL's unit register. `exponent` is at most 31.
    pub const fn of_exponent(exponent: u32) -> Self {
        Self((1_000_000_000 << 32) >> exponent)
    }

    /// Converts a unit in joules, as in perf's files `*.scale`. `None` unless it is positive and below 2^32 J.
    pub fn of_joules(joules: f64) -> Option<Self> {
        let scaled = joules * 1e9 * f64::from(2u32).powi(32);
        (scaled >= 1.0 && joules < f64::from(u32::MAX)).then_some(Self(scaled.round() as u128))
    }

    /// The energy of `counts` counts, rounded down. Saturates.
    pub fn energy(self, counts: u128) -> Nanojoules {
        let wide = counts.saturating_mul(self.0) >> 32;
        Nanojoules::new(u64::try_from(wide).unwrap_or(u64::MAX))
    }

    /// The energy of one count in nanojoules, rounded up, so that it is never 0.
    pub fn step(self) -> Nanojoules {
        Nanojoules::new(u64::try_from(self.0.div_ceil(1 << 32)).unwrap_or(u64::MAX))
    }
}

/// The quantity that a meter shows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Quantity {
    /// An energy that the meter counts.
    Energy {
        /// Energy of one count.
        unit: Unit,
        /// The number after which the counter starts again at 0, one above its maximum. `None` if it never wraps
        /// around.
        modulus: Option<u64>,
        /// The minimum difference between two different readings, which may be many counts.
        step: Nanojoules,
    },
    /// The average power over the last `interval`, in microwatts.
    Average {
        /// The time over which the firmware averages. `None` if unknown.
        interval: Option<Nanos>,
    },
    /// The power at the time of reading, in microwatts.
    Power,
}

impl Quantity {
    /// Maximum time that may pass between two readings. For a meter that shows power, it is at most `power`. `None` if
    /// the counter never wraps around.
    pub(super) fn poll_within(&self, power: Nanos) -> Option<Nanos> {
        match self {
            Self::Energy { unit, modulus, .. } => {
                let modulus = (*modulus)?;
                // Half of the time in which the counter wraps around once at the largest power.
                let nanojoules = unit.energy(modulus.into()).as_nanojoules();
                let nanos = u128::from(nanojoules) * 1_000_000 / u128::from(LARGEST_POWER.as_microwatts()) / 2;
                Some(Nanos::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
            }
            Self::Average { interval } => {
                Some(interval.map_or(power, |interval| interval.max(Nanos::from_millis(10)).min(power)))
            }
            Self::Power => Some(power),
        }
    }
}

/// Maximum delay of a counter's update: RAPL's counters change about once a millisecond.
const UPDATE: Nanos = Nanos::from_millis(10);

/// The energy that one meter has counted since its first reading.
///
/// ```text
///  New ──feed──► Counting ──feed──► Counting
///                   └── reset, too long unread, unreadable, suspended ──► a gap: nothing is counted in it, and sums
///                                                                        over it are unknown
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tally {
    quantity: Quantity,
    /// Time and value of the last reading.
    last: Option<(Nanos, u64)>,
    /// Time from the first to the last reading.
    span: Nanos,
    /// For an energy meter, the sum of its counts; for a power meter, the sum of microwatts times nanoseconds.
    sum: u128,
    /// The number of problems, and the reason of the first. `None` if there was no problem.
    doubt: Option<(u64, String)>,
}

impl Tally {
    /// Creates a tally without a reading.
    pub const fn new(quantity: Quantity) -> Self {
        Self { quantity, last: None, span: Nanos::ZERO, sum: 0, doubt: None }
    }

    /// Adds a reading made at `now`, which must not be earlier than the previous reading.
    pub fn feed(&mut self, now: Nanos, value: u64) {
        let before = self.last.replace((now, value));
        let Some((then, before)) = before else { return };
        let elapsed = now.checked_sub(then).unwrap_or(Nanos::ZERO);
        self.span += elapsed;
        match &self.quantity {
            Quantity::Energy { unit, modulus, step } => {
                let turn = modulus.map(|modulus| unit.energy(modulus.into()));
                let counts = difference(before, value, *modulus);
                let most = LARGEST_POWER * (elapsed + UPDATE) + *step;
                match counts {
                    Err(reason) => self.gap(reason),
                    Ok(_) if turn.is_some_and(|turn| LARGEST_POWER * elapsed >= turn) => {
                        self.gap(format!("it was not read for {elapsed}, and may have wrapped around more than once"));
                    }
                    Ok(counts) if value < before && unit.energy(counts.into()) > most => {
                        self.gap(format!("it went back from {before} to {value} within {elapsed}, as after a reset"));
                    }
                    Ok(counts) => self.sum += u128::from(counts),
                }
            }
            Quantity::Average { .. } => self.sum += u128::from(value) * u128::from(elapsed.as_nanos()),
            Quantity::Power => {
                self.sum += (u128::from(value) + u128::from(before)) * u128::from(elapsed.as_nanos()) / 2;
            }
        }
    }

    /// Records that the meter could not be read or interpreted. The energy until the next reading is not counted.
    pub fn fail(&mut self, reason: String) {
        self.gap(reason);
        self.last = None;
    }

    /// Records that the machine was suspended, which may have reset the counter. Power is only summed up while
    /// the machine runs.
    pub(super) fn suspended(&mut self) {
        if let (Quantity::Energy { .. }, Some(_)) = (&self.quantity, self.last) {
            self.fail("the machine was suspended, which may reset the counter".to_owned());
        }
    }

    /// Whether the last reading succeeded. False before the first one.
    pub(super) fn is_read(&self) -> bool {
        self.last.is_some()
    }

    fn gap(&mut self, reason: String) {
        match &mut self.doubt {
            Some((number, _)) => *number += 1,
            None => self.doubt = Some((1, reason)),
        }
    }

    /// The energy since the first reading without that in gaps, and the number of gaps.
    pub(super) fn known(&self) -> (Nanojoules, u64) {
        (self.energy(self.sum), self.doubt.as_ref().map_or(0, |(number, _)| *number))
    }

    fn energy(&self, sum: u128) -> Nanojoules {
        match &self.quantity {
            Quantity::Energy { unit, .. } => unit.energy(sum),
            // 1 uW for 1 ms is 1 nJ.
            Quantity::Average { .. } | Quantity::Power => {
                Nanojoules::new(u64::try_from(sum / 1_000_000).unwrap_or(u64::MAX))
            }
        }
    }

    /// The energy and the time since `earlier`, an earlier state of this tally.
    pub(super) fn since(&self, earlier: &Self) -> Result<(Nanojoules, Nanos), String> {
        let number = |tally: &Self| tally.doubt.as_ref().map_or(0, |(number, _)| *number);
        if number(self) != number(earlier) {
            return Err(self.doubt.as_ref().map(|(_, reason)| reason.clone()).unwrap_or_default());
        }
        if earlier.last.is_none() || self.last.is_none() {
            return Err("it was not read at the beginning and at the end".to_owned());
        }
        let energy = self.energy(self.sum - earlier.sum);
        Ok((energy, self.span.checked_sub(earlier.span).unwrap_or(Nanos::ZERO)))
    }
}

/// The increase from `before` to `after`, if the counter wrapped around at most once.
fn difference(before: u64, after: u64, modulus: Option<u64>) -> Result<u64, String> {
    match modulus {
        Some(modulus) if after >= modulus || before >= modulus => {
            Err(format!("it showed {}, which is outside its range of {modulus}", after.max(before)))
        }
        _ if after >= before => Ok(after - before),
        Some(modulus) => Ok(modulus - before + after),
        None => Err(format!("it went back from {before} to {after}, as after a reset or a change of the driver")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn microjoules(modulus: Option<u64>) -> Tally {
        Tally::new(Quantity::Energy { unit: Unit::MICROJOULE, modulus, step: Nanojoules::new(61_036) })
    }

    fn at(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    fn energy(tally: &Tally, from: &Tally) -> Result<u64, String> {
        tally.since(from).map(|(energy, _)| energy.as_nanojoules())
    }

    #[test]
    fn units_are_exact() {
        assert_eq!(Unit::of_exponent(14).energy(1 << 14), Nanojoules::new(1_000_000_000));
        assert_eq!(Unit::of_exponent(14).step(), Nanojoules::new(61_036));
        assert_eq!(
            Unit::of_joules(2.328_306_436_538_696_3e-10).unwrap().energy(1 << 32),
            Nanojoules::new(1_000_000_000)
        );
        assert_eq!(Unit::of_exponent(0).energy(7), Nanojoules::new(7_000_000_000));
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e30] {
            assert_eq!(Unit::of_joules(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_counter_that_wraps_around_is_carried_on() {
        let mut tally = microjoules(Some(1_000_000_000));
        tally.feed(at(0), 999_999_000);
        let start = tally.clone();
        tally.feed(at(100), 500);
        assert_eq!(energy(&tally, &start), Ok(1_500_000));
        tally.feed(at(200), 1_500);
        assert_eq!(energy(&tally, &start), Ok(2_500_000));
    }

    #[test]
    fn a_counter_without_range_that_goes_back_is_in_doubt() {
        let mut tally = microjoules(None);
        tally.feed(at(0), 5_000);
        let start = tally.clone();
        tally.feed(at(1), 4_000);
        assert!(energy(&tally, &start).unwrap_err().contains("went back from 5000 to 4000"));
        // Energy counted after the problem is known, if the sum starts after it.
        let again = tally.clone();
        tally.feed(at(2), 6_000);
        assert_eq!(energy(&tally, &again), Ok(2_000_000));
        assert!(energy(&tally, &start).is_err());
    }

    #[test]
    fn a_value_beyond_the_range_and_a_gap_of_more_than_a_turn_are_in_doubt() {
        let mut tally = microjoules(Some(1_000));
        tally.feed(at(0), 1);
        let start = tally.clone();
        tally.feed(at(0), 1_000);
        assert!(energy(&tally, &start).unwrap_err().contains("outside its range"));
        // At 1 kW, a range of 1000 J wraps around once per second.
        let mut tally = microjoules(Some(1_000_000_000));
        tally.feed(at(0), 1);
        let start = tally.clone();
        tally.feed(at(999), 2);
        assert_eq!(energy(&tally, &start), Ok(1_000));
        tally.feed(at(1_999), 3);
        assert!(energy(&tally, &start).unwrap_err().contains("more than once"));
    }

    #[test]
    fn power_is_integrated() {
        let mut average = Tally::new(Quantity::Average { interval: Some(at(1_000)) });
        average.feed(at(0), 99);
        let start = average.clone();
        average.feed(at(1_000), 42_000_000);
        average.feed(at(3_000), 55_500_000);
        assert_eq!(energy(&average, &start), Ok((42 + 2 * 55) * 1_000_000_000 + 1_000_000_000));
        let mut power = Tally::new(Quantity::Power);
        power.feed(at(0), 10_000_000);
        let start = power.clone();
        power.feed(at(2_000), 20_000_000);
        assert_eq!(energy(&power, &start), Ok(30_000_000_000));
    }

    #[test]
    fn counters_are_looked_at_before_they_can_turn_twice() {
        let rapl = Quantity::Energy { unit: Unit::of_exponent(16), modulus: Some(1 << 32), step: Nanojoules::new(1) };
        // At 1 kW, a range of 65,536 J wraps around after 65.5 s. The limit is half of that.
        assert_eq!(rapl.poll_within(at(1)), Some(at(32_768)));
        assert_eq!(microjoules(None).quantity.poll_within(at(1)), None);
        assert_eq!(Quantity::Average { interval: Some(at(300)) }.poll_within(at(1_000)), Some(at(300)));
        assert_eq!(Quantity::Average { interval: None }.poll_within(at(1_000)), Some(at(1_000)));
    }

    /// A suspend resets RAPL's counters. Without a reset, 262 kJ would have been used in a second.
    #[test]
    fn a_reset_is_no_wrap_around() {
        let mut tally = microjoules(Some(262_143_328_912));
        tally.feed(at(0), 100_000_000_000);
        let start = tally.clone();
        tally.feed(at(1_000), 5_000_000);
        assert!(energy(&tally, &start).unwrap_err().contains("as after a reset"));
        let again = tally.clone();
        tally.feed(at(2_000), 15_000_000);
        assert_eq!(energy(&tally, &again), Ok(10_000_000_000));
        assert_eq!(tally.known(), (Nanojoules::new(10_000_000_000), 1));
    }

    #[test]
    fn gaps_are_left_out_and_counted() {
        let mut tally = microjoules(None);
        tally.feed(at(0), 5_000);
        tally.feed(at(1), 6_000);
        tally.fail("no permission".into());
        tally.feed(at(3), 9_000);
        let after = tally.clone();
        tally.feed(at(4), 9_500);
        assert_eq!((tally.known(), energy(&tally, &after)), ((Nanojoules::new(1_500_000), 1), Ok(500_000)));
        tally.suspended();
        assert_eq!(tally.known().1, 2);
        tally.feed(at(5), 200);
        assert!(energy(&tally, &after).unwrap_err().contains("no permission"), "the first reason");
        tally.feed(at(6), 300);
        assert_eq!(tally.known(), (Nanojoules::new(1_600_000), 2));
        let mut power = Tally::new(Quantity::Power);
        power.feed(at(0), 1_000_000);
        power.suspended();
        power.feed(at(1_000), 1_000_000);
        assert_eq!(power.known(), (Nanojoules::new(1_000_000_000), 0));
    }

    proptest! {
        /// If each step is shorter than the counter's range, the tally is the sum of all steps.
        #[test]
        fn the_sum_of_the_steps_comes_out(modulus in 2u64..1 << 50, start: u64, steps in prop::collection::vec(0u64.., 1..20)) {
            let mut tally = microjoules(Some(modulus));
            let mut value = start % modulus;
            tally.feed(Nanos::ZERO, value);
            let first = tally.clone();
            let (mut sum, mut now) = (0u128, Nanos::ZERO);
            for step in steps {
                let step = step % modulus;
                sum += u128::from(step);
                value = ((u128::from(value) + u128::from(step)) % u128::from(modulus)) as u64;
                // At 1 kW, a microjoule takes a nanosecond: long enough for any step, and too short for a whole turn.
                now += Nanos::from_nanos(modulus - 1);
                tally.feed(now, value);
            }
            prop_assert_eq!(energy(&tally, &first), Ok(Unit::MICROJOULE.energy(sum).as_nanojoules()));
        }
    }
}
