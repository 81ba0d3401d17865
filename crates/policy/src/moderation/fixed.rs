//! The moderation that an administrator set.

use units::Instant;

use super::{Decision, ModerationPolicy, Profile, Reason, Sample};

/// Keeps one profile forever, like `ethtool -C DEVICE adaptive-rx off rx-usecs N rx-frames M`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Static {
    profile: Profile,
}

impl Static {
    /// Creates a policy that requests `profile` from the start.
    pub const fn new(profile: Profile) -> Self {
        Self { profile }
    }
}

impl<C> ModerationPolicy<C> for Static {
    fn profile(&self) -> Profile {
        self.profile
    }

    fn decide(&mut self, _: &Sample<C>) -> Decision {
        Decision::keep(Reason::Fixed)
    }

    fn applied(&mut self, _: Instant<C>, _: Profile) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moderation::Action;
    use units::Simulated;

    #[test]
    fn stays_whatever_comes() {
        let mut policy = Static::new(Profile::eqe(62, 0));
        let sample: Sample<Simulated> = Sample {
            now: Instant::from_nanos(1),
            events: 9_999,
            packets: 1 << 40,
            bytes: 1 << 50,
            completions: 0,
            delays: None,
        };
        assert_eq!(policy.decide(&sample).action, Action::Keep);
        assert_eq!(ModerationPolicy::<Simulated>::profile(&policy), Profile::eqe(62, 0));
    }
}
