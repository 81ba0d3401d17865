//! How software predicts the length of an idle period: the menu governor, and halt polling.

use units::Nanos;

use crate::At;

/// The scheduler's tick on a core that goes idle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tick {
    /// `nohz_full=`: the tick was stopped while the thread ran alone, and stays stopped when the core goes idle.
    Stopped,
    /// The tick comes with this period, unless the idle period is expected to last longer.
    Every(Nanos),
}

impl Tick {
    /// The period of the tick with `CONFIG_HZ=250`, the default of Linux `kernel/Kconfig.hz`.
    pub const PERIOD: Nanos = Nanos::from_millis(4);
}

/// The expected length of an idle period, and whether the tick ends it earlier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prediction {
    /// The expected length, by which the idle state is chosen.
    pub idle: Nanos,
    /// Whether the tick keeps running while the core is idle. It does if it was not stopped already and the core is
    /// expected to be idle for less than one tick period.
    pub ticks: bool,
}

/// Predicts idle periods as cpuidle's menu governor does, as far as this affects the choice of a state.
///
/// The time to the next timer is an upper bound of the idle period. For each order of magnitude of this bound, the
/// governor learns how long idle periods really last, as a share of the bound. If the last eight periods resemble each
/// other, the prediction is at most their average. With the tick stopped, nothing would end an idle period that
/// outlasts its prediction. So a prediction shorter than a tick is replaced by the time to the next timer: on such a
/// core, each wait for a device uses the deepest state that the timer allows. A tick that still runs ends such a
/// period, which then counts as long. Source: `drivers/cpuidle/governors/menu.c` (Linux 6.1), its opening comment,
/// `get_typical_interval()`, `menu_select()` (commits 87c9fe6ee495 and 5ef499cd571c) and `menu_update()`.
#[derive(Clone, Debug)]
pub struct Menu {
    tick: Tick,
    /// Recent idle periods, in microseconds.
    recent: [u64; INTERVALS],
    next: usize,
    /// Running averages of the idle time as a share of the time to the next timer, in units of 1 / [`UNITY`]. There is
    /// one average per order of magnitude of the time to the next timer.
    factors: [u64; BUCKETS],
    bucket: usize,
    bound: Nanos,
}

/// The length assumed for an idle period that the tick ended: 9/10 of `MAX_INTERESTING`.
const TICKED: Nanos = Nanos::from_millis(45);
const INTERVALS: usize = 8;
const BUCKETS: usize = 6;
/// The kernel's `RESOLUTION * DECAY`, which stands for a factor of 1.
const UNITY: u64 = RESOLUTION * DECAY;
const RESOLUTION: u64 = 1024;
const DECAY: u64 = 8;

impl Menu {
    /// Makes a governor that has learned nothing. It expects the first periods to be short, as in the kernel, where the
    /// array of recent periods starts with zeros.
    pub const fn new(tick: Tick) -> Self {
        Self { tick, recent: [0; INTERVALS], next: 0, factors: [UNITY; BUCKETS], bucket: 0, bound: Nanos::ZERO }
    }

    /// Predicts the idle period that begins now. `next_timer` is the time until the next timer, `next_tick` the time
    /// until the next tick if the tick is not stopped.
    pub fn predict(&mut self, next_timer: Nanos, next_tick: Nanos) -> Prediction {
        let idle = self.expect(next_timer);
        match self.tick {
            Tick::Stopped if idle < Tick::PERIOD => Prediction { idle: next_timer, ticks: false },
            Tick::Every(period) if idle < period => Prediction { idle: idle.min(next_tick), ticks: true },
            _ => Prediction { idle, ticks: false },
        }
    }

    fn expect(&mut self, next_timer: Nanos) -> Nanos {
        self.bound = next_timer;
        self.bucket = bucket(next_timer);
        let corrected = next_timer.scale(self.factors[self.bucket], UNITY);
        let typical = typical(&self.recent, corrected.as_micros_floor());
        typical.map_or(corrected, |us| corrected.min(Nanos::from_micros(us)))
    }

    /// Notes that the tick ended the period, which might otherwise have been long.
    pub fn ticked(&mut self) {
        self.observe(TICKED.min(self.bound));
    }

    /// Time until the next tick. [`Nanos::MAX`] if the tick is stopped.
    pub fn next_tick(&self, now: At) -> Nanos {
        match self.tick {
            Tick::Stopped => Nanos::MAX,
            Tick::Every(period) => Nanos::from_nanos(period.as_nanos() - now.as_nanos() % period.as_nanos()),
        }
    }

    /// Learns that the period lasted `idle`, without the exit from the state.
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

/// The order of magnitude of the time to the next timer: below 10 us, 100 us, 1 ms, 10 ms, 100 ms, or above.
fn bucket(bound: Nanos) -> usize {
    let us = bound.as_micros_floor();
    [10, 100, 1_000, 10_000, 100_000].iter().position(|limit| us < *limit).unwrap_or(BUCKETS - 1)
}

/// The average of the recent periods if they resemble each other: their standard deviation is at most 20 us or less
/// than a sixth of the average. Up to a quarter of the periods, the longest ones, may be ignored. `None` if they do not
/// resemble each other, or if none is shorter than `bound`, in microseconds.
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

/// Settings of halt polling, which polls for some time before the CPU really goes idle: KVM's `halt_poll_ns` on the
/// host, and the haltpoll governor's `guest_halt_poll_ns` in the guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HaltPollModel {
    /// Maximum length of a poll. 0 turns polling off.
    pub most: Nanos,
    /// Length of the first poll after the length was zero.
    pub start: Nanos,
    /// Factor by which the poll grows after a wait that a longer poll would have covered.
    pub grow: u64,
    /// Divisor by which the poll shrinks after a wait of `most` or longer. 0 resets the poll to zero.
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

/// Adapts the length of the poll to the waits.
#[derive(Clone, Copy, Debug)]
pub struct HaltPoll {
    model: HaltPollModel,
    span: Nanos,
}

impl HaltPoll {
    /// Starts without polling.
    pub const fn new(model: HaltPollModel) -> Self {
        Self { model, span: Nanos::ZERO }
    }

    /// Length of the next poll.
    pub const fn span(&self) -> Nanos {
        self.span
    }

    /// Adapts to a wait that lasted `waited`, from the start of polling to the end of blocking.
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
        let mut menu = Menu::new(Tick::Every(Tick::PERIOD));
        // Nothing is known yet: the recent periods are all zero, so a shallow state is expected.
        assert_eq!(menu.expect(us(10_000)), us(0));
        for _ in 0..8 {
            menu.expect(us(10_000));
            menu.observe(us(45));
        }
        assert_eq!(menu.expect(us(10_000)), us(45));
        assert_eq!(menu.expect(us(30)), us(30));
    }

    #[test]
    fn with_the_tick_stopped_the_next_timer_decides() {
        let (mut full, mut idle) = (Menu::new(Tick::Stopped), Menu::new(Tick::Every(Tick::PERIOD)));
        for menu in [&mut full, &mut idle] {
            for _ in 0..8 {
                menu.predict(us(100_000), us(3_000));
                menu.observe(us(45));
            }
        }
        assert_eq!(full.predict(us(100_000), Nanos::MAX), Prediction { idle: us(100_000), ticks: false });
        assert_eq!(full.predict(us(30), Nanos::MAX).idle, us(30));
        assert_eq!(idle.predict(us(100_000), us(3_000)), Prediction { idle: us(45), ticks: true });
        assert_eq!(idle.predict(us(100_000), us(20)).idle, us(20), "the tick comes before");
    }

    #[test]
    fn a_silence_after_short_periods_is_known_for_one_after_some_ticks() {
        let mut menu = Menu::new(Tick::Every(Tick::PERIOD));
        for _ in 0..8 {
            menu.predict(us(100_000), us(3_000));
            menu.observe(us(45));
        }
        let ticks = (0..16).take_while(|_| {
            let ticks = menu.predict(us(100_000), us(4_000)).ticks;
            menu.ticked();
            ticks
        });
        // The tick stays on until none of the eight equal periods is left among the recent ones.
        assert_eq!(ticks.count(), 8);
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
            let (mut menu, mut poll) = (Menu::new(Tick::Every(Tick::PERIOD)), HaltPoll::new(HaltPollModel::GUEST));
            for (bound, idle) in steps {
                // A correction factor never exceeds 1, so a prediction never exceeds the timer.
                prop_assert!(menu.predict(us(bound), us(1_000)).idle <= us(bound));
                menu.observe(us(idle));
                poll.observe(us(idle));
                prop_assert!(poll.span() <= HaltPollModel::GUEST.most);
            }
        }
    }
}
