//! A setting of any kind, as used in plans and in the journal.

use rustix::thread::CapabilitySet;
use serde::{Deserialize, Serialize};

use super::{
    Access, BootFragment, CgroupController, CgroupFile, CgroupFolder, Channels, Coalesce, CoalesceQueue, CpuLatency,
    CpuMask, DmaLatency, Epp, Error, Features, File, Governor, HugePages, HwpRequest, IdleState, IrqAffinity,
    IrqDefaultAffinity, IrqEffective, IrqbalanceBans, Lasts, Limits, Napi, Pause, PrivateFlags, Rings, Setting, Sysctl,
    ThreadAffinity, ThreadClass, Turbo, UncoreLimits, UncoreMsr, Value,
};

/// Makes the enum of all kinds, and hands every question on to the kind.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident,)*) => {
        /// A setting of any kind. In JSON, `kind` is its kind in snake case, and the other fields are those of the
        /// kind.
        #[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
        #[serde(tag = "kind", rename_all = "snake_case")]
        pub enum AnySetting {
            $($(#[$doc])* $kind($kind),)*
        }

        impl AnySetting {
            fn kind(&self) -> &dyn Setting {
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
    /// The CPUs that may serve an interrupt.
    IrqAffinity,
    /// The CPU that serves an interrupt now.
    IrqEffective,
    /// The CPUs that may serve future interrupts.
    IrqDefaultAffinity,
    /// A file that holds a mask of CPUs.
    CpuMask,
    /// The exit latency allowed for a CPU.
    CpuLatency,
    /// Whether an idle state of a CPU is disabled.
    IdleState,
    /// A frequency governor, with its fixed speed if it has one.
    Governor,
    /// The frequency limits of a policy.
    Limits,
    /// The energy-performance preference.
    Epp,
    /// Whether turbo is allowed.
    Turbo,
    /// The HWP request register.
    HwpRequest,
    /// Uncore frequency limits in sysfs.
    UncoreLimits,
    /// Uncore ratio limits in the register.
    UncoreMsr,
    /// The CPUs on which a thread may run.
    ThreadAffinity,
    /// The scheduling class of a thread.
    ThreadClass,
    /// Interrupt coalescing of a device.
    Coalesce,
    /// Interrupt coalescing of a queue.
    CoalesceQueue,
    /// Sizes of a device's descriptor rings.
    Rings,
    /// Numbers of a device's queues.
    Channels,
    /// Offloads of a device.
    Features,
    /// Flags that a driver defines.
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
    /// Arguments for the kernel's command line.
    BootFragment,
}

impl Setting for AnySetting {
    fn label(&self) -> String {
        self.kind().label()
    }
    fn read(&self, access: &Access) -> Result<Option<Value>, Error> {
        self.kind().read(access)
    }
    fn write(&self, access: &Access, value: &Value) -> Result<(), Error> {
        self.kind().write(access, value)
    }
    fn admit(&self) -> Result<(), Error> {
        self.kind().admit()
    }
    fn check(&self, access: &Access, value: &Value) -> Result<(), Error> {
        self.kind().check(access, value)
    }
    fn check_back(&self, access: &Access, before: &Value) -> Result<(), Error> {
        self.kind().check_back(access, before)
    }
    fn is_effect(&self) -> bool {
        self.kind().is_effect()
    }
    fn is_of_thread(&self) -> bool {
        self.kind().is_of_thread()
    }
    fn same(&self, field: Option<&str>, a: &str, b: &str) -> bool {
        self.kind().same(field, a, b)
    }
    fn unshown(&self, field: &str) -> Option<&'static str> {
        self.kind().unshown(field)
    }
    fn lasts(&self) -> Lasts {
        self.kind().lasts()
    }
    fn capability(&self) -> CapabilitySet {
        self.kind().capability()
    }
    fn is_of_network(&self) -> bool {
        self.kind().is_of_network()
    }
    fn identity(&self, access: &Access) -> Result<Option<String>, Error> {
        self.kind().identity(access)
    }
    fn explain(&self, access: &Access, wanted: &Value, now: &Value) -> Option<String> {
        self.kind().explain(access, wanted, now)
    }
    fn overruled(&self, access: &Access, wanted: &Value, now: &Value) -> Result<Option<String>, Error> {
        self.kind().overruled(access, wanted, now)
    }
    fn files(&self, access: &Access, wanted: &Value) -> Result<Vec<(String, String)>, Error> {
        self.kind().files(access, wanted)
    }
    fn shows_within(&self) -> std::time::Duration {
        self.kind().shows_within()
    }
    fn settle(&self, access: &Access) -> Result<(), Error> {
        self.kind().settle(access)
    }
}
