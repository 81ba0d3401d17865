//! Bundles of many small files. The snapshot script writes them, because a shell opens a file faster than it starts a
//! process.

use std::collections::BTreeMap;

use super::tree::Tree;

/// Puts the files of a bundle into a tree. `paths` lists the files, `lines` has their contents as `path:line` (as grep
/// prints them), `links` has lines of `ls -ld`. A file without a line could not be read, or was empty.
pub(super) fn expand(tree: &mut Tree, place: &str, paths: &str, lines: &str, links: &str) {
    let mut files: BTreeMap<&str, String> =
        paths.lines().filter(|path| path.starts_with('/')).map(|path| (path, String::new())).collect();
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
        let path = format!("{place}{}", &path[1..]);
        match text.is_empty() {
            true => tree.insert_refused(&path),
            false => tree.insert_file(&path, text.as_bytes()),
        }
    }
    for line in links.lines() {
        if let Some((path, target)) = line.split_once(" -> ")
            && let Some(at) = path.find(" /")
        {
            tree.note_link(&format!("{place}{}", &path[at + 2..]), target);
        }
    }
}
