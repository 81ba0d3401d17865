//! A FreeBSD host, as recorded in a snapshot.

use std::collections::BTreeMap;

use super::Fact;

/// The facts of a FreeBSD host.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FreeBsd {
    /// The release, from `uname -r`: `14.2-RELEASE`.
    pub release: Fact<String>,
    /// Current values by name, from `sysctl -a`.
    pub sysctls: Fact<BTreeMap<String, String>>,
    /// Loader tunables of `/boot/loader.conf` and related files, without quotes.
    pub loader: Fact<BTreeMap<String, String>>,
    /// Settings of `/etc/rc.conf` and related files, without quotes.
    pub rc: Fact<BTreeMap<String, String>>,
    /// Settings in `/etc/sysctl.conf`.
    pub sysctl_conf: Fact<BTreeMap<String, String>>,
    /// Network interfaces, from `ifconfig -a`.
    pub interfaces: Fact<Vec<BsdInterface>>,
    /// Interrupt totals and rates, from `vmstat -i`.
    pub interrupts: Fact<Vec<BsdInterrupt>>,
    /// Threads with their CPU usage (`top -bSHP`, `ps -axHo`).
    pub threads: Fact<Vec<BsdThread>>,
    /// PCI devices by name, each with its device and vendor ID (`pciconf -l`): `ixl0` has `0x15838086`.
    pub pci: Fact<BTreeMap<String, String>>,
    /// The CPUs that may handle each interrupt (`cpuset -g -x N`), by interrupt number.
    pub irq_cpus: BTreeMap<u32, Fact<super::CpuSet>>,
}

impl FreeBsd {
    /// The current value of a sysctl; its source is `sysctl NAME`.
    pub fn sysctl(&self, name: &str) -> Fact<&str> {
        lookup(&self.sysctls, name, "sysctl")
    }

    /// A loader tunable, with its source.
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

/// A network interface.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BsdInterface {
    /// Name of the interface, for example `ixl0`.
    pub name: String,
    /// Flags of the interface, such as `UP` and `RUNNING`.
    pub flags: Vec<String>,
    /// Options that are enabled: `RXCSUM`, `TSO4`, `LRO`.
    pub options: Vec<String>,
    /// Maximum transmission unit in bytes.
    pub mtu: Option<u32>,
    /// The media line: `Ethernet autoselect (40Gbase-CR4 <full-duplex>)`.
    pub media: Option<String>,
}

/// A line of `vmstat -i`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BsdInterrupt {
    /// Name of the interrupt, for example `irq293: ixl1:q2`.
    pub name: String,
    /// Number of interrupts since boot.
    pub total: u64,
    /// Mean number of interrupts per second since boot.
    pub rate: u64,
}

/// A thread in the output of `top`.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct BsdThread {
    /// Name of the thread, for example `intr{irq293: ixl1:q2}`.
    pub name: String,
    /// The CPU on which the thread runs.
    pub cpu: Option<u32>,
    /// Share of one CPU, in hundredths of a percent (50.98 % is 5098).
    pub cpu_permyriad: u32,
}
