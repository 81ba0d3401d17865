//! Helpers for the tests of all crates, never used by product code. With these helpers, a test reports what it lacks,
//! or that it had to retry.
//!
//! **Law:** this crate is a dev-dependency only and never part of the binary (`laws.rs` compares the edges).
#![forbid(unsafe_code)]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Environment variable that a machine sets to promise that it has everything that the tests need: `APUS_REQUIRE=all`.
pub const REQUIRE: &str = "APUS_REQUIRE";
/// Environment variable that names the file to which skips are appended, for the list at the end of `make test`.
pub const SKIPS: &str = "APUS_SKIPS";

/// Reports that the calling test, or a part of it, cannot run here. `why` says what is missing and how to get it.
///
/// The report goes to standard error, bypassing the test runner's capture. It is also appended to the file that
/// `APUS_SKIPS` names.
///
/// # Panics
/// Panics if `APUS_REQUIRE=all` is set. CI promises to have what every test needs, so a skip is a failure there.
pub fn skip(why: impl AsRef<str>) {
    let current = std::thread::current();
    // libtest names a test's thread after the test; `main` is a harness of its own, or --test-threads=1.
    let test = current.name().unwrap_or("a thread of a test");
    let line = format!("SKIPPED {test}: {}\n", why.as_ref());
    // `eprint!` would be captured; a write to the stream itself is not.
    let _ = std::io::stderr().write_all(line.as_bytes());
    append(SKIPS, &line);
    assert!(std::env::var_os(REQUIRE).is_none_or(|value| value != "all"), "{REQUIRE}=all, but {line}");
}

/// Environment variable that names a file. For a test that may retry, [`first_attempt`] appends a line to the file that
/// says whether the first attempt passed. CI counts the retries from these lines.
pub const ATTEMPTS: &str = "APUS_FIRST_ATTEMPTS";

/// Reports whether the first attempt of a test passed, for tests that retry without evidence of a disturbance.
/// `tools/attempts.sh` counts the reports. If more than one in ten first attempts failed, the retries are hiding a
/// fault.
pub fn first_attempt(passed: bool) {
    let current = std::thread::current();
    let test = current.name().unwrap_or("a thread of a test");
    let line = format!("{test}\t{}\n", if passed { "passed" } else { "failed" });
    append(ATTEMPTS, &line);
}

/// Writes a file of a machine that exists only in a folder, and the folders above it. Like an attribute in sysfs, the
/// file is never empty: whenever a program reads it, it has its old or its new content.
///
/// # Panics
/// Panics if the file cannot be written.
pub fn put(path: &Path, text: &str) {
    let written = || -> io::Result<()> {
        fs::create_dir_all(path.parent().unwrap_or(path))?;
        let Ok(existing) = fs::symlink_metadata(path) else { return fs::write(path, text) };
        if !existing.is_file() {
            return fs::write(path, text);
        }
        let beside = path.with_added_extension("new");
        fs::write(&beside, text)?;
        fs::set_permissions(&beside, existing.permissions())?;
        fs::rename(&beside, path)
    };
    written().unwrap_or_else(|error| panic!("write {}: {error}", path.display()));
}

/// Copies the program `from` to `to`, where everybody may read and run it.
///
/// A test that starts a program which it wrote itself must write it with this function or with [`put_script`]. Other
/// threads of the test process start children, and a child has every open file of its parent from its fork to its exec.
/// While a child holds a program open for writing this way, the program cannot be started (ETXTBSY, execve(2)). With
/// these two functions, `install` of coreutils writes the file, so no other child ever holds it open.
///
/// # Panics
/// Panics if the program cannot be copied.
pub fn put_program(from: &Path, to: &Path) {
    let program = File::open(from).unwrap_or_else(|error| panic!("open {}: {error}", from.display()));
    installed(install(program.into(), to), to);
}

/// Writes a script that everybody may read and run. See [`put_program`].
///
/// # Panics
/// Panics if the script cannot be written.
pub fn put_script(to: &Path, text: &str) {
    let mut child = install(Stdio::piped(), to);
    let written = child.stdin.take().map(|mut input| input.write_all(text.as_bytes()));
    installed(child, to);
    written.unwrap_or(Ok(())).unwrap_or_else(|error| panic!("write {}: {error}", to.display()));
}

fn install(contents: Stdio, to: &Path) -> Child {
    let child = Command::new("install").args(["-D", "-m", "755", "/dev/stdin"]).arg(to).stdin(contents).spawn();
    child.unwrap_or_else(|error| panic!("install of coreutils: {error}"))
}

fn installed(mut child: Child, to: &Path) {
    let ended = child.wait().unwrap_or_else(|error| panic!("wait for install: {error}"));
    assert!(ended.success(), "install {}: {ended}", to.display());
}

/// Keeps the settings of the whole machine unchanged until the returned file is closed. First waits for running tests
/// that change settings, including tests of other checkouts.
///
/// # Panics
/// Panics if the folder for temporary files is not writable.
pub fn settings_stay() -> File {
    let file = settings();
    file.lock_shared().unwrap_or_else(|error| panic!("lock {SETTINGS}: {error}"));
    file
}

/// Gives the calling test the sole right to change this machine's settings until the returned file is closed.
///
/// # Panics
/// Panics if the folder for temporary files is not writable.
pub fn settings_change() -> File {
    let file = settings();
    file.lock().unwrap_or_else(|error| panic!("lock {SETTINGS}: {error}"));
    file
}

const SETTINGS: &str = "apus-tune-tests.lock";

fn settings() -> File {
    let path = std::env::temp_dir().join(SETTINGS);
    let file = OpenOptions::new().create(true).write(true).truncate(false).open(&path);
    file.unwrap_or_else(|error| panic!("open {}: {error}", path.display()))
}

/// Appends `line` to the file that the environment variable `variable` names. Does nothing if the variable is not set.
fn append(variable: &str, line: &str) {
    let Some(path) = std::env::var_os(variable) else { return };
    let file = OpenOptions::new().create(true).append(true).open(&path);
    file.and_then(|mut file| file.write_all(line.as_bytes()))
        .unwrap_or_else(|error| panic!("{variable} names {}: {error}", path.display()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use std::process::Output;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn file(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("apus-testkit-{}-{name}", std::process::id()))
    }

    #[test]
    #[ignore = "started by the other tests"]
    fn one_that_lacks_something() {
        skip("a physical NIC");
        first_attempt(false);
    }

    /// With `fs::copy` instead of `put_program`, this fails within a few rounds.
    #[test]
    fn a_program_can_be_started_whatever_other_threads_start() {
        let (program, script) = (file("program"), file("script"));
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        assert!(Command::new("true").status().unwrap().success());
                    }
                });
            }
            let rounds = std::panic::catch_unwind(|| {
                for _ in 0..60 {
                    put_program(Path::new("/bin/true"), &program);
                    assert!(Command::new(&program).status().unwrap().success());
                    put_script(&script, "#!/bin/sh\nexit 7\n");
                    assert_eq!(Command::new(&script).status().unwrap().code(), Some(7));
                }
            });
            done.store(true, Ordering::Relaxed);
            rounds.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
        std::fs::remove_file(&program).unwrap();
        std::fs::remove_file(&script).unwrap();
    }

    /// Runs the first test of this module in a process of its own.
    fn started(require: &str, kept: &Path) -> Output {
        let name = "tests::one_that_lacks_something";
        let mut test = Command::new(std::env::current_exe().unwrap());
        test.args(["--ignored", "--exact", name]).env(REQUIRE, require).env(SKIPS, kept).env(ATTEMPTS, kept);
        test.output().unwrap()
    }

    #[test]
    fn a_skip_is_heard_kept_and_a_failure_where_nothing_may_be_missing() {
        const LINE: &str = "SKIPPED tests::one_that_lacks_something: a physical NIC\n";
        let kept = file("skips");
        let skipped = started("", &kept);
        assert!(skipped.status.success());
        assert!(String::from_utf8_lossy(&skipped.stderr).contains(LINE), "past the runner's capture: {skipped:?}");
        let text = std::fs::read_to_string(&kept).unwrap();
        assert_eq!(text, format!("{LINE}tests::one_that_lacks_something\tfailed\n"));
        let required = started("all", &kept);
        assert!(!required.status.success());
        assert!(String::from_utf8_lossy(&required.stdout).contains("APUS_REQUIRE=all, but SKIPPED"), "{required:?}");
        std::fs::remove_file(kept).unwrap();
    }

    #[test]
    fn more_than_one_failed_first_attempt_in_ten_is_a_failure() {
        let kept = file("attempts");
        let judged = |passed: usize, failed: usize| {
            std::fs::write(&kept, "a\tpassed\n".repeat(passed) + &"b\tfailed\n".repeat(failed)).unwrap();
            let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/attempts.sh");
            let output = Command::new(script).arg(&kept).output().unwrap();
            (output.status.code(), String::from_utf8(output.stdout).unwrap())
        };
        assert_eq!(judged(0, 0), (Some(0), "first attempts: none recorded\n".into()));
        assert_eq!(judged(4, 2).0, Some(0), "too few to judge");
        assert_eq!(judged(9, 1), (Some(0), "first attempts: 10, failed: 1\n  b: 1 of 1 failed\n".into()));
        let (status, said) = judged(9, 2);
        assert_eq!(status, Some(1));
        assert!(said.contains("first attempts: 11, failed: 2") && said.contains("hide a fault"), "{said}");
        std::fs::remove_file(kept).unwrap();
    }

    #[test]
    fn a_file_that_is_written_again_is_never_empty() {
        let path = file("folder").join("below/attribute");
        put(&path, "0\n");
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o400)).unwrap();
        std::thread::scope(|scope| {
            let reads = scope.spawn(|| (0..20_000).filter(|_| fs::read_to_string(&path).unwrap().is_empty()).count());
            while !reads.is_finished() {
                put(&path, "20000\n");
            }
            assert_eq!(reads.join().unwrap(), 0);
        });
        let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
        assert_eq!((fs::read_to_string(&path).unwrap(), mode & 0o777), ("20000\n".to_owned(), 0o400));
        fs::remove_dir_all(file("folder")).unwrap();
    }
}
