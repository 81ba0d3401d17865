//! Gaps are times in which a busy loop did not run. This module finds them, and the samples that they affected.
//!
//! A busy loop never sleeps. If it does not run for a while, the kernel, the hypervisor or the hardware has taken its
//! CPU. A latency measured during a gap says something about the host, not about the device under test. So a result
//! shows all samples. Separately, it shows those that met no gap of either loop (the tester's and the worker's), and
//! the share of excluded samples. Whether a sample is excluded depends only on *when* its frame was under way, never on
//! how late the frame was: a slow device cannot hide behind gaps.

use units::{Instant, Monotonic, Nanos};

use crate::histogram::Histogram;
use crate::ledger::{Fate, HIGHEST_LATENCY_NS, Ledger};

/// A time, on `CLOCK_MONOTONIC`, during which a busy loop did not run because something else had its CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gap {
    /// The loop's last clock reading before the gap.
    pub start: Instant<Monotonic>,
    /// The loop's first clock reading after the gap.
    pub end: Instant<Monotonic>,
}

impl Gap {
    /// Length of the gap.
    pub fn length(&self) -> Nanos {
        self.end.since(self.start).unwrap_or(Nanos::ZERO)
    }
}

/// Finds gaps of a busy loop from its clock readings.
#[derive(Clone, Debug)]
pub struct GapWatch {
    threshold: Nanos,
    last: Instant<Monotonic>,
    gaps: Vec<Gap>,
}

impl GapWatch {
    /// Starts to watch a loop at the time `now`. If two successive readings are more than `threshold` apart, the time
    /// between them is a gap.
    pub fn new(threshold: Nanos, now: Instant<Monotonic>) -> Self {
        Self { threshold, last: now, gaps: Vec::with_capacity(4096) }
    }

    /// Records a clock reading of the loop.
    #[inline]
    pub fn at(&mut self, now: Instant<Monotonic>) {
        self.after_work(now, Nanos::ZERO);
    }

    /// Records a clock reading after work that may take up to `allowance`. The time since the previous reading is then
    /// a gap only if it is longer than the sum of threshold and allowance.
    #[inline]
    pub fn after_work(&mut self, now: Instant<Monotonic>, allowance: Nanos) {
        let gap = Gap { start: self.last, end: now };
        self.last = now;
        if gap.length() > self.threshold + allowance {
            self.gaps.push(gap);
        }
    }

    /// Number of gaps so far.
    pub fn count(&self) -> usize {
        self.gaps.len()
    }

    /// All gaps, in order of time.
    pub fn into_gaps(self) -> Vec<Gap> {
        self.gaps
    }
}

/// How long the effect of a gap lasts after its end.
///
/// Frames that queue up in a gap of length g are processed within g * load / (1 - load), where the load is the share of
/// the capacity in use. With share = `share_ppm` / 1,000,000, the time share * g is enough up to a load of share / (1 +
/// share). `fixed` covers cold caches and one wake-up. If the recovery time is too short, disturbed samples are counted
/// as clean, which makes a result worse, never better. The recovery time does not depend on the measured latencies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recovery {
    /// Time added to the end of each gap.
    pub fixed: Nanos,
    /// Additional time, in ppm of the length of the gap.
    pub share_ppm: u32,
}

impl Default for Recovery {
    /// 20 us (about the median of a blocking round trip on veth, 21 us on a VM with 2 CPUs) plus a quarter of the
    /// length of the gap, which is enough up to a load of 20 %.
    fn default() -> Self {
        Self { fixed: Nanos::from_micros(20), share_ppm: 250_000 }
    }
}

/// All samples of a trial, and those that met no gap.
#[derive(Clone, PartialEq, Debug)]
pub struct Split {
    /// Latency of each frame that came back.
    pub all: Histogram,
    /// Latency of the frames that met no gap between their due send time and their pick-up by the tester.
    pub clean: Histogram,
    /// Number of frames due after the warm-up.
    pub intended: u64,
    /// Number of samples in `all` but not in `clean`.
    pub excluded: u64,
    /// Number of frames that the tester did not send.
    pub unsent: u64,
    /// Number of frames sent that did not come back.
    pub lost: u64,
    /// Number of lost frames that were due neither in a gap nor in the recovery time after one.
    pub lost_outside_gaps: u64,
}

impl Split {
    /// Share of the due frames that `clean` excludes: samples that met a gap, and frames that the tester did not send,
    /// nearly always because of a gap. `None` if no frame was due.
    pub fn share_excluded(&self) -> Option<f64> {
        (self.intended > 0).then(|| (self.excluded + self.unsent) as f64 / self.intended as f64)
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Self) {
        self.all.add(&other.all);
        self.clean.add(&other.clean);
        self.intended += other.intended;
        self.excluded += other.excluded;
        self.unsent += other.unsent;
        self.lost += other.lost;
        self.lost_outside_gaps += other.lost_outside_gaps;
    }
}

/// Separates the frames of a trial that met a gap of the tester or of the tested worker from those that did not.
/// `start` is the start of the trial, from which the due times in `ledger` count. Frames due before the end of
/// `warm_up` are left out.
///
/// A received frame met a gap if [due, picked up] and [gap start, gap end + recovery] overlap. A lost frame met a gap
/// if its due time lies in [gap start, gap end + recovery].
pub fn split(
    ledger: &Ledger,
    start: Instant<Monotonic>,
    warm_up: Nanos,
    tester: &[Gap],
    tested: &[Gap],
    recovery: Recovery,
) -> Split {
    let disturbed = merged(tester.iter().chain(tested), recovery);
    let meets = |from, to| meets(&disturbed, from, to);
    let mut split = Split {
        all: Histogram::new(),
        clean: Histogram::new(),
        intended: 0,
        excluded: 0,
        unsent: 0,
        lost: 0,
        lost_outside_gaps: 0,
    };
    for (offset, fate) in ledger.iter().filter(|(offset, _)| *offset >= warm_up) {
        split.intended += 1;
        let sent = start + offset;
        let latency = match fate {
            Fate::Received(latency) => latency,
            Fate::ReceivedTooLate => Nanos::from_nanos(u64::from(HIGHEST_LATENCY_NS) + 1),
            Fate::Unsent => {
                split.unsent += 1;
                continue;
            }
            Fate::Missing => {
                split.lost += 1;
                split.lost_outside_gaps += u64::from(!meets(sent, sent));
                continue;
            }
        };
        split.all.record(latency.as_nanos());
        if meets(sent, sent + latency) {
            split.excluded += 1;
        } else {
            split.clean.record(latency.as_nanos());
        }
    }
    split
}

/// Whether the time from `from` to `to` overlaps one of the gaps in `disturbed`, which are in order and do not overlap.
fn meets(disturbed: &[Gap], from: Instant<Monotonic>, to: Instant<Monotonic>) -> bool {
    let first = disturbed.partition_point(|gap| gap.end < from);
    disturbed.get(first).is_some_and(|gap| gap.start <= to)
}

/// The frames that were due in one second of a trial.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Second {
    /// Number of the second after the warm-up, from 0.
    pub second: u64,
    /// Frames that were due.
    pub frames: u64,
    /// Number of frames that did not come back.
    pub lost: u64,
    /// The longest latency; `None` if no frame came back.
    pub longest: Option<Nanos>,
    /// The longest latency of a frame that met no gap; `None` if there was no such frame.
    pub longest_clean: Option<Nanos>,
}

/// The frames of a trial, second by second. Whether a frame met a gap is decided as in [`split`].
pub fn seconds(
    ledger: &Ledger,
    start: Instant<Monotonic>,
    warm_up: Nanos,
    tester: &[Gap],
    tested: &[Gap],
    recovery: Recovery,
) -> Vec<Second> {
    let disturbed = merged(tester.iter().chain(tested), recovery);
    let mut seconds: Vec<Second> = Vec::new();
    for (offset, fate) in ledger.iter() {
        let Some(after) = offset.checked_sub(warm_up) else { continue };
        let second = after.as_nanos() / 1_000_000_000;
        if seconds.last().is_none_or(|last| last.second != second) {
            seconds.push(Second { second, frames: 0, lost: 0, longest: None, longest_clean: None });
        }
        let Some(of) = seconds.last_mut() else { continue };
        of.frames += 1;
        let latency = match fate {
            Fate::Received(latency) => latency,
            Fate::ReceivedTooLate => Nanos::from_nanos(u64::from(HIGHEST_LATENCY_NS) + 1),
            Fate::Unsent => continue,
            Fate::Missing => {
                of.lost += 1;
                continue;
            }
        };
        of.longest = of.longest.max(Some(latency));
        if !meets(&disturbed, start + offset, start + offset + latency) {
            of.longest_clean = of.longest_clean.max(Some(latency));
        }
    }
    seconds
}

/// Extends each gap by its recovery time, sorts the gaps, and merges those that overlap.
fn merged<'a>(gaps: impl Iterator<Item = &'a Gap>, recovery: Recovery) -> Vec<Gap> {
    let mut gaps: Vec<Gap> = gaps
        .map(|gap| {
            let margin = recovery.fixed + gap.length().scale(recovery.share_ppm.into(), 1_000_000);
            Gap { end: gap.end + margin, ..*gap }
        })
        .collect();
    gaps.sort_by_key(|gap| gap.start);
    let mut merged: Vec<Gap> = Vec::with_capacity(gaps.len());
    for gap in gaps {
        match merged.last_mut() {
            Some(last) if gap.start <= last.end => last.end = last.end.max(gap.end),
            _ => merged.push(gap),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const START: Instant<Monotonic> = Instant::from_nanos(1_000_000);
    const NONE: Recovery = Recovery { fixed: Nanos::ZERO, share_ppm: 0 };

    fn gap(from: u64, to: u64) -> Gap {
        Gap { start: START + Nanos::from_micros(from), end: START + Nanos::from_micros(to) }
    }
    /// One frame every 10 us, each with a latency of 5 us.
    fn ledger(frames: u64) -> Ledger {
        let mut ledger = Ledger::default();
        for i in 0..frames {
            let sequence = ledger.intend(Nanos::from_micros(i * 10));
            assert!(ledger.received(sequence, Nanos::from_micros(5)));
        }
        ledger
    }

    #[test]
    fn watches_one_loop() {
        let mut watch = GapWatch::new(Nanos::from_micros(30), START);
        watch.at(START + Nanos::from_micros(30));
        watch.at(START + Nanos::from_micros(61));
        watch.after_work(START + Nanos::from_micros(100), Nanos::from_micros(20));
        watch.after_work(START + Nanos::from_micros(151), Nanos::from_micros(20));
        assert_eq!(watch.into_gaps(), [gap(30, 61), gap(100, 151)]);
    }

    #[test]
    fn leaves_out_what_was_under_way() {
        // Frames are under way in [0,5], [10,15], …, [90,95] us.
        for (gaps, excluded) in [
            (vec![gap(12, 13)], 1), // within
            (vec![gap(6, 9)], 0),   // between
            (vec![gap(5, 10)], 2),  // touches two
            (vec![gap(1, 72)], 8),
            (vec![gap(51, 52), gap(2, 3), gap(1, 24)], 4), // in no order, overlapping
            (vec![], 0),
        ] {
            let split = split(&ledger(10), START, Nanos::ZERO, &gaps, &[], NONE);
            assert_eq!((split.excluded, split.all.len(), split.clean.len()), (excluded, 10, 10 - excluded), "{gaps:?}");
        }
    }

    #[test]
    fn either_loop_counts_and_warm_up_does_not() {
        let split = split(&ledger(10), START, Nanos::from_micros(20), &[gap(31, 32)], &[gap(1, 2), gap(90, 91)], NONE);
        assert_eq!((split.intended, split.excluded), (8, 2));
        assert_eq!(split.share_excluded(), Some(0.25));
    }

    #[test]
    fn a_gap_disturbs_longer_than_it_lasts() {
        // The gap of 8 us ends at 26 us. With 25 % of 8 us and 20 us of recovery, it disturbs until 48 us.
        let split = split(&ledger(10), START, Nanos::ZERO, &[gap(18, 26)], &[], Recovery::default());
        assert_eq!(split.excluded, 3); // 20, 30, 40
    }

    #[test]
    fn each_second_has_its_longest_frame_and_gaps_are_told_apart() {
        let mut ledger = Ledger::default();
        let due = [100, 500_000_000, 1_200_000_000, 1_300_000_000, 2_500_000_000];
        let latency = [9_000, 12_000, 36_000, 20_000];
        for offset in due {
            ledger.intend(Nanos::from_nanos(offset));
        }
        for (sequence, latency) in latency.into_iter().enumerate() {
            ledger.received(sequence as u64, Nanos::from_nanos(latency));
        }
        let stopped = [gap(1_200_000, 1_200_010)];
        let recovery = Recovery { fixed: Nanos::ZERO, share_ppm: 0 };
        let seconds = seconds(&ledger, START, Nanos::from_nanos(1_000), &stopped, &[], recovery);
        let seen: Vec<_> = seconds
            .iter()
            .map(|of| {
                (of.second, of.frames, of.lost, of.longest.map(Nanos::as_nanos), of.longest_clean.map(Nanos::as_nanos))
            })
            .collect();
        // The first frame is in the warm-up; the last one is lost.
        let expected =
            [(0, 1, 0, Some(12_000), Some(12_000)), (1, 2, 0, Some(36_000), Some(20_000)), (2, 1, 1, None, None)];
        assert_eq!(seen, expected);
    }

    #[test]
    fn losses_are_told_apart() {
        let mut ledger = Ledger::default();
        for i in 0..4 {
            ledger.intend(Nanos::from_micros(i * 10));
        }
        ledger.unsent(3);
        let split = split(&ledger, START, Nanos::ZERO, &[gap(9, 12)], &[], NONE);
        assert_eq!((split.lost, split.lost_outside_gaps, split.unsent), (3, 2, 1));
        assert_eq!(split.share_excluded(), Some(0.25));
        assert_eq!(super::split(&Ledger::default(), START, Nanos::ZERO, &[], &[], NONE).share_excluded(), None);
    }

    proptest! {
        #[test]
        fn agrees_with_comparing_each_with_each(gaps in proptest::collection::vec((0u64..300, 0u64..40), 0..12)) {
            let gaps: Vec<Gap> = gaps.into_iter().map(|(from, length)| gap(from, from + length)).collect();
            let ledger = ledger(30);
            let expected = (0..30u64).filter(|i| {
                let (from, to) = (START + Nanos::from_micros(i * 10), START + Nanos::from_micros(i * 10 + 5));
                gaps.iter().any(|gap| gap.start <= to && from <= gap.end)
            });
            let excluded = expected.count() as u64;
            prop_assert_eq!(split(&ledger, START, Nanos::ZERO, &gaps, &[], NONE).excluded, excluded);
        }
    }
}
