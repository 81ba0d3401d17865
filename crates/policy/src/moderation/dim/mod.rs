//! DIM (dynamic interrupt moderation) exactly as in Linux on a 64-bit kernel: the same samples give the same decisions.
//!
//! ```text
//!                    64 events later                    index changed
//!   START_MEASURE ──► MEASURE_IN_PROGRESS ──► decide ──────────────────► APPLY_NEW_PROFILE
//!        ▲                 ▲                    │ index kept:                    │
//!        │                 └────────────────────┘ a new window                   │
//!        └───────────────────────────────────────────────── the driver is done ──┘
//! ```
//! Each decision compares the rates of one window with those of the previous one. It then moves to the next profile on
//! the right (more moderation) or on the left (less). **Latency is not an input.** [`NetDim`] and [`RdmaDim`] share the
//! window, the rates, and the steps and turns of the search. Each has its own tables, and its own rule for which rates
//! are better.
//!
//! Sources: `include/linux/dim.h` (git blob 06543fd40fcc), `lib/dim/dim.c` (97c3d084ebf0), `lib/dim/net_dim.c`
//! (bf59deae6a29), `lib/dim/rdma_dim.c` (88f779486707), all of Linux 7.0. The code has been the same since v6.13.
//! Kernels from before 2023 also decided on windows of zero duration.

mod net;
mod profiles;
mod rdma;

pub use net::NetDim;
pub use profiles::{NET_PROFILES, RDMA_PROFILES, net_profile, rdma_profile};
pub use rdma::RdmaDim;

use units::Instant;

use super::Sample;

/// Number of events in a window: `DIM_NEVENTS` in `include/linux/dim.h`.
pub const WINDOW_EVENTS: u32 = 64;

/// A difference is significant if it is more than this many percent, rounded down: `IS_SIGNIFICANT_DIFF` in
/// `include/linux/dim.h`. So the smallest significant difference is 11 %.
const SIGNIFICANT_PERCENT: u64 = 10;

/// The state of the measurement. The numbers are those of `enum dim_state`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum State {
    /// The next sample starts a window.
    StartMeasure = 0,
    /// A window is being measured.
    MeasureInProgress = 1,
    /// The driver must program a profile.
    ApplyNewProfile = 2,
}

/// The state of the search. The numbers are those of `enum dim_tune_state`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum TuneState {
    /// The profile stays until the rates change.
    ParkingOnTop = 0,
    /// The profile stays for ten windows: one for each step that the search made before it parked.
    ParkingTired = 1,
    /// The search moves towards more moderation.
    GoingRight = 2,
    /// The search moves towards less moderation.
    GoingLeft = 3,
}

/// How a window compares with the previous one. The numbers are those of `enum dim_stats_state`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Comparison {
    Worse = 0,
    Same = 1,
    Better = 2,
}

/// The result of a step. The numbers are those of `enum dim_step_result`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Stepped {
    Moved = 0,
    TooTired = 1,
    OnEdge = 2,
}

/// The result of one call of `step`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The last profile has not been programmed yet, so the call had no effect.
    Applying,
    /// The window is not full yet, or it took no time.
    Measuring,
    /// A window is full, and the profile stays.
    Kept,
    /// A window is full, and another profile must be programmed.
    Changed,
}

/// A queue's counters in the widths of the kernel (`struct dim_sample`).
#[derive(Debug)]
pub struct DimSample<C> {
    /// When the counters were read.
    pub time: Instant<C>,
    /// Number of packets, the kernel's `pkt_ctr`. Wraps at 32 bits.
    pub packets: u32,
    /// Number of bytes, the kernel's `byte_ctr`. Wraps at 32 bits.
    pub bytes: u32,
    /// Number of interrupts, the kernel's `event_ctr`. Wraps at 16 bits.
    pub events: u16,
    /// Number of completions, the kernel's `comp_ctr`. Wraps at 32 bits.
    pub completions: u32,
}

impl<C> From<&Sample<C>> for DimSample<C> {
    /// Truncates the totals to the kernel's widths.
    fn from(sample: &Sample<C>) -> Self {
        Self {
            time: sample.now,
            packets: sample.packets as u32,
            bytes: sample.bytes as u32,
            events: sample.events as u16,
            completions: sample.completions as u32,
        }
    }
}

/// The state of a DIM instance, for comparison with a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// The kernel's `state`.
    pub state: State,
    /// The kernel's `tune_state`.
    pub tune_state: TuneState,
    /// The kernel's `profile_ix`, an index into the profile table.
    pub profile_ix: u8,
    /// The kernel's `steps_right`: steps to the right since the last turn.
    pub steps_right: u8,
    /// The kernel's `steps_left`: steps to the left since the last turn.
    pub steps_left: u8,
    /// The kernel's `tired`: steps since the search last parked. While parked tired, the windows left.
    pub tired: u8,
}

/// The rates of a window (`struct dim_stats`): packets, bytes, events and completions per millisecond, and completions
/// per event in percent.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Stats {
    ppms: i32,
    bpms: i32,
    epms: i32,
    cpms: i32,
    cpe_ratio: i32,
}

impl Stats {
    /// Ports `dim_calc_stats`. `None` if the window took less than a microsecond.
    ///
    /// The number of events is not the observed one: a window is assumed to have exactly [`WINDOW_EVENTS`].
    fn between<C>(start: &DimSample<C>, end: &DimSample<C>) -> Option<Self> {
        let span = (end.time.as_nanos() as i64).wrapping_sub(start.time.as_nanos() as i64);
        let delta_us = (span / 1_000) as u32;
        if delta_us == 0 {
            return None;
        }
        let per_ms = |count: u32| (u64::from(count) * 1_000).div_ceil(u64::from(delta_us)) as i32;
        let cpms = per_ms(end.completions.wrapping_sub(start.completions));
        let epms = per_ms(WINDOW_EVENTS);
        let cpe_ratio = match epms {
            0 => 0,
            epms => (i64::from(cpms.wrapping_mul(100)) as u64 / u64::from(epms as u32)) as i32,
        };
        Some(Self {
            ppms: per_ms(end.packets.wrapping_sub(start.packets)),
            bpms: per_ms(end.bytes.wrapping_sub(start.bytes)),
            epms,
            cpms,
            cpe_ratio,
        })
    }
}

/// Ports `IS_SIGNIFICANT_DIFF`. A difference from a reference of 0 is never significant. Neither is a difference from a
/// negative reference, because the conversion to unsigned makes the divisor huge.
fn significant(value: i32, reference: i32) -> bool {
    let difference = i64::from(value.wrapping_sub(reference).wrapping_abs()) as u64;
    let reference = i64::from(reference) as u64;
    reference != 0 && 100u64.wrapping_mul(difference) / reference > SIGNIFICANT_PERCENT
}

/// The search for the best profile, which both variants share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Search {
    tune_state: TuneState,
    profile_ix: u8,
    steps_right: u8,
    steps_left: u8,
    tired: u8,
}

impl Search {
    const fn new(tune_state: TuneState, profile_ix: u8) -> Self {
        Self { tune_state, profile_ix, steps_right: 0, steps_left: 0, tired: 0 }
    }

    /// Ports `dim_turn`.
    fn turn(&mut self) {
        match self.tune_state {
            TuneState::ParkingOnTop | TuneState::ParkingTired => {}
            TuneState::GoingRight => {
                self.tune_state = TuneState::GoingLeft;
                self.steps_left = 0;
            }
            TuneState::GoingLeft => {
                self.tune_state = TuneState::GoingRight;
                self.steps_right = 0;
            }
        }
    }

    /// Moves to the next profile in the present direction, within the indices 0 to `last`.
    fn walk(&mut self, last: u8) -> Stepped {
        match self.tune_state {
            TuneState::ParkingOnTop | TuneState::ParkingTired => {}
            TuneState::GoingRight if self.profile_ix == last => return Stepped::OnEdge,
            TuneState::GoingLeft if self.profile_ix == 0 => return Stepped::OnEdge,
            TuneState::GoingRight => {
                self.profile_ix += 1;
                self.steps_right = self.steps_right.wrapping_add(1);
            }
            TuneState::GoingLeft => {
                self.profile_ix -= 1;
                self.steps_left = self.steps_left.wrapping_add(1);
            }
        }
        Stepped::Moved
    }

    fn snapshot(&self, state: State) -> Snapshot {
        let Self { tune_state, profile_ix, steps_right, steps_left, tired } = *self;
        Snapshot { state, tune_state, profile_ix, steps_right, steps_left, tired }
    }
}

// Implemented by hand, because a derive would also require `Clone` of the clock's marker type.
impl<C> Clone for DimSample<C> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<C> Copy for DimSample<C> {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use units::Simulated;

    pub(super) fn sample(time_ns: u64, events: u16, packets: u32, bytes: u32) -> DimSample<Simulated> {
        DimSample { time: Instant::from_nanos(time_ns), packets, bytes, events, completions: 0 }
    }

    #[test]
    fn eleven_percent_count_and_ten_point_ninety_nine_do_not() {
        assert!(significant(11_100, 10_000));
        assert!(!significant(11_099, 10_000));
        assert!(significant(8_900, 10_000));
        assert!(!significant(8_901, 10_000));
    }

    #[test]
    fn nothing_and_less_than_nothing_are_no_references() {
        assert!(!significant(i32::MAX, 0));
        assert!(!significant(i32::MAX, -1_000));
        assert!(!significant(5, -1));
    }

    #[test]
    fn a_window_of_no_time_has_no_rates() {
        assert_eq!(Stats::between(&sample(5_000, 0, 0, 0), &sample(5_999, 64, 9, 9)), None);
        // 2^32 microseconds later, exactly: the 32 bits of the span are 0 again.
        assert_eq!(Stats::between(&sample(0, 0, 0, 0), &sample((1u64 << 32) * 1_000, 64, 9, 9)), None);
    }

    #[test]
    fn rates_are_rounded_up_and_events_are_those_of_a_window() {
        let stats = Stats::between(&sample(0, 0, 0, 0), &sample(3_000_000, 999, 100, 6_400)).unwrap();
        assert_eq!((stats.ppms, stats.bpms, stats.epms), (34, 2_134, 22));
    }

    #[test]
    fn bytes_a_millisecond_overflow() {
        let stats = Stats::between(&sample(0, 0, 0, 0), &sample(1_000, 64, 1, 3_000_000)).unwrap();
        assert_eq!(stats.bpms, 3_000_000_000u32 as i32);
        assert!(stats.bpms < 0);
    }

    #[test]
    fn completions_an_event_are_in_percent() {
        let end = DimSample { completions: 96, ..sample(1_000_000, 64, 0, 0) };
        let stats = Stats::between(&sample(0, 0, 0, 0), &end).unwrap();
        assert_eq!((stats.cpms, stats.epms, stats.cpe_ratio), (96, 64, 150));
    }

    proptest! {
        #[test]
        fn rates_know_only_differences_of_counters(
            start in (0u64..1 << 62, any::<u16>(), any::<u32>(), any::<u32>()),
            more in (1_000u64..1 << 40, any::<u16>(), any::<u32>(), any::<u32>()),
        ) {
            let from_zero = Stats::between(&sample(0, 0, 0, 0), &sample(more.0, more.1, more.2, more.3));
            let from_anywhere = Stats::between(
                &sample(start.0, start.1, start.2, start.3),
                &sample(
                    start.0 + more.0,
                    start.1.wrapping_add(more.1),
                    start.2.wrapping_add(more.2),
                    start.3.wrapping_add(more.3),
                ),
            );
            prop_assert_eq!(from_zero, from_anywhere);
        }

        #[test]
        fn no_sample_panics(
            a in (any::<u64>(), any::<u32>(), any::<u32>(), any::<u32>()),
            b in (any::<u64>(), any::<u32>(), any::<u32>(), any::<u32>()),
            values in (any::<i32>(), any::<i32>()),
        ) {
            let start = DimSample { completions: a.3, ..sample(a.0, 0, a.1, a.2) };
            let end = DimSample { completions: b.3, ..sample(b.0, 64, b.1, b.2) };
            let _ = Stats::between(&start, &end);
            let _ = significant(values.0, values.1);
        }
    }
}
