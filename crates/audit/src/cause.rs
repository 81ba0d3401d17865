//! Root causes. Several findings can have the same root cause, and one action fixes them all.

units::named! {
    /// The root cause of a finding. Findings with the same cause are shown together, and one action of "Do these first"
    /// fixes them.
    ///
    /// Each rule has a root cause. If a rule covers several, each judgement names its own with
    /// [`crate::Judgement::because`].
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    #[allow(missing_docs)]
    pub enum Cause {
        IdleStates = "idle-states",
        IdlePoll = "idle-poll",
        CoreFrequency = "core-frequency",
        UncoreFrequency = "uncore-frequency",
        PowerLimits = "power-limits",
        Siblings = "siblings",
        Placement = "placement",
        Housekeeping = "housekeeping",
        SchedulerIsolation = "scheduler-isolation",
        DeviceInterrupts = "device-interrupts",
        TimerTick = "timer-tick",
        Rcu = "rcu",
        KernelWork = "kernel-work",
        Watchdogs = "watchdogs",
        MachineChecks = "machine-checks",
        Priorities = "priorities",
        Preemption = "preemption",
        Quotas = "cpu-quotas",
        ApplicationThreads = "application-threads",
        Tracing = "tracing",
        CommandLine = "command-line",
        Iommu = "iommu",
        Mitigations = "mitigations",
        Auditing = "auditing",
        HugePages = "huge-pages",
        MemoryManagement = "memory-management",
        MemoryHardware = "memory-hardware",
        Clock = "clock",
        TimeSync = "time-synchronisation",
        Firmware = "firmware",
        LinkPower = "link-power",
        PcieBandwidth = "pcie-bandwidth",
        NicDriver = "nic-driver",
        Wire = "wire",
        Moderation = "interrupt-moderation",
        Rings = "rings",
        Queues = "queues",
        Offloads = "offloads",
        Pause = "pause-frames",
        NetworkStack = "network-stack",
        Rdma = "rdma",
        Cache = "cache",
        HostOfGuests = "host-of-guests",
        Hypervisor = "hypervisor",
        Services = "services",
        Console = "console",
        Obsolete = "obsolete-settings",
        Budget = "latency-budget",
    }
}

impl Cause {
    /// The problem in a few words, as a heading.
    pub const fn problem(self) -> &'static str {
        self.texts().0
    }

    /// How to fix the problem, as a short instruction.
    pub const fn action(self) -> &'static str {
        self.texts().1
    }

    /// Whether fixing this cause trades power, safety or a feature for latency. Such a fix is advised only if latency
    /// is known to matter on the host ([`crate::Context::has_intent`]). For a fix of a single rule, see
    /// [`crate::Fix::traded`].
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

    const fn texts(self) -> (&'static str, &'static str) {
        match self {
            Self::IdleStates => ("CPUs may enter deep idle states", "Keep the CPUs out of deep idle states"),
            Self::IdlePoll => ("Idle CPUs spin instead of sleeping", "Keep only the application's CPUs awake"),
            Self::CoreFrequency => ("The core frequency follows the load", "Keep the core frequency high"),
            Self::UncoreFrequency => {
                ("The uncore frequency follows the load", "Keep the uncore at its highest frequency")
            }
            Self::PowerLimits => ("Heat or a power limit slows the CPUs down", "Find out what throttles the CPUs"),
            Self::Siblings => ("Hardware threads share cores with the application", "Give the application whole cores"),
            Self::Placement => {
                ("CPUs, memory and NIC of the application are far apart", "Place CPUs, memory and NIC together")
            }
            Self::Housekeeping => ("Too few CPUs are left for housekeeping", "Leave enough CPUs for housekeeping"),
            Self::SchedulerIsolation => (
                "Other threads may run on the application's CPUs",
                "Take the application's CPUs out of the scheduler's load balancing",
            ),
            Self::DeviceInterrupts => {
                ("Device interrupts reach the application's CPUs", "Move device interrupts to the housekeeping CPUs")
            }
            Self::TimerTick => ("The timer tick disturbs the application", "Reduce the timer tick"),
            Self::Rcu => {
                ("RCU interrupts or uses the application's CPUs", "Keep RCU's work off the application's CPUs")
            }
            Self::KernelWork => {
                ("Kernel threads and work run on the application's CPUs", "Move kernel work to the housekeeping CPUs")
            }
            Self::Watchdogs => (
                "Lockup detectors interrupt the application's CPUs",
                "Keep the lockup detectors on the housekeeping CPUs",
            ),
            Self::MachineChecks => (
                "Machine checks are not handled as they should be",
                "Handle machine checks, and ignore only corrected errors",
            ),
            Self::Priorities => {
                ("Priorities of real-time threads are in the wrong order", "Put the real-time priorities in order")
            }
            Self::Preemption => ("The kernel delays threads that become ready", "Boot a kernel that can be preempted"),
            Self::Quotas => (
                "A CPU quota or scheduling group limits the application",
                "Remove CPU quotas and scheduling groups that limit the application",
            ),
            Self::ApplicationThreads => {
                ("Threads of the application share CPUs", "Give each thread of the application a CPU of its own")
            }
            Self::Tracing => {
                ("Tracing or monitoring runs all the time", "Stop tracing and monitoring that nobody reads")
            }
            Self::CommandLine => (
                "Parts of the kernel command line are ignored, wrong or contradictory",
                "Clean up the kernel command line",
            ),
            Self::Iommu => {
                ("The IOMMU translates for the kernel's own devices", "Let the kernel's own devices bypass the IOMMU")
            }
            Self::Mitigations => (
                "Mitigations of CPU vulnerabilities cost time",
                "Decide which mitigations of CPU vulnerabilities this \
                    host needs",
            ),
            Self::Auditing => ("System calls are audited", "Do not audit the application's system calls"),
            Self::HugePages => ("Huge pages are missing, or on the wrong node", "Reserve huge pages"),
            Self::MemoryManagement => (
                "The kernel moves, merges or reclaims memory in the background",
                "Reduce the kernel's background work on memory",
            ),
            Self::MemoryHardware => {
                ("Memory modules run below their speed, or have errors", "Check the memory modules")
            }
            Self::Clock => {
                ("The clock is not the TSC, or the kernel keeps checking the TSC", "Make the TSC a reliable clock")
            }
            Self::TimeSync => (
                "Several services set the clock, or packets get no hardware timestamps",
                "Let one service set the clock, and timestamp packets in hardware",
            ),
            Self::Firmware => (
                "Firmware interrupts the CPUs, or is out of date",
                "Ask the firmware's maker how to avoid its interruptions",
            ),
            Self::LinkPower => ("Links or devices sleep between packets", "Keep links and devices awake"),
            Self::PcieBandwidth => {
                ("The card's PCI Express link carries less than it could", "Give the card a full PCI Express link")
            }
            Self::NicDriver => (
                "The NIC's driver or firmware is not as it should be",
                "Repair or update the NIC's driver and \
                    firmware",
            ),
            Self::Wire => ("The wire delays or loses frames", "Check the wire"),
            Self::Moderation => ("Interrupt moderation delays packets", "Shorten interrupt moderation"),
            Self::Rings => ("Rings overflow, or hold packets too long", "Size the rings for the packet rate"),
            Self::Queues => {
                ("Queues and their interrupts are spread badly over CPUs", "Give each busy queue a CPU of its own")
            }
            Self::Offloads => ("Offloads merge or delay frames", "Switch off offloads that delay frames"),
            Self::Pause => ("Pause frames stop the wire", "Switch off pause frames"),
            Self::NetworkStack => {
                ("The kernel's network stack drops or delays packets", "Tune the kernel's network stack")
            }
            Self::Rdma => ("The RDMA driver takes interrupts on all CPUs", "Unload the RDMA driver if nothing uses it"),
            Self::Cache => {
                ("Other programs evict the application's cache lines", "Allocate cache ways to the application")
            }
            Self::HostOfGuests => (
                "Guests exit to the hypervisor (VM exits) more often than needed",
                "Avoid needless \
                VM exits",
            ),
            Self::Hypervisor => {
                ("The hypervisor takes time away from this guest", "Ask whoever runs the hypervisor for dedicated CPUs")
            }
            Self::Services => (
                "Services are unnecessary, missing or wrongly configured",
                "Stop services that are not needed, and configure the others",
            ),
            Self::Console => {
                ("Kernel messages go out over a slow console", "Keep kernel messages off the serial console")
            }
            Self::Obsolete => {
                ("Some settings no longer have any effect", "Remove settings that no longer have any effect")
            }
            Self::Budget => {
                ("The settings together exceed the latency goal", "Shorten the largest term of the latency budget")
            }
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
