//! Latency at the throughput (RFC 2544, 26.2), with the typical latency, worst case latency and delay variation of RFC
//! 8219.

use units::{Nanos, Quantile};

use super::effort::Test;
use super::measure::{Bench, Halt};
use super::result::{LatencyAtThroughput, Repeated};
use super::{LATE, Measurer, Offer};
use crate::histogram::Histogram;
use crate::host::Reading;
use crate::quantile::estimate;

/// Sends streams at `rate_pps`. The tagged frame of RFC 2544 is the first frame due in the second half of a stream. All
/// frames due in the second half count for the other values, for which RFC 8219 requires at least 500 frames.
pub fn latency<M: Measurer + ?Sized>(
    bench: &mut Bench<'_, M>,
    rate_pps: u64,
) -> Result<Result<LatencyAtThroughput, String>, Halt> {
    let effort = bench.effort;
    let offer = Offer { latency_from: effort.stream / 2, ..bench.constant(rate_pps, effort.stream) };
    let mut all = Histogram::new();
    let [mut tagged, mut mean, mut typical, mut worst, mut pdv] = [const { Vec::new() }; 5];
    let (mut lost, mut unsent, mut due) = (0, 0, 0);
    let [mut losing, mut disturbed, mut unfinished] = [0; 3];
    for _ in 0..effort.streams {
        let seen = bench.run(Test::Latency, &offer)?;
        lost += seen.outcome.lost;
        unsent += seen.outcome.unsent;
        due += seen.outcome.sent + seen.outcome.unsent;
        losing += u32::from(seen.outcome.lost > 0);
        disturbed += u32::from(seen.is_disturbed());
        unfinished += u32::from(seen.outcome.unsent > 0);
        all.add(&seen.latency);
        tagged.extend(seen.tagged.map(|latency: Nanos| latency.as_nanos() as f64));
        mean.extend(seen.latency.mean_ns());
        typical.extend(quantile(&seen.latency, Quantile::P50));
        if let Some(high) = quantile(&seen.latency, Quantile::P99_9) {
            worst.push(high);
            pdv.extend(seen.latency.min_ns().map(|min| high - min as f64));
        }
    }
    let streams = effort.streams;
    if losing > 0 {
        let why = match losing > disturbed {
            true => format!("the throughput was not sustained for {}", effort.stream),
            false => format!("each time, the tester sent frames more than {LATE} late"),
        };
        bench.notes.push(format!(
            "{losing} of the {streams} latency streams lost frames, {lost} of {due} in all: {why}; the latencies are \
             those of the frames that came back"
        ));
    }
    if unfinished > 0 {
        bench.notes.push(format!(
            "in {unfinished} of the {streams} latency streams the tester skipped frames, {unsent} of {due} in all, \
             because it was too far behind its schedule"
        ));
    }
    let Some(mean) = Repeated::of(&mean) else {
        return Ok(Err("no frame came back in the streams".into()));
    };
    let complete = |values: &[f64], why: &str| match Repeated::of(values) {
        Some(found) if values.len() == effort.streams as usize => Reading::known(found),
        _ => Reading::unknown(why),
    };
    let few = "a stream had fewer than 3,688 frames, too few for a 99.9th percentile";
    Ok(Ok(LatencyAtThroughput {
        rate_pps,
        tagged_ns: complete(&tagged, "the tagged frame of a stream was lost"),
        mean_ns: mean,
        typical_ns: complete(&typical, "a stream had too few frames for a median"),
        worst_case_ns: complete(&worst, few),
        pdv_ns: complete(&pdv, few),
        all: (&all).into(),
        lost,
    }))
}

fn quantile(histogram: &Histogram, quantile: Quantile) -> Option<f64> {
    estimate(histogram, quantile).latency_ns.map(|ns| ns as f64)
}
