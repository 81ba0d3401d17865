//! Finds and runs the programs of the host that are needed to make a guest.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Error;

/// Folders in which Debian installs programs that are not in every user's PATH.
const SBIN: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// The path of the program `name`, which is in Debian's package `package`.
pub(super) fn find(name: &str, package: &str) -> Result<PathBuf, Error> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(SBIN.map(PathBuf::from));
    find_in(name, package, folders)
}

fn find_in(name: &str, package: &str, mut folders: impl Iterator<Item = PathBuf>) -> Result<PathBuf, Error> {
    let found = folders.find_map(|folder| {
        let path = folder.join(name);
        (path.is_file() && rustix::fs::access(&path, rustix::fs::Access::EXEC_OK).is_ok()).then_some(path)
    });
    found.ok_or_else(|| Error::Lacking {
        what: format!("find {name}"),
        why: "the program is not installed".into(),
        fix: format!("tools/setup.sh vm, or apt-get install {package}"),
    })
}

/// Runs `command` and returns its output.
pub(super) fn output(command: &mut Command) -> Result<String, Error> {
    let line = command_line(command);
    let what = || format!("run {line}");
    // The messages are parsed below, so they must not be translated.
    let output = command
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .map_err(|e| Error::system(what(), e))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        return Err(Error::Lacking {
            what: what(),
            why: format!("{}: {}", output.status, last.trim()),
            fix: "run it by hand to see more; where packages could not be fetched, apt-get update first".into(),
        });
    }
    String::from_utf8(output.stdout).map_err(|_| Error::invalid(format!("output of {line}"), "it is not UTF-8"))
}

fn command_line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// The shared objects that the dynamic linker loads for `program`, including the linker itself. Each entry has the name
/// under which the guest must find the object, and the object's file on this host. Empty for a static program.
pub(super) fn libraries(program: &Path) -> Result<Vec<(String, PathBuf)>, Error> {
    let mut ldd = Command::new(find("ldd", "libc-bin")?);
    let output = ldd
        .arg(program)
        .env("LC_ALL", "C")
        .output()
        .map_err(|e| Error::system(format!("run ldd {}", program.display()), e))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if said.contains("not a dynamic executable") || said.contains("statically linked") {
        return Ok(Vec::new());
    }
    if !output.status.success() || said.contains("not found") {
        return Err(Error::invalid(program.display().to_string(), format!("ldd says: {}", said.trim())));
    }
    Ok(parse_ldd(&said))
}

/// Parses ldd(1)'s lines such as `libm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x7f…)` and `/lib64/ld-….so.2 (0x7f…)`.
/// The kernel's own object (linux-vdso) has no file.
fn parse_ldd(said: &str) -> Vec<(String, PathBuf)> {
    let lines = said.lines().filter_map(|line| {
        let (object, _address) = line.trim().rsplit_once(" (0x")?;
        let file = object.split(" => ").last()?;
        file.starts_with('/').then(|| (file.to_owned(), PathBuf::from(file)))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_names_its_package() {
        let error = find_in("qemu", "qemu-system-x86", [PathBuf::from("/nowhere")].into_iter()).unwrap_err();
        assert!(error.lacks() && error.to_string().contains("apt-get install qemu-system-x86"), "{error}");
    }

    #[test]
    fn what_a_program_says_is_in_the_error() {
        let error = output(Command::new("sh").args(["-c", "echo first >&2; echo last >&2; exit 3"])).unwrap_err();
        assert!(error.to_string().contains("exit status: 3: last"), "{error}");
        assert_eq!(output(Command::new("echo").arg("a")).unwrap(), "a\n");
    }

    #[test]
    fn ldd_gives_every_file_once_and_no_vdso() {
        let said = "\tlinux-vdso.so.1 (0x00007fff)\n\tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f12)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f13)\n";
        let files: Vec<_> = parse_ldd(said).into_iter().map(|(name, _)| name).collect();
        assert_eq!(files, ["/lib/x86_64-linux-gnu/libm.so.6", "/lib64/ld-linux-x86-64.so.2"]);
    }

    #[test]
    fn this_test_itself_is_dynamic() {
        let own = libraries(&std::env::current_exe().unwrap()).unwrap();
        assert!(own.iter().any(|(name, file)| name.contains("libc.so") && file.is_file()), "{own:?}");
    }
}
