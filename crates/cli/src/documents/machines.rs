//! `apus sim machines --json`.

use schemars::JsonSchema;
use serde::Serialize;
use sim::machine::Machine;

/// Name and version of the schema.
pub const MACHINES: &str = "apus.sim.machines/1";

/// The machine models that a scenario can name.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Document {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.sim.machines/1`.
    #[schemars(extend("const" = MACHINES))]
    pub schema: String,
    /// All built-in machine models sorted by name, or only the requested one.
    pub machines: Vec<Shown>,
}

/// A machine model.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Shown {
    /// Name to use in scenarios. For the user's own model, the file name.
    pub name: String,
    /// One line that describes the machine.
    pub description: String,
    /// The machine's processor; `null` if the file describes none.
    pub processor: Option<Processor>,
    /// The machine's network controller; `null` if the file describes none.
    pub nic: Option<Nic>,
    /// Every value of the model with its source; `null` if several models are listed.
    pub parameters: Option<Vec<Parameter>>,
}

/// A processor.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Processor {
    /// Number of cores per package.
    pub cores: u32,
    /// Lowest frequency in Hz.
    pub lowest_hz: u64,
    /// Frequency in Hz that is guaranteed with all cores busy.
    pub base_hz: u64,
    /// Highest frequency that can be requested, in Hz.
    pub highest_hz: u64,
    /// Names of the idle states, the shallowest first.
    pub idle_states: Vec<String>,
}

/// A network controller.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Nic {
    /// Line rate in bit/s.
    pub rate_bps: u64,
    /// Number of receive descriptors per queue.
    pub rx_descriptors: u32,
    /// Number of transmit descriptors per queue.
    pub tx_descriptors: u32,
}

/// A value and its source.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Parameter {
    /// Key in the model's file, such as `processor.pstates.block`.
    pub path: String,
    /// The value as written.
    pub value: String,
    /// Document and section, or how it was obtained.
    pub source: String,
}

impl Shown {
    /// Describes a machine model. `whole` adds all values with their sources.
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
