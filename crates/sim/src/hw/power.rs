//! Power of cores, uncore and package, and its exact integral over time.

use units::{Hertz, Microwatts, Nanojoules, Nanos};

use super::cstate::Gate;
use super::{ModelError, check};
use crate::At;
use crate::units_text::Microvolts;

/// A point of a voltage-frequency curve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VoltagePoint {
    /// The frequency of the core.
    pub frequency: Hertz,
    /// The minimum voltage at which the core can run at this frequency.
    pub voltage: Microvolts,
}

/// A point of the uncore's power curve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UncorePoint {
    /// The frequency of the uncore.
    pub frequency: Hertz,
    /// Power of everything that does not belong to a core: mesh, cache, memory controllers, links.
    pub power: Microwatts,
}

/// The power of a package.
///
/// A core's power is the sum of two parts: `C V^2 f` for switching, and `leakage (V / V0)^3` for leakage. (Near the
/// operating point, the leakage current grows roughly with the square of the voltage.)
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PowerModel {
    /// Voltage by frequency, ascending. It is interpolated between the points, and constant beyond the first and last.
    pub curve: Vec<VoltagePoint>,
    /// Capacitance that an executing core switches per cycle, in picofarads.
    pub capacitance_pf: u32,
    /// Leakage power of a core at the voltage of the curve's last point.
    pub leakage: Microwatts,
    /// Power of a core in a power-gated state.
    pub gated: Microwatts,
    /// Number of cores in the package.
    pub cores: u32,
    /// The uncore's power by frequency, ascending.
    pub uncore: Vec<UncorePoint>,
}

/// Share of an executing core's switching that continues while the clock is gated, in per mille: wake-up logic, and the
/// cache that answers snoops.
const CLOCK_GATED_PER_MILLE: u64 = 50;

impl PowerModel {
    /// Returns an error if a curve does not ascend.
    pub fn validate(&self) -> Result<(), ModelError> {
        check(self.cores > 0, "power", || "0 cores: give at least 1".into())?;
        check(!self.curve.is_empty() && !self.uncore.is_empty(), "power", || {
            "an empty curve: give at least one point".into()
        })?;
        check(self.curve[0].voltage.0 > 0, "power", || "a voltage of 0: give one such as 0.7V".into())?;
        let volts = self.curve.windows(2).all(|p| p[0].frequency < p[1].frequency && p[0].voltage <= p[1].voltage);
        let watts = self.uncore.windows(2).all(|p| p[0].frequency < p[1].frequency && p[0].power <= p[1].power);
        check(volts && watts, "power", || "a curve that does not ascend: order its points by frequency".into())
    }

    /// The voltage at `frequency`.
    pub fn voltage(&self, frequency: Hertz) -> Microvolts {
        let points = self.curve.iter().map(|p| (p.frequency.as_hertz(), p.voltage.0));
        Microvolts(interpolated(points, frequency.as_hertz()))
    }

    /// Power of a core that executes at `frequency`, with `activity` per mille of the capacitance switching.
    pub fn active(&self, frequency: Hertz, activity: u64) -> Microwatts {
        let voltage = self.voltage(frequency);
        Microwatts::new(self.switching(voltage, frequency, activity) + self.leaking(voltage))
    }

    /// Power of a core in an idle state. `frequency` is the frequency that the core has when it wakes.
    pub fn idle(&self, gate: Gate, frequency: Hertz) -> Microwatts {
        let lowest = self.curve[0].frequency;
        match gate {
            Gate::Nothing => self.active(frequency, 1_000),
            Gate::Clock => self.active(frequency, CLOCK_GATED_PER_MILLE),
            Gate::ClockLowVoltage | Gate::Caches => {
                let voltage = self.voltage(lowest);
                let switching = if gate == Gate::Caches { 0 } else { CLOCK_GATED_PER_MILLE };
                Microwatts::new(self.switching(voltage, lowest, switching) + self.leaking(voltage))
            }
            Gate::Power => self.gated,
        }
    }

    /// Power of the uncore at `frequency`.
    pub fn uncore(&self, frequency: Hertz) -> Microwatts {
        let points = self.uncore.iter().map(|p| (p.frequency.as_hertz(), p.power.as_microwatts()));
        Microwatts::new(interpolated(points, frequency.as_hertz()))
    }

    fn switching(&self, voltage: Microvolts, frequency: Hertz, per_mille: u64) -> u64 {
        // pF * uV^2 * Hz = 1e-24 W = 1e-18 uW; per mille makes that 1e-21.
        let wide = u128::from(self.capacitance_pf)
            * u128::from(voltage.0).pow(2)
            * u128::from(frequency.as_hertz())
            * u128::from(per_mille);
        u64::try_from(wide / 10u128.pow(21)).unwrap_or(u64::MAX)
    }

    fn leaking(&self, voltage: Microvolts) -> u64 {
        let full = self.curve[self.curve.len() - 1].voltage.0;
        let wide = u128::from(self.leakage.as_microwatts()) * u128::from(voltage.0).pow(3);
        u64::try_from(wide / u128::from(full).pow(3)).unwrap_or(u64::MAX)
    }
}

/// The value at `x`, interpolated between ascending `points`. Beyond the first and last point, it is that point's
/// value.
fn interpolated(points: impl Iterator<Item = (u64, u64)>, x: u64) -> u64 {
    let mut before: Option<(u64, u64)> = None;
    for (px, py) in points {
        if x <= px {
            let Some((bx, by)) = before else { return py };
            let rise = u128::from(py - by) * u128::from(x - bx) / u128::from(px - bx);
            return by + rise as u64;
        }
        before = Some((px, py));
    }
    before.map_or(0, |(_, y)| y)
}

/// Integrates energy exactly: microwatts times nanoseconds, in 128 bits.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    since: At,
    power: Microwatts,
    femtojoules: u128,
}

impl Meter {
    /// Starts at `now` with `power`.
    pub const fn new(now: At, power: Microwatts) -> Self {
        Self { since: now, power, femtojoules: 0 }
    }

    /// Changes the power from `now` on.
    pub fn set(&mut self, now: At, power: Microwatts) {
        self.femtojoules = self.up_to(now);
        self.since = self.since.max(now);
        self.power = power;
    }

    /// The current power.
    pub const fn power(&self) -> Microwatts {
        self.power
    }

    /// The energy up to `now`, rounded down.
    pub fn energy(&self, now: At) -> Nanojoules {
        Nanojoules::new(u64::try_from(self.up_to(now) / 1_000_000).unwrap_or(u64::MAX))
    }

    fn up_to(&self, now: At) -> u128 {
        let span = now.since(self.since).unwrap_or(Nanos::ZERO);
        self.femtojoules + u128::from(self.power.as_microwatts()) * u128::from(span.as_nanos())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mhz(n: u64) -> Hertz {
        Hertz::new(n * 1_000_000)
    }

    fn model() -> PowerModel {
        let point = |f, mv: u64| VoltagePoint { frequency: mhz(f), voltage: Microvolts(mv * 1_000) };
        let uncore = |f, w: u64| UncorePoint { frequency: mhz(f), power: Microwatts::new(w * 1_000_000) };
        PowerModel {
            curve: vec![point(800, 700), point(2_000, 1_000)],
            capacitance_pf: 1_000,
            leakage: Microwatts::new(1_000_000),
            gated: Microwatts::new(50_000),
            cores: 32,
            uncore: vec![uncore(800, 40), uncore(1_800, 60)],
        }
    }

    #[test]
    fn a_nanofarad_at_a_volt_and_two_gigahertz_is_two_watts() {
        let model = model();
        model.validate().unwrap();
        assert_eq!(model.active(mhz(2_000), 1_000), Microwatts::new(3_000_000));
        assert_eq!(model.voltage(mhz(1_400)), Microvolts(850_000));
        assert_eq!(model.voltage(mhz(100)), Microvolts(700_000));
        assert_eq!(model.uncore(mhz(1_300)), Microwatts::new(50_000_000));
    }

    #[test]
    fn deeper_states_take_less() {
        let model = model();
        let gates = [Gate::Nothing, Gate::Clock, Gate::ClockLowVoltage, Gate::Caches, Gate::Power];
        let watts = gates.map(|gate| model.idle(gate, mhz(2_000)));
        assert!(watts.is_sorted_by(|a, b| a > b), "{watts:?}");
    }

    #[test]
    fn curves_ascend() {
        let mut wrong = model();
        wrong.curve.reverse();
        assert!(wrong.validate().is_err());
        wrong.curve.clear();
        assert!(wrong.validate().is_err());
    }

    #[test]
    fn a_watt_for_a_second_is_a_joule() {
        let mut meter = Meter::new(At::ORIGIN, Microwatts::new(1_000_000));
        meter.set(At::from_nanos(1_000_000_000), Microwatts::new(0));
        assert_eq!(meter.energy(At::from_nanos(5_000_000_000)), Nanojoules::new(1_000_000_000));
    }

    proptest! {
        #[test]
        fn power_rises_with_frequency(a in 0u64..4_000, b in 0u64..4_000, activity in 0u64..=1_000) {
            let (low, high) = (a.min(b), a.max(b));
            prop_assert!(model().active(mhz(low), activity) <= model().active(mhz(high), activity));
        }

        /// The energies of all steps add up exactly to the total.
        #[test]
        fn energy_is_additive(steps in prop::collection::vec((0u64..1_000_000, 0u64..500_000_000), 1..50)) {
            let mut meter = Meter::new(At::ORIGIN, Microwatts::new(0));
            let (mut now, mut exact, mut power) = (0u64, 0u128, 0u64);
            for (span, next) in steps {
                exact += u128::from(span) * u128::from(power);
                now += span;
                power = next;
                meter.set(At::from_nanos(now), Microwatts::new(power));
            }
            prop_assert_eq!(u128::from(meter.energy(At::from_nanos(now)).as_nanojoules()), exact / 1_000_000);
        }
    }
}
