//! The parts of a rule.

use host::Facts;
use units::Nanos;

use crate::{Applies, Cause, Context, Judged};

/// A rule checks one property of a host. It also has an explanation, a fix and references.
#[derive(Debug)]
pub struct Rule {
    /// Stable identifier: the prefix of the group, a dot, and words, such as `cmd.isolcpus`.
    pub id: &'static str,
    /// The root cause of the rule's findings. Several rules can have the same root cause.
    pub cause: Cause,
    /// What should be true of the host, in a few words, such as "Application CPUs are outside the scheduler's domains".
    pub title: &'static str,
    /// The hosts to which the rule applies. On all other hosts the verdict is [`crate::Verdict::NotApplicable`], and
    /// the judge is not called.
    pub applies: Applies,
    /// The judge: checks the facts of a host. Returns one judgement per subject, or [`crate::Skip`] if there is nothing
    /// to judge.
    pub judge: fn(&Facts, &Context) -> Judged,
    /// The mechanism: how the problem makes packets late, in full sentences.
    pub why: &'static str,
    /// How much delay the mechanism adds.
    pub magnitude: Magnitude,
    /// How to fix what the rule finds.
    pub fix: Fix,
    /// What the fix costs and risks: power, throughput, safety, other users of the host.
    pub cost: &'static str,
    /// Documents that support the rule, by title and section. At least one per rule.
    pub references: &'static [&'static str],
}

/// The effect of a mechanism on a packet. Only waiting times ([`Late`](Self::Late)) can be added up to a latency.
/// [`Slower`](Self::Slower) has no time, because no setting shows how much longer the work takes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Effect {
    /// The effect is not a delay, or no document states how large the delay is.
    Unsized,
    /// The work on each packet takes longer, but no packet waits: a lower frequency, a cache miss, a slower clock.
    Slower,
    /// The packet waits for this time: for an exit from an idle state, for a delayed interrupt, or for a CPU that is
    /// busy with something else.
    Late(Nanos),
}

impl Effect {
    /// How long one packet waits. `None` if no packet waits, or if the time is not known.
    pub const fn lateness(self) -> Option<Nanos> {
        match self {
            Self::Late(time) => Some(time),
            Self::Slower | Self::Unsized => None,
        }
    }
}

/// How much delay a mechanism adds to a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Magnitude {
    /// The delay in words, with numbers, such as "C6 takes 133 us to leave on Xeon E5 v3, 170 us on Ice Lake".
    pub text: &'static str,
    /// The typical effect on one packet, from the source. It is used if the judge has no value for this host.
    pub effect: Effect,
    /// The source of the numbers.
    pub source: &'static str,
}

impl Magnitude {
    /// Creates a magnitude for a mechanism that makes a packet wait, typically for `time`.
    pub const fn late(time: Nanos, text: &'static str, source: &'static str) -> Self {
        Self { text, effect: Effect::Late(time), source }
    }

    /// Creates a magnitude for a mechanism that makes the work on each packet take longer.
    pub const fn slower(text: &'static str, source: &'static str) -> Self {
        Self { text, effect: Effect::Slower, source }
    }

    /// Creates a magnitude without a time: the effect is not a delay, or no document states how large the delay is.
    pub const fn untimed(text: &'static str, source: &'static str) -> Self {
        Self { text, effect: Effect::Unsized, source }
    }
}

/// The fix of a rule: templates of commands and kernel parameters, one per line.
///
/// The audit fills in these placeholders: `{isolated}` and `{housekeeping}` (CPU lists), `{isolated-mask}` and
/// `{housekeeping-mask}` (hexadecimal masks), `{nic}` (the subject if it is an interface, otherwise the first interface
/// of the intent), `{cpu}` (the subject's CPUs as a list), `{cpu-words}` (the same CPUs as words of a shell loop),
/// `{idle-limit}` (the exit latency that the goal allows), `{irq}`, `{device}`, and `{bounds}` (frequency limits as
/// options of cpupower; a line with `{bounds}` becomes one line per base frequency).
///
/// If a value is not known, the option of `apus audit` that supplies the value replaces the line, so users never have
/// to fill in a placeholder themselves. A command is a line that a shell accepts; explanations are shell comments. A
/// judgement can supply its own lines with [`crate::Judgement::now`], [`crate::Judgement::for_good`] and
/// [`crate::Judgement::look`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fix {
    /// Commands that only show more details, and fix nothing. `None` if the evidence suffices.
    pub look: Option<&'static str>,
    /// Commands that fix the running host. `None` if it cannot be fixed without a reboot.
    pub runtime: Option<&'static str>,
    /// Permanent settings: kernel parameters, files, firmware settings. `None` if there are none, or if `apus tune`
    /// makes [`Self::runtime`] permanent.
    pub persistent: Option<&'static str>,
    /// Whether the settings of [`Self::persistent`] take effect only at the next boot.
    pub reboot: bool,
    /// Whether a person must first decide or check something. If so, `apus audit --fix` does not write the fix.
    pub decision: bool,
    /// Whether the fix trades power, safety or a feature for latency. Such a fix is among the first actions only if
    /// latency is known to matter on the host ([`Context::has_intent`]). For a cause whose fixes all trade, see
    /// [`Cause::trades`].
    pub trade: bool,
    /// Sources that recommend the opposite, or identifiers of rules that do. Empty for most fixes.
    pub conflicts: &'static [&'static str],
}

impl Fix {
    /// No fix.
    pub const NONE: Self = Self {
        look: None,
        runtime: None,
        persistent: None,
        reboot: false,
        decision: false,
        trade: false,
        conflicts: &[],
    };

    /// Creates a fix with commands for the running host, and with permanent settings that need no reboot.
    pub const fn both(runtime: &'static str, persistent: &'static str) -> Self {
        Self { runtime: Some(runtime), persistent: Some(persistent), ..Self::NONE }
    }

    /// Creates a fix for the running host only.
    pub const fn runtime(runtime: &'static str) -> Self {
        Self { runtime: Some(runtime), ..Self::NONE }
    }

    /// Creates a permanent fix that takes effect at the next boot: kernel parameters or firmware settings.
    pub const fn boot(persistent: &'static str) -> Self {
        Self { persistent: Some(persistent), reboot: true, ..Self::NONE }
    }

    /// Creates a fix with commands for the running host, and with permanent settings that take effect at the next boot.
    pub const fn runtime_or_boot(runtime: &'static str, persistent: &'static str) -> Self {
        Self { runtime: Some(runtime), persistent: Some(persistent), reboot: true, ..Self::NONE }
    }

    /// Creates a permanent fix that needs no reboot: a configuration that takes effect at once, or when a service
    /// restarts.
    pub const fn for_good(persistent: &'static str) -> Self {
        Self { persistent: Some(persistent), ..Self::NONE }
    }

    /// Creates a fix that is only a diagnosis: the output of the commands decides what to do.
    pub const fn look(commands: &'static str) -> Self {
        Self { look: Some(commands), ..Self::NONE }
    }

    /// Marks the fix as one that a person must decide, so that `apus audit --fix` does not write it.
    pub const fn decided(self) -> Self {
        Self { decision: true, ..self }
    }

    /// Marks the fix as one that trades power, safety or a feature for latency. Such a fix is among the first actions
    /// only if latency is known to matter on the host.
    pub const fn traded(self) -> Self {
        Self { trade: true, ..self }
    }

    /// Adds sources that recommend the opposite, or identifiers of rules that do.
    pub const fn against(self, conflicts: &'static [&'static str]) -> Self {
        Self { conflicts, ..self }
    }

    /// Adds commands for diagnosis, to be run before the fix.
    pub const fn after(self, commands: &'static str) -> Self {
        Self { look: Some(commands), ..self }
    }
}

units::named! {
    /// Groups of rules, in the order of docs/rules.md.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum Group {
        /// Contradictions on the kernel command line, and differences between it and the running host.
        CommandLine = "cmdline",
        /// The kernel's build and version.
        Kernel = "kernel",
        /// Frequency, idle states, uncore, hardware threads, topology.
        Cpu = "cpu",
        /// Firmware, system management interrupts, error handling.
        Firmware = "firmware",
        /// Memory and NUMA nodes.
        Memory = "memory",
        /// Interrupts and their CPUs.
        Interrupts = "interrupts",
        /// Kernel threads, user threads, workqueues, scheduler, tracing.
        Scheduling = "scheduling",
        /// Clock sources and time synchronisation.
        Clock = "clock",
        /// PCI Express and the hardware of network interfaces.
        Pcie = "pcie",
        /// Settings of network interfaces.
        Nic = "nic",
        /// The kernel's network stack.
        Network = "network",
        /// Allocation of cache and memory bandwidth.
        Cache = "cache",
        /// Hosts of virtual machines, and guests.
        Virtualisation = "virtualisation",
        /// Containers and Kubernetes.
        Containers = "containers",
        /// Services and monitoring tools.
        Services = "services",
        /// Calculations from several settings, such as ring size and line rate.
        Arithmetic = "arithmetic",
        /// Rules for FreeBSD hosts.
        FreeBsd = "freebsd",
        /// Questions on which good sources disagree.
        Choices = "choices",
    }
}

impl Group {
    /// Human-readable title of the group.
    pub const fn title(self) -> &'static str {
        match self {
            Self::CommandLine => "Kernel command line",
            Self::Kernel => "Kernel build and version",
            Self::Cpu => "CPU frequency, idle states, topology",
            Self::Firmware => "Firmware and hardware errors",
            Self::Memory => "Memory and NUMA",
            Self::Interrupts => "Interrupts",
            Self::Scheduling => "Threads, workqueues, tracing",
            Self::Clock => "Clock and time",
            Self::Pcie => "PCI Express and NIC hardware",
            Self::Nic => "NIC settings",
            Self::Network => "Network stack",
            Self::Cache => "Cache and bandwidth allocation",
            Self::Virtualisation => "Virtualisation",
            Self::Containers => "Containers",
            Self::Services => "Services and monitors",
            Self::Arithmetic => "Sums over several settings",
            Self::FreeBsd => "FreeBSD",
            Self::Choices => "Choices on which sources disagree",
        }
    }
}
