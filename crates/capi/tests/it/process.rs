//! What happens to a waiter's thread and process: cancellation, strange names, no /proc, fork and exec.

use std::path::Path;
use std::sync::OnceLock;

use super::*;

/// Runs one of the tests in `tests/c/process.c`.
fn passes(test: &str) {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let program: &Path = PROGRAM.get_or_init(|| compiled("gcc", &folder().join("tests/c/process.c"), "process", &[]));
    let mut command = with_library(program);
    assert_eq!(run(command.arg(test).arg(scratch(test))), "ok\n");
}

/// Regression test: the process once ended with "FATAL: exception not rethrown".
#[test]
fn a_thread_is_cancelled_only_between_calls() {
    passes("cancel");
}
