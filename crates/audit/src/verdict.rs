//! The verdict of a rule on its subject.

use std::fmt;

units::named! {
    /// The result of a rule for one subject (a host, a CPU, an interface). Unknown is neither good nor bad.
    #[derive(Clone, PartialEq, Eq, Hash, Debug)]
    pub enum Verdict {
        /// The subject has no problem.
        Pass = "pass",
        /// The subject costs latency, or may do so.
        Warn = "warn",
        /// The subject costs much latency, or does not do what was intended.
        Fail = "fail",
        /// The rule cannot be checked, because a fact is not known; the text says why.
        Unknown(Box<str>) = "unknown",
        /// The rule does not apply to this subject; the text says why.
        NotApplicable(Box<str>) = "not-applicable",
        /// Good sources recommend opposite things. The user must choose; the text names both sides.
        SourcesDisagree = "sources-disagree",
    }
}

impl Verdict {
    /// How much attention the verdict needs: pass and not applicable 0, unknown 1, sources disagree 2, warn 3, fail 4.
    pub const fn weight(&self) -> u8 {
        match self {
            Self::Pass | Self::NotApplicable(_) => 0,
            Self::Unknown(_) => 1,
            Self::SourcesDisagree => 2,
            Self::Warn => 3,
            Self::Fail => 4,
        }
    }

    /// The reason why there is no verdict: the text of [`Self::Unknown`] or [`Self::NotApplicable`]. `None` for all
    /// others.
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
