//! A setting of any kind, as used in plans and in the journal.

use std::ops::Deref;

use serde::{Deserialize, Serialize};

use super::{
    BootFragment, CgroupController, CgroupFile, CgroupFolder, Channels, Coalesce, CoalesceQueue, CpuLatency, CpuMask,
    DmaLatency, Epp, Features, File, Governor, HugePages, HwpRequest, IdleState, IrqAffinity, IrqDefaultAffinity,
    IrqEffective, IrqbalanceBans, Limits, Napi, Pause, PrivateFlags, Rings, Setting, Sysctl, ThreadAffinity,
    ThreadClass, Turbo, UncoreLimits, UncoreMsr,
};

/// Defines [`AnySetting`] with a variant for each kind of setting.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident,)*) => {
        /// A setting of any kind. In JSON, the field `kind` contains the variant's name in snake case, and the other
        /// fields are the fields of the variant's type.
        #[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
        #[serde(tag = "kind", rename_all = "snake_case")]
        pub enum AnySetting {
            $($(#[$doc])* $kind($kind),)*
        }

        /// Gives access to the setting that the variant holds.
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
    /// The CPUs that may handle an interrupt.
    IrqAffinity,
    /// The CPU that handles an interrupt now.
    IrqEffective,
    /// The CPUs that may handle newly requested interrupts.
    IrqDefaultAffinity,
    /// A file that holds a mask of CPUs.
    CpuMask,
    /// The exit latency allowed for one CPU.
    CpuLatency,
    /// Whether an idle state of a CPU is disabled.
    IdleState,
    /// A frequency governor, and the fixed speed if the governor is `userspace`.
    Governor,
    /// The frequency limits of a policy.
    Limits,
    /// The energy-performance preference.
    Epp,
    /// Whether turbo is allowed.
    Turbo,
    /// The HWP request register.
    HwpRequest,
    /// Uncore frequency limits, set through sysfs.
    UncoreLimits,
    /// Uncore ratio limits, set through a model-specific register.
    UncoreMsr,
    /// The CPUs on which a thread may run.
    ThreadAffinity,
    /// The scheduling class of a thread.
    ThreadClass,
    /// Interrupt coalescing of an interface.
    Coalesce,
    /// Interrupt coalescing of a queue.
    CoalesceQueue,
    /// Descriptor ring sizes and related settings of an interface.
    Rings,
    /// The numbers of queues of an interface.
    Channels,
    /// Offloads of an interface.
    Features,
    /// Flags that a network driver defines.
    PrivateFlags,
    /// Ethernet flow control.
    Pause,
    /// NAPI settings of a queue.
    Napi,
    /// Huge pages of one size.
    HugePages,
    /// A control group's folder.
    CgroupFolder,
    /// A controller that is enabled for a control group's children.
    CgroupController,
    /// A file of a control group.
    CgroupFile,
    /// The exit latency allowed for all CPUs.
    DmaLatency,
    /// The CPUs that irqbalance must not use.
    IrqbalanceBans,
    /// Arguments for the kernel's command line at the next boot.
    BootFragment,
}
