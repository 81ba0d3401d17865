//! DIM for network queues.

use units::Instant;

use super::profiles::{NET_PROFILES, net_profile};
use super::{
    Comparison, DimSample, Outcome, Search, Snapshot, State, Stats, Stepped, TuneState, WINDOW_EVENTS, significant,
};
use crate::moderation::{Decision, Direction, ModerationPolicy, PeriodMode, Profile, Reason, Sample};

/// The last index of a profile table.
const LAST: u8 = NET_PROFILES as u8 - 1;
/// The search parks after this many steps: `NET_DIM_PARAMS_NUM_PROFILES * 2` in `net_dim_step()`, `lib/dim/net_dim.c`.
const TOO_TIRED: u8 = 2 * NET_PROFILES as u8;

/// Linux `net_dim`, one instance per queue and direction.
///
/// ```text
///                      ┌──────────── the rates have changed: left, from index 0 right ────────────┐
///                      │                                                                          ▼
///   PARKING_ON_TOP ────┘◄─ at the edge, or turned at a top ──── GOING_RIGHT ◄── not better ──► GOING_LEFT
///                                                                    │                            │
///   PARKING_TIRED  ◄──────── ten steps without parking on top ───────┴────────────────────────────┘
///        └── after ten windows, without a look at the rates ──► as from PARKING_ON_TOP
/// ```
/// Better means, in this order: more bytes, more packets or fewer events per millisecond, each by at least 11 %. Equal
/// rates do not count as better, so the search never settles under steady traffic.
#[derive(Debug)]
pub struct NetDim<C> {
    profiles: [Profile; NET_PROFILES],
    state: State,
    search: Search,
    start: DimSample<C>,
    previous: Stats,
}

impl<C> NetDim<C> {
    /// The index at which a driver starts if it uses `net_dim_get_def_rx_moderation` or a similar function:
    /// `NET_DIM_DEF_PROFILE_EQE` and `NET_DIM_DEF_PROFILE_CQE` in `lib/dim/net_dim.c`.
    pub const DEFAULT_INDEX: u8 = 1;

    /// Creates an instance that starts at `index` of the kernel's table. A driver that does not set the index, like
    /// mlx5, starts at 0. `None` if the table has no such index.
    pub fn new(direction: Direction, mode: PeriodMode, index: u8) -> Option<Self> {
        let profile = |index| net_profile(direction, mode, index).unwrap_or(Profile::IMMEDIATE);
        Self::with_profiles([0, 1, 2, 3, 4].map(profile), index)
    }

    /// Creates an instance that starts at `index` of a device's own profiles, as set by `ethtool -C IF rx-profile`:
    /// `net_dim_init_irq_moder()`. `None` if the table has no such index, or if one of the profiles would never raise
    /// an interrupt.
    pub fn with_profiles(profiles: [Profile; NET_PROFILES], index: u8) -> Option<Self> {
        if index > LAST || profiles.iter().any(|profile| profile.usecs == 0 && profile.frames == 0) {
            return None;
        }
        Some(Self {
            profiles,
            state: State::StartMeasure,
            search: Search::new(TuneState::ParkingOnTop, index),
            start: DimSample { time: Instant::ORIGIN, packets: 0, bytes: 0, events: 0, completions: 0 },
            previous: Stats::default(),
        })
    }

    /// Ports `net_dim()`. `restart` is the time at which the next window starts, for which the kernel reads the clock
    /// again. Outside a kernel, pass `end.time`.
    pub fn step(&mut self, end: &DimSample<C>, restart: Instant<C>) -> Outcome {
        let outcome = match self.state {
            State::ApplyNewProfile => return Outcome::Applying,
            State::StartMeasure => Outcome::Measuring,
            State::MeasureInProgress => {
                if u32::from(end.events.wrapping_sub(self.start.events)) < WINDOW_EVENTS {
                    return Outcome::Measuring;
                }
                let Some(current) = Stats::between(&self.start, end) else { return Outcome::Measuring };
                if self.decision(current) {
                    self.state = State::ApplyNewProfile;
                    return Outcome::Changed;
                }
                Outcome::Kept
            }
        };
        // Completions are left out, because no network driver counts them.
        self.start = DimSample { time: restart, completions: self.start.completions, ..*end };
        self.state = State::MeasureInProgress;
        outcome
    }

    /// Call this when the profile has been programmed; in the kernel, the driver's work item does so.
    pub fn finish_applying(&mut self) {
        self.state = State::StartMeasure;
    }

    /// The state of this instance, in the kernel's terms.
    pub fn snapshot(&self) -> Snapshot {
        self.search.snapshot(self.state)
    }

    /// Ports `net_dim_decision()`. Returns whether the index has changed.
    fn decision(&mut self, current: Stats) -> bool {
        let before = self.search;
        match before.tune_state {
            TuneState::ParkingOnTop => {
                if compare(&current, &self.previous) != Comparison::Same {
                    self.search.exit_parking();
                }
            }
            TuneState::ParkingTired => {
                self.search.tired = before.tired.wrapping_sub(1);
                if self.search.tired == 0 {
                    self.search.exit_parking();
                }
            }
            TuneState::GoingRight | TuneState::GoingLeft => {
                if compare(&current, &self.previous) != Comparison::Better {
                    self.search.turn();
                }
                if self.search.on_top() {
                    self.search.park_on_top();
                } else {
                    match self.search.step() {
                        Stepped::Moved => {}
                        Stepped::OnEdge => self.search.park_on_top(),
                        Stepped::TooTired => self.search.park_tired(),
                    }
                }
            }
        }
        let stayed_parked =
            before.tune_state == TuneState::ParkingOnTop && self.search.tune_state == TuneState::ParkingOnTop;
        if !stayed_parked {
            self.previous = current;
        }
        self.search.profile_ix != before.profile_ix
    }
}

impl Search {
    /// Ports `dim_on_top`.
    fn on_top(&self) -> bool {
        match self.tune_state {
            TuneState::ParkingOnTop | TuneState::ParkingTired => true,
            TuneState::GoingRight => self.steps_left > 1 && self.steps_right == 1,
            TuneState::GoingLeft => self.steps_right > 1 && self.steps_left == 1,
        }
    }

    /// Ports `dim_park_on_top`.
    fn park_on_top(&mut self) {
        *self = Self::new(TuneState::ParkingOnTop, self.profile_ix);
    }

    /// Ports `dim_park_tired`.
    fn park_tired(&mut self) {
        *self = Self { tired: self.tired, ..Self::new(TuneState::ParkingTired, self.profile_ix) };
    }

    /// Ports `net_dim_exit_parking`.
    fn exit_parking(&mut self) {
        self.tune_state = if self.profile_ix == 0 { TuneState::GoingRight } else { TuneState::GoingLeft };
        self.step();
    }

    /// Ports `net_dim_step`.
    fn step(&mut self) -> Stepped {
        if self.tired == TOO_TIRED {
            return Stepped::TooTired;
        }
        let stepped = self.walk(LAST);
        if stepped == Stepped::Moved {
            self.tired = self.tired.wrapping_add(1);
        }
        stepped
    }
}

/// Ports `net_dim_stats_compare`.
fn compare(current: &Stats, previous: &Stats) -> Comparison {
    let more = |current: i32, previous: i32| if current > previous { Comparison::Better } else { Comparison::Worse };
    let appeared = |current: i32| if current != 0 { Comparison::Better } else { Comparison::Same };
    if previous.bpms == 0 {
        return appeared(current.bpms);
    }
    if significant(current.bpms, previous.bpms) {
        return more(current.bpms, previous.bpms);
    }
    if previous.ppms == 0 {
        return appeared(current.ppms);
    }
    if significant(current.ppms, previous.ppms) {
        return more(current.ppms, previous.ppms);
    }
    if previous.epms != 0 && significant(current.epms, previous.epms) {
        return if current.epms < previous.epms { Comparison::Better } else { Comparison::Worse };
    }
    Comparison::Same
}

impl<C> ModerationPolicy<C> for NetDim<C> {
    fn profile(&self) -> Profile {
        // The index never leaves the table.
        self.profiles[usize::from(self.search.profile_ix)]
    }

    #[inline]
    fn decide(&mut self, sample: &Sample<C>) -> Decision {
        match self.step(&DimSample::from(sample), sample.now) {
            Outcome::Applying => Decision::keep(Reason::Applying),
            Outcome::Measuring => Decision::keep(Reason::Measuring),
            Outcome::Kept => Decision::keep(Reason::Steady),
            Outcome::Changed => Decision::apply(self.profile(), Reason::Rates),
        }
    }

    /// Ignores the profile in force, because DIM continues from the profile that it requested.
    fn applied(&mut self, _: Instant<C>, _: Profile) {
        self.finish_applying();
    }
}

impl<C> Clone for NetDim<C> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<C> Copy for NetDim<C> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moderation::Action;
    use crate::moderation::dim::tests::sample;
    use proptest::prelude::*;
    use units::Simulated;

    #[test]
    fn a_devices_own_profiles_are_walked_as_the_kernels() {
        let own = [2, 4, 6, 8, 10].map(|usecs| Profile::eqe(usecs, 16));
        let mut dim = NetDim::<Simulated>::with_profiles(own, 1).unwrap();
        assert_eq!(dim.profile(), own[1]);
        dim.search.profile_ix = LAST;
        assert_eq!(dim.profile(), own[4]);
        assert!(NetDim::<Simulated>::with_profiles(own, 5).is_none());
        assert!(NetDim::<Simulated>::with_profiles([Profile::eqe(0, 0); 5], 0).is_none(), "no interrupt at all");
    }

    type Dim = NetDim<Simulated>;

    fn dim(index: u8) -> Dim {
        NetDim::new(Direction::Rx, PeriodMode::Eqe, index).unwrap()
    }

    /// Windows of 64 events, each with its duration in us and its packets of 100 bytes, at once applied.
    fn windows(dim: &mut Dim, time_us: &mut u64, windows: &[(u64, u32)]) -> [u8; 8] {
        let (mut seen, mut packets, mut events) = ([u8::MAX; 8], 0u32, 0u16);
        dim.step(&sample(*time_us * 1_000, events, packets, packets * 100), Instant::from_nanos(*time_us * 1_000));
        for (window, (us, more)) in seen.iter_mut().zip(windows) {
            *time_us += us;
            events = events.wrapping_add(64);
            packets += more;
            let at = Instant::from_nanos(*time_us * 1_000);
            if dim.step(&sample(*time_us * 1_000, events, packets, packets * 100), at) == Outcome::Changed {
                dim.finish_applying();
                dim.step(&sample(*time_us * 1_000, events, packets, packets * 100), at);
            }
            *window = dim.snapshot().profile_ix;
        }
        seen
    }

    #[test]
    fn walks_right_while_events_become_fewer_and_parks_at_the_edge() {
        // The same packet rate, and each window's 64 events take longer than those before.
        let mut dim = dim(0);
        let all = [(100, 100), (200, 200), (400, 400), (800, 800), (1_600, 1_600), (1_600, 1_600), (1_600, 1_600)];
        assert_eq!(windows(&mut dim, &mut 1_000, &all), [1, 2, 3, 4, 4, 4, 4, u8::MAX]);
        assert_eq!(dim.snapshot().tune_state, TuneState::ParkingOnTop);
        assert_eq!(dim.profile(), Profile::eqe(256, 256));
    }

    #[test]
    fn steady_traffic_flips_until_it_is_tired() {
        let (mut dim, mut time) = (dim(0), 0);
        let steady = [(1_000, 64); 8];
        assert_eq!(windows(&mut dim, &mut time, &steady), [1, 0, 1, 0, 1, 0, 1, 0]);
        assert_eq!(windows(&mut dim, &mut time, &steady[..4]), [1, 0, 0, 0, 255, 255, 255, 255]);
        assert_eq!(dim.snapshot().tune_state, TuneState::ParkingTired);
    }

    #[test]
    fn says_nothing_until_the_driver_is_done() {
        let mut dim = dim(0);
        let at = Instant::from_nanos(0);
        assert_eq!(dim.step(&sample(0, 0, 0, 0), at), Outcome::Measuring);
        assert_eq!(dim.step(&sample(1_000_000, 64, 64, 6_400), at), Outcome::Changed);
        assert_eq!(dim.step(&sample(9_000_000, 640, 640, 64_000), at), Outcome::Applying);
        dim.finish_applying();
        assert_eq!(dim.step(&sample(9_000_000, 640, 640, 64_000), at), Outcome::Measuring);
    }

    #[test]
    fn refuses_an_index_past_the_table() {
        assert!(Dim::new(Direction::Tx, PeriodMode::Cqe, 5).is_none());
    }

    proptest! {
        /// Whatever the samples, and wherever the counters begin.
        #[test]
        fn keeps_its_bounds(
            index in 0u8..5,
            starts in (0u64..1 << 60, any::<u64>(), any::<u64>(), any::<u64>()),
            calls in prop::collection::vec((0u64..5_000_000, 0u64..200, 0u64..100_000, 0u64..1 << 34, any::<bool>()), 1..300),
        ) {
            let mut dim = dim(index);
            let mut from_zero = dim;
            let (mut time, mut events, mut packets, mut bytes) = starts;
            let mut since_zero = (0u64, 0u64, 0u64, 0u64);
            for (span, more_events, more_packets, more_bytes, done) in calls {
                time += span;
                events = events.wrapping_add(more_events);
                packets = packets.wrapping_add(more_packets);
                bytes = bytes.wrapping_add(more_bytes);
                since_zero = (
                    since_zero.0 + span,
                    since_zero.1 + more_events,
                    since_zero.2 + more_packets,
                    since_zero.3 + more_bytes,
                );
                let before = dim.snapshot();
                let window = (events as u16).wrapping_sub(dim.start.events);
                let now = Instant::from_nanos(time);
                let seen = Sample { now, events, packets, bytes, completions: 0, delays: None };
                let decision = dim.decide(&seen);
                let after = dim.snapshot();
                prop_assert!(after.profile_ix < NET_PROFILES as u8 && after.tired <= TOO_TIRED);
                prop_assert!(after.profile_ix.abs_diff(before.profile_ix) <= 1);
                if before.state != State::MeasureInProgress || u32::from(window) < WINDOW_EVENTS {
                    prop_assert_eq!(decision.action, Action::Keep, "a step without a full window");
                    prop_assert_eq!(
                        Snapshot { state: before.state, ..after }, before, "a change without a full window"
                    );
                }
                // The counters' wrap-around changes nothing.
                let (t, e, p, b) = since_zero;
                let moved = Sample {
                    now: Instant::from_nanos(t),
                    events: e,
                    packets: p,
                    bytes: b,
                    completions: 0,
                    delays: None,
                };
                prop_assert_eq!(from_zero.decide(&moved), decision);
                prop_assert_eq!(from_zero.snapshot(), after);
                if done && after.state == State::ApplyNewProfile {
                    dim.applied(now, dim.profile());
                    from_zero.applied(now, from_zero.profile());
                }
            }
        }
    }
}
