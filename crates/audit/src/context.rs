//! What a host is for: stated by the user, or inferred from the host.

use host::Facts;
use host::facts::{CpuSet, Link};
use units::{Nanos, Quantile};

/// What a host is for.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Context {
    /// CPUs that are reserved for the application. Empty if there are none.
    pub isolated: Intended<CpuSet>,
    /// The network interfaces that matter, by name.
    pub nics: Intended<Vec<String>>,
    /// What the host is used for. There can be several uses: a guest can also poll. Empty if not known.
    pub workloads: Intended<Vec<Workload>>,
    /// The latency goal. `None` if the user stated none.
    pub goal: Option<Goal>,
    /// Warnings about statements of the user that are ignored because they contradict the host.
    pub notes: Vec<String>,
}

/// A value of the context, with its origin: stated by the user, or inferred.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Intended<T> {
    /// The value that was stated or inferred.
    pub value: T,
    /// Whether the value was stated or inferred.
    pub how: How,
}

/// The origin of a value of the context.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum How {
    /// The user stated the value.
    Given,
    /// The value was inferred from the host. The string names the evidence.
    Inferred(String),
    /// The value is missing: the user did not state it, and nothing on the host shows it.
    #[default]
    Nowhere,
}

units::named! {
    /// What a host is used for.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum Workload {
        /// Application threads poll the interface (DPDK, AF_XDP busy polling).
        Poll = "poll",
        /// Packets are handled by the kernel's network stack, or by an application that sleeps until an interrupt
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

/// A latency goal: at least the share `quantile` of all packets must depart within `latency` of their arrival.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Goal {
    /// The share of packets that must meet `latency`.
    pub quantile: Quantile,
    /// The maximum latency of these packets.
    pub latency: Nanos,
}

impl Context {
    /// The longest accepted wake-up time if the user states no goal: 10 us. Low-latency profiles limit the exit latency
    /// of idle states to 1 to 10 us (tuned, `force_latency`).
    pub const DEFAULT_BUDGET: Nanos = Nanos::from_micros(10);

    /// Whether the application only polls and never waits for interrupts, so that no packet waits for a wake-up.
    pub fn only_polls(&self) -> bool {
        self.is(Workload::Poll) && !self.is(Workload::Interrupt)
    }

    /// Whether `workload` is one of the host's uses.
    pub fn is(&self, workload: Workload) -> bool {
        self.workloads.value.contains(&workload)
    }

    /// The longest delay that a single cause may add: the goal's latency, or [`Self::DEFAULT_BUDGET`] without a goal.
    pub fn budget(&self) -> Nanos {
        self.goal.map_or(Self::DEFAULT_BUDGET, |goal| goal.latency)
    }

    /// Whether latency is known to matter on this host: there is a goal, there are isolated CPUs, the user stated a
    /// workload, or the host has an application that polls or runs in real time.
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

    /// The interfaces that matter, except those that the facts do not contain.
    pub fn links<'a>(&'a self, facts: &'a Facts) -> impl Iterator<Item = &'a Link> {
        let links = facts.links.value().into_iter().flatten();
        links.filter(|link| self.nics.value.contains(&link.name))
    }
}

impl<T> Intended<T> {
    /// Creates a value that the user stated.
    pub fn given(value: T) -> Self {
        Self { value, how: How::Given }
    }

    /// Creates a value that was inferred; `from` names the evidence.
    pub fn inferred(value: T, from: impl Into<String>) -> Self {
        Self { value, how: How::Inferred(from.into()) }
    }
}
