//! JSON of cyclictest and oslat, "file_version" 1 (rt-tests, src/lib/rt-utils.c, rt_write_json; src/cyclictest,
//! src/oslat, write_stats). The tools write some keys with a colon at the end; they are read in this form.

use std::collections::BTreeMap;

use serde::Deserialize;
use tester::host::Reading;

use super::{Column, Found, Imported};
use crate::Error;
use crate::mark::{Mark, MarkKind};

/// The keys that are used; others are ignored.
#[derive(Deserialize)]
struct File {
    file_version: u32,
    #[serde(rename = "cmdline:")]
    command: Option<String>,
    #[serde(rename = "rt_test_version:")]
    version: Option<String>,
    sysinfo: Option<Sysinfo>,
    /// 1 if values are in ns (cyclictest -N), 0 if they are in us.
    #[serde(default)]
    resolution_in_ns: u32,
    thread: BTreeMap<String, Thread>,
}

#[derive(Deserialize)]
struct Sysinfo {
    release: Option<String>,
}

#[derive(Deserialize)]
struct Thread {
    #[serde(default)]
    histogram: BTreeMap<String, u64>,
    /// Number of cycles, written by cyclictest.
    cycles: Option<u64>,
    /// Duration in seconds, written by oslat.
    duration: Option<f64>,
    min: Option<u64>,
    max: Option<u64>,
    avg: Option<f64>,
    cpu: Option<usize>,
}

pub(super) fn read(name: &str, text: &str) -> Result<Imported, Error> {
    let file: File =
        serde_json::from_str(text).map_err(|e| Error::invalid(name, format!("not JSON of rt-tests: {e}")))?;
    if file.file_version != 1 {
        return Err(Error::invalid(name, format!("its file_version is {}; version 1 is read", file.file_version)));
    }
    if file.thread.is_empty() {
        return Err(Error::invalid(name, "it contains no thread"));
    }
    // cyclictest writes the number of cycles, oslat its duration.
    let is_oslat = file.thread.values().all(|thread| thread.duration.is_some());
    let unit = if file.resolution_in_ns == 1 { 1 } else { 1_000 };
    let (mut columns, mut marks) = (Vec::new(), Vec::new());
    for (number, thread) in &file.thread {
        let (column, mark) = column(name, number, thread, unit, is_oslat)?;
        columns.push(column);
        marks.extend(mark);
    }
    // Keys are texts, in which "10" sorts before "2".
    columns.sort_by(|a, b| a.name.len().cmp(&b.name.len()).then_with(|| a.name.cmp(&b.name)));
    let tool = if is_oslat { "oslat" } else { "cyclictest" };
    let version = file.version.map_or(String::new(), |version| format!(" {version}"));
    let longest = file.thread.values().filter_map(|thread| thread.duration).reduce(f64::max);
    let (counts, blind_spot) = if is_oslat {
        (
            "gaps in a busy loop, by the time stamp counter; every pass is a sample",
            "which thread or interrupt caused a gap",
        )
    } else {
        (
            "lateness of a periodic timer; CLOCK_MONOTONIC",
            "periods that a late wake-up covers: they are skipped and not counted",
        )
    };
    let found = Found {
        tool: format!("{tool}{version}"),
        command: file.command,
        cpus: file.thread.values().filter_map(|thread| thread.cpu).collect(),
        counts,
        blind_spots: vec![blind_spot.into()],
        bucket_ns: unit,
        duration_ns: longest.map(|seconds| (seconds * 1e9) as u64),
        columns,
        kernel: Reading::or_unknown(file.sysinfo.and_then(|info| info.release), "not in the file"),
        marks,
    };
    Ok(found.imported(name))
}

fn column(
    name: &str,
    number: &str,
    thread: &Thread,
    unit: u64,
    is_oslat: bool,
) -> Result<(Column, Option<Mark>), Error> {
    let bucket = |(value, count): (&String, &u64)| {
        let value = value.parse::<u64>().ok().and_then(|value| value.checked_mul(unit));
        let wrong = || Error::invalid(name, format!("thread {number}: a bucket of the histogram is not a number"));
        value.map(|value| (value, *count)).ok_or_else(wrong)
    };
    let mut buckets = thread.histogram.iter().map(bucket).collect::<Result<Vec<_>, _>>()?;
    buckets.sort_unstable();
    let counted: u64 = buckets.iter().map(|(_, count)| count).sum();
    let max_ns = thread.max.and_then(|max| max.checked_mul(unit));
    let label = thread.cpu.map_or_else(|| format!("thread {number}"), |cpu| format!("thread {number} on CPU {cpu}"));
    let (mut above, mut mark) = (0, None);
    if is_oslat {
        // The last bucket includes the overflows, as oslat's text output says but its JSON does not.
        if let (Some(max), Some((top, count))) = (max_ns, buckets.last().copied())
            && max >= top + unit
        {
            buckets.pop();
            above = count;
            mark = Some(format!("{label}: {count} gaps are of {top} ns or more; not in the file how long"));
        }
    } else if let Some(cycles) = thread.cycles
        && cycles > counted
    {
        above = cycles - counted;
        mark = Some(match counted {
            0 => format!(
                "{label}: the file has no sample in a histogram, so there are no quantiles: cyclictest ran without -h, \
                 or all {cycles} samples were above it"
            ),
            _ => format!(
                "{label}: {above} of {cycles} samples were above the range of the histogram and are missing in the file"
            ),
        });
    }
    let column = Column {
        name: label,
        buckets,
        above,
        min_ns: thread.min.and_then(|min| min.checked_mul(unit)),
        max_ns,
        mean_ns: thread.avg.filter(|avg| avg.is_finite() && *avg >= 0.0).map(|avg| (avg * unit as f64) as u64),
    };
    Ok((column, mark.map(|text| Mark::new(MarkKind::NotAvailable, text))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        r#""file_version": 1, "rt_test_version:": "2.40", "sysinfo": {"release": "6.1"}, "num_threads": 1"#;

    #[test]
    fn cyclictest_with_lost_samples() {
        let text = format!(
            r#"{{{HEAD}, "cmdline:": "cyclictest -h 60", "resolution_in_ns": 0, "thread": {{"0": {{
                "histogram": {{"10": 400, "5": 590, "59": 2}}, "cycles": 1000, "min": 5, "max": 1417, "avg": 17.26,
                "cpu": 1, "node": 0}}}}}}"#
        );
        let Imported { host, measured } = super::super::read("ct.json", &text).unwrap();
        assert_eq!((measured.variant.as_str(), host.kernel.value.as_deref()), ("cyclictest 2.40", Some("6.1")));
        assert_eq!(measured.duration_ns, None, "cyclictest does not write it");
        let raw = &measured.terms[0].raw;
        // Quantiles are known to three digits.
        let us = |ns: Option<u64>| ns.map(|ns| ns / 1_000);
        assert_eq!(
            (raw.count, us(raw.p50_ns), raw.max_ns, raw.mean_ns),
            (1_000, Some(5), Some(1_417_000), Some(17_260))
        );
        assert_eq!((us(raw.p90_ns), raw.histogram.overflow), (Some(10), 8));
        // The sample of rank 990 is known: 10 us. But the interval of the p99 of 1,000 samples ends at about rank 996,
        // among the lost samples. So no p99 is given.
        assert_eq!(raw.p99_ns, None);
        let p99 = raw.quantiles.iter().find(|of| of.quantile == "p99").unwrap();
        assert!(p99.refused_because.as_ref().unwrap().contains("the 8 largest of 1000 samples"), "{p99:?}");
        assert!(measured.marks.iter().any(|mark| mark.text.contains("8 of 1000 samples")), "{:?}", measured.marks);
    }

    #[test]
    fn oslat_whose_top_bucket_holds_more() {
        let text = format!(
            r#"{{{HEAD}, "thread": {{"0": {{"cpu": 1, "freq": 2100, "min": 1, "avg": 1.11, "max": 192041,
                "duration": 1.998, "histogram": {{"1": 13100, "2": 42, "10": 3, "32": 188}}}}}}}}"#
        );
        let measured = super::super::read("os.json", &text).unwrap().measured;
        let raw = &measured.terms[0].raw;
        assert_eq!((raw.count, raw.histogram.overflow, raw.max_ns), (13_333, 188, Some(192_041_000)));
        assert_eq!((measured.duration_ns, raw.p50_ns), (Some(1_998_000_000), Some(1_000)));
        // 1.4 % of the samples are only known to be long, so there is no 99th percentile.
        assert_eq!(raw.p99_ns, None);
        assert!(measured.marks.iter().any(|mark| mark.text.contains("188 gaps are of 32000 ns or more")));
    }

    #[test]
    fn nanoseconds_and_several_threads_in_order() {
        let thread = r#"{"histogram": {"900": 7}, "cycles": 7, "min": 900, "max": 900, "avg": 900.0}"#;
        let text = format!(r#"{{{HEAD}, "resolution_in_ns": 1, "thread": {{"10": {thread}, "9": {thread}}}}}"#);
        let measured = super::super::read("ns.json", &text).unwrap().measured;
        let names: Vec<&str> = measured.terms.iter().map(|term| term.name.as_str()).collect();
        assert_eq!(names, ["thread 9", "thread 10"]);
        assert_eq!(measured.terms[0].raw.p50_ns, Some(900));
    }
}
