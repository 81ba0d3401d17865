//! Arrivals and costs of a recorded run, from which the lowest possible CPU time of the run can be computed.

use policy::wait::{Observation, WaitKind};
use units::{Monotonic, Nanos};

/// Minimum number of batches for the median cost of an octave of batch sizes to count. If no octave has this many, all
/// octaves count.
const ENOUGH: usize = 8;
/// Number of octaves of batch sizes. The last one starts at 2^15 frames.
const OCTAVES: usize = 16;

/// Frames received in one poll, with the earliest and latest time at which they may have arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Came {
    /// The earliest time at which one of the frames may have arrived, in nanoseconds of the monotonic clock.
    pub first: u64,
    /// The latest time at which one of the frames may have arrived, in nanoseconds of the monotonic clock.
    pub last: u64,
    /// Number of frames.
    pub frames: u64,
}

/// Arrivals and costs of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Account {
    /// Times of the first and the last recorded decision, in nanoseconds of the monotonic clock.
    pub window: (u64, u64),
    /// The arrivals, sorted by [`Came::first`].
    pub came: Vec<Came>,
    /// CPU time of the run: all time outside sleeps and blocks, plus the CPU time of the sleeps and blocks.
    pub cpu: Nanos,
    /// CPU time of a wait that gives up the core: over all sleeps or over all blocks, whichever is lower. Of each, it
    /// is the median, or the mean if that is lower. So no more than the run's waits cost is charged for as many waits.
    pub wake: Nanos,
    /// CPU time per frame: the median in the octave of batch sizes with the lowest median, or the mean over all frames
    /// if that is lower.
    pub frame: Nanos,
}

/// Why no [`Account`] can be computed from a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoAccount {
    /// No frame arrived.
    #[error("no frame arrived")]
    NoFrames,
    /// The device has no arrival timestamps, so it is unknown when frames arrived.
    #[error("the device recorded no arrival times")]
    NoStamps,
    /// None of the waits has a measured cost.
    #[error("the record contains no sleep or block whose cost was measured")]
    NoPrices,
}

/// Computes an [`Account`] from the decisions, one by one.
#[derive(Debug, Default)]
pub(super) struct Sum {
    window: Option<(u64, u64)>,
    came: Vec<Came>,
    stamped: bool,
    /// Time outside sleeps and blocks, in nanoseconds.
    awake: u64,
    /// For sleeps and for blocks: the measured costs in ns, and the number of waits without a measurement.
    spent: [(Vec<u64>, u64); 2],
    /// CPU time per frame in ns, by octave of batch size.
    frames: [Vec<u64>; OCTAVES],
    /// CPU time of all frames in ns, and their number.
    all_frames: (u64, u64),
}

impl Sum {
    /// Adds the observation of a decision.
    pub fn see(&mut self, seen: &Observation<'_, Monotonic>) {
        let now = seen.now.as_nanos();
        let (began, before) = *self.window.get_or_insert((now, now));
        let mut awake = now.saturating_sub(before);
        if let Some(ended) = seen.ended {
            let kind = match ended.action.kind() {
                WaitKind::Sleep => Some(0),
                WaitKind::Block => Some(1),
                WaitKind::Poll | WaitKind::Pause => None,
            };
            // The wait before the first decision is not part of the account.
            if let Some(kind) = kind
                && ended.began.as_nanos() >= before
            {
                awake = awake.saturating_sub(ended.ended.since(ended.began).unwrap_or(Nanos::ZERO).as_nanos());
                match ended.spent {
                    Some(spent) => self.spent[kind].0.push(spent.as_nanos()),
                    None => self.spent[kind].1 += 1,
                }
            }
        }
        self.awake += awake;
        self.window = Some((began, now));
        let received = seen.received();
        let arrivals = || seen.queues.iter().filter_map(|queue| Some((queue.received, queue.arrivals?)));
        if let Some(taken) = arrivals().map(|(_, arrivals)| arrivals.picked_up.as_nanos()).min()
            && received > 0
        {
            let octave = (received.ilog2() as usize).min(OCTAVES - 1);
            let (spent, received) = (now.saturating_sub(taken), u64::from(received));
            self.frames[octave].push(spent / received);
            let (all, frames) = self.all_frames;
            self.all_frames = (all.saturating_add(spent), frames + received);
        }
        for (received, arrivals) in arrivals().filter(|(received, _)| *received > 0) {
            let (first, last) = (arrivals.first.as_nanos(), arrivals.last.as_nanos());
            // In old records, frames without a timestamp have the time of the pick-up as their timestamp.
            self.stamped |= arrivals.stamped && first != arrivals.picked_up.as_nanos();
            self.came.push(Came { first, last: first, frames: 1 });
            // Of the frames between the first and the last one, only the number is known.
            if received > 2 {
                self.came.push(Came { first, last, frames: u64::from(received) - 2 });
            }
            if received > 1 {
                self.came.push(Came { first: last, last, frames: 1 });
            }
        }
    }

    /// The [`Account`], or the reason why there is none.
    pub fn finish(mut self) -> Result<Account, NoAccount> {
        let window = self.window.filter(|_| !self.came.is_empty()).ok_or(NoAccount::NoFrames)?;
        if !self.stamped {
            return Err(NoAccount::NoStamps);
        }
        let usual = self.spent.each_mut().map(|(spent, _)| usual(spent));
        let wake = usual.into_iter().flatten().min().ok_or(NoAccount::NoPrices)?;
        // Assume that a wait without a measurement costs what is usual for its kind.
        let paid = self
            .spent
            .iter()
            .zip(usual)
            .map(|((spent, others), usual)| total(spent) + u128::from(*others) * u128::from(usual.unwrap_or(wake)));
        let cpu = u64::try_from(u128::from(self.awake) + paid.sum::<u128>()).unwrap_or(u64::MAX);
        let enough = self.frames.iter_mut().filter(|batches| batches.len() >= ENOUGH).filter_map(|b| median(b)).min();
        let frame = enough.or_else(|| self.frames.iter_mut().filter_map(|b| median(b)).min()).unwrap_or(0);
        let frame = self.all_frames.0.checked_div(self.all_frames.1).map_or(frame, |mean| frame.min(mean));
        self.came.sort_by_key(|came| came.first);
        let (wake, frame) = (Nanos::from_nanos(wake), Nanos::from_nanos(frame));
        Ok(Account { window, came: self.came, cpu: Nanos::from_nanos(cpu), wake, frame })
    }
}

/// The lower of median and mean; `None` without values. The median is not raised by a few waits that the machine
/// delayed, and the mean is not raised by the dearer half of the waits if the other half is much cheaper.
fn usual(values: &mut [u64]) -> Option<u64> {
    let mean = total(values) / (values.len() as u128).max(1);
    median(values).map(|median| u128::from(median).min(mean) as u64)
}

/// The sum of the values. A damaged file can have values whose sum exceeds 64 bits.
fn total(values: &[u64]) -> u128 {
    values.iter().map(|value| u128::from(*value)).sum()
}

/// The lower median of the values; `None` if there are none.
fn median(values: &mut [u64]) -> Option<u64> {
    let middle = values.len().checked_sub(1)? / 2;
    Some(*values.select_nth_unstable(middle).1)
}

#[cfg(test)]
mod tests {
    use policy::wait::{Action, Arrivals, Ended, Queue};
    use units::Instant;

    use super::*;

    fn at(ns: u64) -> Instant<Monotonic> {
        Instant::from_nanos(ns)
    }

    /// Adds a decision at `now` after a wait (began, ended, spent), with frames (number, first and last arrival, time
    /// of the pick-up).
    fn see(sum: &mut Sum, now: u64, wait: Option<(u64, u64, Option<u64>)>, frames: Option<(u32, u64, u64, u64)>) {
        let ended = wait.map(|(began, ended, spent)| Ended {
            action: Action::SleepUntil(at(ended)),
            began: at(began),
            ended: at(ended),
            spent: spent.map(Nanos::from_nanos),
            idle: Nanos::ZERO,
        });
        let arrivals = |(_, first, last, taken)| Arrivals::stamped(at(first), at(last), at(taken));
        let received = frames.map_or(0, |(received, ..)| received);
        let queue = Queue { received, fill: received, arrivals: frames.map(arrivals) };
        sum.see(&Observation { now: at(now), queues: &[queue], ended });
    }

    #[test]
    fn time_outside_waits_and_what_they_cost() {
        let mut sum = Sum::default();
        see(&mut sum, 1_000, Some((0, 900, Some(77))), None);
        // 100 ns awake, a sleep of 800 ns that cost 30 ns, and 100 ns for the poll.
        see(&mut sum, 2_000, Some((1_100, 1_900, Some(30))), Some((1, 1_500, 1_500, 1_950)));
        see(&mut sum, 3_000, Some((2_000, 2_900, Some(50))), Some((5, 2_100, 2_600, 2_950)));
        // The wait was not measured, so it costs the median, 30 ns.
        see(&mut sum, 4_000, Some((3_000, 4_000, None)), None);
        // The worker polls again without a wait.
        see(&mut sum, 4_100, None, None);
        let account = sum.finish().unwrap();
        assert_eq!(account.window, (1_000, 4_100));
        assert_eq!(account.cpu.as_nanos(), (200 + 30) + (100 + 50) + 30 + 100);
        assert_eq!((account.wake.as_nanos(), account.frame.as_nanos()), (30, 10));
        let came = |first, last, frames| Came { first, last, frames };
        let expected = [came(1_500, 1_500, 1), came(2_100, 2_100, 1), came(2_100, 2_600, 3), came(2_600, 2_600, 1)];
        assert_eq!(account.came, expected);
    }

    /// The least possible was more than the run spent.
    #[test]
    fn prices_are_not_above_what_the_run_paid() {
        let mut sum = Sum::default();
        let mut now = 1_000_000;
        see(&mut sum, now, None, None);
        // Of the sleeps, 60 % cost 100 ns and the others 10. Most frames come in 7 batches of 64, at 10 ns a frame; 20
        // come alone, at 400 ns.
        for number in 0..27u64 {
            let (from, to) = (now, now + 10_000);
            let (frames, each) = if number % 4 == 3 || number == 26 { (64, 10) } else { (1, 400) };
            let spent = if number % 5 < 3 { 100 } else { 10 };
            now = to + u64::from(frames) * each;
            see(&mut sum, now, Some((from, to, Some(spent))), Some((frames, from + 5, from + 90, to)));
        }
        let account = sum.finish().unwrap();
        let sleeps = 17 * 100 + 10 * 10;
        assert_eq!(account.cpu.as_nanos(), sleeps + 20 * 400 + 7 * 640);
        assert_eq!(account.wake.as_nanos(), sleeps / 27);
        assert_eq!(account.frame.as_nanos(), (20 * 400 + 7 * 640) / (20 + 7 * 64));
        assert!(account.wake.as_nanos() * 27 + account.frame.as_nanos() * 468 <= account.cpu.as_nanos());
    }

    #[test]
    fn costs_of_centuries_are_added_up() {
        let mut sum = Sum::default();
        see(&mut sum, 1_000, None, Some((1, 800, 800, 900)));
        see(&mut sum, 3_000, Some((1_100, 2_900, Some(u64::MAX))), None);
        see(&mut sum, 5_000, Some((3_100, 4_900, Some(u64::MAX))), None);
        see(&mut sum, 7_000, Some((5_100, 6_900, None)), None);
        let account = sum.finish().unwrap();
        assert_eq!((account.cpu.as_nanos(), account.wake.as_nanos()), (u64::MAX, u64::MAX));
    }

    #[test]
    fn what_is_missing_is_said() {
        assert_eq!(Sum::default().finish(), Err(NoAccount::NoFrames));
        let mut sum = Sum::default();
        see(&mut sum, 1_000, None, Some((2, 900, 900, 900)));
        assert_eq!(sum.finish(), Err(NoAccount::NoStamps));
        let mut sum = Sum::default();
        see(&mut sum, 1_000, None, Some((2, 800, 850, 900)));
        see(&mut sum, 2_000, Some((1_100, 1_900, None)), None);
        assert_eq!(sum.finish(), Err(NoAccount::NoPrices));
    }
}
