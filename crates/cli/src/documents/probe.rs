//! What `apus probe` measured.

use probe::Measured;
use probe::compare::TermComparison;
use probe::measured::Name;
use probe::platform::Platform as Profile;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tester::host::HostState;

/// Name and version of the document's schema.
pub const SCHEMA: &str = "apus.probe/2";

/// The version before, which is read too: there the samples of a distribution were counted as `n`.
pub const SCHEMA_1: &str = "apus.probe/1";

/// What `apus probe` prints with `--json`.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// Version of the program.
    pub apus: String,
    /// `apus.probe/2`
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// The host on which it was measured. Its scheduling class is that of the thread that looked on; the
    /// measuring threads' stands in each measurement's conditions.
    pub host: HostState,
    /// What was measured, one entry for each variant.
    pub measured: Vec<Measured>,
}

impl Document {
    /// By this version of the program.
    pub fn new(host: HostState, measured: Vec<Measured>) -> Self {
        Self { apus: super::VERSION.into(), schema: SCHEMA.into(), host, measured }
    }
}

/// Name and version of the platform profile's schema.
pub const PLATFORM: &str = "apus.platform/2";

/// The version before, which is read too, as [`SCHEMA_1`].
pub const PLATFORM_1: &str = "apus.platform/1";

/// What `apus probe all` writes: what waking up costs on a host, term by term, in several rounds.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Platform {
    /// Version of the program.
    pub apus: String,
    /// `apus.platform/2`
    #[schemars(extend("const" = PLATFORM))]
    pub schema: String,
    /// The host.
    pub host: HostState,
    /// Rounds that were completed.
    pub rounds: u32,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
    /// Each probe's variants, all rounds together; each round stands in the terms.
    pub measured: Vec<Measured>,
    /// What could not be measured here.
    pub missing: Vec<Missing>,
}

/// A probe that this host has no means for.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Missing {
    /// The probe.
    pub probe: Name,
    /// Why.
    pub why: String,
}

impl Platform {
    /// By this version of the program.
    pub fn new(host: HostState, profile: Profile, interrupted: bool) -> Self {
        let missing = profile.missing.into_iter().map(|(probe, why)| Missing { probe, why }).collect();
        Self {
            apus: super::VERSION.into(),
            schema: PLATFORM.into(),
            host,
            rounds: profile.rounds,
            interrupted,
            measured: profile.measured,
            missing,
        }
    }
}

/// Name and version of a comparison's schema.
pub const COMPARISON: &str = "apus.probe-compare/1";

/// What `apus probe compare` prints with `--json`.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// Version of the program.
    pub apus: String,
    /// `apus.probe-compare/1`
    #[schemars(extend("const" = COMPARISON))]
    pub schema: String,
    /// The file that is A.
    pub a: String,
    /// The file that is B.
    pub b: String,
    /// In what the settings and conditions differ: each may be the reason for all that follows.
    pub differences: Vec<String>,
    /// The terms.
    pub terms: Vec<TermComparison>,
}

impl Comparison {
    /// By this version of the program.
    pub fn new(a: String, b: String, differences: Vec<String>, terms: Vec<TermComparison>) -> Self {
        Self { apus: super::VERSION.into(), schema: COMPARISON.into(), a, b, differences, terms }
    }
}
