//! Profiles: settings for a purpose, independent of any particular machine.
//!
//! A profile is a TOML file ([`ProfileFile`] lists its keys); a [`Library`] finds it. A profile may include other
//! profiles; these are applied first, and the including profile overrides them. [`Profile::resolve`] makes a plan for
//! one machine. An unknown key, a wrong value and an unknown name are errors with file and line.

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

/// A profile with all included profiles.
#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    /// The profile's name.
    pub name: String,
    /// The purpose of the profile, in one line.
    pub summary: String,
    /// The files of the profile; included files come first.
    pub layers: Vec<Layer>,
    /// Notes on the profile's files, such as a site's file that replaces a built-in profile.
    pub notes: Vec<String>,
}

/// An error in a profile.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{place}: {why}")]
pub struct Error {
    /// File and line of the error: `poll.toml:12`.
    pub place: String,
    /// What is wrong, and which values are allowed.
    pub why: String,
}

impl Profile {
    /// The names of the built-in profiles, with their summaries.
    pub fn builtin() -> Vec<(&'static str, String)> {
        let summary = |name: &str| Layer::parse(name, None, builtin::text(name).unwrap_or_default());
        let summary = |name: &str| summary(name).map(|layer| layer.file.summary).unwrap_or_default();
        builtin::NAMES.iter().map(|name| (*name, summary(name))).collect()
    }

    /// Loads a profile inside a larger file, together with all included profiles. The profile's summary serves as its
    /// name.
    pub fn within(layer: Layer) -> Result<Self, Error> {
        Library::below(Path::new("/")).within(layer)
    }

    /// Loads a profile by its name, or by the path of its file (a path ends in `.toml` or contains a slash).
    pub fn load(name: &str) -> Result<Self, Error> {
        Library::below(Path::new("/")).load(name)
    }
}

#[cfg(test)]
mod tests;
