//! Metronome: several threads share a queue, and the one that gets the lock serves it.
//!
//! ```text
//!   wakes ── trylock ──► got it: polls until the queue is empty ──► unlocks, sleeps T_S
//!                 └────► another has it: sleeps T_L
//! ```
//! A *vacation* is a time in which no thread has the lock. The goal is a mean vacation of V. T_S is computed to meet
//! this goal: with M threads and a load of ρ, T_S = M · V · (1 − ρ) / (1 − ρ^M). ρ is the smoothed share of busy time;
//! the last cycle has a weight of a quarter.
//!
//! Source: M. Faltelli, G. Belocchi, F. Quaglia, S. Pontarelli, G. Bianchi, "Metronome: adaptive and precise
//! intermittent packet retrieval in DPDK", CoNEXT 2020, section 4; marcofaltelli/Metronome,
//! `tests/l3fwd/l3fwd_lpm_timer.c` (27e04612): bursts of 32, `ALPHA` 0.75, `TIMEOUT_LONG` 500 us, 20 us for a thread's
//! first sleep.
//!
//! **Not modelled:** the additions of the extended version (arXiv 2103.13263v3), in which threads change queues; cache
//! lines that move from core to core with the lock; l3fwd's transmit buffer, which drains every 10 us.

use units::Nanos;

use crate::At;
use crate::outcome::Cycle;
use crate::scenario::MetronomeModel;

/// Maximum number of frames taken at once: `MAX_PKT_BURST`.
pub const BURST: usize = 32;
/// A thread's first sleep, before the load is known: `timeout_local`.
const FIRST: Nanos = Nanos::from_micros(20);
/// Fixed-point representation of ρ = 1.
const ONE: u64 = 1 << 32;
const NEVER: At = At::from_nanos(u64::MAX);

/// What the threads of one queue share.
#[derive(Clone, Debug)]
pub struct Shared {
    /// When a thread releases the lock. Far in the future while the thread still works.
    held_until: At,
    /// When the lock was last released. `None` before the first release.
    released: Option<At>,
    /// When the lock was last taken.
    got: At,
    /// The load ρ, multiplied by [`ONE`].
    load: u64,
    /// Counts within the window.
    pub cycles: Cycle,
}

impl Shared {
    pub fn new() -> Self {
        Self { held_until: At::ORIGIN, released: None, got: At::ORIGIN, load: 0, cycles: Cycle::default() }
    }

    /// Lets a thread try the lock at `now`. Returns whether the thread got it.
    pub fn try_lock(&mut self, now: At, counts: bool) -> bool {
        if now < self.held_until {
            self.cycles.refused += u64::from(counts);
            return false;
        }
        (self.got, self.held_until) = (now, NEVER);
        true
    }

    /// Releases the lock, whose thread found the queue empty at `now`. Returns how long the thread sleeps.
    pub fn release(&mut self, now: At, model: &MetronomeModel, threads: u64, counts: bool) -> Nanos {
        self.held_until = now;
        let Some(released) = self.released.replace(now) else { return FIRST };
        let vacation = self.got.since(released).unwrap_or(Nanos::ZERO);
        let busy = now.since(self.got).unwrap_or(Nanos::ZERO);
        if counts {
            self.cycles.count += 1;
            self.cycles.vacation += vacation;
            self.cycles.busy += busy;
        }
        let whole = (vacation + busy).as_nanos().max(1);
        let local = (u128::from(busy.as_nanos()) * u128::from(ONE) / u128::from(whole)) as u64;
        self.load = (3 * self.load + local) / 4;
        self.sleep(model.vacation, threads)
    }

    /// Computes T_S. (1 − ρ^M) / (1 − ρ) equals 1 + ρ + ... + ρ^(M − 1).
    fn sleep(&self, vacation: Nanos, threads: u64) -> Nanos {
        let (mut power, mut sum) = (u128::from(ONE), 0u128);
        for _ in 0..threads.max(1) {
            sum += power;
            power = (power * u128::from(self.load)) >> 32;
        }
        let nanos = u128::from(threads.max(1)) * u128::from(vacation.as_nanos()) * u128::from(ONE) / sum;
        Nanos::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// The state of a thread.
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    pub model: MetronomeModel,
    /// Number of threads that share the queue.
    pub threads: u64,
    /// Whether the thread has the lock.
    pub holds: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time() {
        let mut shared = Shared::new();
        assert!(shared.try_lock(At::from_nanos(10), true));
        assert!(!shared.try_lock(At::from_nanos(1_000_000), true));
        shared.release(At::from_nanos(2_000_000), &MetronomeModel::default(), 3, true);
        assert!(!shared.try_lock(At::from_nanos(1_999_999), true), "it is given up only then");
        assert!(shared.try_lock(At::from_nanos(2_000_000), true));
        assert_eq!(shared.cycles.refused, 2);
    }

    #[test]
    fn the_sleep_goes_from_m_vacations_to_one() {
        let mut shared = Shared::new();
        let vacation = Nanos::from_micros(10);
        assert_eq!(shared.sleep(vacation, 3), Nanos::from_micros(30), "no load: the threads share the vacation");
        shared.load = ONE / 2;
        // 3 / (1 + 1/2 + 1/4)
        assert_eq!(shared.sleep(vacation, 3), Nanos::from_nanos(17_142));
        shared.load = ONE;
        assert_eq!(shared.sleep(vacation, 3), vacation, "full load: the others are asleep for T_L");
        assert_eq!(shared.sleep(vacation, 1), vacation);
    }

    #[test]
    fn the_load_is_smoothed() {
        let mut shared = Shared::new();
        let model = MetronomeModel::default();
        let mut cycle = |from: u64, got: u64, to: u64| {
            assert!(shared.try_lock(At::from_nanos(from + got), true));
            shared.release(At::from_nanos(from + to), &model, 1, true);
            shared.load
        };
        cycle(0, 0, 100);
        assert_eq!(cycle(100, 50, 100), ONE / 8, "a quarter of a half");
        assert_eq!(cycle(200, 50, 100), ONE / 8 * 3 / 4 + ONE / 8);
    }
}
