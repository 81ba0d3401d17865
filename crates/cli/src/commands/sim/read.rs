//! Reads scenarios from files, and simulates them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use sim::hw::ModelError;
use sim::scenario::Scenario;
use sim::strict::{self, Override, Place};
use sim::world;

use crate::Failure;
use crate::documents::sim::Case;

/// A scenario file, and the files that it names, each read once.
pub struct Source {
    /// The path as typed.
    pub path: PathBuf,
    text: String,
}

impl Source {
    /// Reads the file.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let text = fs::read_to_string(path).map_err(|error| {
            Failure::wrong(format!("cannot read {}", path.display()), error, "give a TOML file with a scenario")
        })?;
        Ok(Self { path: path.into(), text })
    }

    /// Parses the scenario. The values in `instead` replace those in the file. Files that the scenario names are looked
    /// up in the same folder. The path and the bytes of each file, this one included, are passed to `seen`.
    pub fn scenario(&self, instead: &[Override], seen: &mut dyn FnMut(&Path, &[u8])) -> Result<Scenario, Failure> {
        seen(&self.path, self.text.as_bytes());
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let mut load = |name: &str| {
            let path = folder.join(name);
            let octets = fs::read(&path).map_err(|error| error.to_string())?;
            seen(&path, &octets);
            Ok(octets)
        };
        let name = self.path.display().to_string();
        Scenario::parse(&name, &self.text, instead, &mut load).map_err(|error| of_scenario(&name, &error))
    }
}

fn of_scenario(name: &str, error: &strict::Error) -> Failure {
    // A mistake in a machine's file is reported with that file.
    let what = match &error.place {
        Place::Line { file, .. } if file != name => format!("cannot read the machine {file}, which {name} uses"),
        _ => format!("cannot read the scenario {name}"),
    };
    Failure::wrong(what, format!("{}: {}", error.place, error.what), error.fix.clone())
}

/// Simulates `scenario`. `instead` lists the values that replaced those of the scenario; it is only copied into the
/// document.
pub fn simulate(scenario: &Scenario, instead: &[Override], seed: Option<u64>) -> Result<Case, Failure> {
    let outcome = world::run(scenario, seed).map_err(|error: ModelError| {
        Failure::wrong(
            format!("cannot simulate {}", scenario.name),
            error,
            "change the machine or the setting named above",
        )
    })?;
    if outcome.unsound > 0 {
        let why = format!("the parts of {} delays add up to more than the delay", outcome.unsound);
        return Err(Failure::wrong(
            format!("cannot simulate {}", scenario.name),
            why,
            "this is a bug in Apus, please report it",
        ));
    }
    Ok(Case::new(scenario, pairs(instead), &outcome))
}

/// The replaced values by key. If a key occurs twice, the later one counts, as in the scenario.
pub fn pairs(instead: &[Override]) -> BTreeMap<String, String> {
    instead.iter().map(|replaced| (replaced.key.clone(), replaced.value.clone())).collect()
}
