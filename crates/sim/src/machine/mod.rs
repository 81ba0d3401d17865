//! Named machines: the parameters of a processor or a network controller, each value with its source.
//!
//! The built-in machines are in `machines/*.toml`, next to `crates/`. [`Machine::from_toml`] reads a user's own file in
//! the same format. Every value is written `{ value = "12us", source = "…" }`. A source names the document and section,
//! or says how the value was obtained: recorded on a host, calibrated to a row of a published table, computed, or
//! estimated.

mod nic;
mod processor;
mod sourced;

use serde::Deserialize;
use toml::Value;
use units::{Cycles, Hertz};

use crate::hw::ModelError;
use crate::hw::aspm::AspmModel;
use crate::hw::cstate::CStateModel;
use crate::hw::interrupt::DeliveryModel;
use crate::hw::nic::NicModel;
use crate::hw::power::PowerModel;
use crate::hw::pstate::PStateModel;
use crate::hw::scheduler::{BackgroundModel, ThrottleModel};
use crate::hw::spread::Spread;
use crate::hw::timer::TimerModel;
use crate::hw::vcpu::VcpuModel;
use crate::strict;
use crate::units_text::{TextError, from_toml};

/// A machine or a part of one: a processor with its kernel's costs, a network controller, or both.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Machine {
    /// Name of the machine, for example `xeon-gold-6338n`.
    pub name: String,
    /// The hardware, in words.
    pub description: String,
    /// The processor. `None` if the file has none.
    pub processor: Option<Processor>,
    /// The network controller. `None` if the file has none.
    pub nic: Option<NicModel>,
    /// Every value of the file with its source, in the file's order.
    pub parameters: Vec<Parameter>,
}

/// A processor, and the costs of the kernel on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Processor {
    /// The frequency that is guaranteed with all cores busy.
    pub base: Hertz,
    /// Frequencies and the cost of changing them.
    pub pstates: PStateModel,
    /// Idle states.
    pub cstates: CStateModel,
    /// Costs of interrupt delivery.
    pub delivery: DeliveryModel,
    /// Lateness of timers.
    pub timer: TimerModel,
    /// Cost of a context switch.
    pub switch: Cycles,
    /// A background task on the same core, for scenarios that have one.
    pub background: BackgroundModel,
    /// The real-time throttle, for scenarios that leave it on.
    pub throttle: ThrottleModel,
    /// Costs of virtual CPUs, for scenarios that have them.
    pub vcpu: VcpuModel,
    /// Power management of the PCI Express link, for scenarios that turn it on.
    pub aspm: AspmModel,
    /// Power of cores and uncore.
    pub power: PowerModel,
    /// Costs of a small forwarder.
    pub work: WorkModel,
    /// What interrupts an isolated core now and then: the residual tick, system management.
    pub disturbance: Disturbance,
}

/// Costs of the forwarding software, in cycles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkModel {
    /// Cost of a poll that finds nothing.
    pub poll: Cycles,
    /// Cost of a poll that finds frames, without the cost of each frame: the call and the doorbell.
    pub burst: Cycles,
    /// Cost of a frame: receive, inspect, rewrite, transmit.
    pub frame: Cycles,
}

/// Interruptions of a core that has only one thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Disturbance {
    /// The mean time between two interruptions.
    pub every: units::Nanos,
    /// Duration of each interruption.
    pub takes: Spread,
}

impl Disturbance {
    /// Returns an error unless the time between two interruptions is longer than an interruption: the core would never
    /// get to its work.
    fn validate(&self) -> Result<(), ModelError> {
        let (every, most) = (self.every, self.takes.most());
        if every > most {
            return Ok(());
        }
        let what = format!("an interruption every {every} that takes up to {most}: give a longer `every`");
        Err(ModelError { part: "disturbance", what })
    }
}

/// A value of a machine, and its source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parameter {
    /// Path of the value in the file, for example `processor.pstates.block`.
    pub path: String,
    /// The value as it is written in the file.
    pub value: String,
    /// Document and section, or how the value was obtained.
    pub source: String,
}

/// The built-in machines, by name.
const BUILT_IN: [(&str, &str); 8] = [
    ("82599", include_str!("../../../../machines/82599.toml")),
    ("x540", include_str!("../../../../machines/x540.toml")),
    ("x710", include_str!("../../../../machines/x710.toml")),
    ("xeon-e5-2699v3", include_str!("../../../../machines/xeon-e5-2699v3.toml")),
    ("xeon-gold-6338n", include_str!("../../../../machines/xeon-gold-6338n.toml")),
    ("xeon-platinum-8260l", include_str!("../../../../machines/xeon-platinum-8260l.toml")),
    ("xeon-platinum-8360y", include_str!("../../../../machines/xeon-platinum-8360y.toml")),
    ("xl710", include_str!("../../../../machines/xl710.toml")),
];

/// Why a machine is not available.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MachineError {
    /// There is no built-in machine of this name.
    #[error("there is no machine {name:?}: expected one of {}, or a TOML file", Machine::names().collect::<Vec<_>>().join(", "))]
    Unknown {
        /// The requested name.
        name: String,
    },
    /// The text is not a valid document.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The document is valid, but describes an impossible machine.
    #[error("{place}:{line}: {error}")]
    Model {
        /// The name of the file or machine.
        place: String,
        /// The line, counted from 1, at which the impossible part begins. 1 if the part is not in the file.
        line: usize,
        /// What is impossible.
        error: ModelError,
    },
    /// The machine lacks a required part.
    #[error("{name} has no {lacks}")]
    Lacks {
        /// The name of the machine.
        name: String,
        /// The missing part: "processor" or "network controller".
        lacks: &'static str,
    },
}

impl MachineError {
    /// The error with its line in the user's own file, the problem and the fix. `None` if the error is not in the file.
    pub fn in_file(&self) -> Option<strict::Error> {
        let (file, line, what, fix) = match self {
            Self::Text(TextError { place, line, what, fix }) => (place, *line, what.clone(), fix.clone()),
            Self::Model { place, line, error } => {
                (place, *line, error.to_string(), "change the values of this section".to_owned())
            }
            Self::Unknown { .. } | Self::Lacks { .. } => return None,
        };
        Some(strict::Error { place: strict::Place::Line { file: file.clone(), line }, what, fix })
    }
}

impl Machine {
    /// The names of the built-in machines, sorted.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// The built-in machine called `name`.
    pub fn named(name: &str) -> Result<Self, MachineError> {
        let found = BUILT_IN.iter().find(|(known, _)| *known == name);
        let (name, text) = found.ok_or_else(|| MachineError::Unknown { name: name.to_owned() })?;
        Self::from_toml(text, name)
    }

    /// Reads a machine from TOML. `name` becomes the machine's name, also in error messages.
    pub fn from_toml(text: &str, name: &str) -> Result<Self, MachineError> {
        read(text, name)
    }

    /// The machine's processor, or an error if it has none.
    pub fn processor(&self) -> Result<&Processor, MachineError> {
        self.processor.as_ref().ok_or_else(|| self.lacks("processor"))
    }

    /// The machine's network controller, or an error if it has none.
    pub fn nic(&self) -> Result<&NicModel, MachineError> {
        self.nic.as_ref().ok_or_else(|| self.lacks("network controller"))
    }

    /// The parameter at `path`, for example `processor.pstates.block`. `None` if there is none.
    pub fn parameter(&self, path: &str) -> Option<&Parameter> {
        self.parameters.iter().find(|parameter| parameter.path == path)
    }

    /// The TOML of a built-in machine, as a template for the user's own. `None` if there is no such machine.
    pub fn text(name: &str) -> Option<&'static str> {
        BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }

    fn lacks(&self, lacks: &'static str) -> MachineError {
        MachineError::Lacks { name: self.name.clone(), lacks }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    description: String,
    processor: Option<processor::Section>,
    nic: Option<nic::Section>,
}

fn read(text: &str, name: &str) -> Result<Machine, MachineError> {
    let file: File = from_toml(text, name)?;
    let model = |error: ModelError| {
        let line = line_of_section(text, error.part);
        MachineError::Model { place: name.to_owned(), line, error }
    };
    let processor = file.processor.map(|section| section.model()).transpose().map_err(model)?;
    let nic = file.nic.map(|section| section.model()).transpose().map_err(model)?;
    if processor.is_none() && nic.is_none() {
        let (what, fix) = ("neither a [processor] nor a [nic]".to_owned(), "describe at least one of them".to_owned());
        return Err(TextError { place: name.to_owned(), line: 1, what, fix }.into());
    }
    let mut parameters = Vec::new();
    collect(&from_toml::<Value>(text, name)?, String::new(), &mut parameters);
    Ok(Machine { name: name.to_owned(), description: file.description, processor, nic, parameters })
}

/// The line at which the section of `part` begins. 1 if there is none.
fn line_of_section(text: &str, part: &str) -> usize {
    let header = match part {
        "P-states" => "[processor.pstates]",
        "idle states" => "[[processor.idle]]",
        "power" => "[processor.power]",
        "ASPM" => "[processor.aspm]",
        "disturbance" => "[processor.disturbance]",
        "interrupt throttling" | "descriptor write-back" | "controller" | "link" => "[nic]",
        _ => return 1,
    };
    text.lines().position(|line| line.trim() == header).map_or(1, |index| index + 1)
}

/// Collects parameters. Every table that has a source is a parameter.
fn collect(value: &Value, path: String, into: &mut Vec<Parameter>) {
    match value {
        Value::Table(table) if table.contains_key("source") => {
            let shown = table.iter().filter(|(key, _)| *key != "source").map(|(key, value)| {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                if key == "value" { text } else { format!("{key} {text}") }
            });
            let source = table["source"].as_str().unwrap_or_default().to_owned();
            into.push(Parameter { path, value: shown.collect::<Vec<_>>().join(", "), source });
        }
        Value::Table(table) => {
            for (key, value) in table {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                collect(value, path, into);
            }
        }
        Value::Array(items) => {
            for (number, item) in items.iter().enumerate() {
                let name = item.get("name").and_then(Value::as_str).map_or_else(|| number.to_string(), str::to_owned);
                collect(item, format!("{path}.{name}"), into);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_machines_are_sound_and_every_value_has_a_source() {
        assert!(Machine::names().is_sorted());
        for name in Machine::names() {
            let machine = Machine::named(name).unwrap_or_else(|error| panic!("{error}"));
            assert!(machine.processor.is_some() || machine.nic.is_some(), "{name}");
            assert!(machine.parameters.len() >= 10, "{name}: {}", machine.parameters.len());
            for Parameter { path, source, value } in &machine.parameters {
                assert!(source.len() > 10, "{name}: {path} = {value}: its source says nothing");
            }
        }
    }

    #[test]
    fn values_arrive_where_they_belong() {
        let machine = Machine::named("xeon-platinum-8260l").unwrap();
        let pstates = machine.processor().unwrap().pstates;
        assert_eq!(pstates.block, units::Nanos::from_micros(12));
        assert_eq!(machine.parameter("processor.pstates.block").unwrap().value, "12us");
        let error = machine.nic().unwrap_err().to_string();
        assert!(error.contains("network controller"), "{error}");
        let x540 = Machine::named("x540").unwrap();
        assert_eq!(x540.nic().unwrap().link.rate, units::BitRate::new(10_000_000_000));
        assert!(x540.processor().is_err());
    }

    /// Powers that a machine's file marks as computed follow one rule: the uncore and all cores at the base frequency
    /// draw the thermal design power in total.
    #[test]
    fn computed_powers_follow_their_rule() {
        for (name, watts) in [
            ("xeon-e5-2699v3", 145),
            ("xeon-gold-6338n", 185),
            ("xeon-platinum-8260l", 165),
            ("xeon-platinum-8360y", 250),
        ] {
            let machine = Machine::named(name).unwrap();
            let Processor { power, base, .. } = machine.processor().unwrap();
            let uncore = power.uncore[power.uncore.len() - 1].power.as_microwatts();
            let all = uncore + u64::from(power.cores) * power.active(*base, 1_000).as_microwatts();
            assert!(all.abs_diff(watts * 1_000_000) < 200_000, "{name}: {all} uW");
            let leaks = power.active(*base, 0).as_microwatts() * 4;
            assert!(leaks.abs_diff(power.active(*base, 1_000).as_microwatts()) < 20_000, "{name}: {leaks} uW");
        }
    }

    #[test]
    fn an_unknown_machine_is_told_the_known() {
        let error = Machine::named("xeon").unwrap_err().to_string();
        assert!(error.contains("x540") && error.contains("\"xeon\""), "{error}");
    }

    #[test]
    fn impossible_values_of_a_processor_name_their_section() {
        let good = Machine::text("xeon-gold-6338n").unwrap();
        for (section, from, to, needle) in [
            ("[processor.disturbance]", "every = { value = \"1s\"", "every = { value = \"0s\"", "every 0ns"),
            ("[processor.disturbance]", "every = { value = \"1s\"", "every = { value = \"11us\"", "a longer `every`"),
            ("[[processor.idle]]", "entry = { value = \"0ns\"", "entry = { value = \"2s\"", "POLL takes 2s to enter"),
        ] {
            let line = 1 + good.lines().position(|line| line == section).unwrap();
            let wrong = good.replacen(from, to, 1);
            assert_ne!(wrong, good, "{from}");
            let error = Machine::from_toml(&wrong, "mine.toml").unwrap_err().in_file().unwrap().to_string();
            assert!(error.starts_with(&format!("mine.toml:{line}: ")) && error.contains(needle), "{error}");
        }
    }

    #[test]
    fn a_wrong_file_names_line_and_remedy() {
        let good = BUILT_IN.iter().find(|(name, _)| *name == "x540").unwrap().1;
        let line = |needle: &str| 1 + good.lines().position(|line| line.starts_with(needle)).unwrap();
        for (from, to, at, needles) in [
            (
                "\"10Gbps\"",
                "\"10GHz\"",
                "rate",
                ["`nic.rate.value` is \"10GHz\"", "expected a bit rate such as 10Gbps"],
            ),
            ("\"10Gbps\"", "10", "rate", ["`nic.rate.value` is integer `10`", "expected a text in quotes"]),
            ("rate = {", "rat = {", "rate", ["unknown key `nic.rat`", "did you mean `rate`?"]),
            ("phy = {", "\n#phy = {", "[nic]", ["`nic.phy` is missing", "apus sim machines"]),
            (
                "batch = { value = 1, source",
                "batch = { value = 1, sauce",
                "batch",
                ["unknown key `nic.write_back.batch.sauce`", "`source`"],
            ),
            ("\"10Gbps\"", "\"0bps\"", "[nic]", ["link: a rate of 0", "change the values of this section"]),
        ] {
            let wrong = good.replacen(from, to, 1);
            assert_ne!(wrong, good, "{from}");
            let error = Machine::from_toml(&wrong, "mine.toml").unwrap_err().in_file().unwrap().to_string();
            assert!(error.starts_with(&format!("mine.toml:{}: ", line(at))), "{from} -> {to}: {error}");
            for needle in needles {
                assert!(error.contains(needle), "{from} -> {to}: {error:?} does not say {needle:?}");
            }
        }
        assert!(Machine::from_toml("description = \"nothing\"", "x").is_err());
    }
}
