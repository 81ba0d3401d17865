//! The verdict of a rule on its subject.

use std::fmt;

units::named! {
    /// A verdict. Unknown is neither good nor bad.
    #[derive(Clone, PartialEq, Eq, Hash, Debug)]
    pub enum Verdict {
        /// The subject has no problem.
        Pass = "pass",
        /// The subject has a cost, or may have one.
        Warn = "warn",
        /// The subject has a high cost, or does not do what was intended.
        Fail = "fail",
        /// The answer cannot be known; the text says why.
        Unknown(Box<str>) = "unknown",
        /// The question does not apply here; the text says why.
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

    /// Why nothing was judged. `None` if something was.
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
