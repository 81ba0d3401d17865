//! A wait policy combined with a rule for the frequency, as used by Apus or a rival.

use std::fmt;
use std::str::FromStr;

use policy::Goal;
use policy::wait::Mode;
use units::{Hertz, Nanos, PacketRate};

/// How a core waits, and how its frequency is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// The wait policy.
    pub wait: Mode,
    /// How the frequency is chosen.
    pub speed: Speed,
    /// How long the NIC delays the interrupt after the first waiting frame. 0 turns interrupt moderation off.
    pub delay: Nanos,
}

/// How a core's frequency is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Speed {
    /// Always the base frequency.
    Base,
    /// Always this frequency, which was chosen in hindsight.
    At(Hertz),
    /// The policy [`L3fwdPower`](policy::frequency::L3fwdPower) decides.
    L3fwdPower,
    /// Apus's own policy [`GoalFrequency`](policy::frequency::GoalFrequency) decides.
    Goal,
}

impl Way {
    /// What Apus uses: `adaptive` with the frequency policy `goal`.
    pub const OURS: Self = Self { speed: Speed::Goal, ..Self::at_base(Mode::ADAPTIVE) };
    /// What DPDK's l3fwd-power does.
    pub const L3FWD_POWER: Self = Self { speed: Speed::L3fwdPower, ..Self::at_base(Mode::Hybrid300) };
    /// The longest delay of interrupts, the limit of Intel's driver i40e.
    pub const LONGEST_DELAY: Nanos = Nanos::from_micros(8_160);

    /// Waits like `wait`, at the base frequency and without interrupt moderation.
    pub const fn at_base(wait: Mode) -> Self {
        Self { wait, speed: Speed::Base, delay: Nanos::ZERO }
    }

    /// Whether the frequency was chosen in hindsight, not by the rival's own settings.
    pub const fn is_tuned(self) -> bool {
        matches!(self.speed, Speed::At(_))
    }

    /// The scenario sections for this combination. Only Apus is told the goal and the peak. Apus also chooses how long
    /// the NIC delays interrupts if it `holds_off`, and how deep the core may idle if it `limits_idle`.
    pub(super) fn sections(
        self,
        goal: Option<(Goal, Option<PacketRate>)>,
        holds_off: bool,
        limits_idle: bool,
    ) -> String {
        let goal = goal.map_or_else(String::new, |(goal, peak)| {
            let peak = peak.map_or_else(String::new, |peak| format!("peak = \"{}pps\"\n", peak.as_pps()));
            format!("[goal]\nlatency = \"{goal}\"\nloss = \"0%\"\n{peak}\n")
        });
        let wait = self.wait.name();
        let most = match self.wait {
            Mode::Backoff { max } => format!("sleep_max = \"{max}\"\n"),
            _ => String::new(),
        };
        let idle = if limits_idle && self == Self::OURS { "limits_idle = true\n" } else { "" };
        let frequency = match self.speed {
            Speed::Base => "policy = \"fixed\"".to_owned(),
            Speed::At(frequency) => format!("policy = \"fixed\"\nat = \"{}\"", megahertz(frequency)),
            Speed::L3fwdPower => "policy = \"l3fwd-power\"".to_owned(),
            Speed::Goal => "policy = \"goal\"".to_owned(),
        };
        let moderation = match self.delay {
            _ if holds_off && self == Self::OURS => "policy = \"hold-off\"".to_owned(),
            Nanos::ZERO => "policy = \"off\"".to_owned(),
            delay => format!("policy = \"static\"\ndelay = \"{delay}\""),
        };
        format!(
            "[moderation]\n{moderation}\n\n{goal}[worker]\ndriver = \"user\"\nwait = \"{wait}\"\n{most}{idle}\n[frequency]\n{frequency}\n"
        )
    }
}

/// Writes the exact value in megahertz: `1500MHz`, `1333.333333MHz`.
fn megahertz(frequency: Hertz) -> String {
    let (whole, rest) = (frequency.as_hertz() / 1_000_000, frequency.as_hertz() % 1_000_000);
    if rest == 0 { format!("{whole}MHz") } else { format!("{whole}.{}MHz", format!("{rest:06}").trim_end_matches('0')) }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.speed {
            Speed::L3fwdPower => f.write_str("l3fwd-power")?,
            _ => write!(f, "{}", self.wait)?,
        }
        if self.delay > Nanos::ZERO {
            write!(f, " {}", self.delay)?;
        }
        if let Speed::At(frequency) = self.speed { write!(f, "@{}", megahertz(frequency)) } else { Ok(()) }
    }
}

/// Reads a rival: `poll`, `interrupt`, `interrupt 50us` (the NIC delays interrupts by 50 us), `l3fwd-power`,
/// `hybrid300` or `backoff 50us`. A `=` may take the place of the space. A suffix such as `@800MHz` sets a frequency
/// other than the base frequency.
impl FromStr for Way {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const ERROR: &str = "expected poll, interrupt, interrupt=50us, l3fwd-power, hybrid300 or backoff=50us; all but \
                             l3fwd-power also at a fixed frequency: poll@800MHz";
        const DELAY: &str = "a NIC delays interrupts by at most 8160us";
        let (wait, speed) = match text.split_once('@') {
            Some((wait, frequency)) => (wait.trim(), Speed::At(frequency.trim().parse().map_err(|_| ERROR)?)),
            None => (text.trim(), Speed::Base),
        };
        let (wait, delay) = match wait.split_once([' ', '=']) {
            Some(("interrupt", delay)) => ("interrupt", delay.trim().parse().map_err(|_| ERROR)?),
            _ => (wait, Nanos::ZERO),
        };
        if delay > Self::LONGEST_DELAY {
            return Err(DELAY);
        }
        let wait = match wait {
            "l3fwd-power" if speed == Speed::Base => return Ok(Self::L3FWD_POWER),
            other if other.starts_with("backoff") => other.parse()?,
            other => other.parse().map_err(|_| ERROR)?,
        };
        // Apus itself is always in the grid, so it cannot be a rival.
        if matches!(wait, Mode::Adaptive(_)) { Err(ERROR) } else { Ok(Self { wait, speed, delay }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_read_as_they_are_shown() {
        for text in [
            "poll",
            "l3fwd-power",
            "hybrid300",
            "interrupt",
            "interrupt 20us",
            "interrupt 20us@800MHz",
            "backoff 50us",
            "backoff 50us@800MHz",
            "poll@1500MHz",
            "poll@1333.333333MHz",
            "poll@1012.5MHz",
        ] {
            assert_eq!(text.parse::<Way>().unwrap().to_string(), text);
        }
        assert_eq!("backoff=50us@1.2GHz".parse::<Way>().unwrap().to_string(), "backoff 50us@1200MHz");
        assert!("interrupt@1GHz".parse::<Way>().unwrap().is_tuned() && !Way::L3FWD_POWER.is_tuned());
        assert_eq!("interrupt=0us".parse::<Way>().unwrap().to_string(), "interrupt");
        assert_eq!("interrupt=8160us".parse::<Way>().unwrap().delay, Way::LONGEST_DELAY);
        for text in [
            "",
            "adaptive",
            "backoff",
            "backoff=0us",
            "backoff=11ms",
            "interrupt=",
            "interrupt=9ms",
            "interruptions",
            "poll=5us",
            "poll@",
            "poll@fast",
            "l3fwd-power@1GHz",
        ] {
            assert!(text.parse::<Way>().is_err(), "{text}");
        }
    }
}
