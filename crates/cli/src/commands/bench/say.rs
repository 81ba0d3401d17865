//! Prints results for people.

use std::io::{self, Write};

use tester::document::{Distribution, Name};
use tester::host::Reading;
use tester::result::{CpuDocument, FloodResult, LatencyResult, LoadResult, LoadTrial, Measured, SearchEnd};
use tester::search::Verdict;
use units::{Nanos, PacketRate};

/// Prints a result as a small table.
pub fn table(result: &Measured, out: &mut impl Write) -> io::Result<()> {
    match result {
        Measured::Latency(result) => latency(result, out)?,
        Measured::Load(result) => load(result, out)?,
        Measured::Flood(result) => flood(result, out)?,
    }
    out.flush()
}

fn latency(result: &LatencyResult, out: &mut impl Write) -> io::Result<()> {
    let span = Nanos::from_nanos(result.duration_ns.saturating_sub(result.warm_up_ns));
    let span = span.as_nanos() as f64 / 1e9;
    let end = if result.interrupted { ", interrupted" } else { "" };
    let size = match result.schedule.starts_with("pcap") {
        true => "sized as in the capture".to_owned(),
        false => format!("of {} bytes", result.frame_octets),
    };
    writeln!(out, "{}, frames {size}, {span:.1} s{end}", result.schedule)?;
    writeln!(out, "{:<10}{:>12}  {:<22}{:>12}", "latency", "outside gaps", "95 % interval", "all samples")?;
    for (clean, all) in result.clean.quantiles.iter().zip(&result.all.quantiles) {
        let interval = match (clean.ci95_low_ns, clean.ci95_high_ns) {
            (Some(low), Some(high)) => format!("{} to {}", us(low), us(high)),
            _ => "too few samples".to_owned(),
        };
        let value = |ns: Option<u64>| ns.map_or("-".to_owned(), us);
        writeln!(
            out,
            "{:<10}{:>12}  {interval:<22}{:>12}",
            clean.quantile,
            value(clean.latency_ns),
            value(all.latency_ns)
        )?;
    }
    let max = |distribution: &Distribution| distribution.max_ns.map_or("-".to_owned(), us);
    writeln!(out, "{:<10}{:>12}  {:<22}{:>12}", "max", max(&result.clean), "", max(&result.all))?;
    writeln!(out, "{:<10}{:>12}  {:<22}{:>12}", "samples", result.clean.count, "", result.all.count)?;
    let exclusion = &result.exclusion;
    let share = reading(&exclusion.share_excluded, |share| format!("{:.2} %", share * 100.0));
    let tested = reading(&exclusion.tested_gaps, |n| format!("{n} gaps of the device under test"));
    writeln!(out, "left out  {share}: frames under way in {} gaps of the tester, {tested}", exclusion.tester_gaps)?;
    let frames = &result.frames;
    writeln!(
        out,
        "frames    {} sent, {} lost ({} outside gaps), {} not sent, {} duplicates, {} reordered, {} corrupted",
        exclusion.intended.saturating_sub(exclusion.unsent),
        exclusion.lost,
        exclusion.lost_outside_gaps,
        exclusion.unsent,
        frames.duplicates,
        frames.reordered,
        frames.corrupted
    )?;
    if exclusion.intended == 0 && frames.sent > 0 {
        let warm_up = Nanos::from_nanos(result.warm_up_ns);
        writeln!(out, "          all frames were due during the warm-up of {warm_up}: shorten --warm-up")?;
    } else if frames.sent > 0 && result.all.count == 0 {
        writeln!(
            out,
            "          no frame came back: does the other end return frames (apus run macswap), and do frames of {} bytes fit its MTU?",
            result.frame_octets
        )?;
    }
    let pps = |reading: &Reading<f64>| self::reading(reading, rate);
    writeln!(
        out,
        "rate      {} intended, {} sent, {} received; this tester can send {}",
        pps(&result.intended_pps),
        pps(&result.offered_pps),
        pps(&result.received_pps),
        pps(&result.tester.ceiling_pps)
    )?;
    cpu(&result.tested_cpu, out)?;
    writeln!(out, "energy    {}", result.energy.says())?;
    if let Some(goal) = &result.goal {
        let measured = goal.measured_ns.value.map_or("-".to_owned(), us);
        match (goal.held.value, &goal.held.unknown_because) {
            (Some(true), _) => writeln!(out, "goal      {} met: {measured}", goal.goal)?,
            (Some(false), _) => writeln!(out, "goal      {} MISSED: {measured}", goal.goal)?,
            (None, why) => writeln!(out, "goal      {} undecided: {}", goal.goal, why.as_deref().unwrap_or(""))?,
        }
    }
    Ok(())
}

fn load(result: &LoadResult, out: &mut impl Write) -> io::Result<()> {
    let goal = &result.goal;
    writeln!(
        out,
        "highest rate with at most {} ppm lost, searched from {} to {}, to within {} %",
        goal.loss_tolerance_ppm,
        PacketRate::new(goal.min_pps),
        PacketRate::new(goal.max_pps),
        f64::from(goal.width_ppm) / 1e4
    )?;
    let pps = |reading: &Reading<u64>| self::reading(reading, |pps| PacketRate::new(pps).to_string());
    writeln!(out, "passes    {}", pps(&result.highest_loss_free_pps))?;
    if let Some(unsent) = unsent_at(result) {
        writeln!(
            out,
            "          in a trial that passed at this rate, the tester itself skipped or lost {:.2} % of the frames (see --cpu, --fifo)",
            100.0 * unsent
        )?;
    }
    writeln!(out, "fails     {}", pps(&result.lowest_failing_pps))?;
    let end = match result.end {
        SearchEnd::Converged => "the bounds are as close as --width asks for",
        SearchEnd::TesterLimited if result.highest_loss_free_pps.value.is_none() => {
            &format!("the tester could not send even {} (see --cpu, --fifo)", PacketRate::new(goal.min_pps))
        }
        SearchEnd::MaximumPassed => "even --max-rate passed",
        SearchEnd::TesterLimited => "the tester could not send faster",
        SearchEnd::MinimumFailed => "even --min-rate failed: does the other end return frames (apus run macswap)?",
        SearchEnd::GaveUp => "the maximum number of trials was reached",
        SearchEnd::Interrupted => "it was interrupted",
    };
    writeln!(out, "the search ended after {} trials: {end}", result.trials.len())?;
    match (&result.latency.value, &result.latency.unknown_because) {
        (Some(result), _) => {
            writeln!(out)?;
            latency(result, out)
        }
        (None, why) => writeln!(out, "latency   not measured: {}", why.as_deref().unwrap_or_default()),
    }
}

/// The largest share of frames that the tester did not send, or lost on their way back, in a trial that passed at the
/// rate found. `None` if there were none.
fn unsent_at(result: &LoadResult) -> Option<f64> {
    let rate = result.highest_loss_free_pps.value?;
    let passed =
        result.trials.iter().filter(|trial| trial.load_pps == rate && trial.verdict == Name::of(&Verdict::Pass));
    let share = |trial: &LoadTrial| trial.unsent as f64 / (trial.sent + trial.unsent).max(1) as f64;
    passed.map(share).reduce(f64::max).filter(|share| *share > 0.0)
}

fn flood(result: &FloodResult, out: &mut impl Write) -> io::Result<()> {
    let end = if result.interrupted { ", interrupted" } else { "" };
    let span = result.duration_ns as f64 / 1e9;
    writeln!(out, "flood, frames of {} bytes, {span:.1} s{end}", result.frame_octets)?;
    writeln!(out, "sent      {} ({} frames)", reading(&result.sent_pps, rate), result.sent)?;
    writeln!(out, "received  {} ({} frames)", reading(&result.received_pps, rate), result.received)?;
    if result.tester_rx_dropped > 0 {
        writeln!(
            out,
            "          {} more came back, but the tester was too slow to receive them",
            result.tester_rx_dropped
        )?;
    }
    cpu(&result.tested_cpu, out)?;
    writeln!(out, "energy    {}", result.energy.says())
}

fn cpu(used: &Reading<CpuDocument>, out: &mut impl Write) -> io::Result<()> {
    let show = |used: CpuDocument| {
        let share = 100.0 * used.cpu_ns as f64 / used.interval_ns.max(1) as f64;
        let wakeups = used.wakeups_per_s.map_or("unknown".to_owned(), |rate| format!("{rate:.0}"));
        let delayed = 100.0 * used.run_delay_ns as f64 / used.interval_ns.max(1) as f64;
        // Share of the packets that were late because the tested device had to wait for the CPU.
        let delayed = if delayed < 1.0 { String::new() } else { format!("; {delayed:.1} % waiting for the CPU") };
        format!("{share:.1} % of one core, {wakeups} wake-ups/s{delayed}")
    };
    writeln!(out, "CPU       {}", reading(used, show))
}

fn rate(pps: f64) -> String {
    PacketRate::new(pps.round() as u64).to_string()
}

fn reading<T: Copy>(reading: &Reading<T>, show: impl Fn(T) -> String) -> String {
    match (reading.value, &reading.unknown_because) {
        (Some(value), _) => show(value),
        (None, why) => format!("unknown ({})", why.as_deref().unwrap_or("no reason given")),
    }
}

fn us(ns: u64) -> String {
    format!("{:.1}us", ns as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use live::device::Statistics;
    use tester::gaps::Recovery;
    use tester::histogram::Histogram;
    use tester::ledger::Ledger;
    use tester::trial::{Counts, LoopCost, Trial, TrialConfig};
    use units::Instant;

    use super::*;

    /// A capture that was shorter than the warm-up once led to "no frame came back: does the other end return frames".
    #[test]
    fn frames_that_were_all_due_during_the_warm_up_are_not_missed() {
        use tester::frame::{Encapsulation, FrameSize, LOCAL_EXPERIMENTAL, Layout};
        let encapsulation = Encapsulation::Ethernet { ethertype: LOCAL_EXPERIMENTAL };
        let layout = Layout { destination: [2; 6], source: [2; 6], encapsulation, size: FrameSize::SMALLEST };
        let said = |warm_up: Nanos, back: bool| {
            let mut ledger = Ledger::with_room(1);
            let sequence = ledger.intend(Nanos::from_millis(1));
            if back {
                ledger.received(sequence, Nanos::from_micros(5));
            }
            let received = u64::from(back);
            let trial = Trial {
                start: Instant::from_nanos(0),
                warm_up,
                planned: Nanos::from_millis(2),
                sending: Nanos::from_millis(2),
                ledger,
                counts: Counts { intended: 1, sent: 1, received, ..Counts::default() },
                gaps: Vec::new(),
                lateness: Histogram::new(),
                cost: LoopCost::default(),
                device: Statistics::default(),
                link_down_seen: 0,
                interrupted: false,
            };
            let config = TrialConfig { warm_up, ..TrialConfig::new(layout, "constant:1kpps".parse().unwrap()) };
            let recovery = Recovery::default();
            let result = LatencyResult::new(&config, &trial, Ok(&[]), recovery, Err("not measured".into()));
            let mut text = Vec::new();
            latency(&result, &mut text).unwrap();
            String::from_utf8(text).unwrap()
        };
        let early = said(Nanos::from_millis(100), true);
        assert!(early.contains("all frames were due during the warm-up of 100ms: shorten --warm-up"), "{early}");
        assert!(!early.contains("no frame came back"), "{early}");
        assert!(said(Nanos::ZERO, false).contains("no frame came back"));
        assert!(!said(Nanos::ZERO, true).contains("warm-up"));
    }
}
