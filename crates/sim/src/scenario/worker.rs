//! What the cores do, and by which policies: `[worker]`, `[moderation]`, `[frequency]`.

use policy::frequency::PStates;
use policy::moderation::PeriodMode;
use units::{Cycles, Hertz, Nanos};

use super::GoalPlan;
use super::machine::Host;
use super::values::CycleCount;
use crate::hw::interrupt::{DelayFrom, ModerationModel};
use crate::machine::WorkModel;
use crate::strict::{Error, Section};
use crate::world::KernelModel;

/// Estimates for the kernel's way; see [`Worker::Kernel`].
const KERNEL_POLL: Cycles = Cycles::new(2_000);
const KERNEL_FRAME: Cycles = Cycles::new(2_500);
const KERNEL_APPLICATION: Cycles = Cycles::new(9_000);
const KERNEL_PROGRAM: Cycles = Cycles::new(2_000);

/// The scheme of waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// See [`policy::wait::Poll`].
    Poll,
    /// See [`policy::wait::Interrupt`].
    Interrupt,
    /// See [`policy::wait::Backoff`]: sleeps up to this long.
    Backoff(Nanos),
    /// See [`policy::wait::Hybrid300`].
    Hybrid300,
    /// See [`policy::wait::Adaptive`].
    Adaptive,
}

impl Wait {
    /// The name in scenarios and documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Poll => "poll",
            Self::Interrupt => "interrupt",
            Self::Backoff(_) => "backoff",
            Self::Hybrid300 => "hybrid300",
            Self::Adaptive => "adaptive",
        }
    }
}

/// What the cores do. Queue n is served by core n modulo cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Worker {
    /// A loop in user space.
    User {
        /// Cores.
        cores: u32,
        /// Cores that do the same besides, for the package's power.
        alike: u32,
        /// The scheme of waiting.
        wait: Wait,
        /// Whether a frame can end a block, as far as the policy is told.
        interrupts: bool,
        /// What the loop takes: the machine's, or as the scenario says.
        work: WorkModel,
        /// Whether frames go out again.
        forward: bool,
        /// Whether frames carry the time of their arrival.
        stamps: bool,
    },
    /// Interrupts and NAPI, then on to the wire or to an application. What that takes are estimates, of an
    /// x86 server with an unencumbered kernel: 2,000 cycles a poll, 2,500 a frame, 9,000 for an
    /// application's two system calls, 2,000 to program the NIC; calibrate them for a host of yours.
    Kernel {
        /// Cores.
        cores: u32,
        /// Cores that do the same besides, for the package's power.
        alike: u32,
        /// What it takes.
        model: KernelModel,
        /// Whether frames carry the time of their arrival.
        stamps: bool,
    },
}

impl Worker {
    /// Cores that are simulated.
    pub const fn cores(&self) -> u32 {
        match self {
            Self::User { cores, .. } | Self::Kernel { cores, .. } => *cores,
        }
    }

    /// Cores that do the same besides.
    pub const fn alike(&self) -> u32 {
        match self {
            Self::User { alike, .. } | Self::Kernel { alike, .. } => *alike,
        }
    }
}

/// How the NIC gathers interrupts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ModerationPlan {
    /// One setting: that of the [`Host`]'s NIC.
    Fixed,
    /// See [`policy::moderation::NetDim`].
    Dim {
        /// What its timers count from.
        mode: PeriodMode,
        /// The profile that it begins with.
        index: u8,
    },
    /// See [`policy::moderation::GoalModeration`].
    Goal,
}

impl ModerationPlan {
    /// The name in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Dim { .. } => "dim",
            Self::Goal => "goal",
        }
    }
}

/// How fast the cores run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(clippy::large_enum_variant)] // there is one a scenario
pub enum FrequencyPlan {
    /// One frequency.
    Fixed(Hertz),
    /// See [`policy::frequency::TwoLevel`].
    TwoLevel(PStates),
    /// See [`policy::frequency::L3fwdPower`].
    L3fwdPower(PStates),
    /// See [`policy::frequency::GoalFrequency`].
    Goal(PStates),
    /// The world changes it now and then, between two.
    Toggle {
        /// The first...
        low: Hertz,
        /// ...and the second.
        high: Hertz,
        /// How long each.
        every: Nanos,
    },
}

impl FrequencyPlan {
    /// The name in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fixed(_) => "fixed",
            Self::TwoLevel(_) => "two-level",
            Self::L3fwdPower(_) => "l3fwd-power",
            Self::Goal(_) => "goal",
            Self::Toggle { .. } => "toggle",
        }
    }
}

#[derive(Clone, Copy)]
enum Driver {
    User,
    Kernel,
}

#[derive(Clone, Copy)]
enum WaitName {
    Poll,
    Interrupt,
    Backoff,
    Hybrid300,
    Adaptive,
}

const WAITS: &[(&str, WaitName)] = &[
    ("poll", WaitName::Poll),
    ("interrupt", WaitName::Interrupt),
    ("backoff", WaitName::Backoff),
    ("hybrid300", WaitName::Hybrid300),
    ("adaptive", WaitName::Adaptive),
];

pub(super) fn read(root: &mut Section, host: &Host, queues: u32) -> Result<Worker, Error> {
    let Some(mut section) = root.section("worker")? else {
        return Err(root.wrong("there is no [worker]", "add [worker] with driver = \"user\" and wait = \"adaptive\""));
    };
    let driver = section.required_choice("driver", &[("user", Driver::User), ("kernel", Driver::Kernel)])?.value;
    // More than a package has are those of several packages.
    let cores = section.count("cores", 1..=super::QUEUES)?;
    if let Some(cores) = cores.as_ref().filter(|cores| cores.value > u64::from(queues)) {
        let what = format!("{} cores for {queues} queues", cores.value);
        return Err(cores.wrong(what, "give each core a queue: count in [queues]"));
    }
    let cores = cores.map_or(1, |spot| spot.value as u32);
    let alike = section.count("alike", 0..=super::QUEUES)?.map_or(0, |spot| spot.value as u32);
    let stamps = section.flag("stamps")?.is_none_or(|spot| spot.value);
    let mut cycles = |key, usual| -> Result<Cycles, Error> {
        Ok(section.text::<CycleCount>(key)?.map_or(usual, |spot| spot.value.get()))
    };
    let worker = match driver {
        Driver::User => {
            let usual = host.processor.work;
            let work = WorkModel {
                poll: cycles("poll", usual.poll)?,
                burst: cycles("burst", usual.burst)?,
                frame: cycles("frame", usual.frame)?,
            };
            let forward = section.flag("forward")?.is_none_or(|spot| spot.value);
            let interrupts = section.flag("interrupts")?.is_none_or(|spot| spot.value);
            let wait = wait(&mut section)?;
            Worker::User { cores, alike, wait, interrupts, work, forward, stamps }
        }
        Driver::Kernel => {
            let poll = cycles("poll", KERNEL_POLL)?;
            let frame = cycles("frame", KERNEL_FRAME)?;
            let program = cycles("program", KERNEL_PROGRAM)?;
            let work = cycles("application", KERNEL_APPLICATION)?;
            let forward = section.flag("forward")?.is_some_and(|spot| spot.value);
            let application = if forward { None } else { Some(work) };
            let socket = section.count("socket", 1..=1_000_000)?.map_or(KernelModel::SOCKET, |spot| spot.value as u32);
            Worker::Kernel { cores, alike, model: KernelModel { poll, frame, application, socket, program }, stamps }
        }
    };
    section.finish()?;
    Ok(worker)
}

fn wait(section: &mut Section) -> Result<Wait, Error> {
    let name = section.required_choice("wait", WAITS)?.value;
    Ok(match name {
        WaitName::Poll => Wait::Poll,
        WaitName::Interrupt => Wait::Interrupt,
        WaitName::Hybrid300 => Wait::Hybrid300,
        WaitName::Adaptive => Wait::Adaptive,
        WaitName::Backoff => {
            let most = section.text::<Nanos>("sleep_max")?;
            if let Some(most) = most.as_ref().filter(|most| most.value > policy::wait::Backoff::LONGEST_MAX) {
                let what = format!("`sleep_max = \"{}\"`", most.value);
                return Err(most.wrong(what, format!("expected {} at the most", policy::wait::Backoff::LONGEST_MAX)));
            }
            Wait::Backoff(most.map_or(Nanos::from_micros(100), |spot| spot.value))
        }
    })
}

#[derive(Clone, Copy)]
enum ModerationName {
    Nic,
    Off,
    Static,
    Dim,
    Goal,
}

const MODERATIONS: &[(&str, ModerationName)] = &[
    ("nic", ModerationName::Nic),
    ("off", ModerationName::Off),
    ("static", ModerationName::Static),
    ("dim", ModerationName::Dim),
    ("goal", ModerationName::Goal),
];

/// `[moderation]`: as the NIC's driver sets it, if nothing is said.
pub(super) fn moderation(
    root: &mut Section,
    host: &mut Host,
    worker: &Worker,
    goal: Option<GoalPlan>,
) -> Result<ModerationPlan, Error> {
    let Some(mut section) = root.section("moderation")? else { return Ok(ModerationPlan::Fixed) };
    let name = section.required_choice("policy", MODERATIONS)?;
    if let (ModerationName::Dim | ModerationName::Goal, Worker::User { .. }) = (name.value, worker) {
        let what = "this moderation with driver = \"user\"";
        return Err(
            name.wrong(what, "it steers queues that the kernel drives: driver = \"kernel\", or policy = \"static\"")
        );
    }
    let sent = section.text::<Nanos>("sent")?;
    let plan = match name.value {
        ModerationName::Nic => ModerationPlan::Fixed,
        ModerationName::Off => {
            (host.nic.rx_moderation, host.nic.tx_moderation) = (ModerationModel::OFF, ModerationModel::OFF);
            ModerationPlan::Fixed
        }
        ModerationName::Static => {
            host.nic.rx_moderation = setting(&mut section)?;
            ModerationPlan::Fixed
        }
        ModerationName::Dim => {
            let modes = &[("rx-eqe", PeriodMode::Eqe), ("rx-cqe", PeriodMode::Cqe)];
            let mode = section.choice("mode", modes)?.map_or(PeriodMode::Eqe, |spot| spot.value);
            let profiles = policy::moderation::dim::NET_PROFILES as u64;
            let index = section.count("profile", 0..=profiles - 1)?.map_or(1, |spot| spot.value as u8);
            throttle(&mut section, host)?;
            ModerationPlan::Dim { mode, index }
        }
        ModerationName::Goal => {
            if goal.is_none() {
                return Err(name.wrong("moderation by a goal without one", "add [goal] with latency = \"p99.9=50us\""));
            }
            throttle(&mut section, host)?;
            ModerationPlan::Goal
        }
    };
    if let Some(sent) = sent {
        host.nic.tx_moderation = ModerationModel::delayed(sent.value, if sent.value == Nanos::ZERO { 1 } else { 0 });
    }
    section.finish()?;
    Ok(plan)
}

/// One setting: at least one of `delay`, `frames` and `interval`.
fn setting(section: &mut Section) -> Result<ModerationModel, Error> {
    let delay = section.text::<Nanos>("delay")?;
    let frames = section.count("frames", 0..=65_535)?;
    let interval = section.text::<Nanos>("interval")?;
    let from =
        section.choice("from", &[("first-frame", DelayFrom::FirstFrame), ("last-frame", DelayFrom::LastFrame)])?;
    if delay.is_none() && frames.is_none() && interval.is_none() {
        let fix = "add delay = \"8us\" (rx-usecs), frames = 32 (rx-frames) or interval = \"32us\" (throttling)";
        return Err(section.wrong("moderation without a setting", fix));
    }
    let delay = delay.map_or(Nanos::ZERO, |spot| spot.value);
    // Without a timer a count alone would leave the last frames waiting for ever.
    let usual = u64::from(delay == Nanos::ZERO);
    if let Some(frames) = frames.as_ref().filter(|frames| frames.value > 1 && delay == Nanos::ZERO) {
        let what = format!("{} frames without a delay", frames.value);
        return Err(frames.wrong(what, "add delay = \"8us\": else the last frames would wait for ever"));
    }
    let frames = frames.map_or(usual, |spot| spot.value.max(usual)) as u32;
    let from = from.map_or(DelayFrom::FirstFrame, |spot| spot.value);
    Ok(ModerationModel { delay, from, frames, interval: interval.map_or(Nanos::ZERO, |spot| spot.value) })
}

/// What throttles a vector whose profile a policy chooses: nothing, if nothing is said.
fn throttle(section: &mut Section, host: &mut Host) -> Result<(), Error> {
    let interval = section.text::<Nanos>("interval")?.map_or(Nanos::ZERO, |spot| spot.value);
    host.nic.rx_moderation = ModerationModel { interval, ..ModerationModel::OFF };
    Ok(())
}

#[derive(Clone, Copy)]
enum FrequencyName {
    Fixed,
    TwoLevel,
    L3fwdPower,
    Goal,
    Toggle,
}

const FREQUENCIES: &[(&str, FrequencyName)] = &[
    ("fixed", FrequencyName::Fixed),
    ("two-level", FrequencyName::TwoLevel),
    ("l3fwd-power", FrequencyName::L3fwdPower),
    ("goal", FrequencyName::Goal),
    ("toggle", FrequencyName::Toggle),
];

/// `[frequency]`: the processor's base frequency, if nothing is said. Policies choose between `lowest`, the
/// processor's lowest, and `highest`, its base frequency: what is guaranteed with all cores busy.
pub(super) fn frequency(root: &mut Section, host: &mut Host, goal: Option<GoalPlan>) -> Result<FrequencyPlan, Error> {
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
            return Err(name.wrong("a frequency by a goal without one", "add [goal] with latency = \"p99.9=50us\""));
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
    };
    section.finish()?;
    Ok(plan)
}

/// The frequencies that a policy may choose from.
fn range(section: &mut Section, host: &Host, base: Hertz) -> Result<PStates, Error> {
    let pstates = &host.processor.pstates;
    let lowest = possible(section, "lowest", host)?.unwrap_or(pstates.lowest);
    let highest = possible(section, "highest", host)?.unwrap_or(base);
    PStates::steps(lowest, highest, pstates.step).ok_or_else(|| {
        let what = format!("no frequencies from {} to {} Hz", lowest.as_hertz(), highest.as_hertz());
        section.wrong(what, format!("give a lowest below the highest, and at most {} steps", PStates::MOST))
    })
}

/// A frequency that the processor can be asked for.
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
