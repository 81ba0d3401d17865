//! A folder for files that other users must neither read nor redirect: the journal and the lock.
//!
//! Root's folder is `/var/lib/apus/tune`. A user who is not root but may change interface settings with CAP_NET_ADMIN
//! has a folder in `$XDG_STATE_HOME/apus/tune` (XDG Base Directory Specification: `~/.local/state`). Root and other
//! users do not see each other's transactions. If one of them changes a setting after the other, a rollback of the
//! earlier transaction keeps that change.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, openat2};

use crate::knob::{Access, Error};

/// A folder that belongs to the current user. Nobody else can write into it. Opening it follows no symbolic links. Its
/// files have mode 0600.
#[derive(Debug)]
pub struct Vault {
    folder: OwnedFd,
    path: String,
    access: Access,
}

/// The parent folder, which belongs to the system, and Apus's own folders below it.
const SYSTEM: &str = "/var/lib";
const OWN: [&str; 2] = ["apus", "tune"];

/// Resolution of paths without links and without `..`.
const STRICT: ResolveFlags = ResolveFlags::NO_SYMLINKS.union(ResolveFlags::BENEATH).union(ResolveFlags::NO_MAGICLINKS);

impl Vault {
    /// Opens the folder. Creates it if it does not exist.
    pub fn create(access: &Access) -> Result<Self, Error> {
        let parent = match is_users(access) {
            true => home(std::env::var_os("XDG_STATE_HOME"), std::env::var_os("HOME"))?,
            false => SYSTEM.to_owned(),
        };
        Self::reach(access, &parent, true).and_then(|vault| vault.ok_or_else(|| nowhere(access, &parent)))
    }

    /// Opens the folder. `None` if it does not exist. A user without a folder of their own falls back to root's; if
    /// root's exists, this is an error.
    pub fn open(access: &Access) -> Result<Option<Self>, Error> {
        if is_users(access)
            && let Ok(parent) = home(std::env::var_os("XDG_STATE_HOME"), std::env::var_os("HOME"))
            && let Some(vault) = Self::reach(access, &parent, false)?
        {
            return Ok(Some(vault));
        }
        Self::reach(access, SYSTEM, false)
    }

    fn reach(access: &Access, parent: &str, make: bool) -> Result<Option<Self>, Error> {
        let mut path = parent.to_owned();
        let what = |path: &str| format!("open the folder {}", access.show(path));
        if make && (!access.is_live() || parent != SYSTEM) {
            parents(access, parent)?;
        }
        let mut folder: OwnedFd = match access.open(parent, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()) {
            Ok(folder) => folder.into(),
            Err(e) if e.kind() == io::ErrorKind::NotFound && !make => return Ok(None),
            Err(e) => return Err(Error::of(what(&path), &e)),
        };
        for name in OWN {
            path = format!("{path}/{name}");
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let open = || openat2(&folder, name, flags, Mode::empty(), STRICT);
            let next = match open() {
                Err(rustix::io::Errno::NOENT) if make => {
                    let mkdir = || match rustix::fs::mkdirat(&folder, name, Mode::RWXU) {
                        Err(rustix::io::Errno::EXIST) => Ok(()),
                        other => other,
                    };
                    access.act("mkdir", access.show(&path), mkdir).map_err(|e| Error::of(what(&path), &e.into()))?;
                    // Syncs the parent folder too. Otherwise a crash could lose the new folder with its files.
                    let parent = rustix::fs::openat(&folder, ".", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
                    let sync = parent
                        .and_then(|parent| access.act("fsync", access.show(&path), || rustix::fs::fsync(&parent)));
                    sync.map_err(|e| Error::of(what(&path), &e.into()))?;
                    open()
                }
                Err(rustix::io::Errno::NOENT) => return Ok(None),
                other => other,
            };
            folder = next.map_err(|e| refused(what(&path), e))?;
            check(access, &path, &folder)?;
        }
        Ok(Some(Self { folder, path, access: access.clone() }))
    }

    /// The path of a file in the folder, for messages.
    pub fn show(&self, name: &str) -> String {
        self.access.show(&format!("{}/{name}", self.path))
    }

    /// The names of the files in the folder, sorted.
    pub fn names(&self) -> Result<Vec<String>, Error> {
        Ok(self.access.list(&self.path)?.unwrap_or_default())
    }

    /// Opens a file in the folder. `None` if it does not exist.
    pub fn file(&self, name: &str, flags: OFlags) -> Result<Option<File>, Error> {
        let what = || format!("open {}", self.show(name));
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        match openat2(&self.folder, name, flags, Mode::empty(), STRICT) {
            Ok(fd) => {
                let file = File::from(fd);
                let stat = rustix::fs::fstat(&file).map_err(|e| Error::of(what(), &e.into()))?;
                if rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::RegularFile {
                    return Err(Error::System { what: what(), why: "it is not a regular file".into() });
                }
                ours_alone(what, &stat)?;
                Ok(Some(file))
            }
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(e) => Err(refused(what(), e)),
        }
    }

    /// Creates a new file with mode 0600.
    pub fn make(&self, name: &str) -> Result<File, Error> {
        let what = || format!("make {}", self.show(name));
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let make = || openat2(&self.folder, name, flags, Mode::RUSR | Mode::WUSR, STRICT);
        self.access.act("create", self.show(name), make).map(File::from).map_err(|e| refused(what(), e))
    }

    /// Opens a file. Creates it if it does not exist.
    pub fn ensure(&self, name: &str) -> Result<File, Error> {
        match self.file(name, OFlags::RDWR)? {
            Some(file) => Ok(file),
            None => match self.make(name) {
                // Another process has just created the file.
                Err(error) => self.file(name, OFlags::RDWR)?.ok_or(error),
                made => made,
            },
        }
    }

    /// Removes a file. It is no error if the file does not exist.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        let remove = || match rustix::fs::unlinkat(&self.folder, name, AtFlags::empty()) {
            Err(rustix::io::Errno::NOENT) => Ok(()),
            other => other,
        };
        let removed = self.access.act("unlink", self.show(name), remove);
        removed.map_err(|e| Error::of(format!("remove {}", self.show(name)), &e.into()))
    }

    /// Makes the creation and removal of files durable: syncs the folder to disk.
    pub fn sync(&self) -> Result<(), Error> {
        let synced = self.access.act("fsync", self.access.show(&self.path), || rustix::fs::fsync(&self.folder));
        synced.map_err(|e| Error::of(format!("write {} to disk", self.access.show(&self.path)), &e.into()))
    }

    /// The machine to which the folder belongs.
    pub fn access(&self) -> &Access {
        &self.access
    }
}

/// Whether the journal belongs to a user other than root.
fn is_users(access: &Access) -> bool {
    access.is_live() && !rustix::process::geteuid().is_root()
}

/// The folder for a user's program state, from `$XDG_STATE_HOME` and `$HOME`. A relative path is ignored (XDG Base
/// Directory Specification, "Basics").
fn home(state: Option<OsString>, home: Option<OsString>) -> Result<String, Error> {
    let absolute =
        |path: Option<OsString>| path.and_then(|path| path.into_string().ok()).filter(|path| path.starts_with('/'));
    let trimmed = |path: String| path.trim_end_matches('/').to_owned();
    absolute(state).map(trimmed).or_else(|| absolute(home).map(|home| trimmed(home) + "/.local/state")).ok_or_else(
        || Error::NotPermitted {
            what: "keep a journal of changes".into(),
            why: format!(
                "{SYSTEM}/apus belongs to root, and neither XDG_STATE_HOME nor HOME names a folder of this user"
            ),
            fix: "run as root, or set XDG_STATE_HOME".into(),
        },
    )
}

/// Creates missing parent folders. The system's folders can be missing below a root that is not the running machine's;
/// a user's folders can be missing at first use.
fn parents(access: &Access, parent: &str) -> Result<(), Error> {
    let mut path = String::new();
    let mode = Mode::from_raw_mode(if parent == SYSTEM { 0o755 } else { 0o700 });
    for name in parent.split('/').filter(|name| !name.is_empty()) {
        let what = |path: &str| format!("make the folder {}", access.show(path));
        let folder = access
            .open(&path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())
            .map_err(|e| Error::of(what(&path), &e))?;
        path = format!("{path}/{name}");
        if access.exists(&path) {
            continue;
        }
        access
            .act("mkdir", access.show(&path), || rustix::fs::mkdirat(&folder, name, mode))
            .map_err(|e| Error::of(what(&path), &e.into()))?;
    }
    Ok(())
}

/// Returns an error for a folder that other users could have prepared or could change.
fn check(access: &Access, path: &str, folder: &OwnedFd) -> Result<(), Error> {
    let what = || format!("use the folder {}", access.show(path));
    let stat = rustix::fs::fstat(folder).map_err(|e| Error::of(what(), &e.into()))?;
    ours_alone(what, &stat)
}

/// Returns an error if another user owns the object or may write to it.
fn ours_alone(what: impl Fn() -> String, stat: &rustix::fs::Stat) -> Result<(), Error> {
    let me = rustix::process::geteuid().as_raw();
    if stat.st_uid != me {
        let why = format!("it belongs to user {}, but this process runs as user {me}", stat.st_uid);
        return Err(Error::NotPermitted {
            what: what(),
            why,
            fix: "run as root, or remove it if Apus did not create it".into(),
        });
    }
    if stat.st_mode & 0o022 != 0 {
        return Err(Error::NotPermitted {
            what: what(),
            why: format!("other users can write to it (mode {:o})", stat.st_mode & 0o7777),
            fix: "check what it contains, then chmod 700".into(),
        });
    }
    Ok(())
}

fn refused(what: String, error: rustix::io::Errno) -> Error {
    match error {
        rustix::io::Errno::LOOP => Error::NotPermitted {
            what,
            why: "a symbolic link is in the way".into(),
            fix: "remove the link; Apus did not create it".into(),
        },
        other => Error::of(what, &other.into()),
    }
}

fn nowhere(access: &Access, parent: &str) -> Error {
    Error::NotThere { what: format!("open {}", access.show(parent)), why: "the folder disappeared".into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Folder;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    #[test]
    fn it_is_ours_alone() {
        let folder = Folder::new(&[]);
        assert!(Vault::open(&folder.access()).unwrap().is_none());
        let vault = Vault::create(&folder.access()).unwrap();
        vault.make("a").unwrap();
        let mode = |path: &str| folder.path(path).metadata().unwrap().mode() & 0o777;
        assert_eq!(
            (mode("var/lib/apus"), mode("var/lib/apus/tune"), mode("var/lib/apus/tune/a")),
            (0o700, 0o700, 0o600)
        );
        assert!(vault.make("a").is_err(), "there is one already");
        assert_eq!(Vault::open(&folder.access()).unwrap().unwrap().names().unwrap(), ["a"]);
        vault.remove("a").unwrap();
        vault.remove("a").unwrap();
    }

    #[test]
    fn a_user_has_one_of_his_own() {
        let of =
            |state: Option<&str>, user: Option<&str>| home(state.map(OsString::from), user.map(OsString::from)).ok();
        assert_eq!(of(Some("/s/"), Some("/home/joe")).as_deref(), Some("/s"));
        assert_eq!(of(Some("relative"), Some("/home/joe")).as_deref(), Some("/home/joe/.local/state"));
        assert_eq!((of(None, None), of(Some(""), Some("joe"))), (None, None));
        let folder = Folder::new(&[("home/joe/x", "")]);
        let vault = Vault::reach(&folder.access(), "/home/joe/.local/state", true).unwrap().unwrap();
        vault.make("a").unwrap();
        let mode = |path: &str| folder.path(path).metadata().unwrap().mode() & 0o777;
        assert_eq!((mode("home/joe/.local"), mode("home/joe/.local/state/apus/tune/a")), (0o700, 0o600));
        assert!(Vault::open(&folder.access()).unwrap().is_none(), "a recorded machine's is the system's");
    }

    #[test]
    fn files_of_others_are_refused() {
        let folder = Folder::new(&[]);
        let vault = Vault::create(&folder.access()).unwrap();
        vault.make("a").unwrap();
        let path = folder.path("var/lib/apus/tune/a");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        let error = vault.file("a", OFlags::RDONLY).unwrap_err();
        assert!(error.to_string().contains("other users can write"), "{error}");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(vault.file("a", OFlags::RDONLY).unwrap().is_some());
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
            assert!(vault.file("a", OFlags::RDONLY).unwrap_err().to_string().contains("belongs to user 65534"));
        }
    }

    #[test]
    fn links_in_the_way_are_refused() {
        let folder = Folder::new(&[("elsewhere/x", "secret"), ("var/lib/y", "")]);
        symlink(folder.path("elsewhere"), folder.path("var/lib/apus")).unwrap();
        let error = Vault::create(&folder.access()).unwrap_err();
        assert!(error.to_string().contains("symbolic link"), "{error}");
        std::fs::remove_file(folder.path("var/lib/apus")).unwrap();
        let vault = Vault::create(&folder.access()).unwrap();
        symlink(folder.path("elsewhere/x"), folder.path("var/lib/apus/tune/x")).unwrap();
        assert!(vault.file("x", OFlags::RDWR).is_err() && vault.ensure("x").is_err());
        assert_eq!(folder.read("elsewhere/x"), "secret");
    }

    #[test]
    fn folders_that_others_write_to_are_refused() {
        let folder = Folder::new(&[("var/lib/apus/tune/x", "")]);
        let set = |mode| {
            std::fs::set_permissions(folder.path("var/lib/apus"), std::fs::Permissions::from_mode(mode)).unwrap()
        };
        set(0o777);
        let error = Vault::open(&folder.access()).unwrap_err();
        assert!(error.to_string().contains("other users can write"), "{error}");
        set(0o700);
        assert!(Vault::open(&folder.access()).unwrap().is_some());
        std::fs::remove_file(folder.path("var/lib/apus/tune/x")).unwrap();
        std::fs::create_dir(folder.path("var/lib/apus/tune/x")).unwrap();
        let vault = Vault::open(&folder.access()).unwrap().unwrap();
        assert!(vault.file("x", OFlags::RDONLY).is_err(), "a folder is no file");
    }
}
