//! Sets the frequency of a CPU through this machine's kernel, or through the host of this guest.

use std::fs::File;

use policy::frequency::PStates;
use steer::frequency::InForce;
use steer::frequency::place::Core as Local;
use steer::frequency::remote::Remote;
use steer::{Acted, Actuator, Standing};
use units::{Hertz, Instant, Monotonic};

use crate::documents::power_steer::Via;

/// Sets the frequency of a CPU.
pub(super) enum Hand {
    /// Through the kernel's settings.
    Here(Local),
    /// Through a channel to the host.
    Host(Box<Remote<File, Monotonic>>),
}

/// The CPUs that share the frequency of a CPU, and how the frequency is set.
pub(super) struct Site {
    /// Number of the kernel's cpufreq policy, or of the vCPU.
    pub(super) domain: u32,
    pub(super) cpus: String,
    pub(super) driver: Option<String>,
    pub(super) via: Via,
}

impl Hand {
    pub(super) fn site(&self) -> Site {
        match self {
            Self::Here(core) => {
                let place = core.place();
                let (cpus, driver) = (place.domain.cpus.to_string(), place.domain.driver);
                Site { domain: place.domain.policy, cpus, driver, via: place.way.into() }
            }
            Self::Host(remote) => {
                let domain = u32::from(remote.vcpu());
                Site { domain, cpus: domain.to_string(), driver: None, via: Via::Host }
            }
        }
    }

    /// The frequencies that can be requested.
    pub(super) fn pstates(&self) -> PStates {
        match self {
            Self::Here(core) => core.place().pstates,
            Self::Host(remote) => remote.pstates(),
        }
    }

    /// The highest frequency without turbo. `None` if it is unknown, or if there is no turbo.
    pub(super) fn nominal(&self) -> Option<Hertz> {
        match self {
            Self::Here(core) => core.place().domain.nominal,
            Self::Host(_) => None,
        }
    }

    pub(super) fn in_force(&self) -> InForce {
        match self {
            Self::Here(core) => core.in_force(),
            Self::Host(remote) => remote.in_force(),
        }
    }

    /// Tells the actuator whether frequencies above the nominal one are available.
    pub(super) fn allow_turbo(&mut self, is_allowed: bool) {
        if let Self::Here(core) = self {
            core.allow_turbo(is_allowed);
        }
    }

    /// Whether turbo is off because Apus switched it off.
    pub(super) fn is_turbo_off(&self) -> bool {
        matches!(self, Self::Here(core) if !core.is_turbo_allowed())
    }

    /// What limits the frequency, in words.
    pub(super) fn limited_by(&self) -> &'static str {
        match self {
            Self::Here(core) => core.limited_by(),
            Self::Host(_) => "the host",
        }
    }

    /// The idle limit that this actuator requests from the host, and the reason if it is not in force.
    pub(super) fn idle_trouble(&self) -> Option<String> {
        match self {
            Self::Here(_) => None,
            Self::Host(remote) => remote.idle_trouble(),
        }
    }

    /// Number of frequency changes requested for the CPUs that share the frequency.
    pub(super) fn changes(&self) -> u64 {
        match self {
            Self::Here(core) => core.changes(),
            Self::Host(remote) => remote.changes(),
        }
    }

    fn actuator(&mut self) -> &mut dyn Actuator<Monotonic, Setting = Hertz, InForce = InForce> {
        match self {
            Self::Here(core) => core,
            Self::Host(remote) => &mut **remote,
        }
    }
}

impl Actuator<Monotonic> for Hand {
    type Setting = Hertz;
    type InForce = InForce;

    fn set(&mut self, now: Instant<Monotonic>, wish: &Hertz) -> Acted<InForce> {
        self.actuator().set(now, wish)
    }

    fn look(&mut self, now: Instant<Monotonic>) -> Acted<InForce> {
        self.actuator().look(now)
    }

    fn stands(&mut self) -> Standing {
        self.actuator().stands()
    }

    fn shifted(&mut self) -> Option<InForce> {
        self.actuator().shifted()
    }
}
