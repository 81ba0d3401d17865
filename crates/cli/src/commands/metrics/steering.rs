//! Exports as metrics what running instances of `apus power steer` control.
//!
//! Each CPU appears once. If two instances name the same CPU, the one that published last is exported. Dry runs are left
//! out, because they control nothing. Instances that have stopped publishing are left out too, because their numbers are
//! outdated.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use tester::document::Name;

use super::super::published::SILENT;
use super::Labels;
use crate::documents::power_steer::{Cpu, Domain, Instance, SharedSetting, Verdict};
use crate::terminal::clean;

/// The controlled CPUs and their frequency domains, by number.
#[derive(Debug)]
pub(super) struct Steered {
    cpus: BTreeMap<u32, Controlled>,
    domains: BTreeMap<u32, Domain>,
    shared: BTreeMap<String, SharedSetting>,
}

/// A controlled CPU, with the goal of its instance.
#[derive(Debug)]
struct Controlled {
    cpu: Cpu,
    policy: String,
    goal: String,
}

impl Steered {
    pub(super) fn new(mut instances: Vec<Instance>) -> Self {
        instances.retain(|instance| !instance.document.dry_run && instance.silent_ns < SILENT);
        instances.sort_by_key(|instance| std::cmp::Reverse(instance.silent_ns));
        let (mut cpus, mut domains, mut shared) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for document in instances.into_iter().map(|instance| instance.document) {
            for cpu in document.cpus {
                let goal = document.goal.clone().unwrap_or_default();
                cpus.insert(cpu.cpu, Controlled { cpu, policy: document.policy.clone(), goal });
            }
            shared.extend(document.shared.into_iter().map(|one| (one.setting.clone(), one)));
            domains.extend(document.domains.into_iter().map(|domain| (domain.domain, domain)));
        }
        Self { cpus, domains, shared }
    }

    /// Writes a gauge with a value for each CPU that has one.
    fn gauge(
        &self,
        to: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        value: impl Fn(&Cpu) -> Option<f64>,
    ) -> fmt::Result {
        let mut out = to.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for Controlled { cpu, .. } in self.cpus.values() {
            if let Some(value) = value(cpu) {
                out.encode_family(&labels(cpu))?.encode_gauge(&value)?;
            }
        }
        Ok(())
    }

    /// Writes a counter with a value for each CPU that has one.
    fn counter(
        &self,
        to: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        value: impl Fn(&Cpu) -> Option<u64>,
    ) -> fmt::Result {
        let mut out = to.encode_descriptor(name, help, None, MetricType::Counter)?;
        for Controlled { cpu, .. } in self.cpus.values() {
            if let Some(value) = value(cpu) {
                out.encode_family(&labels(cpu))?.encode_counter::<NoLabelSet, _, f64>(&value, None)?;
            }
        }
        Ok(())
    }

    fn info(&self, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Settings under which the frequency of a CPU is controlled; always 1";
        let mut out = to.encode_descriptor("apus_steered_cpu", help, None, MetricType::Info)?;
        for Controlled { cpu, policy, goal } in self.cpus.values() {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            let about = [
                ("domain", cpu.domain.to_string()),
                ("policy", policy.clone()),
                ("goal", goal.clone()),
                ("watches", text(&cpu.watches)),
                ("reason", cpu.reason.clone()),
                ("trouble", text(&cpu.trouble)),
                ("idle_trouble", text(&cpu.idle_trouble)),
                ("lost", text(&cpu.lost)),
            ];
            let about = about.map(|(name, value)| (name, clean(&value).into_owned()));
            out.encode_family(&labels(cpu))?.encode_info(&about)?;
        }
        Ok(())
    }

    /// Writes whether each setting has the value that Apus wants.
    fn in_force(&self, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut out = to.encode_descriptor(
            "apus_steered_setting_in_force",
            "1 if the setting is at least what the CPU needs, 0 if the machine limits or refuses it, or if somebody else has changed it",
            None,
            MetricType::Gauge,
        )?;
        for Controlled { cpu, .. } in self.cpus.values() {
            let frequency = cpu.lost.is_none() && cpu.frequency_hz >= cpu.wish_hz;
            let idle = cpu.idle_limit_ns.map(|_| ("idle", cpu.idle_trouble.is_none()));
            for (setting, is_in_force) in [Some(("frequency", frequency)), idle].into_iter().flatten() {
                let mut labels = labels(cpu);
                labels.push(("setting", setting.to_owned()));
                out.encode_family(&labels)?.encode_gauge(&f64::from(u8::from(is_in_force)))?;
            }
        }
        Ok(())
    }

    /// Writes the state of turbo and of the uncore frequency.
    fn shared(&self, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "1 if a setting that many CPUs share (turbo, uncore) is lowered because no controlled CPU needs it";
        let mut out = to.encode_descriptor("apus_steered_shared_lowered", help, None, MetricType::Gauge)?;
        for shared in self.shared.values() {
            let labels: Labels = vec![("setting", clean(&shared.setting).into_owned())];
            out.encode_family(&labels)?.encode_gauge(&f64::from(u8::from(shared.lowered)))?;
        }
        Ok(())
    }

    fn domains(&self, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Number of frequency changes that were requested for a set of CPUs that share one frequency";
        let mut out = to.encode_descriptor("apus_steered_changes", help, None, MetricType::Counter)?;
        for domain in self.domains.values() {
            let labels: Labels =
                vec![("domain", domain.domain.to_string()), ("cpus", clean(&domain.cpus).into_owned())];
            out.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&domain.changes, None)?;
        }
        Ok(())
    }
}

fn labels(cpu: &Cpu) -> Labels {
    vec![("cpu", cpu.cpu.to_string())]
}

impl Collector for Steered {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let to = &mut encoder;
        self.info(to)?;
        self.gauge(
            to,
            "apus_steered_requested_frequency_hertz",
            "Frequency that the policy requests for a CPU",
            |cpu| Some(cpu.wish_hz as f64),
        )?;
        self.gauge(
            to,
            "apus_steered_frequency_hertz",
            "Frequency that was last requested for the CPU's domain, or the lower one that the machine granted",
            |cpu| Some(cpu.frequency_hz as f64),
        )?;
        self.gauge(
            to,
            "apus_steered_frequency_limit_hertz",
            "Highest frequency that the firmware allows a CPU",
            |cpu| Some(cpu.ceiling_hz as f64),
        )?;
        self.gauge(
            to,
            "apus_steered_busy_ratio",
            "Share of the last second that the CPU spent on useful work; absent if unknown",
            |cpu| cpu.last_second.as_ref()?.busy_ratio,
        )?;
        self.gauge(
            to,
            "apus_steered_goal_held",
            "1 if the latency goal was met since Apus began to control the CPU, 0 if it was missed; absent if unmeasured",
            |cpu| match cpu.verdict {
                verdict if verdict == Name::of(&Verdict::Held) => Some(1.0),
                verdict if verdict == Name::of(&Verdict::Missed) => Some(0.0),
                _ => None,
            },
        )?;
        self.counter(
            to,
            "apus_steered_judged_packets",
            "Packets whose delay was measured; absent if delays are not measured",
            |cpu| cpu.judged,
        )?;
        self.counter(to, "apus_steered_late_packets", "Judged packets that were later than the goal allows", |cpu| {
            cpu.late
        })?;
        self.counter(
            to,
            "apus_steered_requests",
            "Number of times that the policy requested another frequency for a CPU",
            |cpu| Some(cpu.wishes),
        )?;
        self.domains(to)?;
        self.shared(to)?;
        self.gauge(
            to,
            "apus_steered_idle_limit_seconds",
            "Longest exit latency of the idle states that Apus allows a CPU; absent if it sets no limit",
            |cpu| cpu.idle_limit_ns.map(|ns| ns as f64 / 1e9),
        )?;
        self.in_force(to)?;
        self.gauge(
            to,
            "apus_steered_controlled",
            "1 if Apus controls the CPU's frequency, 0 if it had to stop",
            |cpu| Some(f64::from(u8::from(cpu.lost.is_none()))),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::power::steer::table::instance;
    use super::*;
    use prometheus_client::registry::Registry;

    fn encoded(instances: Vec<Instance>) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Steered::new(instances)));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn each_cpu_has_its_numbers() {
        let mut one = instance();
        let turbo =
            SharedSetting { setting: "turbo".into(), lowered: true, lowered_ratio: 0.5, changes: 3, trouble: None };
        one.document.shared.push(turbo);
        let second = &mut one.document.cpus[1];
        (second.frequency_hz, second.ceiling_hz) = (2_200_000_000, 2_200_000_000);
        (second.judged, second.late, second.verdict) = (None, None, Verdict::Unmeasured.into());
        second.idle_trouble = Some("somebody\u{1b} else".into());
        let text = encoded(vec![one]);
        for line in [
            r#"apus_steered_requested_frequency_hertz{cpu="2"} 1800000000.0"#,
            r#"apus_steered_frequency_hertz{cpu="2"} 2600000000.0"#,
            r#"apus_steered_frequency_limit_hertz{cpu="3"} 2200000000.0"#,
            r#"apus_steered_busy_ratio{cpu="2"} 0.551"#,
            r#"apus_steered_goal_held{cpu="2"} 1.0"#,
            r#"apus_steered_judged_packets_total{cpu="2"} 800000"#,
            r#"apus_steered_late_packets_total{cpu="2"} 2000"#,
            r#"apus_steered_requests_total{cpu="2"} 9"#,
            r#"apus_steered_changes_total{domain="2",cpus="2-3"} 17"#,
            r#"apus_steered_idle_limit_seconds{cpu="2"} 0.00002"#,
            r#"apus_steered_setting_in_force{cpu="2",setting="frequency"} 1.0"#,
            r#"apus_steered_setting_in_force{cpu="2",setting="idle"} 1.0"#,
            r#"apus_steered_setting_in_force{cpu="3",setting="frequency"} 0.0"#,
            r#"apus_steered_setting_in_force{cpu="3",setting="idle"} 0.0"#,
            r#"apus_steered_controlled{cpu="3"} 1.0"#,
            r#"apus_steered_shared_lowered{setting="turbo"} 1.0"#,
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\nis not in\n{text}");
        }
        for absent in ["goal_held{cpu=\"3\"", "judged_packets_total{cpu=\"3\"", "\u{1b}"] {
            assert!(!text.contains(absent), "{absent}: {text}");
        }
        let info = text.lines().find(|line| line.starts_with("apus_steered_cpu_info{") && line.contains("cpu=\"2\""));
        let info = info.expect(&text);
        for label in [r#"domain="2""#, r#"goal="p99=50us""#, r#"reason="frequency fits the load""#, r#"lost="""#] {
            assert!(info.contains(label), "{label}: {info}");
        }
    }

    #[test]
    fn a_cpu_appears_once_and_only_if_it_is_controlled_now() {
        let with = |wishes, silent_ns| {
            let mut one = Instance { silent_ns, ..instance() };
            one.document.cpus.truncate(1);
            one.document.cpus[0].wishes = wishes;
            one
        };
        let (old, new, mut dry) = (with(1, 900_000_000), with(2, 100_000_000), with(3, 0));
        dry.document.dry_run = true;
        let mut silent = with(4, SILENT);
        silent.document.cpus[0].cpu = 7;
        for order in [vec![&old, &new, &dry, &silent], vec![&silent, &dry, &new, &old]] {
            let text = encoded(order.into_iter().cloned().collect());
            let requests: Vec<&str> =
                text.lines().filter(|line| line.starts_with("apus_steered_requests_total")).collect();
            assert_eq!(requests, [r#"apus_steered_requests_total{cpu="2"} 2"#]);
        }
    }
}
