//! The source of facts: reads files in the same manner from a live host, a folder or an archive.

mod archive;
mod bundle;
mod compression;
mod directory;
mod layout;
mod manifest;
mod tree;
mod values;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::{Fact, Source, Why};
use directory::Directory;
use manifest::Manifest;
use tree::{MAX_PARTS, MAX_SIZE, Tree};

/// Maximum number of bytes of a file that are read, unless the reader sets another limit.
pub(super) const FILE_LIMIT: usize = 1 << 20;
/// Size limit, in bytes, for files that have a number for each CPU and interrupt: 512 CPUs and 4,000 interrupts need 22
/// MB.
pub(super) const TABLE_LIMIT: usize = 64 << 20;

/// The root of a host's files: the live host, a folder, or an archive in memory.
///
/// Paths are the host's paths; the leading slash is optional. No path leads out of a folder or an archive: links are
/// followed as if the folder or archive were `/`.
#[derive(Debug)]
pub struct Root {
    kind: Kind,
    name: String,
    files: Files,
    /// Files that a snapshot stores in a bundle.
    overlay: Tree,
    /// Paths of recorded command outputs, by the mangled names of the commands.
    commands: BTreeMap<String, String>,
    manifest: Manifest,
    /// Whether a missing path always means that the host lacks it.
    complete: bool,
    notes: Vec<String>,
}

/// The kind of source from which facts are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Kind {
    /// This host, at this moment.
    Live,
    /// A folder or archive with `proc` and `sys` that was not made by Apus, such as a must-gather's `sysinfo` or a
    /// manual copy. Missing files were not recorded.
    Recording,
    /// A snapshot made by Apus. If the snapshot looked for a file and does not contain it, the host does not have it.
    Snapshot,
    /// A report made by sos.
    SosReport,
    /// Files that the caller passed in memory.
    #[default]
    Given,
}

/// Why a source cannot be read at all.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    /// The file or folder cannot be opened.
    #[error("cannot open {}: {error}", path.display())]
    Open {
        /// Path of the file or folder.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// The file or folder does not describe a host.
    #[error("{}: {reason}", path.display())]
    NotAHost {
        /// Path of the file or folder.
        path: PathBuf,
        /// Why the file or folder cannot be used, and what Apus needs instead.
        reason: String,
    },
}

#[derive(Debug)]
enum Files {
    Directory(Directory),
    Tree(Tree),
}

/// The result of reading one path.
#[derive(Debug)]
pub(crate) enum Look<T> {
    Found(T),
    Absent,
    NotPermitted,
    /// The path was not read, because that would have disturbed the host.
    NotAsked,
    /// The file exists but cannot be read; the string says why.
    Refused(String),
}

impl Root {
    /// The host on which this program runs.
    pub fn live() -> Self {
        let mut root = Self::over(Kind::Live, "this host", Files::Directory(Directory::live()));
        root.complete = true;
        root
    }

    /// Opens a folder or an archive (`.tar`, optionally packed with gzip, zstd or xz): a snapshot, a recording, a sos
    /// report, a must-gather's `sysinfo`, or a must-gather folder. `/` is the live host.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, RootError> {
        layout::open(path.as_ref())
    }

    /// A root with these files in memory, given as paths and contents. Other files count as not recorded.
    pub fn given<P: AsRef<str>, C: AsRef<[u8]>>(files: impl IntoIterator<Item = (P, C)>) -> Self {
        let mut tree = Tree::default();
        for (path, contents) in files {
            tree.insert_file(path.as_ref(), contents.as_ref());
        }
        Self::over(Kind::Given, "given files", Files::Tree(tree)).prepared()
    }

    /// Makes missing files count as absent from the host, not as not recorded.
    pub fn complete(mut self) -> Self {
        self.complete = true;
        self
    }

    /// Adds symbolic links, given as paths and targets. Files that are read through a link must be given separately.
    pub fn linked<P: AsRef<str>, T: AsRef<str>>(mut self, links: impl IntoIterator<Item = (P, T)>) -> Self {
        for (path, target) in links {
            self.overlay.note_link(path.as_ref(), target.as_ref());
        }
        self
    }

    fn over(kind: Kind, name: &str, files: Files) -> Self {
        Self {
            kind,
            name: name.into(),
            files,
            overlay: Tree::default(),
            commands: BTreeMap::new(),
            manifest: Manifest::default(),
            complete: false,
            notes: Vec::new(),
        }
    }

    /// Reads a recording's manifest, bundles and command outputs.
    fn prepared(mut self) -> Self {
        if let Look::Found(text) = self.look_at("apus-snapshot", FILE_LIMIT) {
            self.manifest = Manifest::parse(&String::from_utf8_lossy(&text));
        }
        let mut fits = true;
        for place in ["", "again/"] {
            let part = |name: &str| self.text_up_to(&format!("{place}bundle/{name}"), TABLE_LIMIT).into_value();
            let [paths, lines, links] = ["paths", "lines", "links"].map(|name| part(name).unwrap_or_default());
            fits &= bundle::expand(&mut self.overlay, place, &paths, &lines, &links);
            for name in ["denied", "unasked"] {
                let list = self.text_up_to(&format!("{place}{name}"), TABLE_LIMIT).into_value().unwrap_or_default();
                for path in list.lines() {
                    if self.overlay.size() > MAX_SIZE {
                        fits = false;
                        break;
                    }
                    match name {
                        "denied" => self.overlay.insert_denied(path),
                        _ => self.overlay.insert_unasked(path),
                    }
                }
            }
        }
        if !fits {
            // What the rest of the lists names may have existed.
            self.manifest.cut_short = true;
            self.notes.push("the snapshot's lists of files are too long; the rest is not recorded".into());
        }
        if self.overlay.too_deep() > 0 {
            let n = self.overlay.too_deep();
            self.notes
                .push(format!("paths of more than {MAX_PARTS} components in the snapshot's lists are left out ({n})"));
        }
        let mut folders = vec!["commands".to_owned()];
        folders.extend(
            self.list("sos_commands").into_value().unwrap_or_default().iter().map(|n| format!("sos_commands/{n}")),
        );
        for folder in folders {
            for name in self.list(&folder).into_value().unwrap_or_default() {
                self.commands.entry(name.clone()).or_insert(format!("{folder}/{name}"));
            }
        }
        self
    }

    /// The kind of source from which this root reads.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// A readable name of the source: `this host`, or the path that was opened.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether every missing file means that the host does not have it.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Notes on the files that were left out when the root was opened.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// When the recording was made, according to its manifest. `None` if the manifest has no date.
    pub(super) fn taken(&self) -> Option<&str> {
        self.manifest.taken.as_deref()
    }

    /// A file's text without surrounding white space. Bytes that are not UTF-8 are replaced.
    pub(crate) fn text(&self, path: &str) -> Fact<String> {
        self.text_up_to(path, FILE_LIMIT).map(|text| match text.trim() {
            trimmed if trimmed.len() == text.len() => text,
            trimmed => trimmed.to_owned(),
        })
    }

    /// A file's text, including surrounding white space. A file longer than `limit` bytes is an error.
    pub(crate) fn text_up_to(&self, path: &str, limit: usize) -> Fact<String> {
        self.bytes(path, limit).map(|bytes| match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        })
    }

    /// The contents of a file. A file longer than `limit` bytes is an error.
    pub(crate) fn bytes(&self, path: &str, limit: usize) -> Fact<Vec<u8>> {
        self.fact(path, self.look_at(path, limit))
    }

    /// Opens a file so that it can be read repeatedly. This works only in a folder or on the live host, not in an
    /// archive.
    pub(crate) fn reopened(&self, path: &str) -> Result<File, Why> {
        let Files::Directory(directory) = &self.files else { return Err(Why::NotRecorded) };
        directory.open_file(path).map_err(|error| match error {
            Errno::NOENT | Errno::NOTDIR if self.complete => Why::Absent,
            Errno::NOENT | Errno::NOTDIR => Why::NotRecorded,
            Errno::ACCESS | Errno::PERM => Why::NotPermitted,
            error => Why::Unsupported(error.to_string().into()),
        })
    }

    fn look_at(&self, path: &str, limit: usize) -> Look<Vec<u8>> {
        let look = match &self.files {
            Files::Directory(directory) => directory.read(path, limit),
            Files::Tree(tree) => tree.read(path, limit),
        };
        look.or(|| self.overlay.read(path, limit))
    }

    /// The names in a directory, sorted.
    pub(crate) fn list(&self, path: &str) -> Fact<Vec<String>> {
        self.names(path, false)
    }

    /// The names of the subdirectories of a directory, sorted. Links to directories are not included.
    pub(crate) fn directories(&self, path: &str) -> Fact<Vec<String>> {
        self.names(path, true)
    }

    fn names(&self, path: &str, directories: bool) -> Fact<Vec<String>> {
        let look = match &self.files {
            Files::Directory(directory) => directory.list(path, directories),
            Files::Tree(tree) => tree.list(path, directories),
        };
        self.fact(path, merged(look, || self.overlay.list(path, directories)))
    }

    /// The target of a symbolic link.
    pub(crate) fn link_target(&self, path: &str) -> Fact<String> {
        let noted = self.overlay.link(path);
        if matches!(noted, Look::Found(_)) {
            return self.fact(path, noted);
        }
        let look = match &self.files {
            Files::Directory(directory) => directory.link(path),
            Files::Tree(tree) => tree.link(path),
        };
        self.fact(path, look)
    }

    /// The last component of a symbolic link's target.
    pub(crate) fn link_name(&self, path: &str) -> Fact<String> {
        self.link_target(path).map(|target| target.rsplit('/').next().unwrap_or_default().to_owned())
    }

    /// The output of a command, if the recording contains it.
    pub(crate) fn command(&self, command: &str) -> Fact<String> {
        let source = Source::new(command);
        match self.commands.get(&mangled(command)) {
            Some(path) => match self.text_up_to(path, TABLE_LIMIT) {
                Fact::Known { value, .. } => Fact::known(value, source),
                Fact::Missing { why, .. } => Fact::missing(why, source),
            },
            None => Fact::not_recorded(source),
        }
    }

    /// The output of a command: of the first reading if `place` is empty, of the second one if it is `again/`.
    pub(super) fn command_in(&self, place: &str, command: &str) -> Fact<String> {
        match place {
            "" => self.command(command),
            place => self.text_up_to(&format!("{place}commands/{}", mangled(command)), TABLE_LIMIT),
        }
    }

    /// The rest of the names of the recorded commands that begin with `start`.
    pub(super) fn commands_like(&self, start: &str) -> Vec<String> {
        let start = mangled(start.trim_end()) + "_";
        let after = self.commands.range(start.clone()..).take_while(|(name, _)| name.starts_with(&start));
        after.map(|(name, _)| name[start.len()..].to_owned()).filter(|word| !word.is_empty()).collect()
    }

    fn fact<T>(&self, path: &str, look: Look<T>) -> Fact<T> {
        let path = path.trim_start_matches('/');
        let source = Source::of_path(path.strip_prefix("again/").unwrap_or(path));
        match look {
            Look::Found(value) => Fact::known(value, source),
            Look::Absent if self.complete || self.manifest.looked_for(path) => Fact::absent(source),
            Look::Absent => Fact::not_recorded(source),
            Look::NotPermitted => Fact::missing(Why::NotPermitted, source),
            Look::NotAsked => Fact::missing(Why::NotAsked, source),
            Look::Refused(reason) => Fact::missing(Why::Unsupported(reason.into()), source),
        }
    }
}

impl<T> Look<T> {
    /// This result, or the result of `other` if the path is absent here.
    fn or(self, other: impl FnOnce() -> Self) -> Self {
        match self {
            Self::Absent => other(),
            found => found,
        }
    }
}

/// Merges the names in two directories, without duplicates.
fn merged(look: Look<Vec<String>>, other: impl FnOnce() -> Look<Vec<String>>) -> Look<Vec<String>> {
    match (look, other()) {
        (Look::Found(mut names), Look::Found(more)) => {
            names.extend(more);
            names.sort_unstable();
            names.dedup();
            Look::Found(names)
        }
        (Look::Absent, other) => other,
        (look, _) => look,
    }
}

/// Converts a command into a file name as sos does (`sos.utilities`, `mangle_command`): each run of characters other
/// than letters, digits, underscores, dashes and dots becomes one underscore, and a slash becomes a dot.
pub(crate) fn mangled(command: &str) -> String {
    let mut name = String::with_capacity(command.len());
    for c in command.chars() {
        match c {
            '/' => name.push('.'),
            c if c.is_alphanumeric() || matches!(c, '_' | '-' | '.') => name.push(c),
            _ if name.ends_with('_') => {}
            _ => name.push('_'),
        }
    }
    name.trim_matches([' ', '.', '_', '-']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_given_is_not_recorded_unless_all_was() {
        let files = || [("proc/cmdline", b"quiet \xff\n")];
        let root = Root::given(files());
        assert_eq!(root.text("/proc/cmdline").value().map(String::as_str), Some("quiet \u{fffd}"));
        assert_eq!(root.text("proc/x").why(), Some(&Why::NotRecorded));
        assert_eq!(root.text("proc/x").source().as_str(), "/proc/x");
        assert_eq!(Root::given(files()).complete().text("proc/x").why(), Some(&Why::Absent));
    }

    #[test]
    fn commands_are_found_by_their_words() {
        let root = Root::given([
            ("commands/ethtool_-i_eth0", "a"),
            ("sos_commands/networking/ethtool_-i_eth1.7", "b"),
            ("sos_commands/kernel/dmesg", "c"),
        ]);
        assert_eq!(root.commands_like("ethtool -i "), ["eth0", "eth1.7"]);
        assert_eq!(root.command("ethtool -i eth1.7").value().map(String::as_str), Some("b"));
        assert_eq!(root.command("dmesg").source().as_str(), "dmesg");
        assert!(root.command("lspci").is_unknown());
        assert_eq!(mangled("/usr/bin/ls  -l /x"), "usr.bin.ls_-l_.x");
    }

    /// The lists of a snapshot make folders too: a few hundred bytes of a path could take 500 kB.
    #[test]
    fn the_lists_of_a_snapshot_are_bounded() {
        let deep = format!("/{}x\n", "a/".repeat(1000));
        for list in ["bundle/paths", "denied", "unasked"] {
            let root = Root::given([
                ("apus-snapshot", "apus-snapshot 1\nlooked: sys/*\n"),
                (list, &*format!("{deep}/sys/a\n")),
            ]);
            assert_eq!(root.notes(), ["paths of more than 64 components in the snapshot's lists are left out (1)"]);
            assert!(root.text("sys/a").is_unknown() && root.text("sys/b").is_absent(), "{list}");
            // 40,000 paths of 62 folders each are 5 MB, and would take more than a gigabyte.
            let wide: String = (0..40_000).map(|n| format!("/{n}/{}x\n", "a/".repeat(61))).collect();
            let root = Root::given([("apus-snapshot", "apus-snapshot 1\nlooked: sys/*\n"), (list, &*wide)]);
            assert_eq!(
                root.notes(),
                ["the snapshot's lists of files are too long; the rest is not recorded"],
                "{list}"
            );
            assert!(root.overlay.size() < MAX_SIZE + 100_000 && root.text("sys/b").is_unknown(), "{list}");
        }
    }

    #[test]
    fn a_snapshot_says_what_it_looked_for_and_what_it_was_refused() {
        let root = Root::given([
            ("apus-snapshot", "apus-snapshot 1\nlooked: sys/devices/system/cpu/cpu*/cpuidle\n"),
            ("denied", "/sys/kernel/debug/sched/preempt\n"),
            ("bundle/paths", "/sys/a:b/x\n/sys/a:b/empty\n"),
            ("bundle/lines", "/sys/a:b/x:1:2\n/sys/a:b/x:3\n"),
            ("bundle/links", "lrwxrwxrwx 1 root root 0 Nov 22 00:00 /sys/a:b/driver -> ../../bus/i40e\n"),
        ]);
        assert!(root.list("sys/devices/system/cpu/cpu7/cpuidle").is_absent());
        assert!(root.list("sys/devices/system/cpu/cpu7/other").is_unknown());
        assert_eq!(root.text("sys/kernel/debug/sched/preempt").why(), Some(&Why::NotPermitted));
        assert_eq!(root.text("sys/a:b/x").value().map(String::as_str), Some("1:2\n3"));
        assert!(matches!(root.text("sys/a:b/empty").why(), Some(Why::Unsupported(_))));
        assert_eq!(root.link_name("sys/a:b/driver").value().map(String::as_str), Some("i40e"));
        assert_eq!(root.list("sys/a:b").value().unwrap(), &["empty", "x"]);
    }
}
