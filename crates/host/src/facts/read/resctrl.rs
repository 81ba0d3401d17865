//! Cache and bandwidth allocation: `/sys/fs/resctrl` (Documentation/filesystems/resctrl.rst).

use std::collections::BTreeMap;

use crate::facts::{Context, Memory, Resctrl, ResctrlGroup, Root};

const PLACE: &str = "sys/fs/resctrl";
/// Maximum number of groups that are read. Hardware supports a few dozen.
const MAX_GROUPS: usize = 512;

pub(super) fn read(context: &Context, memory: &Memory) -> Resctrl {
    let root = context.root;
    let mounted = memory.is_mounted("resctrl");
    let info = |name: &str| format!("{PLACE}/info/L3/{name}");
    let mask = |name: &str| root.text(&info(name)).parse(|text| u64::from_str_radix(&text, 16));
    let groups = root.text(&format!("{PLACE}/schemata")).map(|_| groups(root));
    Resctrl {
        mounted: groups.as_ref().map(|_| true).or_else(|| mounted),
        groups,
        l3_mask: mask("cbm_mask"),
        l3_shareable: mask("shareable_bits"),
        l3_groups: root.number(&info("num_closids")),
    }
}

fn groups(root: &Root) -> Vec<ResctrlGroup> {
    let names = root.directories(PLACE).into_value().unwrap_or_default();
    let others = names.into_iter().filter(|name| !matches!(name.as_str(), "info" | "mon_data" | "mon_groups"));
    let read = |name: String| {
        let place = format!("{PLACE}/{name}");
        let schemata = root.text(&format!("{place}/schemata")).into_value()?;
        let cpus = root.cpu_list(&format!("{place}/cpus_list")).into_value().unwrap_or_default();
        Some(ResctrlGroup {
            name: if name.is_empty() { "/".into() } else { name },
            cpus,
            schemata: schemata_of(&schemata),
        })
    };
    std::iter::once(String::new()).chain(others.take(MAX_GROUPS)).filter_map(read).collect()
}

/// Parses allocations: `L3:0=7ff;1=7ff` in hexadecimal, `MB:0=100;1=100` in decimal.
pub(crate) fn schemata_of(text: &str) -> BTreeMap<String, BTreeMap<u32, u64>> {
    let resource = |line: &str| {
        let (name, domains) = line.trim().split_once(':')?;
        let base = if name.trim().starts_with("MB") || name.trim().starts_with("SMBA") { 10 } else { 16 };
        let domain = |part: &str| {
            let (domain, value) = part.split_once('=')?;
            Some((domain.trim().parse().ok()?, u64::from_str_radix(value.trim(), base).ok()?))
        };
        Some((name.trim().to_owned(), domains.split(';').filter_map(domain).collect()))
    };
    text.lines().filter_map(resource).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{CpuSet, Facts};

    #[test]
    fn groups_with_masks_and_percentages() {
        let root = Root::given([
            ("sys/fs/resctrl/schemata", "    MB:0=100;1=50\n    L3:0=7ff;1=00f\n"),
            ("sys/fs/resctrl/cpus_list", "0-3\n"),
            ("sys/fs/resctrl/rt/schemata", "L3:0=f00;1=f00\n"),
            ("sys/fs/resctrl/rt/cpus_list", "4-7\n"),
            ("sys/fs/resctrl/info/L3/cbm_mask", "fff\n"),
        ]);
        let resctrl = Facts::read(&root).resctrl;
        assert_eq!((resctrl.mounted.get(), resctrl.l3_mask.get()), (Some(true), Some(0xfff)));
        let groups = resctrl.groups.value().unwrap();
        assert_eq!(
            (groups[0].name.as_str(), groups[0].schemata["MB"][&1], groups[0].schemata["L3"][&1]),
            ("/", 50, 15)
        );
        assert_eq!((groups[1].name.as_str(), &groups[1].cpus), ("rt", &CpuSet::from([4, 5, 6, 7])));
    }

    #[test]
    fn mounted_or_not_by_the_list_of_mounts() {
        let of = |mounts| Facts::read(&Root::given([("proc/mounts", mounts)])).resctrl.mounted.get();
        assert_eq!(of("none / ext4 rw 0 0\n"), Some(false));
        assert_eq!(of("resctrl /sys/fs/resctrl resctrl rw 0 0\n"), Some(true));
        // An incomplete mount table does not show whether resctrl is mounted. The recordings emr0, gnr0 and spr1 have
        // tables of one line.
        assert_eq!(of("debugfs /sys/kernel/debug debugfs rw,relatime 0 0\n"), None);
        assert_eq!(Facts::read(&Root::given([("proc/cmdline", "")])).resctrl.mounted.get(), None);
    }
}
