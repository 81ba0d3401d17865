//! A FreeBSD host, as a snapshot holds it.

use std::collections::BTreeMap;

use super::Fact;

/// What is known of a FreeBSD host.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FreeBsd {
    /// `uname -r`: `14.2-RELEASE`.
    pub release: Fact<String>,
    /// `sysctl -a`, by name.
    pub sysctls: Fact<BTreeMap<String, String>>,
    /// `/boot/loader.conf` and its relatives, without quotes.
    pub loader: Fact<BTreeMap<String, String>>,
    /// `/etc/rc.conf` and its relatives, without quotes.
    pub rc: Fact<BTreeMap<String, String>>,
    /// `/etc/sysctl.conf`.
    pub sysctl_conf: Fact<BTreeMap<String, String>>,
    /// Interfaces (`ifconfig -a`).
    pub interfaces: Fact<Vec<BsdInterface>>,
    /// `vmstat -i`.
    pub interrupts: Fact<Vec<BsdInterrupt>>,
    /// Threads of interrupts and of the kernel (`top -bSHP`, `ps -axHo`).
    pub threads: Fact<Vec<BsdThread>>,
    /// Devices (`pciconf -l`): `ixl0` → `0x15838086`.
    pub pci: Fact<BTreeMap<String, String>>,
    /// CPUs of interrupts (`cpuset -g -x N`), by number.
    pub irq_cpus: BTreeMap<u32, Fact<super::CpuSet>>,
}

impl FreeBsd {
    /// A running value, with its source `sysctl NAME`.
    pub fn sysctl(&self, name: &str) -> Fact<&str> {
        lookup(&self.sysctls, name, "sysctl")
    }

    /// A tunable of the loader, with its source.
    pub fn tunable(&self, name: &str) -> Fact<&str> {
        lookup(&self.loader, name, "/boot/loader.conf:")
    }
}

fn lookup<'a>(from: &'a Fact<BTreeMap<String, String>>, name: &str, place: &str) -> Fact<&'a str> {
    let source = format!("{place} {name}");
    match from {
        Fact::Known { value, .. } => match value.get(name) {
            Some(value) => Fact::known(value.as_str(), source.as_str()),
            None => Fact::absent(source.as_str()),
        },
        Fact::Missing { why, .. } => Fact::missing(why.clone(), source.as_str()),
    }
}

/// An interface.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BsdInterface {
    /// `ixl0`.
    pub name: String,
    /// Flags such as `UP`, `RUNNING`.
    pub flags: Vec<String>,
    /// Options that are on: `RXCSUM`, `TSO4`, `LRO`.
    pub options: Vec<String>,
    /// Maximum transmission unit in octets.
    pub mtu: Option<u32>,
    /// `Ethernet autoselect (40Gbase-CR4 <full-duplex>)`.
    pub media: Option<String>,
}

/// A line of `vmstat -i`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BsdInterrupt {
    /// `irq293: ixl1:q2`.
    pub name: String,
    /// Since boot.
    pub total: u64,
    /// Per second, since boot.
    pub rate: u64,
}

/// A thread in `top`'s list.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct BsdThread {
    /// `intr{irq293: ixl1:q2}`.
    pub name: String,
    /// The CPU that it runs on.
    pub cpu: Option<u32>,
    /// Share of one CPU, in hundredths of a percent (50.98 % is 5098).
    pub cpu_permyriad: u32,
}
