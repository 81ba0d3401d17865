//! The library as it is installed, and programs that are compiled against it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The crate's folder.
pub fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A folder of this test run with the library under the names that it is installed with.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        // Cargo builds all kinds of a tested package's library, next to the tests.
        let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        let built = |end: &str| deps.join(format!("libcapi.{end}"));
        let to = scratch("library");
        for (from, name) in [(built("so"), "libapus.so.0"), (built("a"), "libapus.a")] {
            assert!(from.exists(), "{}", from.display());
            std::os::unix::fs::symlink(&from, to.join(name)).unwrap();
        }
        std::os::unix::fs::symlink("libapus.so.0", to.join("libapus.so")).unwrap();
        to
    })
}

/// An empty folder, for one call of this test run.
pub fn scratch(name: &str) -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}-{number}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// Whether a program can be started.
pub fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Runs a command that must succeed, and returns what it printed.
pub fn run(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let said = String::from_utf8_lossy(&stdout).into_owned();
    assert!(status.success(), "{command:?}: {status}\n{said}\n{}", String::from_utf8_lossy(&stderr));
    said
}

/// Compiles a C program against the shared library with all warnings as errors, and returns its path.
pub fn compiled(compiler: &str, source: &Path, name: &str, flags: &[&str]) -> PathBuf {
    let program = scratch(name).join(name);
    let mut cc = Command::new(compiler);
    cc.args(["-std=c11", "-g", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror"])
        .arg("-I")
        .arg(folder().join("include"));
    cc.arg(source).args(flags).arg("-o").arg(&program).arg("-L").arg(library()).args(["-lapus", "-lpthread"]);
    run(&mut cc);
    program
}

/// A command that finds the shared library.
pub fn with_library(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", library());
    command
}
