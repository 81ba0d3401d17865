//! Output files of commands that measure. They are opened before the measurement, so that an unwritable file is
//! reported at once, and they keep their earlier contents until there is a result to write.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tester::replace::replace;

use crate::{Failure, terminal};

/// An open output file.
#[derive(Debug)]
pub(super) struct Output {
    path: PathBuf,
    file: File,
    /// The file, if it did not exist before. If `path` is a link to it, this is its own path.
    created: Option<PathBuf>,
    /// Whether a result was written, or its writing began.
    begun: bool,
}

impl Output {
    /// Opens `path` without changing its contents. Creates the file if there is none, and removes it again if nothing
    /// is written to it.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let is_new = !path.exists();
        let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file = opened.map_err(|error| unwritable(path, error))?;
        let created = is_new.then(|| fs::canonicalize(path)).and_then(Result::ok);
        Ok(Self { path: path.to_owned(), file, created, begun: false })
    }

    /// Opens the file that the user named, if any.
    pub(super) fn open_named(path: Option<&Path>) -> Result<Option<Self>, Failure> {
        path.map(Self::open).transpose()
    }

    /// Writes text. The first call replaces the earlier contents of the file as a whole; each further call appends.
    pub(super) fn write(&mut self, text: &str) -> anyhow::Result<()> {
        self.try_write(&terminal::clean(text)).map_err(|error| self.failed(error))
    }

    /// Writes a document as one line of JSON. Replaces or appends as [`write`](Self::write) does.
    pub(super) fn write_json(&mut self, document: &impl Serialize) -> anyhow::Result<()> {
        self.write(&(serde_json::to_string(document)? + "\n"))
    }

    /// Fails if `self` and `other` are the same file: the second result would be mixed with the first.
    pub(super) fn differs_from(&self, other: &Self) -> Result<(), Failure> {
        let file = |output: &Self| output.file.metadata().ok().filter(fs::Metadata::is_file).map(|of| identity(&of));
        if file(self).is_none() || file(self) != file(other) {
            return Ok(());
        }
        let what = format!("cannot write both results to {}", self.path.display());
        Err(Failure::wrong(what, "the two options name the same file", "name two different files"))
    }

    fn try_write(&mut self, text: &str) -> io::Result<()> {
        if !std::mem::replace(&mut self.begun, true) && self.file.metadata()?.is_file() {
            if let Some(new) = replace(&self.path, text.as_bytes())? {
                self.file = new;
                return Ok(());
            }
            self.file.set_len(0)?;
        }
        self.file.write_all(text.as_bytes())
    }

    fn failed(&self, error: io::Error) -> anyhow::Error {
        match error.kind() {
            // Whoever reads the pipe has seen enough.
            ErrorKind::BrokenPipe => error.into(),
            _ => unwritable(&self.path, error).into(),
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(path) = self.created.as_ref().filter(|_| !self.begun) {
            let _ = fs::remove_file(path);
        }
    }
}

/// Fails if `output` is one of the files that the command reads: it would be overwritten.
pub(super) fn is_no_input(output: &Path, inputs: &[&Path]) -> Result<(), Failure> {
    let of = |path: &Path| fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|metadata| identity(&metadata));
    let written = of(output);
    if written.is_none() || inputs.iter().all(|input| of(input) != written) {
        return Ok(());
    }
    let what = format!("cannot write {}", output.display());
    Err(Failure::wrong(what, "this file is also an input, and would be overwritten", "name another output file"))
}

/// Fails if one of `outputs` is a file that the command reads, or if two of them are the same file.
pub(super) fn are_apart(outputs: &[impl AsRef<Path>], inputs: &[impl AsRef<Path>]) -> Result<(), Failure> {
    let inputs: Vec<&Path> = inputs.iter().map(AsRef::as_ref).collect();
    for (number, path) in outputs.iter().map(AsRef::as_ref).enumerate() {
        is_no_input(path, &inputs)?;
        if outputs[..number].iter().any(|other| is_same(path, other.as_ref())) {
            let what = format!("cannot write two results to {}", path.display());
            return Err(Failure::wrong(what, "two options or ports name the same file", "name different files"));
        }
    }
    Ok(())
}

/// Whether two paths are of one file, or would create one. Devices can be written by several.
pub(super) fn is_same(a: &Path, b: &Path) -> bool {
    match (fs::metadata(a), fs::metadata(b)) {
        (Ok(a), Ok(b)) => a.is_file() && identity(&a) == identity(&b),
        (Err(_), Err(_)) => std::path::absolute(a).ok() == std::path::absolute(b).ok(),
        _ => false,
    }
}

/// The device and the inode number, which two paths of the same file share.
fn identity(of: &fs::Metadata) -> (u64, u64) {
    (of.dev(), of.ino())
}

/// The error for an output file that cannot be written. The fix depends on why.
pub(super) fn unwritable(path: &Path, why: io::Error) -> Failure {
    let fix = match why.kind() {
        ErrorKind::StorageFull => "free space on its disk, or choose another file",
        _ => "choose a file in a folder that you can write to",
    };
    Failure::lacking(format!("cannot write {}", path.display()), why, fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("apus-output-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// A mistyped port once emptied the file with the result of the day before.
    #[test]
    fn an_earlier_result_stays_until_there_is_a_new_one() {
        let folder = folder("keeps");
        let (old, new) = (folder.join("old"), folder.join("new"));
        fs::write(&old, "a long earlier result").unwrap();
        drop((Output::open(&old).unwrap(), Output::open(&new).unwrap()));
        assert_eq!(fs::read_to_string(&old).unwrap(), "a long earlier result");
        assert!(!new.exists(), "a file without a result stays");
        let link = folder.join("link");
        std::os::unix::fs::symlink(&new, &link).unwrap();
        drop(Output::open(&link).unwrap());
        assert!(!new.exists() && link.is_symlink(), "the file behind a link, without a result, stays");
        Output::open(&link).unwrap().write("through the link").unwrap();
        assert_eq!(fs::read_to_string(&new).unwrap(), "through the link");
        // A kill while the new result was written once left neither.
        let mut reader = File::open(&old).unwrap();
        let mut output = Output::open(&old).unwrap();
        output.write("one\n").unwrap();
        assert_eq!(io::read_to_string(&mut reader).unwrap(), "a long earlier result");
        output.write_json(&2).unwrap();
        drop(output);
        assert_eq!(fs::read_to_string(&old).unwrap(), "one\n2\n");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn errors_name_the_file() {
        let missing = Output::open(Path::new("/nonexistent/x")).unwrap_err().to_string();
        assert!(missing.contains("cannot write /nonexistent/x"), "{missing}");
        let full = Output::open(Path::new("/dev/full")).unwrap().write("text").unwrap_err().to_string();
        assert!(full.contains("cannot write /dev/full") && full.contains("free space on its disk"), "{full}");
        assert!(missing.contains("in a folder that you can write to"), "{missing}");
    }

    #[test]
    fn a_file_is_not_used_twice() {
        let folder = folder("twice");
        let (a, b) = (folder.join("a"), folder.join("b"));
        fs::write(&a, "").unwrap();
        std::os::unix::fs::symlink(&a, &b).unwrap();
        let open = |path: &Path| Output::open(path).unwrap();
        assert!(open(&a).differs_from(&open(&b)).is_err());
        assert!(open(&a).differs_from(&open(&folder.join("c"))).is_ok());
        assert!(open(Path::new("/dev/null")).differs_from(&open(Path::new("/dev/null"))).is_ok());
        assert!(is_no_input(&b, &[&folder.join("none"), &a]).unwrap_err().to_string().contains("also an input"));
        assert!(is_no_input(&folder.join("new"), &[&a]).is_ok());
        let (none, new): ([&Path; 0], _) = ([], folder.join("new"));
        assert!(are_apart(&[&new, &a], &none).is_ok());
        assert!(are_apart(&[&new, &a], &[&b]).unwrap_err().to_string().contains("also an input"));
        assert!(are_apart(&[&new, &a, &b], &none).unwrap_err().to_string().contains("two results"));
        assert!(is_same(&a, &b) && is_same(&folder.join("./new"), &folder.join("new")));
        assert!(!is_same(&a, &folder.join("new")) && !is_same(Path::new("/dev/null"), Path::new("/dev/null")));
        fs::remove_dir_all(&folder).unwrap();
    }
}
