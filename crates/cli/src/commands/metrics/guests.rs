//! Exports the guests of all running instances of `apus power serve` as metrics.
//!
//! Instances that have stopped publishing are left out, because their numbers are outdated. Each guest appears once. If
//! two instances serve guests of the same name, the one that published last is exported.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::super::published::SILENT;
use super::Labels;
use crate::documents::guests::{Guest, Instance, Vcpu};
use crate::terminal::clean;

/// The exported guests, by name.
#[derive(Debug)]
pub(super) struct Guests(BTreeMap<String, Guest>);

impl Guests {
    pub(super) fn new(mut instances: Vec<Instance>) -> Self {
        instances.retain(|instance| instance.silent_ns < SILENT);
        instances.sort_by_key(|instance| std::cmp::Reverse(instance.silent_ns));
        let guests = instances.into_iter().flat_map(|instance| instance.document.guests);
        Self(guests.map(|guest| (guest.name.clone(), guest)).collect())
    }

    /// A gauge with a value for each vCPU that has one.
    fn vcpus(
        &self,
        to: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        value: impl Fn(&Vcpu) -> Option<f64>,
    ) -> fmt::Result {
        let mut out = to.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for guest in self.0.values() {
            for vcpu in &guest.vcpus {
                if let Some(value) = value(vcpu) {
                    let mut labels = labels(guest);
                    labels.push(("vcpu", vcpu.vcpu.to_string()));
                    out.encode_family(&labels)?.encode_gauge(&value)?;
                }
            }
        }
        Ok(())
    }

    fn counter(
        &self,
        to: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        values: impl Fn(&Guest) -> Vec<(Option<&'static str>, u64)>,
    ) -> fmt::Result {
        let mut out = to.encode_descriptor(name, help, None, MetricType::Counter)?;
        for guest in self.0.values() {
            for (verdict, value) in values(guest) {
                let mut labels = labels(guest);
                labels.extend(verdict.map(|verdict| ("verdict", verdict.to_owned())));
                out.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&value, None)?;
            }
        }
        Ok(())
    }
}

fn labels(guest: &Guest) -> Labels {
    vec![("guest", clean(&guest.name).into_owned())]
}

impl Collector for Guests {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let to = &mut encoder;
        self.counter(to, "apus_guest_requests", "Requests of a guest, by outcome", |guest| {
            vec![
                (Some("granted"), guest.granted),
                (Some("limited"), guest.limited),
                (Some("held"), guest.held),
                (Some("refused"), guest.refused),
            ]
        })?;
        self.counter(to, "apus_guest_messages", "Messages that a guest sent", |guest| vec![(None, guest.messages)])?;
        self.counter(to, "apus_guest_over_rate", "Messages that exceeded the rate in the guest's manifest", |guest| {
            vec![(None, guest.over_rate)]
        })?;
        self.counter(
            to,
            "apus_guest_unread_answers",
            "Answers dropped because the guest did not read earlier ones",
            |guest| vec![(None, guest.unread)],
        )?;
        let mut out = to.encode_descriptor(
            "apus_guest_connected_channels",
            "Channels of a guest that are connected",
            None,
            MetricType::Gauge,
        )?;
        for guest in self.0.values() {
            out.encode_family(&labels(guest))?.encode_gauge(&(guest.connected as f64))?;
        }
        let hertz = |khz: Option<u32>| khz.map(|khz| f64::from(khz) * 1e3);
        self.vcpus(
            to,
            "apus_guest_fixed_frequency_hertz",
            "Frequency at which the core of a guest's vCPU is fixed; absent if it is not fixed",
            |vcpu| hertz(vcpu.fixed_khz),
        )?;
        self.vcpus(
            to,
            "apus_guest_wanted_frequency_hertz",
            "Frequency that is requested for a guest's vCPU; absent if none is requested",
            |vcpu| hertz(vcpu.wish_khz),
        )?;
        self.vcpus(
            to,
            "apus_guest_idle_limit_seconds",
            "Longest exit latency of idle states that a guest allows for a vCPU; absent if it sets no limit",
            |vcpu| vcpu.idle_limit_ns.map(|ns| ns as f64 / 1e9),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::guests::Document;
    use prometheus_client::registry::Registry;

    fn instance(name: &str, messages: u64, silent_ns: u64) -> Instance {
        let vcpu = |number, khz| Vcpu {
            vcpu: number,
            cpus: Some("2".into()),
            wish_khz: khz,
            goal: None,
            idle_limit_ns: khz.map(|_| 25_000),
            fixed_khz: khz,
            why: None,
        };
        let guest = Guest {
            name: name.into(),
            connected: 1,
            channels: Vec::new(),
            pinning_unknown: None,
            vcpus: vec![vcpu(0, Some(1_800_000)), vcpu(1, None)],
            messages,
            granted: 5,
            limited: 0,
            held: 2,
            refused: 1,
            over_rate: 0,
            incomplete: 0,
            unread: 0,
        };
        let document = Document {
            apus: String::new(),
            schema: String::new(),
            duration_ns: 1,
            guests: vec![guest],
            restored: None,
        };
        Instance { pid: 1, silent_ns, document }
    }

    #[test]
    fn each_guest_has_its_newest_numbers_and_no_more() {
        let old = instance("vm2", 3, SILENT);
        let guests = Guests::new(vec![instance("vm1", 9, 1), instance("vm1", 8, 5), instance("v\u{1b}", 1, 1), old]);
        let mut registry = Registry::default();
        registry.register_collector(Box::new(guests));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "apus_guest_requests_total{guest=\"vm1\",verdict=\"held\"} 2",
            "apus_guest_messages_total{guest=\"vm1\"} 9",
            "apus_guest_fixed_frequency_hertz{guest=\"vm1\",vcpu=\"0\"} 1800000000.0",
            "apus_guest_idle_limit_seconds{guest=\"vm1\",vcpu=\"0\"} 0.000025",
        ] {
            assert!(text.contains(&format!("\n{line}\n")), "{line}: {text}");
        }
        assert!(!text.contains("vcpu=\"1\"") && !text.contains("vm2") && !text.contains('\u{1b}'), "{text}");
    }
}
