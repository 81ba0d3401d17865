//! Configuration files below /etc. Each file is replaced in one step, so that no reader sees a partial file.

use std::io::{self, Write as _};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid};

use super::{Access, Error};

/// Replaces or creates the file at `path` with the contents `text`. If `text` is `None`, removes the file.
pub(crate) fn replace(access: &Access, path: &str, text: Option<&str>) -> Result<(), Error> {
    replace_by(access, path, &draft(path), text, true)
}

/// Replaces a file by writing a new one under the temporary name `draft` and renaming it. If `durable` is true, the new
/// file is synced to disk first.
pub(super) fn replace_by(
    access: &Access,
    path: &str,
    draft: &str,
    text: Option<&str>,
    durable: bool,
) -> Result<(), Error> {
    let what = || format!("write {}", access.show(path));
    if text.is_some() && is_link(access, path) {
        return Err(Error::NotPermitted {
            what: what(),
            why: "it is a symbolic link, which would become a file".into(),
            fix: "put a file in its place, or make the change in the file that it leads to".into(),
        });
    }
    let (folder, name) = path.rsplit_once('/').unwrap_or(("/", path));
    let replace = || -> io::Result<()> {
        let folder = access.open(folder, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        match text {
            None => match access
                .act("unlink", access.show(path), || rustix::fs::unlinkat(&folder, name, AtFlags::empty()))
            {
                Err(rustix::io::Errno::NOENT) => {}
                other => other?,
            },
            Some(text) => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW;
                let mode = Mode::from_raw_mode(0o644);
                let mut file = access.act("create", access.show(draft), || access.open(draft, flags, mode))?;
                if let Ok(before) = access.open(path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty()) {
                    let stat = rustix::fs::fstat(&before)?;
                    access.act("chown", access.show(draft), || {
                        rustix::fs::fchown(&file, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)))
                    })?;
                    let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
                    access.act("chmod", access.show(draft), || rustix::fs::fchmod(&file, mode))?;
                }
                access.act("write", access.show(draft), || file.write_all(text.as_bytes()))?;
                if durable {
                    access.act("fsync", access.show(draft), || file.sync_all())?;
                }
                let (from, draft_name) = draft.rsplit_once('/').unwrap_or(("", draft));
                let from = access.open(from, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
                access.act("rename", access.show(path), || rustix::fs::renameat(&from, draft_name, &folder, name))?;
            }
        }
        if durable { access.act("fsync", access.show(path), || folder.sync_all()) } else { Ok(()) }
    };
    replace().map_err(|e| Error::of(what(), &e))
}

/// Whether there is a symbolic link at `path`.
fn is_link(access: &Access, path: &str) -> bool {
    let link = access.open(path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty());
    link.is_ok_and(|link| {
        rustix::fs::fstat(&link).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
    })
}

/// Removes the temporary file that a killed [`replace`] left behind.
pub(crate) fn settle(access: &Access, path: &str) -> Result<(), Error> {
    let draft = draft(path);
    if access.exists(&draft) { replace(access, &draft, None) } else { Ok(()) }
}

/// The temporary name under which a file is written before it replaces `path`. It does not match the shell pattern
/// `*.cfg`, so programs that read all such files ignore it.
fn draft(path: &str) -> String {
    format!("{path}.apus-new")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Folder;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    /// The mode of a link is 0777: a file with this mode would belong to everybody.
    #[test]
    fn a_link_is_not_replaced_by_a_file() {
        let folder = Folder::new(&[("etc/kept/a", "1\n")]);
        std::os::unix::fs::symlink("kept/a", folder.path("etc/a")).unwrap();
        let error = replace(&folder.access(), "/etc/a", Some("2\n")).unwrap_err().to_string();
        assert!(error.contains("symbolic link"), "{error}");
        assert!(folder.path("etc/a").is_symlink() && folder.read("etc/kept/a") == "1\n");
        assert!(!folder.path("etc/a.apus-new").exists());
        replace(&folder.access(), "/etc/a", None).unwrap();
        assert!(!folder.path("etc/a").is_symlink());
    }

    #[test]
    fn mode_is_kept_and_drafts_go() {
        let folder = Folder::new(&[("etc/a", "1\n"), ("etc/a.apus-new", "half")]);
        std::fs::set_permissions(folder.path("etc/a"), std::fs::Permissions::from_mode(0o640)).unwrap();
        let access = folder.access();
        replace(&access, "/etc/a", Some("22\n")).unwrap();
        assert_eq!(folder.read("etc/a"), "22\n");
        assert_eq!(folder.path("etc/a").metadata().unwrap().mode() & 0o777, 0o640);
        assert!(!folder.path("etc/a.apus-new").exists());
        folder.put("etc/a.apus-new", "half");
        settle(&access, "/etc/a").unwrap();
        assert!(!folder.path("etc/a.apus-new").exists());
        replace(&access, "/etc/a", None).unwrap();
        replace(&access, "/etc/a", None).unwrap();
        assert!(!folder.path("etc/a").exists());
    }
}
