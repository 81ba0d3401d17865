//! Finds the host's root in a folder or archive.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::directory::Directory;
use super::tree::{MAX_DEPTH, SIGNS};
use super::{Files, Kind, Root, RootError, archive};

/// Name of the archive that a must-gather contains for each node.
const SYSINFO: &str = "sysinfo.tgz";
/// Maximum number of folders of a must-gather in which [`SYSINFO`] is searched for.
const MAX_FOLDERS: usize = 5_000;

pub(super) fn open(path: &Path) -> Result<Root, RootError> {
    let failed = |error| RootError::Open { path: path.into(), error };
    let real = fs::canonicalize(path).map_err(failed)?;
    if real == Path::new("/") {
        return Ok(Root::live());
    }
    let kind = fs::metadata(&real).map_err(failed)?.file_type();
    if kind.is_file() {
        return archived(path);
    }
    // Opening a FIFO would block until a process opens it for writing.
    if !kind.is_dir() {
        return Err(RootError::NotAHost { path: path.into(), reason: "it is neither a file nor a folder".into() });
    }
    match host_root(&real) {
        Some(root) => folder(path, &root),
        None => must_gather(path, &real),
    }
}

fn folder(path: &Path, root: &Path) -> Result<Root, RootError> {
    let directory = Directory::open(root).map_err(|error| RootError::Open { path: root.into(), error })?;
    Ok(finished(Root::over(Kind::Recording, &path.display().to_string(), Files::Directory(directory))))
}

fn archived(path: &Path) -> Result<Root, RootError> {
    let file = File::open(path).map_err(|error| RootError::Open { path: path.into(), error })?;
    let unpacked = archive::unpack(file).map_err(|reason| RootError::NotAHost { path: path.into(), reason })?;
    let mut root = Root::over(Kind::Recording, &path.display().to_string(), Files::Tree(unpacked.tree));
    root.notes = unpacked.notes;
    let mut root = finished(root);
    // Files after the point where the archive was cut off may have existed.
    root.manifest.cut_short |= unpacked.cut_short;
    Ok(root)
}

/// Determines the kind of the recording.
fn finished(root: Root) -> Root {
    let mut root = root.prepared();
    if root.manifest.is_there {
        root.kind = Kind::Snapshot;
    } else if root.list("sos_commands").is_known() {
        root.kind = Kind::SosReport;
    }
    root
}

/// The folder that contains one of the [`SIGNS`] of a host's root: `path`, or its only subfolder, and so on.
fn host_root(path: &Path) -> Option<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..=MAX_DEPTH {
        if SIGNS.iter().any(|sign| path.join(sign).exists()) {
            return Some(path);
        }
        let mut folders =
            fs::read_dir(&path).ok()?.flatten().filter(|entry| entry.file_type().is_ok_and(|t| t.is_dir()));
        path = folders.next()?.path();
        if folders.next().is_some() {
            return None;
        }
    }
    None
}

/// Opens the archive of the only node in a must-gather. If there are several nodes, the error names them.
fn must_gather(path: &Path, real: &Path) -> Result<Root, RootError> {
    let mut found = Vec::new();
    let mut folders = vec![real.to_owned()];
    let mut looked = 0;
    while let Some(folder) = folders.pop().filter(|_| looked < MAX_FOLDERS) {
        looked += 1;
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(kind) if kind.is_file() && entry.file_name() == SYSINFO => found.push(entry.path()),
                _ => {}
            }
        }
    }
    found.sort();
    let reason = match found.as_slice() {
        [one] => return archived(one),
        [] => "it contains no files of a host; give a folder or an archive with proc and sys in it".to_owned(),
        several => {
            let names: Vec<String> = several.iter().take(20).map(|path| path.display().to_string()).collect();
            format!("it contains the files of several hosts; give one of these: {}", names.join(", "))
        }
    };
    Err(RootError::NotAHost { path: path.into(), reason })
}
