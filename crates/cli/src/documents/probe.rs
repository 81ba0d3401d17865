//! The JSON documents of `apus probe`.

use probe::Measured;
use probe::compare::TermComparison;
use probe::measured::Name;
use probe::platform::Platform as Profile;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tester::document::Energy;
use tester::host::HostState;

/// Name and version of the schema of probe results.
pub const SCHEMA: &str = "apus.probe/2";

/// The previous version of the schema, which Apus still reads. It calls the number of samples of a distribution `n`.
pub const SCHEMA_1: &str = "apus.probe/1";

/// The JSON document of a probe.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.probe/2`.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// The host on which the probe ran. Its scheduling class is the class of the observing thread; the conditions of
    /// each measurement contain the class of the measuring threads.
    pub host: HostState,
    /// The measurements, one for each measured case.
    pub measured: Vec<Measured>,
    /// Energy of the whole measurement. Its CPU time is that of the measuring process.
    #[serde(default)]
    pub energy: Energy,
}

impl Document {
    /// Builds the document for this version of Apus.
    pub fn new(host: HostState, measured: Vec<Measured>, energy: Energy) -> Self {
        Self { apus: super::VERSION.into(), schema: SCHEMA.into(), host, measured, energy }
    }
}

/// Name and version of the schema of the platform profile.
pub const PLATFORM: &str = "apus.platform/2";

/// The previous version of the profile's schema, which Apus still reads. It calls the number of samples of a
/// distribution `n`.
pub const PLATFORM_1: &str = "apus.platform/1";

/// The platform profile that `apus probe all` writes: the cost of waking up on a host, measured in several rounds.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Platform {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.platform/2`.
    #[schemars(extend("const" = PLATFORM))]
    pub schema: String,
    /// The host on which the probes ran.
    pub host: HostState,
    /// Number of completed rounds.
    pub rounds: u32,
    /// Whether the measurement was interrupted before its last round.
    pub interrupted: bool,
    /// The variants of each probe. Each variant has a result over all rounds and one for each round.
    pub measured: Vec<Measured>,
    /// What could not be measured on this host.
    pub missing: Vec<Missing>,
    /// Energy of the whole measurement. Its CPU time is that of the measuring process.
    #[serde(default)]
    pub energy: Energy,
}

/// A probe that could not run on this host.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Missing {
    /// Name of the probe.
    pub probe: Name,
    /// Why the probe could not run.
    pub why: String,
}

impl Platform {
    /// Builds the profile for this version of Apus.
    pub fn new(host: HostState, profile: Profile, interrupted: bool, energy: Energy) -> Self {
        let missing = profile.missing.into_iter().map(|(probe, why)| Missing { probe, why }).collect();
        Self {
            apus: super::VERSION.into(),
            schema: PLATFORM.into(),
            host,
            rounds: profile.rounds,
            interrupted,
            measured: profile.measured,
            missing,
            energy,
        }
    }
}

/// Name and version of the schema of a comparison.
pub const COMPARISON: &str = "apus.probe-compare/1";

/// The JSON document of `apus probe compare`.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Comparison {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.probe-compare/1`.
    #[schemars(extend("const" = COMPARISON))]
    pub schema: String,
    /// Path of the first file.
    pub a: String,
    /// Path of the second file.
    pub b: String,
    /// Settings and conditions in which the two measurements differ. Each may explain differences between the figures.
    pub differences: Vec<String>,
    /// The compared figures.
    pub terms: Vec<TermComparison>,
}

impl Comparison {
    /// Builds the document for this version of Apus.
    pub fn new(a: String, b: String, differences: Vec<String>, terms: Vec<TermComparison>) -> Self {
        Self { apus: super::VERSION.into(), schema: COMPARISON.into(), a, b, differences, terms }
    }
}
