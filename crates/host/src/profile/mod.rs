//! Profiles: what a machine for a purpose looks like, independent of the machine.
//!
//! A profile is a TOML file ([`ProfileFile`] has its keys); a [`Library`] finds it. It may include others, which come
//! first; what it says itself overrides them. [`Profile::resolve`] makes a plan of it for one machine. An unknown key, a wrong value and an
//! unknown name are errors with file and line.

mod builtin;
mod export;
mod file;
mod library;
mod power;
mod recommend;
mod resolve;
mod rivals;

use std::path::Path;

pub(crate) use export::systemd;
pub use export::{Export, ExportedFile, Format};
pub use file::{Layer, ProfileFile, Variables};
pub use library::{Library, variables};
pub use power::{Power, Via};
pub use recommend::{Recommendation, recommend};
pub use resolve::{Purpose, Resolved};
pub use rivals::rivals;

/// A profile with all that it includes.
#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub summary: String,
    /// Its files, the included ones first.
    pub layers: Vec<Layer>,
    /// What one should know of where they were found.
    pub notes: Vec<String>,
}

/// A profile that is wrong.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{place}: {why}")]
pub struct Error {
    /// Where: `poll.toml:12`.
    pub place: String,
    /// What is wrong, and what would be right.
    pub why: String,
}

impl Profile {
    /// The names of the built-in profiles, with what they are for.
    pub fn builtin() -> Vec<(&'static str, String)> {
        let summary = |name: &str| Layer::parse(name, None, builtin::text(name).unwrap_or_default());
        let summary = |name: &str| summary(name).map(|layer| layer.file.summary).unwrap_or_default();
        builtin::NAMES.iter().map(|name| (*name, summary(name))).collect()
    }

    /// A profile that stands in a larger file, with what it includes. Its name is its summary.
    pub fn within(layer: Layer) -> Result<Self, Error> {
        Library::below(Path::new("/")).within(layer)
    }

    /// Loads a profile by its name, or a file by its path (it ends in `.toml`, or has a slash).
    pub fn load(name: &str) -> Result<Self, Error> {
        Library::below(Path::new("/")).load(name)
    }
}

#[cfg(test)]
mod tests;
