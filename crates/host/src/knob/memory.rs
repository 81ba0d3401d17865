//! Memory settings: huge pages, transparent huge pages, and merging of identical pages.
//!
//! Source: kernel documentation, admin-guide/mm/hugetlbpage, admin-guide/mm/transhuge, admin-guide/mm/ksm.

use serde::{Deserialize, Serialize};

use super::file::text;
use super::{Access, Error, File, Setting, Value};

/// Number of huge pages of one size, on one NUMA node or on all nodes.
///
/// If the kernel cannot reserve the requested number, for example because memory is fragmented, it reserves fewer pages
/// without reporting an error. Pages of 1 GB usually must be reserved at boot.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct HugePages {
    /// Size of a page in kB: 2048 or 1048576.
    pub size_kb: u64,
    /// The NUMA node. `None` spreads the pages over all nodes.
    pub node: Option<u32>,
}

impl HugePages {
    /// Makes the setting for pages of `size_kb` kB.
    pub const fn new(size_kb: u64, node: Option<u32>) -> Self {
        Self { size_kb, node }
    }

    fn path(&self) -> String {
        let folder = match self.node {
            Some(node) => format!("/sys/devices/system/node/node{node}/hugepages"),
            None => "/sys/kernel/mm/hugepages".into(),
        };
        format!("{folder}/hugepages-{}kB/nr_hugepages", self.size_kb)
    }
}

impl Setting for HugePages {
    fn label(&self) -> String {
        let node = self.node.map_or(String::new(), |node| format!(" on node {node}"));
        format!("huge pages of {} kB{node}", self.size_kb)
    }

    fn line_file(&self) -> Option<String> {
        Some(self.path())
    }

    fn check(&self, _: &Access, value: &Value) -> Result<(), Error> {
        let number = text(&self.label(), value)?.parse::<u64>();
        number.map(|_| ()).map_err(|_| Error::invalid(self.label(), format!("{value}: expected a number of pages")))
    }

    fn explain(&self, _: &Access, wanted: &Value, now: &Value) -> Option<String> {
        let number = |value: &Value| value.as_text()?.parse::<u64>().ok();
        Some(if number(now)? < number(wanted)? {
            "the kernel found no free memory for more: reserve them at boot (hugepagesz=, hugepages=)".into()
        } else {
            "the remaining pages are in use".into()
        })
    }
}

/// The setting for transparent huge pages: the file `enabled` (`always`, `madvise`, `never`) or `defrag`.
pub fn transparent_huge_pages(file: &str) -> File {
    File::new(format!("/sys/kernel/mm/transparent_hugepage/{file}"))
}

/// The setting for merging identical pages: `0` stops merging, `1` starts it, `2` stops it and separates all merged
/// pages.
pub fn kernel_same_page_merging() -> File {
    File::new("/sys/kernel/mm/ksm/run")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knob::{Knob, Verdict};
    use crate::testing::Folder;

    #[test]
    fn too_few_pages_are_told() {
        let pages = HugePages::new(1_048_576, Some(1));
        let folder = Folder::new(&[(&pages.path(), "3\n")]);
        let verdict = Knob(pages).verify(&folder.access(), &Value::text(8), Some(&Value::text(0))).unwrap();
        let Verdict::Otherwise { why: Some(why), .. } = verdict else { panic!("{verdict:?}") };
        assert!(why.contains("found no free memory"), "{why}");
    }
}
