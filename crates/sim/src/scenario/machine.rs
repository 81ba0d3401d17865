//! The machine of a scenario: `machine`, `nic`, `[idle]`, `[scheduler]`, `[interrupt]`, `[vm]`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use units::{Hertz, Nanos};

use super::Load;
use crate::hw::aspm::AspmModel;
use crate::hw::governor::{HaltPollModel, Tick};
use crate::hw::interrupt::{Affinity, Handling};
use crate::hw::nic::NicModel;
use crate::hw::scheduler::{Class, SchedulerModel, UNTUNED};
use crate::hw::spread::Spread;
use crate::hw::timer::TimerModel;
use crate::hw::vcpu::VcpuModel;
use crate::machine::{Disturbance, Machine, MachineError, Processor};
use crate::strict::{Error, Section, Spot};

/// The machine, with the scenario's settings applied.
#[derive(Clone, Debug)]
pub struct Host {
    /// The name of the processor's machine.
    pub machine: String,
    /// The name of the NIC's machine.
    pub nic_name: String,
    /// The processor. The scenario may limit its idle states.
    pub processor: Processor,
    /// The NIC, with the scenario's rings and moderation.
    pub nic: NicModel,
    /// The longest reported exit latency that an idle state may have (PM QoS).
    pub latency_limit: Nanos,
    /// Power management of the PCI Express link. `None` if the link never sleeps.
    pub aspm: Option<AspmModel>,
    /// How the packet thread shares its core.
    pub scheduler: SchedulerModel,
    /// Lateness of the packet thread's timers.
    pub timer: TimerModel,
    /// The scheduler's tick on an idle core.
    pub tick: Tick,
    /// What interrupts the core now and then. `None` if nothing does.
    pub disturbance: Option<Disturbance>,
    /// How the NIC's interrupts are handled.
    pub handling: Handling,
    /// The CPU on which the NIC's interrupts arrive.
    pub affinity: Affinity,
    /// The virtual CPU. `None` unless the worker runs in a guest.
    pub vcpu: Option<VcpuModel>,
    /// The uncore's frequency, which stays constant.
    pub uncore: Hertz,
}

/// The longest timer slack. The kernel accepts more (prctl(2), `PR_SET_TIMERSLACK`), but delays are only recorded up to
/// 4 s ([`HIGHEST_NS`](crate::outcome::HIGHEST_NS)).
const MOST_SLACK: Nanos = Nanos::from_secs(1);
/// The fix that error messages about an unusable machine propose.
const OTHER: &str = "choose one that apus sim machines lists";

pub(super) fn read(root: &mut Section, load: Load<'_>) -> Result<Host, Error> {
    let spot = root.required::<String>("machine", "xeon-gold-6338n")?;
    let machine = named(&spot, &mut *load)?;
    let processor = machine.processor().map_err(|why| spot.wrong(why.to_string(), OTHER))?;
    let mut processor = processor.clone();
    let (nic_name, nic) = match root.text::<String>("nic")? {
        Some(spot) => {
            let machine = named(&spot, load)?;
            let nic = machine.nic().map_err(|why| spot.wrong(why.to_string(), OTHER))?;
            (machine.name.clone(), nic.clone())
        }
        None => {
            let nic = machine.nic().map_err(|why| spot.wrong(why.to_string(), "add nic = \"x540\""))?;
            (machine.name.clone(), nic.clone())
        }
    };
    let mut latency_limit = Nanos::MAX;
    let mut aspm = None;
    if let Some(mut section) = root.section("idle")? {
        if let Some(deepest) = section.text::<String>("deepest")? {
            let limited = processor.cstates.limited_to(&deepest.value);
            let names: Vec<&str> = processor.cstates.states.iter().map(|state| state.name.as_str()).collect();
            processor.cstates = limited.map_err(|_| {
                let what = format!("`idle.deepest = \"{}\"`", deepest.value);
                deepest.wrong(what, format!("{} has {}", machine.name, names.join(", ")))
            })?;
        }
        latency_limit = section.text::<Nanos>("latency_limit")?.map_or(latency_limit, |spot| spot.value);
        if section.flag("aspm")?.is_some_and(|spot| spot.value) {
            aspm = Some(processor.aspm);
        }
        section.finish()?;
    }
    let (scheduler, timer, tick, disturbance) = scheduler(root, &processor)?;
    let (handling, affinity) = interrupt(root)?;
    let vcpu = root.section("vm")?.map(|section| vm(section, processor.vcpu)).transpose()?;
    // The highest, as after a boot, unless `[frequency]` sets another.
    let uncore = processor.power.uncore.last().map_or(processor.base, |point| point.frequency);
    Ok(Host {
        machine: machine.name,
        nic_name,
        processor,
        nic,
        latency_limit,
        aspm,
        scheduler,
        timer,
        tick,
        disturbance,
        handling,
        affinity,
        vcpu,
        uncore,
    })
}

/// A machine by its name, or from a file if the name ends in `.toml`.
fn named(spot: &Spot<String>, load: Load<'_>) -> Result<Machine, Error> {
    let name = &spot.value;
    let found = if name.ends_with(".toml") {
        let octets = load(name).map_err(|why| spot.wrong(format!("`{name}`: {why}"), "give a readable file"))?;
        let text = String::from_utf8(octets).map_err(|_| {
            spot.wrong(format!("`{name}` is not valid UTF-8"), "give a TOML file that describes a machine")
        })?;
        Machine::from_toml(&text, name)
    } else {
        built_in(name)
    };
    // An error in a machine's file is reported at its place in that file, not in the scenario.
    found.map_err(|why| why.in_file().unwrap_or_else(|| spot.wrong(why.to_string(), OTHER)))
}

/// A built-in machine. It is read only once per process, because its text never changes.
fn built_in(name: &str) -> Result<Machine, MachineError> {
    static READ: Mutex<BTreeMap<String, Machine>> = Mutex::new(BTreeMap::new());
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(machine) = read.get(name) {
        return Ok(machine.clone());
    }
    let machine = Machine::named(name)?;
    read.insert(name.to_owned(), machine.clone());
    Ok(machine)
}

/// Reads `[scheduler]`. By default the thread is alone on its core, with `nohz_full=` and FIFO priority.
fn scheduler(
    root: &mut Section,
    processor: &Processor,
) -> Result<(SchedulerModel, TimerModel, Tick, Option<Disturbance>), Error> {
    let kernel = Spread::exactly(Nanos::ZERO);
    let mut scheduler =
        SchedulerModel { class: Class::Fifo, switch: processor.switch, kernel, background: None, throttle: None };
    let mut timer = TimerModel { slack: Nanos::ZERO, ..processor.timer };
    let mut disturbance = Some(processor.disturbance);
    let mut tick = Tick::Stopped;
    if let Some(mut section) = root.section("scheduler")? {
        if let Some(class) = section.choice("class", &[("fifo", Class::Fifo), ("fair", Class::Fair)])? {
            scheduler.class = class.value;
        }
        if scheduler.class == Class::Fair {
            timer.slack = processor.timer.slack;
        }
        if let Some(slack) = section.text::<Nanos>("slack")? {
            if slack.value > MOST_SLACK {
                return Err(
                    slack.wrong(format!("`slack = \"{}\"`", slack.value), format!("expected at most {MOST_SLACK}"))
                );
            }
            timer.slack = slack.value;
        }
        if section.flag("preempt_rt")?.is_some_and(|spot| !spot.value) {
            scheduler.kernel = UNTUNED;
        }
        if section.flag("background")?.is_some_and(|spot| spot.value) {
            scheduler.background = Some(processor.background);
        }
        if let Some(throttle) = section.flag("throttle")?.filter(|spot| spot.value) {
            if scheduler.class == Class::Fair {
                let what = "`scheduler.throttle` with class fair";
                return Err(throttle.wrong(what, "only FIFO threads are throttled: omit it"));
            }
            scheduler.throttle = Some(processor.throttle);
        }
        if section.flag("nohz_full")?.is_some_and(|spot| !spot.value) {
            tick = Tick::Every(Tick::PERIOD);
            disturbance = disturbance.map(|disturbance| Disturbance { every: Tick::PERIOD, ..disturbance });
        }
        if section.flag("disturbance")?.is_some_and(|spot| !spot.value) {
            disturbance = None;
        }
        section.finish()?;
    }
    Ok((scheduler, timer, tick, disturbance))
}

/// Reads `[interrupt]`. By default interrupts are handled directly, on the CPU whose thread waits for them.
fn interrupt(root: &mut Section) -> Result<(Handling, Affinity), Error> {
    let Some(mut section) = root.section("interrupt")? else { return Ok((Handling::Direct, Affinity::Right)) };
    let handling = section.choice("handling", &[("direct", Handling::Direct), ("threaded", Handling::Threaded)])?;
    let affinity = section.choice("affinity", &[("right", Affinity::Right), ("wrong", Affinity::Wrong)])?;
    section.finish()?;
    Ok((handling.map_or(Handling::Direct, |spot| spot.value), affinity.map_or(Affinity::Right, |spot| spot.value)))
}

/// Reads `[vm]`, whose presence means that the worker runs in a guest.
fn vm(mut section: Section, model: VcpuModel) -> Result<VcpuModel, Error> {
    let direct = section.flag("direct")?.map_or(model.direct, |spot| spot.value);
    let halt_poll = match section.text::<Nanos>("halt_poll")? {
        None => model.halt_poll,
        Some(most) if most.value == Nanos::ZERO => HaltPollModel::OFF,
        Some(most) => {
            HaltPollModel { most: most.value, start: HaltPollModel::HOST.start.min(most.value), ..HaltPollModel::HOST }
        }
    };
    section.finish()?;
    Ok(VcpuModel { direct, halt_poll, ..model })
}
