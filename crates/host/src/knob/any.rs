//! A setting of any kind, as it stands in plans and in the journal.

use std::ops::Deref;

use serde::{Deserialize, Serialize};

use super::{
    BootFragment, CgroupController, CgroupFile, CgroupFolder, Channels, Coalesce, CoalesceQueue, CpuLatency, CpuMask,
    DmaLatency, Epp, Features, File, Governor, HugePages, HwpRequest, IdleState, IrqAffinity, IrqDefaultAffinity,
    IrqEffective, IrqbalanceBans, Limits, Napi, Pause, PrivateFlags, Rings, Setting, Sysctl, ThreadAffinity,
    ThreadClass, Turbo, UncoreLimits, UncoreMsr,
};

/// Makes the enum of all kinds.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident,)*) => {
        /// A setting of any kind. In JSON: its kind in `kind`, in snake case, and what names it there.
        #[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
        #[serde(tag = "kind", rename_all = "snake_case")]
        pub enum AnySetting {
            $($(#[$doc])* $kind($kind),)*
        }

        /// It is the setting of its kind: every question goes there.
        impl Deref for AnySetting {
            type Target = dyn Setting;
            fn deref(&self) -> &Self::Target {
                match self {
                    $(Self::$kind(setting) => setting,)*
                }
            }
        }

        $(impl From<$kind> for AnySetting {
            fn from(setting: $kind) -> Self {
                Self::$kind(setting)
            }
        })*
    };
}

kinds! {
    /// A file of sysfs or procfs.
    File,
    /// A kernel parameter below /proc/sys.
    Sysctl,
    /// The CPUs of an interrupt.
    IrqAffinity,
    /// The CPU that serves an interrupt.
    IrqEffective,
    /// The CPUs of interrupts to come.
    IrqDefaultAffinity,
    /// A file that holds a mask of CPUs.
    CpuMask,
    /// The exit latency allowed on a CPU.
    CpuLatency,
    /// Whether an idle state of a CPU is disabled.
    IdleState,
    /// A frequency governor, with its set speed.
    Governor,
    /// The frequency limits of a policy.
    Limits,
    /// The energy-performance preference.
    Epp,
    /// Turbo.
    Turbo,
    /// The HWP request register.
    HwpRequest,
    /// Uncore frequency limits, in sysfs.
    UncoreLimits,
    /// Uncore ratio limits, in their register.
    UncoreMsr,
    /// The CPUs of a thread.
    ThreadAffinity,
    /// The scheduling class of a thread.
    ThreadClass,
    /// Interrupt coalescing of a device.
    Coalesce,
    /// Interrupt coalescing of a queue.
    CoalesceQueue,
    /// Descriptors in the rings of a device.
    Rings,
    /// Queues of a device.
    Channels,
    /// Offloads of a device.
    Features,
    /// A driver's own flags.
    PrivateFlags,
    /// Ethernet flow control.
    Pause,
    /// NAPI settings of a queue.
    Napi,
    /// Huge pages of one size.
    HugePages,
    /// A control group.
    CgroupFolder,
    /// A controller of a control group's children.
    CgroupController,
    /// A file of a control group.
    CgroupFile,
    /// The exit latency allowed on all CPUs.
    DmaLatency,
    /// The CPUs that irqbalance keeps interrupts away from.
    IrqbalanceBans,
    /// Arguments of the kernel's command line.
    BootFragment,
}
