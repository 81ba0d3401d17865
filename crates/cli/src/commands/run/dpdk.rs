//! Ports of DPDK drivers. They need the crate `live-dpdk` and DPDK's libraries, which the program `apus` does not link.
//! So for such ports, `apus` starts `apus-dpdk` if it is installed in the same folder. `apus-dpdk` is the same program,
//! built with the feature `dpdk`.

use live::port::PortConfig;

use crate::args::run::Common;

/// Slot size in bytes unless the user states one. A smaller slot has no room for a full-sized frame after DPDK's packet
/// header and the headroom that DPDK's AF_XDP driver and the kernel each reserve.
pub const FRAME_SIZE: u32 = 4096;

/// A port for `device`, which has the form of DPDK's device arguments.
#[cfg(feature = "dpdk")]
pub fn port(device: &str, common: &Common) -> Result<PortConfig, anyhow::Error> {
    use std::sync::Arc;

    use crate::args::values::PortText;

    let hardware = |port: &PortText| matches!(port, PortText::Dpdk { device } if !live_dpdk::is_virtual(device));
    let arguments = common.eal.as_deref().unwrap_or_default().split_whitespace().map(str::to_owned).collect();
    let burst = common.burst.unwrap_or(live_dpdk::LONGEST_BURST);
    Ok(Arc::new(live_dpdk::DpdkPort {
        device: device.to_owned(),
        eal: arguments,
        huge_pages: common.huge_pages || common.ports.iter().any(hardware),
        huge_slots: common.huge_pages,
        burst,
    }))
}

/// Replaces this process by `apus-dpdk`. Returns only if that fails.
#[cfg(not(feature = "dpdk"))]
pub fn port(device: &str, _common: &Common) -> Result<PortConfig, anyhow::Error> {
    use std::os::unix::process::CommandExt as _;

    use crate::Failure;

    let fix = "build it with `make dpdk`, which also installs DPDK's libraries (docs/dpdk.md)";
    let lacking = |why: String| Failure::lacking(format!("cannot open port dpdk:{device}"), why, fix);
    let this =
        std::env::current_exe().map_err(|e| lacking(format!("the path of this program cannot be found ({e})")))?;
    let other = this.with_file_name("apus-dpdk");
    if !other.is_file() {
        return Err(
            lacking(format!("this program was built without DPDK, and {} does not exist", other.display())).into()
        );
    }
    let error = std::process::Command::new(&other).args(std::env::args_os().skip(1)).exec();
    Err(lacking(format!("cannot start {}: {error}", other.display())).into())
}
