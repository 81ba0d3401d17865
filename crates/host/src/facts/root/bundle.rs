//! Bundles of many small files. The snapshot script writes them, because a shell opens a file faster than it starts a
//! process.

use std::collections::BTreeMap;

use super::tree::{MAX_SIZE, Tree};

/// Maximum number of paths of a bundle. The bundle of a host with 512 CPUs has fewer than 100,000.
const MAX_PATHS: usize = 2_000_000;

/// Puts the files of a bundle into a tree. `paths` lists the files, `lines` has their contents as `path:line` (as grep
/// prints them), `links` has lines of `ls -ld`. A file without a line could not be read, or was empty. Returns whether
/// everything was put there: not what exceeds [`MAX_PATHS`] or [`MAX_SIZE`].
pub(super) fn expand(tree: &mut Tree, place: &str, paths: &str, lines: &str, links: &str) -> bool {
    let mut paths = paths.lines().filter(|path| path.starts_with('/'));
    let mut files: BTreeMap<&str, String> = paths.by_ref().take(MAX_PATHS).map(|path| (path, String::new())).collect();
    let all_listed = paths.next().is_none();
    for line in lines.lines() {
        // PCI addresses contain colons too. So the path is the part before a colon that is in the list of paths.
        let mut ends = line.match_indices(':').map(|(at, _)| at);
        if let Some(end) = ends.find(|end| files.contains_key(&line[..*end]))
            && let Some(text) = files.get_mut(&line[..end])
        {
            text.push_str(&line[end + 1..]);
            text.push('\n');
        }
    }
    for (path, text) in files {
        if tree.size() + text.len() > MAX_SIZE {
            return false;
        }
        let path = format!("{place}{}", &path[1..]);
        match text.is_empty() {
            true => tree.insert_refused(&path),
            false => tree.insert_file(&path, text.as_bytes()),
        }
    }
    for line in links.lines() {
        if tree.size() > MAX_SIZE {
            return false;
        }
        if let Some((path, target)) = line.split_once(" -> ")
            && let Some(at) = path.find(" /")
        {
            tree.note_link(&format!("{place}{}", &path[at + 2..]), target);
        }
    }
    all_listed
}
