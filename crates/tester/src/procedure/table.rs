//! Shows the results of the procedures as text tables.

use units::{Nanos, PacketRate};

use super::compare::CompareDocument;
use super::mlr::MlrResult;
use super::result::{Ended, Repeated, Rfc2544Result, SizeResult};
use super::soak::SoakResult;
use crate::host::Reading;
use crate::layout::{aligned, wrapped};

/// Maximum width in columns of the text below a table.
const WIDTH: usize = 110;

/// The usual RFC 2544 table, with throughput and latency of each frame size, and the other tests below it.
pub fn rfc2544_table(result: &Rfc2544Result) -> Vec<String> {
    let mut lines = vec![result.standard.clone()];
    let heading = ["frame", "fps", "% of line", "min", "avg", "max", "p50", "p99", "p99.9", "n"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(result.sizes.iter().map(row));
    lines.extend(aligned(&rows, |_| false));
    for size in &result.sizes {
        lines.extend(more(size));
    }
    for deviation in &result.deviations {
        lines.extend(wrapped("deviation: ", "  ", deviation, WIDTH));
    }
    lines.extend(ending(&result.ended));
    lines
}

fn row(size: &SizeResult) -> Vec<String> {
    let dash = || "-".to_owned();
    let fps = size.throughput_pps.value.as_ref().map(|found| found.median);
    let line = fps.zip(size.line_rate_pps.value).map_or_else(dash, |(fps, line)| format!("{:.2}", 100.0 * fps / line));
    let all = size.latency.value.as_ref().map(|latency| &latency.all);
    let ns = |pick: &dyn Fn(&crate::document::Distribution) -> Option<u64>| {
        all.and_then(pick).map_or_else(dash, |ns| Nanos::from_nanos(ns).to_string())
    };
    vec![
        size.frames.clone(),
        fps.map_or_else(dash, |fps| format!("{}{fps:.0}", if size.at_least { ">=" } else { "" })),
        line,
        ns(&|all| all.min_ns),
        ns(&|all| all.mean_ns),
        ns(&|all| all.max_ns),
        ns(&|all| all.p50_ns),
        ns(&|all| all.p99_ns),
        ns(&|all| all.p99_9_ns),
        all.map_or_else(dash, |all| all.count.to_string()),
    ]
}

fn more(size: &SizeResult) -> Vec<String> {
    let mut lines = vec![format!("{}:", size.frames)];
    let mut say = |text: String| lines.extend(wrapped("  ", "    ", &text, WIDTH));
    let asked = |why: &Option<String>| why.as_deref() != Some("not requested");
    if let Some(why) = &size.throughput_pps.unknown_because {
        say(format!("throughput unknown: {why}"));
    }
    if let Some(found) = &size.throughput_pps.value
        && found.values.len() > 1
    {
        say(format!("throughput {}", repeated(found, |pps| PacketRate::new(pps as u64).to_string())));
    }
    let ceiling = reading(&size.tester_ceiling_pps, |pps| PacketRate::new(*pps).to_string());
    say(format!("the tester sends up to {ceiling} with the device connected"));
    if let Some(alone) = size.tester_alone_pps.value {
        say(format!("the tester alone reaches {}", PacketRate::new(alone as u64)));
    }
    match (&size.latency.value, &size.latency.unknown_because) {
        (Some(latency), _) => {
            let part = |what: &str, of: &Reading<Repeated>| format!("{what} {}", reading(of, |r| repeated(r, time)));
            say(part("tagged frames", &latency.tagged_ns));
            say(part("typical latency", &latency.typical_ns));
            say(part("worst case latency", &latency.worst_case_ns));
            say(part("delay variation", &latency.pdv_ns));
        }
        (None, why) if asked(why) => say(format!("latency unknown: {}", why.as_deref().unwrap_or_default())),
        _ => {}
    }
    match (&size.loss.value, &size.loss.unknown_because) {
        (Some(rows), _) => {
            let row = |row: &super::LossRow| {
                let loss = row.loss_percent.map_or("-".into(), |loss| format!("{loss:.3} %"));
                format!("{loss} at {:.0} %", row.load_percent)
            };
            say(format!("loss {}", rows.iter().map(row).collect::<Vec<_>>().join(", ")));
        }
        (None, why) if asked(why) => say(format!("loss unknown: {}", why.as_deref().unwrap_or_default())),
        _ => {}
    }
    match (&size.back_to_back.value, &size.back_to_back.unknown_because) {
        (Some(found), _) => say(format!(
            "back to back {}{}; buffer time {} implied, {} corrected",
            if found.is_lower_bound() { "at least " } else { "" },
            repeated(&found.frames, |n| format!("{n:.0} frames")),
            time(found.implied_buffer_ns),
            time(found.corrected_buffer_ns)
        )),
        (None, why) if asked(why) => say(format!("back to back unknown: {}", why.as_deref().unwrap_or_default())),
        _ => {}
    }
    if size.recovery_ns.value.is_some() || asked(&size.recovery_ns.unknown_because) {
        say(format!("recovery {}", reading(&size.recovery_ns, |found| repeated(found, time))));
    }
    if size.reset_ns.value.is_some() || asked(&size.reset_ns.unknown_because) {
        say(format!("reset {}", reading(&size.reset_ns, |ns| Nanos::from_nanos(*ns).to_string())));
    }
    let pacing = |ns: Option<u64>| ns.map_or("unknown".to_owned(), |ns| Nanos::from_nanos(ns).to_string());
    say(format!(
        "tester: pacing error p50 {}, p99 {}, max {}; stamp error {}; {} of CPU time per frame",
        pacing(size.tester.pacing.p50_ns),
        pacing(size.tester.pacing.p99_ns),
        pacing(size.tester.pacing.max_ns),
        reading(&size.tester.stamp_error_ns, |ns| time(*ns)),
        reading(&size.tester.cost_per_frame_ns, |ns| time(*ns))
    ));
    for warning in &size.warnings {
        say(format!("warning: {warning}"));
    }
    lines
}

/// The MLRsearch results: one row for each goal of each frame size.
pub fn mlr_table(result: &MlrResult) -> Vec<String> {
    let mut lines = wrapped("", "", &result.standard, WIDTH);
    let heading = ["frame", "goal", "throughput", "lower bound", "upper bound", "p50", "p99", "trials"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    let rate = |of: &Reading<f64>| of.value.map_or("-".to_owned(), |pps| format!("{pps:.0}"));
    for size in &result.sizes {
        for goal in &size.goals {
            let ns = |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| Nanos::from_nanos(ns).to_string());
            let latency = goal.latency.value.as_ref();
            rows.push(vec![
                size.frames.clone(),
                goal.goal.clone(),
                rate(&goal.throughput_pps),
                rate(&goal.lower_pps),
                rate(&goal.upper_pps),
                ns(latency.and_then(|latency| latency.p50_ns)),
                ns(latency.and_then(|latency| latency.p99_ns)),
                size.trials.to_string(),
            ]);
        }
    }
    lines.extend(aligned(&rows, |column| column == 1));
    for size in &result.sizes {
        let time = Nanos::from_nanos(size.trials_ns);
        let ceiling = reading(&size.tester_ceiling_pps, |pps| PacketRate::new(*pps).to_string());
        lines.push(format!("{}: {time} of trials; the tester sends up to {ceiling}", size.frames));
        for warning in &size.warnings {
            lines.extend(wrapped("  warning: ", "    ", warning, WIDTH));
        }
    }
    lines.extend(ending(&result.ended));
    lines
}

/// The totals of a soak, and its windows with losses.
pub fn soak_table(result: &SoakResult) -> Vec<String> {
    let window = Nanos::from_nanos(result.window_ns);
    let windows = match result.windows.len() {
        1 => "1 window".to_owned(),
        n => format!("{n} windows"),
    };
    // How long the interrupted window was is not known, only that it was shorter.
    let cut = if result.ended.complete { "" } else { ", the last one cut short" };
    let mut lines = vec![
        format!(
            "{} bytes at {}, {windows} of {window}{cut}: {} frames sent, {} lost, {} not sent",
            result.frames,
            PacketRate::new(result.load_pps),
            result.sent,
            result.lost,
            result.unsent
        ),
        format!("loss ratio below {} (95 %)", reading(&result.loss_ratio_below, |ratio| format!("{ratio:.2e}"))),
    ];
    let ns = |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| Nanos::from_nanos(ns).to_string());
    let all = &result.latency;
    lines.push(format!(
        "latency p50 {}, p99 {}, p99.9 {}, max {} (n = {})",
        ns(all.p50_ns),
        ns(all.p99_ns),
        ns(all.p99_9_ns),
        ns(all.max_ns),
        all.count
    ));
    for (number, window) in result.windows.iter().enumerate().filter(|(_, window)| window.lost > 0) {
        lines.push(format!(
            "window {}: {} of {} lost, max {}",
            number + 1,
            window.lost,
            window.sent,
            ns(window.max_ns)
        ));
    }
    for warning in &result.warnings {
        lines.extend(wrapped("warning: ", "  ", warning, WIDTH));
    }
    lines.extend(ending(&result.ended));
    lines
}

/// The comparison of two results, side by side.
pub fn compare_table(document: &CompareDocument) -> Vec<String> {
    let heading = ["frame", "quantity", &document.a, &document.b, "ratio", "95 % interval", "p", "significant"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for one in &document.comparisons {
        let interval = match one.ratio_ci95_low.zip(one.ratio_ci95_high) {
            Some((low, high)) => format!("{low:.3} to {high:.3}"),
            None => "-".into(),
        };
        let value = |value: f64, at_least: bool| format!("{}{value:.0}", if at_least { ">=" } else { "" });
        rows.push(vec![
            one.frames.clone(),
            one.quantity.to_string(),
            value(one.a, one.a_at_least),
            value(one.b, one.b_at_least),
            one.ratio.map_or("-".into(), |ratio| format!("{ratio:.3}")),
            interval,
            one.p.value.map_or("-".into(), |p| format!("{p:.3}")),
            match one.significant.value {
                Some(true) => "yes".into(),
                Some(false) => "no".into(),
                None => "unknown".into(),
            },
        ]);
    }
    let mut lines = aligned(&rows, |column| column == 1);
    let mut reasons: Vec<&String> = Vec::new();
    for why in document.comparisons.iter().filter_map(|one| one.significant.unknown_because.as_ref()) {
        if !reasons.contains(&why) {
            lines.extend(wrapped("unknown: ", "  ", why, WIDTH));
            reasons.push(why);
        }
    }
    for condition in &document.conditions {
        lines.extend(wrapped("differs: ", "  ", condition, WIDTH));
    }
    lines.extend(document.only_in_one.iter().map(|size| format!("not compared: {size}")));
    lines
}

fn ending(ended: &Ended) -> Vec<String> {
    match &ended.because {
        Some(why) => wrapped("INCOMPLETE: ", "  ", &format!("{why}; the measurements made until then are kept"), WIDTH),
        None => Vec::new(),
    }
}

fn repeated(found: &Repeated, show: impl Fn(f64) -> String) -> String {
    let interval = match found.ci95_low.zip(found.ci95_high) {
        Some((low, high)) => format!(", 95 % interval {} to {}", show(low.max(0.0)), show(high)),
        None => String::new(),
    };
    format!("{} (n = {}{interval})", show(found.mean), found.values.len())
}

fn time(ns: f64) -> String {
    Nanos::from_nanos(ns.max(0.0).round() as u64).to_string()
}

fn reading<T>(reading: &Reading<T>, show: impl Fn(&T) -> String) -> String {
    match (&reading.value, &reading.unknown_because) {
        (Some(value), _) => show(value),
        (None, why) => format!("unknown ({})", why.as_deref().unwrap_or("no reason given")),
    }
}
