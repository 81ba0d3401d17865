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
        let channel = Channel::open(port, vcpus.first().copied().unwrap_or(0), "--through-host")?;
        Ok(Self { channel, vcpus })
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

    /// Requests the limit of idle states for each vCPU, and lets the actuators keep it in force.
    pub(super) fn limit_idle(&self, limit: Nanos, hands: &mut [Hand], dry_run: bool) -> IdleLimits {
        let asked = if dry_run { &[][..] } else { &self.vcpus[..] };
        let answers = self.channel.ask_all(Ask::Idle(Some(limit)), asked, PATIENCE, || false);
        let refused: Vec<Option<String>> = answers
            .into_iter()
            .map(|answer| match answer {
                Ok(answer) if answer.verdict.is_good() => None,
                Ok(answer) => Some(answer.why),
                Err(why) => Some(why),
            })
            .collect();
        for (hand, trouble) in hands.iter_mut().zip(&refused) {
            if let Hand::Host(remote) = hand {
                remote.limit_idle(limit, trouble.clone());
            }
        }
        let cpus = self.vcpus.iter().map(|vcpu| u32::from(*vcpu));
        IdleLimits::requested(limit, cpus.zip(refused.into_iter().chain(std::iter::repeat(None))))
    }

    /// Withdraws all requests. Returns whether the host confirmed this. Ends early if `stop` returns true.
    pub(super) fn withdraw(&self, stop: impl Fn() -> bool) -> bool {
        let mut is_confirmed = true;
        let answers = self.channel.ask_all(Ask::Release, &self.vcpus, PATIENCE, stop);
        for (vcpu, answer) in self.vcpus.iter().zip(answers) {
            let why = match answer {
                Ok(answer) if answer.verdict.is_good() => continue,
                Ok(answer) => answer.why,
                Err(why) => why,
            };
            note(&format!("the requests for vCPU {vcpu} are not withdrawn: {why}"));
            is_confirmed = false;
        }
        is_confirmed
    }
}
