//! Sets the frequency of cores. Cores that share a frequency get the highest one that any of them requests.
//!
//! | name | setting | for |
//! | --- | --- | --- |
//! | `setspeed` | governor `userspace`, `scaling_setspeed` | drivers that let the kernel choose: acpi-cpufreq, intel_pstate=passive, amd_pstate=passive |
//! | `limits` | `scaling_min_freq` = `scaling_max_freq` | every driver |
//! | `hwp` | MSR 0x774, lowest and highest performance | Intel, HWP enabled, module msr |
//! | `epp` | energy-performance preference, 0 to 255 | HWP or amd_pstate=active, if the processor is to choose |

use std::sync::{Arc, Mutex, PoisonError};

use host::knob::{Access, AnySetting, Domain, Epp, Governor, HwpRequest, Limits, Value, ratio};
use host::transaction::{Look, Moved, Steered};
use policy::frequency::PStates;
use units::{Hertz, Instant};

use super::InForce;
use crate::seam::{Acted, Actuator, Away, Lost, Standing};

units::named! {
    /// Which kernel setting controls the frequency of a domain.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Way {
        /// `scaling_setspeed`: the frequency that the governor `userspace` requests.
        Setspeed = "setspeed",
        /// `scaling_min_freq` and `scaling_max_freq` of the cpufreq policy, both set to the requested frequency.
        Limits = "limits",
        /// The HWP request of each CPU (MSR 0x774).
        Hwp = "hwp",
        /// The energy-performance preference of the cpufreq policy, from 0 (performance) to 255 (power saving): the
        /// processor then chooses the frequency.
        Epp = "epp",
    }
}

/// Frequency step of HWP's performance levels (Intel P-state guide, 637284-001US).
const HWP_STEP: Hertz = Hertz::new(100_000_000);
/// Maximum number of steps into which a frequency range is divided if the driver lists no frequencies.
const STEPS: u64 = 16;

/// CPUs that share one frequency, and the setting that controls it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The kernel's cpufreq policy for these CPUs.
    pub domain: Domain,
    /// Which kernel setting controls the frequency.
    pub way: Way,
    /// The frequencies that can be requested.
    pub pstates: PStates,
    /// The settings that are written: one per CPU for HWP requests, otherwise a single one.
    settings: Vec<AnySetting>,
}

impl Place {
    /// The preferred setting for a domain's frequency: `setspeed` if the driver supports it, otherwise `limits`.
    pub fn best(domain: &Domain) -> Way {
        if domain.has_userspace { Way::Setspeed } else { Way::Limits }
    }

    /// Creates a place for a domain whose frequency is controlled by `way`. The error says why the domain does not
    /// support `way`.
    pub fn new(domain: Domain, way: Way) -> Result<Self, String> {
        let policy = domain.policy;
        let settings: Vec<AnySetting> = match way {
            Way::Setspeed if !domain.has_userspace => {
                return Err(format!("CPU policy {policy} does not offer the governor userspace"));
            }
            Way::Epp if !domain.has_epp => {
                return Err(format!("CPU policy {policy} has no energy-performance preference"));
            }
            Way::Setspeed => vec![Governor::new(policy).into()],
            Way::Limits => vec![Limits::new(policy).into()],
            Way::Epp => vec![Epp::new(policy).into()],
            Way::Hwp => domain.cpus.iter().map(|cpu| HwpRequest::new(cpu).into()).collect(),
        };
        let pstates = pstates(&domain, way)
            .ok_or_else(|| format!("the kernel does not say which frequencies CPU policy {policy} supports"))?;
        Ok(Self { domain, way, pstates, settings })
    }

    /// The settings of the crate `host` that control this frequency.
    pub fn settings(&self) -> &[AnySetting] {
        &self.settings
    }

    /// The value to write in order to request a frequency.
    pub fn value(&self, frequency: Hertz) -> Value {
        match self.way {
            Way::Setspeed => Governor::set_speed(frequency),
            Way::Limits => Limits::value(frequency, frequency),
            Way::Hwp => HwpRequest::fixed(ratio(frequency).unwrap_or(u8::MAX)),
            Way::Epp => Value::text(self.epp(frequency).to_string()),
        }
    }

    /// Energy-performance preference for a frequency: 0 (performance) for the highest, 255 for the lowest.
    fn epp(&self, frequency: Hertz) -> u64 {
        let (low, high) = (self.pstates.lowest().as_hertz(), self.pstates.highest().as_hertz());
        (high.saturating_sub(frequency.as_hertz()) * 255).checked_div(high - low).unwrap_or(0).min(255)
    }

    /// The frequency that a written value requests. `None` if the value does not request a frequency.
    pub fn frequency(&self, value: &Value) -> Option<Hertz> {
        let khz = |text: &str| text.parse::<u64>().ok().map(|khz| Hertz::new(khz * 1_000));
        match self.way {
            Way::Setspeed => khz(value.as_text()?.strip_prefix("userspace ")?),
            Way::Limits => khz(value.field("max")?),
            Way::Hwp => value.field("max")?.parse::<u64>().ok().map(|level| Hertz::new(level * HWP_STEP.as_hertz())),
            Way::Epp => {
                let epp = value.as_text()?.parse::<u64>().ok()?;
                self.pstates.as_slice().iter().copied().min_by_key(|of| self.epp(*of).abs_diff(epp))
            }
        }
    }
}

/// The frequencies that can be requested in a domain with `way`. `None` if they are not known.
fn pstates(domain: &Domain, way: Way) -> Option<PStates> {
    if way != Way::Hwp && !domain.frequencies.is_empty() {
        return PStates::new(&domain.frequencies);
    }
    let (low, high) = domain.hardware?;
    if way != Way::Hwp {
        return steps(low, high);
    }
    let [low, high] = [
        low.as_hertz().next_multiple_of(HWP_STEP.as_hertz()),
        high.as_hertz() / HWP_STEP.as_hertz() * HWP_STEP.as_hertz(),
    ];
    steps(Hertz::new(low), Hertz::new(high))
}

/// At most [`STEPS`] + 2 frequencies from `low` to `high`, both included, in equal steps of a multiple of 100 MHz. `None`
/// if `low` is above `high` or 0.
pub(super) fn steps(low: Hertz, high: Hertz) -> Option<PStates> {
    let step = high.as_hertz().checked_sub(low.as_hertz())?.div_ceil(STEPS).next_multiple_of(HWP_STEP.as_hertz());
    let step = usize::try_from(step).ok()?.max(1);
    let between = (low.as_hertz()..high.as_hertz()).step_by(step).map(Hertz::new);
    PStates::new(&between.chain([high]).collect::<Vec<_>>())
}

/// The controlled settings, which all actuators share.
pub type Shared = Arc<Mutex<Steered>>;

/// A frequency domain, and the frequency that each of its cores requests. The highest request is applied.
#[derive(Debug)]
pub struct Highest {
    place: Place,
    access: Access,
    /// The controlled settings, and the index of the domain's first setting. `None` in a dry run, which changes
    /// nothing.
    steered: Option<(Shared, usize)>,
    wishes: Vec<Option<Hertz>>,
    asked: Option<Hertz>,
    in_force: InForce,
    /// Number of times that a new frequency was requested for the domain.
    changes: u64,
    lost: Option<Lost>,
    /// Whether the last attempt to follow the firmware's limit failed and must be repeated.
    must_retry: bool,
    /// Whether frequencies above the nominal one may be requested: with turbo off, the kernel may reject them.
    is_turbo_allowed: bool,
}

/// Actuator of one core in a domain that may have several ([`Highest`]).
#[derive(Debug)]
pub struct Core {
    shared: Arc<Mutex<Highest>>,
    core: usize,
    known: InForce,
}

impl Highest {
    /// Creates an actuator for each of the `cores` cores of a domain. `steered` holds the controlled settings and the
    /// index of the domain's first setting. If it is `None` (dry run), the actuators change nothing but report success.
    pub fn of(place: Place, access: &Access, steered: Option<(Shared, usize)>, cores: usize) -> Vec<Core> {
        let ceiling = ceiling(&place, access).unwrap_or(place.pstates.highest());
        let frequency = place.domain.current(access).ok().flatten().unwrap_or(ceiling).min(ceiling);
        let in_force = InForce { frequency, ceiling };
        let shared = Self {
            place,
            access: access.clone(),
            steered,
            wishes: vec![None; cores],
            asked: None,
            in_force,
            changes: 0,
            lost: None,
            must_retry: false,
            is_turbo_allowed: true,
        };
        let shared = Arc::new(Mutex::new(shared));
        (0..cores).map(|core| Core { shared: shared.clone(), core, known: in_force }).collect()
    }

    /// Checks whether the firmware has changed its frequency limit. If it has, returns a message about it.
    fn look_up(&mut self) -> Option<String> {
        let nominal = self.place.domain.nominal.filter(|_| !self.is_turbo_allowed);
        let ceiling = ceiling(&self.place, &self.access)?.min(nominal.unwrap_or(Hertz::new(u64::MAX)));
        if ceiling == self.in_force.ceiling {
            return None;
        }
        let was = std::mem::replace(&mut self.in_force.ceiling, ceiling);
        self.in_force.frequency = self.in_force.frequency.min(ceiling);
        Some(match ceiling < was {
            true => format!("the firmware now limits the frequency to {ceiling}"),
            false => format!("the firmware now allows up to {ceiling}"),
        })
    }

    /// Applies the highest request of the domain's cores.
    fn apply(&mut self) -> Acted<InForce> {
        if let Some(lost) = &self.lost {
            return Acted::Lost(lost.clone());
        }
        self.look_up();
        let Some(wish) = self.wishes.iter().flatten().max().copied() else { return Acted::InForce };
        let granted = wish.min(self.in_force.ceiling);
        // The lowest available frequency that satisfies the request, but not above the firmware's limit.
        let all = &self.place.pstates;
        let possible = all.at_least(granted).filter(|of| *of <= self.in_force.ceiling);
        let wanted =
            possible.or_else(|| all.as_slice().iter().rfind(|of| **of <= granted).copied()).unwrap_or(all.lowest());
        if self.asked != Some(wanted) {
            if let Some(other) = self.move_to(wanted) {
                return other;
            }
            self.changes += u64::from(self.asked.is_some());
            self.asked = Some(wanted);
        }
        let limit = if self.is_turbo_allowed { "the firmware" } else { "turbo, which is off," };
        let why = || format!("{limit} limits it to {}", self.in_force.ceiling);
        let why = (granted < wish).then(why);
        match (self.in_force.frequency == wish, why) {
            (true, None) => Acted::InForce,
            (_, why) => Acted::Rounded { now: self.in_force, why },
        }
    }

    /// Writes the settings. Returns `None` if `wanted` is then in force, otherwise the outcome.
    fn move_to(&mut self, wanted: Hertz) -> Option<Acted<InForce>> {
        let Some((steered, first)) = &self.steered else {
            self.in_force.frequency = wanted;
            return None;
        };
        let mut now_runs = wanted;
        let mut reason = None;
        for number in 0..self.place.settings.len() {
            let value = self.place.value(wanted);
            let moved = steered.lock().unwrap_or_else(PoisonError::into_inner).steer(first + number, &value);
            match moved {
                Ok(Moved::AsWanted { .. }) => {}
                Ok(Moved::Otherwise { now, why } | Moved::Unmoved { now, why }) => {
                    let runs = self.place.frequency(&now);
                    now_runs = runs.unwrap_or(self.in_force.frequency);
                    reason = Some(why.unwrap_or_else(|| format!("it reads as {now}")));
                }
                Ok(Moved::LetGo { now }) => return Some(self.lose(Lost::Theirs { now: now.to_string() })),
                Ok(Moved::Away) => return Some(Acted::Away(away())),
                Ok(Moved::Gone) => return Some(self.lose(Lost::Gone)),
                Err(error) => {
                    // The refused value may have been written nevertheless.
                    self.asked = None;
                    return Some(Acted::Refused { why: error.to_string() });
                }
            }
        }
        self.in_force.frequency = now_runs;
        if now_runs == wanted {
            return None;
        }
        self.changes += u64::from(self.asked.is_some());
        self.asked = Some(wanted);
        Some(Acted::Rounded { now: self.in_force, why: reason })
    }

    fn lose(&mut self, lost: Lost) -> Acted<InForce> {
        self.lost = Some(lost.clone());
        Acted::Lost(lost)
    }

    fn stands(&mut self) -> Standing {
        if let Some(lost) = &self.lost {
            return Standing::Lost(lost.clone());
        }
        let Some((steered, first)) = &self.steered else { return Standing::AsLeft };
        for number in 0..self.place.settings.len() {
            let look = steered.lock().unwrap_or_else(PoisonError::into_inner).look(first + number);
            let lost = match look {
                Ok(Look::LetGo { now }) => Lost::Theirs { now: now.to_string() },
                Ok(Look::Gone) => Lost::Gone,
                Ok(Look::Away) => return Standing::Away(away()),
                Ok(Look::Fresh) => {
                    self.asked = None;
                    return Standing::Fresh;
                }
                // A setting that cannot be read now is not treated as lost.
                Ok(Look::Ours) | Err(_) => continue,
            };
            self.lost = Some(lost.clone());
            return Standing::Lost(lost);
        }
        if self.look_up().is_some() || self.must_retry {
            // After a change of the limit, apply again: a core may now get more of what it requested, or must get less.
            self.must_retry = matches!(self.apply(), Acted::Refused { .. });
        }
        Standing::AsLeft
    }
}

impl Core {
    /// Number of frequency changes requested for the domain.
    pub fn changes(&self) -> u64 {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).changes
    }

    /// The frequency domain, and the setting that controls it.
    pub fn place(&self) -> Place {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).place.clone()
    }

    /// Sets whether frequencies above the nominal one may be requested. Forbid them before turbo is switched off, and
    /// allow them after it is on again. This applies to all cores of the domain.
    pub fn allow_turbo(&self, is_allowed: bool) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut shared.is_turbo_allowed, is_allowed) != is_allowed && shared.lost.is_none() {
            shared.look_up();
            shared.must_retry = matches!(shared.apply(), Acted::Refused { .. });
        }
    }

    /// Whether frequencies above the nominal one may be requested.
    pub fn is_turbo_allowed(&self) -> bool {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).is_turbo_allowed
    }

    /// The frequency in force in the domain, and the limit on it.
    pub fn in_force(&self) -> InForce {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).in_force
    }
}

impl<C> Actuator<C> for Core {
    type Setting = Hertz;
    type InForce = InForce;

    fn set(&mut self, _: Instant<C>, wish: &Hertz) -> Acted<InForce> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.wishes[self.core] = Some(*wish);
        let acted = shared.apply();
        self.known = shared.in_force;
        acted
    }

    /// Not called in practice: only a pending setting is looked at, and the kernel answers at once.
    fn look(&mut self, _: Instant<C>) -> Acted<InForce> {
        Acted::InForce
    }

    fn stands(&mut self) -> Standing {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).stands()
    }

    fn shifted(&mut self) -> Option<InForce> {
        let now = self.shared.lock().unwrap_or_else(PoisonError::into_inner).in_force;
        (std::mem::replace(&mut self.known, now) != now).then_some(now)
    }
}

/// The highest frequency that the firmware allows now. `None` if it cannot be read at the moment.
fn ceiling(place: &Place, access: &Access) -> Option<Hertz> {
    let highest = place.pstates.highest();
    Some(place.domain.ceiling(access).ok()?.unwrap_or(highest).min(highest))
}

fn away() -> Away {
    Away("the CPUs are offline".into())
}
