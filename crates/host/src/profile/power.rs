//! Plans fixed frequencies of cores and of the uncore.

use units::Hertz;

use crate::facts::CpuSet;
use crate::knob::{
    Access, Error, HwpRequest, Limits, UncoreLimits, UncoreMsr, Value, policies, policy_cpus, ratio, uncore_dies,
    uncore_domains,
};
use crate::transaction::Plan;

/// The frequencies to fix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Power {
    /// The cores whose frequency is fixed.
    pub cpus: CpuSet,
    /// The fixed frequency of the cores. `None` leaves it unchanged.
    pub frequency: Option<Hertz>,
    /// The fixed frequency of the uncore of all dies. `None` leaves it unchanged.
    pub uncore: Option<Hertz>,
    /// The interface through which the frequencies are fixed.
    pub via: Via,
}

units::named! {
    /// The interface through which a frequency is fixed.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Via {
        /// Model-specific registers: the HWP request (0x774) of each CPU, and the uncore ratio limit (0x620) of each
        /// die.
        Hwp = "hwp",
        /// The kernel's files in /sys: the limits of the cpufreq policies and of the uncore domains.
        Cpufreq = "cpufreq",
    }
}

impl Power {
    /// Makes the plan of settings for this machine.
    pub fn plan(&self, access: &Access) -> Result<Plan, Error> {
        let mut plan = Plan::new("power");
        if let Some(frequency) = self.frequency {
            plan = match self.via {
                Via::Hwp => self.by_register(plan, frequency)?,
                Via::Cpufreq => self.by_policy(access, plan, frequency)?,
            };
        }
        match self.uncore {
            Some(uncore) => self.uncore(access, plan, uncore),
            None => Ok(plan),
        }
    }

    /// Notes on other CPUs whose frequency changes too, because all CPUs of a frequency policy have the same frequency.
    pub fn notes(&self, access: &Access) -> Result<Vec<String>, Error> {
        let mut notes = Vec::new();
        if self.frequency.is_none() || self.via == Via::Hwp {
            return Ok(notes);
        }
        for policy in policies(access)? {
            let cpus = policy_cpus(access, policy)?;
            let others = cpus.difference(&self.cpus);
            if !cpus.intersection(&self.cpus).is_empty() && !others.is_empty() {
                notes.push(format!(
                    "CPUs {cpus} share the frequency policy {policy}: the frequency of CPUs {others} changes too"
                ));
            }
        }
        Ok(notes)
    }

    fn by_register(&self, plan: Plan, frequency: Hertz) -> Result<Plan, Error> {
        let level = level(frequency)?;
        Ok(self.cpus.iter().fold(plan, |plan, cpu| plan.with(HwpRequest::new(cpu), HwpRequest::fixed(level))))
    }

    fn by_policy(&self, access: &Access, mut plan: Plan, frequency: Hertz) -> Result<Plan, Error> {
        let mut left = self.cpus.clone();
        for policy in policies(access)? {
            let cpus = policy_cpus(access, policy)?;
            if !cpus.intersection(&self.cpus).is_empty() {
                plan = plan.with(Limits::new(policy), Limits::value(frequency, frequency));
                left = left.difference(&cpus);
            }
        }
        if left.is_empty() {
            return Ok(plan);
        }
        Err(Error::NotThere {
            what: format!("frequency policy of CPU {left}"),
            why: "the host has no cpufreq for it".into(),
        })
    }

    fn uncore(&self, access: &Access, mut plan: Plan, frequency: Hertz) -> Result<Plan, Error> {
        if self.via == Via::Cpufreq {
            let domains = uncore_domains(access)?;
            if domains.is_empty() {
                let why = "the driver intel_uncore_frequency is not loaded; use --via hwp to write the register".into();
                return Err(Error::NotThere { what: "uncore frequency".into(), why });
            }
            let wanted = Limits::value(frequency, frequency);
            return Ok(domains
                .into_iter()
                .fold(plan, |plan, domain| plan.with(UncoreLimits::new(domain), wanted.clone())));
        }
        let ratio = level(frequency)?;
        for die in uncore_dies(access)? {
            if let Some(cpu) = die.iter().next() {
                plan = plan.with(UncoreMsr::new(cpu), Value::fields([("min", ratio), ("max", ratio)]));
            }
        }
        Ok(plan)
    }
}

fn level(frequency: Hertz) -> Result<u8, Error> {
    let wrong = || {
        Error::invalid(format!("{} Hz", frequency.as_hertz()), "the register takes multiples of 100 MHz up to 25.5 GHz")
    };
    ratio(frequency).ok_or_else(wrong)
}
