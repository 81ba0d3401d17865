//! `apus irqs --json`.

use std::collections::BTreeMap;

use audit::HitKind;
use schemars::JsonSchema;
use serde::Serialize;
use tester::document::Name;

/// Name and version of the schema.
pub const SCHEMA: &str = "apus.irqs/1";

/// What interrupts CPUs.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Document {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.irqs/1`.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// The CPUs whose interrupts were counted, as a list.
    pub cpus: String,
    /// Time over which interrupts were counted; `null` means since boot.
    pub during_ns: Option<u64>,
    /// Sources of interrupts, the most frequent first.
    pub sources: Vec<Source>,
}

/// One source of interrupts.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Source {
    /// Label in the kernel's table: a number, `LOC` or `NET_RX`.
    pub label: String,
    /// Users of the interrupt, or what the label means.
    pub name: String,
    /// The kind of interruption.
    pub kind: Name<HitKind>,
    /// Number of interrupts on these CPUs.
    pub count: u64,
    /// Interrupts per second on these CPUs; `null` for counts since boot.
    pub per_second: Option<f64>,
    /// Number of interrupts on each CPU that had any.
    pub by_cpu: BTreeMap<u32, u64>,
}
