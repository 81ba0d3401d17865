//! Masks private data. Only the parts that are known to be harmless (`kept.txt`) are kept of a file that can contain a
//! secret. The rest is masked, because no list of secrets could be complete.
//!
//! `tools/apus-snapshot.sh` does the same with awk; tests/it/secrets.rs tests both with the same inputs.

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

/// The entries of `kept.txt`, as kind and name. A snapshot keeps what they name.
static KEPT: LazyLock<BTreeSet<(&str, &str)>> = LazyLock::new(|| {
    let lines = include_str!("../kept.txt").lines().filter(|line| !line.starts_with('#'));
    let of_line = |line: &'static str| {
        let mut words = line.split(' ');
        let kind = words.next().unwrap_or_default();
        words.map(move |word| (kind, word))
    };
    lines.flat_map(of_line).collect()
});

/// Whether `kept.txt` has a name of this kind, so that it is known to be harmless.
fn keeps(kind: &str, name: &str) -> bool {
    KEPT.contains(&(kind, name))
}

/// Whether a snapshot keeps the value of this kernel parameter, or the parameter itself if it has no value. In the
/// name, dashes and underscores are equal.
pub fn keeps_parameter(name: &str) -> bool {
    let name = name.replace('-', "_");
    keeps("parameter", &name) || keeps("flag", &name)
}
