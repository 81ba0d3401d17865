//! Idle states: `cpuidle` in sysfs, and the latency limits that processes request.

use units::Nanos;

use crate::facts::{Context, Fact, Idle, IdleState, Root, live};

const CPUS: &str = "sys/devices/system/cpu";
/// Maximum number of idle states that are read. The kernel has at most 10 (`CPUIDLE_STATE_MAX`,
/// include/linux/cpuidle.h).
const MAX_STATES: usize = 32;

pub(super) fn read(context: &Context) -> Idle {
    let root = context.root;
    let file = |name: &str| root.text(&format!("{CPUS}/cpuidle/{name}"));
    let recorded = || root.number("commands/cpu_dma_latency").map(Nanos::from_micros).named(live::DMA_LATENCY);
    let holders = || root.text("commands/cpu_dma_latency_holders").named(live::HOLDERS);
    Idle {
        driver: file("current_driver"),
        governor: file("current_governor").or_else(|| file("current_governor_ro")),
        governors: file("available_governors").map(|text| text.split_ascii_whitespace().map(str::to_owned).collect()),
        dma_latency: if context.is_live() { live::dma_latency() } else { recorded() },
        dma_latency_holders: if context.is_live() {
            live::holders()
        } else {
            holders().map(|text| text.lines().map(str::to_owned).collect())
        },
        umwait_c02: root.switch(&format!("{CPUS}/umwait_control/enable_c02")),
        umwait_max_ticks: root.number(&format!("{CPUS}/umwait_control/max_time")),
    }
}

/// The idle states of one CPU.
pub(super) fn states(root: &Root, cpu: u32) -> Fact<Vec<IdleState>> {
    let place = format!("{CPUS}/cpu{cpu}/cpuidle");
    root.list(&place).map(|names| {
        let mut indexes: Vec<u32> =
            names.iter().filter_map(|name| name.strip_prefix("state")?.parse().ok()).take(MAX_STATES).collect();
        indexes.sort_unstable();
        indexes.into_iter().map(|index| state(root, &format!("{place}/state{index}"), index)).collect()
    })
}

fn state(root: &Root, place: &str, index: u32) -> IdleState {
    let microseconds = |name: &str| root.number(&format!("{place}/{name}")).map(Nanos::from_micros);
    IdleState {
        index,
        name: root.text(&format!("{place}/name")),
        description: root.text(&format!("{place}/desc")),
        exit_latency: microseconds("latency"),
        residency: microseconds("residency"),
        // A word of bits, not a switch (drivers/cpuidle/sysfs.c, `show_state_disable`). Bit 0 is set by the user.
        disabled: root.number::<u64>(&format!("{place}/disable")).map(|bits| bits != 0),
    }
}
