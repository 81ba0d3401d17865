//! What polls show of the arrivals: the last frame, the gaps, the period, and when frames come within sleeps.

use units::{Instant, Nanos};

use super::super::Arrivals;
use super::gaps::Gaps;
use super::period::Period;
use super::phases::Phases;

/// Arrivals without timestamps are known exactly enough to look for a period if the polls are at most this far apart.
const EXACT: Nanos = Nanos::from_micros(10);

/// What is known of the arrivals, apart from the gaps.
#[derive(Debug)]
pub(super) struct Traffic<C> {
    last_arrival: Option<Instant<C>>,
    on_the_way: OnTheWay,
    period: Period<C>,
    /// When packets come within a sleep, if they have no timestamps.
    pub(super) phases: Phases<C>,
}

/// The next burst, if the traffic is periodic.
#[derive(Clone, Copy, Debug)]
pub(super) struct Burst {
    /// Time until its first frame may be visible, in nanoseconds.
    pub(super) ahead: u64,
    /// Time for which a core that waits for the burst polls on average, in nanoseconds: half of the window in which the
    /// burst may come.
    pub(super) polling: u64,
}

impl<C> Traffic<C> {
    pub(super) const fn new() -> Self {
        Self { last_arrival: None, on_the_way: OnTheWay::new(), period: Period::new(), phases: Phases::new() }
    }

    /// The current silence at a poll at `polled`, counted from when the last frame became visible. Nothing is known
    /// about frames that arrived after the rings were read, or that were still being written into them. `None` if no
    /// frame has come yet.
    #[inline]
    pub(super) fn silence(&self, polled: Instant<C>) -> Option<Nanos> {
        let on_the_way = Nanos::from_nanos(self.on_the_way.least());
        self.last_arrival.map(|last| polled.since(last + on_the_way).unwrap_or(Nanos::ZERO))
    }

    /// The next burst that the period predicts. `None` if none is predicted, or if one is due now.
    #[inline]
    pub(super) fn next_burst(&mut self, now: Instant<C>) -> Option<Burst> {
        let forecast = self.period.forecast(now).filter(|forecast| now >= forecast.last_ends)?;
        // A burst that does not come at its time may be lost. If it comes late it ends the wait; the next one is waited
        // for.
        let due = if now > forecast.to { forecast.next } else { forecast.from };
        let due = due + Nanos::from_nanos(self.on_the_way.least());
        // Within the predicted window, it is only known that the burst comes soon.
        let ahead = due.since(now).map(Nanos::as_nanos).filter(|ahead| *ahead > 0)?;
        let polling = forecast.to.since(forecast.from).unwrap_or(Nanos::ZERO).as_nanos() / 2;
        Some(Burst { ahead, polling })
    }

    /// Learns from arrivals with timestamps.
    #[inline]
    pub(super) fn stamped(&mut self, gaps: &mut Gaps, arrivals: &Arrivals<C>, frames: u64) {
        let held = arrivals.held.unwrap_or(Nanos::ZERO);
        match self.last_arrival.and_then(|before| arrivals.last.since(before)) {
            // Held frames arrived at unknown times since the last one. `first` is the earliest, not the likely one.
            Some(span) if held > Nanos::ZERO => {
                gaps.add(span.as_nanos() / frames.max(1), frames);
                self.last_arrival = Some(arrivals.last);
            }
            _ => self.spread(gaps, arrivals.first + held, arrivals.last, frames),
        }
        self.on_the_way.add(arrivals.picked_up.since(arrivals.last).unwrap_or(Nanos::ZERO).as_nanos());
        self.period.arrived(arrivals.first + held, arrivals.last);
    }

    /// Learns from arrivals without timestamps. `woke` is when the worker ran again, if the device ended the wait.
    pub(super) fn unstamped(&mut self, gaps: &mut Gaps, arrivals: &Arrivals<C>, frames: u64, woke: Option<Instant<C>>) {
        let picked_up = arrivals.picked_up;
        self.phases.add(arrivals.first, picked_up, frames);
        let between = picked_up.since(arrivals.first).unwrap_or(Nanos::ZERO);
        // The frame that ended the wait arrived just before. Otherwise, frames are assumed to be spread evenly between
        // the polls.
        let (first, last, exact) = match woke {
            Some(woke) => (woke.min(picked_up), picked_up, true),
            None => {
                let half = between / (2 * frames.max(1));
                (arrivals.first + half, picked_up.before(half).unwrap_or(picked_up), between <= EXACT)
            }
        };
        self.spread(gaps, first, last, frames);
        // Do not look for a period in times that are blurred by the polls, nor in windows, which show parts of the
        // traffic.
        if exact && !self.phases.in_window() {
            self.period.arrived(first, last);
        }
    }

    /// Learns the gaps of frames that came evenly spaced from `first` to `last`.
    #[inline]
    fn spread(&mut self, gaps: &mut Gaps, first: Instant<C>, last: Instant<C>, frames: u64) {
        if let Some(gap) = self.last_arrival.and_then(|before| first.since(before)) {
            gaps.add(gap.as_nanos(), 1);
        }
        if frames > 1 {
            let spread = last.since(first).unwrap_or(Nanos::ZERO).as_nanos();
            gaps.add(spread / (frames - 1), frames - 1);
        }
        self.last_arrival = Some(self.last_arrival.map_or(last, |before| before.max(last)));
    }
}

impl<C> Clone for Traffic<C> {
    fn clone(&self) -> Self {
        Self { period: self.period.clone(), ..*self }
    }
}

/// The time from a frame's arrival until a poll can find it, in nanoseconds. During this time the device writes the
/// frame into memory.
#[derive(Clone, Copy, Debug)]
struct OnTheWay {
    /// The shortest time on the way among the latest polls, and among the polls before them.
    least: [u64; 2],
    polls: u32,
}

impl OnTheWay {
    /// Number of polls with frames after which the older minimum is dropped.
    const POLLS: u32 = 256;

    const fn new() -> Self {
        Self { least: [u64::MAX; 2], polls: 0 }
    }

    /// Records a poll whose newest frame had arrived `before` nanoseconds earlier.
    #[inline]
    fn add(&mut self, before: u64) {
        self.polls += 1;
        if self.polls > Self::POLLS {
            *self = Self { least: [u64::MAX, self.least[0]], polls: 1 };
        }
        self.least[0] = self.least[0].min(before);
    }

    /// The shortest recent time from a frame's arrival until a poll could find it, in nanoseconds. 0 if no frame was
    /// found yet.
    #[inline]
    fn least(&self) -> u64 {
        match self.least[0].min(self.least[1]) {
            u64::MAX => 0,
            least => least,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Simulated;

    fn at(us: u64) -> Instant<Simulated> {
        Instant::from_nanos(us * 1_000)
    }

    #[test]
    fn what_is_on_the_way_is_the_least_of_late() {
        let mut on_the_way = OnTheWay::new();
        assert_eq!(on_the_way.least(), 0);
        [9_000, 2_500, 40_000].into_iter().for_each(|before| on_the_way.add(before));
        assert_eq!(on_the_way.least(), 2_500);
        // Another path, or other stamps: after two rounds at most.
        (0..2 * OnTheWay::POLLS).for_each(|_| on_the_way.add(3_000));
        assert_eq!(on_the_way.least(), 3_000);
    }

    #[test]
    fn the_silence_begins_when_the_last_frame_became_visible() {
        let (mut traffic, mut gaps) = (Traffic::new(), Gaps::new());
        assert_eq!(traffic.silence(at(5)), None);
        traffic.stamped(&mut gaps, &Arrivals::stamped(at(10), at(14), at(17)), 3);
        traffic.stamped(&mut gaps, &Arrivals::stamped(at(20), at(20), at(25)), 1);
        assert_eq!(traffic.silence(at(24)), Some(Nanos::from_micros(1)), "3 us on the way at least");
        assert_eq!(traffic.silence(at(21)), Some(Nanos::ZERO));
        assert_eq!(gaps.mean(), 10_000 / 3);
    }

    #[test]
    fn frames_without_timestamps_are_spread_between_the_polls() {
        let (mut traffic, mut gaps) = (Traffic::new(), Gaps::new());
        traffic.unstamped(&mut gaps, &Arrivals::unstamped(at(0), at(40)), 2, None);
        assert_eq!((gaps.mean(), traffic.last_arrival), (20_000, Some(at(30))));
        // The device woke the worker: the frame has just come.
        traffic.unstamped(&mut gaps, &Arrivals::unstamped(at(40), at(80)), 1, Some(at(78)));
        assert_eq!(traffic.last_arrival, Some(at(80)));
        assert_eq!(gaps.mean(), (20_000 + 48_000) / 2);
    }

    #[test]
    fn the_next_burst_is_the_one_that_can_still_come() {
        let (mut traffic, mut gaps) = (Traffic::new(), Gaps::new());
        for k in 0..40 {
            let t = at(350 * k);
            traffic.stamped(&mut gaps, &Arrivals::stamped(t, t, t), 1);
        }
        let ahead =
            |traffic: &mut Traffic<Simulated>, us: u64| traffic.next_burst(at(us)).map(|burst| burst.ahead / 1_000);
        let soon = ahead(&mut traffic, 350 * 39 + 100).expect("a period");
        assert!((245..=250).contains(&soon), "{soon}");
        // The burst is 50 us late: it may be lost.
        let next = ahead(&mut traffic, 350 * 40 + 50).expect("the one after it");
        assert!((295..=300).contains(&next), "{next}");
    }
}
