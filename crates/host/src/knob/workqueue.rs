//! Files that hold a mask of CPUs: workqueues, writeback, RPS and XPS.
//!
//! Source: kernel documentation, core-api/workqueue, "Affinity Scopes", and
//! admin-guide/kernel-per-CPU-kthreads.

use rustix::thread::CapabilitySet;
use serde::{Deserialize, Serialize};

use super::file::text;
use super::irq::{check_mask, mask, same_mask};
use super::{Access, Error, Setting, Value, is_file_of_network};
use crate::facts::CpuSet;

/// A file in sysfs that contains a mask of CPUs.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct CpuMask {
    /// The path of the file.
    pub path: String,
}

impl CpuMask {
    /// Makes the setting for the file at `path`.
    pub fn new(path: impl Into<String>) -> Self {
        Self { path: path.into() }
    }

    /// Makes the setting for the CPUs on which work that is not bound to a CPU may run
    /// (`/sys/devices/virtual/workqueue/cpumask`).
    pub fn workqueues() -> Self {
        Self::new("/sys/devices/virtual/workqueue/cpumask")
    }

    /// Makes the setting for the CPUs on which the work of workqueue `name` may run, such as `writeback` or
    /// `efi_runtime`.
    pub fn workqueue(name: &str) -> Self {
        Self::new(format!("/sys/devices/virtual/workqueue/{name}/cpumask"))
    }

    /// The setting's value for the CPUs `cpus`, as a mask.
    pub fn value(cpus: &CpuSet) -> Value {
        Value::Text(cpus.to_mask())
    }
}

impl Setting for CpuMask {
    fn label(&self) -> String {
        self.path.clone()
    }

    fn line_file(&self) -> Option<String> {
        Some(self.path.clone())
    }

    fn admit(&self) -> Result<(), Error> {
        let parts: Vec<&str> = self.path.split('/').skip(1).collect();
        let known = match parts[..] {
            ["sys", "devices", "virtual", "workqueue", .., "cpumask"]
            | ["sys", "bus", "workqueue", "devices", _, "cpumask"] => true,
            [.., "queues", _, name] => {
                is_file_of_network(&self.path) && matches!(name, "rps_cpus" | "xps_cpus" | "xps_rxqs")
            }
            _ => false,
        };
        if known && super::is_plain(&self.path) {
            return Ok(());
        }
        Err(Error::invalid(&self.path, "expected the mask of a workqueue, or rps_cpus or xps_cpus of a queue"))
    }

    /// Accepts an empty mask only for RPS and XPS, where it turns steering off. For a workqueue, the kernel rejects an
    /// empty mask.
    fn check(&self, _: &Access, value: &Value) -> Result<(), Error> {
        self.admit()?;
        if self.path.contains("/queues/") && text(&self.path, value).is_ok_and(|text| mask(text).is_some()) {
            return Ok(());
        }
        check_mask(&self.path, value)
    }

    fn same(&self, _: Option<&str>, a: &str, b: &str) -> bool {
        same_mask(a, b)
    }

    fn capability(&self) -> CapabilitySet {
        // net/core/net-sysfs.c requires this capability in addition to the file's mode.
        if is_file_of_network(&self.path) { CapabilitySet::NET_ADMIN } else { CapabilitySet::empty() }
    }

    fn is_of_network(&self) -> bool {
        is_file_of_network(&self.path)
    }

    fn identity(&self, access: &Access) -> Result<Option<String>, Error> {
        super::interface::identity_of_path(access, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knob::Knob;
    use crate::testing::Folder;

    #[test]
    fn padded_and_bare_masks_are_equal() {
        let folder = Folder::new(&[("sys/devices/virtual/workqueue/writeback/cpumask", "00000000,00000003\n")]);
        let knob = Knob(CpuMask::workqueue("writeback"));
        let wanted = CpuMask::value(&"0-1".parse().unwrap());
        assert!(knob.verify(&folder.access(), &wanted, None).unwrap().is_good());
        assert!(knob.set(&folder.access(), &Value::text("0")).is_err());
    }
}
