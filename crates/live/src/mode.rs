//! The form in which record files contain a waiting mode and known wait costs.

use policy::LossBound;
pub use policy::wait::Mode;
use policy::wait::{AdaptiveConfig, LENGTHS, Lateness, TimedCost, WakeCosts};
use serde::{Deserialize, Serialize};
use units::{Nanos, PacketRate};

use crate::Error;

/// A [`Mode`] in the form that record files use.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // the fields are those of `Mode`, with their units
pub struct ModeText {
    pub mode: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub goal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ring_descriptors: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peak_rate_pps: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub interrupts: Option<bool>,
}

impl From<Mode> for ModeText {
    fn from(mode: Mode) -> Self {
        let max = if let Mode::Backoff { max } = mode { Some(max) } else { None };
        let config = if let Mode::Adaptive(config) = mode { Some(config) } else { None };
        let loss = config.and_then(|config| config.loss);
        Self {
            mode: mode.name().into(),
            max_ns: max.map(Nanos::as_nanos),
            goal: config.and_then(|config| config.goal).map(|goal| goal.to_string()),
            ring_descriptors: loss.map(|loss| loss.descriptors),
            peak_rate_pps: loss.map(|loss| loss.peak.as_pps()),
            interrupts: config.map(|config| config.interrupts),
        }
    }
}

impl ModeText {
    /// Converts back to a [`Mode`]. Returns an error if a value is missing or invalid.
    pub fn parse(&self) -> Result<Mode, Error> {
        let bad = |why: String| Error::Invalid { what: format!("mode {:?}", self.mode), why };
        let names = || bad(format!("expected {}", Mode::ALL.map(|mode| mode.name()).join(", ")));
        Ok(match Mode::named(&self.mode).ok_or_else(names)? {
            Mode::Backoff { .. } => {
                Mode::Backoff { max: Nanos::from_nanos(self.max_ns.ok_or_else(|| bad("max_ns is missing".into()))?) }
            }
            Mode::Adaptive(_) => Mode::Adaptive(AdaptiveConfig {
                goal: match &self.goal {
                    Some(goal) => Some(goal.parse().map_err(|e: policy::goal::GoalError| bad(e.to_string()))?),
                    None => None,
                },
                loss: match (self.ring_descriptors, self.peak_rate_pps) {
                    (Some(descriptors), Some(pps)) => Some(LossBound { descriptors, peak: PacketRate::new(pps) }),
                    (None, None) => None,
                    _ => return Err(bad("ring_descriptors and peak_rate_pps go together".into())),
                },
                interrupts: self.interrupts.unwrap_or(true),
            }),
            mode => mode,
        })
    }
}

/// [`WakeCosts`] in the form that record files use. A replay needs the costs, because the policy started with them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostsText {
    /// Lateness of timed waits, in ascending order of the waits' length.
    timed: Vec<TimedText>,
    /// Lateness of waits that an interrupt ends. `None` if it is not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    interrupt: Option<LatenessText>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TimedText {
    length_ns: u64,
    lateness: LatenessText,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LatenessText {
    p50_ns: u64,
    p75_ns: u64,
    p90_ns: u64,
    p99_ns: u64,
    /// The 99.9th percentile. A file of an older version lacks this field; then the 99th percentile is used.
    #[serde(default)]
    p999_ns: u64,
}

impl From<&Lateness> for LatenessText {
    fn from(of: &Lateness) -> Self {
        let ns = Nanos::as_nanos;
        Self { p50_ns: ns(of.p50), p75_ns: ns(of.p75), p90_ns: ns(of.p90), p99_ns: ns(of.p99), p999_ns: ns(of.p999) }
    }
}

impl LatenessText {
    fn lateness(&self) -> Lateness {
        let ns = Nanos::from_nanos;
        Lateness {
            p50: ns(self.p50_ns),
            p75: ns(self.p75_ns),
            p90: ns(self.p90_ns),
            p99: ns(self.p99_ns),
            p999: ns(self.p999_ns.max(self.p99_ns)),
        }
    }
}

impl From<&WakeCosts> for CostsText {
    fn from(costs: &WakeCosts) -> Self {
        let timed = costs.timed.iter().flatten();
        Self {
            timed: timed
                .map(|cost| TimedText { length_ns: cost.length.as_nanos(), lateness: (&cost.lateness).into() })
                .collect(),
            interrupt: costs.interrupt.as_ref().map(Into::into),
        }
    }
}

impl CostsText {
    /// Converts back to [`WakeCosts`]. Returns an error if there are too many lengths.
    pub fn parse(&self) -> Result<WakeCosts, Error> {
        if self.timed.len() > LENGTHS {
            let why = format!("at most {LENGTHS} are supported");
            return Err(Error::Invalid { what: format!("costs of {} lengths", self.timed.len()), why });
        }
        let mut costs = WakeCosts { timed: [None; LENGTHS], interrupt: None };
        for (place, text) in costs.timed.iter_mut().zip(&self.timed) {
            *place = Some(TimedCost { length: Nanos::from_nanos(text.length_ns), lateness: text.lateness.lateness() });
        }
        costs.interrupt = self.interrupt.as_ref().map(LatenessText::lateness);
        Ok(costs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_survives_its_text() {
        let loss = Some(LossBound { descriptors: 2048, peak: PacketRate::new(3_000_000) });
        for mode in [
            Mode::Poll,
            Mode::Interrupt,
            Mode::Hybrid300,
            Mode::Backoff { max: Nanos::from_micros(70) },
            Mode::Adaptive(AdaptiveConfig { goal: "p99=40us".parse().ok(), loss, interrupts: true }),
            Mode::Adaptive(AdaptiveConfig { interrupts: false, ..AdaptiveConfig::default() }),
        ] {
            assert_eq!(ModeText::from(mode).parse().unwrap(), mode);
        }
    }

    #[test]
    fn costs_survive_their_text() {
        let us = Nanos::from_micros;
        let lateness = Lateness { p50: us(8), p75: us(9), p90: us(12), p99: us(40), p999: us(55) };
        let mut costs = WakeCosts { interrupt: Some(lateness), ..WakeCosts::default() };
        assert_eq!(CostsText::from(&costs).parse().unwrap(), costs);
        costs.timed = [Some(TimedCost { length: us(50), lateness }); LENGTHS];
        let text = CostsText::from(&costs);
        assert_eq!(text.parse().unwrap(), costs);
        let more = CostsText { timed: [text.timed.clone(), text.timed].concat(), interrupt: None };
        assert!(more.parse().is_err());
    }
}
