//! A rule: one entry of the table.

use host::Facts;
use units::Nanos;

use crate::{Applies, Cause, Context, Judged};

/// One thing to look at, and all that is known of it.
#[derive(Debug)]
pub struct Rule {
    /// Stable name, `group-prefix.words`: `cmd.isolcpus`.
    pub id: &'static str,
    /// What is behind its findings, together with those of other rules.
    pub cause: Cause,
    /// Its subject, for `--only` and the counts.
    pub group: Group,
    /// What is asked for, in a few words: "Application CPUs are out of the scheduler's domains".
    pub title: &'static str,
    /// Where the question makes sense; elsewhere the engine says [`crate::Verdict::NotApplicable`] without
    /// calling the judge.
    pub applies: Applies,
    /// Looks at the facts. Returns one judgement for each subject, or [`crate::Skip`] if there is nothing to judge.
    pub judge: fn(&Facts, &Context) -> Judged,
    /// The mechanism: how this makes packets late. Full sentences.
    pub why: &'static str,
    /// How much it takes.
    pub magnitude: Magnitude,
    /// What mends it.
    pub fix: Fix,
    /// What the fix costs and risks: power, throughput, safety, other users of the host.
    pub cost: &'static str,
    /// Documents that say so, by title and section; each rule has at least one.
    pub references: &'static [&'static str],
    /// Sources, or rules by their id, that ask for the opposite; empty for most.
    pub conflicts: &'static [&'static str],
}

/// What a mechanism does to a packet. Only lateness can be added up to a latency: work that is slower is slower by its
/// length, which no setting shows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Effect {
    /// No document gives its size, or it has none in time.
    Unsized,
    /// Nothing waits, but the work on each packet takes longer: a lower frequency, a miss of a cache, a slower clock.
    Slower,
    /// The packet waits this long, and nothing is done for it meanwhile: an exit from an idle state, a held-back
    /// interrupt, a CPU that does something else.
    Late(Nanos),
}

impl Effect {
    /// How long one packet waits; `None` where nothing waits, or no size is known.
    pub const fn lateness(self) -> Option<Nanos> {
        match self {
            Self::Late(time) => Some(time),
            Self::Slower | Self::Unsized => None,
        }
    }
}

/// How much a mechanism takes from a packet's latency budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Magnitude {
    /// In words, with numbers: "C6 takes 133 us to leave on Xeon E5 v3, 170 us on Ice Lake".
    pub text: &'static str,
    /// What it does to one packet where the judge knows no better: a typical value of the source.
    pub effect: Effect,
    /// Who measured or says so.
    pub source: &'static str,
}

/// What mends it: commands and kernel parameters as templates, one a line, with holes that the engine fills:
/// `{isolated}` and `{housekeeping}` (CPU lists), `{isolated-mask}` and `{housekeeping-mask}` (hexadecimal masks), `{nic}`
/// (the subject if it is an interface, else the first interface of the intent), `{cpu}` (the subject's CPUs as a list),
/// `{cpu-words}` (the same for a shell's loop), `{idle-limit}` (the exit latency that the goal leaves), `{irq}`, `{device}`;
/// `{bounds}` are cpupower's bounds of the frequency, and a line that has them becomes one for each base frequency.
/// Where a value is not known, the line becomes the option that makes it known: no template holds a word that somebody
/// must replace. A command is a line that a shell takes; what else is to be said is its comment.
/// A judgement can bring its own lines with [`crate::Judgement::now`], [`crate::Judgement::for_good`] and
/// [`crate::Judgement::look`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fix {
    /// Commands that tell more and mend nothing: a diagnosis. `None` if the evidence says enough.
    pub look: Option<&'static str>,
    /// For the running host: commands; `None` if it cannot be mended while it runs.
    pub runtime: Option<&'static str>,
    /// For good: kernel parameters, files, firmware settings. What [`Self::runtime`] sets by settings needs none.
    pub persistent: Option<&'static str>,
    /// Does the persistent one act from the next boot only?
    pub reboot: bool,
    /// Does it need somebody's number or eye, so that `apus audit --fix` must not write it?
    pub decision: bool,
    /// Does it give up power, safety or a feature for latency, so that it is among the first things to do only on a host
    /// of which somebody said, or which shows, what it is for ([`Context::has_intent`])? What a cause always trades is [`Cause::trades`].
    pub trade: bool,
}

impl Fix {
    /// Nothing mends it here.
    pub const NONE: Self =
        Self { look: None, runtime: None, persistent: None, reboot: false, decision: false, trade: false };

    /// Both ways, the second without a reboot.
    pub const fn both(runtime: &'static str, persistent: &'static str) -> Self {
        Self { runtime: Some(runtime), persistent: Some(persistent), ..Self::NONE }
    }

    /// For the running host alone.
    pub const fn runtime(runtime: &'static str) -> Self {
        Self { runtime: Some(runtime), ..Self::NONE }
    }

    /// From the next boot on: kernel parameters, firmware.
    pub const fn boot(persistent: &'static str) -> Self {
        Self { persistent: Some(persistent), reboot: true, ..Self::NONE }
    }

    /// The same, where the running host can be mended too.
    pub const fn runtime_or_boot(runtime: &'static str, persistent: &'static str) -> Self {
        Self { runtime: Some(runtime), persistent: Some(persistent), reboot: true, ..Self::NONE }
    }

    /// For good, without a reboot: a configuration that acts at once or when a service starts again.
    pub const fn for_good(persistent: &'static str) -> Self {
        Self { persistent: Some(persistent), ..Self::NONE }
    }

    /// A diagnosis alone: what mends it depends on what it shows.
    pub const fn look(commands: &'static str) -> Self {
        Self { look: Some(commands), ..Self::NONE }
    }

    /// Somebody must decide: `apus audit --fix` leaves it to people.
    pub const fn decided(self) -> Self {
        Self { decision: true, ..self }
    }

    /// It gives up something for latency: first among the things to do only where latency is known to matter.
    pub const fn traded(self) -> Self {
        Self { trade: true, ..self }
    }

    /// With a diagnosis first.
    pub const fn after(self, commands: &'static str) -> Self {
        Self { look: Some(commands), ..self }
    }
}

units::named! {
    /// The groups of the report, in its order.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum Group {
        /// The kernel's command line and its agreement with itself and reality.
        CommandLine = "cmdline",
        /// How the kernel was built, and which version it is.
        Kernel = "kernel",
        /// Frequency, idle states, uncore, threads of a core, topology.
        Cpu = "cpu",
        /// Firmware, system management interrupts, error handling.
        Firmware = "firmware",
        /// Memory and NUMA.
        Memory = "memory",
        /// Interrupts.
        Interrupts = "interrupts",
        /// Threads of the kernel and of users, workqueues, scheduler, tracing.
        Scheduling = "scheduling",
        /// Clock sources and time.
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
        /// Services and monitors.
        Services = "services",
        /// Sums over several settings.
        Arithmetic = "arithmetic",
        /// FreeBSD.
        FreeBsd = "freebsd",
        /// Questions on which good sources disagree.
        Choices = "choices",
    }
}

impl Group {
    /// What it is about, for people.
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
