//! The JSON documents that the commands print: one file per document, each with a JSON Schema in `schemas/`.
//!
//! Keys are in snake case and end with their unit. A value that is not known is `null`.

pub mod audit;
pub mod diagnose;
pub mod dim;
pub mod figures;
pub mod goals;
pub mod guests;
pub mod irqs;
pub mod lab;
pub mod machines;
pub mod moderate;
pub mod moderation;
pub mod power;
pub mod power_learn;
pub mod power_steer;
pub mod probe;
pub mod replay;
pub mod run;
pub mod sim;
pub mod snapshot;
pub mod sweep;
pub mod top;
pub mod tune;

use schemars::Schema;
use tester::document::schema_of;
use tester::procedure;

/// A JSON document and its schema.
pub struct Published {
    /// Name and version, as in the document's `schema` field.
    pub name: &'static str,
    /// Generates the JSON Schema.
    pub schema: fn() -> Schema,
}

/// The schemas of all documents.
pub const SCHEMAS: &[Published] = &[
    Published { name: top::SCHEMA, schema: schema_of::<top::Document> },
    Published { name: run::SCHEMA, schema: schema_of::<run::Document> },
    Published { name: tester::demo::result::SCHEMA, schema: schema_of::<tester::demo::DemoResult> },
    Published { name: tester::result::SCHEMA, schema: schema_of::<tester::result::Document> },
    Published {
        name: tester::experiment::result::SCHEMA,
        schema: schema_of::<tester::experiment::result::ExperimentResult>,
    },
    Published { name: procedure::RFC2544_SCHEMA, schema: schema_of::<procedure::Rfc2544Document> },
    Published { name: procedure::MLR_SCHEMA, schema: schema_of::<procedure::MlrDocument> },
    Published { name: procedure::SOAK_SCHEMA, schema: schema_of::<procedure::SoakDocument> },
    Published { name: procedure::COMPARE_SCHEMA, schema: schema_of::<procedure::CompareDocument> },
    Published { name: lab::SCHEMA, schema: schema_of::<lab::Document> },
    Published { name: figures::SCHEMA, schema: schema_of::<figures::Document> },
    Published { name: goals::SCHEMA, schema: schema_of::<goals::Document> },
    Published { name: probe::SCHEMA, schema: schema_of::<probe::Document> },
    Published { name: sim::RUN, schema: schema_of::<sim::RunDocument> },
    Published { name: sim::COMPARE, schema: schema_of::<sim::CompareDocument> },
    Published { name: sim::SWEEP, schema: schema_of::<sim::SweepDocument> },
    Published { name: machines::MACHINES, schema: schema_of::<machines::Document> },
    Published { name: probe::PLATFORM, schema: schema_of::<probe::Platform> },
    Published { name: probe::COMPARISON, schema: schema_of::<probe::Comparison> },
    Published { name: replay::SCHEMA, schema: schema_of::<replay::Document> },
    Published { name: audit::SCHEMA, schema: schema_of::<audit::Document> },
    Published { name: audit::DIFF_SCHEMA, schema: schema_of::<audit::DiffDocument> },
    Published { name: audit::CMDLINE_SCHEMA, schema: schema_of::<audit::CmdlineDocument> },
    Published { name: irqs::SCHEMA, schema: schema_of::<irqs::Document> },
    Published { name: snapshot::SCHEMA, schema: schema_of::<snapshot::Document> },
    Published { name: tune::PLAN, schema: schema_of::<tune::Plan> },
    Published { name: tune::APPLY, schema: schema_of::<tune::Apply> },
    Published { name: tune::ROLLBACK, schema: schema_of::<tune::Rollback> },
    Published { name: tune::RECOMMEND, schema: schema_of::<tune::Recommend> },
    Published { name: tune::STATUS, schema: schema_of::<tune::Status> },
    Published { name: moderate::SCHEMA, schema: schema_of::<moderate::Document> },
    Published { name: power_learn::SCHEMA, schema: schema_of::<power_learn::Document> },
    Published { name: power_steer::SCHEMA, schema: schema_of::<power_steer::Document> },
    Published { name: power_steer::STATUS, schema: schema_of::<power_steer::StatusDocument> },
    Published { name: moderation::SCHEMA, schema: schema_of::<moderation::Document> },
    Published { name: sweep::SWEEP, schema: schema_of::<sweep::Sweep> },
    Published { name: power::WATCH, schema: schema_of::<power::Watch> },
    Published { name: guests::SCHEMA, schema: schema_of::<guests::Document> },
    Published { name: guests::STATUS, schema: schema_of::<guests::StatusDocument> },
    Published { name: guests::LOG, schema: schema_of::<guests::LogLine> },
    Published { name: guests::REQUEST, schema: schema_of::<guests::RequestDocument> },
    Published { name: diagnose::SCHEMA, schema: schema_of::<diagnose::Document> },
    Published { name: dim::SCHEMA, schema: schema_of::<dim::Document> },
];

/// The version of Apus, written to every document.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Name of the file in `schemas/` for the schema `name`: for `apus.top/2`, it is `apus.top.2.json`.
pub fn schema_file(name: &str) -> String {
    format!("{}.json", name.replace('/', "."))
}
