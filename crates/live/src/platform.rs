//! Reads the costs of waits on a platform from the profile that `apus probe all -o FILE` writes.
//!
//! The crate `probe` defines the document, and `apus run` reads it with `probe`'s types. This module reads only the few
//! fields that [`WakeCosts`] needs, so that libapus need not include the probes. A test in `cli` compares the two
//! readers.

use policy::wait::{LENGTHS, Lateness, TimedCost, WakeCosts};
use serde::Deserialize;
use units::Nanos;

#[derive(Deserialize)]
struct Profile {
    schema: String,
    measured: Vec<Measured>,
}

#[derive(Deserialize)]
struct Measured {
    probe: String,
    variant: String,
    terms: Vec<Term>,
    detail: serde_json::Value,
}

#[derive(Deserialize)]
struct Term {
    name: String,
    raw: Distribution,
}

#[derive(Deserialize)]
struct Distribution {
    p99_ns: Option<u64>,
    histogram: Counts,
}

#[derive(Deserialize)]
struct Counts {
    counts: Vec<(u64, u64)>,
    #[serde(default)]
    overflow: u64,
}

/// Value for samples above a histogram's range, in ns: the end of the range of `probe`'s histograms.
const BEYOND: u64 = 4_000_000_000;

/// Extracts the costs from the text of a profile: the lateness of clock_nanosleep timers for each interval, and of
/// waits in poll(2) that a frame ends. Distributions with too few samples for a p99 are left out; the policy then
/// learns them.
pub fn costs(text: &str) -> Result<WakeCosts, String> {
    let profile: Profile = serde_json::from_str(text).map_err(|why| format!("it is no profile: {why}"))?;
    if !(profile.schema.starts_with("apus.platform/") || profile.schema.starts_with("apus.probe/")) {
        return Err(format!("it is a document {:?}, not apus.platform or apus.probe", profile.schema));
    }
    let mut timed = Vec::new();
    // Results of other probes and of other kinds of waits have no such entry in `detail`.
    let timers = profile.measured.iter().map(|of| (of, &of.detail["timer"]));
    for (of, detail) in timers.filter(|(_, detail)| detail["wait"] == "clock_nanosleep") {
        let interval = detail["interval_ns"].as_u64().ok_or("a timer result has no interval_ns")?;
        if let Some(lateness) = of.terms.first().map(|term| lateness(&term.raw)).transpose()?.flatten() {
            timed.push(TimedCost { length: Nanos::from_nanos(interval), lateness });
        }
    }
    if timed.is_empty() {
        return Err("it has no clock_nanosleep timer result with a p99".into());
    }
    if timed.len() > LENGTHS {
        return Err(format!("it has timer results for {} intervals, but at most {LENGTHS} are supported", timed.len()));
    }
    timed.sort_by_key(|cost| cost.length);
    // Prefers the result across CPUs, if it was measured, because frames usually come from another CPU.
    let blocked = |variant: &str| {
        let of = profile.measured.iter().find(|of| of.probe == "interrupt" && of.variant.starts_with(variant))?;
        of.terms.iter().find(|term| term.name == "XDP to pick-up")
    };
    let interrupt = match blocked("block, wrong CPU").or_else(|| blocked("block")) {
        Some(term) => lateness(&term.raw)?,
        None => None,
    };
    let mut costs = WakeCosts { interrupt, ..WakeCosts::default() };
    costs.timed.iter_mut().zip(timed).for_each(|(place, cost)| *place = Some(cost));
    Ok(costs)
}

fn lateness(of: &Distribution) -> Result<Option<Lateness>, String> {
    if of.p99_ns.is_none() {
        return Ok(None);
    }
    let counts = &of.histogram.counts;
    if !counts.is_sorted_by(|a, b| a.0 < b.0) {
        return Err("the values of a histogram are not in ascending order".into());
    }
    // In 128 bits, because a file may contain any number of samples.
    let total: u128 = counts.iter().map(|(_, n)| u128::from(*n)).sum::<u128>() + u128::from(of.histogram.overflow);
    let at = |per_mille: u128| {
        let (rank, mut seen) = ((total * per_mille).div_ceil(1_000), 0);
        let found = counts.iter().find(|(_, n)| {
            seen += u128::from(*n);
            seen >= rank
        });
        found.map(|(value, _)| Nanos::from_nanos(*value))
    };
    let [Some(p50), Some(p75), Some(p90), Some(p99)] = [500, 750, 900, 990].map(at) else { return Ok(None) };
    Ok(Some(Lateness { p50, p75, p90, p99, p999: at(999).unwrap_or(Nanos::from_nanos(BEYOND)) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timer(interval_ns: u64, counts: &str) -> String {
        format!(
            r#"{{"probe": "timer", "variant": "clock_nanosleep", "detail": {{"timer": {{"wait": "clock_nanosleep", "interval_ns": {interval_ns}}}}},
            "terms": [{{"name": "lateness", "raw": {{"p99_ns": 1, "histogram": {{"counts": {counts}, "overflow": 0}}}}}}]}}"#
        )
    }

    fn profile(measured: &[String]) -> String {
        format!(r#"{{"schema": "apus.platform/2", "measured": [{}]}}"#, measured.join(","))
    }

    #[test]
    fn timers_become_costs_by_their_length() {
        let text = profile(&[
            timer(100_000, "[[7000, 1000]]"),
            timer(50_000, "[[5000, 500], [6000, 480], [9000, 19], [20000, 1]]"),
        ]);
        let costs = costs(&text).unwrap();
        let [Some(short), Some(long)] = [costs.timed[0], costs.timed[1]] else { panic!("{costs:?}") };
        assert_eq!((short.length, long.length), (Nanos::from_micros(50), Nanos::from_micros(100)));
        let of = short.lateness;
        assert_eq!([of.p50, of.p75, of.p90, of.p99, of.p999].map(Nanos::as_nanos), [5_000, 6_000, 6_000, 9_000, 9_000]);
        assert_eq!(costs.interrupt, None);
    }

    #[test]
    fn what_is_no_profile_is_refused_with_the_reason() {
        for (text, why) in [
            ("", "it is no profile"),
            ("{}", "missing field"),
            (r#"{"schema": "apus.top/2", "measured": []}"#, "apus.top/2"),
            (r#"{"schema": "apus.platform/2", "measured": []}"#, "no clock_nanosleep"),
            (&profile(&[timer(1, "[[5, 1], [4, 1]]")]), "ascending"),
            (&profile(&vec![timer(1, "[[5, 1]]"); LENGTHS + 1]), "at most"),
        ] {
            let said = costs(text).unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
