//! What happens to a waiter's thread and process: cancellation, strange names, no /proc, fork and exec.

use std::path::Path;
use std::sync::OnceLock;

use super::*;

/// Runs one of the tests in `tests/c/process.c`.
fn passes(test: &str) {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let program: &Path = PROGRAM.get_or_init(|| compiled("gcc", &folder().join("tests/c/process.c"), "process", &[]));
    let mut command = with_library(program);
    match run(command.arg(test).arg(scratch(test))).as_str() {
        "ok\n" => {}
        "skipped\n" => testkit::skip(format!("root, for the test {test}")),
        said => panic!("{said}"),
    }
}

/// Regression test: the process once ended with "FATAL: exception not rethrown".
#[test]
fn a_thread_is_cancelled_only_between_calls() {
    passes("cancel");
}

/// Regression test: each wait once failed, so the loop span.
#[test]
fn a_process_may_lose_its_proc() {
    passes("change_root");
}

/// Regression test: the first wait once failed, and another process could take the instance over.
#[test]
fn a_name_may_be_any_bytes() {
    passes("rename_thread");
}

/// Regression test: the name was once taken until the end of the process.
#[test]
fn a_program_that_replaces_itself_keeps_its_name() {
    passes("replace");
}

/// Regression test: the child once got APUS_E_ORDER.
#[test]
fn a_child_forked_within_a_wait_is_told_so() {
    passes("fork_within");
}
