//! Checks whether the clocks can be trusted, by looking for disturbances between two readings.
//!
//! A measured time span is not valid if the clock was disturbed during it. `CLOCK_MONOTONIC` itself never steps, but it
//! stands still while the machine is suspended or paused by a hypervisor. The other clocks show this: `CLOCK_BOOTTIME`
//! counts suspends (clock_gettime(2)); a virtual machine gets a new time after a pause, so `CLOCK_REALTIME` steps; and
//! `CLOCK_MONOTONIC_RAW` is neither slewed nor set.

use std::path::Path;

use rustix::time::{ClockId, clock_gettime};
use units::Nanos;

/// A difference of more than this between two offsets counts as a step of a clock.
const STEP: Nanos = Nanos::from_millis(1);
/// Largest rate of slewing: NTP and adjtime(3) may each slew the clock by 500 ppm (adjtimex(2), MAXFREQ;
/// kernel/time/ntp.c, MAX_TICKADJ). Anything faster is a step.
const MOST_SLEW_PPM: u64 = 1_000;
/// Number of attempts to read two clocks at the same time; the closest pair counts.
const TRIES: usize = 15;

/// Readings of the clocks at one time: their offsets from `CLOCK_MONOTONIC` in nanoseconds, and the clock source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Readings {
    monotonic: i128,
    /// Offset of `CLOCK_REALTIME`.
    realtime_offset: i128,
    /// Offset of `CLOCK_BOOTTIME`.
    boottime_offset: i128,
    /// Offset of `CLOCK_MONOTONIC_RAW`.
    raw_offset: i128,
    /// Clock source of the kernel; `None` if it is not readable.
    clocksource: Option<String>,
}

impl Readings {
    /// Reads the clocks, and the name of the clock source from /sys below `root`.
    pub fn take(root: &Path) -> Self {
        let source = root.join("sys/devices/system/clocksource/clocksource0/current_clocksource");
        Self {
            monotonic: now(ClockId::Monotonic),
            realtime_offset: offset(ClockId::Realtime),
            boottime_offset: offset(ClockId::Boottime),
            raw_offset: offset(ClockId::MonotonicRaw),
            clocksource: std::fs::read_to_string(source).ok().map(|name| name.trim().to_owned()),
        }
    }

    /// Compares these readings with `later`. Each returned string describes a disturbance of a clock between the two
    /// readings, such as a step, and is a reason not to trust any quantile. Empty if the clocks ran undisturbed.
    pub fn until(&self, later: &Self) -> Vec<String> {
        let mut found = Vec::new();
        let span = later.monotonic - self.monotonic;
        if span < 0 {
            found.push(format!("CLOCK_MONOTONIC ran {} ns backwards", -span));
        }
        let step = |a: i128, b: i128| (b - a).unsigned_abs() > u128::from(STEP.as_nanos());
        let ms = |a: i128, b: i128| (b - a) as f64 / 1e6;
        if step(self.boottime_offset, later.boottime_offset) {
            let by = ms(self.boottime_offset, later.boottime_offset);
            found.push(format!("the machine was suspended for {by:.1} ms (CLOCK_BOOTTIME)"));
        }
        // A suspend moves CLOCK_REALTIME too, so it is subtracted. The rest is a step.
        let realtime = (self.realtime_offset - self.boottime_offset, later.realtime_offset - later.boottime_offset);
        if step(realtime.0, realtime.1) {
            let by = ms(realtime.0, realtime.1);
            found.push(format!("CLOCK_REALTIME was set by {by:+.1} ms: by hand, or after the machine had been paused"));
        }
        let slew = (later.raw_offset - self.raw_offset).unsigned_abs();
        let allowed = span.unsigned_abs() * u128::from(MOST_SLEW_PPM) / 1_000_000 + u128::from(STEP.as_nanos());
        if slew > allowed {
            found.push(format!(
                "CLOCK_MONOTONIC and CLOCK_MONOTONIC_RAW came apart by {:.1} ms in {:.1} ms",
                slew as f64 / 1e6,
                span as f64 / 1e6
            ));
        }
        if self.clocksource != later.clocksource {
            let name = |source: &Option<String>| source.clone().unwrap_or_else(|| "unknown".into());
            found.push(format!(
                "the clock source changed from {} to {}",
                name(&self.clocksource),
                name(&later.clocksource)
            ));
        }
        found
    }
}

/// The reading of a clock, in ns.
#[inline]
pub(crate) fn now(clock: ClockId) -> i128 {
    let time = clock_gettime(clock);
    i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
}

/// `clock` minus `CLOCK_MONOTONIC` in nanoseconds, from the attempt whose surrounding readings of `CLOCK_MONOTONIC`
/// were closest to each other.
pub(crate) fn offset(clock: ClockId) -> i128 {
    let tries = (0..TRIES).map(|_| {
        let (before, other, after) = (now(ClockId::Monotonic), now(clock), now(ClockId::Monotonic));
        (after - before, other - (before + after) / 2)
    });
    tries.min_by_key(|(spread, _)| *spread).map_or(0, |(_, offset)| offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings() -> Readings {
        Readings {
            monotonic: 5_000_000_000,
            realtime_offset: 1_700_000_000_000_000_000,
            boottime_offset: 0,
            raw_offset: -3_000_000,
            clocksource: Some("tsc".into()),
        }
    }

    #[test]
    fn a_run_without_events_is_believed() {
        let before = readings();
        // The readings ten seconds later, with a clock that was slewed by 500 ppm.
        let after = Readings { monotonic: 15_000_000_000, raw_offset: before.raw_offset - 5_000_000, ..before.clone() };
        assert_eq!(before.until(&after), Vec::<String>::new());
    }

    #[test]
    fn each_event_is_named() {
        let before = readings();
        let later = Readings { monotonic: 15_000_000_000, ..before.clone() };
        let set = Readings { realtime_offset: later.realtime_offset + 2_000_000, ..later.clone() };
        // A suspend moves both clocks, but is only one event.
        let asleep = Readings {
            boottime_offset: 3_000_000_000,
            realtime_offset: later.realtime_offset + 3_000_000_000,
            ..later.clone()
        };
        let slewed = Readings { raw_offset: later.raw_offset + 12_000_000, ..later.clone() };
        let source = Readings { clocksource: Some("hpet".into()), ..later.clone() };
        let backwards = Readings { monotonic: 4_000_000_000, ..later };
        for (after, word) in [
            (set, "CLOCK_REALTIME was set by +2.0 ms"),
            (asleep, "suspended for 3000.0 ms"),
            (slewed, "came apart by 12.0 ms"),
            (source, "from tsc to hpet"),
            (backwards, "backwards"),
        ] {
            let found = before.until(&after);
            assert!(found.len() == 1 && found[0].contains(word), "{word}: {found:?}");
        }
    }

    #[test]
    fn this_machine_now() {
        let root = Path::new("/");
        let first = Readings::take(root);
        assert_eq!(first.until(&Readings::take(root)), Vec::<String>::new());
    }
}
