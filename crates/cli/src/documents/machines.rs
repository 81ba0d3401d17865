//! `apus sim machines --json`.

use schemars::JsonSchema;
use serde::Serialize;
use sim::machine::Machine;

/// The schema of the machines.
pub const MACHINES: &str = "apus.sim.machines/1";

/// The machines that a scenario can name.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// `apus.sim.machines/1`
    #[schemars(extend("const" = MACHINES))]
    pub schema: String,
    /// All that are built in, sorted by name, or the one that was asked for.
    pub machines: Vec<Shown>,
}

/// A machine.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Shown {
    /// The name in scenarios; that of a file for one's own.
    pub name: String,
    /// What it is.
    pub description: String,
    /// The processor; `null` if it has none.
    pub processor: Option<Processor>,
    /// The network controller; `null` if it has none.
    pub nic: Option<Nic>,
    /// Every value with its source; `null` in a list.
    pub parameters: Option<Vec<Parameter>>,
}

/// A processor.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Processor {
    /// Cores of a package.
    pub cores: u32,
    /// The lowest frequency.
    pub lowest_hz: u64,
    /// The frequency that is guaranteed with all cores busy.
    pub base_hz: u64,
    /// The highest frequency.
    pub highest_hz: u64,
    /// The idle states, from the shallowest.
    pub idle_states: Vec<String>,
}

/// A network controller.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Nic {
    /// The line rate.
    pub rate_bps: u64,
    /// Receive descriptors of a queue.
    pub rx_descriptors: u32,
    /// Transmit descriptors of a queue.
    pub tx_descriptors: u32,
}

/// A value and where it is from.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// Its place in the file: `processor.pstates.block`.
    pub path: String,
    /// As it is written.
    pub value: String,
    /// Document and section, or how it was made.
    pub source: String,
}

impl Shown {
    /// A machine, with all its values if it is to be shown whole.
    pub fn new(machine: &Machine, whole: bool) -> Self {
        let parameters = machine.parameters.iter().map(|parameter| Parameter {
            path: parameter.path.clone(),
            value: parameter.value.clone(),
            source: parameter.source.clone(),
        });
        Self {
            name: machine.name.clone(),
            description: machine.description.clone(),
            processor: machine.processor.as_ref().map(|processor| Processor {
                cores: processor.power.cores,
                lowest_hz: processor.pstates.lowest.as_hertz(),
                base_hz: processor.base.as_hertz(),
                highest_hz: processor.pstates.highest.as_hertz(),
                idle_states: processor.cstates.states.iter().map(|state| state.name.clone()).collect(),
            }),
            nic: machine.nic.as_ref().map(|nic| Nic {
                rate_bps: nic.link.rate.as_bps(),
                rx_descriptors: nic.rx_descriptors,
                tx_descriptors: nic.tx_descriptors,
            }),
            parameters: whole.then(|| parameters.collect()),
        }
    }
}
