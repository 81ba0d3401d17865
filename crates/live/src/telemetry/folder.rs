//! The folders with the telemetry files: who owns them, and how they are opened safely.
//!
//! ```text
//!   /dev/shm/apus          root's          /dev/shm/apus-1000     that of user 1000
//!     <instance>/worker-<n>   the files      .lock                 held while a worker starts or ends
//! ```
//! A writer uses a folder only if it owns the folder and nobody else can write there. Anyone can put anything into
//! /dev/shm. Therefore a writer follows no symbolic links, enters no mount points, and opens files so that nothing
//! (such as a FIFO) can block it. The crate `host` uses the same rules for its journal, but has its own root folder and
//! its own code: the two share only the system calls.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;

use super::ROOT;

/// An open folder in which running processes publish files, for example telemetry.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    path: PathBuf,
    owner: u32,
    mode: u32,
}

/// The file that [`Folder::lock`] locks.
pub(super) const LOCK: &str = ".lock";
/// Mode of the folders that this module creates: others can read what the owner publishes. It is set once more after
/// the creation, because a umask such as 077 removes the rights of others.
const READABLE: Mode = Mode::from_raw_mode(0o755);
const STRICT: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);
const AS_FOLDER: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

/// The folder to which the calling user's workers write: `root` itself, unless `root` is [`ROOT`]. In [`ROOT`], only
/// the user root writes; each other user has a separate folder, for example `/dev/shm/apus-1000`.
pub fn own(root: &Path) -> PathBuf {
    match me() {
        user if root == Path::new(ROOT) && user != 0 => PathBuf::from(format!("{ROOT}-{user}")),
        _ => root.to_owned(),
    }
}

/// Maximum number of entries of /dev/shm that are read to find the folders of users other than root and the caller.
/// Anyone can create entries there.
const MOST_ENTRIES: usize = 1 << 16;

/// The folders that a reader searches.
#[derive(Debug, Default)]
pub(super) struct Folders {
    /// First the folder of the user root, then the calling user's, then those of other users.
    pub open: Vec<Folder>,
    /// The folders that the calling user may not read, and why.
    pub unread: Vec<(PathBuf, io::Error)>,
}

/// Opens the folders that a reader searches: `root`, or the folders of all users if it is [`ROOT`].
pub(super) fn all(root: &Path) -> io::Result<Folders> {
    let mut folders = Folders::default();
    if root != Path::new(ROOT) {
        folders.open.extend(Folder::open(root)?);
        return Ok(folders);
    }
    let (parent, name) = (root.parent().unwrap_or(root), root.file_name().and_then(OsStr::to_str).unwrap_or_default());
    let user = |found: &str| match found.strip_prefix(name)? {
        "" => Some(0),
        number => number.strip_prefix('-')?.parse::<u32>().ok().filter(|user| format!("-{user}") == number),
    };
    let names = match Folder::open(parent)? {
        Some(parent) => parent.names_at_most(MOST_ENTRIES)?.0,
        None => Vec::new(),
    };
    let mut users: Vec<(u32, String)> = names.into_iter().filter_map(|name| Some((user(&name)?, name))).collect();
    // These two are found among any number of entries.
    users.extend([(0, name.to_owned()), (me(), format!("{name}-{}", me()))]);
    users.sort_by_cached_key(|(user, name)| (*user != 0, *user != me(), *user, name.clone()));
    users.dedup();
    for (user, name) in users {
        let path = parent.join(name);
        match Folder::open(&path) {
            // Skips a folder that the user in its name does not own.
            Ok(folder) => folders.open.extend(folder.filter(|folder| folder.owner == user)),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => folders.unread.push((path, e)),
            // A symbolic link, for example.
            Err(_) => {}
        }
    }
    Ok(folders)
}

impl Folder {
    /// Opens a folder for reading. `None` if there is no folder at `path`.
    pub fn open(path: &Path) -> io::Result<Option<Self>> {
        // Removes a slash at the end: with the slash, `open` would follow a symbolic link.
        let path: PathBuf = path.components().collect();
        match rustix::fs::open(&path, AS_FOLDER, Mode::empty()) {
            Ok(fd) => Self::of(fd, path).map(Some),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Opens the calling user's folder to write to it. Creates the folder if it does not exist.
    pub fn create(path: &Path) -> io::Result<Self> {
        make(path)?;
        match Self::open(path)?.map(Self::checked) {
            Some(Ok(folder)) => Ok(folder),
            // Anyone can create this name in /dev/shm, and another user did. The name belongs to root: move the other
            // folder aside.
            Some(Err(_)) | None if path == Path::new(ROOT) && me() == 0 => {
                set_aside(path)?;
                Self::open(path)?.ok_or(io::ErrorKind::NotFound)?.checked()
            }
            Some(refused) => refused,
            None => Err(io::Error::new(io::ErrorKind::NotADirectory, "it is not a folder, or it is a symbolic link")),
        }
    }

    fn of(fd: OwnedFd, path: PathBuf) -> io::Result<Self> {
        let stat = rustix::fs::fstat(&fd)?;
        Ok(Self { fd, path, owner: stat.st_uid, mode: stat.st_mode })
    }

    /// Fails unless the calling user owns the folder and nobody else can write to it.
    fn checked(self) -> io::Result<Self> {
        let refuse = |why: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        match self.owner {
            owner if owner != me() => refuse(format!(
                "{} belongs to user {owner}, but this process runs as user {}",
                self.path.display(),
                me()
            )),
            _ if self.mode & 0o022 != 0 => {
                refuse(format!("other users can write to {} (mode {:o})", self.path.display(), self.mode & 0o7777))
            }
            _ => Ok(self),
        }
    }

    /// Fails unless root or the calling user owns the folder and nobody else can write to it. Call this before trusting
    /// what the files in the folder say.
    pub fn believable(self) -> io::Result<Self> {
        match self.owner == 0 {
            true if self.mode & 0o022 == 0 => Ok(self),
            _ => self.checked(),
        }
    }

    /// Opens a subfolder with the same owner. `None` if it does not exist.
    pub(super) fn inner(&self, name: &str) -> io::Result<Option<Self>> {
        match rustix::fs::openat2(&self.fd, name, AS_FOLDER, Mode::empty(), STRICT) {
            Ok(fd) => Ok(Some(Self::of(fd, self.path.join(name))?).filter(|folder| folder.owner == self.owner)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Opens a subfolder to write to it. Creates the subfolder if it does not exist.
    pub(super) fn create_inner(&self, name: &str) -> io::Result<Self> {
        let is_new = match rustix::fs::mkdirat(&self.fd, name, READABLE) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(e) => return Err(e.into()),
        };
        let in_the_way = || io::Error::new(io::ErrorKind::PermissionDenied, "something else has this name: remove it");
        match self.inner(name) {
            Ok(Some(folder)) => {
                let folder = folder.checked()?;
                if is_new {
                    rustix::fs::fchmod(&folder.fd, READABLE)?;
                }
                Ok(folder)
            }
            Ok(None) => Err(in_the_way()),
            Err(e) if e.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => Err(in_the_way()),
            Err(e) => Err(e),
        }
    }

    /// Opens a regular file in the folder for reading.
    pub fn file(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        Ok(rustix::fs::openat2(&self.fd, name, flags, Mode::empty(), STRICT)?.into())
    }

    /// Creates a new file that its creator can write and everyone can read, whatever the umask is.
    pub fn make(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o644);
        let file = rustix::fs::openat2(&self.fd, name, flags, mode, STRICT)?;
        rustix::fs::fchmod(&file, mode)?;
        Ok(file.into())
    }

    /// Renames a file within this folder.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.fd, from, &self.fd, to)?)
    }

    /// Removes a file. Succeeds if the file does not exist.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        missing_is_fine(rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()))
    }

    /// Removes a subfolder if it is empty.
    pub(super) fn remove_empty(&self, name: &str) {
        let _ = rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR);
    }

    /// The sorted names of the entries in the folder, except names that begin with a dot.
    pub fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.names_at_most(usize::MAX)?.0)
    }

    /// The same, but reads at most `most` entries, in the order of the file system. Also returns whether
    /// there are more.
    pub fn names_at_most(&self, most: usize) -> io::Result<(Vec<String>, bool)> {
        let mut names = Vec::new();
        // The kernel lists the folder itself and its parent too.
        let is_itself = |entry: &rustix::fs::DirEntry| matches!(entry.file_name().to_bytes(), b"." | b"..");
        let mut entries = Dir::read_from(self.fd.as_fd())?.filter(|entry| !entry.as_ref().is_ok_and(is_itself));
        for entry in entries.by_ref().take(most) {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if !name.starts_with('.') {
                names.push(name);
            }
        }
        names.sort();
        Ok((names, entries.next().is_some()))
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// ID of the user who owns the folder.
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// Takes the lock that prevents other workers of this user from starting or ending. Only this user can open the lock
    /// file. Fails if another process of this user holds the lock for longer than `patience`.
    pub(super) fn lock(&self, patience: Duration) -> io::Result<Lock> {
        /// Time between two attempts. Other workers hold the lock for a few microseconds.
        const PAUSE: Duration = Duration::from_millis(5);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = File::from(rustix::fs::openat2(&self.fd, LOCK, flags, Mode::RUSR | Mode::WUSR, STRICT)?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{LOCK} is not a file: remove it")));
        }
        let end = Instant::now() + patience;
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Lock(file)),
                Err(Errno::WOULDBLOCK) if Instant::now() < end => std::thread::sleep(PAUSE),
                Err(Errno::WOULDBLOCK) => {
                    let why = format!(
                        "another process of this user has held {} for {patience:?}",
                        self.path.join(LOCK).display()
                    );
                    return Err(io::Error::new(io::ErrorKind::TimedOut, why));
                }
                Err(e) => return Err(e.into()),
            }
        }
    }
}

/// The lock of [`Folder::lock`], released on drop. Closing the file would not be enough: a child process that another
/// thread forked meanwhile has inherited it, and would hold the lock until its end (flock(2)).
#[derive(Debug)]
pub(super) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

/// ID of this process's effective user.
pub(super) fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Creates a folder and its missing parents, which everyone can read and only the calling user can write. Folders that
/// exist keep their modes.
fn make(path: &Path) -> io::Result<()> {
    let create = || DirBuilder::new().mode(READABLE.as_raw_mode()).create(path);
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let made = match (create(), parent) {
        (Err(e), Some(parent)) if e.kind() == io::ErrorKind::NotFound => {
            make(parent)?;
            create()
        }
        (made, _) => made,
    };
    match made {
        Ok(()) => make_readable(path),
        // There may be a link or a file instead of a folder: opening it then fails.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(e) => Err(e),
    }
}

/// Lets everyone read a folder that the calling user has just created.
fn make_readable(path: &Path) -> io::Result<()> {
    let folder = rustix::fs::open(path, AS_FOLDER, Mode::empty())?;
    Ok(rustix::fs::fchmod(&folder, READABLE)?)
}

/// Atomically replaces whatever is at `path` with a new, empty folder. The old entry is kept under another name.
fn set_aside(path: &Path) -> io::Result<()> {
    /// Number of random names to try. There are 2^64 names, so a name is hardly ever in use already.
    const TRIES: u32 = 8;
    let mut tries = 0;
    let aside = loop {
        // `RandomState` is seeded by getrandom(2), so nobody can predict the name and create it first.
        let chance = RandomState::new().hash_one(tries);
        let aside = path.with_extension(format!("set-aside-{chance:016x}"));
        tries += 1;
        match DirBuilder::new().mode(READABLE.as_raw_mode()).create(&aside) {
            Ok(()) => {
                make_readable(&aside)?;
                break aside;
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && tries < TRIES => {}
            Err(e) => return Err(e),
        }
    };
    let here = rustix::fs::CWD;
    let exchanged = rustix::fs::renameat_with(here, path, here, &aside, RenameFlags::EXCHANGE);
    if exchanged.is_err() {
        // The new folder was not exchanged, so it is still empty and unused: remove it.
        let _ = std::fs::remove_dir(&aside);
    }
    Ok(exchanged?)
}

fn missing_is_fine(result: Result<(), Errno>) -> io::Result<()> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        other => Ok(other?),
    }
}

/// Opens a file for reading. Does not follow a symbolic link in the last component of the path, and does not block on a
/// FIFO.
pub(super) fn open_file(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Root, identity};
    use super::super::{Reader, Telemetry, instances};
    use super::*;
    use rustix::fs::{CWD, FileType, mknodat};
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    fn fifo(path: &Path) {
        mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
    }

    /// Regression test: opening any of these FIFOs once blocked forever, waiting for a writer.
    #[test]
    fn fifos_hang_nobody() {
        let root = Root::new("fifo");
        fs::create_dir_all(root.0.join("b")).unwrap();
        fifo(&root.0.join("b/worker-0"));
        fifo(&root.0.join("worker-1"));
        fifo(&root.0.join("c"));
        let (living, leftovers) = instances(&root.0).unwrap();
        assert!(living.is_empty() && leftovers.len() == 1 && leftovers[0].why.contains("not a file"), "{leftovers:?}");
        assert!(Reader::open(&root.0.join("b/worker-0")).is_err());
        // A new worker removes a FIFO that has the name of its file.
        drop(Telemetry::create(&root.0, &identity("b", 0)).unwrap());
        fifo(&root.0.join("d"));
        assert!(Telemetry::create(&root.0, &identity("d", 0)).unwrap_err().to_string().contains("has this name"));
        fs::remove_file(root.0.join(".lock")).unwrap();
        fifo(&root.0.join(".lock"));
        assert!(Telemetry::create(&root.0, &identity("e", 0)).unwrap_err().to_string().contains("remove it"));
    }

    /// Regression test: root once followed the link and removed `elsewhere/worker-0`.
    #[test]
    fn links_lead_nowhere() {
        let root = Root::new("links");
        let elsewhere = Root::new("links-elsewhere");
        let dead = Telemetry::create(&elsewhere.0, &identity("x", 0)).unwrap();
        let precious = elsewhere.0.join("worker-0");
        fs::copy(dead.path(), &precious).unwrap();
        symlink(&elsewhere.0, root.0.join("a")).unwrap();
        let error = Telemetry::create(&root.0, &identity("a", 0)).unwrap_err();
        assert!(error.to_string().contains("has this name"), "{error}");
        assert!(precious.exists());
        assert!(instances(&root.0).unwrap().0.is_empty());
        // If the file is a link, only the link is removed.
        fs::create_dir(root.0.join("b")).unwrap();
        symlink(&precious, root.0.join("b/worker-0")).unwrap();
        drop(Telemetry::create(&root.0, &identity("b", 0)).unwrap());
        assert!(precious.exists());
        let linked = elsewhere.0.join("linked");
        symlink(&root.0, &linked).unwrap();
        assert!(Telemetry::create(&linked, &identity("c", 0)).is_err());
        assert!(Telemetry::create(&linked.join(""), &identity("c", 0)).is_err(), "behind a slash");
    }

    /// Regression test: with `flock /dev/shm/apus sleep 1000`, any user could once prevent workers from starting and
    /// ending.
    #[test]
    fn a_lock_on_the_folder_blocks_nobody() {
        let root = Root::new("flock");
        let directory = fs::File::open(&root.0).unwrap();
        rustix::fs::flock(&directory, FlockOperation::LockExclusive).unwrap();
        drop(Telemetry::create(&root.0, &identity("a", 0)).unwrap());
        let lock = root.0.join(LOCK).metadata().unwrap();
        assert_eq!(lock.mode() & 0o777, 0o600, "nobody else can open what is locked");
    }

    #[test]
    fn a_lock_that_is_held_is_an_error_in_time() {
        let root = Root::new("held");
        let folder = Folder::create(&root.0).unwrap();
        let held = folder.lock(Duration::ZERO).unwrap();
        let error = folder.lock(Duration::from_millis(20)).unwrap_err();
        assert!(error.kind() == io::ErrorKind::TimedOut && error.to_string().contains(".lock"), "{error}");
        drop(held);
        folder.lock(Duration::ZERO).unwrap();
    }

    /// Regression test: a child that was forked while the lock was held kept it.
    #[test]
    fn a_lock_that_a_child_inherited_is_released() {
        let root = Root::new("inherited");
        let folder = Folder::create(&root.0).unwrap();
        let held = folder.lock(Duration::ZERO).unwrap();
        // Like a descriptor that fork(2) copies.
        let inherited = held.0.try_clone().unwrap();
        drop(held);
        folder.lock(Duration::ZERO).unwrap();
        drop(inherited);
    }

    #[test]
    fn folders_that_others_write_to_are_refused() {
        let root = Root::new("others");
        fs::set_permissions(&root.0, fs::Permissions::from_mode(0o777)).unwrap();
        let error = Telemetry::create(&root.0, &identity("a", 0)).unwrap_err();
        assert!(error.to_string().contains("other users can write") && error.lacks(), "{error}");
        fs::set_permissions(&root.0, fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(root.0.join("a")).unwrap();
        fs::set_permissions(root.0.join("a"), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(Telemetry::create(&root.0, &identity("a", 0)).is_err());
    }

    /// Root does not write to another user's folder. It reads another user's files without trusting them.
    #[test]
    fn another_users_folder() {
        if me() != 0 {
            testkit::skip("root, who can make folders of another user");
            return;
        }
        let root = Root::new("another");
        let worker = Telemetry::create(&root.0, &identity("a", 0)).unwrap();
        let theirs = Root::new("another-theirs");
        fs::create_dir(theirs.0.join("a")).unwrap();
        let file = theirs.0.join("a/worker-0");
        fs::copy(worker.path(), &file).unwrap();
        for path in [&theirs.0, &theirs.0.join("a"), &file] {
            std::os::unix::fs::chown(path, Some(65_534), None).unwrap();
        }
        let error = Telemetry::create(&theirs.0, &identity("b", 0)).unwrap_err();
        assert!(error.to_string().contains("belongs to user 65534"), "{error}");
        let reader = Reader::open(&file).unwrap();
        assert_eq!(reader.snapshot().identity, identity("a", 0));
        // The file names a process that does not belong to the file's owner.
        assert!(!reader.is_alive());
        // The owner truncates the file. A reader that had mapped it would be killed by SIGBUS.
        fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(100).unwrap();
        assert_eq!(reader.snapshot().counts.polls, 0);
    }

    /// Missing parents are created too; a link that leads nowhere is none, and must not be tried again and again.
    #[test]
    fn parents_are_made_readable_and_a_dangling_link_is_an_error() {
        let root = Root::new("parents");
        let folder = Folder::create(&root.0.join("a/b/c")).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
        assert_eq!([mode(folder.path()), mode(&root.0.join("a/b")), mode(&root.0.join("a"))], [0o755; 3]);
        symlink(root.0.join("nowhere"), root.0.join("link")).unwrap();
        let error = Folder::create(&root.0.join("link/d")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
    }

    #[test]
    fn each_user_has_a_folder_of_his_own() {
        let default = Path::new(ROOT);
        match me() {
            0 => assert_eq!(own(default), default),
            user => assert_eq!(own(default), PathBuf::from(format!("/dev/shm/apus-{user}"))),
        }
        assert_eq!(own(Path::new("/x")), Path::new("/x"));
    }

    #[test]
    fn what_stood_there_is_set_aside() {
        let root = Root::new("aside");
        let path = root.0.join("apus");
        fs::write(&path, "theirs").unwrap();
        set_aside(&path).unwrap();
        assert!(path.is_dir());
        let names = Folder::open(&root.0).unwrap().unwrap().names().unwrap();
        assert_eq!(names.len(), 2);
        assert_eq!(fs::read_to_string(root.0.join(&names[1])).unwrap(), "theirs");
        let error = set_aside(&root.0.join("nothing")).unwrap_err();
        assert_eq!((error.kind(), fs::read_dir(&root.0).unwrap().count()), (io::ErrorKind::NotFound, 2));
    }

    /// Regression test: the new name was once predictable. If another user created it first, root's worker did not
    /// start.
    #[test]
    fn the_name_to_set_aside_cannot_be_taken_first() {
        let root = Root::new("aside-taken");
        let path = root.0.join("apus");
        let aside = |names: Vec<String>| names.into_iter().find(|name| name.starts_with("apus.set-aside-")).unwrap();
        let names = || Folder::open(&root.0).unwrap().unwrap().names().unwrap();
        fs::create_dir(root.0.join(format!("apus.set-aside-{}", std::process::id()))).unwrap();
        fs::write(&path, "theirs").unwrap();
        set_aside(&path).unwrap();
        fs::remove_dir(root.0.join(format!("apus.set-aside-{}", std::process::id()))).unwrap();
        let first = aside(names());
        fs::remove_file(root.0.join(&first)).unwrap();
        fs::remove_dir(&path).unwrap();
        fs::write(&path, "theirs").unwrap();
        set_aside(&path).unwrap();
        assert_ne!(aside(names()), first, "the next name is another");
    }
}
