//! `apus power watch --listen`: serves energy and idle-state counters as OpenMetrics text. The counters start at 0 when
//! the command starts. Meters and CPUs are read at each request. Meters that need more frequent readings are also read
//! between requests.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use host::facts::Root;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use rustix::thread::CapabilitySet;
use units::Nanojoules;

use super::{Sample, Sampler};
use crate::Status;
use crate::commands::metrics::serve as serve_metrics;
use crate::documents::power::{Core, Watch};

/// Serves the counters until a signal arrives. All files are opened before the first request. The command then drops
/// its capabilities, so that no thread it starts has any.
pub fn serve(root: Root, interrupt_isolated: bool, address: SocketAddr) -> anyhow::Result<Status> {
    let mut sampler = Sampler::open(root, interrupt_isolated);
    let within = sampler.meters.poll_within();
    let first = sampler.sample();
    let last = Arc::new(Mutex::new((sampler, first.clone())));
    let between = Arc::clone(&last);
    let ready = move || {
        host::privilege::keep_only(CapabilitySet::empty())?;
        if let Some(within) = within {
            let read = move || loop {
                std::thread::sleep(Duration::from_nanos(within.as_nanos()));
                between.lock().unwrap_or_else(PoisonError::into_inner).0.poll();
            };
            std::thread::Builder::new().name("meters".into()).spawn(read)?;
        }
        Ok(())
    };
    serve_metrics(address, ready, move || Ok(scrape(&mut last.lock().unwrap_or_else(PoisonError::into_inner), &first)))
}

/// Renders one answer: counters since the start, and frequencies since the previous answer.
fn scrape((sampler, last): &mut (Sampler, Sample), first: &Sample) -> String {
    let now = sampler.sample();
    let (total, recent) = (sampler.document(first, &now), sampler.document(last, &now).cores);
    let metrics = Metrics { total, recent, known: sampler.meters.known().collect() };
    *last = now;
    metrics.text()
}

#[derive(Debug)]
struct Metrics {
    total: Watch,
    recent: Vec<Core>,
    /// The energy of each meter without that in gaps, and the number of its gaps.
    known: Vec<(Nanojoules, u64)>,
}

type Labels = Vec<(&'static str, String)>;

impl Metrics {
    fn text(self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        text::encode(&mut text, &registry).expect("writing to a String does not fail");
        text
    }
}

impl Collector for Metrics {
    fn encode(&self, mut to: DescriptorEncoder) -> fmt::Result {
        let counter = MetricType::Counter;
        let help = "Energy that a meter counted since the command started, without gaps; for a sum, add only meters with \
                    counted=\"true\"";
        let mut out = to.encode_descriptor("apus_energy_joules", help, None, counter)?;
        for (labels, (energy, _)) in self.meters() {
            let joules = energy.as_nanojoules() as f64 / 1e9;
            out.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&joules, None)?;
        }
        let help = "Number of gaps in a meter's energy: it could not be read, or was reset; what it counted until the \
                    next reading is unknown";
        let mut out = to.encode_descriptor("apus_energy_gaps", help, None, counter)?;
        for (labels, (_, gaps)) in self.meters() {
            out.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(gaps, None)?;
        }
        let help = "Number of energy meters that can be read; 0 if the machine has none";
        let mut out = to.encode_descriptor("apus_energy_meters", help, None, MetricType::Gauge)?;
        out.encode_gauge(&(self.total.energy.meters.len() as f64))?;
        let help = "Mean frequency of a CPU while it was running, since the previous scrape";
        let mut out = to.encode_descriptor("apus_cpu_frequency_hertz", help, None, MetricType::Gauge)?;
        for core in &self.recent {
            if let (Some(hertz), Some(from)) = (core.frequency_hz.value, &core.frequency_from) {
                let labels: Labels = vec![("cpu", core.cpu.to_string()), ("from", from.as_str().to_owned())];
                out.encode_family(&labels)?.encode_gauge(&(hertz as f64))?;
            }
        }
        let help = "Time that a CPU spent in an idle state, as requested by the kernel, since the command started";
        let mut out = to.encode_descriptor("apus_cpu_idle_seconds", help, None, counter)?;
        for (labels, state) in self.states() {
            if let Some(ns) = state.residency_ns {
                out.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&(ns as f64 / 1e9), None)?;
            }
        }
        let help = "Number of times that a CPU entered an idle state since the command started";
        let mut out = to.encode_descriptor("apus_cpu_idle_entries", help, None, counter)?;
        for (labels, state) in self.states() {
            if let Some(entries) = state.entries {
                out.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&entries, None)?;
            }
        }
        Ok(())
    }
}

impl Metrics {
    /// The labels of each meter, its energy and the number of its gaps.
    fn meters(&self) -> impl Iterator<Item = (Labels, &(Nanojoules, u64))> {
        self.total.energy.meters.iter().zip(&self.known).map(|(meter, known)| {
            let (counted, interface) = (meter.counted.to_string(), meter.interface.clone());
            (vec![("meter", meter.meter.clone()), ("interface", interface), ("counted", counted)], known)
        })
    }

    fn states(&self) -> impl Iterator<Item = (Labels, &crate::documents::power::IdleState)> {
        self.total.cores.iter().flat_map(|core| {
            let states = core.idle_states.value.iter().flatten();
            states.map(|state| (vec![("cpu", core.cpu.to_string()), ("state", state.name.clone())], state))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reading in doubt costs the energy until the next one, and the meter stays.
    #[test]
    fn a_meter_stays_after_a_reading_in_doubt() {
        let folder = std::env::temp_dir().join(format!("apus-watch-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("sys/class/powercap/intel-rapl:0")).unwrap();
        // In place: the files stay open.
        let put = |name: &str, text: &str| {
            std::fs::write(folder.join("sys/class/powercap/intel-rapl:0").join(name), format!("{text}\n")).unwrap();
        };
        for (name, text) in [("name", "package-0"), ("energy_uj", "1000"), ("max_energy_range_uj", "262143328850")] {
            put(name, text);
        }
        let mut sampler = Sampler::open(Root::open(&folder).unwrap(), false);
        let first = sampler.sample();
        let mut last = (sampler, first.clone());
        for (energy, joules, gaps) in
            [("2001000", "2.0", 0), ("none", "2.0", 1), ("9000000", "2.0", 1), ("9500000", "2.5", 1)]
        {
            put("energy_uj", energy);
            let text = scrape(&mut last, &first);
            let labels = "{meter=\"package-0\",interface=\"powercap\",counted=\"true\"}";
            assert!(text.contains(&format!("apus_energy_joules_total{labels} {joules}\n")), "{energy}: {text}");
            assert!(text.contains(&format!("apus_energy_gaps_total{labels} {gaps}\n")), "{energy}: {text}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
