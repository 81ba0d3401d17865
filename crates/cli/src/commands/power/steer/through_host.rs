//! `apus power steer --through-host`: the host of this guest sets the frequencies.

use std::path::Path;

use steer::frequency::remote::Remote;
use steer::guests::protocol::Ask;
use units::Nanos;

use super::super::channel::Channel;
use super::hand::Hand;
use super::idle::IdleLimits;
use super::note;
use crate::Failure;

/// Maximum time to wait for an answer at the start and at the end.
const PATIENCE: Nanos = Nanos::from_secs(5);

/// The channel to the host, and the vCPUs that are controlled through it.
pub(super) struct ThroughHost {
    channel: Channel,
    vcpus: Vec<u16>,
}

impl ThroughHost {
    /// Opens the channel. `port` is the port to use; `None` means the first one that exists.
    pub(super) fn open(port: Option<&Path>, cpus: impl Iterator<Item = u32>) -> Result<Self, Failure> {
        let vcpus = cpus.map(|cpu| {
            u16::try_from(cpu).map_err(|_| {
                Failure::wrong(format!("cannot control CPU {cpu}"), "vCPUs have numbers up to 65535", "check --cpus")
            })
        });
        let vcpus: Vec<u16> = vcpus.collect::<Result<_, _>>()?;
        Ok(Self { channel: Channel::open(port, vcpus.first().copied().unwrap_or(0))?, vcpus })
    }

    /// The actuator of each vCPU.
    pub(super) fn hands(&self, dry_run: bool) -> Result<Vec<Hand>, Failure> {
        let each = |vcpu: &u16| {
            let state = self.channel.ask(Ask::State, *vcpu, PATIENCE)?;
            let remote = Remote::new(self.channel.client(), *vcpu, &state).map_err(|why| {
                let fix = "let the manifest on the host list the vCPU and allow queries (query = true), pin the vCPU to one CPU, and update Apus on the host";
                Failure::lacking(format!("cannot control vCPU {vcpu} through the host"), why, fix)
            })?;
            Ok(Hand::Host(Box::new(if dry_run { remote.that_changes_nothing() } else { remote })))
        };
        self.vcpus.iter().map(each).collect()
    }

    /// Requests the limit of idle states for each vCPU.
    pub(super) fn limit_idle(&self, limit: Nanos, dry_run: bool) -> Result<IdleLimits, Failure> {
        let mut refused = Vec::new();
        for vcpu in self.vcpus.iter().filter(|_| !dry_run) {
            let answer = self.channel.ask(Ask::Idle(Some(limit)), *vcpu, PATIENCE)?;
            refused.push((!answer.verdict.is_good()).then_some(answer.why));
        }
        let cpus = self.vcpus.iter().map(|vcpu| u32::from(*vcpu));
        Ok(IdleLimits::requested(limit, cpus.zip(refused.into_iter().chain(std::iter::repeat(None)))))
    }

    /// Withdraws all requests. Returns whether the host confirmed this.
    pub(super) fn withdraw(&self) -> bool {
        let each = |vcpu: &u16| match self.channel.ask(Ask::Release, *vcpu, PATIENCE) {
            Ok(answer) if answer.verdict.is_good() => true,
            Ok(answer) => {
                note(&format!("the requests for vCPU {vcpu} are not withdrawn: {}", answer.why));
                false
            }
            Err(failure) => {
                note(&format!("the requests for vCPU {vcpu} are not withdrawn: {failure}"));
                false
            }
        };
        // Withdraws each request, even after a failure.
        self.vcpus.iter().map(each).fold(true, |all, one| all & one)
    }
}
