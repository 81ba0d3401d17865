//! What is said to programs: one file a document, each with a JSON Schema in `schemas/`.
//!
//! Keys are in snake case and carry their unit; what is not known is `null`.

pub mod distribution;
pub mod lab;
pub mod replay;
pub mod run;
pub mod top;

use std::collections::BTreeMap;

use schemars::Schema;
use schemars::generate::SchemaSettings;

/// A document's schema.
pub struct Published {
    /// Its name, as in the document's `schema` field.
    pub name: &'static str,
    /// How to make it.
    pub schema: fn() -> Schema,
}

/// The schemas of all documents.
pub const SCHEMAS: &[Published] = &[
    Published { name: top::SCHEMA, schema: schema_of::<top::Document> },
    Published { name: run::SCHEMA, schema: schema_of::<run::Document> },
    Published { name: tester::result::SCHEMA, schema: schema_of::<tester::result::Document> },
    Published { name: lab::SCHEMA, schema: schema_of::<lab::Document> },
    Published { name: replay::SCHEMA, schema: schema_of::<replay::Document> },
];

/// The version of Apus in every document.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The JSON Schema (2020-12) of a document as it is written.
pub fn schema_of<T: schemars::JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>()
}

/// The file in `schemas/` of the schema called `name`: `apus.top/1` lies in `apus.top.1.json`.
pub fn schema_file(name: &str) -> String {
    format!("{}.json", name.replace('/', "."))
}

/// A map by name.
pub(crate) fn named<T>(pairs: impl IntoIterator<Item = (&'static str, T)>) -> BTreeMap<String, T> {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
