//! The user's goal: how late a packet may be, and whether the receive ring may overflow.

use core::fmt;
use core::str::FromStr;

use units::{Nanos, PacketRate, Quantile};

/// A latency goal: at least the share `quantile` of all packets departs within `latency` of its arrival.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Goal {
    /// The share of packets that must depart within `latency` of their arrival, for example 99 %.
    pub quantile: Quantile,
    /// The longest allowed time from a packet's arrival to its departure. Never zero in a parsed goal.
    pub latency: Nanos,
}

/// Why a string could not be parsed as a goal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GoalError {
    /// The string is not of the form `quantile=duration`.
    Form,
    /// The part before `=` is not a quantile.
    Quantile(units::ParseError),
    /// The part after `=` is not a duration.
    Latency(units::ParseError),
    /// The latency is 0, which no packet can meet.
    Zero,
}

impl fmt::Display for GoalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form => f.write_str("expected a goal such as p99.9=50us"),
            Self::Quantile(e) => write!(f, "before the '=': {e}"),
            Self::Latency(e) => write!(f, "after the '=': {e}"),
            Self::Zero => f.write_str("a goal must be longer than 0; even polling takes some microseconds"),
        }
    }
}

impl core::error::Error for GoalError {}

/// Parses a goal such as `p99.9=50us`.
impl FromStr for Goal {
    type Err = GoalError;
    fn from_str(text: &str) -> Result<Self, GoalError> {
        let (quantile, latency) = text.split_once('=').ok_or(GoalError::Form)?;
        let goal = Self {
            quantile: quantile.parse().map_err(GoalError::Quantile)?,
            latency: latency.parse().map_err(GoalError::Latency)?,
        };
        if goal.latency == Nanos::ZERO { Err(GoalError::Zero) } else { Ok(goal) }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.quantile, self.latency)
    }
}

/// A limit on every wait, so that the receive ring does not overflow. An unread ring of N descriptors overflows after N
/// / rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LossBound {
    /// Number of descriptors that are free at least, when a wait begins, in the smallest receive ring that
    /// the worker serves.
    pub descriptors: u32,
    /// The highest packet rate that this ring may receive.
    pub peak: PacketRate,
}

impl LossBound {
    /// The longest time for which the worker may leave the ring unread before it can overflow.
    pub const fn longest_absence(self) -> Nanos {
        self.peak.time_for(self.descriptors as u64)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    #[test]
    fn reads_and_shows() {
        let goal: Goal = "p99.9=50us".parse().unwrap();
        assert_eq!(goal, Goal { quantile: Quantile::P99_9, latency: Nanos::from_micros(50) });
        assert_eq!(goal.to_string(), "p99.9=50us");
    }

    #[test]
    fn refuses_with_the_place() {
        assert_eq!("50us".parse::<Goal>(), Err(GoalError::Form));
        assert!(matches!("p100=50us".parse::<Goal>(), Err(GoalError::Quantile(_))));
        assert!(matches!("p99=50".parse::<Goal>(), Err(GoalError::Latency(_))));
        assert_eq!("p99=0us".parse::<Goal>(), Err(GoalError::Zero));
    }
}
