//! Resolves the sections of a profile that concern CPUs and the uncore.

use toml::Spanned;
use units::{Hertz, Nanos};

use super::Work;
use crate::facts::CpuSet;
use crate::knob::{
    CpuLatency, Epp, Governor, IdleState, Limits, ResumeLatency, UncoreLimits, UncoreMsr, Value, policies, policy_cpus,
    ratio, states, uncore_dies, uncore_domains,
};
use crate::profile::Error;
use crate::profile::file::{CpuSection, Layer};

impl Work<'_> {
    pub(super) fn cpus_section(&mut self, layer: &Layer, selector: &str, section: &CpuSection) -> Result<(), Error> {
        let cpus = self.select(selector);
        let wrong = |why: String| Error { place: format!("{}, [cpus.{selector}]", layer.name), why };
        let cpus = cpus.map_err(wrong)?;
        if cpus.is_empty() {
            self.note_first(layer, section, super::NONE_ISOLATED);
            return Ok(());
        }
        let missing = cpus.difference(&self.all);
        if !missing.is_empty() {
            let why = format!("CPUs {missing} are offline or do not exist, so nothing is set for them");
            self.note_first(layer, section, &why);
        }
        let cpus = cpus.intersection(&self.all);
        self.frequency(layer, &cpus, section)?;
        self.idle(layer, &cpus, section)
    }

    /// Adds a note at the first setting of a section. A section without settings needs none.
    fn note_first(&mut self, layer: &Layer, section: &CpuSection, why: &str) {
        let CpuSection { governor, min_frequency, max_frequency, preference, idle_latency, resume_latency } = section;
        let texts = [governor, min_frequency, max_frequency, idle_latency, resume_latency];
        if let Some(text) = texts.into_iter().flatten().next() {
            self.note(layer, text, why);
        } else if let Some(preference) = preference {
            self.note(layer, preference, why);
        }
    }

    fn frequency(&mut self, layer: &Layer, cpus: &CpuSet, section: &CpuSection) -> Result<(), Error> {
        let of_machine = |e: crate::knob::Error| Error { place: layer.name.clone(), why: e.to_string() };
        let all = policies(self.access).map_err(of_machine)?;
        if all.is_empty() {
            let texts = [&section.governor, &section.min_frequency, &section.max_frequency];
            if let Some(text) = texts.into_iter().flatten().next() {
                self.note(layer, text, "the host has no cpufreq");
            } else if let Some(preference) = &section.preference {
                self.note(layer, preference, "the host has no cpufreq");
            }
            return Ok(());
        }
        for policy in all {
            let of_policy = policy_cpus(self.access, policy).map_err(of_machine)?;
            if of_policy.intersection(cpus).is_empty() {
                continue;
            }
            // Sets the governor first, because with intel_pstate it resets the preference.
            if let Some(governor) = &section.governor {
                self.add(layer, governor, Governor::new(policy), Value::text(governor.get_ref()))?;
            }
            if let Some(preference) = &section.preference {
                self.add(layer, preference, Epp::new(policy), Value::text(preference.get_ref()))?;
            }
            for (field, text) in [("min", &section.min_frequency), ("max", &section.max_frequency)] {
                if let Some(text) = text {
                    let hardware = Limits::new(policy).hardware(self.access).map_err(of_machine)?;
                    let base =
                        self.access.number(&format!("/sys/devices/system/cpu/cpufreq/policy{policy}/base_frequency"));
                    match kilohertz(text, hardware, base.map_err(of_machine)?).map_err(|why| layer.wrong(text, why))? {
                        Some(khz) => self.add(layer, text, Limits::new(policy), Value::fields([(field, khz)]))?,
                        None => self.note(
                            layer,
                            text,
                            &format!("CPU policy {policy} does not report its {}", text.get_ref()),
                        ),
                    }
                }
            }
        }
        Ok(())
    }

    fn idle(&mut self, layer: &Layer, cpus: &CpuSet, section: &CpuSection) -> Result<(), Error> {
        if let Some(text) = &section.idle_latency {
            let limit: Nanos = text.get_ref().parse().map_err(|e| layer.wrong(text, e))?;
            let mut found = false;
            for cpu in cpus.iter() {
                for state in states(self.access, cpu).map_err(|e| layer.wrong(text, e))? {
                    found = true;
                    if state.latency.is_some_and(|latency| latency > limit) {
                        self.add(layer, text, IdleState::new(cpu, state.number), IdleState::disabled(true))?;
                    }
                }
            }
            if !found {
                self.note(layer, text, "the host has no cpuidle");
            }
        }
        if let Some(text) = &section.resume_latency {
            let limit: ResumeLatency = text.get_ref().parse().map_err(|e| layer.wrong(text, e))?;
            for cpu in cpus.iter() {
                self.add(layer, text, CpuLatency::new(cpu), limit.value())?;
            }
        }
        Ok(())
    }

    pub(super) fn uncore(&mut self, layer: &Layer) -> Result<(), Error> {
        let section = &layer.file.power;
        let wishes = [("min", &section.uncore_min), ("max", &section.uncore_max)];
        let Some(first) = wishes.iter().find_map(|(_, text)| text.as_ref()) else { return Ok(()) };
        let of_machine = |e: crate::knob::Error| layer.wrong(first, e);
        let domains = uncore_domains(self.access).map_err(of_machine)?;
        for domain in &domains {
            let file =
                |name: &str| format!("/sys/devices/system/cpu/intel_uncore_frequency/{domain}/initial_{name}_freq_khz");
            let least = self.access.number(&file("min")).map_err(of_machine)?;
            let most = self.access.number(&file("max")).map_err(of_machine)?;
            for (field, text) in wishes {
                let Some(text) = text else { continue };
                match kilohertz(text, least.zip(most), None).map_err(|why| layer.wrong(text, why))? {
                    Some(khz) => self.add(layer, text, UncoreLimits::new(domain), Value::fields([(field, khz)]))?,
                    None => {
                        let why = format!("uncore domain {domain} does not report its {}", text.get_ref());
                        self.note(layer, text, &why);
                    }
                }
            }
        }
        if !domains.is_empty() {
            return Ok(());
        }
        for die in uncore_dies(self.access).map_err(of_machine)? {
            let Some(cpu) = die.iter().next() else { continue };
            use crate::knob::Setting as _;
            let Some(now) = UncoreMsr::new(cpu).read(self.access).ok().flatten() else {
                self.note(layer, first, "the host has no uncore frequency control, or it is not readable");
                return Ok(());
            };
            // A register that reads 0 limits nothing. Emulated machines return 0 for registers that they lack.
            if ["min", "max"].iter().all(|field| now.field(field) == Some("0")) {
                let why = format!("register 0x620 of CPU {cpu} reads 0: it controls no uncore");
                self.note(layer, first, &why);
                return Ok(());
            }
            for (field, text) in wishes {
                let Some(text) = text else { continue };
                let level = match text.get_ref().as_str() {
                    word @ ("min" | "max") => now.field(word).map(str::to_owned),
                    text => text.parse().ok().and_then(ratio).map(|ratio| ratio.to_string()),
                };
                let level = level.ok_or_else(|| layer.wrong(text, "expected min, max or a multiple of 100MHz"))?;
                self.add(layer, text, UncoreMsr::new(cpu), Value::fields([(field, level)]))?;
            }
        }
        Ok(())
    }
}

/// Converts `min`, `max`, `base` or a frequency such as `2.1GHz` to kHz. `None` if the machine does not report the
/// value.
fn kilohertz(text: &Spanned<String>, hardware: Option<(u64, u64)>, base: Option<u64>) -> Result<Option<u64>, String> {
    Ok(match text.get_ref().as_str() {
        "min" => hardware.map(|(min, _)| min),
        "max" => hardware.map(|(_, max)| max),
        "base" => base,
        text => {
            let frequency: Hertz =
                text.parse().map_err(|e| format!("{text:?}: expected min, max, base, or {}", trim(e)))?;
            Some(frequency.as_hertz() / 1_000)
        }
    })
}

fn trim(error: units::ParseError) -> String {
    error.to_string().trim_start_matches("expected ").to_owned()
}
