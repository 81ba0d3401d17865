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
    /// How packets are served; a guest can also poll. Empty if it is not known.
    pub workloads: Intended<Vec<Workload>>,
    /// The latency goal. `None` if the user stated none.
    pub goal: Option<Goal>,
    /// Statements of the user that contradict the host and are therefore ignored.
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

/// How an intention is known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum How {
    /// The user stated the use.
    Given,
    /// The value was inferred from what the host shows; the text names the evidence.
    Inferred(String),
    /// Neither stated nor shown by the host.
    #[default]
    Nowhere,
}

units::named! {
    /// What a host is used for.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum Workload {
        /// Application threads poll the interface (DPDK, AF_XDP busy polling).
        Poll = "poll",
        /// The kernel's network stack serves the packets, or an application that sleeps until an interrupt.
        Interrupt = "interrupt",
        /// The host has a real-time kernel (PREEMPT_RT).
        Rt = "rt",
        /// The host runs KVM guests.
        KvmHost = "kvm-host",
        /// The host is a guest.
        Guest = "guest",
    }
}

/// A latency goal: at least the share `quantile` of all packets departs within `latency`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Goal {
    /// The share of packets that must meet the bound.
    pub quantile: Quantile,
    /// The latency that these packets must not exceed.
    pub latency: Nanos,
}

impl Context {
    /// The wake-up time that is accepted if no goal is given: 10 us, the upper end of what low-latency profiles demand
    /// of idle states (tuned, `force_latency`: 1 to 10 us).
    pub const DEFAULT_BUDGET: Nanos = Nanos::from_micros(10);

    /// Whether the application polls and waits for no interrupt. Then no packet waits for a wake-up.
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

    /// Whether the user stated, or the host shows, what it is for: a goal, isolated CPUs, or an application that polls
    /// or runs in real time.
    pub fn has_intent(&self) -> bool {
        self.goal.is_some()
            || !self.isolated.value.is_empty()
            || self.workloads.how == How::Given
            || self.is(Workload::Poll)
            || self.is(Workload::Rt)
    }

    /// The CPUs for everything else: all online CPUs that are not isolated.
    pub fn housekeeping(&self, facts: &Facts) -> CpuSet {
        facts.cpus.all().difference(&self.isolated.value)
    }

    /// The CPUs on which latency matters: the isolated ones, or all if there are none.
    pub fn critical(&self, facts: &Facts) -> CpuSet {
        match self.isolated.value.is_empty() {
            true => facts.cpus.all(),
            false => self.isolated.value.clone(),
        }
    }

    /// The interfaces that matter, as far as the facts contain them.
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

    /// Makes a value that was inferred from what `from` names.
    pub fn inferred(value: T, from: impl Into<String>) -> Self {
        Self { value, how: How::Inferred(from.into()) }
    }
}
