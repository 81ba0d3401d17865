//! The format of a machine's file, including sources.

use serde::Deserialize;
use toml::Value;
use units::{Cycles, Nanos};

use super::{Machine, MachineError, Parameter, nic, processor};
use crate::hw::ModelError;
use crate::hw::spread::Spread;
use crate::units_text::{Text, TextError, from_toml};

/// A value and its source.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sourced<T> {
    pub value: T,
    #[serde(rename = "source")]
    _source: String,
}

/// A quantity with a unit.
pub(super) type Quantity<T> = Sourced<Text<T>>;

impl<T: Copy> Sourced<Text<T>> {
    pub fn get(&self) -> T {
        self.value.0
    }
}

/// A number of cycles. TOML has no unit for it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SourcedCycles {
    cycles: u32,
    #[serde(rename = "source")]
    _source: String,
}

impl SourcedCycles {
    pub fn get(&self) -> Cycles {
        Cycles::new(u64::from(self.cycles))
    }
}

/// A span that varies: at least `value`, exponentially more with the mean `excess`, at most `most`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SourcedSpread {
    value: Text<Nanos>,
    excess: Option<Text<Nanos>>,
    most: Option<Text<Nanos>>,
    #[serde(rename = "source")]
    _source: String,
}

impl SourcedSpread {
    pub fn get(&self) -> Result<Spread, ModelError> {
        match (&self.excess, &self.most) {
            (None, None) => Ok(Spread::exactly(self.value.0)),
            (Some(excess), Some(most)) => Spread::new(self.value.0, excess.0, most.0),
            _ => Err(ModelError {
                part: "a span that varies",
                what: "excess and most belong together: give both or neither".into(),
            }),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    description: String,
    processor: Option<processor::Section>,
    nic: Option<nic::Section>,
}

pub(super) fn read(text: &str, name: &str) -> Result<Machine, MachineError> {
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
        "interrupt throttling" | "descriptor write-back" | "controller" | "link" => "[nic]",
        _ => return 1,
    };
    text.lines().position(|line| line.trim() == header).map_or(1, |index| index + 1)
}

/// Collects parameters. Every table that has a source is one.
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
