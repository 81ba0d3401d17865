//! Prints measurements for people.

use std::io::{self, Write};

use probe::Measured;
use probe::detail::Detail;
use probe::detail::clock::ClockDetail;
use probe::detail::frequency::FrequencyDetail;
use probe::detail::idle::IdleDetail;
use probe::detail::interrupt::InterruptDetail;
use probe::detail::jitter::{CauseTotal, JitterCpu, JitterDetail};
use probe::mark::{Mark, MarkKind};
use probe::measured::Term;
use tester::document::Distribution;
use tester::host::Reading;
use units::{Nanos, PacketRate};

/// Prints a small table per measurement, and the notes that apply to all of them once.
pub fn table(all: &[Measured], out: &mut impl Write) -> io::Result<()> {
    for (number, measured) in all.iter().enumerate() {
        if number > 0 {
            writeln!(out)?;
        }
        one(measured, out)?;
    }
    let mut marks: Vec<&Mark> = Vec::new();
    for mark in all.iter().flat_map(|measured| &measured.marks) {
        if !marks.contains(&mark) {
            marks.push(mark);
        }
    }
    if !marks.is_empty() {
        writeln!(out)?;
    }
    for mark in marks {
        writeln!(out, "{}{}", label(mark.kind), mark.text)?;
    }
    out.flush()
}

fn label(kind: MarkKind) -> &'static str {
    match kind {
        MarkKind::VirtualMachine => "[VM] ",
        MarkKind::RealTimeThrottling => "[throttling] ",
        MarkKind::ClockStep => "[clock] ",
        MarkKind::Suspect => "[suspect] ",
        MarkKind::NotAvailable => "[not measured] ",
        MarkKind::Note => "note: ",
    }
}

fn one(measured: &Measured, out: &mut impl Write) -> io::Result<()> {
    let vm = measured.marks.iter().any(|mark| mark.kind == MarkKind::VirtualMachine);
    let mut settings: Vec<String> = measured.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
    // The probe's artificial load also influences the figures, so it is shown.
    let load = Some(&measured.conditions.load).filter(|load| !["none", "unknown"].contains(&load.as_str()));
    settings.extend(load.map(|load| format!("load={load}")));
    let end = if measured.interrupted { ", interrupted" } else { "" };
    writeln!(
        out,
        "{} {}: {}{end}, {}{}",
        measured.probe,
        measured.variant,
        measured.duration_ns.map_or("unknown duration".to_owned(), |ns| format!("{:.1} s", ns as f64 / 1e9)),
        settings.join(" "),
        if vm { " [VM]" } else { "" }
    )?;
    writeln!(
        out,
        "{:<34}{:>9}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
        "", "n", "min", "p50", "p99", "p99.9", "p99.99", "max"
    )?;
    for term in &measured.terms {
        terms(term, out)?;
    }
    match &measured.detail {
        Detail::Timer(_) | Detail::Switch(_) | Detail::Imported(_) => {}
        Detail::Interrupt(of) => interrupt(of, out)?,
        Detail::Idle(of) => idle(of, out)?,
        Detail::Frequency(of) => frequency(of, out)?,
        Detail::Clock(of) => clock(of, out)?,
        Detail::Jitter(of) => of.cpus.iter().try_for_each(|cpu| jitter(of, cpu, out))?,
    }
    for overhead in &measured.overhead {
        let place = if overhead.in_samples { "in every sample" } else { "outside the samples" };
        writeln!(out, "own cost  {} {}: {place}", us(overhead.median_ns), overhead.what)?;
    }
    if let Some(exceeded) = &measured.exceeded {
        writeln!(
            out,
            "EXCEEDED  {} is above {}, {:.3} s after the start",
            us(exceeded.sample_ns),
            Nanos::from_nanos(exceeded.threshold_ns),
            exceeded.at_ns as f64 / 1e9
        )?;
        writeln!(out, "          {}", exceeded.explained)?;
    }
    Ok(())
}

fn terms(term: &Term, out: &mut impl Write) -> io::Result<()> {
    series(&term.name, &term.raw, out)?;
    if let Some(filled) = &term.back_filled
        && filled != &term.raw
    {
        series("  stalls filled in", filled, out)?;
    }
    if let Some(blocked) = &term.blocked {
        let share = blocked.share.map_or("unknown".to_owned(), |share| format!("{:.3} %", share * 100.0));
        let blocked_for = Nanos::from_nanos(blocked.blocked_ns / 1_000 * 1_000);
        writeln!(out, "  stalled {share} of the time: {} stalls, {blocked_for}", blocked.stalls)?;
    }
    Ok(())
}

fn series(name: &str, series: &Distribution, out: &mut impl Write) -> io::Result<()> {
    let show = |ns: Option<u64>| ns.map_or("-".to_owned(), us);
    let Distribution { count, min_ns, p50_ns, p99_ns, p99_9_ns, p99_99_ns, max_ns, .. } = series;
    writeln!(
        out,
        "{name:<34}{count:>9}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
        show(*min_ns),
        show(*p50_ns),
        show(*p99_ns),
        show(*p99_9_ns),
        show(*p99_99_ns),
        show(*max_ns)
    )?;
    // A line says why a p99 is missing. For higher quantiles, no reason is printed, because they are missing more often
    // than not.
    let p99 = series.quantiles.iter().find(|of| of.quantile == "p99");
    let refusal = p99.and_then(|of| of.refused_because.as_deref());
    match refusal {
        Some(why) if p99_ns.is_none() && series.count > 0 => writeln!(out, "  -: {why}"),
        _ => Ok(()),
    }
}

fn jitter(of: &JitterDetail, cpu: &JitterCpu, out: &mut impl Write) -> io::Result<()> {
    /// Number of disturbances shown, the largest first; the JSON document has all that were recorded.
    const SHOWN: usize = 5;
    let over = Nanos::from_nanos(of.explain_over_ns);
    writeln!(
        out,
        "  CPU {}: {} in {} rounds, {} in {} gaps, {} of them in {} gaps over {over}",
        cpu.cpu,
        us(cpu.work_ns),
        cpu.rounds,
        us(cpu.gaps_ns),
        cpu.gaps,
        us(cpu.large_gaps_ns),
        cpu.large_gaps
    )?;
    for cause in &cpu.causes {
        let CauseTotal { cause, disturbances, away_ns, largest_ns } = cause;
        writeln!(out, "  {:>10} in {disturbances:>5} up to {:>8}  {cause}", us(*away_ns), us(*largest_ns))?;
    }
    if cpu.unexplained > 0 {
        writeln!(out, "  {} disturbances have no explanation", cpu.unexplained)?;
    }
    for of in cpu.largest.iter().take(SHOWN) {
        let several = if of.gaps > 1 { format!(" in {} gaps over {}", of.gaps, us(of.span_ns)) } else { String::new() };
        let length = us(of.explanation.length_ns);
        writeln!(out, "  {length:>8}{several} at {:.3} s: {}", of.at_ns as f64 / 1e9, of.explanation)?;
    }
    let packets = &cpu.packets;
    if let Some(pps) = packets.loss_free_pps {
        let rate = PacketRate::new(pps);
        writeln!(out, "  packets   a ring of {} holds all packets of the longest gap, up to {rate}", packets.ring)?;
    }
    if let (Some(rate), Some(arrived), Some(lost)) = (packets.rate_pps, packets.arrived, packets.lost) {
        writeln!(out, "            at {}: {lost} of {arrived} would have been lost", PacketRate::new(rate))?;
    }
    Ok(())
}

fn interrupt(of: &InterruptDetail, out: &mut impl Write) -> io::Result<()> {
    let sum = of.sum_of_medians_ns.map_or("-".to_owned(), us);
    writeln!(
        out,
        "  sent {}, received {}, lost {}, skipped because one was still under way {}; the medians of the parts add up to {sum}",
        of.sent, of.received, of.lost, of.missed
    )
}

fn idle(of: &IdleDetail, out: &mut impl Write) -> io::Result<()> {
    for state in &of.states {
        let claim = state
            .claimed_exit_ns
            .map_or("no exit latency stated".to_owned(), |ns| format!("stated exit latency {}", us(ns)));
        writeln!(out, "  state {} {:<8} {claim}", state.number, state.name)?;
    }
    for case in &of.cases {
        let above = case.median_above_first_ns.map_or("-".to_owned(), us);
        let claim = case
            .median_above_claim_ns
            .map_or(String::new(), |ns| format!(", {:+.1}us relative to the stated latency", ns as f64 / 1e3));
        let entered = show(&case.entered, |n| format!("requested {n} times"));
        writeln!(out, "  {:<40} {above} above the first{claim}; {} wake-ups, {entered}", case.term, case.wakeups)?;
    }
    writeln!(
        out,
        "  polling by the guest itself before it halts: {}",
        show(&of.guest_halt_polling, |of| us(of.guest_halt_poll_ns))
    )
}

fn frequency(of: &FrequencyDetail, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "  {} requests by the {}, {} without effect; {} work items",
        of.changes.len(),
        of.via,
        of.without_effect,
        of.units
    )?;
    for level in &of.levels_hz {
        let of_level = || of.changes.iter().filter(|change| change.to_hz == *level);
        let mut units: Vec<u64> = of_level().map(|change| change.unit_after_ns).collect();
        units.sort_unstable();
        let unit = units.get(units.len() / 2).map_or("-".to_owned(), |ns| us(*ns));
        let effective = of_level()
            .next_back()
            .map_or("-".to_owned(), |change| show(&change.effective_hz, |hz| format!("{} MHz", hz / 1_000_000)));
        writeln!(out, "  {:>6} MHz: a work item takes {unit}; effective frequency {effective}", level / 1_000_000)?;
    }
    Ok(())
}

fn clock(of: &ClockDetail, out: &mut impl Write) -> io::Result<()> {
    for clock in &of.clocks {
        let step = clock.smallest_step_ns.map_or("none".to_owned(), us);
        let resolution = us(clock.resolution_ns);
        writeln!(out, "  {:<28} resolution {resolution:>8}, smallest step seen {step:>8}", clock.name)?;
    }
    let hz = show(&of.tsc_hz, |hz| format!("{:.3} MHz", *hz as f64 / 1e6));
    let invariant = show(&of.tsc_invariant, |yes| if *yes { "invariant" } else { "not invariant" }.to_owned());
    writeln!(out, "  time-stamp counter {hz}, {invariant}")?;
    for pair in &of.tsc_pairs {
        let ns = |reading: &Reading<f64>| show(reading, |ns| format!("{ns:.1} ns"));
        writeln!(
            out,
            "  CPU {} is ahead of CPU {} by {}, to within {}; drift {}; {} readings in the wrong order",
            pair.to,
            pair.from,
            ns(&pair.ahead_ns),
            ns(&pair.bound_ns),
            ns(&pair.drift_ns),
            pair.warps
        )?;
    }
    Ok(())
}

fn show<T>(reading: &Reading<T>, show: impl Fn(&T) -> String) -> String {
    match (&reading.value, &reading.unknown_because) {
        (Some(value), _) => show(value),
        (None, why) => format!("unknown ({})", why.as_deref().unwrap_or("no reason given")),
    }
}

/// Formats nanoseconds with about three significant digits: `27ns`, `6.7us`, `1.20s`.
pub fn us(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns}ns"),
        1_000..10_000 => format!("{:.2}us", ns as f64 / 1e3),
        10_000..1_000_000 => format!("{:.1}us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2}ms", ns as f64 / 1e6),
        _ => format!("{:.2}s", ns as f64 / 1e9),
    }
}
