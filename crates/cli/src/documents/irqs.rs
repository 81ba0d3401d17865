//! `apus irqs --json`.

use std::collections::BTreeMap;

use audit::HitKind;
use schemars::JsonSchema;
use serde::Serialize;
use tester::document::Name;

/// The schema's name.
pub const SCHEMA: &str = "apus.irqs/1";

/// What hits CPUs.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// `apus.irqs/1`
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// The CPUs, as a list.
    pub cpus: String,
    /// How long was counted; `null` since boot.
    pub during_ns: Option<u64>,
    /// What hits them, the most frequent first.
    pub sources: Vec<Source>,
}

/// One source of interruptions.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Its label: a number, `LOC`, `NET_RX`.
    pub label: String,
    /// Its users, or what it stands for.
    pub name: String,
    /// What kind of interruption.
    pub kind: Name<HitKind>,
    /// How often on all of these CPUs.
    pub count: u64,
    /// The same per second; `null` since boot.
    pub per_second: Option<f64>,
    /// How often on each CPU that it hit.
    pub by_cpu: BTreeMap<u32, u64>,
}
