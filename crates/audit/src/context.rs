//! What a host is for: given, or inferred and said so.

use host::Facts;
use host::facts::{CpuSet, Link};
use units::{Nanos, Quantile};

/// What a host is for.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Context {
    /// CPUs that are kept for the application; empty if none are.
    pub isolated: Intended<CpuSet>,
    /// The interfaces that matter.
    pub nics: Intended<Vec<String>>,
    /// How packets are served; a guest can also poll. Empty if it is not known.
    pub workloads: Intended<Vec<Workload>>,
    /// How late a packet may be.
    pub goal: Option<Goal>,
    /// What was said of the host and contradicts what it shows, and so is left out.
    pub notes: Vec<String>,
}

/// Something intended, and how that is known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Intended<T> {
    /// What.
    pub value: T,
    /// How it is known.
    pub how: How,
}

/// How an intention is known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum How {
    /// Somebody said so.
    Given,
    /// From what the host shows; the text says from what.
    Inferred(String),
    /// Nothing shows it.
    #[default]
    Nowhere,
}

units::named! {
    /// A use of a host.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum Workload {
        /// Threads of the application poll the interface (DPDK, AF_XDP busy polling).
        Poll = "poll",
        /// The kernel's network stack, or an application that sleeps until an interrupt.
        Interrupt = "interrupt",
        /// A real-time kernel (PREEMPT_RT).
        Rt = "rt",
        /// A host of KVM guests.
        KvmHost = "kvm-host",
        /// A guest.
        Guest = "guest",
    }
}

/// A latency goal: the share `quantile` of all packets is at most `latency` late.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Goal {
    /// The share of packets that must keep the bound.
    pub quantile: Quantile,
    /// The bound.
    pub latency: Nanos,
}

impl Context {
    /// The wake-up time that is accepted where no goal is given: 10 us, the upper end of what low-latency profiles
    /// ask of idle states (tuned, `force_latency`: 1 to 10 us).
    pub const DEFAULT_BUDGET: Nanos = Nanos::from_micros(10);

    /// Does the application poll, and wait for no interrupt? Then no packet waits for a wake-up.
    pub fn only_polls(&self) -> bool {
        self.is(Workload::Poll) && !self.is(Workload::Interrupt)
    }

    /// Is this one of the host's uses?
    pub fn is(&self, workload: Workload) -> bool {
        self.workloads.value.contains(&workload)
    }

    /// The longest delay that a single cause may add: the goal's latency, or [`Self::DEFAULT_BUDGET`].
    pub fn budget(&self) -> Nanos {
        self.goal.map_or(Self::DEFAULT_BUDGET, |goal| goal.latency)
    }

    /// Did anybody say, or does the host show, what it is for: a goal, CPUs that are isolated, or an application that
    /// polls or runs in real time?
    pub fn has_intent(&self) -> bool {
        self.goal.is_some()
            || !self.isolated.value.is_empty()
            || self.workloads.how == How::Given
            || self.is(Workload::Poll)
            || self.is(Workload::Rt)
    }

    /// The CPUs for everything else: all that are online and not isolated.
    pub fn housekeeping(&self, facts: &Facts) -> CpuSet {
        facts.cpus.all().difference(&self.isolated.value)
    }

    /// The CPUs on which latency matters: the isolated ones, or all where none are.
    pub fn critical(&self, facts: &Facts) -> CpuSet {
        match self.isolated.value.is_empty() {
            true => facts.cpus.all(),
            false => self.isolated.value.clone(),
        }
    }

    /// Is a CPU kept for the application?
    pub fn is_isolated(&self, cpu: u32) -> bool {
        self.isolated.value.contains(cpu)
    }

    /// The interfaces that matter, as far as the facts know them.
    pub fn links<'a>(&'a self, facts: &'a Facts) -> impl Iterator<Item = &'a Link> {
        let links = facts.links.value().into_iter().flatten();
        links.filter(|link| self.nics.value.contains(&link.name))
    }
}

impl<T> Intended<T> {
    /// Somebody said so.
    pub fn given(value: T) -> Self {
        Self { value, how: How::Given }
    }

    /// From what the host shows.
    pub fn inferred(value: T, from: impl Into<String>) -> Self {
        Self { value, how: How::Inferred(from.into()) }
    }
}
