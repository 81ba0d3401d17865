//! What the tests of every crate share, and no product code may use: saying what a test lacks.
//!
//! **Law:** a dev-dependency only; it never enters the binary (`laws.rs` compares the edges).
#![forbid(unsafe_code)]

use std::fs::OpenOptions;
use std::io::Write as _;

/// The variable by which a machine promises to have everything the tests need: `APUS_REQUIRE=all`.
pub const REQUIRE: &str = "APUS_REQUIRE";
/// The variable that names the file to which skips are appended, for the list at the end of `make test`.
pub const SKIPS: &str = "APUS_SKIPS";

/// Says that the calling test, or a part of it, cannot run here, and why: what is missing and how to get it.
///
/// The line goes to standard error past the test runner's capture, and to the file that `APUS_SKIPS` names.
///
/// # Panics
/// Under `APUS_REQUIRE=all`: CI promises to have what every test needs, so there a lack is a failure.
pub fn skip(why: impl AsRef<str>) {
    let current = std::thread::current();
    // libtest names a test's thread after the test; `main` is a harness of its own, or --test-threads=1.
    let test = current.name().unwrap_or("a thread of a test");
    let line = format!("SKIPPED {test}: {}\n", why.as_ref());
    // `eprint!` would be captured; a write to the stream itself is not.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os(SKIPS) {
        let file = OpenOptions::new().create(true).append(true).open(&path);
        file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the file that APUS_SKIPS names is writable");
    }
    assert!(std::env::var_os(REQUIRE).is_none_or(|value| value != "all"), "{REQUIRE}=all, but {line}");
}
