//! Per-entity load tracking: how busy a core was recently, as the kernel's scheduler computes it.
//!
//! The utilisation is a geometric series over periods of 1,024 us: the weight of a period halves after 32 periods.
//! Source: Linux `kernel/sched/pelt.c`, `pelt.h`, `sched-pelt.h`. Below a core's highest frequency, the clock of this
//! series runs more slowly, so that it measures the work done (`update_rq_clock_pelt()`). The clock catches up when the
//! core goes idle.

use units::{Hertz, Nanos};

/// `LOAD_AVG_PERIOD`: number of periods after which the weight is one half.
const HALF: u64 = 32;
/// `LOAD_AVG_MAX`: the sum of the series for a core that was always busy.
const MAX: u64 = 47_742;
/// A period, in units of 1,024 ns.
const PERIOD: u64 = 1_024;
/// Utilisation of a core that is always busy: `SCHED_CAPACITY_SCALE`.
pub const FULL: u64 = 1_024;

/// `runnable_avg_yN_inv[]`: 2^32 times y^n, where y^32 is a half.
const DECAY: [u64; HALF as usize] = [
    0xffff_ffff,
    0xfa83_b2da,
    0xf525_7d14,
    0xefe4_b99a,
    0xeac0_c6e6,
    0xe5b9_06e6,
    0xe0cc_deeb,
    0xdbfb_b796,
    0xd744_fcc9,
    0xd2a8_1d91,
    0xce24_8c14,
    0xc9b9_bd85,
    0xc567_2a10,
    0xc12c_4cc9,
    0xbd08_a39e,
    0xb8fb_af46,
    0xb504_f333,
    0xb123_f581,
    0xad58_3ee9,
    0xa9a1_5ab4,
    0xa5fe_d6a9,
    0xa270_4302,
    0x9ef5_325f,
    0x9b8d_39b9,
    0x9837_f050,
    0x94f4_efa8,
    0x91c3_d373,
    0x8ea4_398a,
    0x8b95_c1e3,
    0x8898_0e80,
    0x85aa_c367,
    0x82cd_8698,
];

/// The utilisation of one core.
#[derive(Clone, Debug, Default)]
pub struct Pelt {
    /// The sum of the series, times [`FULL`].
    sum: u64,
    /// Elapsed time of the current period, in units of 1,024 ns.
    within: u64,
    /// Nanoseconds left over from rounding to units of 1,024 ns.
    left: u64,
    /// How far the scaled clock is behind real time, in nanoseconds.
    behind: u64,
}

impl Pelt {
    /// Notes that the core was busy for `span` at frequency `running`; `highest` is its highest frequency.
    pub fn busy(&mut self, span: Nanos, running: Hertz, highest: Hertz) {
        let scaled = span.scale(running.as_hertz().min(highest.as_hertz()), highest.as_hertz().max(1)).as_nanos();
        self.behind += span.as_nanos() - scaled;
        self.pass(scaled, true);
    }

    /// Notes that the core was idle for `span`.
    pub fn idle(&mut self, span: Nanos) {
        if span == Nanos::ZERO {
            return;
        }
        // For a core that was busy all the time, the clock does not catch up: it ran slowly because the core had too
        // much work for its frequency, not because it had idle time (`lost_idle_time`).
        let behind = std::mem::take(&mut self.behind);
        let saved = if self.sum >= (MAX - PERIOD + self.within) * FULL { 0 } else { behind };
        self.pass(saved + span.as_nanos(), false);
    }

    /// The utilisation, from 0 to [`FULL`].
    pub fn utilisation(&self) -> u64 {
        (self.sum / (MAX - PERIOD + self.within)).min(FULL)
    }

    /// Ports `accumulate_sum()`.
    fn pass(&mut self, nanos: u64, running: bool) {
        let nanos = nanos + self.left;
        self.left = nanos % 1_024;
        let units = nanos / 1_024;
        let passed = units + self.within;
        let periods = passed / PERIOD;
        let mut contribution = units;
        if periods > 0 {
            self.sum = decayed(self.sum, periods);
            // `__accumulate_pelt_segments()`: the rest of the old period, whole periods, and the beginning of the new
            // one.
            let first = decayed(PERIOD - self.within, periods);
            let whole = MAX - decayed(MAX, periods) - PERIOD;
            contribution = first + whole + passed % PERIOD;
        }
        self.within = passed % PERIOD;
        self.sum += if running { contribution * FULL } else { 0 };
    }
}

/// Ports `decay_load()`: `value` times y^`periods`.
fn decayed(value: u64, periods: u64) -> u64 {
    let halves = periods / HALF;
    if halves > 62 {
        return 0;
    }
    let factor = DECAY[(periods % HALF) as usize];
    ((u128::from(value >> halves) * u128::from(factor)) >> 32) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOCK: Hertz = Hertz::new(2_000_000_000);
    const HALF_CLOCK: Hertz = Hertz::new(1_000_000_000);

    #[test]
    fn the_table_halves_in_32_steps() {
        for (n, inverse) in DECAY.iter().enumerate() {
            let exact = 2f64.powf(32.0 - n as f64 / 32.0);
            assert!((*inverse as f64 / exact - 1.0).abs() < 1e-8, "{n}: {inverse:#x}, {exact}");
        }
    }

    #[test]
    fn half_is_reached_after_32_periods_and_lost_after_as_many() {
        let mut pelt = Pelt::default();
        let span = Nanos::from_nanos(32 * 1_024 * 1_024);
        pelt.busy(span, CLOCK, CLOCK);
        assert!(pelt.utilisation().abs_diff(512) <= 8, "{}", pelt.utilisation());
        pelt.busy(span * 20, CLOCK, CLOCK);
        assert!(pelt.utilisation() >= 1_020, "{}", pelt.utilisation());
        pelt.idle(span);
        assert!(pelt.utilisation().abs_diff(512) <= 8, "{}", pelt.utilisation());
    }

    #[test]
    fn work_counts_by_what_it_gets_done() {
        // Busy half of the time at half of the frequency gives a quarter, whatever the length of the busy periods.
        for cut in [10_000u64, 400_000, 3_000_000] {
            let mut pelt = Pelt::default();
            for _ in 0..(1_000_000_000 / cut) {
                pelt.idle(Nanos::from_nanos(cut));
                pelt.busy(Nanos::from_nanos(cut), HALF_CLOCK, CLOCK);
            }
            assert!(pelt.utilisation().abs_diff(256) <= 26, "{cut}: {}", pelt.utilisation());
        }
        // Always busy at half of the frequency gives full utilisation, because the core needs a higher frequency.
        let mut pelt = Pelt::default();
        (0..2_000).for_each(|_| pelt.busy(Nanos::from_millis(1), HALF_CLOCK, CLOCK));
        assert!(pelt.utilisation() >= 1_020, "{}", pelt.utilisation());
    }
}
