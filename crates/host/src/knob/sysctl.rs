//! Kernel parameters below /proc/sys.

use rustix::thread::CapabilitySet;
use serde::{Deserialize, Serialize};

use super::file::text;
use super::{Access, Error, Setting, Value};

/// A kernel parameter, such as `net.core.busy_poll`.
///
/// Dots separate the parts of the name. A slash stands for a dot inside a part (`net.ipv4.conf.eth0/100.rp_filter`), as
/// in sysctl(8). Parameters below `net` belong to the network namespace of the calling thread.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Sysctl {
    /// Dotted name of the sysctl.
    pub name: String,
}

impl Sysctl {
    /// Makes the setting for the parameter `name`.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }

    /// Makes the setting for the parameter at `path` below /proc/sys, such as `net/ipv4/conf/eth0.100/rp_filter`.
    pub(super) fn at(path: &str) -> Self {
        Self { name: swapped(path) }
    }

    /// Path of the file below `/proc/sys` that holds the value.
    pub fn path(&self) -> String {
        format!("/proc/sys/{}", swapped(&self.name))
    }
}

/// Exchanges the dots and slashes of a string.
fn swapped(text: &str) -> String {
    let swapped = text.chars().map(|c| match c {
        '.' => '/',
        '/' => '.',
        other => other,
    });
    swapped.collect()
}

impl Setting for Sysctl {
    fn label(&self) -> String {
        format!("sysctl {}", self.name)
    }

    fn read(&self, access: &Access) -> Result<Option<Value>, Error> {
        Ok(access.line(&self.path())?.map(Value::Text))
    }

    fn write(&self, access: &Access, value: &Value) -> Result<(), Error> {
        access.write(&self.path(), text(&self.name, value)?)
    }

    fn admit(&self) -> Result<(), Error> {
        let path = self.path();
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        if parts.len() < 4 || parts.iter().any(|part| matches!(*part, "" | "." | "..")) {
            return Err(Error::invalid(self.label(), "expected a name such as net.core.busy_poll"));
        }
        Ok(())
    }

    fn check(&self, _: &Access, value: &Value) -> Result<(), Error> {
        self.admit()?;
        text(&self.name, value).map(|_| ())
    }

    fn capability(&self) -> CapabilitySet {
        // These sysctls need CAP_SYS_ADMIN in addition to the file's mode (kernel/sysctl.c,
        // proc_dointvec_minmax_sysadmin).
        const OF_THE_ADMINISTRATOR: [&str; 3] = ["kernel.printk", "kernel.dmesg_restrict", "kernel.kptr_restrict"];
        match self.name.as_str() {
            name if name.starts_with("net.") => CapabilitySet::NET_ADMIN,
            name if OF_THE_ADMINISTRATOR.contains(&name) => CapabilitySet::SYS_ADMIN,
            _ => CapabilitySet::empty(),
        }
    }

    fn is_of_network(&self) -> bool {
        self.name.starts_with("net.")
    }

    fn identity(&self, access: &Access) -> Result<Option<String>, Error> {
        super::interface::identity_of_path(access, &self.path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knob::Knob;
    use crate::testing::Folder;

    #[test]
    fn names_become_paths() {
        assert_eq!(Sysctl::new("kernel.nmi_watchdog").path(), "/proc/sys/kernel/nmi_watchdog");
        assert_eq!(
            Sysctl::new("net.ipv4.conf.eth0/100.rp_filter").path(),
            "/proc/sys/net/ipv4/conf/eth0.100/rp_filter"
        );
    }

    #[test]
    fn lists_of_numbers_are_compared_as_such() {
        let folder = Folder::new(&[("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n")]);
        let knob = Knob(Sysctl::new("net.ipv4.tcp_rmem"));
        assert!(knob.verify(&folder.access(), &Value::text("4096 131072 6291456"), None).unwrap().is_good());
    }

    #[test]
    fn no_name_leads_out() {
        let folder = Folder::new(&[("proc/sys/kernel/a", "1\n"), ("proc/b", "1\n")]);
        for name in ["kernel", "", ".", "kernel..a", "//.b"] {
            assert!(Knob(Sysctl::new(name)).set(&folder.access(), &Value::text("2")).is_err(), "{name:?} was taken");
        }
        assert_eq!(folder.read("proc/b"), "1\n");
    }
}
