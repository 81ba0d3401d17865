//! `apus snapshot --json`.

use schemars::JsonSchema;
use serde::Serialize;

/// Name and version of the schema.
pub const SCHEMA: &str = "apus.snapshot/1";

/// The archive that `apus snapshot` wrote.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct Document {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.snapshot/1`.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// Path of the archive.
    pub file: String,
    /// Size of the archive in bytes.
    pub size_octets: u64,
    /// Total size of the files in the archive, uncompressed, in bytes.
    pub unpacked_octets: u64,
    /// Number of files in the archive.
    pub files: u64,
    /// Whether the snapshot contains everything that Apus tried to read; false if a size limit cut it short.
    pub complete: bool,
    /// Whether MAC addresses and serial numbers are masked.
    pub masked: bool,
}
