//! `apus lab list --json`.

use schemars::JsonSchema;
use serde::Serialize;

/// Name and version of the schema.
pub const SCHEMA: &str = "apus.lab/1";

/// The labs on this host. A lab is a set of connected network namespaces for tests.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct Document {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.lab/1`.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// The labs, sorted by name.
    pub labs: Vec<Lab>,
}

/// A lab: connected network namespaces for tests.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct Lab {
    /// Name of the lab.
    pub name: String,
    /// Roles of the lab's namespaces, such as `tx` and `dut`.
    pub roles: Vec<String>,
    /// Names of the namespaces for `ip netns`, in the same order as `roles`.
    pub namespaces: Vec<String>,
}
