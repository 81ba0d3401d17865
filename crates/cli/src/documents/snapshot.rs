//! `apus snapshot --json`.

use schemars::JsonSchema;
use serde::Serialize;

/// The schema's name.
pub const SCHEMA: &str = "apus.snapshot/1";

/// What was written.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// `apus.snapshot/1`
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// The file.
    pub file: String,
    /// Its size.
    pub size_octets: u64,
    /// The size of what is in it.
    pub unpacked_octets: u64,
    /// How many files are in it.
    pub files: u64,
    /// Is everything in it that was looked for?
    pub complete: bool,
    /// Are MAC addresses and serial numbers masked?
    pub masked: bool,
}
