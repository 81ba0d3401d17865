//! Writes initramfs archives: archives in the cpio format, which the kernel unpacks into its first root file system.
//!
//! Source: Linux, Documentation/driver-api/early-userspace/buffer-format.rst: the format "newc". Every header field has
//! eight hexadecimal digits. The header with the name, and the file's data, are each padded to 4 bytes.

use std::collections::BTreeMap;

/// File types of the mode field; `S_IFMT` in include/uapi/linux/stat.h.
const FOLDER: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

/// An archive under construction. Parent folders are added automatically.
#[derive(Default)]
pub(super) struct Archive {
    entries: BTreeMap<String, Entry>,
}

struct Entry {
    mode: u32,
    device: (u32, u32),
    data: Vec<u8>,
}

impl Archive {
    /// Adds an empty folder.
    pub(super) fn folder(&mut self, path: &str) {
        self.parents(path);
        self.entries.entry(trimmed(path)).or_insert(Entry { mode: FOLDER | 0o755, device: (0, 0), data: Vec::new() });
    }

    /// Adds a file with the permissions `mode`; replaces an existing file with the same path.
    pub(super) fn file(&mut self, path: &str, mode: u32, data: Vec<u8>) {
        self.insert(path, REGULAR | mode, (0, 0), data);
    }

    /// Adds a symbolic link.
    pub(super) fn link(&mut self, path: &str, target: &str) {
        self.insert(path, LINK | 0o777, (0, 0), target.as_bytes().to_vec());
    }

    /// Adds a character device.
    pub(super) fn device(&mut self, path: &str, mode: u32, major: u32, minor: u32) {
        self.insert(path, CHARACTER_DEVICE | mode, (major, minor), Vec::new());
    }

    /// Whether the archive contains `path`.
    pub(super) fn contains(&self, path: &str) -> bool {
        self.entries.contains_key(&trimmed(path))
    }

    fn insert(&mut self, path: &str, mode: u32, device: (u32, u32), data: Vec<u8>) {
        self.parents(path);
        self.entries.insert(trimmed(path), Entry { mode, device, data });
    }

    fn parents(&mut self, path: &str) {
        let path = trimmed(path);
        for (at, _) in path.match_indices('/') {
            let folder = Entry { mode: FOLDER | 0o755, device: (0, 0), data: Vec::new() };
            self.entries.entry(path[..at].to_owned()).or_insert(folder);
        }
    }

    /// The bytes of the archive. Folders precede their contents, because the map is sorted.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let size: usize = self.entries.iter().map(|(name, entry)| name.len() + entry.data.len() + 120).sum();
        let mut out = Vec::with_capacity(size + 512);
        let end = Entry { mode: 0, device: (0, 0), data: Vec::new() };
        let named = self.entries.iter().map(|(name, entry)| (name.as_str(), entry));
        for (inode, (name, entry)) in named.chain([("TRAILER!!!", &end)]).enumerate() {
            append(&mut out, inode as u32 + 1, name, entry);
        }
        out
    }
}

fn append(out: &mut Vec<u8>, inode: u32, name: &str, entry: &Entry) {
    let links = if entry.mode & FOLDER == FOLDER { 2 } else { 1 };
    let (size, name_size) = (entry.data.len() as u32, name.len() as u32 + 1);
    let (major, minor) = entry.device;
    // Fields: magic, inode, mode, uid, gid, links, mtime, size, device that contains the file (2), device number of the
    // file (2), size of the name, check.
    let fields = [inode, entry.mode, 0, 0, links, 0, size, 0, 0, major, minor, name_size, 0];
    out.extend_from_slice(b"070701");
    for field in fields {
        out.extend_from_slice(format!("{field:08X}").as_bytes());
    }
    out.extend_from_slice(name.as_bytes());
    out.push(0);
    pad(out);
    out.extend_from_slice(&entry.data);
    pad(out);
}

fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(4), 0);
}

fn trimmed(path: &str) -> String {
    path.trim_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    #[test]
    fn the_layout_is_newc() {
        let mut archive = Archive::default();
        archive.file("a", 0o644, b"hello".to_vec());
        let bytes = archive.bytes();
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.starts_with(
            "07070100000001000081A4000000000000000000000001000000000000000500000000000000000000000000000000\
             0000000200000000a\0"
        ));
        // 110 bytes of header and "a\0" are padded to 112; five bytes of data are padded to 8.
        assert_eq!(&bytes[112..120], b"hello\0\0\0");
        assert_eq!(bytes.len(), 120 + 124);
        assert!(text.contains("TRAILER!!!"));
    }

    #[test]
    fn parents_appear_and_precede() {
        let mut archive = Archive::default();
        archive.link("/usr/bin/sh", "/bin/busybox");
        archive.device("dev/null", 0o666, 1, 3);
        archive.folder("proc");
        let names: Vec<_> = archive.entries.keys().cloned().collect();
        assert_eq!(names, ["dev", "dev/null", "proc", "usr", "usr/bin", "usr/bin/sh"]);
        assert!(archive.contains("/usr/bin") && !archive.contains("bin"));
    }

    /// Tests with the program cpio if it is installed.
    #[test]
    fn cpio_lists_it() {
        let mut archive = Archive::default();
        archive.file("etc/modules", 0o600, vec![b'x'; 1001]);
        archive.link("bin/sh", "busybox");
        let child = Command::new("cpio")
            .args(["-t"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut child) = child else {
            testkit::skip("there is no cpio to compare with");
            return;
        };
        child.stdin.take().unwrap().write_all(&archive.bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "bin\nbin/sh\netc\netc/modules\n");
        assert!(output.status.success());
    }
}
