//! The energy that the meters counted between two readings.

use units::{Microwatts, Nanojoules, Nanos};

use super::Tally;

/// The energy that one meter, or the sum of several meters, counted between two readings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// The energy.
    pub energy: Nanojoules,
    /// The time between the two readings.
    pub span: Nanos,
}

impl Share {
    /// The mean power between the two readings. `None` if no time passed between them.
    pub fn power(&self) -> Option<Microwatts> {
        self.energy.over(self.span)
    }
}

/// The state of all meters at one time. If it comes from [`super::Meters::since`], it also has the energy that the
/// meters counted between two times.
#[derive(Clone, Debug)]
pub struct Account {
    at: Vec<Tally>,
    shares: Vec<Result<Share, String>>,
}

impl Account {
    pub(super) fn new(at: Vec<Tally>) -> Self {
        Self { at, shares: Vec::new() }
    }

    pub(super) fn until(&self, later: &[Tally]) -> Self {
        let share =
            |(later, earlier): (&Tally, &Tally)| later.since(earlier).map(|(energy, span)| Share { energy, span });
        Self { at: later.to_vec(), shares: later.iter().zip(&self.at).map(share).collect() }
    }

    /// The energy that the meters counted between this state and a later one.
    pub fn between(&self, later: &Self) -> Self {
        self.until(&later.at)
    }

    /// The energy of each meter, or why it is unknown, in the order of [`super::Meters::list`].
    pub fn shares(&self) -> &[Result<Share, String>] {
        &self.shares
    }

    /// The sum over the meters with the indexes `places`. Returns an error if the energy of one of them is unknown.
    pub(super) fn sum(&self, places: &[usize]) -> Result<Share, String> {
        let nothing = Share { energy: Nanojoules::default(), span: Nanos::ZERO };
        places.iter().try_fold(nothing, |sum, place| {
            let share = self
                .shares
                .get(*place)
                .cloned()
                .unwrap_or_else(|| Err("it was not read at the beginning and at the end".to_owned()))?;
            Ok(Share { energy: sum.energy + share.energy, span: sum.span.max(share.span) })
        })
    }
}
