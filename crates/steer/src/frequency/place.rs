//! Sets the frequency of cores. Cores that share a frequency get the highest one that any of them requests.
//!
//! | name | setting | for |
//! | --- | --- | --- |
//! | `setspeed` | governor `userspace`, `scaling_setspeed` | drivers that let the kernel choose: acpi-cpufreq, intel_pstate=passive, amd_pstate=passive |
//! | `limits` | `scaling_min_freq` = `scaling_max_freq` | every driver |
//! | `hwp` | MSR 0x774, lowest and highest performance | Intel, HWP enabled, module msr |
//! | `epp` | energy-performance preference, 0 to 255 | HWP or amd_pstate=active, if the processor is to choose |

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use host::knob::{Access, AnySetting, Domain, Epp, Governor, HwpRequest, Knob, Limits, Value, ratio};
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
    pub fn new(domain: Domain, way: Way, access: &Access) -> Result<Self, String> {
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
        if way == Way::Hwp {
            let levels = |cpu| HwpRequest::new(cpu).check_levels(access).map_err(|error| error.to_string());
            domain.cpus.iter().try_for_each(levels)?;
        }
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
            Way::Epp => {
                let epp = self.epp(frequency);
                let of = |word: &&String| Epp::number(word).map(|number| u64::from(number).abs_diff(epp));
                let words = self.domain.epp_words.iter().filter(|word| of(word).is_some());
                words.min_by_key(of).map_or_else(|| Value::text(epp), Value::text)
            }
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
                let epp = u64::from(Epp::number(value.as_text()?)?);
                self.pstates.as_slice().iter().copied().min_by_key(|of| self.epp(*of).abs_diff(epp))
            }
        }
    }
}

/// The frequencies that can be requested in a domain with `way`. `None` if they are not known.
fn pstates(domain: &Domain, way: Way) -> Option<PStates> {
    let words = &domain.epp_words;
    if way == Way::Epp && !words.is_empty() {
        let (low, high) = domain.hardware?;
        let span = u128::from(high.as_hertz().checked_sub(low.as_hertz())?);
        let of = |number: u8| Hertz::new(high.as_hertz() - (span * u128::from(number) / 255) as u64);
        return PStates::new(&words.iter().filter_map(|word| Epp::number(word)).map(of).collect::<Vec<_>>());
    }
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

/// What limits the frequency while Apus itself has switched turbo off.
const OWN_TURBO: &str = "turbo, which is off,";

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
    /// Whether the last attempt to follow the ceiling failed and must be repeated.
    must_retry: bool,
    /// Number of further looks after which a request that the kernel has not shown yet counts as limited. `None` if there
    /// is no such request.
    looks_left: Option<usize>,
    /// What sets the ceiling, in words.
    limited_by: &'static str,
    /// Whether frequencies above the nominal one may be requested: with turbo off, the kernel may reject them.
    is_turbo_allowed: bool,
}

/// Maximum time for which a request waits until the kernel shows it, because the other cores wait too. A kernel thread
/// carries it out, usually within a millisecond. While a limit holds it back, it never shows.
const PATIENCE: Duration = Duration::from_millis(20);

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
        let ceiling = place.pstates.highest();
        let frequency = place.domain.current(access).ok().flatten().unwrap_or(ceiling).min(ceiling);
        let in_force = InForce { frequency, ceiling };
        let mut shared = Self {
            place,
            access: access.clone(),
            steered,
            wishes: vec![None; cores],
            asked: None,
            in_force,
            changes: 0,
            lost: None,
            must_retry: false,
            looks_left: None,
            limited_by: "the firmware",
            is_turbo_allowed: true,
        };
        shared.look_up();
        let in_force = shared.in_force;
        let shared = Arc::new(Mutex::new(shared));
        (0..cores).map(|core| Core { shared: shared.clone(), core, known: in_force }).collect()
    }

    /// Checks whether the highest possible frequency has changed: by the firmware, or because turbo was switched on or
    /// off. Returns whether it has.
    fn look_up(&mut self) -> bool {
        let nominal = self.place.domain.nominal.filter(|_| !self.is_turbo_allowed);
        let Some((possible, by)) = ceiling(&self.place, &self.access) else { return false };
        let ceiling = possible.min(nominal.unwrap_or(possible));
        if ceiling == self.in_force.ceiling {
            return false;
        }
        self.limited_by = match ceiling < self.in_force.ceiling {
            true if nominal == Some(ceiling) => OWN_TURBO,
            true => by,
            // What no longer limits the frequency now allows a higher one.
            false if self.limited_by == OWN_TURBO => "the driver",
            false => self.limited_by,
        };
        self.in_force = InForce { frequency: self.in_force.frequency.min(ceiling), ceiling };
        true
    }

    /// Takes over the frequency that the setting shows. The kernel changes it by itself: a limit lowers it, and after a
    /// suspend the governor `userspace` keeps the frequency of that time, so that the request must be repeated.
    fn look_at_setting(&mut self) {
        let (Some(asked), Some(setting), Way::Setspeed | Way::Limits) =
            (self.asked, self.place.settings.first(), self.place.way)
        else {
            return;
        };
        let shown = Knob(setting).read(&self.access).ok().flatten();
        let Some(shown) = shown.and_then(|value| self.place.frequency(&value)) else { return };
        if self.steered.is_some() && shown != self.in_force.frequency {
            self.in_force.frequency = shown;
            if self.place.way == Way::Setspeed && shown != asked {
                self.asked = None;
                self.must_retry = true;
            }
        }
    }

    /// Applies the highest request of the domain's cores.
    fn apply(&mut self) -> Acted<InForce> {
        if let Some(lost) = &self.lost {
            return Acted::Lost(lost.clone());
        }
        self.look_up();
        let Some(wish) = self.wishes.iter().flatten().max().copied() else { return Acted::InForce };
        let granted = wish.min(self.in_force.ceiling);
        // The lowest available frequency that satisfies the request, but not above the ceiling.
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
        let why = || format!("{} limits it to {}", self.limited_by, self.in_force.ceiling);
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
            let mut steered = steered.lock().unwrap_or_else(PoisonError::into_inner);
            let moved = steered.steer_within(first + number, &value, &mut { PATIENCE });
            drop(steered);
            let moved = match moved {
                Ok(Some(moved)) => Ok(moved),
                Ok(None) => {
                    // Each core looks once a second.
                    self.looks_left = Some(self.wishes.len());
                    let shown = Knob(&self.place.settings[number]).read(&self.access);
                    let why = Some("the kernel has not confirmed it yet".to_owned());
                    shown.map(|now| now.map_or(Moved::Away, |now| Moved::Otherwise { now, why }))
                }
                Err(error) => Err(error),
            };
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
        let is_over = self.looks_left == Some(0);
        self.looks_left = self.looks_left.and_then(|left| left.checked_sub(1));
        for number in 0..self.place.settings.len() {
            // Whatever becomes of the setting, the look shows it.
            let _ = steered.lock().unwrap_or_else(PoisonError::into_inner).settle(first + number, is_over);
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
        self.look_at_setting();
        if self.look_up() || self.must_retry {
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

    /// What sets the highest possible frequency, in words.
    pub fn limited_by(&self) -> &'static str {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).limited_by
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

/// The highest frequency that can be requested now, and what limits it, in words. `None` if it cannot be read
/// at the moment.
fn ceiling(place: &Place, access: &Access) -> Option<(Hertz, &'static str)> {
    let highest = place.pstates.highest();
    Some(place.domain.ceiling(access).ok()?.map_or((highest, "the driver"), |(most, by)| (most.min(highest), by)))
}

fn away() -> Away {
    Away("the CPUs are offline".into())
}

#[cfg(test)]
mod tests {
    use units::Simulated;

    use super::*;
    use crate::testing::Host;

    /// The actuator of the host's CPU.
    struct Cpu(Core);

    impl Cpu {
        fn new(access: &Access, way: Way) -> Self {
            let place = Place::new(Domain::read(access, 0).unwrap(), way, access).unwrap();
            let targets: Vec<_> = place.settings().iter().cloned().map(Into::into).collect();
            let shared = Arc::new(Mutex::new(Steered::new(access, "x", &targets, "a test", "0").unwrap()));
            Self(Highest::of(place, access, Some((shared, 0)), 1).remove(0))
        }

        fn set(&mut self, ghz: f64) -> Acted<InForce> {
            Actuator::<Simulated>::set(&mut self.0, Instant::ORIGIN, &hertz(ghz))
        }

        fn stands(&mut self) -> Standing {
            Actuator::<Simulated>::stands(&mut self.0)
        }

        fn frequency(&self) -> Hertz {
            self.0.in_force().frequency
        }
    }

    fn hertz(ghz: f64) -> Hertz {
        Hertz::new((ghz * 1e9) as u64)
    }

    fn limits(host: &Host) -> [String; 2] {
        ["scaling_min_freq", "scaling_max_freq"].map(|name| host.read(name))
    }

    /// A cooling device or the firmware lowers the limits of the kernel; later it no longer does.
    #[test]
    fn limits_that_the_kernel_lowers_stay_controlled() {
        let host = Host::new(&[]);
        let mut cpu = Cpu::new(&host.access(), Way::Limits);
        assert_eq!(cpu.set(2.8), Acted::InForce);
        for (khz, ghz) in [(2_400_000, 2.4), (2_800_000, 2.8), (2_400_000, 2.4)] {
            host.put_limits(khz, khz);
            assert_eq!((cpu.stands(), cpu.frequency()), (Standing::AsLeft, hertz(ghz)));
        }
        assert_eq!(cpu.set(1.2), Acted::InForce);
        assert_eq!(limits(&host), ["1200000", "1200000"]);
    }

    /// A request that a cooling device withholds is not waited for, and is in force when the device no longer limits it.
    #[test]
    fn a_request_that_the_kernel_withholds_is_in_force_later() {
        let host = Host::new(&[]);
        let mut cpu = Cpu::new(&host.hot(), Way::Limits);
        let Acted::Rounded { now, why: Some(why) } = cpu.set(2.8) else { panic!("in force") };
        assert_eq!(now.frequency, hertz(2.4));
        assert!(why.contains("not confirmed"), "{why}");
        for _ in 0..3 {
            assert_eq!((cpu.stands(), cpu.frequency()), (Standing::AsLeft, hertz(2.4)));
        }
        host.put_limits(2_800_000, 2_800_000);
        assert_eq!((cpu.stands(), cpu.frequency()), (Standing::AsLeft, hertz(2.8)));
        host.put_limits(2_800_000, 2_900_000);
        assert!(matches!(cpu.stands(), Standing::Lost(Lost::Theirs { .. })));
    }

    /// Another tool switches turbo off: the hardware's range ends at 2.1 GHz, and later at 3 GHz again.
    #[test]
    fn turbo_that_others_switch_off_is_obeyed() {
        let host = Host::new(&[]);
        let mut cpu = Cpu::new(&host.access(), Way::Limits);
        assert_eq!(cpu.set(0.8), Acted::InForce);
        host.put("cpuinfo_max_freq", "2100000");
        let Acted::Rounded { now, why: Some(why) } = cpu.set(3.0) else { panic!("refused") };
        assert_eq!((now.ceiling, limits(&host)), (hertz(2.1), ["2000000", "2000000"].map(str::to_owned)));
        assert!(why.contains("the driver limits it to 2.1GHz"), "{why}");
        host.put("cpuinfo_max_freq", "3000000");
        assert_eq!((cpu.stands(), cpu.frequency()), (Standing::AsLeft, hertz(3.0)));
        assert_eq!(limits(&host), ["3000000", "3000000"]);
    }

    /// The kernel restarts the governor `userspace` at the present frequency.
    #[test]
    fn a_speed_is_requested_again_after_a_suspend() {
        let host = Host::new(&[]);
        let mut cpu = Cpu::new(&host.access(), Way::Setspeed);
        assert_eq!(cpu.set(2.0), Acted::InForce);
        host.put("scaling_setspeed", "3000000");
        assert_eq!((cpu.stands(), cpu.frequency()), (Standing::AsLeft, hertz(2.0)));
        assert_eq!(host.read("scaling_setspeed"), "2000000");
        host.put("scaling_governor", "powersave");
        assert!(matches!(cpu.stands(), Standing::Lost(Lost::Theirs { .. })));
    }

    #[test]
    fn preferences_are_words_where_the_driver_takes_no_numbers() {
        const PREFERENCE: &str = "energy_performance_preference";
        let words = "default performance balance_performance balance_power power";
        let with = |driver| {
            let words = ("energy_performance_available_preferences", words);
            Host::new(&[("scaling_driver", driver), (PREFERENCE, "balance_performance"), words])
        };
        let amd = with("amd-pstate-epp");
        let mut cpu = Cpu::new(&amd.access(), Way::Epp);
        for (ghz, word) in [(3.0, "performance"), (1.0, "balance_power"), (0.8, "power"), (1.8, "balance_performance")]
        {
            cpu.set(ghz);
            assert_eq!(amd.read(PREFERENCE), word, "{ghz}");
            assert_eq!(cpu.0.place().frequency(&Value::text(word)), Some(cpu.frequency()));
        }
        let intel = with("intel_pstate");
        let mut cpu = Cpu::new(&intel.access(), Way::Epp);
        assert_eq!(cpu.set(0.8), Acted::InForce);
        assert_eq!(intel.read(PREFERENCE), "255");
        // The kernel shows 255 as a word.
        intel.put(PREFERENCE, "power");
        assert_eq!((cpu.stands(), cpu.set(3.0)), (Standing::AsLeft, Acted::InForce));
    }
}
