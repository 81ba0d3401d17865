//! Text of `rtla timerlat hist` and `rtla osnoise hist` (tools/tracing/rtla/src/timerlat_hist.c, osnoise_hist.c).
//! Columns are found by name, not by position, because some options remove columns.

use tester::host::Reading;

use super::{Column, Found, Imported};
use crate::Error;

/// Whether `line` is the first line of rtla's output.
pub(super) fn is_heading(line: &str) -> bool {
    line.starts_with("# RTLA timerlat histogram") || line.starts_with("# RTLA osnoise histogram")
}

/// The lines below the buckets, in the order in which rtla writes them. Below them it may write sums over all
/// CPUs and messages.
const FOOTER: [&str; 5] = ["over:", "count:", "min:", "avg:", "max:"];

pub(super) fn read(name: &str, text: &str) -> Result<Imported, Error> {
    let wrong = |line: usize, why: String| Error::invalid(format!("{name}, line {}", line + 1), why);
    let (mut tool, mut unit, mut duration_ns, mut names, mut footer) = (String::new(), None, None, false, false);
    let mut columns: Vec<Column> = Vec::new();
    let mut cpus = Vec::new();
    for (number, line) in text.lines().enumerate().skip_while(|(_, line)| !is_heading(line)) {
        let line = line.trim();
        let mut words = line.split_ascii_whitespace();
        if is_heading(line) {
            tool = line.trim_start_matches("# RTLA ").trim_end_matches(" histogram").to_owned();
        } else if let Some(rest) = line.strip_prefix("# Time unit is") {
            unit = Some(if rest.contains("(ns)") { 1 } else { 1_000 });
        } else if let Some(rest) = line.strip_prefix("# Duration:") {
            let found = duration(rest).ok_or_else(|| wrong(number, format!("expected d hh:mm:ss, found {rest:?}")))?;
            duration_ns = Some(found);
        } else if line.starts_with('#') || line.is_empty() {
            continue;
        } else if words.clone().next() == Some("Index") {
            columns = words.skip(1).map(|word| Column { name: word.to_owned(), ..Column::default() }).collect();
            cpus = columns.iter().filter_map(|of| of.name.rsplit('-').next()?.parse().ok()).collect();
            cpus.dedup();
            names = true;
        } else {
            let unit = unit.ok_or_else(|| wrong(number, "numbers come before \"# Time unit is …\"".into()))?;
            let first = words.next().unwrap_or_default();
            footer |= FOOTER.contains(&first);
            if line.starts_with("rtla ") || footer && !FOOTER.contains(&first) || names && columns.is_empty() {
                break;
            }
            let values: Vec<Option<f64>> = words.map(|word| word.parse().ok()).collect();
            if values.len() != columns.len() {
                return Err(wrong(number, format!("{} numbers for {} columns", values.len(), columns.len())));
            }
            for (column, value) in columns.iter_mut().zip(values) {
                // Only the mean has decimals. The conversion saturates.
                let value = value.filter(|value| *value >= 0.0);
                let scaled = value.map(|value| (value * unit as f64) as u64);
                match first {
                    "over:" => column.above = value.unwrap_or(0.0) as u64,
                    "count:" => {}
                    "min:" => column.min_ns = scaled,
                    "avg:" => column.mean_ns = scaled,
                    "max:" => column.max_ns = scaled,
                    _ => {
                        let at = first.parse::<u64>().ok().and_then(|at| at.checked_mul(unit));
                        let at =
                            at.ok_or_else(|| wrong(number, format!("{first:?} is not a value of the histogram")))?;
                        let count = value.ok_or_else(|| wrong(number, "a count is not a number".into()))?;
                        column.buckets.push((at, count as u64));
                    }
                }
            }
            if first == "max:" {
                break;
            }
        }
    }
    if columns.is_empty() {
        let why = match names {
            true => "it contains no samples",
            false => "it has no line with column names (\"Index …\"): run rtla without --no-header",
        };
        return Err(Error::invalid(name, why));
    }
    let unit = unit.unwrap_or(1_000);
    let (counts, blind_spot) = if tool == "timerlat" {
        (
            "lateness of a periodic timer at three points: its interrupt handler (IRQ), the woken thread (Thr) and the return to user space (Usr)",
            "periods that a late wake-up covers: they are skipped and not counted",
        )
    } else {
        (
            "noise in each pass of a busy loop, without nested interruptions",
            "noise shorter than rtla's --threshold, and the part of each --period in which the loop does not run (--runtime)",
        )
    };
    let found = Found {
        counts,
        blind_spots: vec![blind_spot.into()],
        tool: format!("rtla {tool}"),
        command: None,
        cpus,
        bucket_ns: bucket(&columns).unwrap_or(unit),
        duration_ns,
        columns,
        kernel: Reading::unknown("not in the file"),
        marks: Vec::new(),
    };
    Ok(found.imported(name))
}

/// The width of a bucket (rtla's option -b), which the output does not state: all buckets begin at multiples of it.
/// `None` if there is only the bucket 0. rtla leaves out empty lines, so with few lines the result may be a multiple
/// of the width.
fn bucket(columns: &[Column]) -> Option<u64> {
    fn divisor(a: u64, b: u64) -> u64 {
        if b == 0 { a } else { divisor(b, a % b) }
    }
    let begins = columns.iter().flat_map(|column| &column.buckets).map(|(at, _)| *at);
    Some(begins.fold(0, divisor)).filter(|width| *width > 0)
}

/// Parses `0 00:10:01`: days, hours, minutes, seconds.
fn duration(text: &str) -> Option<u64> {
    let (days, time) = text.trim().split_once(' ')?;
    let mut seconds = days.parse::<u64>().ok()?;
    for (part, base) in time.trim().split(':').zip([24, 60, 60]) {
        seconds = seconds.checked_mul(base)?.checked_add(part.parse().ok()?)?;
    }
    seconds.checked_mul(1_000_000_000)
}

#[cfg(test)]
mod tests {
    const TEXT: &str = "# RTLA timerlat histogram\n# Time unit is microseconds (us)\n# Duration:   0 00:00:10\n\
        Index   IRQ-000   Thr-000   IRQ-001   Thr-001\n\
        6           900         0         0         0\n\
        19          100       600       400         1\n\
        over:         0       400       600       999\n\
        count:     1000      1000      1000      1000\n\
        min:          6        18         8        19\n\
        avg:          7       204        95       113\n\
        max:         19       450       341       371\n\
        ALL:        IRQ       Thr\n\
        count:     2000      2000\n\
        min:          6        18\n\
        avg:         51       159\n\
        max:        341       450\n";

    #[test]
    fn columns_by_name_and_overflow_apart() {
        let measured = super::super::read("t.txt", TEXT).unwrap().measured;
        assert_eq!((measured.variant.as_str(), measured.duration_ns), ("rtla timerlat", Some(10_000_000_000)));
        assert_eq!(measured.conditions.cpus, [0, 1]);
        let term = |name: &str| &measured.terms.iter().find(|term| term.name == name).unwrap().raw;
        // Quantiles are known to three digits.
        assert_eq!((term("IRQ-000").p50_ns.map(|ns| ns / 1_000), term("IRQ-000").max_ns), (Some(6), Some(19_000)));
        // 60 % of the samples are in the buckets; the rest is only counted.
        let thread = term("Thr-000");
        assert_eq!((thread.count, thread.p50_ns.map(|ns| ns / 1_000), thread.p90_ns), (1_000, Some(19), None));
        assert_eq!((thread.histogram.overflow, thread.max_ns, thread.mean_ns), (400, Some(450_000), Some(204_000)));
    }

    /// As `rtla osnoise hist -b 5` writes it: means with decimals, no sums over all CPUs, and messages at the end.
    const OSNOISE: &str = "root@host:~# rtla osnoise hist -b 5 -T 1\n# RTLA osnoise histogram\n\
        # Time unit is microseconds (us)\n# Duration:   0 00:01:00\n\
        Index   CPU-000   CPU-001\n\
        0           900       800\n\
        5            90       150\n\
        20            9        40\n\
        over:         1        10\n\
        count:     1000      1000\n\
        min:          1         1\n\
        avg:       2.37      4.90\n\
        max:        180       450\n\
        rtla osnoise hit stop tracing\n  Saving trace to osnoise_trace.txt\n";

    #[test]
    fn osnoise_with_wide_buckets_and_messages() {
        let measured = super::super::read("o.txt", OSNOISE).unwrap().measured;
        let raw = &measured.terms[1].raw;
        assert_eq!((measured.terms.len(), raw.count, raw.histogram.overflow), (2, 1_000, 10));
        assert_eq!((raw.mean_ns, raw.max_ns), (Some(4_900), Some(450_000)));
        assert_eq!(measured.counter.resolution_ns, 5_000);
        assert!(measured.counter.blind_spots[0].contains("--threshold"), "{:?}", measured.counter.blind_spots);
        // Without a summary, the messages follow the buckets.
        let lines = OSNOISE.lines().filter(|line| !super::FOOTER.iter().any(|word| line.starts_with(word)));
        let text = lines.collect::<Vec<_>>().join("\n");
        assert_eq!(super::super::read("o.txt", &text).unwrap().measured.terms[1].raw.count, 990);
    }

    #[test]
    fn a_histogram_without_samples_says_so() {
        let text = "# RTLA osnoise histogram\n# Time unit is microseconds (us)\n# Duration:   0 00:00:01\nIndex\n\
            over: 0\ncount: 0\nmin: 0\navg: 0\nmax: 0\n";
        let error = super::super::read("o.txt", text).unwrap_err();
        assert!(error.to_string().contains("it contains no samples"), "{error}");
    }

    #[test]
    fn damaged_texts_name_the_line() {
        for (from, to, word) in [
            ("19          100 ", "19 ", "line 6"),
            ("6           900", "six         900", "line 5"),
            ("# Time unit is microseconds (us)\n", "", "Time unit"),
            ("0 00:00:10", "ten seconds", "line 3"),
            ("Index   IRQ-000   Thr-000   IRQ-001   Thr-001\n", "", "line"),
        ] {
            let error = super::super::read("t.txt", &TEXT.replace(from, to)).unwrap_err();
            assert!(error.to_string().contains(word), "{from:?}: {error}");
        }
    }

    #[test]
    fn nanoseconds() {
        let text = TEXT.replace("microseconds (us)", "nanoseconds (ns)");
        let measured = super::super::read("t.txt", &text).unwrap().measured;
        assert_eq!(measured.terms[0].raw.p50_ns, Some(6));
    }
}
