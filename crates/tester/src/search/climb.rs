//! The search for the highest rate at which the tester itself can send.

/// Rate of the first trial, in frames per second: low enough for any tester.
const FIRST_PPS: u64 = 25_000;
/// Lowest rate of a trial, in frames per second.
const LOWEST_PPS: u64 = 1_000;
/// Share of a trial's frames that must be sent for its rate to pass.
const NEARLY_ALL: f64 = 0.999;
/// Number of failed trials after which a rate counts as failed. A disturbance, such as a stall of the machine, rarely
/// affects all trials.
const TRIES: u32 = 3;
/// Number of rates tried between the highest rate that passed and the lowest that failed. After the doubling, 4 such
/// rates leave a factor of 2^(1/16) between the bounds: an uncertainty of 4.4 %.
const REFINEMENTS: u32 = 4;

/// Doubles the rate until the tester can no longer send nearly all frames. Then searches between the last two rates.
///
/// The search starts at a low rate, because an overloaded tester sends less than it could: it spends its time on frames
/// that it then skips. A device under test on the same CPU would also get no CPU time.
///
/// ```text
///  Climb::next_rate ──► rate ──► trial ──► rate at which frames were sent ──► Climb::record ──► …
/// ```
#[derive(Clone, Debug)]
pub struct Climb {
    wanted: u64,
    offered: u64,
    tries: u32,
    refinements: u32,
    passed: u64,
    failed: Option<u64>,
    best: f64,
}

impl Climb {
    /// Starts a search for rates up to `wanted`, in frames per second.
    pub fn new(wanted: u64) -> Self {
        let offered = wanted.clamp(1, FIRST_PPS);
        Self { wanted: wanted.max(1), offered, tries: 0, refinements: 0, passed: 0, failed: None, best: 0.0 }
    }

    /// The rate of the next trial, in frames per second; `None` when the search has ended.
    pub fn next_rate(&self) -> Option<u64> {
        let ended = self.passed >= self.wanted
            || self.refinements > REFINEMENTS
            || self.failed.is_some_and(|failed| failed <= LOWEST_PPS);
        (!ended).then_some(self.offered)
    }

    /// Records the rate at which frames were sent in the trial at [`next_rate`](Self::next_rate), in frames per second.
    pub fn record(&mut self, sent_pps: f64) {
        self.best = self.best.max(sent_pps.min(self.offered as f64));
        if sent_pps >= NEARLY_ALL * self.offered as f64 {
            self.passed = self.offered;
        } else {
            self.tries += 1;
            if self.tries < TRIES {
                return;
            }
            self.failed = Some(self.offered);
        }
        self.tries = 0;
        self.offered = match self.failed {
            None => (2 * self.offered).min(self.wanted),
            Some(failed) if self.passed == 0 => (failed / 2).max(LOWEST_PPS.min(self.wanted)),
            Some(failed) => {
                self.refinements += 1;
                (self.passed as f64 * failed as f64).sqrt() as u64
            }
        };
    }

    /// The result in frames per second: the highest rate at which nearly all frames were sent. If there is no such
    /// rate, the highest rate at which frames were actually sent in a trial.
    pub fn found(&self) -> u64 {
        if self.passed > 0 { self.passed } else { self.best as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches with a simulated tester that can send `capacity`, but far less if the rate is higher. One trial in
    /// `each` is disturbed. Returns the rate found and the number of trials.
    fn climb(wanted: u64, capacity: u64, each: u32) -> (u64, u32) {
        let mut search = Climb::new(wanted);
        let mut trials = 0;
        while let Some(rate) = search.next_rate() {
            trials += 1;
            let (rate, capacity) = (rate as f64, capacity as f64);
            let sent = if rate <= capacity { rate } else { capacity * (capacity / rate).powi(2) };
            search.record(if trials % each == 0 { 0.9 * sent } else { sent });
        }
        (search.found(), trials)
    }

    #[test]
    fn a_tester_that_collapses_when_it_is_overloaded_is_found() {
        for capacity in [1_500, 9_000, 24_999, 60_000, 276_000, 735_000, 1_900_000, 4_999_999] {
            for each in [2, 3, 7, u32::MAX] {
                let (found, trials) = climb(5_000_000, capacity, each);
                let share = found as f64 / capacity as f64;
                assert!((0.93..1.001).contains(&share), "{capacity}, 1 in {each}: {found}");
                assert!(trials <= 45, "{capacity}, 1 in {each}: {trials} trials");
            }
            // Without disturbance, it takes 8 doublings, and 3 trials for each rate that fails.
            assert!(climb(5_000_000, capacity, u32::MAX).1 <= 26);
        }
    }

    #[test]
    fn the_wanted_rate_is_reached_exactly_or_not_claimed() {
        assert_eq!(climb(100_000, 1_000_000, u32::MAX), (100_000, 3));
        assert_eq!(climb(14_880, 1_000_000, u32::MAX), (14_880, 1));
        assert_eq!(climb(1, 10, u32::MAX), (1, 1));
        assert!(climb(100_000, 99_000, u32::MAX).0 <= 99_000);
        // This tester cannot send even the lowest rate.
        let (found, trials) = climb(1_000_000, 400, u32::MAX);
        assert!(found <= 400 && trials <= 20, "{found} in {trials}");
    }
}
