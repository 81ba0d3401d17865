//! Runs `ip` and `ethtool`, the programs that create and remove the lab, as child processes.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use live::Error;

/// Folders in which distributions install `ip` and `ethtool`; an ordinary user's PATH may lack them.
const SBIN: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// An installed program.
pub(super) struct Tool {
    name: &'static str,
    path: PathBuf,
}

impl Tool {
    /// Finds the program `name` in the PATH and in [`SBIN`].
    pub(super) fn find(name: &'static str) -> Result<Self, Error> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        Self::find_in(name, std::env::split_paths(&path).chain(SBIN.map(PathBuf::from)))
    }

    fn find_in(name: &'static str, mut folders: impl Iterator<Item = PathBuf>) -> Result<Self, Error> {
        match folders.find(|folder| is_program(&folder.join(name))) {
            Some(folder) => Ok(Self { name, path: folder.join(name) }),
            None => Err(lacking(
                format!("run {name}"),
                "the program is not installed".into(),
                "apt-get install iproute2 ethtool".into(),
            )),
        }
    }

    /// Runs the program with the arguments `words`, and returns its output.
    pub(super) fn run(&self, words: &[&str]) -> Result<String, Error> {
        let child = self.command(words).spawn();
        self.finish(words, child)
    }

    /// Runs the program with the arguments `words` in the namespace `namespace`, and returns its output.
    pub(super) fn run_in(&self, namespace: &str, words: &[&str]) -> Result<String, Error> {
        let child = super::spawn(namespace, &mut self.command(words))?;
        self.finish(words, Ok(child))
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        // `remedy` compares the messages, so they must not be translated.
        command.args(words).env("LC_ALL", "C");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn finish(&self, words: &[&str], child: io::Result<std::process::Child>) -> Result<String, Error> {
        let what = || format!("{} {}", self.name, words.join(" "));
        let output = child
            .and_then(std::process::Child::wait_with_output)
            .map_err(|source| Error::System { what: what(), source })?;
        if output.status.success() {
            return String::from_utf8(output.stdout)
                .map_err(|e| Error::Invalid { what: format!("output of {}", what()), why: e.to_string() });
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let why = match said.trim() {
            "" => output.status.to_string(),
            said => said.replace('\n', "; "),
        };
        Err(lacking(what(), why.clone(), remedy(&why).into()))
    }
}

fn is_program(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok() && path.is_file()
}

/// The remedy for an error message of `ip` or `ethtool`.
fn remedy(said: &str) -> &'static str {
    let says = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if says(&["Operation not permitted", "Permission denied", "must be root"]) {
        NEEDS_ROOT
    } else if says(&["Unknown device type", "Operation not supported"]) {
        "the kernel needs CONFIG_VETH and CONFIG_NET_NS; try: modprobe veth"
    } else {
        "run the command by hand to see more; `apus lab down NAME` removes what is left of the lab"
    }
}

/// The remedy for a missing permission. A lab needs CAP_NET_ADMIN to create links, and CAP_SYS_ADMIN to create, mount
/// and enter namespaces.
pub(super) const NEEDS_ROOT: &str = "needs root (CAP_NET_ADMIN, CAP_SYS_ADMIN); try again with sudo";

pub(super) fn lacking(what: String, why: String, fix: String) -> Error {
    Error::Lacking { what, why, fix }
}

/// Builds an error from an error of the operating system, with a remedy if a permission is missing.
pub(super) fn refused(what: String, error: impl Into<io::Error>) -> Error {
    let source = error.into();
    match source.kind() {
        io::ErrorKind::PermissionDenied => lacking(what, source.to_string(), NEEDS_ROOT.into()),
        _ => Error::System { what, source },
    }
}

/// Joins a command and its arguments with spaces, for messages.
pub(super) fn words(command: &[OsString]) -> String {
    command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tool_names_the_package() {
        let error = Tool::find_in("ethtool", [PathBuf::from("/nowhere")].into_iter()).err().unwrap();
        assert!(error.to_string().contains("apt-get install iproute2 ethtool"), "{error}");
        assert!(error.lacks());
    }

    #[test]
    fn a_refusal_names_the_capabilities() {
        for said in [
            "mkdir /var/run/netns failed: Permission denied",
            "RTNETLINK answers: Operation not permitted",
            "mount --make-shared /run/netns failed: Operation not permitted",
        ] {
            assert_eq!(remedy(said), NEEDS_ROOT);
        }
        assert!(remedy("Error: Unknown device type.").contains("CONFIG_VETH"));
        let error = refused("enter x".into(), rustix::io::Errno::PERM);
        assert!(error.to_string().contains("CAP_SYS_ADMIN"), "{error}");
    }
}
