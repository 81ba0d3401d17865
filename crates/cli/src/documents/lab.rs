//! `apus lab list --json`.

use schemars::JsonSchema;
use serde::Serialize;

/// The schema's name.
pub const SCHEMA: &str = "apus.lab/1";

/// The labs of this machine.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// `apus.lab/1`
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// The labs, by name.
    pub labs: Vec<Lab>,
}

/// One lab.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Lab {
    /// Its name.
    pub name: String,
    /// The roles of its namespaces.
    pub roles: Vec<String>,
    /// The namespaces, as `ip netns` knows them, in the same order.
    pub namespaces: Vec<String>,
}
