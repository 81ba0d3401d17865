//! Masks private data. From a text that can contain a secret, only parts that are known to be harmless are kept
//! (`kept.txt`). The rest is masked, because no list of names of secrets is complete.
//!
//! `tools/apus-snapshot.sh` does the same with awk; tests/it/secrets.rs tests both with the same texts.

mod line;
mod printed;
mod scrub;
mod settings;

use std::collections::BTreeSet;
use std::sync::LazyLock;

pub(super) use line::{command_line, loader};
pub(super) use printed::recorded;
pub(super) use scrub::prose;
pub(super) use settings::{
    config, counted, cpu_info, cpu_manager, kubelet, limits, message, modules, mounts, names, packed_config, path,
    settings, swaps,
};

const MASK: &str = "MASKED";

/// The names in `kept.txt`, each with its kind. They mark what is kept.
static KEPT: LazyLock<BTreeSet<(&str, &str)>> = LazyLock::new(|| {
    let lines = include_str!("../kept.txt").lines().filter(|line| !line.starts_with('#'));
    let of_line = |line: &'static str| {
        let mut words = line.split(' ');
        let kind = words.next().unwrap_or_default();
        words.map(move |word| (kind, word))
    };
    lines.flat_map(of_line).collect()
});

/// Whether the name is known to be harmless.
fn keeps(kind: &str, name: &str) -> bool {
    KEPT.contains(&(kind, name))
}

/// Whether a snapshot keeps the value of this kernel parameter, or the word itself if it has no value. Dashes and
/// underscores are equal.
pub fn keeps_parameter(name: &str) -> bool {
    let name = name.replace('-', "_");
    keeps("parameter", &name) || keeps("flag", &name)
}
