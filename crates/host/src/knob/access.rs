//! Access to the machine's files, all below one root folder.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};

use super::{Error, Holder, config};
use crate::below;
use crate::nic::{Client, Shared};

/// The machine whose files are below a root folder. The root `/` is the running machine. Any other folder contains the
/// files of a recorded, generated or mounted machine.
///
/// No path leads out of the root, neither by `..` nor by a symbolic link (openat2(2), `RESOLVE_IN_ROOT`). Settings
/// without a file (ethtool, netlink, threads, held requests) exist only on the running machine.
///
/// Model-specific registers are in `/dev/cpu/N/msr` on the running machine (msr(4)). Below another root folder, they
/// are in `msr/0xADDRESS`, with a line `CPU 0xVALUE` for each CPU.
#[derive(Clone)]
pub struct Access {
    root: Arc<OwnedFd>,
    path: PathBuf,
    gate: Arc<dyn Gate>,
    holder: Option<Arc<Holder>>,
    nic: Arc<Shared>,
}

/// An operation that is about to change something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Act {
    /// The kind of operation, such as `write`, `fsync`, `rename` or `netlink`.
    pub operation: &'static str,
    /// Name of the object that the operation changes, such as a path.
    pub object: String,
}

/// An observer that is called before each operation that changes a setting or the journal. It can print or count the
/// operation, but cannot prevent it.
pub trait Gate: Send + Sync {
    /// Called immediately before the operation `act` is carried out.
    fn before(&self, act: &Act);
}

/// A gate that does nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Open;

impl Gate for Open {
    fn before(&self, _: &Act) {}
}

/// Magic numbers of the file systems whose files belong to the kernel (include/uapi/linux/magic.h). In these file
/// systems, one write is one change, and files cannot be truncated.
const KERNEL_FILE_SYSTEMS: [u64; 9] = [
    0x6265_6572, // sysfs
    0x9fa0,      // proc
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7365_6375, // securityfs
    0x6265_6570, // configfs
    0x0765_5821, // resctrl
];

/// Maximum number of bytes that are read from a file. No file of settings is larger (the largest known,
/// /proc/interrupts of a large server, has 3 MB).
const LONGEST: u64 = 64 << 20;

impl Access {
    /// Gives access to the running machine.
    pub fn live() -> Result<Self, Error> {
        Self::below(Path::new("/"))
    }

    /// Gives access to the machine whose files are below the folder `root`.
    pub fn below(root: &Path) -> Result<Self, Error> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(root, flags, Mode::empty()).map_err(|e| match e {
            rustix::io::Errno::NOTDIR => Error::invalid(
                format!("the root folder {}", root.display()),
                format!(
                    "it is a file, not a folder; to use a snapshot's archive as a host, unpack it: mkdir HOST && tar -xzf {} -C \
                     HOST, and give the folder HOST",
                    root.display()
                ),
            ),
            e => Error::of(format!("open the root folder {}", root.display()), &e.into()),
        })?;
        let path = root.canonicalize().map_err(|e| Error::of(format!("find {}", root.display()), &e))?;
        Ok(Self { root: Arc::new(folder), path, gate: Arc::new(Open), holder: None, nic: Arc::default() })
    }

    /// Adds `gate`, which is called before each change.
    #[must_use]
    pub fn with_gate(mut self, gate: Arc<dyn Gate>) -> Self {
        self.gate = gate;
        self
    }

    /// Adds `holder`, which starts the processes that hold latency requests.
    #[must_use]
    pub fn with_holder(mut self, holder: Holder) -> Self {
        self.holder = Some(Arc::new(holder));
        self
    }

    pub(super) fn holder(&self) -> Option<&Holder> {
        self.holder.as_deref()
    }

    /// Calls `ask` with the netlink client of the calling thread's network namespace. The client keeps its sockets open
    /// for later calls.
    pub(crate) fn nic<T>(&self, ask: impl FnOnce(&mut Client) -> T) -> T {
        self.nic.with(ask)
    }

    /// Whether the machine is the running one, and not a recorded, generated or mounted one.
    pub fn is_live(&self) -> bool {
        self.path == Path::new("/")
    }

    /// The root folder.
    pub fn root(&self) -> &Path {
        &self.path
    }

    /// Puts the root folder before a path, for messages.
    pub fn show(&self, path: &str) -> String {
        self.path.join(path.trim_start_matches('/')).display().to_string()
    }

    /// Announces an operation on `object` to the [`Gate`], and then carries it out by calling `what`.
    pub fn act<T, E>(
        &self,
        operation: &'static str,
        object: impl fmt::Display,
        what: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        self.gate.before(&Act { operation, object: object.to_string() });
        what()
    }

    /// Opens a file below the root.
    pub(crate) fn open(&self, path: &str, flags: OFlags, mode: Mode) -> io::Result<File> {
        // openat2 rejects O_PATH together with flags that have no meaning for it.
        let always = if flags.contains(OFlags::PATH) { OFlags::CLOEXEC } else { OFlags::CLOEXEC | OFlags::NOCTTY };
        Ok(below::open(&self.root, path, flags | always, mode)?.into())
    }

    /// The contents of a file. `None` if the file does not exist.
    pub fn read(&self, path: &str) -> Result<Option<String>, Error> {
        let what = || format!("read {}", self.show(path));
        let mut text = Vec::new();
        match self.open(path, OFlags::RDONLY, Mode::empty()).and_then(|f| f.take(LONGEST).read_to_end(&mut text)) {
            Ok(_) => String::from_utf8(text)
                .map(Some)
                .map_err(|e| Error::unreadable(what(), &String::from_utf8_lossy(e.as_bytes()), "text")),
            Err(e) => match Error::of(what(), &e) {
                Error::NotThere { .. } => Ok(None),
                error => Err(error),
            },
        }
    }

    /// The contents of a file without the final newline. `None` if the file does not exist.
    pub fn line(&self, path: &str) -> Result<Option<String>, Error> {
        Ok(self.read(path)?.map(|text| text.trim_end_matches('\n').to_owned()))
    }

    /// A whole number from a file. `None` if the file does not exist.
    pub fn number(&self, path: &str) -> Result<Option<u64>, Error> {
        let Some(text) = self.line(path)? else { return Ok(None) };
        let number = text.trim().parse();
        number.map(Some).map_err(|_| Error::unreadable(format!("read {}", self.show(path)), &text, "a whole number"))
    }

    /// Whether `path` exists.
    pub fn exists(&self, path: &str) -> bool {
        self.open(path, OFlags::PATH, Mode::empty()).is_ok()
    }

    /// Whether this process may write to the file at `path`. This is checked without writing.
    pub fn writable(&self, path: &str) -> bool {
        self.open(path, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty()).is_ok()
    }

    /// The names in a folder, sorted. `None` if the folder does not exist.
    pub fn list(&self, path: &str) -> Result<Option<Vec<String>>, Error> {
        let what = || format!("list {}", self.show(path));
        let folder = match self.open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()) {
            Ok(folder) => folder,
            Err(e) => {
                return match Error::of(what(), &e) {
                    Error::NotThere { .. } => Ok(None),
                    error => Err(error),
                };
            }
        };
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(folder).map_err(|e| Error::of(what(), &e.into()))? {
            let entry = entry.map_err(|e| Error::of(what(), &e.into()))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        names.sort();
        Ok(Some(names))
    }

    /// The target of a symbolic link as it is stored. `None` if there is no such link.
    pub(crate) fn link(&self, path: &str) -> Result<Option<String>, Error> {
        let link = self.open(path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty());
        match link.and_then(|link| Ok(rustix::fs::readlinkat(link, "", Vec::new())?)) {
            Ok(target) => Ok(Some(target.to_string_lossy().into_owned())),
            Err(error) => match Error::of(format!("look at {}", self.show(path)), &error) {
                Error::NotThere { .. } | Error::Refused { .. } => Ok(None),
                error => Err(error),
            },
        }
    }

    /// The permissions of a file. `None` if the file does not exist.
    pub(crate) fn mode(&self, path: &str) -> Result<Option<u32>, Error> {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = |file: File| Ok(file.metadata()?.permissions().mode());
        match self.open(path, OFlags::PATH, Mode::empty()).and_then(mode) {
            Ok(mode) => Ok(Some(mode)),
            Err(error) => match Error::of(format!("look at {}", self.show(path)), &error) {
                Error::NotThere { .. } => Ok(None),
                error => Err(error),
            },
        }
    }

    /// The numbers `N` of a folder's entries that are called `prefixN`, sorted. Empty if the folder does not exist.
    pub fn numbered(&self, path: &str, prefix: &str) -> Result<Vec<u32>, Error> {
        let names = self.list(path)?.unwrap_or_default();
        let mut numbers: Vec<u32> = names.iter().filter_map(|name| name.strip_prefix(prefix)?.parse().ok()).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Sets the content of an existing file to `text` and a newline.
    ///
    /// A kernel file is changed by a single write. An ordinary file (of a recorded host) is replaced in one step, so
    /// that no reader sees a partial file; the new file ends with a newline only if the old one did.
    pub fn write(&self, path: &str, text: &str) -> Result<(), Error> {
        let what = || format!("write {text} to {}", self.show(path));
        let failed = |e: io::Error| Error::of(what(), &e);
        let file =
            self.open(path, OFlags::RDWR, Mode::empty()).or_else(|_| self.open(path, OFlags::WRONLY, Mode::empty()));
        let mut file = file.map_err(failed)?;
        if is_kernels(&file).map_err(failed)? {
            let line = format!("{text}\n");
            return match self.act("write", self.show(path), || file.write(line.as_bytes())).map_err(failed)? {
                n if n == line.len() => Ok(()),
                _ => Err(Error::System { what: what(), why: "the kernel accepted only a part of it".into() }),
            };
        }
        let mut before = String::new();
        file.read_to_string(&mut before).map_err(failed)?;
        let newline = if before.is_empty() || before.ends_with('\n') { "\n" } else { "" };
        self.replace(path, &format!("{}{newline}", recorded(&before, text)))
    }

    /// Replaces an ordinary file of a recorded host in one step. The new file is not synced: it need not be more
    /// durable than a kernel setting.
    pub(crate) fn replace(&self, path: &str, whole: &str) -> Result<(), Error> {
        if self.is_live() {
            let what = format!("write to {}", self.show(path));
            return Err(Error::System { what, why: "it is not a file of the kernel".into() });
        }
        config::replace_by(self, path, DRAFT, Some(whole), false)
    }

    /// Removes the temporary file that an interrupted replacement left behind.
    pub(crate) fn settle(&self) -> Result<(), Error> {
        if !self.is_live() && self.exists(DRAFT) { config::replace_by(self, DRAFT, DRAFT, None, false) } else { Ok(()) }
    }
}

/// The temporary name of a recorded host's file while it is written. Only one file at a time has this name, because the
/// transaction holds the lock.
const DRAFT: &str = "/.apus-new";

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Access").field(&self.path).finish()
    }
}

/// Whether the file belongs to the kernel. Otherwise it is an ordinary file.
fn is_kernels(file: &File) -> io::Result<bool> {
    if !file.metadata()?.is_file() {
        return Ok(true); // a device
    }
    let kind = rustix::fs::fstatfs(file)?.f_type;
    Ok(KERNEL_FILE_SYSTEMS.contains(&(kind as u64)))
}

/// The contents that a recorded file with the contents `before` has after `text` was written to it. If the file shows
/// several words with the selected one in brackets, the brackets move.
fn recorded(before: &str, text: &str) -> String {
    let words: Vec<&str> = before.split_whitespace().collect();
    let bare = |word: &&str| word.trim_matches(['[', ']']) == text;
    if words.iter().any(|word| word.starts_with('[') && word.ends_with(']')) && words.iter().any(bare) {
        let words = words
            .iter()
            .map(|word| if bare(word) { format!("[{text}]") } else { word.trim_matches(['[', ']']).to_owned() });
        return words.collect::<Vec<_>>().join(" ");
    }
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Folder;

    #[test]
    fn no_path_leads_out_of_the_root() {
        let folder = Folder::new(&[("sys/a", "1\n")]);
        std::os::unix::fs::symlink("/etc/passwd", folder.path("sys/link")).unwrap();
        let access = Access::below(&folder.path("")).unwrap();
        assert_eq!(access.line("/sys/a").unwrap().as_deref(), Some("1"));
        assert_eq!(access.read("/sys/link").unwrap(), None, "the link points to etc/passwd below the root");
        assert_eq!(access.read("/../../../../../../etc/passwd").unwrap(), None);
        assert!(access.write("/sys/link", "x").unwrap_err().is_absent());
        assert!(!access.is_live() && Access::live().unwrap().is_live());
    }

    #[test]
    fn an_ordinary_file_is_replaced_whole() {
        let folder = Folder::new(&[("a", "35000000\n"), ("b", "no newline"), ("c", "always [madvise] never\n")]);
        let access = Access::below(&folder.path("")).unwrap();
        access.write("a", "80").unwrap();
        access.write("b", "x").unwrap();
        access.write("c", "never").unwrap();
        assert_eq!(folder.read("a"), "80\n");
        assert_eq!(folder.read("b"), "x");
        assert_eq!(folder.read("c"), "always madvise [never]\n");
        assert!(access.write("d", "1").unwrap_err().is_absent(), "no file is created");
    }

    #[test]
    fn every_change_passes_the_gate() {
        #[derive(Default)]
        struct Seen(std::sync::Mutex<Vec<&'static str>>);
        impl Gate for Seen {
            fn before(&self, act: &Act) {
                self.0.lock().unwrap().push(act.operation);
            }
        }
        let folder = Folder::new(&[("a", "10\n")]);
        let seen = Arc::new(Seen::default());
        let access = Access::below(&folder.path("")).unwrap().with_gate(seen.clone());
        access.write("a", "5").unwrap();
        assert_eq!(*seen.0.lock().unwrap(), ["create", "chown", "chmod", "write", "rename"]);
    }
}
