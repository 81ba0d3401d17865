//! Any octets as the journal of a transaction, and any lines as its records with numbers and checksums that fit: what
//! is whole is told, the rest is torn or damaged, and each open change is looked up below a folder that holds nothing.
#![no_main]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::OnceLock;

use host::knob::Access;
use host::transaction::{self, Whereabouts};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

const TUNE: &str = "var/lib/apus/tune";

fn root() -> &'static TempDir {
    static ROOT: OnceLock<TempDir> = OnceLock::new();
    ROOT.get_or_init(|| {
        let root = tempfile::tempdir().expect("a folder");
        let folder = root.path().join(TUNE);
        fs::create_dir_all(&folder).expect("room for it");
        for path in ["var/lib/apus", TUNE] {
            fs::set_permissions(root.path().join(path), Permissions::from_mode(0o700)).expect("it is ours");
        }
        root
    })
}

/// Lines as records of a journal: the number, and the checksum that covers it and all before.
fn chained(text: &str) -> Vec<u8> {
    let (mut journal, mut chain) = (Vec::new(), 0);
    for (number, line) in text.lines().enumerate() {
        let body = format!("{number} {line}");
        let mut hasher = crc32fast::Hasher::new_with_initial(chain);
        hasher.update(body.as_bytes());
        chain = hasher.finalize();
        journal.extend(format!("{chain:08x} {body}\n").into_bytes());
    }
    journal
}

fn look(journal: &[u8]) {
    let root = root().path();
    let path = root.join(TUNE).join("000001.journal");
    if !path.exists() {
        fs::write(&path, b"").expect("room for it");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("it is ours");
    }
    fs::write(&path, journal).expect("room for it");
    let access = Access::below(root).expect("the folder is there");
    let all = transaction::transactions(&access).expect("a damaged journal is told, and no error");
    assert_eq!(all.len(), 1);
    for transaction in &all {
        for entry in transaction.open_entries() {
            let _ = entry.stands(&access, transaction.is_past, &Whereabouts::Here);
        }
    }
}

fuzz_target!(|data: &[u8]| {
    look(data);
    if let Ok(text) = std::str::from_utf8(data) {
        look(&chained(text));
    }
});
