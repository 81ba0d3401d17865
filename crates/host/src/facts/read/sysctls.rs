//! Values under `/proc/sys` that the rules use.

use std::collections::BTreeMap;

use crate::facts::{Fact, Root, Source};

/// The dotted names of the sysctls that are read. None of them contains a secret or an address.
pub(crate) const SYSCTLS: [&str; 73] = [
    "kernel.dmesg_restrict",
    "kernel.hung_task_timeout_secs",
    "kernel.io_uring_disabled",
    "kernel.nmi_watchdog",
    "kernel.numa_balancing",
    "kernel.panic",
    "kernel.perf_cpu_time_max_percent",
    "kernel.perf_event_paranoid",
    "kernel.printk",
    "kernel.sched_autogroup_enabled",
    "kernel.sched_latency_ns",
    "kernel.sched_migration_cost_ns",
    "kernel.sched_min_granularity_ns",
    "kernel.sched_rr_timeslice_ms",
    "kernel.sched_rt_period_us",
    "kernel.sched_rt_runtime_us",
    "kernel.sched_schedstats",
    "kernel.sched_wakeup_granularity_ns",
    "kernel.soft_watchdog",
    "kernel.softlockup_panic",
    "kernel.timer_migration",
    "kernel.watchdog",
    "kernel.watchdog_cpumask",
    "kernel.watchdog_thresh",
    "net.core.bpf_jit_enable",
    "net.core.bpf_jit_harden",
    "net.core.busy_poll",
    "net.core.busy_read",
    "net.core.default_qdisc",
    "net.core.dev_weight",
    "net.core.flow_limit_cpu_bitmap",
    "net.core.gro_normal_batch",
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.netdev_max_backlog",
    "net.core.netdev_tstamp_prequeue",
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.rps_default_mask",
    "net.core.rps_sock_flow_entries",
    "net.core.skb_defer_max",
    "net.core.somaxconn",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.ipv4.tcp_autocorking",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_fastopen",
    "net.ipv4.tcp_limit_output_bytes",
    "net.ipv4.tcp_low_latency",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_thin_linear_timeouts",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_wmem",
    "net.ipv4.udp_mem",
    "net.ipv4.udp_rmem_min",
    "net.netfilter.nf_conntrack_count",
    "net.netfilter.nf_conntrack_max",
    "vm.compaction_proactiveness",
    "vm.dirty_background_bytes",
    "vm.dirty_background_ratio",
    "vm.dirty_bytes",
    "vm.dirty_ratio",
    "vm.dirty_writeback_centisecs",
    "vm.max_map_count",
    "vm.min_free_kbytes",
    "vm.nr_hugepages",
    "vm.overcommit_memory",
    "vm.stat_interval",
    "vm.swappiness",
    "vm.vfs_cache_pressure",
    "vm.zone_reclaim_mode",
];

pub(super) fn read(root: &Root) -> BTreeMap<String, Fact<String>> {
    // Reports of sos contain the output of the command instead of the files.
    let printed = root.command("sysctl -a").map(|text| parse(&text));
    let one = |name: &&str| {
        let path = format!("proc/sys/{}", name.replace('.', "/"));
        let from_command = || {
            printed.as_ref().and_then(|all| match all.get(*name) {
                Some(value) => Fact::known(value.clone(), Source::new(format!("sysctl {name}"))),
                None => Fact::not_recorded(Source::new(format!("sysctl {name}"))),
            })
        };
        ((*name).to_string(), root.text(&path).or_else(from_command))
    };
    SYSCTLS.iter().map(one).collect()
}

/// Parses `name = value` lines of Linux and `name: value` lines of FreeBSD. A value can span several lines.
pub(crate) fn parse(text: &str) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    let mut last: Option<String> = None;
    for line in text.lines() {
        let split = line
            .split_once(" = ")
            .or_else(|| line.split_once(": "))
            .or_else(|| line.strip_suffix(" =").or(line.strip_suffix(':')).map(|name| (name, "")));
        let named = split.filter(|(name, _)| is_name(name));
        match (named, &last) {
            (Some((name, value)), _) => {
                all.insert(name.to_owned(), value.trim().to_owned());
                last = Some(name.to_owned());
            }
            (None, Some(name)) => {
                if let Some(value) = all.get_mut(name).filter(|value| value.len() < 1 << 16) {
                    value.push('\n');
                    value.push_str(line);
                }
            }
            (None, None) => {}
        }
    }
    all
}

fn is_name(text: &str) -> bool {
    let part = |part: &str| !part.is_empty() && part.bytes().all(|c| c.is_ascii_graphic() && c != b'=');
    text.contains('.') && text.split('.').all(part)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::facts::Facts;

    #[test]
    fn names_are_sorted_and_unique() {
        assert!(SYSCTLS.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn both_systems_lines_are_read() {
        let all = parse("kernel.version = #1 SMP\nhw.ixl.rx_itr: 62\nkern.x: a\n b\nnet.y =\nno name here\n");
        assert_eq!((all["kernel.version"].as_str(), all["hw.ixl.rx_itr"].as_str()), ("#1 SMP", "62"));
        assert_eq!((all["kern.x"].as_str(), all["net.y"].as_str()), ("a\n b", "\nno name here"));
    }

    #[test]
    fn a_value_is_known_by_its_dotted_name() {
        let facts = Facts::read(&Root::given([("proc/sys/kernel/sched_rt_runtime_us", "-1\n")]));
        assert_eq!(facts.sysctl_number("kernel.sched_rt_runtime_us").get(), Some(-1));
        assert!(facts.sysctl("vm.swappiness").is_unknown());
        let complete = Facts::read(&Root::given([("proc/sys/kernel/x", "")]).complete());
        assert!(complete.sysctl("vm.swappiness").is_absent());
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "([a-z.]{0,9}(: | = )?\\PC{0,9}\n){0,9}") {
            parse(&text);
        }
    }
}
