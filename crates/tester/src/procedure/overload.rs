//! Tests above the throughput: bursts (RFC 2544, 26.4; RFC 9004), recovery (26.5), and reset (26.6).

use units::Nanos;

use super::effort::Test;
use super::measure::{Bench, Halt};
use super::result::{BackToBack, Repeated};
use super::{Measurer, Offer, Phase};
use crate::search::BurstSearch;

/// Load of an overload, in percent of the throughput. RFC 2544, 26.5.
const OVERLOAD_PERCENT: u64 = 110;
/// If the throughput is at least this percentage of the maximum rate, the test is omitted, because a burst would never
/// fill a buffer.
const NEARLY_MAXIMUM_PERCENT: f64 = 99.0;

type Tested<T> = Result<Result<T, String>, Halt>;

/// Measures the longest burst at `max_pps` without loss. The buffer time of the device follows from this burst and the
/// throughput `rate_pps`.
pub fn back_to_back<M: Measurer + ?Sized>(bench: &mut Bench<'_, M>, rate_pps: u64, max_pps: u64) -> Tested<BackToBack> {
    let (rate, max) = (rate_pps as f64, max_pps as f64);
    if 100.0 * rate >= NEARLY_MAXIMUM_PERCENT * max {
        return Ok(
            Err("the throughput reaches the highest rate, so no burst can fill a buffer (RFC 9004, 5.1)".into()),
        );
    }
    let effort = bench.effort;
    let longest = effort.longest_frames(max_pps);
    let (mut found, mut at_limit, mut tester_limited) = (Vec::new(), 0, 0);
    for _ in 0..effort.bursts {
        let mut search = BurstSearch::new(longest, 1).map_err(Halt::Failed)?;
        let mut incomplete = None; // the shortest burst that the tester could not send
        while let Some(frames) = search.next_frames() {
            // Duration of a burst of `frames` frames.
            let duration = Nanos::from_secs(1).scale(frames, max_pps);
            let offer = bench.constant(max_pps, duration);
            let outcome = bench.run(Test::BackToBack, &offer)?.judged();
            // The device is not to blame for a burst that it did not get. Shorter bursts may still find its limit.
            if outcome.unsent > 0 {
                incomplete = Some(frames);
            }
            search.record(frames, outcome.lost > 0 || outcome.unsent > 0);
        }
        let bounds = search.bounds();
        tester_limited += u32::from(incomplete.is_some() && bounds.failed == incomplete);
        at_limit += u32::from(bounds.failed.is_none());
        found.push(bounds.passed as f64);
    }
    let Some(frames) = Repeated::of(&found) else { return Ok(Err("no burst was sent".into())) };
    let implied = frames.mean * 1e9 / max;
    Ok(Ok(BackToBack {
        rate_pps: max_pps,
        implied_buffer_ns: implied,
        corrected_buffer_ns: implied * (1.0 - rate / max),
        frames,
        at_limit,
        tester_limited,
    }))
}

/// Measures the recovery time. Overloads the device with 110 % of the throughput (or with the maximum rate, if that is
/// lower), then sends at half the throughput. The recovery time is the time from the end of the overload to the last
/// lost frame.
pub fn recovery<M: Measurer + ?Sized>(bench: &mut Bench<'_, M>, rate_pps: u64, max_pps: u64) -> Tested<Repeated> {
    let effort = bench.effort;
    let over = (rate_pps * OVERLOAD_PERCENT / 100).min(max_pps);
    if over <= rate_pps {
        return Ok(Err("the throughput reaches the highest rate, so the device cannot be overloaded".into()));
    }
    let phase = |rate_pps| Phase { rate_pps, duration: effort.overload };
    let offer =
        Offer { phases: vec![phase(over), phase((rate_pps / 2).max(1))], ..bench.constant(over, effort.overload) };
    let mut found = Vec::new();
    for _ in 0..effort.overloads {
        let seen = bench.run(Test::Recovery, &offer)?;
        let Some(last) = seen.last_loss else {
            return Ok(Err("the overload lost no frame, so there is nothing to recover from".into()));
        };
        if last >= effort.overload.scale(199, 100) {
            return Ok(Err(format!("the device still lost frames {} after the overload", effort.overload)));
        }
        // If the last loss was before the end of the overload, the device recovered at once: 0.
        found.push(last.as_nanos().saturating_sub(effort.overload.as_nanos()) as f64);
    }
    Ok(Repeated::of(&found).ok_or_else(|| "no overload was sent".into()))
}

/// Resets the device during a trial, and measures the time between the last frame forwarded before the reset and the
/// first frame forwarded after it, in ns.
pub fn reset<M: Measurer + ?Sized>(bench: &mut Bench<'_, M>, rate_pps: u64) -> Tested<u64> {
    let offer = Offer { reset: true, ..bench.constant(rate_pps, bench.effort.reset_trial) };
    let seen = bench.once(Test::Reset, &offer)?; // losses are intended, and a reset is not repeated
    Ok(match (seen.outage, seen.last_loss) {
        (Some((before, after)), _) => Ok(after.as_nanos().saturating_sub(before.as_nanos())),
        (None, Some(_)) => Err(format!("the device did not forward again within {}", bench.effort.reset_trial)),
        (None, None) => {
            let note = seen.reset_note.map_or(String::new(), |note| format!("; {note}"));
            Err(format!("the reset lost no frame: the device was not reset, or forwards during a reset{note}"))
        }
    })
}
