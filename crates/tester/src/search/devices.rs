//! Simulated devices with known capacity, for the tests of searches. The same seed always gives the same behaviour.

use units::Nanos;

use super::{Outcome, Step};
use crate::Random;

/// The behaviour of a device.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Kind {
    /// Always forwards up to its capacity.
    Steady,
    /// Loses its CPU at random times, on average once every `every_s` seconds. Each time, the frames of up to 2 ms are
    /// lost.
    Noisy { every_s: f64 },
    /// Loses 1 in 1,000 frames at loads of 55-70 % of its capacity, but none at 70-100 %.
    Inverted,
    /// Has half of its capacity during its first `for_s` seconds of traffic.
    Cold { for_s: f64 },
    /// Its capacity slowly moves between the full capacity and `share` below it.
    Changing { share: f64 },
}

/// A device and its state.
#[derive(Clone, Debug)]
pub struct Device {
    kind: Kind,
    capacity: f64,
    random: Random,
    /// Total time of traffic so far, in s.
    worked_s: f64,
    /// How far the capacity has currently moved, from 0 (full) to 1 (lowest).
    changed: f64,
    pub trials: u32,
    pub total_s: f64,
}

/// Range of loads that contains the capacity of every device.
pub const RANGE: (u64, u64) = (10_000, 2_000_000);

impl Device {
    /// Creates a device. The seed determines its capacity, within [`RANGE`], and its random numbers.
    pub fn new(kind: Kind, seed: u64) -> Self {
        let mut random = Random::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let capacity = 40_000.0 * (45.0f64).powf(random.unit());
        Self { kind, capacity, random, worked_s: 0.0, changed: 0.5, trials: 0, total_s: 0.0 }
    }

    /// The correct results for a goal with the loss ratio `loss_ratio`, each as a range of loads. With
    /// [`Kind::Inverted`], two results are correct, because a search that tries no load in the lossy band cannot know
    /// about it.
    pub fn truths(&self, loss_ratio: f64) -> Vec<(f64, f64)> {
        let at = |capacity: f64| capacity / (1.0 - loss_ratio);
        let capacity = at(self.capacity);
        match self.kind {
            // A loss of 1 in 1,000 misses a goal of no loss, but meets a goal of 0.5 % loss.
            Kind::Inverted if loss_ratio < 0.001 => {
                vec![(0.55 * self.capacity, 0.55 * self.capacity), (capacity, capacity)]
            }
            Kind::Changing { share } => vec![(at(self.capacity * (1.0 - share)), capacity)],
            _ => vec![(capacity, capacity)],
        }
    }

    /// Runs a trial.
    pub fn run(&mut self, step: Step) -> Outcome {
        let seconds = step.duration.as_nanos() as f64 / 1e9;
        let load = step.load_pps as f64;
        let sent = (load * seconds).round();
        let mut capacity = self.capacity;
        let mut lost: f64 = 0.0;
        match self.kind {
            Kind::Steady => {}
            Kind::Noisy { every_s } => {
                let mut at = self.random.exponential(every_s);
                while at < seconds {
                    lost += 1.0 + (self.random.unit() * 0.002 * load).floor();
                    at += self.random.exponential(every_s);
                }
            }
            Kind::Inverted => {
                if (0.55..0.7).contains(&(load / capacity)) {
                    lost += (sent / 1000.0).ceil();
                }
            }
            Kind::Cold { for_s } => {
                if self.worked_s < for_s {
                    capacity /= 2.0;
                }
            }
            Kind::Changing { share } => {
                let by = (self.random.unit() - 0.5) * 0.2 * seconds.min(1.0);
                self.changed = (self.changed + by).clamp(0.0, 1.0);
                capacity *= 1.0 - share * self.changed;
            }
        }
        self.worked_s += seconds;
        self.total_s += seconds;
        self.trials += 1;
        lost += (sent - capacity * seconds).max(0.0).ceil();
        Outcome { sent: sent as u64, lost: lost.min(sent) as u64, unsent: 0 }
    }
}

/// Runs a search to its end on a device.
pub fn run(search: &mut impl super::Search, device: &mut Device) {
    while let Some(step) = search.next_step() {
        let outcome = device.run(step);
        search.record(step, outcome);
        assert!(device.trials < 5_000, "a search that does not end: {step:?}");
    }
}

/// How often a search was right, and how much time it took.
#[derive(Debug, Default)]
pub struct Score {
    pub seeds: u32,
    pub right: u32,
    pub trials: u64,
    pub total_s: f64,
}

impl Score {
    /// Adds the result of a search. A result is right if both `bounds` are within `width` (a share) of the same entry
    /// of `truths`, and at most `width` apart.
    pub fn add(&mut self, device: &Device, truths: &[(f64, f64)], bounds: (Option<f64>, Option<f64>), width: f64) {
        self.seeds += 1;
        self.trials += u64::from(device.trials);
        self.total_s += device.total_s;
        let right = match bounds {
            (Some(lower), Some(upper)) => {
                let close =
                    |rate: f64, (low, high): &(f64, f64)| rate >= low * (1.0 - width) && rate <= high * (1.0 + width);
                truths.iter().any(|truth| close(lower, truth) && close(upper, truth))
                    && upper - lower <= upper * width * (1.0 + 1e-9)
            }
            _ => false,
        };
        self.right += u32::from(right);
    }

    /// Prints the score, and requires 99 % correct results.
    pub fn require(&self, what: &str) {
        let n = f64::from(self.seeds);
        println!(
            "{what}: right {} of {}, {:.1} trials and {:.0} s of trials on average",
            self.right,
            self.seeds,
            self.trials as f64 / n,
            self.total_s / n
        );
        assert!(f64::from(self.right) >= 0.99 * n, "{what}: {self:?}");
    }
}

#[test]
fn devices_are_functions_of_their_seed() {
    let step = Step { load_pps: 900_000, duration: Nanos::from_secs(5), confirms: false };
    let all = |seed| {
        let mut device = Device::new(Kind::Noisy { every_s: 1.0 }, seed);
        [device.run(step), device.run(step)]
    };
    assert_eq!(all(3), all(3));
    assert_ne!(all(3), all(4));
}
