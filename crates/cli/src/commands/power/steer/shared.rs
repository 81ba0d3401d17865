//! Settings that many cores share, which `--turbo` and `--uncore` lower while no controlled CPU needs them.

use host::knob::{Access, AnySetting, Setting as _, Turbo, UncoreLimits, Value, uncore_domains};
use host::transaction::{Look, Moved, Steered, Target};
use policy::frequency::outside::slow::Slow;
use tester::clock::{MonotonicClock, TrialClock as _};
use units::{Instant, Monotonic, Nanos};

use super::note;
use crate::Failure;
use crate::args::power::steer::PowerSteer;
use crate::documents::power_steer::SharedSetting as Document;

/// What the controlled CPUs need now.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Need {
    /// Whether a CPU needs a frequency above the nominal one.
    pub(super) turbo: bool,
    /// Whether memory and caches must run at full speed, because a CPU has work.
    pub(super) uncore: bool,
}

impl Need {
    /// What at least one of two CPUs needs.
    pub(super) fn or(self, other: Self) -> Self {
        Self { turbo: self.turbo || other.turbo, uncore: self.uncore || other.uncore }
    }
}

/// The shared settings.
#[derive(Default)]
pub(super) struct SharedSettings {
    all: Vec<Shared>,
    /// Whether changes are printed.
    pub(super) aloud: bool,
}

struct Shared {
    name: String,
    is_turbo: bool,
    setting: AnySetting,
    /// Index of the setting among the controlled settings.
    place: usize,
    full: Value,
    saving: Value,
    slow: Slow<Monotonic>,
    /// The change that was decided but is not in force yet: true to lower the setting, false to restore it.
    pending: Option<bool>,
    changes: u64,
    saved: Nanos,
    saving_since: Option<Instant<Monotonic>>,
    trouble: Option<String>,
    is_lost: bool,
}

impl SharedSettings {
    /// Finds the settings that the user chose. `first` is the index of the first one among the controlled settings.
    pub(super) fn find(typed: &PowerSteer, access: &Access, first: usize) -> anyhow::Result<Self> {
        let mut found: Vec<(String, AnySetting, Value)> = Vec::new();
        if typed.turbo {
            found.push(("turbo".into(), Turbo {}.into(), Turbo::value(false)));
        }
        if typed.uncore {
            let mut domains = uncore_domains(access)?;
            // The driver writes the limits of a package to all of its clusters, so only one of the two can be controlled.
            if domains.iter().any(|name| is_cluster(name)) {
                domains.retain(|name| is_cluster(name));
            }
            if domains.is_empty() {
                let what = "cannot control the uncore frequency";
                let why = "the driver intel_uncore_frequency is not loaded, or the processor has no such setting";
                return Err(Failure::lacking(what, why, "modprobe intel_uncore_frequency, or omit --uncore").into());
            }
            for domain in domains {
                let limits = UncoreLimits::new(domain.clone());
                let lowest = limits.lowest(access)?.ok_or_else(|| {
                    let why = "the driver does not report the lowest frequency (initial_min_freq_khz)";
                    Failure::lacking(format!("cannot control the uncore frequency of {domain}"), why, "omit --uncore")
                })?;
                found.push((format!("uncore {domain}"), limits.into(), lowest));
            }
        }
        let mut all = Vec::new();
        for (name, setting, saving) in found {
            let is_turbo = name == "turbo";
            let Some(full) = setting.read(access)? else {
                let why = "the kernel does not offer this setting here";
                let fix = if is_turbo { "omit --turbo" } else { "omit --uncore" };
                return Err(Failure::lacking(format!("cannot control {name}"), why, fix).into());
            };
            if full == saving {
                note(&format!("{name} is already lowered, and stays so"));
                continue;
            }
            let place = first + all.len();
            let (slow, saved) = (Slow::default(), Nanos::ZERO);
            let (pending, changes, saving_since, trouble, is_lost) = (None, 0, None, None, false);
            all.push(Shared {
                name,
                is_turbo,
                setting,
                place,
                full,
                saving,
                slow,
                pending,
                changes,
                saved,
                saving_since,
                trouble,
                is_lost,
            });
        }
        Ok(Self { all, aloud: !typed.json })
    }

    /// The settings of the crate `host`, in this order.
    pub(super) fn targets(&self) -> impl Iterator<Item = Target> {
        self.all.iter().map(|one| Target::from(one.setting.clone()))
    }

    /// Lowers or restores the settings; called once per second. A change that fails is tried again each second. Without
    /// `steered`, nothing is changed. Returns whether Apus has switched turbo off.
    pub(super) fn second(&mut self, need: Need, mut steered: Option<&mut Steered>) -> bool {
        let now = MonotonicClock.now();
        for one in self.all.iter_mut().filter(|one| !one.is_lost) {
            if let Some(steered) = steered.as_deref_mut() {
                one.look(steered);
            }
            let is_needed = if one.is_turbo { need.turbo } else { need.uncore };
            one.pending = one.slow.decide(now, is_needed).or(one.pending);
            let Some(saves) = one.pending.filter(|_| !one.is_lost) else { continue };
            if !one.set(now, saves, steered.as_deref_mut()) {
                continue;
            }
            one.pending = None;
            if self.aloud {
                let would = if steered.is_none() { "would be " } else { "" };
                note(&match saves {
                    true => format!("{}: {would}lowered, as no CPU has needed it for {}", one.name, one.slow.hold()),
                    false => format!("{}: {would}restored, as a CPU needs it", one.name),
                });
            }
        }
        self.all.iter().any(|one| one.is_turbo && one.saving_since.is_some())
    }

    /// The state of each setting after the command has run for `lasted`.
    pub(super) fn documents(&self, lasted: Nanos) -> Vec<Document> {
        let now = MonotonicClock.now();
        let each = |one: &Shared| {
            let since = one.saving_since.and_then(|at| now.since(at)).unwrap_or(Nanos::ZERO);
            let saved = (one.saved + since).min(lasted);
            Document {
                setting: one.name.clone(),
                lowered: one.saving_since.is_some(),
                lowered_ratio: saved.as_nanos() as f64 / lasted.as_nanos().max(1) as f64,
                changes: one.changes,
                trouble: one.trouble.clone(),
            }
        };
        self.all.iter().map(each).collect()
    }
}

/// Whether an uncore domain is a part of a package (drivers/platform/x86/intel/uncore-frequency/uncore-frequency-tpmi.c).
fn is_cluster(domain: &str) -> bool {
    domain.starts_with("uncore")
}

impl Shared {
    /// Checks whether somebody else has changed the setting.
    fn look(&mut self, steered: &mut Steered) {
        match steered.look(self.place) {
            Ok(Look::LetGo { now }) => {
                self.lose(&format!("somebody else set it to {now}; Apus leaves it at this value"))
            }
            Ok(Look::Gone) => self.lose("it is gone"),
            // A setting that cannot be read now is not lost.
            Ok(Look::Ours | Look::Fresh | Look::Away) | Err(_) => {}
        }
    }

    /// Sets the value. Returns whether it is in force, or would be in a dry run.
    fn set(&mut self, now: Instant<Monotonic>, saves: bool, steered: Option<&mut Steered>) -> bool {
        let value = if saves { &self.saving } else { &self.full };
        let Some(steered) = steered else { return true };
        let (is_done, trouble) = match steered.steer(self.place, value) {
            Ok(Moved::AsWanted { .. }) => (true, None),
            Ok(Moved::Otherwise { now, why }) => (true, Some(why.unwrap_or_else(|| format!("it is {now} instead")))),
            Ok(Moved::Unmoved { now, why }) => (false, Some(why.unwrap_or_else(|| format!("it is still {now}")))),
            Ok(Moved::LetGo { now }) => {
                self.lose(&format!("somebody else set it to {now}; Apus leaves it at this value"));
                return false;
            }
            Ok(Moved::Gone) => {
                self.lose("it is gone");
                return false;
            }
            Ok(Moved::Away) => (false, Some("it is not available now".to_owned())),
            Err(error) => (false, Some(error.to_string().replace('\n', "; "))),
        };
        if let Some(why) = trouble.as_ref().filter(|why| self.trouble.as_ref() != Some(why)) {
            note(&format!("{}: {why}", self.name));
        }
        self.trouble = trouble;
        if is_done {
            self.changes += 1;
            self.count(now, saves);
        }
        is_done
    }

    /// Counts the time for which the setting was lowered.
    fn count(&mut self, now: Instant<Monotonic>, saves: bool) {
        if let Some(since) = self.saving_since.take() {
            self.saved += now.since(since).unwrap_or(Nanos::ZERO);
        }
        self.saving_since = saves.then_some(now);
    }

    fn lose(&mut self, why: &str) {
        note(&format!("{}: no longer controlled: {why}", self.name));
        self.count(MonotonicClock.now(), false);
        self.trouble = Some(why.to_owned());
        self.is_lost = true;
    }
}
