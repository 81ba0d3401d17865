//! A full disk stops a change before it is made. The disk is a small tmpfs at the journal's place, as root.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use host::knob::Access;
use host::transaction::{Which, apply, transactions};

use crate::support::{is_root, machine, options, plan, run, snapshot, take_back};

/// A mounted tmpfs, unmounted on drop.
struct Disk(PathBuf);

impl Disk {
    fn mount(path: PathBuf, size: &str) -> Self {
        std::fs::create_dir_all(&path).unwrap();
        run("mount", &["-t", "tmpfs", "-o", &format!("size={size},mode=700"), "tmpfs", path.to_str().unwrap()]);
        Self(path)
    }

    /// Fills it up to the last page but `pages`.
    fn fill(&self, pages: usize) {
        let mut file = std::fs::File::create(self.0.join("ballast")).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
        let length = file.metadata().unwrap().len() / 4096 * 4096;
        file.set_len(length - pages as u64 * 4096).unwrap();
    }

    fn empty(&self) {
        std::fs::remove_file(self.0.join("ballast")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).output();
    }
}

fn journal(root: &Path) -> PathBuf {
    root.join("var/lib/apus/tune")
}

#[test]
fn a_full_disk_stops_it_before_the_first_change() {
    if !is_root() {
        return;
    }
    let root = machine("full-at-once");
    let before = snapshot(&root.0);
    std::fs::create_dir_all(root.0.join("var/lib/apus")).unwrap();
    let disk = Disk::mount(journal(&root.0), "64k");
    disk.fill(0);
    let access = Access::below(&root.0).unwrap();
    let error = apply(&access, &plan(), &options()).unwrap_err();
    assert!(error.to_string().contains("No space left"), "{error}");
    assert_eq!(snapshot(&root.0), before);
}

#[test]
fn a_disk_that_fills_up_takes_all_back() {
    if !is_root() {
        return;
    }
    let root = machine("full-midway");
    let before = snapshot(&root.0);
    std::fs::create_dir_all(root.0.join("var/lib/apus")).unwrap();
    let disk = Disk::mount(journal(&root.0), "64k");
    // The lock takes a page, the journal one for its first few records, and then there is none.
    disk.fill(2);
    let access = Access::below(&root.0).unwrap();
    let long = (0..100).fold(plan(), |plan, n| {
        let path = format!("sys/n{n}");
        std::fs::write(root.0.join(&path), "1\n").unwrap();
        plan.with(host::knob::File::new(format!("/{path}")), host::knob::Value::text("2"))
    });
    let before_with_more = snapshot(&root.0);
    assert_ne!(before, before_with_more);
    let error = apply(&access, &long, &options()).unwrap_err();
    assert!(error.to_string().contains("No space left"), "{error}");
    assert!(error.to_string().contains("all changes were rolled back"), "{error}");
    assert_eq!(snapshot(&root.0), before_with_more);
    disk.empty();
    assert!(transactions(&access).unwrap().is_empty());
}

#[test]
fn a_full_disk_does_not_keep_one_from_taking_back() {
    if !is_root() {
        return;
    }
    let root = machine("full-after");
    let before = snapshot(&root.0);
    std::fs::create_dir_all(root.0.join("var/lib/apus")).unwrap();
    let disk = Disk::mount(journal(&root.0), "64k");
    let access = Access::below(&root.0).unwrap();
    apply(&access, &plan(), &options()).unwrap();
    // Not even the holder of the lock can be written down: its page was given to somebody else.
    std::fs::File::create(journal(&root.0).join("lock")).unwrap();
    disk.fill(0);
    take_back(&access, Which::All).unwrap();
    assert_eq!(snapshot(&root.0), before);
    assert!(transactions(&access).unwrap().is_empty());
}
