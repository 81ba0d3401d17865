//! A guest: its vCPUs with their requests, its channels, and the limits on what it may still send.

use std::collections::BTreeMap;

use host::CpuSet;
use policy::Goal;
use units::{Instant, Monotonic, Nanos};

use super::bucket::Bucket;
use super::call::Done;
use super::dpdk;
use super::machine::{Domain, Manifest, Place};
use super::parser::Parser;
use super::record::Counts;

/// Bytes per second that a guest may send in addition to four DPDK packets for each allowed request.
const SPARE_BYTES: u32 = 65_536;
/// Size of the buffer for answers that a guest has not read yet, in bytes per channel: eight answers of DPDK.
pub const OUTBOX: usize = 4096;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Level {
    Max,
    Medium,
    Min,
    Khz(u32),
}

/// The requests of a vCPU that are still valid, that is, not withdrawn.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Wish {
    pub(super) level: Option<Level>,
    pub(super) is_without_turbo: bool,
    pub(super) goal: Option<Goal>,
    pub(super) idle: Option<Nanos>,
}

impl Wish {
    /// The requested frequency. A latency goal without a frequency requests the highest one, because the host cannot
    /// see how late the guest's packets are.
    pub(super) fn level(&self) -> Option<Level> {
        self.level.or(self.goal.map(|_| Level::Max))
    }

    /// The idle-state limit. A latency goal limits the exit latency to half of the goal, which leaves the other half
    /// for the rest of the path.
    pub(super) fn idle(&self) -> Option<Nanos> {
        let of_goal = self.goal.map(|goal| Nanos::from_nanos(goal.latency.as_nanos() / 2));
        self.idle.into_iter().chain(of_goal).min()
    }
}

#[derive(Debug)]
pub(super) struct Vcpu {
    pub(super) cpus: CpuSet,
    pub(super) place: Place,
    pub(super) wish: Wish,
    /// The last request of the vCPU that was logged, with its outcome, so that a repetition is not logged again.
    pub(super) logged: Option<Done>,
}

impl Vcpu {
    /// The CPU to which the vCPU's requests apply. The error says why there is no such CPU.
    pub(super) fn cpu(&self) -> Result<u32, String> {
        match &self.place {
            Place::Pinned(cpu) if self.cpus.contains(*cpu) => Ok(*cpu),
            Place::Pinned(cpu) => {
                Err(format!("the vCPU is pinned to CPU {cpu}, and the manifest allows CPU {}", self.cpus))
            }
            Place::Floating(cpus) => Err(format!("the vCPU may run on CPUs {cpus}; pin it to one")),
            Place::Unknown(why) => Err(format!("it is unknown on which CPU the vCPU runs: {why}")),
        }
    }

    /// Whether the vCPU may run on `cpu`. If its place is unknown, it may run on any CPU that the manifest allows.
    pub(super) fn may_be(&self, cpu: u32) -> bool {
        match self.place {
            Place::Unknown(_) => self.cpus.contains(cpu),
            _ => self.place.may_be(cpu),
        }
    }
}

#[derive(Debug)]
pub(super) struct Channel {
    pub(super) parser: Parser,
    pub(super) out: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Guest {
    pub(super) manifest: Manifest,
    pub(super) channels: Vec<Channel>,
    pub(super) vcpus: BTreeMap<u16, Vcpu>,
    /// vCPUs of the guest that the manifest does not list.
    pub(super) others: BTreeMap<u16, Place>,
    pub(super) requests: Bucket,
    /// As `requests`, for queries of a vCPU's state: a guest that steers asks once a second for each vCPU, which must not
    /// keep it from requesting frequencies.
    pub(super) queries: Bucket,
    pub(super) bytes: Bucket,
    pub(super) counts: Counts,
    /// Number of messages above the allowed rate that have not been logged yet.
    pub(super) untold: u64,
}

impl Guest {
    pub(super) fn new(manifest: Manifest, now: Instant<Monotonic>) -> Self {
        let channel = |_| Channel { parser: Parser::default(), out: Vec::with_capacity(OUTBOX) };
        let unknown = || Place::Unknown("it has not been looked up yet".into());
        let vcpu = |cpus: &CpuSet| Vcpu { cpus: cpus.clone(), place: unknown(), wish: Wish::default(), logged: None };
        let rate = manifest.requests_per_second;
        Self {
            channels: (0..manifest.channels).map(channel).collect(),
            vcpus: manifest.vcpus.iter().map(|(number, cpus)| (*number, vcpu(cpus))).collect(),
            others: BTreeMap::new(),
            requests: Bucket::new(rate, now),
            queries: Bucket::new(rate, now),
            bytes: Bucket::new(SPARE_BYTES.saturating_add(rate.saturating_mul(4 * dpdk::LENGTH as u32)), now),
            counts: Counts::default(),
            untold: 0,
            manifest,
        }
    }

    /// The lowest and the highest frequency step that the vCPU's requests may cause in a domain.
    pub(super) fn range(&self, vcpu: &Vcpu, domain: &Domain) -> (u32, u32) {
        let (least, most) = self.manifest.range(domain);
        match domain.nominal.filter(|_| vcpu.wish.is_without_turbo) {
            Some(nominal) => (least, most.min(nominal).max(least)),
            None => (least, most),
        }
    }

    /// The frequency step of a domain that the vCPU requests. `None` if it requests no frequency.
    pub(super) fn resolved(&self, vcpu: &Vcpu, domain: &Domain) -> Option<u32> {
        let (least, most) = self.range(vcpu, domain);
        Some(match vcpu.wish.level()? {
            Level::Max => most,
            Level::Min => least,
            // As DPDK's host program does (DPDK 22.11, examples/vm_power_manager/power_manager.c,
            // `power_manager_scale_core_med`).
            Level::Medium => domain.steps[domain.steps.len() / 2].clamp(least, most),
            Level::Khz(khz) => domain.at_least(khz).clamp(least, most),
        })
    }

    pub(super) fn answer(&mut self, channel: usize, bytes: &[u8]) {
        let Some(channel) = self.channels.get_mut(channel) else { return };
        if channel.out.len() + bytes.len() <= OUTBOX {
            channel.out.extend_from_slice(bytes);
        } else {
            self.counts.unread += 1;
        }
    }
}
