//! The published state of running commands that control settings: one world-readable file per process.
//!
//! ```text
//!   apus moderate ────┐
//!   apus power serve ─┼─► Published ──► /run/apus/KIND/PID.json ──► all() ──► the command's status, top, metrics
//!   apus power steer ─┘
//! ```
//! Every second the instance writes a new file under another name and renames it, so that readers never see an
//! incomplete file. It removes the file when it ends. A killed instance leaves its file behind, and the next instance
//! removes it. The start time in the file distinguishes the process from a later one with the same PID. Readers trust
//! only files that nobody but the owner can write, in a folder that belongs to root or to themselves.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::marker::PhantomData;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use live::telemetry::{Folder, Process};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tester::clock::{MonotonicClock, TrialClock as _};
use units::{Instant, Monotonic, Nanos};

use crate::documents::top::Leftover;

/// Maximum size of a file in bytes: a few hundred bytes for each of thousands of queues, vCPUs or CPUs.
const LARGEST: u64 = 4 << 20;
/// Maximum number of files that are read in a folder: more than the running instances of any host.
const MOST: usize = 1024;
/// Time in ns after which an instance that publishes no new state is reported as silent. Instances normally publish
/// every second.
pub(super) const SILENT: u64 = 5_000_000_000;

/// A document that running instances of a command publish.
pub(super) trait State: Serialize + DeserializeOwned {
    /// The folder with one file per instance, as an absolute path.
    const FOLDER: &'static str;
    /// The commands that show the state, as in "apus top and apus metrics".
    const SHOWN_BY: &'static str;
}

/// The content of a file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents<D> {
    pid: u32,
    /// Start time of the process: field 22 of /proc/PID/stat, in clock ticks after boot (proc_pid_stat(5)).
    start_ticks: u64,
    /// Inode number of the network namespace.
    network_namespace: u64,
    /// Time of writing, by CLOCK_MONOTONIC.
    published_ns: u64,
    document: D,
}

/// Publishes the state of this process, and removes the file when dropped.
#[derive(Debug)]
pub(super) struct Published<D> {
    /// The file, or why it cannot be written.
    to: io::Result<To>,
    path: PathBuf,
    /// Whether the last attempt failed, so that a lasting failure is reported only once.
    has_failed: bool,
    of: PhantomData<fn(&D)>,
}

#[derive(Debug)]
struct To {
    folder: Folder,
    process: Process,
    network_namespace: u64,
}

/// A running instance, and what it published last.
#[derive(Debug)]
pub(super) struct Running<D> {
    pub(super) pid: u32,
    /// Inode number of the instance's network namespace. `None` if this process is in the same namespace.
    pub(super) network_namespace: Option<u64>,
    /// Time since the instance last published its state, in ns.
    pub(super) silent_ns: u64,
    pub(super) document: D,
}

impl<D: State> Published<D> {
    /// Prepares the file below `root`, and removes the files of killed instances. The first [`publish`](Self::publish)
    /// creates the file, and reports an error if the folder cannot be used.
    pub(super) fn below(root: &Path) -> Self {
        Self::at(&root.join(D::FOLDER.trim_start_matches('/')))
    }

    fn at(folder: &Path) -> Self {
        let path = folder.join(name(std::process::id()));
        let to = Folder::create(folder).and_then(|folder| {
            Ok(To { folder, process: Process::current()?, network_namespace: network_namespace()? })
        });
        if let Ok(to) = &to {
            remove_left_behind::<D>(&to.folder);
        }
        Self { to, path, has_failed: false, of: PhantomData }
    }

    /// Writes the file. If this fails, returns a message for the user, but only for the first of several failures in a
    /// row.
    pub(super) fn publish(&mut self, document: &D) -> Option<String> {
        let written = match &self.to {
            Ok(to) => to.write(document),
            Err(e) => Err(io::Error::new(e.kind(), e.to_string())),
        };
        let is_news = written.is_err() && !self.has_failed;
        self.has_failed = written.is_err();
        let error = written.err().filter(|_| is_news)?;
        let (path, shown_by) = (self.path.display(), D::SHOWN_BY);
        Some(format!("cannot write {path} ({error}), so {shown_by} do not show this instance"))
    }
}

impl To {
    fn write(&self, document: &impl Serialize) -> io::Result<()> {
        let name = name(self.process.pid);
        let unnamed = format!(".{name}");
        let contents = Contents {
            pid: self.process.pid,
            start_ticks: self.process.start_ticks,
            network_namespace: self.network_namespace,
            published_ns: MonotonicClock.now().as_nanos(),
            document,
        };
        let text = serde_json::to_vec(&contents).map_err(io::Error::other)?;
        // Removes the temporary file of an earlier process with our PID that was killed while it wrote.
        self.folder.remove(&unnamed)?;
        let written = self.folder.make(&unnamed).and_then(|mut file| file.write_all(&text));
        let named = written.and_then(|()| self.folder.rename(&unnamed, &name));
        if named.is_err() {
            // On a full disk, the next attempt may find room again.
            let _ = self.folder.remove(&unnamed);
        }
        named
    }
}

impl<D> Drop for Published<D> {
    fn drop(&mut self) {
        if let Ok(to) = &self.to {
            // If the file stays, readers see that its process has ended.
            let _ = to.folder.remove(&name(to.process.pid));
        }
    }
}

/// Reads the state of all running instances in a folder, sorted by PID. Also returns the files that belong to no
/// running instance.
pub(super) fn all<D: State>(folder: &Path) -> Result<(Vec<Running<D>>, Vec<Leftover>), live::Error> {
    let failed = |source: io::Error| live::Error::System { what: format!("read {}", folder.display()), source };
    let skipped = |why: String| (Vec::new(), vec![Leftover { path: folder.display().to_string(), why }]);
    let opened = match Folder::open(folder) {
        Ok(None) => return Ok((Vec::new(), Vec::new())),
        Ok(Some(opened)) => opened,
        // Other instances can be shown nevertheless.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            return Ok(skipped(format!("it may not be read ({e}), so its instances are missing here")));
        }
        Err(e) => return Err(failed(e)),
    };
    let opened = match opened.believable() {
        Ok(opened) => opened,
        Err(e) => return Ok(skipped(e.to_string())),
    };
    let here = network_namespace().ok();
    let (names, more) = opened.names_at_most(MOST).map_err(failed)?;
    let (mut found, mut leftovers) = (Vec::new(), Vec::new());
    if more {
        leftovers = skipped(format!("it has more than {MOST} files; the others are not read")).1;
    }
    for name in names {
        match read(&opened, &name) {
            Ok(contents) => found.push(running(contents, here)),
            // The instance has ended since the folder was listed.
            Err(Unread::Gone) => {}
            Err(why) => {
                leftovers.push(Leftover { path: folder.join(&name).display().to_string(), why: why.to_string() });
            }
        }
    }
    found.sort_by_key(|instance| instance.pid);
    Ok((found, leftovers))
}

fn running<D>(contents: Contents<D>, here: Option<u64>) -> Running<D> {
    let published: Instant<Monotonic> = Instant::from_nanos(contents.published_ns);
    Running {
        pid: contents.pid,
        network_namespace: Some(contents.network_namespace).filter(|namespace| Some(*namespace) != here),
        silent_ns: MonotonicClock.now().since(published).unwrap_or(Nanos::ZERO).as_nanos(),
        document: contents.document,
    }
}

/// Why a file is not the state of a running instance.
#[derive(Debug)]
enum Unread {
    /// The file no longer exists.
    Gone,
    /// The process has ended.
    Ended(u32),
    /// The file cannot be read, or is not trusted.
    Refused(String),
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("it is gone"),
            Self::Ended(pid) => write!(f, "process {pid} has ended"),
            Self::Refused(why) => f.write_str(why),
        }
    }
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Gone,
            _ => Self::Refused(error.to_string()),
        }
    }
}

/// Reads the file of a running process.
fn read<D: State>(folder: &Folder, file_name: &str) -> Result<Contents<D>, Unread> {
    let refused = |why: String| Err(Unread::Refused(why));
    let file = folder.file(file_name)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return refused("not a file".into());
    }
    if metadata.uid() != folder.owner() || metadata.mode() & 0o022 != 0 {
        return refused("another user owns it or can write to it".into());
    }
    let mut text = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut text)?;
    if text.len() as u64 > LARGEST {
        return refused(format!("larger than {} MiB", LARGEST >> 20));
    }
    let contents: Contents<D> = match serde_json::from_slice(&text) {
        Ok(contents) => contents,
        Err(e) => return refused(format!("damaged, or not written by this version of Apus ({e})")),
    };
    if file_name != name(contents.pid) {
        return refused(format!("it is that of process {}", contents.pid));
    }
    let process = Process { pid: contents.pid, start_ticks: contents.start_ticks };
    if process.is_alive() { Ok(contents) } else { Err(Unread::Ended(contents.pid)) }
}

/// Removes the files of ended processes. Other files that cannot be read stay; the command's `status` lists them for the
/// user.
fn remove_left_behind<D: State>(folder: &Folder) {
    for name in folder.names().unwrap_or_default() {
        if matches!(read::<D>(folder, &name), Err(Unread::Ended(_))) {
            // Another instance may have just removed the file.
            let _ = folder.remove(&name);
        }
    }
}

fn name(pid: u32) -> String {
    format!("{pid}.json")
}

/// Inode number of this process's network namespace, which identifies the namespace (namespaces(7)).
fn network_namespace() -> io::Result<u64> {
    Ok(std::fs::metadata("/proc/self/ns/net")?.ino())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
    #[serde(deny_unknown_fields)]
    struct Changes {
        changes: u64,
    }

    impl State for Changes {
        const FOLDER: &'static str = "/run/apus/changes";
        const SHOWN_BY: &'static str = "apus changes status and apus top";
    }

    /// The root folder of one test, removed on drop.
    struct Root(PathBuf);

    impl Root {
        fn new(test: &str) -> Self {
            let path = std::env::temp_dir().join(format!("apus-published-{}-{test}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }

        fn names(&self) -> Vec<String> {
            let names = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
            names.collect()
        }

        /// The message about the only file, which belongs to no running instance.
        fn refused(&self) -> String {
            let (found, leftovers) = all::<Changes>(&self.0).unwrap();
            assert!(found.is_empty() && leftovers.len() == 1, "{found:?} {leftovers:?}");
            leftovers[0].why.clone()
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// The file of this process, as it is written.
    fn contents() -> Contents<Changes> {
        let process = Process::current().unwrap();
        Contents {
            pid: process.pid,
            start_ticks: process.start_ticks,
            network_namespace: network_namespace().unwrap(),
            published_ns: MonotonicClock.now().as_nanos(),
            document: Changes { changes: 7 },
        }
    }

    fn put(root: &Root, name: &str, contents: &Contents<Changes>) {
        fs::write(root.0.join(name), serde_json::to_vec(contents).unwrap()).unwrap();
    }

    #[test]
    fn what_is_published_is_read_until_the_end() {
        let root = Root::new("round");
        let inner = Root(root.0.join("run/apus/changes"));
        let read = || all::<Changes>(&inner.0).unwrap();
        let mut published = Published::below(&root.0);
        assert!(read().0.is_empty(), "nothing is published yet");
        for changes in [7, 8] {
            assert_eq!(published.publish(&Changes { changes }), None);
            let (found, leftovers) = read();
            assert!(found.len() == 1 && leftovers.is_empty(), "{leftovers:?}");
            assert_eq!((found[0].pid, found[0].network_namespace), (std::process::id(), None));
            assert!(found[0].silent_ns < 60_000_000_000);
            assert_eq!(found[0].document, Changes { changes });
        }
        let metadata = fs::metadata(inner.0.join(name(std::process::id()))).unwrap();
        assert_eq!(metadata.mode() & 0o777, 0o644, "everyone can read it");
        assert_eq!(inner.names(), [name(std::process::id())], "no temporary file");
        drop(published);
        assert!(inner.names().is_empty());
        assert!(all::<Changes>(&root.0.join("nowhere")).unwrap().0.is_empty());
    }

    #[test]
    fn files_of_the_dead_are_ignored_and_removed_by_the_next() {
        let root = Root::new("dead");
        let mut published = Published::at(&root.0);
        // A running process has this number, but it is another process.
        let mut dead = contents();
        dead.start_ticks += 1;
        put(&root, &name(dead.pid), &dead);
        assert!(root.refused().ends_with("has ended"), "{}", root.refused());
        // No process has this number: it is above the kernel's limit of 2^22 (proc_sys_kernel(5), pid_max).
        dead.pid = (1 << 22) + 1;
        put(&root, &name(dead.pid), &dead);
        fs::write(root.0.join(format!(".{}", name(std::process::id()))), "half").unwrap();
        drop(Published::<Changes>::at(&root.0));
        assert!(root.names().iter().all(|name| name.starts_with('.')), "{:?}", root.names());
        assert_eq!(published.publish(&Changes { changes: 7 }), None);
        assert_eq!(root.names(), [name(std::process::id())], "what was half written is replaced");
    }

    #[test]
    fn what_is_not_to_be_believed_is_said() {
        let root = Root::new("doubt");
        fs::create_dir_all(&root.0).unwrap();
        let own = name(std::process::id());
        let path = root.0.join(&own);
        put(&root, "1.json", &contents());
        assert!(root.refused().contains("it is that of process"), "{}", root.refused());
        fs::remove_file(root.0.join("1.json")).unwrap();
        for text in ["", "{", "null", r#"{"pid":1}"#] {
            fs::write(&path, text).unwrap();
            assert!(root.refused().starts_with("damaged, or not written by"), "{text}: {}", root.refused());
        }
        fs::File::create(&path).unwrap().set_len(LARGEST + 1).unwrap();
        assert!(root.refused().contains("larger than 4 MiB"), "{}", root.refused());
        put(&root, &own, &contents());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(root.refused().contains("can write to it"), "{}", root.refused());
        fs::rename(&path, root.0.join(".precious")).unwrap();
        symlink(root.0.join(".precious"), &path).unwrap();
        assert!(!root.refused().is_empty(), "a link leads nowhere");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(root.refused(), "not a file");
        fs::remove_dir(&path).unwrap();
        fs::rename(root.0.join(".precious"), &path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(all::<Changes>(&root.0).unwrap().0.len(), 1, "and with nothing wrong, it is read");
        fs::set_permissions(&root.0, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(root.refused().contains("other users can write"), "{}", root.refused());
        assert!(Published::at(&root.0).publish(&Changes { changes: 7 }).is_some(), "nor is it written to");
    }

    #[test]
    fn another_network_namespace_is_named_and_silence_is_counted() {
        let root = Root::new("elsewhere");
        fs::create_dir_all(&root.0).unwrap();
        let mut other = contents();
        other.network_namespace += 1;
        other.published_ns -= 3_000_000_000;
        put(&root, &name(other.pid), &other);
        let instance = all::<Changes>(&root.0).unwrap().0.remove(0);
        assert_eq!(instance.network_namespace, Some(other.network_namespace));
        assert!(instance.silent_ns >= 3_000_000_000);
    }

    #[test]
    fn a_lasting_failure_is_told_once() {
        let root = Root::new("full");
        let mut published = Published::at(&root.0);
        // A folder with the name of the temporary file, which cannot be removed as a file.
        let in_the_way = root.0.join(format!(".{}", name(std::process::id())));
        fs::create_dir(&in_the_way).unwrap();
        let told = published.publish(&Changes { changes: 7 }).unwrap();
        assert!(told.contains("cannot write") && told.contains("so apus changes status and apus top do"), "{told}");
        assert_eq!(published.publish(&Changes { changes: 7 }), None);
        fs::remove_dir(&in_the_way).unwrap();
        assert_eq!(published.publish(&Changes { changes: 7 }), None);
        assert_eq!(all::<Changes>(&root.0).unwrap().0.len(), 1, "it goes on where it can");
        fs::create_dir(&in_the_way).unwrap();
        assert!(published.publish(&Changes { changes: 7 }).is_some(), "a new failure is news");
        let nowhere = Published::at(Path::new("/proc/nowhere")).publish(&Changes { changes: 7 });
        assert!(nowhere.unwrap().contains("/proc/nowhere/"));
    }
}
