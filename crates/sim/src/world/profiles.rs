//! The history of a queue's interrupt moderation.

use policy::moderation::Profile;
use units::Nanos;

use super::tally::Tally;
use crate::At;
use crate::outcome::Moderated;

/// The profile of a queue, and the profiles before it.
#[derive(Clone, Debug)]
pub struct Profiles {
    present: Profile,
    since: At,
    /// Time during which each profile was in force within the window.
    times: Vec<(Profile, Nanos)>,
    /// Number of changes within the window.
    changes: u64,
}

impl Profiles {
    /// `first` is in force from time 0.
    pub fn new(first: Profile) -> Self {
        Self { present: first, since: At::ORIGIN, times: Vec::with_capacity(16), changes: 0 }
    }

    /// Notes that `profile` is in force from `now` on.
    pub fn change(&mut self, now: At, profile: Profile, tally: &Tally) {
        self.settle(now, tally.window);
        self.present = profile;
        self.changes += u64::from(tally.within(now));
    }

    /// The history of queue `queue` until the end of the window.
    pub fn finish(mut self, queue: usize, tally: &Tally) -> Moderated {
        self.settle(tally.window.1, tally.window);
        Moderated { queue, profiles: self.times, changes: self.changes }
    }

    /// Records the time under the present profile, up to `now`.
    fn settle(&mut self, now: At, window: (At, At)) {
        let clip = |at: At| at.clamp(window.0, window.1);
        let span = clip(now).since(clip(self.since)).unwrap_or(Nanos::ZERO);
        self.since = now;
        match self.times.iter_mut().find(|(profile, _)| *profile == self.present) {
            Some((_, time)) => *time += span,
            None => self.times.push((self.present, span)),
        }
    }
}
