//! Records when each timer activation was served or missed. This module does no I/O, so tests can simulate stalls.

use tester::document::Distribution;
use units::{Instant, Monotonic, Nanos};

use crate::record::Recorder;

/// Number of stalls that are stored until the end of the run, so that back-filling them does not delay activations.
const STALLS: usize = 1 << 16;

/// A periodic series of timer activations and their lateness. An activation is a time at which the thread should run.
#[derive(Clone, Debug)]
pub struct Activations {
    start: Instant<Monotonic>,
    interval: Nanos,
    due: Instant<Monotonic>,
    raw: Recorder,
    /// The samples of activations that a stall hid, as far as they have been back-filled.
    filled: Recorder,
    /// Lateness of each activation that hid others which have not been back-filled yet.
    unfilled: Vec<Nanos>,
    stalls: u64,
    blocked: Nanos,
    swallowed: u64,
}

impl Activations {
    /// Creates a series whose first activation is due one `interval` after `start`. An interval of zero becomes 1 ns.
    pub fn new(start: Instant<Monotonic>, interval: Nanos) -> Self {
        let interval = interval.max(Nanos::from_nanos(1));
        Self {
            start,
            interval,
            due: start + interval,
            raw: Recorder::new(),
            filled: Recorder::new(),
            unfilled: Vec::with_capacity(STALLS),
            stalls: 0,
            blocked: Nanos::ZERO,
            swallowed: 0,
        }
    }

    /// Restarts the series at `start`. Call it when all preparations are done, so that no sample contains them.
    ///
    /// # Panics
    /// Panics if an activation was already counted.
    pub fn begin(&mut self, start: Instant<Monotonic>) {
        assert!(self.raw.is_empty(), "a series of activations begins before its first sample");
        self.start = start;
        self.due = start + self.interval;
    }

    /// Due time of the next activation.
    pub fn due(&self) -> Instant<Monotonic> {
        self.due
    }
    /// Start of the series.
    pub fn start(&self) -> Instant<Monotonic> {
        self.start
    }

    /// Records that the thread runs at `now`. Returns how late it is for the activation that was due, or `None` if none
    /// is due yet. Further activations that became due before `now` count as hidden by a stall; the next one is due
    /// after `now`.
    #[inline]
    pub fn woke(&mut self, now: Instant<Monotonic>) -> Option<Nanos> {
        let late = now.since(self.due)?;
        self.raw.record(late);
        let swallowed = late.as_nanos() / self.interval.as_nanos();
        self.due = self.due + self.interval * (swallowed + 1);
        if swallowed > 0 {
            self.stalled(late, swallowed);
        }
        Some(late)
    }

    #[cold]
    fn stalled(&mut self, late: Nanos, swallowed: u64) {
        self.stalls += 1;
        self.swallowed += swallowed;
        self.blocked += late;
        if self.unfilled.len() == self.unfilled.capacity() {
            self.fill();
        }
        self.unfilled.push(late);
    }

    fn fill(&mut self) {
        for late in self.unfilled.drain(..) {
            let mut rest = late;
            while let Some(shorter) = rest.checked_sub(self.interval) {
                self.filled.record(shorter);
                rest = shorter;
            }
        }
    }

    /// Returns the raw and the back-filled series, in this order. If `refused` is given, they have no quantiles, with
    /// this text as the reason.
    pub fn series(&self, refused: Option<&str>) -> (Distribution, Distribution) {
        let mut all = self.clone();
        all.fill();
        all.filled.add(&all.raw);
        (all.raw.series(refused), all.filled.series(refused))
    }

    /// Number of activations for which the thread ran.
    pub fn served(&self) -> u64 {
        self.raw.len()
    }
    /// Number of activations that passed during a stall, without the thread running for them.
    pub fn swallowed(&self) -> u64 {
        self.swallowed
    }
    /// Number of stalls: activations that were served at least one interval late.
    pub fn stalls(&self) -> u64 {
        self.stalls
    }
    /// Total length of the stalls.
    pub fn blocked(&self) -> Nanos {
        self.blocked
    }
    /// Total lateness: the time in which an activation was due but not served.
    pub fn late(&self) -> Nanos {
        self.raw.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const START: Instant<Monotonic> = Instant::from_nanos(1_000_000);

    fn at(micros: u64) -> Instant<Monotonic> {
        START + Nanos::from_micros(micros)
    }

    #[test]
    fn a_stall_counts_with_every_activation_that_it_swallowed() {
        let mut activations = Activations::new(START, Nanos::from_micros(10));
        assert_eq!(activations.woke(at(9)), None);
        assert_eq!(activations.woke(at(12)), Some(Nanos::from_micros(2)));
        // The activation at 20 is served late, and those at 30 and 40 pass.
        assert_eq!(activations.woke(at(45)), Some(Nanos::from_micros(25)));
        assert_eq!(activations.due(), at(50));
        // The activation is exactly one interval late, so the next one is due at the same moment.
        assert_eq!(activations.woke(at(60)), Some(Nanos::from_micros(10)));
        assert_eq!(activations.due(), at(70));
        let (raw, filled) = activations.series(None);
        assert_eq!((raw.count, filled.count), (3, 6));
        assert_eq!((activations.served(), activations.swallowed(), activations.stalls()), (3, 3, 2));
        assert_eq!(activations.blocked(), Nanos::from_micros(35));
        assert_eq!(activations.late(), Nanos::from_micros(37));
        // The samples are 25, 15, 5, 10, 0 and 2 us.
        assert_eq!(filled.mean_ns, Some(57_000 / 6));
    }

    #[test]
    fn the_time_until_it_begins_is_no_activations() {
        let mut activations = Activations::new(START, Nanos::from_micros(10));
        activations.begin(at(1_000));
        assert_eq!(activations.woke(at(1_012)), Some(Nanos::from_micros(2)));
        assert_eq!((activations.start(), activations.served(), activations.swallowed()), (at(1_000), 1, 0));
    }

    #[test]
    fn the_second_that_a_stopped_process_loses() {
        // The published example: 1 s of 5 s is lost, with an interval of 1 ms.
        let mut activations = Activations::new(START, Nanos::from_millis(1));
        let mut now = START;
        while now < at(5_000_000) {
            now = activations.due() + Nanos::from_micros(12);
            if activations.due() == at(2_000_000) {
                now = now + Nanos::from_secs(1);
            }
            activations.woke(now);
        }
        let (raw, filled) = activations.series(None);
        assert!(raw.p99_ns.unwrap() < 13_000, "{:?}", raw.p99_ns);
        assert!(filled.p99_ns.unwrap() > 900_000_000, "{:?}", filled.p99_ns);
        assert_eq!(raw.count + activations.swallowed(), filled.count);
        assert_eq!(activations.blocked(), Nanos::from_nanos(1_000_012_000));
    }

    proptest! {
        #[test]
        fn every_activation_is_served_or_swallowed(steps in proptest::collection::vec(0u64..100, 1..200), interval in 1u64..20) {
            let interval = Nanos::from_micros(interval);
            let mut activations = Activations::new(START, interval);
            let mut now = START;
            for step in steps {
                now = now + Nanos::from_micros(step);
                activations.woke(now);
                prop_assert!(activations.due() > now);
            }
            let passed = now.since(START).unwrap().as_nanos() / interval.as_nanos();
            prop_assert_eq!(activations.served() + activations.swallowed(), passed);
            let (_, filled) = activations.series(None);
            prop_assert_eq!(filled.count, passed);
        }
    }
}
