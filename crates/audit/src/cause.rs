//! Root causes: what several findings have in common, and what one action fixes.

/// The root cause of a finding. Findings with the same cause are shown together, and one action of "Do these first"
/// fixes them.
///
/// Each rule names its cause. A judgement names another one if its rule covers several ([`crate::Judgement::because`]).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs)]
pub enum Cause {
    IdleStates,
    IdlePoll,
    CoreFrequency,
    UncoreFrequency,
    PowerLimits,
    Siblings,
    Placement,
    Housekeeping,
    SchedulerIsolation,
    DeviceInterrupts,
    TimerTick,
    Rcu,
    KernelWork,
    Watchdogs,
    MachineChecks,
    Priorities,
    Preemption,
    Quotas,
    ApplicationThreads,
    Tracing,
    CommandLine,
    Iommu,
    Mitigations,
    Auditing,
    HugePages,
    MemoryManagement,
    MemoryHardware,
    Clock,
    TimeSync,
    Firmware,
    LinkPower,
    PcieBandwidth,
    NicDriver,
    Wire,
    Moderation,
    Rings,
    Queues,
    Offloads,
    Pause,
    NetworkStack,
    Rdma,
    Cache,
    HostOfGuests,
    Hypervisor,
    Services,
    Console,
    Obsolete,
    Budget,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 48] = [
        Self::IdleStates,
        Self::IdlePoll,
        Self::CoreFrequency,
        Self::UncoreFrequency,
        Self::PowerLimits,
        Self::Siblings,
        Self::Placement,
        Self::Housekeeping,
        Self::SchedulerIsolation,
        Self::DeviceInterrupts,
        Self::TimerTick,
        Self::Rcu,
        Self::KernelWork,
        Self::Watchdogs,
        Self::MachineChecks,
        Self::Priorities,
        Self::Preemption,
        Self::Quotas,
        Self::ApplicationThreads,
        Self::Tracing,
        Self::CommandLine,
        Self::Iommu,
        Self::Mitigations,
        Self::Auditing,
        Self::HugePages,
        Self::MemoryManagement,
        Self::MemoryHardware,
        Self::Clock,
        Self::TimeSync,
        Self::Firmware,
        Self::LinkPower,
        Self::PcieBandwidth,
        Self::NicDriver,
        Self::Wire,
        Self::Moderation,
        Self::Rings,
        Self::Queues,
        Self::Offloads,
        Self::Pause,
        Self::NetworkStack,
        Self::Rdma,
        Self::Cache,
        Self::HostOfGuests,
        Self::Hypervisor,
        Self::Services,
        Self::Console,
        Self::Obsolete,
        Self::Budget,
    ];

    /// Its name in documents.
    pub const fn name(self) -> &'static str {
        self.texts().0
    }

    /// The problem, as a heading.
    pub const fn problem(self) -> &'static str {
        self.texts().1
    }

    /// What to do about it, as an instruction.
    pub const fn action(self) -> &'static str {
        self.texts().2
    }

    /// Whether its fix trades power, safety or a feature for latency. Such a fix waits until someone says that latency
    /// matters ([`crate::Context::has_intent`]). Single rules can trade too: [`crate::Fix::traded`].
    pub const fn trades(self) -> bool {
        matches!(
            self,
            Self::IdleStates
                | Self::CoreFrequency
                | Self::UncoreFrequency
                | Self::LinkPower
                | Self::Moderation
                | Self::Offloads
                | Self::Pause
                | Self::Mitigations
                | Self::Auditing
                | Self::Rdma
                | Self::Services
        )
    }

    const fn texts(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::IdleStates => {
                ("idle-states", "CPUs may enter deep idle states", "Keep the CPUs out of deep idle states")
            }
            Self::IdlePoll => {
                ("idle-poll", "Idle CPUs spin instead of sleeping", "Keep only the application's CPUs awake")
            }
            Self::CoreFrequency => {
                ("core-frequency", "The core frequency follows the load", "Keep the core frequency high")
            }
            Self::UncoreFrequency => (
                "uncore-frequency",
                "The uncore frequency follows the load",
                "Keep the uncore at its highest frequency",
            ),
            Self::PowerLimits => {
                ("power-limits", "Heat or a power limit slows the CPUs down", "Find out what throttles the CPUs")
            }
            Self::Siblings => {
                ("siblings", "Hardware threads share cores with the application", "Give the application whole cores")
            }
            Self::Placement => (
                "placement",
                "CPUs, memory and NIC of the application are far apart",
                "Place CPUs, memory and NIC together",
            ),
            Self::Housekeeping => ("housekeeping", "Housekeeping lacks CPUs", "Leave enough CPUs for housekeeping"),
            Self::SchedulerIsolation => (
                "scheduler-isolation",
                "Other threads may run on the application's CPUs",
                "Take the application's CPUs out of the scheduler's domains",
            ),
            Self::DeviceInterrupts => (
                "device-interrupts",
                "Device interrupts reach the application's CPUs",
                "Move device interrupts to the housekeeping CPUs",
            ),
            Self::TimerTick => ("timer-tick", "The timer tick disturbs the application", "Reduce the timer tick"),
            Self::Rcu => {
                ("rcu", "RCU callbacks run on the application's CPUs", "Move RCU callbacks to the housekeeping CPUs")
            }
            Self::KernelWork => (
                "kernel-work",
                "Kernel threads and work run on the application's CPUs",
                "Move kernel work to the housekeeping CPUs",
            ),
            Self::Watchdogs => (
                "watchdogs",
                "Lockup detectors interrupt the application's CPUs",
                "Keep the lockup detectors on the housekeeping CPUs",
            ),
            Self::MachineChecks => (
                "machine-checks",
                "Machine checks are not handled correctly",
                "Handle machine checks, and ignore only corrected errors",
            ),
            Self::Priorities => (
                "priorities",
                "Priorities of real-time threads are in the wrong order",
                "Put the real-time priorities in order",
            ),
            Self::Preemption => {
                ("preemption", "The kernel delays threads that become ready", "Boot a kernel that can be preempted")
            }
            Self::Quotas => ("cpu-quotas", "A CPU quota or group stops the application", "Lift the CPU quota"),
            Self::ApplicationThreads => (
                "application-threads",
                "The application's threads disturb one another",
                "Give each thread of the application a CPU of its own",
            ),
            Self::Tracing => {
                ("tracing", "Tracing or monitoring runs all the time", "Stop tracing and monitoring that nobody reads")
            }
            Self::CommandLine => (
                "command-line",
                "The kernel command line does not do what it seems to say",
                "Clean up the kernel command line",
            ),
            Self::Iommu => (
                "iommu",
                "The IOMMU translates for the kernel's own devices",
                "Let the kernel's own devices bypass the IOMMU",
            ),
            Self::Mitigations => (
                "mitigations",
                "Mitigations of CPU vulnerabilities cost time",
                "Decide which mitigations this host needs",
            ),
            Self::Auditing => ("auditing", "System calls are audited", "Audit no system calls of the application"),
            Self::HugePages => ("huge-pages", "Huge pages are missing, or on the wrong node", "Reserve huge pages"),
            Self::MemoryManagement => (
                "memory-management",
                "The kernel moves, merges or reclaims memory in the background",
                "Switch off background work on memory",
            ),
            Self::MemoryHardware => {
                ("memory-hardware", "Memory modules run below their speed, or have errors", "Check the memory modules")
            }
            Self::Clock => {
                ("clock", "The clock source is not a reliable TSC", "Use a reliable TSC as the clock source")
            }
            Self::TimeSync => {
                ("time-synchronisation", "Several services, or none, set the clock", "Let one service set the clock")
            }
            Self::Firmware => (
                "firmware",
                "The firmware interrupts the CPUs, or is out of date",
                "Ask the firmware's vendor for settings that avoid the interruptions",
            ),
            Self::LinkPower => ("link-power", "Links or devices sleep between packets", "Keep links and devices awake"),
            Self::PcieBandwidth => (
                "pcie-bandwidth",
                "The card's PCI Express link carries less than it could",
                "Give the card a full PCI Express link",
            ),
            Self::NicDriver => {
                ("nic-driver", "The NIC's driver or firmware has a problem", "Fix the NIC's driver and firmware")
            }
            Self::Wire => ("wire", "The wire delays or loses frames", "Check the wire"),
            Self::Moderation => {
                ("interrupt-moderation", "Interrupt moderation delays packets", "Shorten interrupt moderation")
            }
            Self::Rings => ("rings", "Rings overflow, or hold packets too long", "Match the rings to the packet rate"),
            Self::Queues => (
                "queues",
                "Queues and their interrupts are badly distributed over CPUs",
                "Give each busy queue a CPU of its own",
            ),
            Self::Offloads => ("offloads", "Offloads merge or delay frames", "Switch off offloads that delay frames"),
            Self::Pause => ("pause-frames", "Pause frames stop the link", "Switch off pause frames"),
            Self::NetworkStack => (
                "network-stack",
                "The kernel's network stack drops or delays packets",
                "Tune the kernel's network stack",
            ),
            Self::Rdma => {
                ("rdma", "The RDMA driver takes interrupts on all CPUs", "Unload the RDMA driver if nothing uses it")
            }
            Self::Cache => {
                ("cache", "Neighbours evict the application's cache lines", "Allocate cache ways to the application")
            }
            Self::HostOfGuests => {
                ("host-of-guests", "KVM makes guests exit more often than needed", "Avoid needless exits of the guests")
            }
            Self::Hypervisor => (
                "hypervisor",
                "The hypervisor takes time away from this guest",
                "Ask the hypervisor's operator for dedicated CPUs",
            ),
            Self::Services => {
                ("services", "Services run that this host does not need", "Stop services that this host does not need")
            }
            Self::Console => {
                ("console", "Kernel messages go out over a slow console", "Keep kernel messages off the serial console")
            }
            Self::Obsolete => (
                "obsolete-settings",
                "Some settings no longer have any effect",
                "Remove settings that no longer have any effect",
            ),
            Self::Budget => (
                "latency-budget",
                "The settings together exceed the latency goal",
                "Shorten the largest term of the latency budget",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_has_a_name_and_a_rule() {
        let names: BTreeSet<&str> = Cause::ALL.iter().map(|cause| cause.name()).collect();
        assert_eq!(names.len(), Cause::ALL.len());
        let used: BTreeSet<Cause> = crate::rules::all().map(|rule| rule.cause).collect();
        assert_eq!(used, Cause::ALL.into_iter().collect(), "a cause that no rule has");
    }
}
