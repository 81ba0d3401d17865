//! Replaces a file as a whole: whoever reads it, and a process that is killed meanwhile, finds the earlier contents or
//! the new ones, and never a part.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

/// Writes a file. Existing contents are replaced as a whole, as [`replace`] does, or else overwritten.
pub fn write(path: &Path, contents: &[u8]) -> io::Result<()> {
    match replace(path, contents)? {
        Some(_) => Ok(()),
        None => fs::write(path, contents),
    }
}

/// Writes the contents to a new file beside `path`, which then takes the place of the old one, with its name, owner and
/// permissions. Returns the new file.
///
/// Returns `None`, and changes nothing, if `path` can only be overwritten: it is not a regular file, it has several
/// names (hard links), it is a mount point, or this process can create no file with the same owner in its folder.
pub fn replace(path: &Path, contents: &[u8]) -> io::Result<Option<File>> {
    let (mut file, new, old) = match beside(path) {
        Ok(Some(made)) => made,
        // To overwrite the old contents would lose them, too.
        Err(error) if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => return Err(error),
        Ok(None) | Err(_) => return Ok(None),
    };
    let written = file.write_all(contents);
    if written.is_ok() && fs::rename(&new, old).is_ok() {
        return Ok(Some(file));
    }
    let _ = fs::remove_file(new);
    written.map(|()| None)
}

/// Creates an empty file beside `path` with the same owner and permissions. Returns it, its path, and the path of the
/// old file, to which `path` may be a link.
fn beside(path: &Path) -> io::Result<Option<(File, PathBuf, PathBuf)>> {
    let of = fs::metadata(path)?;
    let old = fs::canonicalize(path)?;
    let Some(name) = old.file_name().filter(|_| of.is_file() && of.nlink() == 1) else { return Ok(None) };
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}", std::process::id()));
    let new = old.with_file_name(hidden);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let prepared = match file.metadata()? {
        own if (own.uid(), own.gid()) == (of.uid(), of.gid()) => Ok(()),
        _ => fchown(&file, Some(of.uid()), Some(of.gid())),
    };
    let prepared = prepared.and_then(|()| file.set_permissions(Permissions::from_mode(of.mode() & 0o7777)));
    if let Err(error) = prepared {
        let _ = fs::remove_file(&new);
        return Err(error);
    }
    Ok(Some((file, new, old)))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole() {
        let folder = std::env::temp_dir().join(format!("apus-replace-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (file, link, other) = (folder.join("file"), folder.join("link"), folder.join("other"));
        write(&file, b"earlier").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        // Whoever has the earlier file open keeps all of it: a kill while the new one is written loses nothing.
        let mut reader = File::open(&file).unwrap();
        write(&link, b"new").unwrap();
        let mut seen = String::new();
        reader.read_to_string(&mut seen).unwrap();
        assert_eq!((seen.as_str(), fs::read(&file).unwrap()), ("earlier", b"new".to_vec()));
        assert!(link.is_symlink() && fs::metadata(&file).unwrap().mode() & 0o777 == 0o640);
        // Both names of a file keep its contents.
        fs::hard_link(&file, &other).unwrap();
        assert!(replace(&file, b"newer").unwrap().is_none());
        write(&file, b"newer").unwrap();
        assert_eq!(fs::read(&other).unwrap(), b"newer");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 3, "nothing else is left");
        for device in ["/dev/null", "/nonexistent/x"] {
            assert!(replace(Path::new(device), b"x").unwrap().is_none());
        }
        assert!(write(Path::new("/dev/full"), b"x").is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
