//! Formats the properties and the results of an instance, as text and as a document.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use host::transaction::DeferredQueues;
use live::Error;
use live::device::Health;
use live::instance::{Cause, Outcome};
use live::port::{PeakRateSource, PortKind, PortReport, WrapperReport};
use live::telemetry::Snapshot;
use live::worker::Finish;
use policy::wait::Mode;
use tester::document::{Distribution, Energy, Work};
use units::Nanos;

use super::meaning::Meaning;
use crate::documents::VERSION;
use crate::documents::run::{Document, Ended, Faults, Port, SCHEMA, Worker, WorkerCounts, WorkerEnded};
use crate::documents::top::Total;
use crate::failure::describe;

/// Returns one line of text per port, and one about the longest wait at which no ring overflows.
///
/// `deferred` holds, for each port, the queues whose interrupts are deferred.
pub fn start(ports: &[PortReport], deferred: &[Option<DeferredQueues>], mode: Mode) -> Vec<String> {
    let of_port = |(report, deferred): (_, &Option<_>)| port(report, deferred.as_ref());
    let mut lines: Vec<String> = ports.iter().zip(deferred).map(of_port).collect();
    if let Mode::Adaptive(config) = mode {
        lines.push(match config.loss {
            Some(bound) => format!(
                "no timed sleep exceeds {}, in which {} descriptors fill at {}",
                bound.longest_absence(),
                bound.descriptors,
                bound.peak
            ),
            None => "no limit on sleeps: these ports cannot lose frames".to_owned(),
        });
    }
    lines
}

fn port(report: &PortReport, deferred: Option<&DeferredQueues>) -> String {
    let mut line = match (&report.driver, report.kind) {
        (None, PortKind::Pcap) => format!("{}: frames from a capture file", report.name),
        (None, _) => format!("{}: frames from memory", report.name),
        (Some(driver), _) => {
            let queues: Vec<String> = driver.queues.iter().map(ToString::to_string).collect();
            let mut line = format!("{}: queue {}", report.name, queues.join(","));
            if let Some(available) = driver.available_queues.filter(|available| *available as usize > queues.len()) {
                line.push_str(&format!(" of {available}"));
            }
            if let Some(mode) = driver.xdp_mode {
                let copy = if driver.zero_copy { "zero-copy" } else { "copying" };
                line.push_str(&format!(", {mode} XDP, {copy}"));
            }
            if let Some(name) = &driver.dpdk_driver {
                let interrupts =
                    if driver.wakes == Some(true) { "receive interrupts" } else { "no receive interrupts" };
                line.push_str(&format!(", DPDK driver {name}, {} descriptors, {interrupts}", report.rx_descriptors));
            }
            match deferred {
                Some(DeferredQueues::Napis(napis)) => {
                    line.push_str(&format!(", interrupts of {} NAPI instance(s) deferred", napis.len()));
                }
                Some(DeferredQueues::Device) => {
                    line.push_str(", interrupts of all queues deferred (this kernel cannot defer those of one queue)");
                }
                None => {}
            }
            line
        }
    };
    if let Some(peak) = report.peak {
        line.push_str(&format!(", at most {} per queue", peak.rate));
        line.push_str(match peak.from {
            PeakRateSource::Given => " (--peak-rate)",
            PeakRateSource::LineRate => " (line rate)",
            PeakRateSource::Assumed => " (assuming 10 Gbit/s, as the driver reports no speed; see --peak-rate)",
        });
    }
    line
}

/// One warning per interface that has more receive queues than the one that is served by default. `without_queues` has
/// the names of the interfaces for which the user stated no queues.
pub fn unserved_warnings(ports: &[PortReport], without_queues: &[String]) -> Vec<String> {
    let warning = |report: &PortReport| {
        let name = &report.name;
        let available = report.driver.as_ref()?.available_queues.filter(|queues| *queues > 1)?;
        without_queues.contains(name).then(|| {
            format!(
                "{name} has {available} receive queues, but only queue 0 is served, so the frames that arrive on the others go to the kernel; serve them all with {name}:0-{}, or direct all frames to queue 0 with ethtool -X {name} equal 1",
                available - 1
            )
        })
    };
    ports.iter().filter_map(warning).collect()
}

/// One warning per interface on which generic XDP took the place of native XDP.
pub fn generic_warnings(ports: &[PortReport]) -> Vec<String> {
    let warning = |report: &PortReport| {
        let why = report.driver.as_ref()?.native_failure.as_ref()?;
        Some(format!(
            "{} uses generic XDP, which takes more CPU time per frame, because native XDP failed: {why}; its driver may not support native XDP, or not with this MTU or number of queues (--xdp generic omits this warning)",
            report.name
        ))
    };
    ports.iter().filter_map(warning).collect()
}

/// One warning per port on which busy polling has no effect.
pub fn busy_poll_warnings(snapshots: &[Snapshot]) -> Vec<String> {
    let ports = snapshots.iter().flat_map(|snapshot| &snapshot.counts.ports);
    let mut names: Vec<&str> = ports.filter(|port| port.busy_poll == Some(false)).map(|p| p.name.as_str()).collect();
    names.dedup();
    let warning = |name| {
        format!("busy polling has no effect on {name}, because its sockets have no NAPI instance; omit --busy-poll")
    };
    names.into_iter().map(warning).collect()
}

/// One warning per port whose link is down for a worker.
pub fn link_warnings(ports: &[PortReport], snapshots: &[Snapshot]) -> Vec<String> {
    let is_down = |number: usize| {
        let of_worker = |snapshot: &Snapshot| snapshot.counts.ports.get(number)?.health;
        snapshots.iter().any(|snapshot| of_worker(snapshot) == Some(Health::Down))
    };
    let warning = |report: &PortReport| {
        let name = &report.name;
        let fix = match report.kind {
            PortKind::AfXdp => format!("switch on both ends (ip link set dev {name} up), and check the cable"),
            _ => "switch on the other end, and check the cable".to_owned(),
        };
        format!("the link of {name} is down: no frames arrive, and frames sent to it are dropped; {fix}")
    };
    ports.iter().enumerate().filter(|(number, _)| is_down(*number)).map(|(_, report)| warning(report)).collect()
}

/// The warnings about links that have been down for long. A driver may take a link down for seconds when the XDP
/// program is attached.
#[derive(Default)]
pub struct Links {
    /// Each warning, and since when it has applied.
    down: Vec<(String, Instant)>,
    /// Those of them that were given.
    told: Vec<String>,
}

impl Links {
    /// A link that is down for this long is reported.
    const PATIENCE: Duration = Duration::from_secs(5);

    /// Returns the warnings that are due at the time `now` and were not given yet.
    pub fn look(&mut self, warnings: Vec<String>, now: Instant) -> Vec<String> {
        self.down.retain(|(known, _)| warnings.contains(known));
        self.told.retain(|told| warnings.contains(told));
        for warning in warnings {
            if !self.down.iter().any(|(known, _)| *known == warning) {
                self.down.push((warning, now));
            }
        }
        let is_due = |since: &Instant| now.duration_since(*since) >= Self::PATIENCE;
        let due = self.down.iter().filter(|(_, since)| is_due(since)).map(|(warning, _)| warning);
        let new: Vec<String> = due.filter(|warning| !self.told.contains(warning)).cloned().collect();
        self.told.extend(new.iter().cloned());
        new
    }
}

/// Builds the document of an instance that could not start.
pub fn not_started(meaning: &Meaning, error: String) -> Document {
    Document {
        apus: VERSION.to_owned(),
        schema: SCHEMA.to_owned(),
        config: meaning.config.clone(),
        ports: Vec::new(),
        loss_bound: None,
        ended: Ended::Failed.into(),
        ran_ns: None,
        workers: Vec::new(),
        faults: Vec::new(),
        energy: Energy::unmeasured("the instance did not start"),
        accounted: true,
        warnings: meaning.warnings.clone(),
        error: Some(error),
    }
}

/// Builds the document of an instance that ran.
///
/// `ports` holds the report of each port, and its queues whose interrupts were deferred.
pub fn document(
    meaning: &Meaning,
    (ports, deferred): (&[PortReport], &[Option<DeferredQueues>]),
    mode: Mode,
    outcome: &Outcome,
    energy: Energy,
) -> Document {
    let workers: Vec<Worker> = outcome.workers.iter().enumerate().map(|(number, end)| worker(number, end)).collect();
    let error = workers.iter().find_map(|worker| worker.error.clone());
    let ended = match (outcome.cause, &error) {
        (_, Some(_)) => Ended::Failed,
        (Cause::Asked, None) => Ended::Asked,
        (Cause::Duration, None) => Ended::Duration,
        (Cause::Worker, None) => Ended::Exhausted,
    };
    let snapshots: Vec<Snapshot> = outcome.workers.iter().filter_map(|worker| worker.counts.clone()).collect();
    let mut warnings = meaning.warnings.clone();
    warnings.extend(busy_poll_warnings(&snapshots));
    warnings.extend(link_warnings(ports, &snapshots));
    for (path, meter) in outcome.wrappers.iter().filter_map(|wrapper| wrapper.capture.as_ref()) {
        let reasons = [(meter.missed(), "the disk was too slow"), (meter.unwritten(), "the file could not be written")];
        for (frames, why) in reasons.into_iter().filter(|(frames, _)| *frames > 0) {
            warnings.push(format!("{}: {frames} frames are missing, because {why}", path.display()));
        }
    }
    Document {
        apus: VERSION.to_owned(),
        schema: SCHEMA.to_owned(),
        config: meaning.config.clone(),
        ports: ports.iter().zip(deferred).map(|(report, deferred)| Port::of(report, deferred.as_ref())).collect(),
        loss_bound: if let Mode::Adaptive(config) = mode { config.loss.map(Into::into) } else { None },
        ended: ended.into(),
        ran_ns: workers.iter().filter_map(|worker| worker.counts.as_ref()).map(|counts| counts.ran_ns).max(),
        accounted: workers.iter().filter_map(|w| w.counts.as_ref()).all(|counts| counts.accounted),
        workers,
        faults: outcome.wrappers.iter().filter_map(faults).collect(),
        energy,
        warnings,
        error,
    }
}

/// The number of frames that the workers received, and their CPU time or why it is unknown.
pub fn work(outcome: &Outcome) -> (u64, Result<Work, String>) {
    let counts = outcome.workers.iter().filter_map(|worker| worker.counts.as_ref());
    let frames = counts.map(|snapshot| snapshot.counts.received_frames).sum();
    let unknown = || "the kernel does not report the CPU time of a worker".to_owned();
    let work = outcome.workers.iter().try_fold(Work { cpu_ns: 0, wakeups: Some(0) }, |sum, worker| {
        let usage = worker.usage.ok_or_else(unknown)?;
        let wakeups = sum.wakeups.map(|sum| sum + usage.wakeups);
        Ok(Work { cpu_ns: sum.cpu_ns + usage.cpu.as_nanos(), wakeups })
    });
    (frames, work)
}

fn faults(wrapper: &WrapperReport) -> Option<Faults> {
    let meter = wrapper.fault.as_ref()?;
    let (received, sent) = (meter.rx().into(), meter.tx().into());
    Some(Faults { worker: wrapper.worker, port: wrapper.port, received, sent })
}

fn worker(number: usize, end: &live::instance::WorkerEnd) -> Worker {
    let (ended, error) = match &end.result {
        Ok(Finish::Stopped) => (WorkerEnded::Stopped, None),
        Ok(Finish::Exhausted) => (WorkerEnded::Exhausted, None),
        Err(error) => (WorkerEnded::Failed, Some(text(error))),
    };
    let counts = end.counts.as_ref().map(|snapshot| WorkerCounts::new(snapshot, end.usage));
    Worker { worker: number, ended: ended.into(), error, counts, hold_off_changes: None, idle_limit_changes: None }
}

fn text(error: &Error) -> String {
    match error {
        // `describe` needs an owned error. These errors have no source that the copy would lose.
        Error::PortLost { port, why } => describe(&Error::PortLost { port: port.clone(), why: why.clone() }.into()).0,
        other => other.to_string(),
    }
}

/// Prints a few lines per worker.
pub fn summary(document: &Document, out: &mut impl Write) -> io::Result<()> {
    let config = &document.config;
    let goal = config.goal.as_ref().map(|goal| format!(" {goal}")).unwrap_or_default();
    let ran = document.ran_ns.map_or("did not run".to_owned(), |ns| format!("{:.1} s", ns as f64 / 1e9));
    writeln!(out, "{}: {}, {}{goal}, {ran}", config.instance, config.app, config.mode)?;
    for worker in &document.workers {
        let Some(counts) = &worker.counts else { continue };
        if document.workers.len() > 1 {
            writeln!(out, "worker {}", worker.worker)?;
        }
        let total = &counts.total;
        writeln!(out, "  received  {} frames, sent {}{}", total.received_frames, total.sent_frames, drops(total))?;
        if !counts.accounted {
            writeln!(
                out,
                "  MISCOUNTED: received differs from sent + dropped; this is a bug in Apus, please report it"
            )?;
        }
        for device in &counts.devices {
            let lost = [
                ("ring full", device.rx_ring_full_frames),
                ("no buffer", device.rx_no_buffer_frames),
                ("invalid", device.rx_invalid_frames),
                ("refused to send", device.tx_invalid_frames),
                ("dropped by the driver", device.tx_dropped_frames),
            ];
            for (reason, frames) in lost.into_iter().filter(|(_, frames)| *frames > 0) {
                writeln!(out, "  {} lost {frames} frames: {reason}", device.name)?;
            }
        }
        for faults in document.faults.iter().filter(|faults| faults.worker == worker.worker) {
            let port = document.ports.get(faults.port).map_or("?", |port| port.name.as_str());
            for (direction, counts) in [("received", faults.received), ("sent", faults.sent)] {
                let list = counts.list().into_iter().filter(|(_, frames)| *frames > 0);
                let list: Vec<String> = list.map(|(fault, frames)| format!("{frames} {fault}")).collect();
                let list = if list.is_empty() { "none".to_owned() } else { list.join(", ") };
                writeln!(out, "  faults    {port}, of {} {direction} frames: {list}", counts.seen_frames)?;
            }
        }
        writeln!(out, "  lateness  {}", quantiles(&total.pickup_lateness, total.received_frames))?;
        writeln!(out, "  service   {}", quantiles(&total.service_time, total.received_frames))?;
        let share = |ns: u64| 100.0 * ns as f64 / counts.ran_ns.max(1) as f64;
        let cpu = counts.cpu_ratio.map_or("unknown".to_owned(), |ratio| format!("{:.1} %", ratio * 100.0));
        let wakeups = total.wakeups.map(|n| n as f64 * 1e9 / counts.ran_ns.max(1) as f64);
        let wakeups = wakeups.map_or(String::new(), |rate| format!(", {rate:.0} wake-ups/s"));
        writeln!(out, "  CPU       {cpu}{wakeups}; on frames {:.1} %", share(total.busy_ns))?;
        let waits = total.waits.iter().filter(|(_, wait)| wait.count > 0);
        let waits: Vec<String> =
            waits.map(|(kind, wait)| format!("{} {kind} ({:.1} %)", wait.count, share(wait.time_ns))).collect();
        if !waits.is_empty() {
            writeln!(out, "  waits     {}", waits.join(", "))?;
        }
        let reasons = total.decisions.iter().filter(|(_, n)| **n > 0);
        let reasons: Vec<String> = reasons.map(|(reason, n)| format!("{n} {reason}")).collect();
        writeln!(out, "  because   {}", reasons.join(", "))?;
        if let Some(changes) = worker.hold_off_changes {
            writeln!(out, "  hold-off  changed {changes} times")?;
        }
        if let Some(changes) = worker.idle_limit_changes {
            writeln!(out, "  idling    limit of the exit latency changed {changes} times")?;
        }
        if total.gaps > 0 {
            let time = Nanos::from_nanos(total.gap_time_ns);
            writeln!(out, "  stopped   {} times by the host, for {time} in total", total.gaps)?;
        }
    }
    if document.ran_ns.is_some() {
        writeln!(out, "  energy    {}", document.energy.says())?;
    }
    for warning in &document.warnings {
        writeln!(out, "warning: {warning}")?;
    }
    out.flush()
}

fn drops(total: &Total) -> String {
    let dropped = total.dropped_frames.iter().filter(|(_, frames)| **frames > 0);
    let dropped: Vec<String> = dropped.map(|(reason, frames)| format!("{frames} {reason}")).collect();
    if dropped.is_empty() { ", dropped none".to_owned() } else { format!(", dropped {}", dropped.join(", ")) }
}

fn quantiles(times: &Distribution, received: u64) -> String {
    if times.count == 0 {
        let why = if received == 0 { "no frame came" } else { "the frames carry no arrival time" };
        return format!("unknown: {why}");
    }
    let known = [("p50", times.p50_ns), ("p99", times.p99_ns), ("p99.9", times.p99_9_ns), ("max", times.max_ns)];
    let known: Vec<String> =
        known.iter().filter_map(|(name, ns)| ns.map(|ns| format!("{name} {:.1}us", ns as f64 / 1e3))).collect();
    format!("{} ({} samples)", known.join(", "), times.count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_stays_down_is_reported_once() {
        let (start, mut links) = (Instant::now(), Links::default());
        let mut look = |second: u64, down: &[&str]| {
            links.look(down.iter().map(ToString::to_string).collect(), start + Duration::from_secs(second))
        };
        assert!(look(0, &["a"]).is_empty() && look(4, &["a"]).is_empty(), "too soon");
        assert!(look(5, &[]).is_empty() && look(6, &["a"]).is_empty(), "it was up meanwhile");
        assert!(look(10, &["a", "b"]).is_empty());
        assert_eq!(look(11, &["a", "b"]), ["a"]);
        assert_eq!(look(20, &["a", "b"]), ["b"]);
        assert!(look(60, &["a", "b"]).is_empty() && look(61, &["b"]).is_empty() && look(62, &["a", "b"]).is_empty());
        assert_eq!(look(70, &["a", "b"]), ["a"], "it went down again");
    }
}
