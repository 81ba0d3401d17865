//! The folder that holds the files of one guest. It is removed when the guest ends.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::Error;

/// Start of the name of every such folder; the process identifier and a number follow.
const PREFIX: &str = "apus-vm-";

/// File system in memory, the best place for a guest's memory file.
const IN_MEMORY: &str = "/dev/shm";

/// Number of bytes needed for the root file system and logs, in addition to the guest's memory.
const BESIDE: u64 = 256 << 20;

/// A folder that is removed on drop.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Creates a folder, with a file named `memory` of `memory` bytes if `memory` is not 0. Also removes the folders
    /// that ended processes left behind.
    pub(super) fn new(memory: u64) -> Result<Self, Error> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let parent = parent(memory + BESIDE);
        sweep(&parent);
        // An earlier process with the same PID may have left a folder. Then the next number is used.
        let path = loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("{PREFIX}{}-{number}", std::process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                made => {
                    break made
                        .map(|()| path.clone())
                        .map_err(|e| Error::system(format!("make {}", path.display()), e))?;
                }
            }
        };
        let failed = |e| Error::system(format!("make {}", path.display()), e);
        let folder = Self { path: path.clone() };
        for inside in ["agent", "share"] {
            fs::create_dir(path.join(inside)).map_err(failed)?;
        }
        if memory > 0 {
            fs::File::create(path.join("memory")).and_then(|file| file.set_len(memory)).map_err(failed)?;
        }
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn write(&self, name: &str, data: &[u8]) -> Result<(), Error> {
        let path = self.path.join(name);
        fs::write(&path, data).map_err(|e| Error::system(format!("write {}", path.display()), e))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // If the folder cannot be removed now, the next guest tries again.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// A folder in memory if there is room for `octets` bytes, otherwise the folder for temporary files.
fn parent(octets: u64) -> PathBuf {
    let room = rustix::fs::statvfs(IN_MEMORY).map_or(0, |stat| stat.f_bavail * stat.f_frsize);
    if room > octets { IN_MEMORY.into() } else { std::env::temp_dir() }
}

/// Removes the folders of ended processes. Errors are ignored, because they do not affect the new guest.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).and_then(|rest| rest.split('-').next());
        let owner = owner.and_then(|pid| pid.parse::<u32>().ok());
        if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_with_its_guest_and_what_others_left_goes_too() {
        let folder = Folder::new(1 << 20).unwrap();
        let path = folder.path().to_owned();
        assert!(path.join("agent").is_dir() && path.join("memory").metadata().unwrap().len() == 1 << 20);
        // No process has a PID above the kernel's limit of 2^22 (include/linux/threads.h).
        let left = path.with_file_name(format!("{PREFIX}4194305-0"));
        fs::create_dir_all(left.join("agent")).unwrap();
        let second = Folder::new(1 << 20).unwrap();
        assert!(!left.exists() && path.exists() && second.path() != path);
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn too_much_for_memory_goes_to_the_disk() {
        assert_eq!(parent(u64::MAX), std::env::temp_dir());
    }
}
