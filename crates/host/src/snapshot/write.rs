//! The snapshot as an archive.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::Snapshot;

/// How an archive is packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packing {
    /// `.tar`.
    None,
    /// `.tar.gz`, `.tgz`.
    Gzip,
    /// `.tar.zst`.
    Zstd,
}

/// Why a snapshot was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The name says no packing.
    #[error("{}: name the file .tar, .tar.gz or .tar.zst", .0.display())]
    Name(PathBuf),
    /// The system refused.
    #[error("cannot write {}: {error}", path.display())]
    Write {
        /// Where to.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
}

impl Packing {
    /// By a file's name.
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
    /// Writes the archive, readable for its owner alone, packed as its name says. Gives its size in octets.
    pub fn write(&self, path: &Path) -> Result<u64, WriteError> {
        let packing = Packing::of(path)?;
        let failed = |error| WriteError::Write { path: path.into(), error };
        let packed = self.packed(packing).map_err(failed)?;
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path).map_err(failed)?;
        file.write_all(&packed).map_err(failed)?;
        Ok(packed.len() as u64)
    }

    /// The archive.
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

    /// The manifest first: who reads a stream knows at once what it is.
    fn tar(&self) -> io::Result<Vec<u8>> {
        let mut builder = tar::Builder::new(Vec::with_capacity(self.size() + self.files.len() * 1024));
        let (manifest, others): (Vec<_>, Vec<_>) = self.files().partition(|(path, _)| *path == "apus-snapshot");
        for (path, contents) in manifest.into_iter().chain(others) {
            let mut header = tar::Header::new_gnu();
            header.set_size(contents.len() as u64);
            header.set_mode(0o644);
            builder.append_data(&mut header, path, contents)?;
        }
        builder.into_inner()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
