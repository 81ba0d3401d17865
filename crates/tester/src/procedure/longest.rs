//! Computes in advance how long the procedures of RFC 2544 can take.

use units::Nanos;

use super::Plan;
use super::effort::{Effort, Test};
use super::measure::LEARNING;
use crate::Error;
use crate::search::{BinarySearch, BurstSearch, LossCurve, Outcome, Search};

impl Plan {
    /// Longest time that each test takes for one frame size if `max_pps` is the highest rate to try. Does not include
    /// trials that a search repeats because of a disturbance, nor the time to open the ports.
    pub fn longest(&self, max_pps: u64) -> Result<Vec<(Test, Nanos)>, Error> {
        let effort = &self.effort;
        let mut found = Vec::new();
        for test in Test::ALL.into_iter().filter(|test| *test == Test::Throughput || self.tests.contains(test)) {
            let longest = match test {
                Test::Throughput => throughput(effort, self.min_pps, max_pps)? * u64::from(effort.searches),
                Test::Latency => trial(effort, effort.stream) * u64::from(effort.streams),
                Test::Loss => searched(effort, &mut LossCurve::new(max_pps, effort.loss_step_ppm, effort.trial)?, 0),
                Test::BackToBack => bursts(effort, max_pps)? * u64::from(effort.bursts),
                Test::Recovery => trial(effort, effort.overload * 2) * u64::from(effort.overloads),
                Test::Reset => trial(effort, effort.reset_trial),
            };
            found.push((test, longest));
        }
        Ok(found)
    }
}

/// Time of a trial of length `span`, including its learning frames and pauses.
fn trial(effort: &Effort, span: Nanos) -> Nanos {
    LEARNING + effort.after_learning + span + effort.residue + effort.between
}

/// Longest time of a throughput search. The search needs the most trials either on the slowest device that passes at
/// the lowest rate, or on the fastest device that fails at the highest rate.
fn throughput(effort: &Effort, min_pps: u64, max_pps: u64) -> Result<Nanos, Error> {
    let mut longest = Nanos::ZERO;
    for capacity in [min_pps, max_pps.saturating_sub(1)] {
        let mut search = BinarySearch::new(effort.search(min_pps, max_pps))?;
        longest = longest.max(searched(effort, &mut search, capacity));
    }
    Ok(longest)
}

/// Time of a search on a device that forwards `capacity` frames per second.
fn searched(effort: &Effort, search: &mut impl Search, capacity: u64) -> Nanos {
    let mut sum = Nanos::ZERO;
    while let Some(step) = search.next_step() {
        sum += trial(effort, step.duration);
        let lost = step.load_pps.saturating_sub(capacity);
        search.record(step, Outcome { sent: step.load_pps, lost, unsent: 0 });
    }
    sum
}

/// Longest time of a burst search: the device loses only the last frame of the longest burst, so all bursts are long.
fn bursts(effort: &Effort, max_pps: u64) -> Result<Nanos, Error> {
    let longest = effort.longest_frames(max_pps);
    let mut search = BurstSearch::new(longest, 1)?;
    let mut sum = Nanos::ZERO;
    while let Some(frames) = search.next_frames() {
        sum += trial(effort, Nanos::from_secs(1).scale(frames, max_pps));
        search.record(frames, frames >= longest);
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::FrameSize;
    use crate::procedure::run;
    use crate::procedure::simulated::Simulated;
    use crate::sizes::Sizes;

    fn plan(effort: Effort, min_pps: u64) -> Plan {
        Plan {
            sizes: vec![Sizes::one(FrameSize::SMALLEST)],
            tests: Test::ALL.to_vec(),
            effort,
            min_pps,
            max_pps: None,
            line_bits_per_s: None,
            alone: Vec::new(),
            deviations: Vec::new(),
        }
    }

    #[test]
    fn no_procedure_takes_longer() {
        // Fewer repetitions, because each takes as long as the first.
        for effort in [Effort { streams: 3, bursts: 3, overloads: 3, ..Effort::FULL }, Effort::QUICK] {
            let plan = plan(effort, 10);
            let longest = plan.longest(2_000).unwrap().into_iter().fold(Nanos::ZERO, |sum, (_, time)| sum + time);
            for (capacity_pps, buffer) in [(20, 2), (300, 2), (1_000, 500), (1_900, 2_000), (1_990, 2), (5_000, 2)] {
                let mut device = Simulated { capacity_pps, buffer, ..Simulated::new(1) };
                let result = run(&mut device, &plan, &mut |_| {});
                assert!(result.ended.complete);
                // The simulated device's time includes one more trial, which finds the tester's own limit.
                assert!(device.now <= longest + effort.trial, "{capacity_pps}, {buffer}: {} of {longest}", device.now);
            }
        }
    }

    /// docs/measure-a-device.md states these times.
    #[test]
    fn times_of_the_full_effort() {
        let found = plan(Effort::FULL, 1_000).longest(100_000).unwrap();
        let minutes = |test: Test| {
            let (_, time) = found.iter().find(|(of, _)| *of == test).unwrap();
            time.as_nanos() / 60_000_000_000
        };
        assert!((12..16).contains(&minutes(Test::Throughput)), "{found:?}");
        assert_eq!([Test::Latency, Test::Loss, Test::Recovery].map(minutes), [43, 11, 43]);
        assert!((11 * 60..13 * 60).contains(&minutes(Test::BackToBack)), "{found:?}");
    }
}
