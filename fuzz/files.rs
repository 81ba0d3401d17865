//! Files of a host in a fuzzer's octets.

/// A file for each parser.
pub const FILES: [&str; 66] = [
    "apus-snapshot",
    "again/proc/interrupts",
    "again/proc/uptime",
    "boot/loader.conf",
    "boot/loader/entries/a.conf",
    "bundle/lines",
    "bundle/links",
    "bundle/paths",
    "commands/cpuset_-g_-x",
    "commands/dmesg",
    "commands/dmidecode_-t_17",
    "commands/ethtool_--per-queue_eth0_--show-coalesce",
    "commands/ethtool_--show-eee_eth0",
    "commands/ethtool_--show-fec_eth0",
    "commands/ethtool_--show-priv-flags_eth0",
    "commands/ethtool_-S_eth0",
    "commands/ethtool_-T_eth0",
    "commands/ethtool_-a_eth0",
    "commands/ethtool_-c_eth0",
    "commands/ethtool_-g_eth0",
    "commands/ethtool_-i_eth0",
    "commands/ethtool_-k_eth0",
    "commands/ethtool_-l_eth0",
    "commands/ethtool_-n_eth0",
    "commands/ethtool_-x_eth0",
    "commands/ethtool_eth0",
    "commands/ifconfig_-a",
    "commands/lspci_-nnvv",
    "commands/netdev_eth0",
    "commands/pciconf_-l",
    "commands/sysctl_-a",
    "commands/systemctl_list-units",
    "commands/tc_qdisc_show_dev_eth0",
    "commands/top_-bSH",
    "commands/vmstat_-i",
    "denied",
    "etc/default/grub",
    "etc/kubernetes/kubelet.conf",
    "etc/systemd/system.conf",
    "msr/0x1fc",
    "proc/cmdline",
    "proc/config.gz",
    "proc/cpuinfo",
    "proc/interrupts",
    "proc/irq/5/smp_affinity_list",
    "proc/irq/default_smp_affinity",
    "proc/meminfo",
    "proc/mounts",
    "proc/net/snmp",
    "proc/net/softnet_stat",
    "proc/softirqs",
    "proc/stat",
    "proc/swaps",
    "proc/uptime",
    "proc/version",
    "sys/bus/pci/devices/0000:01:00.0/config",
    "sys/bus/pci/devices/0000:01:00.0/current_link_speed",
    "sys/devices/system/cpu/cpufreq/policy0/affected_cpus",
    "sys/devices/system/cpu/online",
    "sys/devices/system/node/node0/meminfo",
    "sys/firmware/dmi/tables/DMI",
    "sys/fs/cgroup/cpu.max",
    "sys/fs/resctrl/schemata",
    "tasks/cgroup",
    "tasks/stat",
    "tasks/status",
];

/// Files follow one another, each as its number in the list (one octet), its length (two, the lower first), and its
/// contents.
pub fn split(data: &[u8]) -> Vec<(&'static str, &[u8])> {
    let mut files = Vec::new();
    let mut rest = data;
    while let [which, low, high, more @ ..] = rest {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(more.len());
        let (contents, behind) = more.split_at(length);
        files.push((FILES[usize::from(*which) % FILES.len()], contents));
        rest = behind;
    }
    files
}
