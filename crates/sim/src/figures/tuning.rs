//! Increases and decreases one parameter of a figure, to see how much the figure depends on it.

use units::{BitRate, Cycles, Nanos};

use crate::hw::cstate::IdleState;
use crate::hw::spread::Spread;
use crate::machine::Processor;
use crate::scenario::{Scenario, Worker};
use crate::units_text::Microvolts;

/// A parameter that may influence a figure's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Knob {
    /// The name of the input: a path in a machine's file, or a value of the figure itself.
    pub parameter: &'static str,
    /// How the parameter got its value.
    pub standing: Standing,
    /// By how many percent the parameter is decreased and increased.
    pub percent: u32,
}

units::named! {
    /// How a parameter got its value.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Standing {
        /// The value was fitted to a row of this figure or of another one.
        Fitted = "fitted",
        /// The value is an estimate; no document states it.
        Estimate = "estimate",
        /// The value was chosen, because the document does not say what was used.
        Assumption = "assumption",
        /// A document states the value.
        Stated = "stated",
    }
}

impl Knob {
    pub(super) const fn fitted(parameter: &'static str) -> Self {
        Self { parameter, standing: Standing::Fitted, percent: 20 }
    }
    pub(super) const fn estimate(parameter: &'static str) -> Self {
        Self { parameter, standing: Standing::Estimate, percent: 20 }
    }
    pub(super) const fn assumption(parameter: &'static str) -> Self {
        Self { parameter, standing: Standing::Assumption, percent: 20 }
    }
    pub(super) const fn stated(parameter: &'static str) -> Self {
        Self { parameter, standing: Standing::Stated, percent: 20 }
    }
}

/// Settings for one run of a figure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tuning {
    knob: &'static str,
    factor: f64,
    /// Whether a shorter simulation is enough, because only the difference between two simulations matters.
    pub short: bool,
}

impl Tuning {
    /// No change: the values of the documents and machines.
    pub const NONE: Self = Self { knob: "", factor: 1.0, short: false };
    /// No change, simulated for a shorter time.
    pub const SHORT: Self = Self { short: true, ..Self::NONE };

    /// Multiplies one parameter by `factor`.
    pub const fn with(knob: &'static str, factor: f64) -> Self {
        Self { knob, factor, short: true }
    }

    /// Number of repetitions: `full`, or `short` in a shorter simulation.
    pub const fn count(&self, full: u64, short: u64) -> u64 {
        if self.short { short } else { full }
    }

    /// The factor for `knob`, a value of the figure itself. 1 if `knob` is not the parameter that is changed.
    pub fn factor(&self, knob: &str) -> f64 {
        if self.knob == knob { self.factor } else { 1.0 }
    }

    /// Applies the factor to a time span of the figure itself.
    pub fn nanos(&self, knob: &str, span: Nanos) -> Nanos {
        scaled(span, self.factor(knob))
    }

    /// Applies the factor to a parameter of the machine.
    pub fn apply(&self, scenario: &mut Scenario) {
        let by = self.factor;
        let host = &mut scenario.host;
        let cycles = |work: Cycles| Cycles::new((work.count() as f64 * by).round() as u64);
        let (nic, processor) = (&mut host.nic, &mut host.processor);
        match self.knob {
            "nic.phy" => nic.link.latency = scaled(nic.link.latency, by),
            "nic.bus" => nic.bus = BitRate::new((nic.bus.as_bps() as f64 * by) as u64),
            "nic.receive" => nic.receive = scaled(nic.receive, by),
            "nic.transmit" => nic.transmit = scaled(nic.transmit, by),
            "nic.jitter" => nic.jitter = scaled(nic.jitter, by),
            "nic.rx_moderation.interval" => nic.rx_moderation.interval = scaled(nic.rx_moderation.interval, by),
            "processor.delivery.resume" => processor.delivery.resume = cycles(processor.delivery.resume),
            "processor.delivery.thread" => processor.delivery.thread = cycles(processor.delivery.thread),
            "processor.idle.C3.exit" => idle(processor, "C3", |state| state.exit = spread(state.exit, by)),
            "processor.idle.C6.exit" => idle(processor, "C6", |state| state.exit = spread(state.exit, by)),
            "processor.idle.C3.refill" => idle(processor, "C3", |state| state.refill = cycles(state.refill)),
            "processor.idle.C6.refill" => idle(processor, "C6", |state| state.refill = cycles(state.refill)),
            "processor.pstates.block" => processor.pstates.block = scaled(processor.pstates.block, by),
            "processor.disturbance.takes" => {
                if let Some(disturbance) = &mut host.disturbance {
                    disturbance.takes = spread(disturbance.takes, by);
                }
            }
            "processor.vcpu.signal" => {
                if let Some(vcpu) = &mut host.vcpu {
                    vcpu.signal = cycles(vcpu.signal);
                }
            }
            "processor.work.frame" => {
                if let Worker::User { work, .. } = &mut scenario.worker {
                    work.frame = cycles(work.frame);
                }
            }
            // The voltage at the base frequency. The core's power at this frequency stays the same, because it is the
            // core's share of the thermal design power. So capacitance and leakage are adjusted to the voltage.
            "processor.power.curve.2" => {
                let power = &mut processor.power;
                let least = power.curve[0].voltage.0;
                let before = power.curve[2].voltage.0;
                let after = ((before as f64 * by) as u64).max(least);
                let ratio = before as f64 / after as f64;
                power.curve[2].voltage = Microvolts(after);
                power.capacitance_pf = (f64::from(power.capacitance_pf) * ratio.powi(2)).round() as u32;
                let leakage = power.leakage.as_microwatts() as f64 * ratio.powi(3);
                power.leakage = units::Microwatts::new(leakage as u64);
            }
            // The uncore's share of the thermal design power. The cores get the rest.
            "processor.power.uncore.1" => {
                let power = &mut processor.power;
                let cores = u64::from(power.cores) * power.active(processor.base, 1_000).as_microwatts();
                let before = power.uncore[1].power.as_microwatts();
                let more = before as f64 * (by - 1.0);
                for point in &mut power.uncore {
                    point.power = units::Microwatts::new((point.power.as_microwatts() as f64 * by) as u64);
                }
                let ratio = (cores as f64 - more) / cores as f64;
                power.capacitance_pf = (f64::from(power.capacitance_pf) * ratio).round() as u32;
                power.leakage = units::Microwatts::new((power.leakage.as_microwatts() as f64 * ratio) as u64);
            }
            _ => {}
        }
    }
}

fn idle(processor: &mut Processor, name: &str, turn: impl FnMut(&mut IdleState)) {
    processor.cstates.states.iter_mut().filter(|state| state.name == name).for_each(turn);
}

fn scaled(span: Nanos, by: f64) -> Nanos {
    Nanos::from_nanos((span.as_nanos() as f64 * by).round() as u64)
}

fn spread(spread: Spread, by: f64) -> Spread {
    let excess = spread.typical().saturating_sub(spread.least());
    Spread::new(scaled(spread.least(), by), scaled(excess, by), scaled(spread.most(), by)).unwrap_or(spread)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A knob changes the idle state that it names, and no other.
    #[test]
    fn a_knob_of_an_idle_state_turns_that_state() {
        let text = "machine = \"xeon-e5-2699v3\"\nnic = \"x540\"\nduration = \"1s\"\n[[traffic]]\nkind = \"constant\"\n\
                    rate = \"1kpps\"\n[worker]\ndriver = \"user\"\nwait = \"poll\"\n";
        let states = |tuning: Tuning| {
            let scenario = super::super::setup::scenario(text, &tuning).unwrap();
            scenario.host.processor.cstates.states
        };
        let before = states(Tuning::NONE);
        for (knob, name) in [("processor.idle.C3.exit", "C3"), ("processor.idle.C6.refill", "C6")] {
            let after = states(Tuning::with(knob, 1.2));
            let turned: Vec<&str> =
                before.iter().zip(&after).filter(|(a, b)| a != b).map(|(a, _)| a.name.as_str()).collect();
            assert_eq!(turned, [name], "{knob}");
        }
    }
}
