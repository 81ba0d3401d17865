//! What a host is for: stated by the user, or inferred from the host.

use host::Facts;
use host::facts::{CpuSet, Link};
use units::{Nanos, Quantile};

/// What a host is for.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Context {
    /// CPUs that are kept for the application. Empty if there are none.
    pub isolated: Intended<CpuSet>,
    /// The interfaces that matter, by name.
    pub nics: Intended<Vec<String>>,
    /// Uses of the host, of which several can be true: a guest can also poll. Empty if not known.
    pub workloads: Intended<Vec<Workload>>,
    /// The latency goal. `None` if the user stated none.
    pub goal: Option<Goal>,
    /// Warnings about statements of the user that contradict the host and are therefore ignored.
    pub notes: Vec<String>,
}

/// An intended value, and whether the user stated it or it was inferred.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Intended<T> {
    /// The value.
    pub value: T,
    /// How the value is known.
    pub how: How,
}

/// How an intended value is known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum How {
    /// The user stated the value.
    Given,
    /// The value was inferred from what the host shows; the text names the evidence.
    Inferred(String),
    /// The user did not state the value, and the host does not show it.
    #[default]
    Nowhere,
}

units::named! {
    /// What a host is used for.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum Workload {
        /// Application threads poll the interface (DPDK, AF_XDP busy polling).
        Poll = "poll",
        /// Packets are served by the kernel's network stack, or by an application that sleeps until an interrupt
        /// arrives.
        Interrupt = "interrupt",
        /// The host has a real-time kernel (PREEMPT_RT).
        Rt = "rt",
        /// The host runs KVM guests.
        KvmHost = "kvm-host",
        /// The host is a guest.
        Guest = "guest",
    }
}

/// A latency goal: at least the share `quantile` of all packets must depart within `latency`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Goal {
    /// The share of packets that must meet the bound.
    pub quantile: Quantile,
    /// The latency that these packets must not exceed.
    pub latency: Nanos,
}

impl Context {
    /// The longest accepted wake-up time if no goal is given: 10 us. Low-latency profiles limit idle states to 1 to 10
    /// us (tuned, `force_latency`).
    pub const DEFAULT_BUDGET: Nanos = Nanos::from_micros(10);

    /// Whether the application only polls and never waits for an interrupt, so that no packet waits for a wake-up.
    pub fn only_polls(&self) -> bool {
        self.is(Workload::Poll) && !self.is(Workload::Interrupt)
    }

    /// Whether `workload` is one of the host's uses.
    pub fn is(&self, workload: Workload) -> bool {
        self.workloads.value.contains(&workload)
    }

    /// The longest delay that a single cause may add: the goal's latency, or [`Self::DEFAULT_BUDGET`].
    pub fn budget(&self) -> Nanos {
        self.goal.map_or(Self::DEFAULT_BUDGET, |goal| goal.latency)
    }

    /// Whether it is known that latency matters on this host, because the user stated it or the host shows it: there is
    /// a goal, isolated CPUs, or an application that polls or runs in real time.
    pub fn has_intent(&self) -> bool {
        self.goal.is_some()
            || !self.isolated.value.is_empty()
            || self.workloads.how == How::Given
            || self.is(Workload::Poll)
            || self.is(Workload::Rt)
    }

    /// The housekeeping CPUs: all online CPUs that are not isolated for the application.
    pub fn housekeeping(&self, facts: &Facts) -> CpuSet {
        facts.cpus.all().difference(&self.isolated.value)
    }

    /// The CPUs on which latency matters: the isolated CPUs, or all CPUs if none are isolated.
    pub fn critical(&self, facts: &Facts) -> CpuSet {
        match self.isolated.value.is_empty() {
            true => facts.cpus.all(),
            false => self.isolated.value.clone(),
        }
    }

    /// The interfaces that matter. Those that the facts do not contain are left out.
    pub fn links<'a>(&'a self, facts: &'a Facts) -> impl Iterator<Item = &'a Link> {
        let links = facts.links.value().into_iter().flatten();
        links.filter(|link| self.nics.value.contains(&link.name))
    }
}

impl<T> Intended<T> {
    /// Makes a value that the user stated.
    pub fn given(value: T) -> Self {
        Self { value, how: How::Given }
    }

    /// Makes a value that was inferred from the evidence that `from` names.
    pub fn inferred(value: T, from: impl Into<String>) -> Self {
        Self { value, how: How::Inferred(from.into()) }
    }
}
