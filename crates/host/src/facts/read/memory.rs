//! Memory: `/proc/meminfo`, huge pages, transparent huge pages, KSM, swap, mounts, modules.

use std::collections::BTreeMap;

use super::smbios;
use crate::facts::{Context, Fact, HugePages, Memory, MemoryModule, Mount, Root, Source, Swap};

const MM: &str = "sys/kernel/mm";
const EDAC: &str = "sys/devices/system/edac/mc";
/// Maximum number of lines that are read from the list of mounts.
const MAX_MOUNTS: usize = 10_000;

pub(super) fn read(context: &Context) -> Memory {
    let root = context.root;
    let info = root.text("proc/meminfo").map(|text| meminfo(&text));
    let pools = huge_pages(root, &format!("{MM}/hugepages"));
    Memory {
        huge_pages: if pools.is_empty() { default_pool(&info) } else { pools },
        meminfo: info,
        thp_enabled: chosen(root, &format!("{MM}/transparent_hugepage/enabled")),
        thp_defrag: chosen(root, &format!("{MM}/transparent_hugepage/defrag")),
        khugepaged_defrag: root.switch(&format!("{MM}/transparent_hugepage/khugepaged/defrag")),
        ksm_run: root.number(&format!("{MM}/ksm/run")),
        ksm_pages_shared: root.number(&format!("{MM}/ksm/pages_shared")),
        swaps: root.text("proc/swaps").map(|text| swaps(&text)),
        mounts: root.text("proc/mounts").or_else(|| root.text("proc/self/mounts")).map(|text| mounts(&text)),
        modules: modules(root),
        edac: controllers(root),
        scrub_rate: controllers(root).map(|names| {
            let rate = |name: &String| root.number(&format!("{EDAC}/{name}/sdram_scrub_rate")).into_value();
            names.iter().filter_map(rate).collect()
        }),
    }
}

/// Parses lines such as `MemTotal:  196466432 kB`. Sizes become bytes; numbers without a unit stay unchanged.
pub(crate) fn meminfo(text: &str) -> BTreeMap<String, u64> {
    let line = |line: &str| {
        let (name, value) = line.split_once(':')?;
        let mut words = value.split_ascii_whitespace();
        let number: u64 = words.next()?.parse().ok()?;
        let unit = if words.next() == Some("kB") { 1024 } else { 1 };
        Some((name.trim().to_owned(), number.checked_mul(unit)?))
    };
    text.lines().filter_map(line).collect()
}

/// Reads the pools of huge pages from the subdirectories `hugepages-SIZEkB` of a directory.
pub(super) fn huge_pages(root: &Root, place: &str) -> Vec<HugePages> {
    let names = root.list(place).into_value().unwrap_or_default();
    let size = |name: &str| name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<u64>().ok()?.checked_mul(1024);
    let pool = |name: &String| {
        let page_bytes = size(name)?;
        let file = |what: &str| root.number(&format!("{place}/{name}/{what}"));
        let (total, free, surplus) = (file("nr_hugepages"), file("free_hugepages"), file("surplus_hugepages"));
        Some(HugePages { page_bytes, total, free, surplus })
    };
    let mut pools: Vec<HugePages> = names.iter().filter_map(pool).collect();
    pools.sort_by_key(|pool| pool.page_bytes);
    pools
}

/// The pool of huge pages of the default size, from /proc/meminfo.
fn default_pool(info: &Fact<BTreeMap<String, u64>>) -> Vec<HugePages> {
    let Some(info) = info.value() else { return Vec::new() };
    let Some(page_bytes) = info.get("Hugepagesize") else { return Vec::new() };
    let amount = |name: &str| match info.get(name) {
        Some(n) => Fact::known(*n, "/proc/meminfo"),
        None => Fact::not_recorded("/proc/meminfo"),
    };
    let (total, free, surplus) = (amount("HugePages_Total"), amount("HugePages_Free"), amount("HugePages_Surp"));
    vec![HugePages { page_bytes: *page_bytes, total, free, surplus }]
}

/// Reads the selected option, which is the word in brackets: `always [madvise] never`.
pub(super) fn chosen(root: &Root, path: &str) -> Fact<String> {
    root.text(path).parse(|text| {
        let word = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(word, _)| word.to_owned());
        word.ok_or_else(|| format!("no choice is marked in {text:?}"))
    })
}

/// Parses /proc/swaps: a heading, then lines such as `/dev/dm-1  partition  8388604  0  -2`, in kB.
pub(crate) fn swaps(text: &str) -> Vec<Swap> {
    let line = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (name, kind) = (words.next()?.to_owned(), words.next()?.to_owned());
        let mut kilobytes = || words.next()?.parse::<u64>().ok()?.checked_mul(1024);
        Some(Swap { name, kind, size_bytes: kilobytes()?, used_bytes: kilobytes()? })
    };
    text.lines().skip(1).filter_map(line).collect()
}

/// Parses lines such as `hugetlbfs /dev/hugepages hugetlbfs rw,relatime,pagesize=2M 0 0`.
pub(crate) fn mounts(text: &str) -> Vec<Mount> {
    let line = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(1).map(str::to_owned);
        Some(Mount { place: words.next()?, kind: words.next()?, options: words.next()? })
    };
    text.lines().take(MAX_MOUNTS).filter_map(line).collect()
}

fn controllers(root: &Root) -> Fact<Vec<String>> {
    root.list(EDAC).map(|names| {
        let controllers = names.into_iter();
        controllers.filter(|name| name.strip_prefix("mc").is_some_and(|n| n.parse::<u32>().is_ok())).collect()
    })
}

/// Reads the memory modules from the firmware's table, or from `dmidecode -t memory` in a recording.
pub(crate) fn modules(root: &Root) -> Fact<Vec<MemoryModule>> {
    let table = root.bytes("sys/firmware/dmi/tables/DMI", crate::facts::root::FILE_LIMIT);
    let recorded = || {
        let text = root.command("dmidecode -t 17").or_else(|| root.command("dmidecode"));
        text.map(|text| smbios::modules_in_text(&text))
    };
    table.map(|table| smbios::modules(&table)).or_else(recorded)
}

/// Sum of the corrected errors of all memory controllers. Absent if there is no controller.
pub(super) fn corrected_errors(root: &Root, place: &str) -> Fact<u64> {
    let edac = format!("{place}{EDAC}");
    root.list(&edac).and_then(|names| {
        let count = |name: &String| root.number::<u64>(&format!("{edac}/{name}/ce_count")).into_value();
        let counts: Vec<u64> = names.iter().filter_map(count).collect();
        let source = Source::new(format!("/{edac}/mc*/ce_count"));
        if counts.is_empty() { Fact::absent(source) } else { Fact::known(counts.iter().sum(), source) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Facts;

    #[test]
    fn sizes_are_bytes_and_counts_are_counts() {
        let info = meminfo("MemTotal:       2048 kB\nHugePages_Total:      16\nHugepagesize:    1048576 kB\nbad\n");
        assert_eq!(info["MemTotal"], 2 << 20);
        assert_eq!((info["HugePages_Total"], info["Hugepagesize"]), (16, 1 << 30));
    }

    #[test]
    fn the_choice_is_the_word_in_brackets() {
        let place = "sys/kernel/mm/transparent_hugepage/enabled";
        let memory = Facts::read(&Root::given([(place, "always [madvise] never\n")])).memory;
        assert_eq!(memory.thp_enabled.value().map(String::as_str), Some("madvise"));
        let memory = Facts::read(&Root::given([(place, "never\n")])).memory;
        assert!(memory.thp_enabled.is_unknown());
    }

    #[test]
    fn swaps_and_mounts() {
        let areas = swaps("Filename Type Size Used Priority\n/dev/dm-1 partition 8388604 16 -2\ntorn");
        assert_eq!((areas.len(), areas[0].size_bytes, areas[0].used_bytes), (1, 8388604 * 1024, 16384));
        let mounts = mounts("nodev /dev/hugepages hugetlbfs rw,pagesize=1024M 0 0\n");
        assert_eq!((mounts[0].kind.as_str(), mounts[0].options.as_str()), ("hugetlbfs", "rw,pagesize=1024M"));
    }
}
