//! How the NIC moderates interrupts: the section `[moderation]`.

use policy::moderation::dim::{NET_PROFILES, net_profile};
use policy::moderation::{Direction, PeriodMode, Profile};
use policy::wait::Mode;
use units::Nanos;

use super::GoalPlan;
use super::machine::Host;
use super::values::DimProfiles;
use super::worker::{Wait, Worker};
use crate::hw::interrupt::{DelayFrom, ModerationModel};
use crate::strict::{Error, Section};

units::named! {
    /// How the NIC moderates interrupts.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum ModerationPlan {
        /// One fixed setting, which is in the [`Host`]'s NIC model.
        Fixed = "fixed",
        /// The policy [`policy::moderation::NetDim`].
        Dim {
            /// When the delay begins: with the first or with the latest waiting frame.
            mode: PeriodMode,
            /// Index of the initial profile.
            index: u8,
            /// The profiles: the kernel's, or the scenario's own.
            profiles: [Profile; NET_PROFILES],
        } = "dim",
        /// The policy [`policy::moderation::GoalModeration`].
        Goal = "goal",
        /// The waiting policy [`Adaptive`](policy::wait::Adaptive) chooses the delay.
        HoldOff {
            /// Minimum time between two changes of a worker's delay.
            every: Nanos,
        } = "hold-off",
    }
}

/// `adaptive` compares costs over six times this time, so it changes the delay at most four times a second. On a real
/// NIC, each change takes a system call.
const HOLD_OFF_EVERY: Nanos = Nanos::from_millis(40);

#[derive(Clone, Copy)]
enum ModerationName {
    Nic,
    Off,
    Static,
    Dim,
    Goal,
    HoldOff,
}

const MODERATIONS: &[(&str, ModerationName)] = &[
    ("nic", ModerationName::Nic),
    ("off", ModerationName::Off),
    ("static", ModerationName::Static),
    ("dim", ModerationName::Dim),
    ("goal", ModerationName::Goal),
    ("hold-off", ModerationName::HoldOff),
];

/// Reads `[moderation]`. The default is the setting of the NIC's driver.
pub(super) fn moderation(
    root: &mut Section,
    host: &mut Host,
    worker: &Worker,
    goal: Option<GoalPlan>,
) -> Result<ModerationPlan, Error> {
    let Some(mut section) = root.section("moderation")? else { return Ok(ModerationPlan::Fixed) };
    let name = section.required_choice("policy", MODERATIONS)?;
    if let (ModerationName::Dim | ModerationName::Goal, Worker::User { .. }) = (name.value, worker) {
        let what = "this moderation policy with driver = \"user\"";
        return Err(
            name.wrong(what, "it controls queues of the kernel: use driver = \"kernel\", or policy = \"static\"")
        );
    }
    let adaptive = matches!(worker, Worker::User { wait: Wait::Mode(Mode::Adaptive(_)), interrupts: true, .. });
    if matches!(name.value, ModerationName::HoldOff) && !adaptive {
        let what = "the moderation policy hold-off without the waiting policy adaptive, or without interrupts";
        return Err(name.wrong(what, "use driver = \"user\" and wait = \"adaptive\", or policy = \"static\""));
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
            let index = section.count("profile", 0..=NET_PROFILES as u64 - 1)?.map_or(1, |spot| spot.value as u8);
            throttle(&mut section, host)?;
            let profiles = profiles(&mut section, mode)?;
            ModerationPlan::Dim { mode, index, profiles }
        }
        ModerationName::Goal => {
            if goal.is_none() {
                return Err(
                    name.wrong("the moderation policy goal without a goal", "add [goal] with latency = \"p99.9=50us\"")
                );
            }
            throttle(&mut section, host)?;
            ModerationPlan::Goal
        }
        ModerationName::HoldOff => {
            throttle(&mut section, host)?;
            let every = section.text::<Nanos>("every")?;
            if let Some(every) = every.as_ref().filter(|every| every.value == Nanos::ZERO) {
                return Err(every.wrong("`moderation.every = \"0ns\"`", "expected more than 0, such as 40ms"));
            }
            let every = every.map_or(HOLD_OFF_EVERY, |spot| spot.value);
            ModerationPlan::HoldOff { every }
        }
    };
    if let Some(sent) = sent {
        host.nic.tx_moderation = ModerationModel::delayed(sent.value, if sent.value == Nanos::ZERO { 1 } else { 0 });
    }
    section.finish()?;
    Ok(plan)
}

/// Reads a fixed setting: at least one of `delay`, `frames` and `interval`.
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
    // Without a timer, a count above 1 would leave the last frames waiting forever.
    let usual = u64::from(delay == Nanos::ZERO);
    if let Some(frames) = frames.as_ref().filter(|frames| frames.value > 1 && delay == Nanos::ZERO) {
        let what = format!("{} frames without a delay", frames.value);
        return Err(frames.wrong(what, "add delay = \"8us\": otherwise the last frames would wait forever"));
    }
    let frames = frames.map_or(usual, |spot| spot.value.max(usual)) as u32;
    let from = from.map_or(DelayFrom::FirstFrame, |spot| spot.value);
    Ok(ModerationModel { delay, from, frames, interval: interval.map_or(Nanos::ZERO, |spot| spot.value) })
}

/// Reads `interval`, the throttling interval of an interrupt vector whose profile a policy chooses. The default is no
/// throttling.
fn throttle(section: &mut Section, host: &mut Host) -> Result<(), Error> {
    let interval = section.text::<Nanos>("interval")?.map_or(Nanos::ZERO, |spot| spot.value);
    host.nic.rx_moderation = ModerationModel { interval, ..ModerationModel::OFF };
    Ok(())
}

/// Reads `[moderation.profiles]`, which has one table of profiles per mode. Each table replaces the kernel's. Returns
/// the table of `mode`. The other mode's table is checked too, so that the scenario stays valid if `mode` is changed.
fn profiles(section: &mut Section, mode: PeriodMode) -> Result<[Profile; NET_PROFILES], Error> {
    let kernels = |mode| [0, 1, 2, 3, 4].map(|at| net_profile(Direction::Rx, mode, at).unwrap_or(Profile::IMMEDIATE));
    let mut chosen = kernels(mode);
    let Some(mut tables) = section.section("profiles")? else { return Ok(chosen) };
    for (key, of) in [("rx-eqe", PeriodMode::Eqe), ("rx-cqe", PeriodMode::Cqe)] {
        let Some(spot) = tables.text::<DimProfiles>(key)? else { continue };
        let table = spot.value.over(kernels(of));
        if let Some(number) = table.iter().position(|profile| profile.usecs == 0 && profile.frames == 0) {
            let what = format!("profile {number} of `{key}` has 0 us and 0 frames: no interrupt would ever come");
            return Err(spot.wrong(what, "give it a time, a number of frames, or both"));
        }
        if of == mode {
            chosen = table;
        }
    }
    tables.finish()?;
    Ok(chosen)
}
