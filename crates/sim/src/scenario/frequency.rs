//! How the cores' frequency is chosen: the section `[frequency]`.

use policy::frequency::PStates;
use units::{Hertz, Named, Nanos};

use super::GoalPlan;
use super::machine::Host;
use super::values::Ratio;
use super::worker::Worker;
use crate::hw::cpufreq::{ConservativeModel, GovernorModel, NmapModel, OndemandModel, SchedutilModel};
use crate::strict::{Error, Section};

/// The shortest sampling period of a governor.
const SHORTEST: Nanos = Nanos::from_micros(100);
/// The longest sampling period of a governor.
const LONGEST: Nanos = Nanos::from_secs(10);

/// How the cores' frequency is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(clippy::large_enum_variant)] // one per scenario
pub enum FrequencyPlan {
    /// A fixed frequency.
    Fixed(Hertz),
    /// The policy [`policy::frequency::TwoLevel`].
    TwoLevel(PStates),
    /// The policy [`policy::frequency::L3fwdPower`].
    L3fwdPower(PStates),
    /// The policy [`policy::frequency::GoalFrequency`].
    Goal(PStates),
    /// A governor of the kernel, or NMAP.
    Governor(GovernorModel, PStates),
    /// The simulator itself alternates between two frequencies, beginning with `high`.
    Toggle {
        /// The frequency after the first change.
        low: Hertz,
        /// The frequency at the beginning.
        high: Hertz,
        /// How long each frequency lasts.
        every: Nanos,
    },
}

impl FrequencyPlan {
    /// The value of `policy` in a scenario, also used in reports.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Fixed(_) => "fixed",
            Self::TwoLevel(_) => "two-level",
            Self::L3fwdPower(_) => "l3fwd-power",
            Self::Goal(_) => "goal",
            Self::Governor(model, _) => model.name(),
            Self::Toggle { .. } => "toggle",
        }
    }
}

impl Named for FrequencyPlan {
    const PATH: &'static str = concat!(module_path!(), "::FrequencyPlan");
    const NAMES: &'static [&'static str] = &{
        let mut all = [""; FREQUENCIES.len()];
        let mut place = 0;
        while place < all.len() {
            all[place] = FREQUENCIES[place].0;
            place += 1;
        }
        all
    };
    const MEANINGS: &'static [&'static str] = &[""; FREQUENCIES.len()];

    fn name(&self) -> &'static str {
        self.name()
    }
}

#[derive(Clone, Copy)]
enum FrequencyName {
    Fixed,
    TwoLevel,
    L3fwdPower,
    Goal,
    Toggle,
    Performance,
    Powersave,
    Ondemand,
    Conservative,
    Schedutil,
    Nmap,
}

const FREQUENCIES: &[(&str, FrequencyName)] = &[
    ("fixed", FrequencyName::Fixed),
    ("two-level", FrequencyName::TwoLevel),
    ("l3fwd-power", FrequencyName::L3fwdPower),
    ("goal", FrequencyName::Goal),
    ("toggle", FrequencyName::Toggle),
    ("performance", FrequencyName::Performance),
    ("powersave", FrequencyName::Powersave),
    ("ondemand", FrequencyName::Ondemand),
    ("conservative", FrequencyName::Conservative),
    ("schedutil", FrequencyName::Schedutil),
    ("nmap", FrequencyName::Nmap),
];

/// Reads `[frequency]`. The default is the processor's base frequency. Policies choose between `lowest`, by default the
/// processor's lowest, and `highest`, by default its base frequency, which is guaranteed with all cores busy.
pub(super) fn frequency(
    root: &mut Section,
    host: &mut Host,
    worker: &Worker,
    goal: Option<GoalPlan>,
) -> Result<FrequencyPlan, Error> {
    let Some(mut section) = root.section("frequency")? else { return Ok(FrequencyPlan::Fixed(host.processor.base)) };
    if let Some(period) = section.text::<Nanos>("period")? {
        host.processor.pstates.period = period.value;
        host.processor.pstates.validate().map_err(|why| period.wrong(why.to_string(), "give a longer one, or 0us"))?;
    }
    if let Some(uncore) = section.text::<Hertz>("uncore")? {
        host.uncore = uncore.value;
    }
    let base = host.processor.pstates.granted(host.processor.base);
    let name = section.required_choice("policy", FREQUENCIES)?;
    let plan = match name.value {
        FrequencyName::Fixed => FrequencyPlan::Fixed(possible(&mut section, "at", host)?.unwrap_or(base)),
        FrequencyName::TwoLevel => FrequencyPlan::TwoLevel(range(&mut section, host, base)?),
        FrequencyName::L3fwdPower => FrequencyPlan::L3fwdPower(range(&mut section, host, base)?),
        FrequencyName::Goal if goal.is_none() => {
            return Err(
                name.wrong("the frequency policy goal without a goal", "add [goal] with latency = \"p99.9=50us\"")
            );
        }
        FrequencyName::Goal => FrequencyPlan::Goal(range(&mut section, host, base)?),
        FrequencyName::Toggle => {
            let low = possible(&mut section, "low", host)?.unwrap_or(host.processor.pstates.lowest);
            let high = possible(&mut section, "high", host)?.unwrap_or(base);
            let every = section.required::<Nanos>("every", "100ms")?;
            if every.value == Nanos::ZERO {
                return Err(every.wrong("`every` is 0", "expected more, such as 100ms"));
            }
            FrequencyPlan::Toggle { low, high, every: every.value }
        }
        FrequencyName::Nmap if matches!(worker, Worker::User { .. }) => {
            let fix = "nmap follows NAPI's polls and interrupts: use driver = \"kernel\", or another policy";
            return Err(name.wrong("nmap with driver = \"user\"", fix));
        }
        governor => {
            let range = range(&mut section, host, base)?;
            FrequencyPlan::Governor(tunables(governor, &mut section)?, range)
        }
    };
    section.finish()?;
    Ok(plan)
}

/// The frequencies from which a policy may choose.
fn range(section: &mut Section, host: &Host, base: Hertz) -> Result<PStates, Error> {
    let pstates = &host.processor.pstates;
    let lowest = possible(section, "lowest", host)?.unwrap_or(pstates.lowest);
    let highest = possible(section, "highest", host)?.unwrap_or(base);
    PStates::steps(lowest, highest, pstates.step).ok_or_else(|| {
        let what = format!("no frequencies from {} to {} Hz", lowest.as_hertz(), highest.as_hertz());
        section.wrong(what, format!("give a lowest below the highest, and at most {} steps", PStates::MOST))
    })
}

/// Reads a frequency. It is an error if the processor cannot run at it.
fn possible(section: &mut Section, key: &'static str, host: &Host) -> Result<Option<Hertz>, Error> {
    let Some(spot) = section.text::<Hertz>(key)? else { return Ok(None) };
    let pstates = &host.processor.pstates;
    if pstates.granted(spot.value) == spot.value {
        return Ok(Some(spot.value));
    }
    let mhz = |frequency: Hertz| frequency.as_hertz() / 1_000_000;
    let what = format!("`{key} = \"{}MHz\"`", mhz(spot.value));
    let (lowest, highest, step) = (mhz(pstates.lowest), mhz(pstates.highest), mhz(pstates.step));
    Err(spot.wrong(what, format!("{} runs at {lowest}MHz to {highest}MHz, in steps of {step}MHz", host.machine)))
}

/// A governor's tunables, under their names in sysfs.
fn tunables(name: FrequencyName, section: &mut Section) -> Result<GovernorModel, Error> {
    Ok(match name {
        FrequencyName::Powersave => GovernorModel::Powersave,
        FrequencyName::Ondemand => GovernorModel::Ondemand(ondemand(section)?),
        FrequencyName::Conservative => {
            let usual = ConservativeModel::default();
            let sampling = sampling(section, "sampling_rate", usual.sampling)?;
            let up = section.count("up_threshold", 2..=100)?.map_or(usual.up_threshold, |spot| spot.value as u32);
            let down = section.count("down_threshold", 1..=99)?;
            if let Some(down) = down.as_ref().filter(|down| down.value >= u64::from(up)) {
                let what = format!("`down_threshold = {}` with an up_threshold of {up}", down.value);
                return Err(down.wrong(what, "give a lower value; the kernel also refuses this one"));
            }
            let down_threshold = down.map_or(usual.down_threshold.min(up - 1), |spot| spot.value as u32);
            let freq_step = section.count("freq_step", 1..=100)?.map_or(usual.freq_step, |spot| spot.value as u32);
            let sampling_down_factor =
                section.count("sampling_down_factor", 1..=10)?.map_or(usual.sampling_down_factor, |s| s.value as u32);
            GovernorModel::Conservative(ConservativeModel {
                sampling,
                up_threshold: up,
                down_threshold,
                freq_step,
                sampling_down_factor,
            })
        }
        FrequencyName::Schedutil => {
            // `rate_limit_us` may be 0: each wake-up may change the frequency.
            let rate_limit = span(section, "rate_limit", SchedutilModel::default().rate_limit, Nanos::ZERO)?;
            GovernorModel::Schedutil(SchedutilModel { rate_limit })
        }
        FrequencyName::Nmap => {
            let ni = section.count("ni_threshold", 1..=1_000_000)?;
            let cu = section.text::<Ratio>("cu_threshold")?;
            let (Some(ni), Some(cu)) = (ni, cu) else {
                let what = "nmap without its thresholds";
                let fix = "add ni_threshold = 64 (packets polled after an interrupt) and cu_threshold = \"0.5\" \
                           (polled over interrupt packets), as a profile of the workload gives them";
                return Err(section.wrong(what, fix));
            };
            GovernorModel::Nmap(NmapModel {
                ni_threshold: ni.value as u32,
                cu_threshold_thousandths: cu.value.thousandths(),
                period: sampling(section, "timer", NmapModel::TIMER)?,
                otherwise: ondemand(section)?,
            })
        }
        _ => GovernorModel::Performance,
    })
}

fn ondemand(section: &mut Section) -> Result<OndemandModel, Error> {
    let usual = OndemandModel::default();
    let sampling = sampling(section, "sampling_rate", usual.sampling)?;
    let up_threshold = section.count("up_threshold", 1..=100)?.map_or(usual.up_threshold, |spot| spot.value as u32);
    let sampling_down_factor =
        section.count("sampling_down_factor", 1..=100_000)?.map_or(usual.sampling_down_factor, |s| s.value as u32);
    Ok(OndemandModel { sampling, up_threshold, sampling_down_factor })
}

fn sampling(section: &mut Section, key: &'static str, usual: Nanos) -> Result<Nanos, Error> {
    span(section, key, usual, SHORTEST)
}

fn span(section: &mut Section, key: &'static str, usual: Nanos, least: Nanos) -> Result<Nanos, Error> {
    match section.text::<Nanos>(key)? {
        Some(spot) if !(least..=LONGEST).contains(&spot.value) => {
            let what = format!("`frequency.{key} = \"{}\"`", spot.value);
            Err(spot.wrong(what, format!("expected {least} to {LONGEST}, such as {usual}")))
        }
        spot => Ok(spot.map_or(usual, |spot| spot.value)),
    }
}
