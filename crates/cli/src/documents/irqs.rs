//! `apus irqs --json`.

use std::collections::BTreeMap;

use audit::HitKind;
use schemars::JsonSchema;
use serde::Serialize;
use tester::document::Name;

/// Name and version of the schema.
pub const SCHEMA: &str = "apus.irqs/1";

/// The interrupts of CPUs, by source.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Document {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.irqs/1`.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// The CPUs whose interrupts were counted, as a list such as `2-5,8`.
    pub cpus: String,
    /// Time over which interrupts were counted, in ns; `null` if the counts are since boot.
    pub during_ns: Option<u64>,
    /// Sources of interrupts, the most frequent first.
    pub sources: Vec<Source>,
}

/// One source of interrupts.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Source {
    /// Label in the kernel's table (/proc/interrupts or /proc/softirqs): an interrupt number, `LOC` or `NET_RX`.
    pub label: String,
    /// Names of the interrupt's users, or what the label means.
    pub name: String,
    /// Kind of interruption.
    pub kind: Name<HitKind>,
    /// Number of interrupts on all counted CPUs.
    pub count: u64,
    /// Interrupts per second on all counted CPUs; `null` for counts since boot.
    pub per_second: Option<f64>,
    /// Number of interrupts by CPU. CPUs without any are left out.
    pub by_cpu: BTreeMap<u32, u64>,
}
