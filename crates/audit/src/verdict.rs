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
        /// The subject adds a lot of latency, or does not do what was intended.
        Fail = "fail",
        /// The rule cannot be checked because a fact is not known. The text says why. The verdict is neither good nor
        /// bad.
        Unknown(Box<str>) = "unknown",
        /// The rule does not apply to this subject. The text says why.
        NotApplicable(Box<str>) = "not-applicable",
        /// Good sources recommend opposite things. The user must choose between the two sides.
        SourcesDisagree = "sources-disagree",
    }
}

impl Verdict {
    /// How much attention the verdict needs: 0 for pass and not applicable, 1 for unknown, 2 for sources disagree, 3
    /// for warn, 4 for fail.
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
