//! The loop that never sleeps, and the evaluation of its clock readings.

use live::cpu::Cpu;
use tester::histogram::HIGHEST_NS;
use units::{Instant, Monotonic, Nanos};

use super::packets::{Backlog, Traffic};
use crate::detail::jitter::Packets;
use crate::record::Recorder;
use crate::ring::Ring;

/// What the loop looks for, and for which traffic.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// Passes longer than this are gaps.
    pub gap_over: Nanos,
    /// Disturbances longer than this are handed over to be explained.
    pub explain_over: Nanos,
    /// A gap longer than this ends the loop; `None` for no threshold.
    pub fail_over: Option<Nanos>,
    /// Traffic for which the effect of gaps is computed.
    pub traffic: Traffic,
}

/// Result of the loop. Every nanosecond from `begin` to `end` is in `work` or in `gaps`.
#[derive(Clone, Debug)]
pub(super) struct Spun {
    pub begin: Instant<Monotonic>,
    pub end: Instant<Monotonic>,
    /// Passes that were not gaps.
    pub work: Recorder,
    /// Passes that were gaps.
    pub gaps: Recorder,
    /// The gaps above the range of the histogram in `gaps`, which only counts them.
    pub longest: Vec<Nanos>,
    /// Number of gaps above `explain_over`. `large_sum` is their total length.
    pub large: u64,
    pub large_sum: Nanos,
    /// Number of clock readings that were earlier than the reading before.
    pub backwards: u64,
    /// Start and length of the gap that ended the loop; `None` if no gap did.
    pub over: Option<(Instant<Monotonic>, Nanos)>,
    pub packets: Packets,
}

impl Spun {
    /// The durations of all passes, whether they were gaps or not.
    pub(super) fn passes(mut self) -> Recorder {
        self.work.add(&self.gaps);
        self.work
    }
}

/// Gaps at most this far apart count as one disturbance: in a storm of interrupts, no gap is long, but the loop gets
/// nothing done.
pub(super) const TOGETHER: Nanos = Nanos::from_micros(5);
/// A disturbance longer than this is handed over in pieces.
const PIECE: Nanos = Nanos::from_millis(100);
const NEVER: Instant<Monotonic> = Instant::from_nanos(u64::MAX);

/// One or more gaps, close together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Disturbance {
    pub from: Instant<Monotonic>,
    pub to: Instant<Monotonic>,
    /// Total length of the gaps.
    pub away: Nanos,
    pub gaps: u64,
}

impl Disturbance {
    pub(super) fn to_numbers(self) -> [u64; 4] {
        [self.from.as_nanos(), self.to.as_nanos(), self.away.as_nanos(), self.gaps]
    }
    pub(super) fn from_numbers([from, to, away, gaps]: [u64; 4]) -> Self {
        let (from, to) = (Instant::from_nanos(from), Instant::from_nanos(to));
        Self { from, to, away: Nanos::from_nanos(away), gaps }
    }
}

/// Busy-loops for `duration`, or until `stop` returns true. Disturbances go into `large`.
///
/// A pass reads the clock once and counts the previous pass. Counting is part of the next pass, so no time is missed.
#[inline(never)]
pub(super) fn spin(cpu: &impl Cpu, duration: Nanos, look: Look, large: &Ring<4>, stop: impl Fn() -> bool) -> Spun {
    // Counts passes by nanosecond, up to the shortest gap: an addition takes less time than recording in a histogram.
    let mut short = vec![0u64; look.gap_over.as_nanos() as usize + 1];
    let mut long = Long {
        look,
        ring: large,
        disturbance: None,
        complete_after: NEVER,
        gaps: Recorder::new(),
        longest: Vec::new(),
        large: 0,
        large_sum: Nanos::ZERO,
        over: None,
        backlog: Backlog::new(look.traffic),
        present_from: Instant::ORIGIN,
    };
    // The time starts here, because creating the tables above takes longer than many gaps.
    let begin = cpu.now();
    long.present_from = begin;
    let until = begin + duration;
    let (mut last, mut backwards) = (begin, 0);
    loop {
        let now = cpu.now();
        match now.since(last) {
            Some(round) => match short.get_mut(round.as_nanos() as usize) {
                Some(count) => *count += 1,
                None => long.gap(last, now),
            },
            None => backwards += 1,
        }
        last = now;
        if now > long.complete_after {
            long.flush();
        }
        if now >= until || long.over.is_some() || stop() {
            break;
        }
    }
    let mut work = Recorder::new();
    for (nanos, count) in short.into_iter().enumerate() {
        work.record_n(Nanos::from_nanos(nanos as u64), count);
    }
    long.flush();
    let present = last.since(long.present_from).unwrap_or(Nanos::ZERO);
    let Long { gaps, longest, large, large_sum, over, backlog, .. } = long;
    Spun { begin, end: last, work, gaps, longest, large, large_sum, backwards, over, packets: backlog.end(present) }
}

/// Collects the gaps of one disturbance.
struct Long<'a> {
    look: Look,
    ring: &'a Ring<4>,
    disturbance: Option<Disturbance>,
    /// After this time, no further gap can belong to `disturbance`.
    complete_after: Instant<Monotonic>,
    gaps: Recorder,
    longest: Vec<Nanos>,
    large: u64,
    large_sum: Nanos,
    over: Option<(Instant<Monotonic>, Nanos)>,
    backlog: Backlog,
    present_from: Instant<Monotonic>,
}

impl Long<'_> {
    #[cold]
    fn gap(&mut self, from: Instant<Monotonic>, to: Instant<Monotonic>) {
        let gap = to.since(from).unwrap_or(Nanos::ZERO);
        self.gaps.record(gap);
        if gap.as_nanos() > HIGHEST_NS {
            self.longest.push(gap);
        }
        self.backlog.gap(from.since(self.present_from).unwrap_or(Nanos::ZERO), gap);
        self.present_from = to;
        if gap > self.look.explain_over {
            self.large += 1;
            self.large_sum += gap;
        }
        let together = |of: &Disturbance| {
            from.since(of.to).is_some_and(|between| between <= TOGETHER)
                && to.since(of.from).is_some_and(|length| length <= PIECE)
        };
        match &mut self.disturbance {
            Some(of) if together(of) => {
                *of = Disturbance { to, away: of.away + gap, gaps: of.gaps + 1, ..*of };
            }
            _ => {
                self.flush();
                self.disturbance = Some(Disturbance { from, to, away: gap, gaps: 1 });
            }
        }
        self.complete_after = to + TOGETHER;
        if self.look.fail_over.is_some_and(|threshold| gap > threshold) {
            self.over = Some((from, gap));
        }
    }

    /// Hands over the last disturbance if it is long enough. This must happen before the next gap: if only counters are
    /// available, a disturbance is explained by all changes until it is fetched.
    fn flush(&mut self) {
        self.complete_after = NEVER;
        if let Some(of) = self.disturbance.take().filter(|of| of.away > self.look.explain_over) {
            self.ring.push(of.to_numbers());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use live::cpu::{LinuxCpu, Woken};
    use proptest::prelude::*;
    use std::cell::Cell;
    use std::os::fd::BorrowedFd;

    /// A clock whose readings are given.
    struct Script(Vec<u64>, Cell<usize>);
    impl Cpu for Script {
        fn now(&self) -> Instant<Monotonic> {
            let at = self.1.get();
            self.1.set(at + 1);
            Instant::from_nanos(self.0[at])
        }
        fn pause_until(&mut self, until: Instant<Monotonic>) -> Instant<Monotonic> {
            until
        }
        fn sleep_until(&mut self, _until: Instant<Monotonic>) {}
        fn block_until(&mut self, _handles: &[BorrowedFd<'_>], _until: Instant<Monotonic>) -> Woken {
            Woken::ByTime
        }
    }

    fn look(fail_over: Option<Nanos>) -> Look {
        let (gap_over, explain_over) = (Nanos::from_micros(1), Nanos::from_micros(10));
        Look { gap_over, explain_over, fail_over, traffic: Traffic::default() }
    }

    fn run(readings: &[u64], look: Look) -> (Spun, Vec<Disturbance>) {
        let ring = Ring::new(64);
        let duration = Nanos::from_nanos(readings.last().unwrap() - readings[0]);
        let spun = spin(&Script(readings.to_vec(), Cell::new(0)), duration, look, &ring, || false);
        let mut large = Vec::new();
        ring.drain(|numbers| large.push(Disturbance::from_numbers(numbers)));
        (spun, large)
    }

    #[test]
    fn rounds_gaps_and_large_gaps() {
        let (spun, large) = run(&[0, 30, 1_030, 1_060, 3_060, 23_060, 23_050, 23_080], look(None));
        assert_eq!((spun.work.len(), spun.gaps.len(), spun.large, spun.backwards), (4, 2, 1, 1));
        let (from, to) = (Instant::from_nanos(1_060), Instant::from_nanos(23_060));
        assert_eq!(large, [Disturbance { from, to, away: Nanos::from_micros(22), gaps: 2 }]);
        assert_eq!((spun.large_sum, spun.gaps.max()), (Nanos::from_micros(20), Some(Nanos::from_micros(20))));
    }

    #[test]
    fn gaps_above_the_histogram_are_kept_and_all_passes_are_counted() {
        let long = Nanos::from_nanos(5_000_000_123);
        let (spun, _) = run(&[0, 30, 2_030, 2_030 + long.as_nanos()], look(None));
        assert_eq!(spun.longest, [long]);
        let passes = spun.passes();
        assert_eq!((passes.len(), passes.median()), (3, Some(Nanos::from_nanos(2_000))));
    }

    #[test]
    fn a_storm_of_short_gaps_is_one_disturbance() {
        // 60 times 3 us of gap and 0.8 us of loop; then a quiet time, and a single gap of 9 us, which is no disturbance
        // to explain.
        let mut readings = vec![0];
        for _ in 0..60 {
            let last = *readings.last().unwrap();
            readings.extend([last + 3_000, last + 3_800]);
        }
        let end = *readings.last().unwrap() - 800;
        let quiet = (1..=20).map(|n| end + 800 + n * 900);
        readings.extend(quiet.collect::<Vec<_>>());
        let last = *readings.last().unwrap();
        readings.extend([last + 9_000, last + 9_030]);
        let (spun, large) = run(&readings, look(None));
        assert_eq!((spun.gaps.len(), spun.large), (61, 0));
        let (from, to) = (Instant::ORIGIN, Instant::from_nanos(end));
        assert_eq!(large, [Disturbance { from, to, away: Nanos::from_micros(180), gaps: 60 }]);
    }

    /// A clock that notes whether a disturbance was handed over before each of its readings.
    struct Observed<'a> {
        readings: Script,
        ring: &'a Ring<4>,
        handed_over_before: Cell<Option<usize>>,
    }
    impl Cpu for Observed<'_> {
        fn now(&self) -> Instant<Monotonic> {
            self.ring.drain(|_| self.handed_over_before.set(Some(self.readings.1.get())));
            self.readings.now()
        }
        fn pause_until(&mut self, until: Instant<Monotonic>) -> Instant<Monotonic> {
            until
        }
        fn sleep_until(&mut self, _until: Instant<Monotonic>) {}
        fn block_until(&mut self, _handles: &[BorrowedFd<'_>], _until: Instant<Monotonic>) -> Woken {
            Woken::ByTime
        }
    }

    #[test]
    fn a_disturbance_does_not_wait_for_the_next_gap() {
        // A gap of 20 us, passes of 0.9 us, and a gap of 5 ms: the first one is complete 5 us after its end, at 25,400.
        let mut readings: Vec<u64> = vec![0, 20_000];
        readings.extend((1..=20).map(|n| 20_000 + n * 900));
        readings.push(5_038_000);
        let duration = Nanos::from_nanos(5_038_000);
        let ring = Ring::new(64);
        let clock =
            Observed { readings: Script(readings, Cell::new(0)), ring: &ring, handed_over_before: Cell::new(None) };
        spin(&clock, duration, look(None), &ring, || false);
        assert_eq!(clock.handed_over_before.get(), Some(8), "the reading after 25,400");
    }

    #[test]
    fn a_gap_over_the_threshold_ends_it() {
        let (spun, _) = run(&[0, 30, 20_030, 20_060, 99_000], look(Some(Nanos::from_micros(15))));
        assert_eq!(spun.over, Some((Instant::from_nanos(30), Nanos::from_micros(20))));
        assert_eq!(spun.end, Instant::from_nanos(20_030));
    }

    /// The live clock, with each reading between two readings of another clock. However long this thread is off its
    /// CPU, the reading was taken between them.
    #[derive(Default)]
    struct Bracketed {
        first: Cell<Option<(u64, u64)>>,
        last: Cell<(u64, u64)>,
    }
    impl Cpu for Bracketed {
        fn now(&self) -> Instant<Monotonic> {
            let raw = || {
                let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicRaw);
                now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
            };
            let before = raw();
            let now = LinuxCpu.now();
            self.last.set((before, raw()));
            self.first.set(self.first.get().or(Some(self.last.get())));
            now
        }
        fn pause_until(&mut self, until: Instant<Monotonic>) -> Instant<Monotonic> {
            until
        }
        fn sleep_until(&mut self, _until: Instant<Monotonic>) {}
        fn block_until(&mut self, _handles: &[BorrowedFd<'_>], _until: Instant<Monotonic>) -> Woken {
            Woken::ByTime
        }
    }

    #[test]
    fn loses_no_time_on_this_machine() {
        let ring = Ring::new(1024);
        let clock = Bracketed::default();
        let spun = spin(&clock, Nanos::from_millis(200), look(None), &ring, || false);
        let accounted = (spun.work.sum() + spun.gaps.sum()).as_nanos();
        assert_eq!(accounted, spun.end.since(spun.begin).unwrap().as_nanos());
        // Measured by the other clock, which is not disciplined: adjtimex(2) allows 500 ppm.
        let (first, last) = (clock.first.get().unwrap(), clock.last.get());
        let (least, most) = (last.0 - first.1, last.1 - first.0);
        assert!(accounted >= least - least / 1_000, "{accounted} of at least {least} ns");
        assert!(accounted <= most + most / 1_000, "{accounted} of at most {most} ns");
    }

    proptest! {
        #[test]
        fn gaps_and_work_are_all_the_time_there_is(rounds in proptest::collection::vec(0u64..30_000, 1..200)) {
            let mut readings = vec![1_000];
            for round in &rounds {
                readings.push(readings.last().unwrap() + round);
            }
            // The loop ends at the first reading that is not earlier than the last one.
            let (spun, _) = run(&readings, look(None));
            prop_assert_eq!(spun.work.sum() + spun.gaps.sum(), Nanos::from_nanos(rounds.iter().sum()));
        }
    }
}
