use std::path::{Path, PathBuf};
use std::process::Command;

use super::Machine;
use crate::support::{bare, text};

/// Every recorded host beside the checkout.
fn archives() -> Vec<PathBuf> {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let folders = ["hosts", "hosts2"].map(|name| shared.join(name));
    let files = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.retain(|file| file.to_string_lossy().ends_with(".tar.gz"));
    files.sort();
    files
}

/// The recording as a folder, in memory where there is a file system for that: some have 50,000 files, which take minutes
/// to make and remove on a disk that others use.
fn unpacked(archive: &Path, name: &str) -> Machine {
    let machine = Machine::for_a_recording(name);
    let status = Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(&machine.0).status().unwrap();
    assert!(status.success());
    machine
}

/// How many settings of a host's fixes would change, with two intents.
fn changes(archive: &Path) -> usize {
    let name = archive.file_name().unwrap().to_string_lossy().replace(".tar.gz", "");
    let machine = unpacked(archive, &name);
    let mut changes = 0;
    for (n, intent) in
        [&[][..], &["--isolated", "2-3", "--workload", "poll", "--goal", "p99.9=50us"]].iter().enumerate()
    {
        let file = std::env::temp_dir().join(format!("apus-it-{}-{name}-{n}.toml", std::process::id()));
        let file = file.to_str().unwrap().to_owned();
        let words = ["audit", "--from", archive.to_str().unwrap(), "--fix", &file];
        let said = bare(&[&words[..], intent].concat());
        assert!(matches!(said.status.code(), Some(0 | 1)), "{name}: {}", text(&said.stderr));
        let profile = std::fs::read_to_string(&file).unwrap();
        let (code, plan) = machine.json(&["tune", "plan", &file]);
        std::fs::remove_file(&file).unwrap();
        assert_eq!(code, Some(0), "{name}: {plan}\n{profile}");
        for item in plan["items"].as_array().unwrap() {
            let meets = item["meets"].as_str().unwrap();
            assert!(matches!(meets, "change" | "as_wanted" | "not_there"), "{name}: {item}\n{profile}");
            changes += usize::from(meets == "change");
        }
    }
    changes
}

/// All that `--fix` writes for a recorded host is a profile that tune takes on that host: nothing is unknown, nothing has a
/// value that no machine takes, and nothing that the host is known to refuse.
#[test]
fn every_recorded_hosts_fixes_are_planned_on_it() {
    let archives = archives();
    if archives.is_empty() {
        testkit::skip("there is no recorded host: put them into shared/hosts beside the checkout");
        return;
    }
    // As many side by side as there are CPUs.
    let side_by_side = std::thread::available_parallelism().map_or(1, usize::from);
    let changes: usize = archives
        .chunks(side_by_side)
        .flat_map(|archives| {
            std::thread::scope(|scope| {
                let hosts: Vec<_> = archives.iter().map(|archive| scope.spawn(|| changes(archive))).collect();
                hosts.into_iter().map(|host| host.join().unwrap()).collect::<Vec<_>>()
            })
        })
        .sum();
    assert!(changes > 100, "only {changes} settings would change");
}
