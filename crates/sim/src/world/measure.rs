//! What `apus probe` would measure on the simulated machine: timed waits of several lengths, and waits that a frame's
//! interrupt ends, on an otherwise idle core.

use policy::wait::{LENGTHS, Lateness, TimedCost, WakeCosts};
use units::{Nanos, Quantile};

use super::core::{Core, Whom};
use crate::At;
use crate::hw::ModelError;
use crate::hw::nic::NicModel;
use crate::outcome::{HIGHEST_NS, Recorder};
use crate::scenario::HEALTH_INTERVAL;

/// Number of waits of each kind: enough for a p99.9.
const WAITS: u64 = 4_000;
/// Lengths of the timed waits, in microseconds.
const MICROS: [u64; LENGTHS] = [10, 20, 50, 100, 200, 500, 1_000, 5_000];
/// Mean time between the frames that end the waits for an interrupt.
const FRAMES: Nanos = Nanos::from_millis(1);
/// Time between two waits.
const BETWEEN: Nanos = Nanos::from_micros(2);

/// Measures the wake-up costs of `core`, starting at time 0. Fails if wake-ups take so long that no delay of a packet
/// could be recorded.
pub fn wake_costs(mut core: Core, nic: &NicModel) -> Result<WakeCosts, ModelError> {
    let mut now = At::ORIGIN;
    let mut timed = [None; LENGTHS];
    for (timed, us) in timed.iter_mut().zip(MICROS) {
        let length = Nanos::from_micros(us);
        let lateness = quantiles(|| {
            let due = now + length;
            let fires = core.rest(now, due, Whom::Thread);
            let back = core.wake_by_timer(due, fires, Whom::Thread).ready();
            now = back + BETWEEN;
            back.since(due).unwrap_or(Nanos::ZERO)
        })?;
        *timed = Some(TimedCost { length, lateness });
    }
    // The frame's descriptor must be in memory before its interrupt is sent.
    let delivered = nic.receive + nic.jitter / 2;
    let mut frame = 0;
    let interrupt = quantiles(|| {
        core.rest(now, now + HEALTH_INTERVAL, Whom::Thread);
        // Gaps range from 0.5 to 1.5 times the mean.
        frame = (frame + 617) % 1_000;
        let arrival = now + FRAMES / 2 + FRAMES.scale(frame, 1_000);
        let back = core.wake_by_interrupt(arrival + delivered, Whom::Thread).ready();
        now = back + BETWEEN;
        back.since(arrival).unwrap_or(Nanos::ZERO)
    })?;
    Ok(WakeCosts { timed, interrupt: Some(interrupt) })
}

fn quantiles(mut wait: impl FnMut() -> Nanos) -> Result<Lateness, ModelError> {
    let mut seen = Recorder::new();
    (0..WAITS).for_each(|_| seen.record(wait()));
    let seen = seen.finish();
    let at = |ppm: u32| {
        // There are enough samples, so that the quantile is unknown only beyond the highest value.
        Quantile::from_ppm(ppm).and_then(|quantile| seen.quantile(quantile)).ok_or_else(|| ModelError {
            part: "wake-ups",
            what: format!(
                "they take longer than {}: shorten the timer's slack, or the machine's times for timers, interrupts and \
                 idle states",
                Nanos::from_nanos(HIGHEST_NS)
            ),
        })
    };
    Ok(Lateness { p50: at(500_000)?, p75: at(750_000)?, p90: at(900_000)?, p99: at(990_000)?, p999: at(999_000)? })
}
