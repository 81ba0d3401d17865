//! The policies by name, with the settings that a user can choose.

use core::fmt;
use core::str::FromStr;

use units::Nanos;

use super::{Adaptive, AdaptiveConfig, Backoff, DEFAULT_GOAL, Hybrid300, Interrupt, Policy, Poll};
use crate::Goal;

units::named! {
    /// A wait policy's name and its settings.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Mode {
        /// Never waits; runs [`Poll`].
        Poll = "poll",
        /// Blocks after each empty poll; runs [`Interrupt`].
        Interrupt = "interrupt",
        /// Sleeps like OVS-DPDK; runs [`Backoff`].
        Backoff {
            /// The longest sleep, at most [`Backoff::LONGEST_MAX`].
            max: Nanos,
        } = "backoff",
        /// Waits like DPDK's l3fwd-power; runs [`Hybrid300`].
        Hybrid300 = "hybrid300",
        /// Waits as cheaply as a latency goal allows; runs [`Adaptive`].
        Adaptive(AdaptiveConfig) = "adaptive",
    }
}

impl Mode {
    /// All modes with their default settings: sleeps of up to 100 us, and [`DEFAULT_GOAL`].
    pub const ALL: [Self; 5] =
        [Self::Poll, Self::Interrupt, Self::Backoff { max: Nanos::from_micros(100) }, Self::Hybrid300, Self::ADAPTIVE];
    /// `adaptive` with the default goal, [`DEFAULT_GOAL`].
    pub const ADAPTIVE: Self = Self::Adaptive(AdaptiveConfig { goal: None, loss: None, interrupts: true });

    /// The mode `adaptive` with the given latency goal.
    pub const fn holding(goal: Goal) -> Self {
        Self::Adaptive(AdaptiveConfig { goal: Some(goal), loss: None, interrupts: true })
    }

    /// The mode with this name, with default settings. `None` if there is no such mode.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// The latency goal that this mode keeps to. `None` if the mode has no goal.
    pub fn goal(&self) -> Option<Goal> {
        match self {
            Self::Adaptive(config) => Some(config.goal.unwrap_or(DEFAULT_GOAL)),
            _ => None,
        }
    }

    /// Creates a policy that has learned nothing yet.
    pub fn policy<C>(&self) -> Policy<C> {
        match *self {
            Self::Poll => Policy::Poll(Poll),
            Self::Interrupt => Policy::Interrupt(Interrupt),
            Self::Backoff { max } => Policy::Backoff(Backoff::new(max)),
            Self::Hybrid300 => Policy::Hybrid300(Hybrid300::new()),
            Self::Adaptive(config) => Policy::Adaptive(Adaptive::new(config)),
        }
    }
}

/// Writes the mode and its settings, for example `backoff 100us` or `adaptive p99=40us`. Writes plain `adaptive` if no
/// goal was chosen.
impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backoff { max } => write!(f, "backoff {max}"),
            Self::Adaptive(AdaptiveConfig { goal: Some(goal), .. }) => write!(f, "adaptive {goal}"),
            other => f.write_str(other.name()),
        }
    }
}

/// Reads what [`Display`](fmt::Display) writes. A `:` or `=` may follow the name instead of a space.
impl FromStr for Mode {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const ERROR: &str = "expected poll, interrupt, backoff=TIME, hybrid300 or adaptive=GOAL";
        let (name, setting) = match text.split_once([' ', ':', '=']) {
            Some((name, setting)) => (name, Some(setting)),
            None => (text, None),
        };
        match (Self::named(name).ok_or(ERROR)?, setting) {
            (Self::Backoff { .. }, None) => Err(ERROR),
            (mode, None) => Ok(mode),
            (Self::Backoff { .. }, Some(max)) => match max.parse() {
                Ok(max) if max > Nanos::ZERO && max <= Backoff::LONGEST_MAX => Ok(Self::Backoff { max }),
                _ => Err("backoff sleeps for more than 0 and at most 10ms"),
            },
            (Self::Adaptive(_), Some(goal)) => {
                goal.parse().map(Self::holding).map_err(|_| "expected a goal, such as adaptive=p99=40us")
            }
            _ => Err(ERROR),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString as _;

    #[test]
    fn every_mode_has_a_name_and_survives_its_text() {
        for mode in Mode::ALL {
            assert_eq!((Mode::named(mode.name()), mode.to_string().parse()), (Some(mode), Ok(mode)));
        }
        for (text, shown) in [("adaptive:p99.9=60us", "adaptive p99.9=60us"), ("backoff=70us", "backoff 70us")] {
            let mode: Mode = text.parse().unwrap();
            assert_eq!((mode.to_string(), shown.parse()), (shown.to_string(), Ok(mode)));
        }
        for wrong in [
            "",
            "polls",
            "poll 5us",
            "backoff 0us",
            "backoff 11ms",
            "backoff ",
            "backoff",
            "adaptive 5us",
            "hybrid300=",
        ] {
            assert!(wrong.parse::<Mode>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_adaptive_holds_a_goal() {
        let goals = Mode::ALL.map(|mode| mode.goal());
        assert_eq!(goals, [None, None, None, None, Some(DEFAULT_GOAL)]);
    }
}
