//! The hosts to which a rule applies.

use host::Facts;
use host::facts::{KernelVersion, Os, Vendor};

use crate::{Context, Skip, Workload};

/// The hosts to which a rule applies. Start from one of the constants and add restrictions:
/// `Applies::LINUX.to(&[Workload::Poll]).on_hardware().isolated()`.
#[derive(Clone, Copy, Debug)]
pub struct Applies {
    /// The operating system to which the rule applies.
    pub os: Os,
    /// The workloads to which the rule applies. Empty means all workloads.
    pub workloads: &'static [Workload],
    /// The CPU vendors to which the rule applies. Empty means all vendors.
    pub vendors: &'static [Vendor],
    /// Network drivers to which the rule applies: at least one interface that matters ([`Context::nics`]) must use one
    /// of them. Empty means any driver.
    pub drivers: &'static [&'static str],
    /// The first kernel version to which the rule applies. `None` means no lower limit.
    pub since: Option<KernelVersion>,
    /// The first kernel version to which the rule no longer applies. `None` means no upper limit.
    pub until: Option<KernelVersion>,
    /// Whether the rule applies on hardware, in a guest, or on both.
    pub place: Place,
    /// Whether the rule applies only if CPUs are isolated for the application.
    pub isolated: bool,
    /// Whether the rule applies only if some interface matters ([`Context::nics`] is not empty).
    pub nic: bool,
}

/// The environments in which a rule applies: hardware, guests, or both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The rule applies both on hardware and in guests.
    Anywhere,
    /// The rule applies on hardware only: a guest does not have the setting or cannot change it.
    Hardware,
    /// The rule applies in a guest only.
    Guest,
}

impl Applies {
    /// A starting point for rules that apply to every Linux host.
    pub const LINUX: Self = Self {
        os: Os::Linux,
        workloads: &[],
        vendors: &[],
        drivers: &[],
        since: None,
        until: None,
        place: Place::Anywhere,
        isolated: false,
        nic: false,
    };
    /// A starting point for rules that apply to every FreeBSD host.
    pub const FREEBSD: Self = Self { os: Os::FreeBsd, ..Self::LINUX };

    /// Restricts the rule to these workloads.
    pub const fn to(mut self, workloads: &'static [Workload]) -> Self {
        self.workloads = workloads;
        self
    }

    /// Restricts the rule to CPUs of these vendors.
    pub const fn made_by(mut self, vendors: &'static [Vendor]) -> Self {
        self.vendors = vendors;
        self
    }

    /// Restricts the rule to hosts with an interface that has one of these drivers.
    pub const fn driven_by(mut self, drivers: &'static [&'static str]) -> Self {
        self.drivers = drivers;
        self
    }

    /// Restricts the rule to this kernel version and later ones.
    pub const fn since(mut self, version: KernelVersion) -> Self {
        self.since = Some(version);
        self
    }

    /// Restricts the rule to kernel versions before this one.
    pub const fn until(mut self, version: KernelVersion) -> Self {
        self.until = Some(version);
        self
    }

    /// Restricts the rule to hosts that are not guests.
    pub const fn on_hardware(mut self) -> Self {
        self.place = Place::Hardware;
        self
    }

    /// Restricts the rule to guests.
    pub const fn in_guest(mut self) -> Self {
        self.place = Place::Guest;
        self
    }

    /// Restricts the rule to hosts with isolated CPUs.
    pub const fn isolated(mut self) -> Self {
        self.isolated = true;
        self
    }

    /// Restricts the rule to hosts on which some interface matters ([`Context::nics`] is not empty).
    pub const fn with_nic(mut self) -> Self {
        self.nic = true;
        self
    }

    /// Checks whether the rule applies to this host. The error says why it does not.
    pub fn check(&self, facts: &Facts, context: &Context) -> Result<(), Skip> {
        if facts.origin.os != self.os {
            return Err(Skip::not_applicable(match self.os {
                Os::Linux => "the host does not run Linux",
                Os::FreeBsd => "the host does not run FreeBSD",
            }));
        }
        if !self.workloads.is_empty() && !self.workloads.iter().any(|workload| context.is(*workload)) {
            let wanted: Vec<&str> = self.workloads.iter().map(|workload| workload.name()).collect();
            return Err(Skip::not_applicable(format!("only for hosts with workload {}", wanted.join(" or "))));
        }
        if self.isolated && context.isolated.value.is_empty() {
            return Err(Skip::not_applicable("no CPU is isolated; name them with --isolated"));
        }
        if self.nic && context.nics.value.is_empty() {
            // If no interfaces were recorded, the host may still have some.
            crate::known(&facts.links)?;
            return Err(Skip::not_applicable("no interface is named or found; name one with --nic"));
        }
        self.check_place(facts)?;
        self.check_vendor(facts)?;
        self.check_kernel(facts)?;
        self.check_drivers(facts, context)
    }

    fn check_place(&self, facts: &Facts) -> Result<(), Skip> {
        if self.place == Place::Anywhere {
            return Ok(());
        }
        let guest = *crate::known(&facts.virtualisation.guest)?;
        match (self.place, guest) {
            (Place::Hardware, true) => Err(Skip::not_applicable(
                "this host is a guest: only the hypervisor can change \
                this",
            )),
            (Place::Guest, false) => Err(Skip::not_applicable("this host is not a guest")),
            _ => Ok(()),
        }
    }

    fn check_vendor(&self, facts: &Facts) -> Result<(), Skip> {
        if self.vendors.is_empty() {
            return Ok(());
        }
        let vendor = *crate::known(&facts.cpus.vendor)?;
        match self.vendors.contains(&vendor) {
            true => Ok(()),
            false => Err(Skip::not_applicable("only for CPUs of another vendor")),
        }
    }

    fn check_kernel(&self, facts: &Facts) -> Result<(), Skip> {
        if self.since.is_none() && self.until.is_none() {
            return Ok(());
        }
        let version = *crate::known(&facts.kernel.version)?;
        match (self.since, self.until) {
            (Some(since), _) if version < since => {
                Err(Skip::not_applicable(format!("only from Linux {since} on; this is {version}")))
            }
            (_, Some(until)) if version >= until => {
                Err(Skip::not_applicable(format!("only before Linux {until}; this is {version}")))
            }
            _ => Ok(()),
        }
    }

    fn check_drivers(&self, facts: &Facts, context: &Context) -> Result<(), Skip> {
        if self.drivers.is_empty() {
            return Ok(());
        }
        let links = crate::known(&facts.links)?;
        let mut unknown = None;
        for link in links.iter().filter(|link| context.nics.value.contains(&link.name)) {
            match link.driver.value() {
                Some(driver) if self.drivers.contains(&driver.as_str()) => return Ok(()),
                Some(_) => {}
                None => unknown = unknown.or(Some(&link.driver)),
            }
        }
        match unknown {
            Some(driver) => crate::known(driver).map(|_| ()),
            None => Err(Skip::not_applicable(format!("for interfaces driven by {}", self.drivers.join(", ")))),
        }
    }
}
