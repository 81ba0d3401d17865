//! What software expects of an idle period: the menu governor's prediction, and halt polling.

use units::Nanos;

/// The prediction of cpuidle's menu governor, as far as it decides between states.
///
/// The next timer bounds the period; a factor learnt per magnitude says which share of that bound the
/// periods really last; and eight recent periods that resemble each other overrule both. Source:
/// `drivers/cpuidle/governors/menu.c` (Linux 6.1), its opening comment and `get_typical_interval()`.
#[derive(Clone, Debug)]
pub struct Menu {
    /// Recent idle periods, in microseconds.
    recent: [u64; INTERVALS],
    next: usize,
    /// Periods over timer bounds, per magnitude, in units of 1 / [`UNITY`].
    factors: [u64; BUCKETS],
    bucket: usize,
    bound: Nanos,
}

const INTERVALS: usize = 8;
const BUCKETS: usize = 6;
/// `RESOLUTION * DECAY`.
const UNITY: u64 = RESOLUTION * DECAY;
const RESOLUTION: u64 = 1024;
const DECAY: u64 = 8;

impl Menu {
    /// Nothing learnt: as the kernel's zeroed array says, the first periods are taken for short.
    pub const fn new() -> Self {
        Self { recent: [0; INTERVALS], next: 0, factors: [UNITY; BUCKETS], bucket: 0, bound: Nanos::ZERO }
    }

    /// How long the idle period that begins now will last, if the next timer is `next_timer` away.
    pub fn predict(&mut self, next_timer: Nanos) -> Nanos {
        self.bound = next_timer;
        self.bucket = bucket(next_timer);
        let corrected = next_timer.scale(self.factors[self.bucket], UNITY);
        let typical = typical(&self.recent, corrected.as_micros_floor());
        typical.map_or(corrected, |us| corrected.min(Nanos::from_micros(us)))
    }

    /// The period lasted `idle`, its exit not included.
    pub fn observe(&mut self, idle: Nanos) {
        let factor = &mut self.factors[self.bucket];
        let share = match self.bound.as_nanos() {
            0 => RESOLUTION,
            bound => idle.min(self.bound).scale(RESOLUTION, bound).as_nanos(),
        };
        *factor = (*factor - *factor / DECAY + share).max(1);
        self.recent[self.next] = idle.as_micros_floor();
        self.next = (self.next + 1) % INTERVALS;
    }
}

impl Default for Menu {
    fn default() -> Self {
        Self::new()
    }
}

/// The magnitude of a timer bound: below 10 us, 100 us, 1 ms, 10 ms, 100 ms, above.
fn bucket(bound: Nanos) -> usize {
    let us = bound.as_micros_floor();
    [10, 100, 1_000, 10_000, 100_000].iter().position(|limit| us < *limit).unwrap_or(BUCKETS - 1)
}

/// The average of the recent periods, if they resemble each other: a deviation of at most 20 us, or of a
/// sixth of the average. Up to a quarter of them may be left out as too long.
fn typical(recent: &[u64; INTERVALS], bound: u64) -> Option<u64> {
    let mut limit = u64::MAX;
    loop {
        let used = || recent.iter().copied().filter(|us| *us < limit);
        let n = used().count() as u64;
        if used().min()? >= bound {
            return None;
        }
        let average = used().sum::<u64>() / n;
        let variance = used().map(|us| u128::from(us.abs_diff(average)).pow(2)).sum::<u128>() / u128::from(n);
        let enough = n * 4 >= INTERVALS as u64 * 3;
        if (enough && u128::from(average).pow(2) > variance * 36) || variance <= 400 {
            return Some(average);
        }
        if n * 4 <= INTERVALS as u64 * 3 {
            return None;
        }
        limit = used().max()?;
    }
}

/// How long to poll before going idle for real: KVM's `halt_poll_ns` on the host, and the haltpoll
/// governor's `guest_halt_poll_ns` in the guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HaltPollModel {
    /// The longest poll; 0: none.
    pub most: Nanos,
    /// The first that is not zero.
    pub start: Nanos,
    /// What a wait that polling would have caught multiplies it by.
    pub grow: u64,
    /// What a long wait divides it by; 0: to zero at once.
    pub shrink: u64,
}

impl HaltPollModel {
    /// No polling.
    pub const OFF: Self = Self { most: Nanos::ZERO, start: Nanos::ZERO, grow: 0, shrink: 0 };
    /// The host's default on x86: up to 200 us. Source: Linux `Documentation/virt/kvm/halt-polling.rst`.
    pub const HOST: Self = Self { most: Nanos::from_micros(200), start: Nanos::from_micros(10), grow: 2, shrink: 0 };
    /// The guest governor's default. Source: Linux `Documentation/virt/guest-halt-polling.rst`.
    pub const GUEST: Self = Self { most: Nanos::from_micros(200), start: Nanos::from_micros(50), grow: 2, shrink: 2 };
}

/// The adapting length of the poll.
#[derive(Clone, Copy, Debug)]
pub struct HaltPoll {
    model: HaltPollModel,
    span: Nanos,
}

impl HaltPoll {
    /// Not polling yet.
    pub const fn new(model: HaltPollModel) -> Self {
        Self { model, span: Nanos::ZERO }
    }

    /// How long the next poll is.
    pub const fn span(&self) -> Nanos {
        self.span
    }

    /// The wait lasted `waited`, poll and block together.
    pub fn observe(&mut self, waited: Nanos) {
        let HaltPollModel { most, start, grow, shrink } = self.model;
        if waited <= self.span {
            return;
        }
        if waited < most {
            self.span = (self.span * grow).max(start).min(most);
        } else {
            let shrunk = if shrink == 0 { Nanos::ZERO } else { self.span / shrink };
            self.span = if shrunk < start { Nanos::ZERO } else { shrunk };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn us(n: u64) -> Nanos {
        Nanos::from_micros(n)
    }

    #[test]
    fn a_steady_period_is_predicted_against_a_far_timer() {
        let mut menu = Menu::new();
        // Eight periods of no length: nothing is known yet, and shallow is safe.
        assert_eq!(menu.predict(us(10_000)), us(0));
        for _ in 0..8 {
            menu.predict(us(10_000));
            menu.observe(us(45));
        }
        assert_eq!(menu.predict(us(10_000)), us(45));
        assert_eq!(menu.predict(us(30)), us(30));
    }

    #[test]
    fn two_outliers_of_eight_are_left_out() {
        assert_eq!(typical(&[50, 51, 9_000, 49, 50, 8_000, 50, 50], 10_000), Some(50));
        assert_eq!(typical(&[1, 5_000, 9_000, 49, 700, 8_000, 50, 50], 10_000), None);
        assert_eq!(typical(&[50; 8], 50), None);
    }

    #[test]
    fn halt_polling_grows_into_short_waits_and_gives_up_on_long_ones() {
        let mut poll = HaltPoll::new(HaltPollModel::HOST);
        let mut spans = Vec::new();
        for waited in [50, 50, 50, 50, 50, 300] {
            poll.observe(us(waited));
            spans.push(poll.span().as_micros_floor());
        }
        assert_eq!(spans, [10, 20, 40, 80, 80, 0]);
        let mut off = HaltPoll::new(HaltPollModel::OFF);
        off.observe(us(1));
        assert_eq!(off.span(), Nanos::ZERO);
    }

    proptest! {
        #[test]
        fn predictions_never_exceed_the_timer(steps in prop::collection::vec((0u64..200_000, 0u64..200_000), 1..60)) {
            let (mut menu, mut poll) = (Menu::new(), HaltPoll::new(HaltPollModel::GUEST));
            for (bound, idle) in steps {
                // The correction may say "later than the timer" only by its own rounding.
                prop_assert!(menu.predict(us(bound)) <= us(bound));
                menu.observe(us(idle));
                poll.observe(us(idle));
                prop_assert!(poll.span() <= HaltPollModel::GUEST.most);
            }
        }
    }
}
