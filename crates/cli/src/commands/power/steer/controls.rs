//! Controls the frequencies and idle states of CPUs, through this machine's settings or through the host that runs this
//! guest.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use host::knob::{Access, CpuLatency};
use host::transaction::{Outcome, Steered, Target};
use steer::frequency::place::{Highest, Place, Shared, Way};

use super::hand::Hand;
use super::idle::IdleLimits;
use super::shared::{Need, SharedSettings};
use super::targets::Domains;
use super::through_host::ThroughHost;
use super::{COMMAND, note};
use crate::Failure;
use crate::args::power::steer::PowerSteer;
use crate::documents::VERSION;

/// Maximum time to wait for another transaction before restoring settings.
const PATIENCE: Duration = Duration::from_secs(30);

/// The settings or requests under control, which must be restored or withdrawn at the end.
pub(super) struct Controls {
    pub(super) idle: Option<IdleLimits>,
    pub(super) shared: SharedSettings,
    held: Held,
}

enum Held {
    /// Settings of this machine. `None` in a dry run, which changes nothing.
    Here(Option<Shared>),
    /// Requests to the host, and whether any request was made.
    Host(ThroughHost, bool),
}

impl Controls {
    /// Takes the CPUs under control. Returns the actuator of each, in the same order.
    pub(super) fn take(
        typed: &PowerSteer,
        access: &Access,
        domains: Option<&Domains>,
        cpus: &[u32],
    ) -> anyhow::Result<(Self, Vec<Hand>)> {
        match (&typed.through_host, domains) {
            (Some(port), _) => {
                let host = ThroughHost::open(port.as_deref(), cpus.iter().copied())?;
                let mut hands = host.hands(typed.dry_run)?;
                let idle = typed.idle_latency.map(|limit| host.limit_idle(limit, &mut hands, typed.dry_run));
                let shared = SharedSettings::default();
                Ok((Self { idle, shared, held: Held::Host(host, !typed.dry_run) }, hands))
            }
            (None, Some(domains)) => Self::here(typed, access, domains, cpus),
            (None, None) => anyhow::bail!("no frequency domains were read"),
        }
    }

    fn here(typed: &PowerSteer, access: &Access, domains: &Domains, cpus: &[u32]) -> anyhow::Result<(Self, Vec<Hand>)> {
        let places = &domains.places;
        if typed.turbo {
            check_turbo(places)?;
        }
        let settings: Vec<Target> =
            places.iter().flat_map(|place| place.settings().iter().cloned().map(Target::from)).collect();
        let frequencies = settings.len();
        let limited = typed.idle_latency.into_iter().flat_map(|_| cpus).map(|cpu| CpuLatency::new(*cpu).into());
        let mut settings: Vec<Target> = settings.into_iter().chain(limited).collect();
        let shared = SharedSettings::find(typed, access, settings.len())?;
        settings.extend(shared.targets());
        let mut steered = match typed.dry_run {
            true => None,
            false => Some(Steered::new(access, "power steer", &settings, COMMAND, VERSION)?),
        };
        let idle = match typed.idle_latency {
            None => None,
            Some(limit) => Some(IdleLimits::set(limit, cpus.iter().copied(), frequencies, steered.as_mut())?),
        };
        let steered: Option<Shared> = steered.map(|steered| Arc::new(Mutex::new(steered)));
        let mut first = 0;
        let of_domain = |(number, place): (usize, &Place)| {
            let cores = cpus.iter().filter(|cpu| domains.of_cpu.get(cpu) == Some(&number)).count();
            let settings = steered.as_ref().map(|steered| (steered.clone(), first));
            first += place.settings().len();
            Highest::of(place.clone(), access, settings, cores)
        };
        let mut of_domain: Vec<_> = places.iter().enumerate().map(of_domain).collect();
        let hand = |cpu: &u32| {
            let number = domains.of_cpu.get(cpu).copied();
            let hand = number.and_then(|number| of_domain.get_mut(number)?.pop());
            hand.map(Hand::Here).ok_or_else(|| anyhow::anyhow!("a domain has fewer actuators than CPUs"))
        };
        let hands = cpus.iter().map(hand).collect::<anyhow::Result<_>>()?;
        Ok((Self { idle, shared, held: Held::Here(steered) }, hands))
    }

    /// Checks whether somebody else has changed an idle limit, and adapts the shared settings. Called once per second.
    /// Returns whether Apus has switched turbo off.
    pub(super) fn second(&mut self, need: Need) -> bool {
        let steered = match &self.held {
            Held::Here(Some(steered)) => Some(steered),
            Held::Here(None) | Held::Host(..) => None,
        };
        let mut steered = steered.map(|steered| steered.lock().unwrap_or_else(PoisonError::into_inner));
        if let (Some(idle), Some(steered)) = (&mut self.idle, steered.as_deref_mut()) {
            idle.look(steered);
        }
        self.shared.second(need, steered.as_deref_mut())
    }

    /// Restores all settings, or withdraws all requests. All actuators must have been dropped. `Some` says whether that
    /// succeeded; `None` means that there was nothing to restore. Waiting for the host ends early if `stop` returns true.
    pub(super) fn give_back(self, stop: impl Fn() -> bool) -> Option<bool> {
        let steered = match self.held {
            Held::Host(host, has_asked) => return has_asked.then(|| host.withdraw(stop)),
            Held::Here(steered) => steered.and_then(|steered| Arc::into_inner(steered)?.into_inner().ok()),
        };
        match steered?.release_within(PATIENCE) {
            Ok(None) => None,
            Ok(Some(back)) => {
                if !back.closed {
                    note("not all settings are restored; look at apus tune status, then run apus tune rollback");
                }
                let is_any = back.entries.iter().any(|(_, outcome)| *outcome == Outcome::Restored);
                Some(back.closed).filter(|closed| !*closed || is_any)
            }
            Err(error) => {
                note(&format!("the settings are not restored ({error}); try again with apus tune rollback"));
                Some(false)
            }
        }
    }
}

/// Fails if Apus cannot tell when a CPU of these domains needs turbo, or cannot switch it without losing the domain.
fn check_turbo(places: &[Place]) -> Result<(), Failure> {
    for place in places {
        let what = || format!("cannot control turbo together with CPUs {}", place.domain.cpus);
        if place.domain.nominal.is_none() {
            let why = "the driver does not report their nominal frequency, from which turbo begins";
            return Err(Failure::lacking(what(), why, "omit --turbo"));
        }
        if place.way == Way::Hwp {
            let why = "with --via hwp: intel_pstate writes the HWP request anew when turbo is switched";
            return Err(Failure::wrong(what(), why, "choose another --via, or omit --turbo"));
        }
    }
    Ok(())
}
