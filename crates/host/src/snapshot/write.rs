//! Writes a snapshot as an archive.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::Snapshot;

/// The compression of an archive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packing {
    /// No compression, `.tar`.
    None,
    /// gzip, `.tar.gz` or `.tgz`.
    Gzip,
    /// Zstandard, `.tar.zst`.
    Zstd,
}

/// Why a snapshot was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The file name has no known ending.
    #[error("{}: the file name must end in .tar, .tar.gz or .tar.zst", .0.display())]
    Name(PathBuf),
    /// The system could not write the file.
    #[error("cannot write {}: {error}", path.display())]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

impl Packing {
    /// The compression that the ending of a file name implies. An error if the ending is unknown.
    pub fn of(path: &Path) -> Result<Self, WriteError> {
        let name = path.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
        let ends = |ends: &[&str]| ends.iter().any(|end| name.ends_with(end));
        match () {
            () if ends(&[".tar.zst", ".tzst"]) => Ok(Self::Zstd),
            () if ends(&[".tar.gz", ".tgz"]) => Ok(Self::Gzip),
            () if ends(&[".tar"]) => Ok(Self::None),
            () => Err(WriteError::Name(path.into())),
        }
    }
}

impl Snapshot {
    /// Writes the archive with the compression that the ending of `path` implies. Only the owner can read the file.
    /// Returns the file's size in bytes.
    pub fn write(&self, path: &Path) -> Result<u64, WriteError> {
        let packing = Packing::of(path)?;
        let failed = |error| WriteError::Write { path: path.into(), error };
        let packed = self.packed(packing).map_err(failed)?;
        write_private(path, &packed).map_err(failed)?;
        Ok(packed.len() as u64)
    }

    /// The archive as bytes.
    pub fn packed(&self, packing: Packing) -> io::Result<Vec<u8>> {
        let tar = self.tar()?;
        match packing {
            Packing::None => Ok(tar),
            Packing::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
                encoder.write_all(&tar)?;
                encoder.finish()
            }
            Packing::Zstd => {
                Ok(ruzstd::encoding::compress_to_vec(tar.as_slice(), ruzstd::encoding::CompressionLevel::Fastest))
            }
        }
    }

    /// Builds the tar archive. The manifest comes first, so that a reader of the stream recognises the format at once.
    fn tar(&self) -> io::Result<Vec<u8>> {
        let mut builder = tar::Builder::new(Vec::with_capacity(self.size() + self.files.len() * 1024));
        let (manifest, others): (Vec<_>, Vec<_>) = self.files().partition(|(path, _)| *path == "apus-snapshot");
        for (path, contents) in manifest.into_iter().chain(others) {
            let mut header = tar::Header::new_gnu();
            header.set_size(contents.len() as u64);
            header.set_mode(0o600);
            builder.append_data(&mut header, path, contents)?;
        }
        builder.into_inner()
    }
}

/// Writes a file that only its owner may read, and replaces an existing file of this name. The new file is complete
/// before it gets the name, and a process that has the old file open does not see it. If the name belongs to a link,
/// the link is replaced. A device or a pipe that the user named (`/dev/stdout`) is written to.
fn write_private(path: &Path, contents: &[u8]) -> io::Result<()> {
    let special = |meta: fs::Metadata| !meta.is_file() && !meta.is_dir();
    if fs::metadata(path).is_ok_and(special) {
        return OpenOptions::new().write(true).open(path)?.write_all(contents);
    }
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}", std::process::id()));
    let draft = PathBuf::from(draft);
    let open = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft);
    let mut file = match open() {
        // A leftover of a killed process with the same number.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(&draft)?;
            open()
        }
        opened => opened,
    }?;
    let written = file.write_all(contents).and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owner_reads_it_also_where_one_stood() {
        use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
        let folder = crate::testing::Folder::new(&[("host.tar", "old"), ("elsewhere", "x")]);
        let path = folder.path("host.tar");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let mut old = fs::File::open(&path).unwrap();
        let snapshot = Snapshot { files: [("a".to_owned(), b"1".to_vec())].into(), complete: true };
        snapshot.write(&path).unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        let mut read = String::new();
        io::Read::read_to_string(&mut old, &mut read).unwrap();
        assert_eq!(read, "old", "who had the old file open sees the new one");
        let octets = fs::read(&path).unwrap();
        let mut archive = tar::Archive::new(octets.as_slice());
        assert!(archive.entries().unwrap().all(|entry| entry.unwrap().header().mode().unwrap() == 0o600));
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(folder.path("elsewhere"), &path).unwrap();
        snapshot.write(&path).unwrap();
        assert_eq!(folder.read("elsewhere"), "x", "written through a link");
        assert_eq!(fs::read_dir(folder.path("")).unwrap().count(), 2, "a draft is left");
    }

    #[test]
    fn the_name_says_how_it_is_packed() {
        let of = |name: &str| Packing::of(Path::new(name)).ok();
        assert_eq!(
            (of("a.tar"), of("a.tgz"), of("a.tar.zst")),
            (Some(Packing::None), Some(Packing::Gzip), Some(Packing::Zstd))
        );
        assert_eq!((of("a.zip"), of("tar")), (None, None));
        assert!(Packing::of(Path::new("a.zip")).unwrap_err().to_string().contains(".tar.zst"));
    }
}
