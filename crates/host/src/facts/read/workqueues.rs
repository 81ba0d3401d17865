//! Workqueues: `/sys/devices/virtual/workqueue` (Documentation/core-api/workqueue.rst).

use crate::facts::{Context, Workqueues};

const PLACE: &str = "sys/devices/virtual/workqueue";
/// Maximum number of workqueues that are read.
const MAX_QUEUES: usize = 4096;

pub(super) fn read(context: &Context) -> Workqueues {
    let root = context.root;
    let mask = |name: &str| root.cpu_mask(&format!("{PLACE}/{name}"));
    let names = root.directories(PLACE).into_value().unwrap_or_default();
    let mut each: std::collections::BTreeMap<_, _> = names
        .into_iter()
        .filter(|name| name != "power")
        .take(MAX_QUEUES)
        .map(|name| (name.clone(), mask(&format!("{name}/cpumask"))))
        .filter(|(_, mask)| !mask.is_absent())
        .collect();
    // The older name of the same directory.
    let writeback = root.cpu_mask("sys/bus/workqueue/devices/writeback/cpumask");
    if writeback.is_known() {
        each.entry("writeback".into()).or_insert(writeback);
    }
    Workqueues {
        cpumask: mask("cpumask"),
        requested: mask("cpumask_requested"),
        isolated: mask("cpumask_isolated"),
        each,
    }
}

#[cfg(test)]
mod tests {
    use crate::facts::{CpuSet, Facts, Root};

    #[test]
    fn masks_of_all_and_of_each() {
        let root = Root::given([
            ("sys/devices/virtual/workqueue/cpumask", "3\n"),
            ("sys/devices/virtual/workqueue/writeback/cpumask", "f\n"),
            ("sys/devices/virtual/workqueue/writeback/nice", "0\n"),
        ]);
        let queues = Facts::read(&root).workqueues;
        assert_eq!(queues.cpumask.value(), Some(&CpuSet::from([0, 1])));
        assert_eq!(queues.each["writeback"].value(), Some(&CpuSet::from([0, 1, 2, 3])));
        assert!(queues.requested.is_unknown());
    }
}
