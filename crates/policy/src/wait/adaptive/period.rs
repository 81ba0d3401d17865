//! Detects traffic that arrives at regular times: a 5G slot every 500 us, one packet every 350 us.

use units::{Instant, Nanos};

use super::tail::{MEMORY, Tail};

/// Number of intervals that must agree before a period is accepted.
const HISTORY: usize = 8;
/// Shorter periods are ignored, because a wait between their bursts saves nothing.
const SHORTEST: Nanos = Nanos::from_micros(40);
/// Longer periods are ignored, because the core then counts as idle.
const LONGEST: Nanos = Nanos::from_millis(50);
/// A period is dropped when its doubt reaches this value. A burst at the expected time subtracts one, a missing burst
/// adds one, and a burst at another time adds `MISS`.
const DISBELIEF: u32 = 24;
const MISS: u32 = 3;
/// Divisor for durations of bursts: a [`Tail`] covers only 2 ms, and a burst may last for half a period.
const LENGTH_UNIT: u64 = 16;
/// The spread around the expected times is recomputed once per this many bursts, and after each of the first bursts of
/// a newly found period. It changes slowly, and recomputing it means searching three histograms.
const REVIEW: u32 = 8;

/// Finds and follows the period of arrivals, as a phase-locked loop does.
///
/// ```text
///            8 intervals alike                     doubt reaches 24
///  Searching ────────────────► Locked { due, period } ────────────► Searching
///                                 │    ▲
///                                 └────┘ arrival near due: due += period, plus 1/4 of the error; period + 1/32 of it
/// ```
/// Only the start of a burst counts: an arrival after a silence at least half as long as the longest recent silence. So
/// a slot with several frames is one event.
#[derive(Debug)]
pub(super) struct Period<C> {
    state: State<C>,
    last_start: Option<Instant<C>>,
    last_arrival: Option<Instant<C>>,
    longest_silence: Nanos,
    /// How much earlier than expected a burst starts.
    early: Tail,
    /// How much later than expected a burst starts.
    late: Tail,
    /// Duration of a burst from its first to its last frame, divided by [`LENGTH_UNIT`].
    length: Tail,
    /// The window computed from `early`, `late` and `length`, updated once per [`REVIEW`] bursts.
    window: Window,
    bursts: u32,
}

/// How far a burst may be from its expected time.
#[derive(Clone, Copy, Debug)]
struct Window {
    early: Nanos,
    late: Nanos,
    length: Nanos,
}

impl Window {
    const NONE: Self = Self { early: Nanos::ZERO, late: Nanos::ZERO, length: Nanos::ZERO };

    fn width(&self) -> Nanos {
        self.early + self.late + self.length
    }
}

#[derive(Debug)]
enum State<C> {
    Searching {
        intervals: [Nanos; HISTORY],
        known: usize,
    },
    Locked {
        due: Instant<C>,
        /// The period in 1/64 ns, so that small corrections are not lost by rounding.
        period_64ths: u64,
        doubt: u32,
    },
}

/// When the next bursts are expected.
#[derive(Debug)]
pub(super) struct Forecast<C> {
    /// The earliest time at which the next burst may start.
    pub(super) from: Instant<C>,
    /// The time by which the next burst will have started.
    pub(super) to: Instant<C>,
    /// The earliest time at which the burst after the next one may start.
    pub(super) next: Instant<C>,
    /// The time by which the previous burst will have ended.
    pub(super) last_ends: Instant<C>,
}

impl<C> Period<C> {
    pub(super) const fn new() -> Self {
        Self {
            state: State::Searching { intervals: [Nanos::ZERO; HISTORY], known: 0 },
            last_start: None,
            last_arrival: None,
            longest_silence: Nanos::ZERO,
            early: Tail::new(),
            late: Tail::new(),
            length: Tail::new(),
            window: Window::NONE,
            bursts: 0,
        }
    }

    /// Adds the frames of one poll, from the arrival of the first to that of the last.
    pub(super) fn arrived(&mut self, first: Instant<C>, last: Instant<C>) {
        let previous = self.last_arrival.replace(last);
        let Some(silence) = previous.and_then(|p| first.since(p)) else {
            self.last_start = self.last_start.or(Some(first));
            return;
        };
        let starts = silence >= self.longest_silence / 2;
        self.longest_silence = silence.max(self.longest_silence.scale(31, 32));
        if !starts {
            return;
        }
        if let State::Locked { .. } = self.state
            && let Some(length) = previous.zip(self.last_start).and_then(|(end, start)| end.since(start))
        {
            self.length.add(length / LENGTH_UNIT, 0, MEMORY);
        }
        if let Some(interval) = self.last_start.replace(first).and_then(|s| first.since(s)) {
            self.started(first, interval);
            self.bursts = self.bursts.wrapping_add(1);
            if let State::Locked { .. } = self.state
                && (self.bursts.is_multiple_of(REVIEW) || self.late.samples() + self.early.samples() < REVIEW)
            {
                self.window = Window {
                    early: self.early.upper_quantile(980_000),
                    late: self.late.upper_quantile(990_000).min(interval / 8),
                    length: self.length.upper_quantile(980_000) * LENGTH_UNIT,
                };
            }
        }
    }

    fn started(&mut self, at: Instant<C>, interval: Nanos) {
        match &mut self.state {
            State::Searching { intervals, known } => {
                intervals[*known % HISTORY] = interval;
                *known += 1;
                if (*known).is_multiple_of(HISTORY)
                    && let Some(period) = common_interval(intervals)
                {
                    (self.early, self.late, self.length) = (Tail::new(), Tail::new(), Tail::new());
                    self.state =
                        State::Locked { due: at + period, period_64ths: period.as_nanos() * 64, doubt: DISBELIEF / 2 };
                }
            }
            State::Locked { due, period_64ths, doubt } => {
                let period = Nanos::from_nanos(*period_64ths / 64);
                // Find the slot of this burst: some bursts may have been skipped.
                let beyond = at.since(*due).and_then(|over| over.as_nanos().checked_sub(period.as_nanos() / 2));
                let left_out = beyond.unwrap_or(0).div_ceil(period.as_nanos().max(1));
                *due = *due + period * left_out;
                *doubt = doubt.saturating_add(u32::try_from(left_out).unwrap_or(u32::MAX));
                let (error, is_late) = match at.since(*due) {
                    Some(late) => (late, true),
                    None => (due.since(at).unwrap_or(Nanos::ZERO), false),
                };
                if error > period / 2 {
                    // The burst lies between two slots.
                    *doubt = doubt.saturating_add(MISS);
                } else {
                    let stray = error > period / 8;
                    *doubt = if stray { doubt.saturating_add(MISS) } else { doubt.saturating_sub(1) };
                    let step = error.min(period / 64).as_nanos();
                    if is_late {
                        self.late.add(error, 0, MEMORY);
                        *due = *due + Nanos::from_nanos(step / 4);
                        *period_64ths += step * 2;
                    } else {
                        self.early.add(error, 0, MEMORY);
                        *due = due.before(Nanos::from_nanos(step / 4)).unwrap_or(*due);
                        *period_64ths = period_64ths.saturating_sub(step * 2);
                    }
                    *due = *due + period;
                }
                if *doubt >= DISBELIEF {
                    self.state = State::Searching { intervals: [Nanos::ZERO; HISTORY], known: 0 };
                }
            }
        }
    }

    /// When the next burst is expected. `None` if no period was found, or if no burst has ended since one was found:
    /// while the duration of bursts is unknown, a burst that is still arriving could be mistaken for a finished one. If
    /// a burst does not come, the forecast moves on to the next one.
    pub(super) fn forecast(&mut self, now: Instant<C>) -> Option<Forecast<C>> {
        let State::Locked { due, period_64ths, doubt } = &mut self.state else { return None };
        if self.length.samples() == 0 {
            return None;
        }
        let period = Nanos::from_nanos(*period_64ths / 64);
        if now.since(*due).is_some_and(|over| over > period / 2) {
            *due = *due + period;
            *doubt += 1;
            if *doubt >= DISBELIEF || now.since(*due).is_some_and(|over| over > period) {
                self.state = State::Searching { intervals: [Nanos::ZERO; HISTORY], known: 0 };
                return None;
            }
        }
        let Window { early, late, length } = self.window;
        // A forecast whose window is wider than half the period is useless.
        (self.window.width() <= period / 2).then(|| Forecast {
            from: due.before(early).unwrap_or(*due),
            to: *due + late + Nanos::from_micros(2),
            next: due.before(early).unwrap_or(*due) + period,
            last_ends: self.last_start.map_or(now, |start| start + length),
        })
    }
}

/// The median of the intervals. `None` if the median is too short or too long for a period, or if the intervals differ
/// by more than a quarter of it even without the shortest and the longest interval.
fn common_interval(intervals: &[Nanos; HISTORY]) -> Option<Nanos> {
    let mut sorted = *intervals;
    sorted.sort_unstable();
    let middle = &sorted[1..HISTORY - 1];
    let (least, most) = (middle[0], middle[middle.len() - 1]);
    let median = middle[middle.len() / 2];
    let alike = most.saturating_sub(least) <= median / 4;
    (alike && (SHORTEST..=LONGEST).contains(&median)).then_some(median)
}

// Implemented by hand, because a derive would also require `Clone` of the clock's marker type.
impl<C> Clone for State<C> {
    fn clone(&self) -> Self {
        match *self {
            Self::Searching { intervals, known } => Self::Searching { intervals, known },
            Self::Locked { due, period_64ths, doubt } => Self::Locked { due, period_64ths, doubt },
        }
    }
}
impl<C> Clone for Period<C> {
    fn clone(&self) -> Self {
        Self {
            state: self.state.clone(),
            last_start: self.last_start,
            last_arrival: self.last_arrival,
            longest_silence: self.longest_silence,
            early: self.early.clone(),
            late: self.late.clone(),
            length: self.length.clone(),
            window: self.window,
            bursts: self.bursts,
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
    fn one_packet_each_350_us_is_foreseen() {
        let mut period = Period::new();
        for k in 0..20 {
            period.arrived(at(350 * k), at(350 * k));
        }
        let forecast = period.forecast(at(350 * 19 + 10)).expect("locked");
        let due = at(350 * 20);
        assert!(forecast.from <= due && due <= forecast.to);
        assert!(forecast.to.since(forecast.from).unwrap() < Nanos::from_micros(20));
    }

    #[test]
    fn a_slot_of_four_frames_is_one_event() {
        let mut period = Period::new();
        for slot in 0..30 {
            for frame in 0..4 {
                let t = at(500 * slot + 7 * frame);
                period.arrived(t, t);
            }
        }
        let forecast = period.forecast(at(500 * 29 + 30)).expect("locked");
        assert!(forecast.from <= at(500 * 30) && at(500 * 30) <= forecast.to);
    }

    #[test]
    fn a_burst_whose_length_is_not_known_is_not_over() {
        let mut period = Period::new();
        // 4 ms of packets every 50 ms. The period is found at the start of a burst.
        for burst in 0..20 {
            for packet in 0..100 {
                let t = at(50_000 * burst + 39 * packet);
                period.arrived(t, t);
                if let Some(forecast) = period.forecast(t) {
                    let ends = at(50_000 * burst + 39 * 99);
                    assert!(forecast.last_ends >= ends, "burst {burst}, packet {packet}: {forecast:?}");
                }
            }
        }
        assert!(period.forecast(at(50_000 * 19 + 15_000)).is_some());
    }

    /// The slots that went by are counted in one step: a machine may have slept for months.
    #[test]
    fn bursts_that_were_left_out_for_centuries_end_the_belief_at_once() {
        let mut period = Period::new();
        for k in 0..100 {
            period.arrived(at(350 * k), at(350 * k));
        }
        let late = Instant::<Simulated>::from_nanos(u64::MAX - 1_000);
        period.arrived(late, late);
        assert!(period.forecast(late).is_none());
    }

    #[test]
    fn a_burst_that_was_left_out_does_not_move_the_grid() {
        let mut period = Period::new();
        for k in (0..100).chain(101..120) {
            period.arrived(at(350 * k), at(350 * k));
        }
        let forecast = period.forecast(at(350 * 119 + 50)).expect("still locked");
        assert!(forecast.from > at(350 * 120 - 5) && forecast.to < at(350 * 120 + 30), "{forecast:?}");
    }

    #[test]
    fn a_late_arrival_does_not_move_the_grid() {
        let mut period = Period::new();
        for k in 0..100 {
            period.arrived(at(350 * k), at(350 * k));
        }
        period.arrived(at(350 * 100 + 40), at(350 * 100 + 40));
        let forecast = period.forecast(at(350 * 100 + 50)).expect("still locked");
        assert!(forecast.from > at(350 * 101 - 5) && forecast.from < at(350 * 101 + 5), "{forecast:?}");
    }

    #[test]
    fn what_stops_is_no_longer_foreseen() {
        let mut period = Period::new();
        for k in 0..20 {
            period.arrived(at(350 * k), at(350 * k));
        }
        assert!(period.forecast(at(350 * 20)).is_some());
        let mut polls = 0;
        while period.forecast(at(350 * 20 + 175 * polls)).is_some() {
            polls += 1;
            assert!(polls < 100, "believes for ever");
        }
    }

    #[test]
    fn random_gaps_are_no_period() {
        let (mut period, mut seed, mut t, mut locked) = (Period::<Simulated>::new(), 1u64, 0u64, 0);
        for _ in 0..10_000 {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            // Exponential gaps of 50 us, from the leading zeros and bits of a random word.
            let gap = u64::from((seed | 1).leading_zeros()) * 34_657 + (seed >> 48) * 34_657 / 65_536;
            t += gap;
            period.arrived(Instant::from_nanos(t), Instant::from_nanos(t));
            locked += u32::from(period.forecast(Instant::from_nanos(t)).is_some());
        }
        assert!(locked < 100, "{locked} forecasts of 10,000");
    }
}
