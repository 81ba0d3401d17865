//! Exports as metrics what running instances of `apus moderate` control, and the time that the CPUs spend on softirqs.
//!
//! Each queue appears once. If two instances in one network namespace name the same queue, the one that published last
//! is exported. Dry runs are left out, because they control nothing. Instances that have stopped publishing are left
//! out too, because their numbers are outdated.

use std::collections::BTreeMap;
use std::fmt;

use host::facts::Softirqs;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeCounterValue, NoLabelSet};
use prometheus_client::metrics::MetricType;
use tester::document::Name;

use super::super::published::SILENT;
use super::Labels;
use crate::documents::moderate::Verdict;
use crate::documents::moderation::{Instance, Queue};
use crate::terminal::clean;

/// The controlled queues, and the softirqs of each CPU. Softirqs are exported only if there are controlled queues.
#[derive(Debug)]
pub(super) struct Moderated {
    queues: Vec<(Option<u64>, Queue)>,
    softirqs: BTreeMap<u32, Softirqs>,
}

impl Moderated {
    pub(super) fn new(instances: Vec<Instance>, softirqs: impl FnOnce() -> BTreeMap<u32, Softirqs>) -> Self {
        let mut lively: Vec<Instance> =
            instances.into_iter().filter(|instance| !instance.dry_run && instance.silent_ns < SILENT).collect();
        lively.sort_by_key(|instance| std::cmp::Reverse(instance.silent_ns));
        let mut queues: BTreeMap<(Option<u64>, String, u32), Queue> = BTreeMap::new();
        for instance in lively {
            for queue in instance.queues {
                queues.insert((instance.network_namespace, queue.interface.clone(), queue.queue), queue);
            }
        }
        let queues: Vec<_> = queues.into_iter().map(|((namespace, ..), queue)| (namespace, queue)).collect();
        let softirqs = if queues.is_empty() { BTreeMap::new() } else { softirqs() };
        Self { queues, softirqs }
    }
}

/// The labels of a queue. Prometheus treats an empty label as one that is absent.
fn labels(namespace: Option<u64>, queue: &Queue) -> Labels {
    vec![
        ("interface", clean(&queue.interface).into_owned()),
        ("queue", queue.queue.to_string()),
        ("netns", namespace.map_or_else(String::new, |namespace| namespace.to_string())),
    ]
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

impl Collector for Moderated {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let to = &mut encoder;
        let mut out = to.encode_descriptor(
            "apus_moderated_queue",
            "Settings under which a receive queue is controlled; always 1",
            None,
            MetricType::Info,
        )?;
        for (namespace, queue) in &self.queues {
            let lost = queue.lost.as_deref().unwrap_or("");
            let about = [("policy", &*queue.policy), ("goal", &queue.goal), ("reason", &queue.reason), ("lost", lost)];
            let about = about.map(|(name, value)| (name, clean(value)));
            out.encode_family(&labels(*namespace, queue))?.encode_info(&about)?;
        }
        self.gauges(
            to,
            "apus_moderated_timer_seconds",
            "Time for which the interrupt may be delayed after a packet; 0: no delay",
            |queue| Some(seconds(queue.timer_ns)),
        )?;
        self.gauges(
            to,
            "apus_moderated_goal_seconds",
            "Latency goal from a packet's arrival to the application's read, at the quantile in the label goal of the info",
            |queue| Some(seconds(queue.goal_latency_ns)),
        )?;
        self.gauges(
            to,
            "apus_moderated_reception_to_read_seconds",
            "Delay from reception to the application's read at the goal's quantile, in the last second; absent if unmeasured",
            |queue| queue.reception_to_read_ns.map(seconds),
        )?;
        self.gauges(
            to,
            "apus_moderated_goal_held",
            "1 if the goal was met since Apus began to control the queue, 0 if it was missed; absent if unmeasured",
            |queue| match queue.verdict {
                verdict if verdict == Name::of(&Verdict::Held) => Some(1.0),
                verdict if verdict == Name::of(&Verdict::Missed) => Some(0.0),
                _ => None,
            },
        )?;
        self.gauges(
            to,
            "apus_moderated_packets_per_second",
            "Packets received per second, in the last second",
            |queue| queue.packets_pps,
        )?;
        self.gauges(
            to,
            "apus_moderated_polls_per_second",
            "Polls of the queue by the kernel per second, in the last second",
            |queue| queue.polls_per_second,
        )?;
        self.gauges(to, "apus_moderated_steered", "1 if Apus controls the queue, 0 if it had to stop", |queue| {
            Some(f64::from(u8::from(queue.lost.is_none())))
        })?;
        self.counters(to, "apus_moderated_changes", "Number of times that the timer was set", |queue| queue.changes)?;
        self.counters(
            to,
            "apus_moderated_judged_packets",
            "Packets by which the goal is judged: packets that were measured while the time before reception had a bound",
            |queue| queue.judged,
        )?;
        self.counters(
            to,
            "apus_moderated_late_packets",
            "Judged packets that may have been later than the goal; estimated",
            |queue| queue.late,
        )?;
        self.softirqs(to)
    }
}

impl Moderated {
    fn gauges(
        &self,
        to: &mut DescriptorEncoder,
        name: &str,
        help: &str,
        value: impl Fn(&Queue) -> Option<f64>,
    ) -> fmt::Result {
        let mut out = to.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (namespace, queue) in &self.queues {
            if let Some(value) = value(queue) {
                out.encode_family(&labels(*namespace, queue))?.encode_gauge(&value)?;
            }
        }
        Ok(())
    }

    fn counters<V: EncodeCounterValue>(
        &self,
        to: &mut DescriptorEncoder,
        name: &str,
        help: &str,
        value: impl Fn(&Queue) -> V,
    ) -> fmt::Result {
        let mut out = to.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (namespace, queue) in &self.queues {
            let labels = labels(*namespace, queue);
            out.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&value(queue), None)?;
        }
        Ok(())
    }

    fn softirqs(&self, to: &mut DescriptorEncoder) -> fmt::Result {
        let cpu = |cpu: &u32| -> Labels { vec![("cpu", cpu.to_string())] };
        let mut out = to.encode_descriptor(
            "apus_host_softirq_seconds",
            "CPU time in softirqs of all kinds since boot; exported while Apus controls queues",
            None,
            MetricType::Counter,
        )?;
        for (number, softirqs) in &self.softirqs {
            let value = softirqs.time.as_nanos() as f64 / 1e9;
            out.encode_family(&cpu(number))?.encode_counter::<NoLabelSet, _, f64>(&value, None)?;
        }
        let mut out = to.encode_descriptor(
            "apus_host_net_rx_softirqs",
            "Number of times that the CPU ran the softirq that receives packets, since boot; exported while Apus controls queues",
            None,
            MetricType::Counter,
        )?;
        for (number, softirqs) in &self.softirqs {
            if let Some(count) = softirqs.net_rx {
                out.encode_family(&cpu(number))?.encode_counter::<NoLabelSet, _, f64>(&count, None)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::moderate::published::queue;
    use super::*;
    use prometheus_client::encoding::text;
    use prometheus_client::registry::Registry;
    use units::Nanos;

    fn instance(pid: u32, queues: Vec<Queue>) -> Instance {
        let (network_namespace, not_controlled) = (None, Vec::new());
        Instance {
            pid,
            network_namespace,
            dry_run: false,
            steering_ns: 0,
            silent_ns: 500_000_000,
            queues,
            not_controlled,
        }
    }

    fn encoded(instances: Vec<Instance>) -> String {
        let softirqs = || BTreeMap::from([(1, Softirqs { time: Nanos::from_millis(1_250), net_rx: Some(77) })]);
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Moderated::new(instances, softirqs)));
        let mut text = String::new();
        text::encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn each_queue_has_its_numbers() {
        let text = encoded(vec![instance(1, vec![Queue::of(&queue("eth0", 3))])]);
        let labels = r#"{interface="eth0",queue="3",netns=""}"#;
        for (name, value) in [
            ("apus_moderated_timer_seconds", "0.00008"),
            ("apus_moderated_goal_seconds", "0.0001"),
            ("apus_moderated_reception_to_read_seconds", "0.0000123"),
            ("apus_moderated_goal_held", "1.0"),
            ("apus_moderated_packets_per_second", "90000.0"),
            ("apus_moderated_polls_per_second", "11000.0"),
            ("apus_moderated_steered", "1.0"),
            ("apus_moderated_changes_total", "7"),
            ("apus_moderated_judged_packets_total", "1000000"),
            ("apus_moderated_late_packets_total", "2500.0"),
        ] {
            let line = format!("{name}{labels} {value}");
            assert!(text.lines().any(|l| l == line), "{line}\nis not in\n{text}");
        }
        let info = text.lines().find(|line| line.starts_with("apus_moderated_queue_info{")).expect(&text);
        for label in
            [r#"interface="eth0""#, r#"goal="p99=100us""#, r#"reason="the goal allows a longer time""#, r#"lost="""#]
        {
            assert!(info.contains(label), "{label}: {info}");
        }
        assert!(text.contains("\napus_host_softirq_seconds_total{cpu=\"1\"} 1.25\n"), "{text}");
        assert!(text.contains("\napus_host_net_rx_softirqs_total{cpu=\"1\"} 77\n"), "{text}");
    }

    #[test]
    fn what_is_unknown_is_absent_and_what_is_lost_is_said() {
        let mut one = Queue::of(&queue("eth0", 3));
        (one.verdict, one.reception_to_read_ns, one.polls_per_second) = (Verdict::Unmeasured.into(), None, None);
        one.lost = Some("the interface is gone".into());
        let text = encoded(vec![instance(1, vec![one.clone()])]);
        for absent in ["goal_held{", "reception_to_read_seconds{", "polls_per_second{"] {
            assert!(!text.contains(absent), "{absent}: {text}");
        }
        assert!(text.contains("apus_moderated_steered{interface=\"eth0\",queue=\"3\",netns=\"\"} 0.0"), "{text}");
        assert!(text.contains("lost=\"the interface is gone\""), "{text}");
        one.verdict = Verdict::Missed.into();
        assert!(
            encoded(vec![instance(1, vec![one])]).contains("goal_held{interface=\"eth0\",queue=\"3\",netns=\"\"} 0.0")
        );
    }

    #[test]
    fn a_queue_appears_once_and_only_if_it_is_steered_now() {
        let with = |changes| Queue { changes, ..Queue::of(&queue("eth0", 3)) };
        let old = Instance { silent_ns: 900_000_000, ..instance(1, vec![with(1)]) };
        let new = instance(2, vec![with(2)]);
        let dry = Instance { dry_run: true, silent_ns: 0, ..instance(3, vec![with(3)]) };
        let silent = Instance { silent_ns: SILENT, ..instance(4, vec![Queue::of(&queue("eth1", 0))]) };
        let elsewhere = Instance { network_namespace: Some(42), ..instance(5, vec![with(5)]) };
        for order in [vec![&old, &new, &dry, &silent, &elsewhere], vec![&elsewhere, &silent, &dry, &new, &old]] {
            let text = encoded(order.into_iter().cloned().collect());
            let changes: Vec<&str> =
                text.lines().filter(|line| line.starts_with("apus_moderated_changes_total")).collect();
            assert_eq!(
                changes,
                [
                    r#"apus_moderated_changes_total{interface="eth0",queue="3",netns=""} 2"#,
                    r#"apus_moderated_changes_total{interface="eth0",queue="3",netns="42"} 5"#,
                ]
            );
        }
        let none = encoded(vec![dry]);
        assert!(!none.contains("apus_host_softirq_seconds_total{"), "{none}");
    }
}
