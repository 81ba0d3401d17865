//! A masked snapshot serves an audit as the host itself does.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use audit::{Intent, Level, audit};
use host::facts::{Facts, Root};
use host::snapshot::{Packing, Plan, Snapshot};

fn recordings() -> Vec<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = here.ancestors().flat_map(|folder| ["shared/hosts", "shared/hosts2"].map(|name| folder.join(name)));
    let files =
        folders.filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<_> = files.filter(|file| file.extension().is_some_and(|end| end == "gz")).collect();
    files.sort();
    files
}

/// Rules and levels of what is found.
fn findings(root: &Root) -> BTreeSet<String> {
    let facts = Facts::read(root);
    let report = audit(&facts, &Intent::default());
    report.at_least(Level::Choice).map(|finding| format!("{} {:?}", finding.key(), finding.level())).collect()
}

#[test]
fn the_findings_are_the_same() {
    let recordings = recordings();
    if recordings.is_empty() {
        testkit::skip("recorded hosts: folders shared/hosts and shared/hosts2 beside the checkout");
        return;
    }
    let mut different = Vec::new();
    for file in &recordings {
        let root = Root::open(file).unwrap();
        let place = std::env::temp_dir().join(format!("apus-masked-{}.tar", std::process::id()));
        std::fs::write(&place, Snapshot::of(&root, Plan::default()).packed(Packing::None).unwrap()).unwrap();
        let (before, after) = (findings(&root), findings(&Root::open(&place).unwrap()));
        std::fs::remove_file(&place).unwrap();
        assert!(!before.is_empty(), "{}", file.display());
        let name = file.file_name().unwrap().to_string_lossy();
        different.extend(before.difference(&after).map(|finding| format!("{name}: lost {finding}")));
        different.extend(after.difference(&before).map(|finding| format!("{name}: new {finding}")));
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}
