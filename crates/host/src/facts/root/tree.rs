//! A host's files in memory.

use std::collections::BTreeMap;

use super::Look;

/// Files and folders by which a host's root is recognised.
pub(super) const SIGNS: [&str; 5] = ["apus-snapshot", "sos_commands", "proc", "sys", "boot"];
/// Maximum depth, in folders, at which a host's root is searched for.
pub(super) const MAX_DEPTH: usize = 4;
/// Maximum number of components of a path. A path of a host has up to about 20.
pub(super) const MAX_PARTS: usize = 64;
/// Maximum size of a tree, in bytes as [`Tree::size`] counts them.
pub(super) const MAX_SIZE: usize = 192 << 20;
/// Bytes that a folder takes at least: the first node of its map has room for eleven entries. And the bytes that a file or
/// a link takes besides its name and contents.
const FOLDER_SIZE: usize = 512;
const ENTRY_SIZE: usize = 64;
/// Maximum number of links that are followed on one path, as in the kernel (`MAXSYMLINKS`, include/linux/namei.h).
const MAX_LINKS: usize = 40;

/// A directory tree in memory.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    top: BTreeMap<Box<str>, Node>,
    /// Targets of links that were recorded separately. In the tree, such a link is a folder with the target's files.
    links: BTreeMap<String, String>,
    size: usize,
    /// Number of paths that were not inserted because they have more than [`MAX_PARTS`] components.
    too_deep: usize,
}

#[derive(Debug)]
enum Node {
    Directory(BTreeMap<Box<str>, Node>),
    File(Box<[u8]>),
    Link(Box<str>),
    /// The file existed, but the recorder was not permitted to read it.
    Denied,
    /// The file was not read, because reading it would have disturbed the host.
    Unasked,
    /// The file existed, but could not be read or was too long to keep.
    Refused,
}

impl Tree {
    /// The memory that the tree takes, in bytes: names, contents, and the nodes that hold them. What is replaced still
    /// counts. An insertion adds at most about 32 kB to the path and the contents, so a check before each suffices.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Number of paths that were refused because they are too deep.
    pub(super) fn too_deep(&self) -> usize {
        self.too_deep
    }

    /// Inserts a file and the folders above it. Replaces an existing file.
    pub(crate) fn insert_file(&mut self, path: &str, contents: &[u8]) {
        self.insert(path, Node::File(contents.into()));
    }

    /// Inserts a symbolic link.
    pub(crate) fn insert_link(&mut self, path: &str, target: &str) {
        self.insert(path, Node::Link(target.into()));
    }

    /// Records that the recorder was not permitted to read a file.
    pub(crate) fn insert_denied(&mut self, path: &str) {
        self.insert(path, Node::Denied);
    }

    /// Records that a file was not read because reading it would have disturbed the host.
    pub(crate) fn insert_unasked(&mut self, path: &str) {
        self.insert(path, Node::Unasked);
    }

    /// Records that a file was empty when it was read, or is too long.
    pub(crate) fn insert_refused(&mut self, path: &str) {
        self.insert(path, Node::Refused);
    }

    /// Records the target of a link, separately from the tree.
    pub(crate) fn note_link(&mut self, path: &str, target: &str) {
        self.size += path.len() + target.len() + 2 * ENTRY_SIZE;
        self.links.insert(clean(path), target.to_owned());
    }

    /// Searches for the folder that contains one of the [`SIGNS`] and makes it the top of the tree: the top itself, or
    /// its only subfolder, and so on, at most [`MAX_DEPTH`] deep. Returns whether the folder was found.
    pub(crate) fn descend(&mut self) -> bool {
        for _ in 0..=MAX_DEPTH {
            if SIGNS.iter().any(|sign| self.top.contains_key(*sign)) {
                return true;
            }
            let folders: Vec<&Box<str>> =
                self.top.iter().filter(|(_, node)| matches!(node, Node::Directory(_))).map(|(name, _)| name).collect();
            let [only] = folders.as_slice() else { return false };
            let only = (*only).clone();
            match self.top.remove(&only) {
                Some(Node::Directory(inner)) => self.top = inner,
                _ => return false,
            }
        }
        false
    }

    /// Inserts a folder if it does not exist yet.
    pub(crate) fn insert_directory(&mut self, path: &str) {
        self.directory_at(path);
    }

    fn insert(&mut self, path: &str, node: Node) {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let size = name.len() + ENTRY_SIZE + node.size();
        if !matches!(name, "" | "." | "..")
            && let Some(directory) = self.directory_at(folder)
        {
            directory.insert(name.into(), node);
            self.size += size;
        }
    }

    /// Returns the folder with this path; missing folders are created. `None` if part of the path is not a folder, or if
    /// the path is too deep.
    fn directory_at(&mut self, path: &str) -> Option<&mut BTreeMap<Box<str>, Node>> {
        if is_too_deep(path) {
            self.too_deep += 1;
            return None;
        }
        let mut directory = &mut self.top;
        for name in parts(path) {
            let node = directory.entry(name.into()).or_insert_with(|| {
                self.size += name.len() + FOLDER_SIZE;
                Node::Directory(BTreeMap::new())
            });
            match node {
                Node::Directory(inner) => directory = inner,
                _ => return None,
            }
        }
        Some(directory)
    }

    pub(super) fn read(&self, path: &str, limit: usize) -> Look<Vec<u8>> {
        match self.find(path, true) {
            Found::Node(Node::File(contents)) if contents.len() > limit => {
                Look::Refused(format!("it is longer than {limit} bytes"))
            }
            Found::Node(Node::File(contents)) => Look::Found(contents.to_vec()),
            Found::Node(Node::Denied) => Look::NotPermitted,
            Found::Node(Node::Unasked) => Look::NotAsked,
            Found::Node(Node::Refused) => Look::Refused("reading it returned nothing, or too much".into()),
            Found::Node(_) | Found::Top => Look::Refused("it is a directory".into()),
            Found::Nothing => Look::Absent,
            Found::Loop => Look::Refused("too many symbolic links".into()),
        }
    }

    pub(super) fn list(&self, path: &str, directories: bool) -> Look<Vec<String>> {
        let names = |directory: &BTreeMap<Box<str>, Node>| {
            let wanted = directory.iter().filter(|(_, node)| !directories || matches!(node, Node::Directory(_)));
            wanted.map(|(name, _)| name.to_string()).collect()
        };
        match self.find(path, true) {
            Found::Top => Look::Found(names(&self.top)),
            Found::Node(Node::Directory(directory)) => Look::Found(names(directory)),
            Found::Node(Node::Denied) => Look::NotPermitted,
            Found::Node(_) => Look::Refused("it is not a directory".into()),
            Found::Nothing => Look::Absent,
            Found::Loop => Look::Refused("too many symbolic links".into()),
        }
    }

    pub(super) fn link(&self, path: &str) -> Look<String> {
        if let Some(target) = self.links.get(&clean(path)) {
            return Look::Found(target.clone());
        }
        match self.find(path, false) {
            Found::Node(Node::Link(target)) => Look::Found(target.to_string()),
            Found::Node(Node::Denied) => Look::NotPermitted,
            Found::Node(_) | Found::Top => Look::Refused("it is not a symbolic link".into()),
            Found::Nothing => Look::Absent,
            Found::Loop => Look::Refused("too many symbolic links".into()),
        }
    }

    /// Resolves a path as if the tree's top were `/`. If `follow` is true and the path ends in a link, the link is
    /// followed too.
    fn find(&self, path: &str, follow: bool) -> Found<'_> {
        let mut rest: Vec<String> = parts(path).rev().map(str::to_owned).collect();
        let mut way: Vec<&Node> = Vec::new();
        let mut links = 0;
        while let Some(name) = rest.pop() {
            if name == ".." {
                way.pop();
                continue;
            }
            let directory = match way.last() {
                None => &self.top,
                Some(Node::Directory(directory)) => directory,
                Some(Node::Denied) => return Found::Node(&Node::Denied),
                Some(_) => return Found::Nothing,
            };
            match directory.get(name.as_str()) {
                None => return Found::Nothing,
                Some(Node::Link(target)) if follow || !rest.is_empty() => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Found::Loop;
                    }
                    if target.starts_with('/') {
                        way.clear();
                    }
                    rest.extend(parts(target).rev().map(str::to_owned));
                }
                Some(node) => way.push(node),
            }
        }
        way.last().map_or(Found::Top, |node| Found::Node(node))
    }
}

impl Node {
    /// Number of bytes of the contents.
    fn size(&self) -> usize {
        match self {
            Self::File(contents) => contents.len(),
            Self::Link(target) => target.len(),
            Self::Directory(_) | Self::Denied | Self::Unasked | Self::Refused => 0,
        }
    }
}

/// Whether a path has more than [`MAX_PARTS`] components.
pub(super) fn is_too_deep(path: &str) -> bool {
    parts(path).nth(MAX_PARTS).is_some()
}

enum Found<'a> {
    Top,
    Node(&'a Node),
    Nothing,
    Loop,
}

fn clean(path: &str) -> String {
    parts(path).collect::<Vec<_>>().join("/")
}

/// The components of a path, without empty ones and `.`.
fn parts(path: &str) -> impl DoubleEndedIterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty() && *part != ".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(tree: &Tree, path: &str) -> String {
        match tree.read(path, 100) {
            Look::Found(octets) => String::from_utf8(octets).unwrap(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn links_are_followed_inside_and_never_outside() {
        let mut tree = Tree::default();
        tree.insert_file("sys/devices/pci/dev/vendor", b"1");
        tree.insert_link("sys/bus/dev", "../devices/pci/dev");
        tree.insert_link("absolute", "/sys/bus/dev/vendor");
        tree.insert_link("outside", "../../../../sys/devices/pci/dev/vendor");
        tree.insert_link("loop/a", "b");
        tree.insert_link("loop/b", "a");
        for path in ["/sys/bus/dev/vendor", "absolute", "outside", "sys/./devices//pci/dev/../dev/vendor"] {
            assert_eq!(text(&tree, path), "1", "{path}");
        }
        assert!(text(&tree, "loop/a").contains("too many symbolic links"));
        assert!(matches!(tree.link("sys/bus/dev"), Look::Found(target) if target == "../devices/pci/dev"));
        assert!(matches!(tree.list("sys/bus/dev", false), Look::Found(names) if names == ["vendor"]));
        assert!(matches!(tree.list("sys/bus", true), Look::Found(names) if names.is_empty()));
    }

    #[test]
    fn what_is_there_and_cannot_be_read_says_why() {
        let mut tree = Tree::default();
        tree.insert_denied("sys/kernel/debug");
        tree.insert_file("proc/long", &[b'x'; 101]);
        tree.insert_file("proc/long/below", b"");
        assert!(matches!(tree.read("sys/kernel/debug/sched/x", 9), Look::NotPermitted));
        assert!(text(&tree, "proc/long").contains("longer than 100 bytes"));
        assert!(text(&tree, "proc").contains("directory"));
        assert!(matches!(tree.read("proc/long/below", 9), Look::Absent));
    }

    #[test]
    fn folders_names_and_links_have_a_size_and_deep_paths_are_refused() {
        let mut tree = Tree::default();
        tree.insert_file("proc/a", &[b'x'; 100]);
        assert_eq!(tree.size(), "proc".len() + FOLDER_SIZE + "a".len() + ENTRY_SIZE + 100);
        let before = tree.size();
        tree.insert_link("proc/link", "a/target");
        tree.insert_directory("proc");
        assert_eq!(tree.size() - before, "link".len() + ENTRY_SIZE + "a/target".len());
        let deep = "a/".repeat(5000) + "file";
        let before = tree.size();
        tree.insert_file(&deep, b"");
        tree.insert_directory(&deep);
        assert_eq!((tree.size(), tree.too_deep()), (before, 2));
        assert!(matches!(tree.list("a", false), Look::Absent));
        tree.insert_file(&("b/".repeat(MAX_PARTS) + "file"), b"1");
        assert!(matches!(tree.read(&("b/".repeat(MAX_PARTS) + "file"), 9), Look::Found(_)));
    }

    #[test]
    fn the_hosts_root_is_found_below_folders_of_their_own() {
        let mut tree = Tree::default();
        tree.insert_file("sosreport-x/host/proc/cmdline", b"quiet");
        assert!(tree.descend());
        assert_eq!(text(&tree, "proc/cmdline"), "quiet");
        let mut two = Tree::default();
        two.insert_file("a/proc/x", b"");
        two.insert_file("b/proc/x", b"");
        assert!(!two.descend());
    }
}
