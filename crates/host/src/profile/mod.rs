//! Profiles: what a machine for a purpose looks like, independent of the machine.
//!
//! A profile is a TOML file ([`ProfileFile`] has its keys). It may include others, which come first; what it says itself
//! overrides them. [`Profile::resolve`] makes a plan of it for one machine. An unknown key, a wrong value and an
//! unknown name are errors with file and line.

mod builtin;
mod export;
mod file;
mod power;
mod resolve;

use std::path::Path;

pub use export::{Export, ExportedFile, Format};
pub use file::{Layer, ProfileFile};
pub use power::{Power, Via};
pub use resolve::{Purpose, Resolved};

/// A profile with all that it includes.
#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub summary: String,
    /// Its files, the included ones first.
    pub layers: Vec<Layer>,
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

/// Includes do not go deeper than anyone can follow.
const DEEPEST: usize = 8;

impl Profile {
    /// The names of the built-in profiles, with what they are for.
    pub fn builtin() -> Vec<(&'static str, String)> {
        let summary = |name: &str| Self::load(name).map(|profile| profile.summary).unwrap_or_default();
        builtin::NAMES.iter().map(|name| (*name, summary(name))).collect()
    }

    /// A profile that stands in a larger file, with what it includes. Its name is its summary.
    pub fn within(layer: Layer) -> Result<Self, Error> {
        let summary = layer.file.summary.clone();
        let mut layers = Vec::new();
        for include in &layer.file.include {
            add(include.get_ref(), layer.folder.as_deref(), &layer.place(include), &mut layers, 1)?;
        }
        layers.push(layer);
        Ok(Self { name: summary.clone(), summary, layers })
    }

    /// Loads a built-in profile by its name, or a file by its path (it ends in `.toml`, or has a slash).
    pub fn load(name: &str) -> Result<Self, Error> {
        let mut layers = Vec::new();
        add(name, None, "the command line", &mut layers, 0)?;
        let last = layers.last().map(|layer| layer.file.summary.clone()).unwrap_or_default();
        let name = name.rsplit('/').next().unwrap_or(name);
        Ok(Self { name: name.strip_suffix(".toml").unwrap_or(name).to_owned(), summary: last, layers })
    }
}

fn add(name: &str, folder: Option<&Path>, from: &str, layers: &mut Vec<Layer>, depth: usize) -> Result<(), Error> {
    let wrong = |why: String| Error { place: from.to_owned(), why };
    if depth > DEEPEST {
        return Err(wrong(format!("{name} is included more than {DEEPEST} deep: does it include itself?")));
    }
    let layer = if name.contains('/') || name.ends_with(".toml") {
        let path = folder.map_or_else(|| Path::new(name).to_owned(), |folder| folder.join(name));
        let text = std::fs::read_to_string(&path).map_err(|e| wrong(format!("cannot read {}: {e}", path.display())))?;
        let shown = path.display().to_string();
        Layer::parse(&shown, Some(path.parent().unwrap_or(Path::new("."))), &text)?
    } else {
        let text = builtin::text(name).ok_or_else(|| {
            wrong(format!(
                "there is no profile {name:?}; there are {}, and files: ./{name}.toml",
                builtin::NAMES.join(", ")
            ))
        })?;
        Layer::parse(&format!("{name}.toml"), None, text)?
    };
    for include in &layer.file.include {
        let place = layer.place(include);
        add(include.get_ref(), layer.folder.as_deref(), &place, layers, depth + 1)?;
    }
    layers.push(layer);
    Ok(())
}

#[cfg(test)]
mod tests;
