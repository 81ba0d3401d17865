//! Writes the counters as OpenMetrics text. Each counter counts from the start of its worker, in base units.

use std::fmt;
use std::path::PathBuf;

use host::facts::{Root, Softirqs};
use live::device::Health;
use live::telemetry::{self, Counts, DropReason, Histogram, Snapshot, State, Usage};
use policy::wait::{Reason, WaitKind};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeCounterValue, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use units::Nanos;

use super::super::moderate::published;
use super::super::power::{serve, steer};
use super::guests::Guests;
use super::moderation::Moderated;
use super::steering::Steered;
use super::{Folders, Labels};
use crate::documents::VERSION;
use crate::terminal::clean;

/// Upper bounds of the exported histograms in us: 1-2-5 from 1 us to 1 s. The buckets in the telemetry are narrower
/// than 0.8 % of their value. A bucket that contains a bound counts as above it.
const BOUNDS_US: [u64; 19] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
    1_000_000,
];

/// Renders the metrics of the running workers, of the queues that `apus moderate` controls, of the CPUs that `apus power
/// steer` controls, and of the guests of `apus power serve`.
pub(super) fn read(folders: &Folders) -> Result<String, live::Error> {
    let softirqs = || Softirqs::read(&Root::live()).into_value().unwrap_or_default();
    let moderated = Moderated::new(published::all(&folders.moderation)?.0, softirqs);
    let workers = telemetry::instances(&folders.telemetry)?.0.into_iter().map(|reader| {
        let snapshot = reader.snapshot();
        Worker { usage: Usage::of(snapshot.process.pid, snapshot.tid), snapshot }
    });
    let steered = Steered::new(steer::published::all(&folders.steering)?.0);
    let served = Guests::new(serve::published::all(&folders.guests)?.0);
    Ok(text(workers.collect(), moderated, steered, served))
}

/// The folders that are not read, or not completely, each with the reason. [`read`] leaves out what is missing.
pub(super) fn unread(folders: &Folders) -> Vec<String> {
    // Errors are left to `read`, which reports them to each scraper.
    let published = [
        published::all(&folders.moderation).map(|(_, leftovers)| leftovers),
        steer::published::all(&folders.steering).map(|(_, leftovers)| leftovers),
        serve::published::all(&folders.guests).map(|(_, leftovers)| leftovers),
    ];
    let published = published.into_iter().flatten().flatten().map(|of| (PathBuf::from(of.path), of.why));
    let telemetry = telemetry::instances(&folders.telemetry).map(|(_, leftovers)| leftovers);
    let telemetry = telemetry.into_iter().flatten().map(|of| (of.path, of.why));
    // A file that is left over belongs to no running instance, so nothing is missing.
    let folders = telemetry.chain(published).filter(|(path, _)| path.is_dir());
    folders.map(|(path, why)| format!("{}: {why}", path.display())).collect()
}

#[derive(Debug)]
struct Worker {
    snapshot: Snapshot,
    usage: Option<Usage>,
}

#[derive(Debug)]
struct Workers(Vec<Worker>);

fn text(workers: Vec<Worker>, moderated: Moderated, steered: Steered, guests: Guests) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Workers(workers)));
    registry.register_collector(Box::new(moderated));
    registry.register_collector(Box::new(steered));
    registry.register_collector(Box::new(guests));
    let mut text = String::new();
    text::encode(&mut text, &registry).expect("writing to a String does not fail");
    text
}

impl Worker {
    fn labels(&self) -> Labels {
        let id = &self.snapshot.identity;
        vec![("instance", clean(&id.instance).into_owned()), ("worker", id.worker.to_string())]
    }

    fn with(&self, name: &'static str, value: &str) -> Labels {
        let mut labels = self.labels();
        labels.push((name, clean(value).into_owned()));
        labels
    }
}

impl Collector for Workers {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        let mut to = Text { workers: &self.0, encoder };
        let mut out =
            to.encoder.encode_descriptor("apus_worker", "Identity of the worker; always 1", None, MetricType::Info)?;
        for worker in to.workers {
            let id = &worker.snapshot.identity;
            let goal = id.goal.as_deref().unwrap_or("");
            let about = [("app", &*id.app), ("mode", &id.mode), ("goal", goal), ("version", VERSION)];
            let about = about.map(|(name, value)| (name, clean(value)));
            out.encode_family(&worker.labels())?.encode_info(&about)?;
        }
        to.gauges("apus_worker_state", "1 for the current state of the worker, 0 for the others", |worker| {
            let now = worker.snapshot.state;
            State::ALL.map(|s| (worker.with("state", s.name()), f64::from(u8::from(now == Some(s))))).to_vec()
        })?;
        to.gauges("apus_worker_uptime_seconds", "Time since the worker started", |worker| {
            let up = worker.snapshot.taken.since(worker.snapshot.started);
            up.map(|up| (worker.labels(), seconds(up))).into_iter().collect()
        })?;
        to.frames()?;
        to.time()?;
        to.devices()?;
        to.histogram(
            "apus_pickup_lateness_seconds",
            "Time from the arrival of a frame to its pick-up by the worker",
            |c| &c.lateness,
        )?;
        to.histogram("apus_service_seconds", "Time from the pick-up of a frame to its sending", |c| &c.service)
    }
}

struct Text<'a, 'e> {
    workers: &'a [Worker],
    encoder: DescriptorEncoder<'e>,
}

impl Text<'_, '_> {
    fn frames(&mut self) -> fmt::Result {
        self.counter("apus_received_frames", "Frames received from the devices", |c| c.received_frames)?;
        self.counter("apus_received_bytes", "Bytes of the frames received from the devices", |c| c.received_bytes)?;
        self.counter("apus_sent_frames", "Frames sent to the devices", |c| c.sent_frames)?;
        self.counter("apus_sent_bytes", "Bytes of the frames sent to the devices", |c| c.sent_bytes)?;
        self.counters("apus_dropped_frames", "Frames received but not sent, by reason", |worker| {
            let counts = &worker.snapshot.counts;
            DropReason::ALL.map(|r| (worker.with("reason", r.name()), counts.dropped(r))).to_vec()
        })?;
        self.counter("apus_polls", "Polls of all queues", |c| c.polls)?;
        self.counter("apus_empty_polls", "Polls that found no frame", |c| c.empty_polls)?;
        self.counters("apus_decisions", "Decisions of the wait policy, by reason", |worker| {
            let counts = &worker.snapshot.counts;
            Reason::ALL.map(|r| (worker.with("reason", r.name()), counts.reason(r))).to_vec()
        })
    }

    fn time(&mut self) -> fmt::Result {
        self.counters("apus_busy_seconds", "Time spent on processing frames", |worker| {
            vec![(worker.labels(), seconds(worker.snapshot.counts.busy))]
        })?;
        self.counters("apus_useful_seconds", "Time of the polls that found frames", |worker| {
            vec![(worker.labels(), seconds(worker.snapshot.counts.useful))]
        })?;
        self.counters("apus_waits", "Number of waits, by kind", |worker| {
            let counts = &worker.snapshot.counts;
            WaitKind::ALL.map(|k| (worker.with("kind", k.name()), counts.wait(k).count)).to_vec()
        })?;
        self.counters("apus_wait_seconds", "Time spent in waits, by kind", |worker| {
            let counts = &worker.snapshot.counts;
            WaitKind::ALL.map(|k| (worker.with("kind", k.name()), seconds(counts.wait(k).time))).to_vec()
        })?;
        self.counter("apus_gaps", "Number of times that the host stopped the worker's core", |c| c.gaps)?;
        self.counters("apus_gap_seconds", "Time for which the host stopped the worker's core", |worker| {
            vec![(worker.labels(), seconds(worker.snapshot.counts.gap_time))]
        })?;
        self.counters("apus_cpu_seconds", "CPU time of the worker's thread", |worker| {
            worker.usage.map(|usage| (worker.labels(), seconds(usage.cpu))).into_iter().collect()
        })?;
        self.counters("apus_wakeups", "Wake-ups of the worker's thread", |worker| {
            worker.usage.map(|usage| (worker.labels(), usage.wakeups)).into_iter().collect()
        })
    }

    fn devices(&mut self) -> fmt::Result {
        self.counters("apus_device_lost_frames", "Frames lost by a port, by cause", |worker| {
            let mut samples = Vec::new();
            for (number, port) in worker.snapshot.counts.ports.iter().enumerate() {
                let s = port.statistics;
                let causes = [
                    ("rx_ring_full", s.rx_ring_full),
                    ("rx_no_buffer", s.rx_no_buffer),
                    ("rx_invalid", s.rx_invalid),
                    ("tx_invalid", s.tx_invalid),
                    ("tx_dropped", s.tx_dropped),
                ];
                samples.extend(causes.map(|(cause, n)| {
                    let mut labels = port_labels(worker, number, &port.name);
                    labels.push(("cause", cause.to_owned()));
                    (labels, n)
                }));
            }
            samples
        })?;
        self.gauges("apus_port_up", "1 if the port works, 0 if not; absent if unknown", |worker| {
            let ports = worker.snapshot.counts.ports.iter().enumerate();
            ports
                .filter_map(|(number, port)| {
                    let up = f64::from(u8::from(port.health? == Health::Up));
                    Some((port_labels(worker, number, &port.name), up))
                })
                .collect()
        })
    }

    /// Writes a counter; the encoder appends `_total` to its name.
    fn counter(&mut self, name: &str, help: &str, value: impl Fn(&Counts) -> u64) -> fmt::Result {
        self.counters(name, help, |worker| vec![(worker.labels(), value(&worker.snapshot.counts))])
    }

    fn counters<V: EncodeCounterValue>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl Fn(&Worker) -> Vec<(Labels, V)>,
    ) -> fmt::Result {
        let mut out = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in self.workers.iter().flat_map(samples) {
            out.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&value, None)?;
        }
        Ok(())
    }

    fn gauges(&mut self, name: &str, help: &str, samples: impl Fn(&Worker) -> Vec<(Labels, f64)>) -> fmt::Result {
        let mut out = self.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in self.workers.iter().flat_map(samples) {
            out.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    fn histogram(&mut self, name: &str, help: &str, of: impl Fn(&Counts) -> &Histogram) -> fmt::Result {
        let mut out = self.encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for worker in self.workers {
            let histogram = of(&worker.snapshot.counts);
            let sum = histogram.sum_ns() as f64 / 1e9;
            let buckets = classic(histogram);
            out.encode_family(&worker.labels())?.encode_histogram::<NoLabelSet>(
                sum,
                histogram.count(),
                &buckets,
                None,
            )?;
        }
        Ok(())
    }
}

/// Converts a histogram to pairs of upper bound in seconds and count above the previous bound.
fn classic(histogram: &Histogram) -> Vec<(f64, u64)> {
    let mut below = 0;
    let mut buckets = Vec::with_capacity(BOUNDS_US.len() + 1);
    for bound in BOUNDS_US {
        let up_to = histogram.count_up_to(Nanos::from_micros(bound));
        buckets.push((bound as f64 / 1e6, up_to - below));
        below = up_to;
    }
    buckets.push((f64::INFINITY, histogram.count().saturating_sub(below)));
    buckets
}

fn port_labels(worker: &Worker, number: usize, name: &str) -> Labels {
    let mut labels = worker.with("port", &number.to_string());
    labels.push(("name", clean(name).into_owned()));
    labels
}

fn seconds(span: Nanos) -> f64 {
    span.as_nanos() as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::super::super::top::tests::sample;
    use super::*;

    fn nothing_but(workers: Vec<Worker>) -> String {
        let moderated = Moderated::new(Vec::new(), || unreachable!("no queue is steered"));
        text(workers, moderated, Steered::new(Vec::new()), Guests::new(Vec::new()))
    }

    fn encoded(polls: u64) -> String {
        let sample = sample(1_000, polls);
        nothing_but(vec![Worker { snapshot: sample.snapshot, usage: sample.usage }])
    }

    #[test]
    fn names_carry_units_and_labels() {
        let text = encoded(2_000);
        for line in [
            r#"apus_received_frames_total{instance="edge",worker="0"} 2000"#,
            r#"apus_dropped_frames_total{instance="edge",worker="0",reason="no_route"} 200"#,
            r#"apus_wait_seconds_total{instance="edge",worker="0",kind="sleep"} 0.5"#,
            r#"apus_busy_seconds_total{instance="edge",worker="0"} 0.1"#,
            r#"apus_worker_state{instance="edge",worker="0",state="running"} 1.0"#,
            r#"apus_port_up{instance="edge",worker="0",port="1",name="veth1"} 1.0"#,
            r#"apus_pickup_lateness_seconds_bucket{le="0.000001",instance="edge",worker="0"} 0"#,
            r#"apus_pickup_lateness_seconds_bucket{le="0.000005",instance="edge",worker="0"} 2000"#,
            r#"apus_pickup_lateness_seconds_bucket{le="+Inf",instance="edge",worker="0"} 2000"#,
            r#"apus_pickup_lateness_seconds_count{instance="edge",worker="0"} 2000"#,
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\nis not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
        assert!(text.contains(r#"goal="p99.9=50us""#));
    }

    #[test]
    fn nothing_runs() {
        assert!(nothing_but(Vec::new()).ends_with("# EOF\n"));
    }

    #[test]
    fn the_classic_histogram_loses_nothing() {
        let mut histogram = Histogram::new();
        [1, 1_000, 1_001, 5_000_000, u64::MAX].into_iter().for_each(|ns| histogram.record(Nanos::from_nanos(ns)));
        let classic = classic(&histogram);
        assert_eq!(classic.iter().map(|bucket| bucket.1).sum::<u64>(), 5);
        assert_eq!(classic.last().map(|bucket| bucket.1), Some(1));
    }
}
