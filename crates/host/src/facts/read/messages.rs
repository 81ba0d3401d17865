//! The kernel messages that the rules use.

use crate::facts::root::TABLE_LIMIT;
use crate::facts::{Context, Fact, live};

/// Maximum number of messages that are kept; the oldest are dropped.
const MAX_MESSAGES: usize = 20_000;

/// Parts of the messages that rules use, compared without regard to case. Other messages are not kept, because they can
/// contain names of users' disks, networks and programs.
pub(crate) const OF_INTEREST: [&str; 41] = [
    "aer:",
    "aspm",
    "clocksource",
    "correctable error",
    "cpuidle",
    "ddp package",
    "disabling irq",
    "dynticks",
    "edac",
    "firmware bug",
    "hardware error",
    "hpet",
    "hung_task",
    "hwlat",
    "hypervisor detected",
    "intel_idle",
    "intel_pstate",
    "interrupt took too long",
    "isolcpus",
    "link is down",
    "mce:",
    "microcode",
    "nmi handler",
    "no_hz",
    "nobody cared",
    "nohz_full",
    "nvm image",
    "offload rcu callbacks",
    "pcie bandwidth",
    "perf:",
    "rcu: info",
    "rcu_sched",
    "recovery mode",
    "soft lockup",
    "sr-iov",
    "temperature",
    "throttl",
    "tsc",
    "unknown kernel command line",
    "vt-d",
    "workqueue:",
];

pub(super) fn read(context: &Context) -> Fact<Vec<String>> {
    let text = if context.is_live() {
        live::messages()
    } else {
        let file = || context.root.text_up_to("var/log/dmesg", TABLE_LIMIT);
        context.root.command("dmesg").or_else(file)
    };
    text.map(|text| {
        let kept: Vec<String> = text.lines().filter(|line| matters(line)).map(str::to_owned).collect();
        let first = kept.len().saturating_sub(MAX_MESSAGES);
        kept[first..].to_vec()
    })
}

/// Whether a rule uses this kernel message.
pub(crate) fn matters(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    OF_INTEREST.iter().any(|part| line.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Facts, Root};

    #[test]
    fn messages_of_interest_are_kept() {
        assert!(OF_INTEREST.is_sorted());
        let text =
            "[0.1] NO_HZ: Full dynticks CPUs: 2-7.\n[0.2] usb 1-1: Serial: AB\n[9.1] tsc: Marking TSC unstable\n";
        let messages = Facts::read(&Root::given([("commands/dmesg", text)])).kernel.messages;
        assert_eq!(messages.source().as_str(), "dmesg");
        assert_eq!(messages.value().unwrap().len(), 2);
    }
}
