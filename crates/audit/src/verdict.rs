//! The verdict of a rule on its subject.

use std::fmt;

units::named! {
    /// The result of a rule for one subject (a host, a CPU, an interface).
    #[derive(Clone, PartialEq, Eq, Hash, Debug)]
    pub enum Verdict {
        /// The subject has no problem.
        Pass = "pass",
        /// The subject adds latency, or may add latency.
        Warn = "warn",
        /// The subject adds much latency, or does not do what was intended.
        Fail = "fail",
        /// The rule cannot be checked because a fact is not known; the text says why. This is neither good nor bad.
        Unknown(Box<str>) = "unknown",
        /// The rule does not apply to this subject; the text says why.
        NotApplicable(Box<str>) = "not-applicable",
        /// Good sources recommend opposite things. The user must choose; the text names both sides.
        SourcesDisagree = "sources-disagree",
    }
}

impl Verdict {
    /// How much attention the verdict needs, as a number: 0 pass and not applicable, 1 unknown, 2 sources disagree, 3
    /// warn, 4 fail.
    pub const fn weight(&self) -> u8 {
        match self {
            Self::Pass | Self::NotApplicable(_) => 0,
            Self::Unknown(_) => 1,
            Self::SourcesDisagree => 2,
            Self::Warn => 3,
            Self::Fail => 4,
        }
    }

    /// Why there is no verdict: the text of [`Self::Unknown`] or [`Self::NotApplicable`]. `None` for all other
    /// verdicts.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Unknown(reason) | Self::NotApplicable(reason) => Some(reason),
            _ => None,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
