//! How a worker waits, as a user says it, and the policy made of it.

use std::fmt;

use policy::wait::{
    Adaptive, AdaptiveConfig, Backoff, Hybrid300, Interrupt, LENGTHS, Lateness, Policy, Poll, TimedCost, WakeCosts,
};
use policy::{Goal, LossBound};
use serde::{Deserialize, Serialize};
use units::{Monotonic, Nanos, PacketRate};

use crate::Error;

/// A way of waiting with its settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Never waits.
    Poll,
    /// Blocks at each empty poll.
    Interrupt,
    /// OVS-DPDK's timed sleep, up to `max`.
    Backoff {
        /// The longest sleep, 0 to 10 ms.
        max: Nanos,
    },
    /// l3fwd-power's scheme.
    Hybrid300,
    /// Apus's own.
    Adaptive {
        /// The latency goal.
        goal: Option<Goal>,
        /// The ring's bound.
        loss: Option<LossBound>,
        /// Whether frames can end a block.
        interrupts: bool,
    },
}

impl Mode {
    /// The name on the command line.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Poll => "poll",
            Self::Interrupt => "interrupt",
            Self::Backoff { .. } => "backoff",
            Self::Hybrid300 => "hybrid300",
            Self::Adaptive { .. } => "adaptive",
        }
    }

    /// The goal that it holds, if it holds one.
    pub const fn goal(&self) -> Option<Goal> {
        match self {
            Self::Adaptive { goal: Some(goal), .. } => Some(*goal),
            Self::Adaptive { goal: None, .. } => Some(policy::wait::DEFAULT_GOAL),
            _ => None,
        }
    }

    /// A fresh policy of this mode.
    pub fn policy(&self) -> Policy<Monotonic> {
        match *self {
            Self::Poll => Policy::Poll(Poll),
            Self::Interrupt => Policy::Interrupt(Interrupt),
            Self::Backoff { max } => Policy::Backoff(Backoff::new(max)),
            Self::Hybrid300 => Policy::Hybrid300(Hybrid300::new()),
            Self::Adaptive { goal, loss, interrupts } => {
                Policy::Adaptive(Adaptive::new(AdaptiveConfig { goal, loss, interrupts }))
            }
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backoff { max } => write!(f, "backoff {max}"),
            Self::Adaptive { goal: Some(goal), .. } => write!(f, "adaptive {goal}"),
            other => f.write_str(other.name()),
        }
    }
}

/// A [`Mode`] as a recorded file holds it.
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
        let mut text = Self {
            mode: mode.name().into(),
            max_ns: None,
            goal: None,
            ring_descriptors: None,
            peak_rate_pps: None,
            interrupts: None,
        };
        match mode {
            Mode::Backoff { max } => text.max_ns = Some(max.as_nanos()),
            Mode::Adaptive { goal, loss, interrupts } => {
                text.goal = goal.map(|g| g.to_string());
                text.ring_descriptors = loss.map(|l| l.descriptors);
                text.peak_rate_pps = loss.map(|l| l.peak.as_pps());
                text.interrupts = Some(interrupts);
            }
            Mode::Poll | Mode::Interrupt | Mode::Hybrid300 => {}
        }
        text
    }
}

impl ModeText {
    /// The mode that this text says.
    pub fn parse(&self) -> Result<Mode, Error> {
        let bad = |why: String| Error::Invalid { what: format!("mode {:?}", self.mode), why };
        Ok(match self.mode.as_str() {
            "poll" => Mode::Poll,
            "interrupt" => Mode::Interrupt,
            "hybrid300" => Mode::Hybrid300,
            "backoff" => {
                Mode::Backoff { max: Nanos::from_nanos(self.max_ns.ok_or_else(|| bad("max_ns is missing".into()))?) }
            }
            "adaptive" => Mode::Adaptive {
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
            },
            _ => return Err(bad("expected poll, interrupt, backoff, hybrid300 or adaptive".into())),
        })
    }
}

/// [`WakeCosts`] as a recorded file holds them: a replay needs what the policy started from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostsText {
    /// Timed waits, by their length.
    timed: Vec<TimedText>,
    /// Waits that an interrupt ends.
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
    /// Nothing in files of before there was one: p99 then.
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
    /// The costs that this text says.
    pub fn parse(&self) -> Result<WakeCosts, Error> {
        if self.timed.len() > LENGTHS {
            let why = format!("there is room for {LENGTHS}");
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
            Mode::Adaptive { goal: "p99=40us".parse().ok(), loss, interrupts: true },
            Mode::Adaptive { goal: None, loss: None, interrupts: false },
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
