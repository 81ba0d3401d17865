//! The manifest of a snapshot: the file in which the snapshot describes itself.

/// The contents of the file `apus-snapshot`: a first line with the format's number, then `key: value` lines.
#[derive(Debug, Default)]
pub(crate) struct Manifest {
    /// Whether there is a manifest.
    pub is_there: bool,
    /// When the recording was taken. `None` if the manifest does not say.
    pub taken: Option<String>,
    /// Whether the snapshot was cut short. If so, a missing file does not prove that the host lacks it.
    pub cut_short: bool,
    /// Patterns of the paths that the snapshot looked for, split at the slashes. `*` stands for any string within one
    /// path component.
    looked: Vec<Vec<String>>,
}

/// Maximum number of patterns that are read.
const MAX_PATTERNS: usize = 10_000;

impl Manifest {
    pub(super) fn parse(text: &str) -> Self {
        let mut manifest = Self { is_there: true, ..Self::default() };
        for line in text.lines() {
            match line.split_once(": ") {
                Some(("taken", value)) => manifest.taken = Some(value.trim().chars().take(40).collect()),
                Some(("complete", value)) => manifest.cut_short = value.trim() == "no",
                Some(("looked", path)) if manifest.looked.len() < MAX_PATTERNS => {
                    let parts = path.trim().trim_start_matches('/').split('/');
                    manifest.looked.push(parts.map(str::to_owned).collect());
                }
                _ => {}
            }
        }
        manifest
    }

    /// Whether the snapshot looked for this path, or for a path below it, in either reading.
    pub(super) fn looked_for(&self, path: &str) -> bool {
        if self.cut_short || self.looked.is_empty() {
            return false;
        }
        let path = path.strip_prefix("again/").unwrap_or(path);
        let parts: Vec<&str> = path.split('/').collect();
        let fits = |pattern: &Vec<String>| {
            pattern.len() >= parts.len() && pattern.iter().zip(&parts).all(|(pattern, part)| matches(pattern, part))
        };
        self.looked.iter().any(fits)
    }
}

/// Whether a path component matches a pattern: `cpu*` matches `cpu7`, and `*_affinity_list` matches
/// `smp_affinity_list`. Only the first `*` is a wildcard.
fn matches(pattern: &str, part: &str) -> bool {
    match pattern.split_once('*') {
        Some((start, end)) => part.len() >= start.len() + end.len() && part.starts_with(start) && part.ends_with(end),
        None => pattern == part,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_paths_and_folders_above_them() {
        let manifest = Manifest::parse("apus-snapshot 1\nlooked: proc/irq/*/smp_*\nlooked: /sys/x\ntaken: 2026\n");
        for path in ["proc/irq/7/smp_affinity_list", "proc/irq/7", "again/sys/x"] {
            assert!(manifest.looked_for(path), "{path}");
        }
        for path in ["proc/irq/7/node", "sys/x/y", "sys/xy"] {
            assert!(!manifest.looked_for(path), "{path}");
        }
        assert_eq!(manifest.taken.as_deref(), Some("2026"));
        assert!(!Manifest::parse("complete: no\nlooked: sys/x\n").looked_for("sys/x"));
    }
}
