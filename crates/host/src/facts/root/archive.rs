//! Reads a tar archive into memory. Its size is bounded, and its contents are never trusted.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read};
use std::rc::Rc;

use tar::{Archive, Entry, EntryType};

use super::TABLE_LIMIT;
use super::compression::unpacked;
use super::tree::{MAX_DEPTH, MAX_PARTS, MAX_SIZE, Tree, is_too_deep};

/// Limits for reading an archive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Maximum number of entries.
    pub entries: usize,
    /// Maximum number of bytes after decompression, including those that are not kept.
    pub unpacked: u64,
    /// Maximum number of bytes that are kept, as [`Tree::size`] counts them: contents, names, folders and links.
    pub kept: usize,
    /// Maximum number of bytes of one file.
    pub file: usize,
}

impl Limits {
    const USUAL: Self = Self { entries: 2_000_000, unpacked: 2 << 30, kept: MAX_SIZE, file: TABLE_LIMIT };
}

/// Maximum number of bytes of a path, and of a header that extends a path (twice `PATH_MAX`).
const PATH_LIMIT: u64 = 8192;
/// Maximum number of notes; further notes are dropped.
const MAX_NOTES: usize = 20;

/// Folders and files at the host's root that are kept. For those in [`KEPT_BELOW`], only some subfolders are kept.
const KEPT: [&str; 10] =
    ["again", "apus-snapshot", "bundle", "commands", "denied", "msr", "proc", "sys", "tasks", "unasked"];
const KEPT_BELOW: [(&str, &[&str]); 5] = [
    ("boot", &["loader", "loader.conf", "loader.conf.d", "loader.conf.local"]),
    (
        "sos_commands",
        &["hardware", "kernel", "memory", "networking", "pci", "process", "processor", "systemd", "tuned"],
    ),
    (
        "etc",
        &[
            "default",
            "irqbalance.env",
            "kubernetes",
            "rc.conf",
            "rc.conf.d",
            "rc.conf.local",
            "security",
            "sysconfig",
            "sysctl.conf",
            "sysctl.conf.d",
            "sysctl.conf.local",
            "systemd",
            "tuned",
        ],
    ),
    ("var", &["lib", "log"]),
    ("lib", &["modules"]),
];

/// The files of an archive.
#[derive(Debug)]
pub(super) struct Unpacked {
    pub tree: Tree,
    pub notes: Vec<String>,
    /// Whether the archive ended too early.
    pub cut_short: bool,
}

/// Reads an archive, compressed or not. Files that are too long and entries that lead outside the archive are left out
/// with a note. If the archive ends too early or exceeds another limit, returns the entries before that point.
pub(super) fn unpack(file: File) -> Result<Unpacked, String> {
    unpack_within(file, Limits::USUAL)
}

pub(super) fn unpack_within<R: Read + 'static>(stream: R, limits: Limits) -> Result<Unpacked, String> {
    let at_end = Rc::new(Cell::new(false));
    let stream = unpacked(Watched { stream, at_end: at_end.clone() })
        .map_err(|error| format!("it cannot be unpacked: {error}"))?;
    let mut reader = Reader { tree: Tree::default(), notes: Vec::new(), entries: 0, limits };
    let mut counted = Counted { stream, left: limits.unpacked, failed: false };
    let end = reader.read(Archive::new(&mut counted));
    let cut_short = end.is_err();
    let Reader { mut tree, mut notes, entries, .. } = reader;
    // Something was unpacked, or unpacking failed, and the file had no more bytes.
    let is_truncated = at_end.get() && (entries > 0 || counted.failed);
    let found = tree.descend();
    match (found, end) {
        (true, Ok(())) => {}
        (true, Err(error)) => notes.push(format!("the archive is truncated ({error}); the rest is not recorded")),
        (false, Ok(())) => return Err("the archive contains neither proc nor sys of a host".into()),
        (false, Err(_)) if is_truncated => {
            return Err("the archive is truncated, before any file of proc or sys of a host; copy it again".into());
        }
        (false, Err(error)) => {
            return Err(format!("it is not an archive of a host's files (.tar, .tar.gz, .tar.zst, .tar.xz): {error}"));
        }
    }
    Ok(Unpacked { tree, notes, cut_short })
}

struct Reader {
    tree: Tree,
    notes: Vec<String>,
    /// Number of entries read so far.
    entries: usize,
    limits: Limits,
}

impl Reader {
    fn read<R: Read>(&mut self, mut archive: Archive<R>) -> io::Result<()> {
        let mut path: Option<Vec<u8>> = None;
        let mut target: Option<Vec<u8>> = None;
        // In raw mode, so that this loop reads long names itself and limits their length.
        for (n, entry) in archive.entries()?.raw(true).enumerate() {
            let mut entry = entry?;
            if n >= self.limits.entries {
                return Err(io::Error::other(format!("it has more than {} entries", self.limits.entries)));
            }
            self.entries = n + 1;
            match entry.header().entry_type() {
                EntryType::GNULongName => path = Some(long(&mut entry)?),
                EntryType::GNULongLink => target = Some(long(&mut entry)?),
                EntryType::XHeader => {
                    let (longer, further) = extended(&long(&mut entry)?);
                    path = longer.or(path);
                    target = further.or(target);
                }
                EntryType::XGlobalHeader => {}
                kind => {
                    let path = path.take().unwrap_or_else(|| entry.path_bytes().into_owned());
                    let link = target.take().or_else(|| entry.link_name_bytes().map(|name| name.into_owned()));
                    self.take(&mut entry, kind, &path, link)?;
                }
            }
        }
        Ok(())
    }

    fn take<R: Read>(
        &mut self,
        entry: &mut Entry<R>,
        kind: EntryType,
        path: &[u8],
        link: Option<Vec<u8>>,
    ) -> io::Result<()> {
        let path = String::from_utf8_lossy(path).trim_end_matches('\0').to_owned();
        let path = path.trim_start_matches('/');
        if path.split('/').any(|part| part == "..") {
            self.note(format!("{path:?} leads outside the archive and is left out"));
            return Ok(());
        }
        if !is_kept(path) {
            return Ok(());
        }
        if is_too_deep(path) {
            let start: String = path.chars().take(60).collect();
            self.note(format!("{start:?}… has more than {MAX_PARTS} components and is left out"));
            return Ok(());
        }
        if self.tree.size() > self.limits.kept {
            return Err(self.too_much());
        }
        match kind {
            EntryType::Regular | EntryType::Continuous => self.file(entry, path)?,
            EntryType::Directory => self.tree.insert_directory(path),
            EntryType::Symlink => {
                let target = String::from_utf8_lossy(&link.unwrap_or_default()).trim_end_matches('\0').to_owned();
                self.tree.insert_link(path, &target);
            }
            // A hard link's target is a path from the archive's top.
            EntryType::Link => {
                let target = String::from_utf8_lossy(&link.unwrap_or_default()).trim_end_matches('\0').to_owned();
                self.tree.insert_link(path, &format!("{}{target}", "../".repeat(path.matches('/').count())));
            }
            _ => {}
        }
        Ok(())
    }

    fn file<R: Read>(&mut self, entry: &mut Entry<R>, path: &str) -> io::Result<()> {
        let size = entry.header().entry_size()?;
        if size > self.limits.file as u64 {
            self.note(format!("{path} has {size} bytes, more than {}, and is left out", self.limits.file));
            self.tree.insert_refused(path);
            return Ok(());
        }
        if self.tree.size() + size as usize > self.limits.kept {
            return Err(self.too_much());
        }
        let mut contents = Vec::with_capacity(size as usize);
        entry.read_to_end(&mut contents)?;
        if (contents.len() as u64) < size {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("{path} is truncated")));
        }
        self.tree.insert_file(path, &contents);
        Ok(())
    }

    fn too_much(&self) -> io::Error {
        io::Error::other(format!("it contains more than {} bytes of a host", self.limits.kept))
    }

    fn note(&mut self, note: String) {
        if self.notes.len() < MAX_NOTES {
            self.notes.push(note);
        }
    }
}

/// Whether a reader needs this path. The host's root may be up to [`MAX_DEPTH`] folders below the archive's top.
fn is_kept(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    (0..parts.len().min(MAX_DEPTH + 1)).any(|at| {
        KEPT.contains(&parts[at])
            || KEPT_BELOW.iter().any(|(top, below)| {
                parts[at] == *top
                    && parts.get(at + 1).is_none_or(|next| below.contains(next) || next.starts_with("config-"))
            })
    })
}

/// The contents of a header that holds the name of the next entry.
fn long<R: Read>(entry: &mut Entry<R>) -> io::Result<Vec<u8>> {
    if entry.header().entry_size()? > PATH_LIMIT {
        return Err(io::Error::other(format!("a name is longer than {PATH_LIMIT} bytes")));
    }
    let mut name = Vec::new();
    entry.take(PATH_LIMIT).read_to_end(&mut name)?;
    if name.last() == Some(&0) {
        name.pop();
    }
    Ok(name)
}

/// Finds `path` and `linkpath` in `LENGTH KEY=VALUE\n` records (POSIX pax, "pax Extended Header").
fn extended(records: &[u8]) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    let (mut path, mut link) = (None, None);
    let mut rest = records;
    while let Some(space) = rest.iter().position(|octet| *octet == b' ') {
        let length = std::str::from_utf8(&rest[..space]).ok().and_then(|text| text.parse::<usize>().ok());
        let Some(record) = length.filter(|length| *length > space + 1).and_then(|length| rest.get(space + 1..length))
        else {
            break;
        };
        let record = record.strip_suffix(b"\n").unwrap_or(record);
        if let Some(value) = record.strip_prefix(b"path=") {
            path = Some(value.to_vec());
        } else if let Some(value) = record.strip_prefix(b"linkpath=") {
            link = Some(value.to_vec());
        }
        rest = &rest[length.unwrap_or(rest.len())..];
    }
    (path, link)
}

/// A stream that fails if it yields more bytes than `left`.
struct Counted {
    stream: Box<dyn Read>,
    left: u64,
    /// Whether the stream could not be read or decompressed.
    failed: bool,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.stream.read(buffer).inspect_err(|_| self.failed = true)?;
        self.left = self
            .left
            .checked_sub(n as u64)
            .ok_or_else(|| io::Error::other("it unpacks to more than the size limit"))?;
        Ok(n)
    }
}

/// A stream that notes that all of it was read and more was asked for.
struct Watched<R> {
    stream: R,
    at_end: Rc<Cell<bool>>,
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.stream.read(buffer)?;
        self.at_end.set(n == 0);
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::Look;
    use super::*;

    const SMALL: Limits = Limits { entries: 100, unpacked: 1 << 20, kept: 4096, file: 2048 };

    fn packed(files: &[(&str, usize)], behind: usize) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (path, size) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(*size as u64);
            builder.append_data(&mut header, path, vec![b'x'; *size].as_slice()).unwrap();
        }
        let mut octets = builder.into_inner().unwrap();
        octets.resize(octets.len() + behind, 0);
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&octets).unwrap();
        encoder.finish().unwrap()
    }

    fn unpack(octets: Vec<u8>) -> Result<Unpacked, String> {
        unpack_within(io::Cursor::new(octets), SMALL)
    }

    #[test]
    fn a_file_that_is_too_long_is_left_out_and_noted() {
        let unpacked = unpack(packed(&[("proc/interrupts", 3000), ("proc/cmdline", 5)], 0)).unwrap();
        assert_eq!(unpacked.notes, ["proc/interrupts has 3000 bytes, more than 2048, and is left out"]);
        assert!(matches!(unpacked.tree.read("proc/interrupts", 9999), Look::Refused(_)));
        assert!(matches!(unpacked.tree.read("proc/cmdline", 9999), Look::Found(text) if text == b"xxxxx"));
        assert!(!unpacked.cut_short);
    }

    #[test]
    fn what_unpacks_to_too_much_ends_at_the_bound() {
        // An archive of a few hundred bytes that unpacks to two megabytes of a file that is not kept.
        let bomb = packed(&[("proc/cmdline", 5), ("usr/zeroes", 2 << 20)], 0);
        let unpacked = unpack(bomb).unwrap();
        assert!(
            unpacked.cut_short && unpacked.notes[0].contains("unpacks to more than the size limit"),
            "{:?}",
            unpacked.notes
        );
        assert!(matches!(unpacked.tree.read("proc/cmdline", 9), Look::Found(_)));
    }

    #[test]
    fn what_is_kept_and_counted_is_bounded_too() {
        let unpacked = unpack(packed(&[("proc/a", 2000), ("proc/b", 2000), ("proc/c", 2000)], 0)).unwrap();
        assert!(unpacked.cut_short && matches!(unpacked.tree.read("proc/c", 9999), Look::Absent));
        let many: Vec<(String, usize)> = (0..101).map(|n| (format!("proc/{n}"), 0)).collect();
        let many: Vec<(&str, usize)> = many.iter().map(|(path, size)| (path.as_str(), *size)).collect();
        let few = Limits { kept: 1 << 20, ..SMALL };
        let unpacked = unpack_within(io::Cursor::new(packed(&many, 0)), few).unwrap();
        assert!(unpacked.notes[0].contains("more than 100 entries"), "{:?}", unpacked.notes);
    }

    /// An archive of these folders and links, and nothing in them.
    fn empty(kind: EntryType, paths: impl Iterator<Item = String>) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for path in paths {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_size(0);
            match kind {
                EntryType::Symlink => builder.append_link(&mut header, path, "y".repeat(90)).unwrap(),
                _ => builder.append_data(&mut header, path, io::empty()).unwrap(),
            }
        }
        builder.into_inner().unwrap()
    }

    /// 2,000,000 folders a thousand deep took 20 GB, none of which counted.
    #[test]
    fn folders_links_and_depth_are_bounded_as_contents_are() {
        for kind in [EntryType::Directory, EntryType::Symlink] {
            let unpacked = unpack(empty(kind, (0..90).map(|n| format!("proc/{n}")))).unwrap();
            assert!(unpacked.cut_short, "{kind:?}");
            assert!(unpacked.notes[0].contains("more than 4096 bytes of a host"), "{:?}", unpacked.notes);
            assert!(unpacked.tree.size() < 2 * SMALL.kept);
        }
        let deep = |n| format!("proc/{}{n}", "a/".repeat(1000));
        let unpacked =
            unpack(empty(EntryType::Directory, std::iter::once("proc/x".to_owned()).chain((0..9).map(deep)))).unwrap();
        assert!(!unpacked.cut_short && unpacked.notes[0].contains("more than 64 components"), "{:?}", unpacked.notes);
        assert!(unpacked.tree.size() < SMALL.kept);
    }

    #[test]
    fn only_what_readers_ask_for_is_kept() {
        for path in
            ["proc/cmdline", "x/y/sys/a", "etc/default/grub", "a/boot/config-6.1", "sos_commands/kernel/dmesg", "etc/"]
        {
            assert!(is_kept(path), "{path}");
        }
        for path in ["etc/shadow", "home/x/proc-notes", "a/b/c/d/e/proc/x", "boot/vmlinuz", "sos_commands/logs/journal"]
        {
            assert!(!is_kept(path), "{path}");
        }
    }

    #[test]
    fn records_of_extended_headers() {
        assert_eq!(extended(b"12 path=a/b\n22 linkpath=../c d e\n"), (Some(b"a/b".to_vec()), None));
        assert_eq!(extended(b"12 path=a/b\n17 linkpath=../c\n"), (Some(b"a/b".to_vec()), Some(b"../c".to_vec())));
        assert_eq!(extended(b"99999999999999999999 path=x\n"), (None, None));
    }
}
