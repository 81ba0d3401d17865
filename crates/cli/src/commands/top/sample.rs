//! Converts telemetry to a [`Document`]. Rates are computed from two samples.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use live::telemetry::{self, Counts, DropReason, Snapshot, Usage};
use policy::wait::{Reason, WaitKind};
use tester::document::{Name, by_name};
use units::Nanos;

use super::super::moderate;
use super::super::power::steer;
use crate::args::Top;
use crate::documents::VERSION;
use crate::documents::top::{Choice, Document, Instance, Leftover, Rate, SCHEMA, TimeShares, Total, Worker, ports};

/// Reads all workers, and keeps the last reading to compute rates.
pub struct Sampler {
    root: PathBuf,
    moderation: PathBuf,
    steering: PathBuf,
    filter: Option<String>,
    /// The last reading, by instance and worker.
    before: BTreeMap<(String, u32), Sample>,
}

/// One reading of a worker.
pub struct Sample {
    pub snapshot: Snapshot,
    pub usage: Option<Usage>,
}

impl Sampler {
    /// Reads the folders of the running instances that `typed` names.
    pub fn new(typed: &Top) -> Self {
        Self {
            root: typed.telemetry.root.clone(),
            moderation: typed.moderation.folder.clone(),
            steering: typed.steering.folder.clone(),
            filter: typed.instance.clone(),
            before: BTreeMap::new(),
        }
    }

    pub fn filter(&self) -> Option<&str> {
        self.filter.as_deref()
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Reads the running instances. A worker that the previous call saw too gets rates.
    pub fn sample(&mut self) -> Result<Document, live::Error> {
        let (readers, leftovers) = telemetry::instances(&self.root)?;
        let mut now = BTreeMap::new();
        for reader in readers {
            let snapshot = reader.snapshot();
            let id = &snapshot.identity;
            if self.filter.as_ref().is_none_or(|name| *name == id.instance) {
                let usage = Usage::of(snapshot.process.pid, snapshot.tid);
                now.insert((id.instance.clone(), id.worker), Sample { snapshot, usage });
            }
        }
        let instances = instances(&now, &self.before);
        self.before = now;
        let leftovers = leftovers.into_iter().map(|l| Leftover { path: l.path.display().to_string(), why: l.why });
        let mut leftovers: Vec<Leftover> = leftovers.collect();
        // A user who names an instance wants to see only that one.
        let (mut moderation, mut steering) = (Vec::new(), Vec::new());
        if self.filter.is_none() {
            let (found, more) = moderate::published::all(&self.moderation)?;
            moderation = found;
            leftovers.extend(more);
            let (found, more) = steer::published::all(&self.steering)?;
            steering = found;
            leftovers.extend(more);
        }
        let (apus, schema) = (VERSION.to_owned(), SCHEMA.to_owned());
        Ok(Document { apus, schema, instances, moderation, steering, leftovers })
    }
}

type Samples = BTreeMap<(String, u32), Sample>;

fn instances(now: &Samples, before: &Samples) -> Vec<Instance> {
    let mut instances: Vec<Instance> = Vec::new();
    for (key, sample) in now {
        let worker = worker(sample, before.get(key));
        match instances.last_mut() {
            Some(last) if last.instance == key.0 => last.workers.push(worker),
            _ => instances.push(Instance {
                instance: key.0.clone(),
                pid: sample.snapshot.process.pid,
                workers: vec![worker],
            }),
        }
    }
    instances
}

/// Builds the document of one worker. It has rates if `before` is an earlier sample of the same run of this worker.
pub fn worker(now: &Sample, before: Option<&Sample>) -> Worker {
    let (snapshot, id) = (&now.snapshot, &now.snapshot.identity);
    let same =
        |before: &&Sample| before.snapshot.process == snapshot.process && before.snapshot.started == snapshot.started;
    let since = |then| snapshot.taken.since(then).unwrap_or(Nanos::ZERO).as_nanos();
    Worker {
        worker: id.worker,
        tid: snapshot.tid,
        app: id.app.clone(),
        mode: id.mode.clone(),
        goal: id.goal.clone(),
        cpu: id.cpu,
        scheduling: snapshot.scheduling.class().into(),
        priority: snapshot.scheduling.priority,
        state: snapshot.state.map(Name::from),
        uptime_ns: since(snapshot.started),
        silent_ns: since(snapshot.updated),
        ports: ports(&snapshot.counts),
        choice: snapshot.choice.as_ref().map(|choice| Choice::new(choice, snapshot.taken)),
        total: Total::new(&snapshot.counts, now.usage),
        rate: before.filter(same).and_then(|before| rate(now, before)),
    }
}

/// Rates between two samples; `None` if no time passed between them.
fn rate(now: &Sample, before: &Sample) -> Option<Rate> {
    let interval = now.snapshot.taken.since(before.snapshot.taken).filter(|span| *span > Nanos::ZERO)?;
    let seconds = interval.as_nanos() as f64 / 1e9;
    let per_second = |n: u64| n as f64 / seconds;
    let share = |span: Nanos| span.as_nanos() as f64 / interval.as_nanos() as f64;
    let counts = now.snapshot.counts.since(&before.snapshot.counts);
    let usage = now.usage.zip(before.usage);
    let decisions: u64 = counts.reasons.iter().fold(0, |sum, n| sum.saturating_add(*n));
    let lost = counts.ports.iter().map(|port| port.statistics).map(|s| {
        [s.rx_ring_full, s.rx_no_buffer, s.rx_invalid, s.tx_invalid, s.tx_dropped].map(|n| n as f64).iter().sum::<f64>()
    });
    let drops = DropReason::ALL.map(|reason| (reason, counts.dropped(reason)));
    let reasons = Reason::ALL.map(|reason| (reason, counts.reason(reason)));
    let reasons = reasons.into_iter().filter(|(_, n)| *n > 0);
    Some(Rate {
        interval_ns: interval.as_nanos(),
        received_pps: per_second(counts.received_frames),
        received_bps: per_second(counts.received_bytes) * 8.0,
        sent_pps: per_second(counts.sent_frames),
        sent_bps: per_second(counts.sent_bytes) * 8.0,
        dropped_pps: by_name(drops.into_iter().filter(|(_, n)| *n > 0).map(|(reason, n)| (reason, per_second(n)))),
        device_lost_pps: lost.sum::<f64>() / seconds,
        polls_per_second: per_second(counts.polls),
        occupancy_ratio: share(counts.useful).min(1.0),
        time: time_shares(&counts, interval),
        cpu_ratio: usage.map(|(now, then)| share(now.cpu.saturating_sub(then.cpu))),
        wakeups_per_second: usage.map(|(now, then)| per_second(now.wakeups.saturating_sub(then.wakeups))),
        gaps_per_second: per_second(counts.gaps),
        gap_ratio: share(counts.gap_time),
        decision_ratios: by_name(reasons.map(|(reason, n)| (reason, n as f64 / decisions as f64))),
        pickup_lateness: (&counts.lateness).into(),
        service_time: (&counts.service).into(),
    })
}

/// Shares of the interval by activity. A wait is counted when it ends, so the times can add up to more than the
/// interval. In this case the result is their shares of the sum.
fn time_shares(counts: &Counts, interval: Nanos) -> TimeShares {
    let waits: Nanos = counts.waits.iter().fold(Nanos::ZERO, |sum, wait| sum + wait.time);
    let accounted = counts.busy + waits;
    let whole = accounted.max(interval).as_nanos() as f64;
    let share = |span: Nanos| span.as_nanos() as f64 / whole;
    let of = |kind| share(counts.wait(kind).time);
    TimeShares {
        busy_ratio: share(counts.busy),
        poll_ratio: of(WaitKind::Poll),
        pause_ratio: of(WaitKind::Pause),
        sleep_ratio: of(WaitKind::Sleep),
        block_ratio: of(WaitKind::Block),
        rest_ratio: share(interval.saturating_sub(accounted)),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::documents::moderation;
    use live::device::Health;
    use live::telemetry::{Identity, Process, Scheduling, State, histogram::Histogram};
    use policy::wait::Belief;
    use units::Instant;

    /// A choice that costs 10 % of a core for a packet every 500 us. An expected 0.3 % of the packets will be late.
    const CHOICE: telemetry::Choice = telemetry::Choice {
        at: Instant::from_nanos(0),
        kind: WaitKind::Sleep,
        reason: Reason::Budget,
        belief: Belief {
            wait: Nanos::from_micros(38),
            lasts: Nanos::from_micros(50),
            costs: Some(Nanos::from_micros(5)),
            late_worth: Nanos::from_micros(20),
            gap: Nanos::from_micros(500),
            aimed_ppm: 7_500,
            owed_millionths: 1_200_000,
            multiplier_256ths: 64,
        },
    };

    /// A worker `at_ms` after its start, which has done `polls` rounds of one frame and one wait.
    pub fn sample(at_ms: u64, polls: u64) -> Sample {
        let mut lateness = Histogram::new();
        (0..polls).for_each(|n| lateness.record(Nanos::from_nanos(2_000 + n % 1_000)));
        let mut waits = [telemetry::Wait::default(); 4];
        waits[WaitKind::Sleep as usize] = telemetry::Wait { count: polls, time: Nanos::from_micros(250) * polls };
        let mut reasons = [0; Reason::ALL.len()];
        reasons[Reason::Periodic as usize] = polls;
        reasons[Reason::Traffic as usize] = polls / 4;
        let mut dropped = [0; 9];
        dropped[DropReason::NoRoute as usize] = polls / 10;
        let started = Instant::from_nanos(1_000_000_000);
        let taken = started + Nanos::from_millis(at_ms);
        Sample {
            snapshot: Snapshot {
                identity: Identity {
                    instance: "edge".to_owned(),
                    worker: 0,
                    app: "l2fwd".to_owned(),
                    mode: "adaptive".to_owned(),
                    goal: Some("p99.9=50us".to_owned()),
                    ports: vec!["veth0".to_owned(), "veth1".to_owned()],
                    cpu: Some(1),
                },
                process: Process { pid: 4242, start_ticks: 7 },
                tid: 4243,
                scheduling: Scheduling { policy: 1, priority: 50 },
                started,
                taken,
                updated: taken,
                state: Some(State::Running),
                counts: Counts {
                    polls,
                    empty_polls: 0,
                    received_frames: polls,
                    received_bytes: polls * 64,
                    sent_frames: polls - polls / 10,
                    sent_bytes: (polls - polls / 10) * 64,
                    busy: Nanos::from_micros(50) * polls,
                    useful: Nanos::from_micros(60) * polls,
                    dropped,
                    waits,
                    reasons,
                    gaps: 0,
                    gap_time: Nanos::ZERO,
                    ports: ["veth0", "veth1"]
                        .map(|name| telemetry::PortCounts {
                            name: name.to_owned(),
                            statistics: live::device::Statistics::default(),
                            health: Some(Health::Up),
                            busy_poll: None,
                        })
                        .to_vec(),
                    lateness,
                    service: Histogram::new(),
                },
                choice: Some(telemetry::Choice { at: taken, ..CHOICE }),
            },
            usage: Some(Usage { cpu: Nanos::from_micros(60) * polls, run_delay: Nanos::ZERO, wakeups: polls }),
        }
    }

    /// An instance of `apus moderate` with one queue.
    pub fn moderated() -> moderation::Instance {
        let queue = moderation::Queue::of(&moderate::published::queue("eth0", 3));
        moderation::Instance {
            pid: 4_242,
            network_namespace: None,
            dry_run: false,
            steering_ns: 60_000_000_000,
            silent_ns: 0,
            queues: vec![queue],
            not_controlled: Vec::new(),
        }
    }

    /// A document with one worker at 2,000 packets per second.
    pub fn document() -> Document {
        let worker = worker(&sample(2_000, 4_000), Some(&sample(1_000, 2_000)));
        Document {
            apus: VERSION.to_owned(),
            schema: SCHEMA.to_owned(),
            instances: vec![Instance { instance: "edge".to_owned(), pid: 4242, workers: vec![worker] }],
            moderation: Vec::new(),
            steering: Vec::new(),
            leftovers: Vec::new(),
        }
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn rates_are_those_between_the_samples() {
        let document = document();
        let rate = document.instances[0].workers[0].rate.as_ref().unwrap();
        assert!(close(rate.received_pps, 2_000.0) && close(rate.received_bps, 2_000.0 * 512.0));
        assert!(close(rate.dropped_pps["no_route"], 200.0) && rate.dropped_pps.len() == 1);
        assert!(close(rate.cpu_ratio.unwrap(), 0.12) && close(rate.wakeups_per_second.unwrap(), 2_000.0));
        assert!(close(rate.decision_ratios["periodic"], 0.8));
        let time = rate.time;
        assert!(close(time.busy_ratio, 0.1) && close(time.sleep_ratio, 0.5) && close(time.rest_ratio, 0.4));
        assert_eq!(rate.pickup_lateness.count, 2_000);
    }

    #[test]
    fn a_wait_longer_than_the_interval_makes_no_share_above_one() {
        let mut now = sample(2_000, 2_001);
        now.snapshot.counts.waits[WaitKind::Block as usize].time = Nanos::from_secs(9);
        let time = rate(&now, &sample(1_000, 2_000)).unwrap().time;
        let sum = time.busy_ratio + time.poll_ratio + time.pause_ratio + time.sleep_ratio + time.block_ratio;
        assert!(close(sum + time.rest_ratio, 1.0) && time.block_ratio > 0.99);
    }

    #[test]
    fn another_life_of_the_worker_has_no_rate_yet() {
        let mut reborn = sample(2_000, 10);
        reborn.snapshot.process.pid += 1;
        assert_eq!(worker(&reborn, Some(&sample(1_000, 2_000))).rate, None);
        assert_eq!(worker(&reborn, None).rate, None);
        assert_eq!(rate(&sample(5, 1), &sample(5, 1)), None);
    }
}
