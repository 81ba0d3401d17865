//! An interface whose receive queues are controlled.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use host::knob::{
    Access, AnySetting, Coalesce, CoalesceQueue, DeviceDeferral, Napi, Rings, Setting as _, Value, driver_of,
    interface_index, interface_name, interfaces, lists_napis, napi_queues, napis_of,
};
use host::privilege;
use host::transaction::{Steered, Target};
use policy::moderation::{
    Direction, GoalModeration, GoalModerationConfig, Limits, Moderation, NetDim, PeriodMode, Profile, Static,
};
use policy::{Goal, LossBound};
use steer::Machine;
use steer::moderation::Moderate as Controller;
use steer::moderation::place::{Place, Setter, Shared, Strictest, least_usecs};
use steer::moderation::watched::{Beside, Queue as Watch, Queues, Watched, adapts};
use units::{BitRate, Monotonic};

use super::config::InterfaceConfig;
use super::queue::{Any, Dry, Eye, Queue};
use super::record::Recorder;
use super::{COMMAND, note};
use crate::Failure;
use crate::args::moderate::{Place as TypedPlace, Policy};
use crate::documents::VERSION;

/// DIM starts with the second of its five profiles, as the drivers do (Linux, drivers' `dim_init`; lib/dim/net_dim.c).
pub(super) const DIM_BEGINS: u8 = 1;
/// An interrupt delay in microseconds that every driver with interrupt moderation accepts: all drivers in
/// [`least_usecs`] do, and it is one of DIM's profiles (lib/dim/net_dim.c, `rx_profile`: 1, 8, 64, 128 and 256).
const TRIAL_USECS: u32 = 64;
/// Maximum NAPI deferral timer in microseconds: 2^31 - 1 ns (Documentation/netlink/specs/netdev.yaml).
const LONGEST_USECS: u32 = i32::MAX as u32 / 1_000;

/// Options that apply to all interfaces.
#[derive(Clone, Copy)]
pub(super) struct Options<'a> {
    pub(super) access: &'a Access,
    /// Whether to change nothing (`--dry-run`).
    pub(super) dry_run: bool,
    /// Whether to print changes as they happen.
    pub(super) aloud: bool,
    /// Folder in which to record the calls of DIM. `None`: they are not recorded.
    pub(super) record: Option<&'a std::path::Path>,
}

/// Why this host cannot control an interface, now or later: a service does not try again.
#[derive(Debug)]
pub(super) struct Unsupported(pub(super) Failure);

impl std::fmt::Display for Unsupported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Unsupported {}

fn unsupported(what: impl Into<String>, why: impl ToString, fix: impl Into<String>) -> anyhow::Error {
    Unsupported(Failure::lacking(what, why, fix)).into()
}

/// An interface and its queues.
pub(super) struct Interface {
    pub(super) config: InterfaceConfig,
    /// Interface index, which stays the same when the interface is renamed.
    index: Option<u32>,
    pub(super) queues: Vec<Queue>,
    /// The settings that Apus changes. `None` if nothing is changed.
    steered: Option<Shared>,
    watched: Watching,
}

/// The queues of an interface in the shared measurements, from which they are removed on drop.
struct Watching {
    all: Arc<Mutex<Queues>>,
    places: Vec<usize>,
}

impl Watching {
    fn begin(all: &Arc<Mutex<Queues>>, found: &[Watch]) -> anyhow::Result<Self> {
        let places = all.lock().unwrap_or_else(PoisonError::into_inner).add_all(found)?;
        Ok(Self { all: all.clone(), places })
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        self.places.iter().for_each(|place| all.remove(*place));
    }
}

impl Interface {
    /// Starts to control the interface. Fails if the interface does not exist or is down, or if another process
    /// controls it. Fails with [`Unsupported`] if the host or the driver lacks what is needed. Waits at most `patience`
    /// for another transaction to end.
    pub(super) fn begin(
        options: Options<'_>,
        config: InterfaceConfig,
        watch: &Arc<Mutex<Queues>>,
        patience: Duration,
    ) -> anyhow::Result<Self> {
        let access = options.access;
        check_name(access, &config.name)?;
        // The smallest `rx-usecs` that the driver treats as a time.
        let least_usecs = driver_of(access, &config.name)?.map_or(0, |driver| least_usecs(&driver));
        let mut found = find(access, &config, least_usecs)?;
        check_measured(&config, &found, watch)?;
        note_unused_goals(&config, found.iter().map(|one| one.queue));
        if options.dry_run
            && config.place != TypedPlace::Nic
            && card_that_adapts(access, &config.name, least_usecs)?.is_some()
        {
            note(&format!(
                "{}: without --dry-run, the NIC's adaptive moderation would be switched off; its delay is not counted",
                config.name
            ));
            found.iter_mut().for_each(|one| one.beside = Beside::Nothing);
        }
        let index = interface_index(access, &config.name);
        let places = places(access, &config, &found, least_usecs)?;
        let is_shared = places.first().is_some_and(Place::is_of_device);
        let in_force = in_force(access, &places, found.len())?;
        let loss = loss_bound(access, &config)?;
        let watched = Watching::begin(watch, &found)?;
        let (steered, actuators) = match options.dry_run {
            true => (None, found.iter().map(|_| -> Any { Box::new(Dry::new(access, index)) }).collect()),
            false => {
                let shared = steered(access, &config, &places, least_usecs, patience)?;
                let actuators = actuators(&shared, &places, found.len());
                (Some(shared), actuators)
            }
        };
        let recorders = found.iter().map(|one| recorder(options, &config, one.queue));
        let recorders = recorders.collect::<anyhow::Result<Vec<_>>>()?;
        let mut queues = Vec::with_capacity(found.len());
        let parts = found.into_iter().zip(actuators).zip(in_force).zip(recorders).zip(&watched.places);
        for ((((found, actuator), in_force), recorder), place) in parts {
            let controller = controller(&config, found.queue, loss, is_shared, in_force);
            let sensor = Watched::new(watch.clone(), *place);
            let sensor: Eye = Box::new(if options.dry_run { sensor.without_polls() } else { sensor });
            let machine = Machine::new(sensor, controller, actuator);
            queues.push(Queue::new(found, *place, config.policy, machine, options, recorder));
        }
        Ok(Self { config, index, queues, steered, watched })
    }

    /// Switches to other policies and goals without changing the current settings. The statistics of each queue start
    /// from zero, because the old ones refer to the previous goal.
    pub(super) fn reconfigure(&mut self, options: Options<'_>, config: InterfaceConfig) -> anyhow::Result<()> {
        let found: Vec<Watch> = self.queues.iter().map(|queue| queue.watch().clone()).collect();
        check_measured(&config, &found, &self.watched.all)?;
        let loss = loss_bound(options.access, &config)?;
        // A recorder may fail, so all queues switch after the last one is open.
        let recorders = self.queues.iter().map(|queue| recorder(options, &config, queue.number()));
        let recorders = recorders.collect::<anyhow::Result<Vec<_>>>()?;
        note_unused_goals(&config, self.queues.iter().map(Queue::number));
        for (queue, recorder) in self.queues.iter_mut().zip(recorders) {
            let controller = controller(&config, queue.number(), loss, queue.is_shared(), queue.in_force());
            queue.control_by(config.policy, controller, recorder);
        }
        self.config = config;
        Ok(())
    }

    /// Whether the interface can switch to `config` without restoring its settings first.
    pub(super) fn can_become(&self, config: &InterfaceConfig) -> bool {
        self.config.place == config.place && !self.queues.iter().any(Queue::is_lost)
    }

    /// Whether Apus no longer controls any queue of the interface.
    pub(super) fn is_lost(&self) -> bool {
        self.queues.iter().all(Queue::is_lost)
    }

    /// Whether the interface is up and its queues are no longer the controlled ones, because its number of channels has
    /// changed.
    pub(super) fn has_others(&self, access: &Access) -> bool {
        let Some(name) = self.name_now(access) else { return false };
        let Ok(mut now) = receive_queues(access, &name) else { return false };
        let mut steered: Vec<u32> = self.queues.iter().map(Queue::number).collect();
        now.sort_unstable();
        steered.sort_unstable();
        !now.is_empty() && now != steered
    }

    /// Whether the interface no longer exists here, and Apus has therefore stopped controlling its queues.
    pub(super) fn is_lost_with_device(&self, access: &Access) -> bool {
        self.is_lost() && self.index.is_some() && self.name_now(access).is_none()
    }

    /// The interface's present name. `None` if it no longer exists in this network namespace.
    pub(super) fn name_now(&self, access: &Access) -> Option<String> {
        self.index.and_then(|index| interface_name(access, index))
    }

    /// Goes by the present name of a renamed interface, if a configuration `lists` it.
    pub(super) fn take_name(&mut self, access: &Access, lists: impl Fn(&str) -> bool) {
        if let Some(name) = self.name_now(access).filter(|name| lists(name)) {
            self.config.name = name;
        }
    }

    /// Whether the interface was renamed, and another one has its old name now.
    pub(super) fn has_lost_its_name(&self, access: &Access) -> bool {
        let now = interface_index(access, &self.config.name);
        now.is_some() && now != self.index && self.name_now(access).is_some()
    }

    /// Stops controlling the interface, and restores its settings. Returns whether all settings were restored; `None`
    /// if there was nothing to restore, because nothing was changed, or because all settings are gone or were changed
    /// by somebody else. Waits at most `patience` for another transaction to end.
    pub(super) fn end(self, patience: Duration) -> Option<bool> {
        let all_lost = self.is_lost();
        drop(self.watched);
        // Drops the queues first, because their actuators hold the settings too.
        drop(self.queues);
        let restored = self.steered.map(|shared| restore(&self.config.name, shared, patience));
        restored.filter(|restored| !all_lost || !restored)
    }
}

/// Fails if this is an alternative name of an interface (ip-link(8), altname). Under two names, an interface could be
/// controlled twice.
fn check_name(access: &Access, name: &str) -> anyhow::Result<()> {
    let own = interface_index(access, name).and_then(|index| interface_name(access, index));
    match own.filter(|own| own != name) {
        None => Ok(()),
        Some(own) => {
            let (what, why) = (format!("cannot moderate {name}"), format!("it is an alternative name of {own}"));
            Err(Failure::wrong(what, why, format!("use the name {own}")).into())
        }
    }
}

/// The receive queues of an interface that is up. If the kernel does not list NAPI instances, the queues in sysfs are
/// used.
fn receive_queues(access: &Access, interface: &str) -> Result<Vec<u32>, host::knob::Error> {
    /// The flag "up" in /sys/class/net/*/flags (include/uapi/linux/if.h).
    const IFF_UP: u32 = 1;
    if lists_napis(access) {
        return napi_queues(access, interface);
    }
    let folder = format!("/sys/class/net/{interface}");
    let flags = access.line(&format!("{folder}/flags"))?;
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.strip_prefix("0x")?, 16).ok());
    match flags.is_some_and(|flags| flags & IFF_UP != 0) {
        true => access.numbered(&format!("{folder}/queues"), "rx-"),
        false => Ok(Vec::new()),
    }
}

/// The receive queues of an interface, with their NAPI instances if the kernel reports them.
fn find(access: &Access, config: &InterfaceConfig, least_usecs: u32) -> anyhow::Result<Vec<Watch>> {
    let interface = &config.name;
    let queues = receive_queues(access, interface)?;
    let napis: Vec<(u32, Option<u32>)> = match lists_napis(access) {
        true => napis_of(access, interface, &queues)?.into_iter().map(|(napi, id)| (napi.queue, Some(id))).collect(),
        false => queues.into_iter().map(|queue| (queue, None)).collect(),
    };
    let what = || format!("cannot moderate {interface}");
    if napis.is_empty() {
        let exists = interfaces(access)?.unwrap_or_default().contains(interface);
        return Err(match exists {
            false => Failure::lacking(
                what(),
                "there is no such network interface in this network namespace",
                "ip -br link lists the interfaces",
            ),
            true => Failure::lacking(
                what(),
                "the kernel lists no NAPI instance for it: it is down, or its driver does not use NAPI",
                format!(
                    "ip link set dev {interface} up; a veth has NAPI with GRO: ethtool -K {interface} gro on, and tso \
                     off at its peer"
                ),
            ),
        }
        .into());
    }
    let beside = match config.place {
        TypedPlace::Napi | TypedPlace::Epoll => Beside::Card { least_usecs },
        TypedPlace::Nic => Beside::Deferral,
    };
    let queue = |(queue, napi)| Watch { interface: interface.clone(), queue, napi, beside };
    Ok(napis.into_iter().map(queue).collect())
}

/// Fails if the policy needs measurements that are not possible on these queues. A fixed timer needs none.
fn check_measured(config: &InterfaceConfig, found: &[Watch], watch: &Mutex<Queues>) -> anyhow::Result<()> {
    let watch = watch.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(why) = found.iter().find_map(|queue| watch.unmeasured(queue)) else { return Ok(()) };
    let InterfaceConfig { name, policy, .. } = config;
    if matches!(policy, Policy::Static(_)) {
        note(&format!("{name}: latency cannot be measured, so it stays unknown whether the goal is met: {why}"));
        return Ok(());
    }
    let what = format!("cannot moderate {name} with the policy {policy}, which needs measurements");
    Err(unsupported(what, why, "use a fixed time, which needs no measurement: --policy static:50us"))
}

/// Names the queues that have a goal of their own and are not in use.
fn note_unused_goals(config: &InterfaceConfig, in_use: impl Iterator<Item = u32>) {
    let in_use: Vec<u32> = in_use.collect();
    let list = |numbers: &[u32]| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let unused: Vec<u32> = config.queues.iter().map(|(queue, _)| *queue).filter(|one| !in_use.contains(one)).collect();
    let are = match unused.len() {
        0 => return,
        1 => "queue",
        _ => "queues",
    };
    let (name, unused, in_use) = (&config.name, list(&unused), list(&in_use));
    note(&format!("{name}: not in use, so their goals have no effect: {are} {unused}; the queues in use are {in_use}"));
}

/// The settings to control: one for each queue, or one for the whole device.
fn places(access: &Access, config: &InterfaceConfig, found: &[Watch], least_usecs: u32) -> anyhow::Result<Vec<Place>> {
    let interface = &config.name;
    if config.place != TypedPlace::Nic {
        let suspends = config.place == TypedPlace::Epoll;
        let has = |found: &Watch, field: &str| {
            let value = Napi::new(interface, found.queue).read(access)?;
            Ok::<_, host::knob::Error>(value.is_some_and(|value| value.field(field).is_some()))
        };
        if let Some(first) = found.first()
            && suspends
            && !has(first, "irq-suspend-timeout")?
        {
            let what = format!("cannot moderate {interface} with --place epoll");
            let why = "this kernel cannot suspend a queue's interrupts: irq-suspend-timeout needs Linux 6.13 or later";
            return Err(unsupported(what, why, "use --place napi"));
        }
        // Before Linux 6.13, all instances of a device share one timeout.
        if let Some(first) = found.first()
            && !has(first, "gro-flush-timeout")?
        {
            if DeviceDeferral::new(interface).timeout.read(access)?.is_none() {
                let what = format!("cannot moderate {interface} with --place napi");
                let why = "the kernel supports no NAPI interrupt deferral, neither for a queue nor for the device";
                return Err(unsupported(what, why, "use --place nic if its driver offers rx-usecs"));
            }
            return Ok(vec![Place::DeviceDeferral { interface: interface.clone() }]);
        }
        let deferral = |found: &Watch| Place::Deferral { interface: interface.clone(), queue: found.queue, suspends };
        return Ok(found.iter().map(deferral).collect());
    }
    let value = Coalesce::new(interface).read(access)?;
    let has = |field: &str| value.as_ref().is_some_and(|value: &Value| value.field(field).is_some());
    if !has("rx-usecs") {
        let what = format!("cannot moderate {interface} with --place nic");
        let why = "its driver does not offer rx-usecs (ethtool -c shows what it offers)";
        return Err(unsupported(what, why, "use --place napi, which works with every driver"));
    }
    // A driver that supports coalescing for one queue supports it for all (net/ethtool/ioctl.c,
    // ethtool_get_per_queue_coalesce).
    let by_queue = |found: &Watch| matches!(CoalesceQueue::new(interface, found.queue).read(access), Ok(Some(_)));
    if found.iter().all(by_queue) {
        let queue = |found: &Watch| Place::Queue { interface: interface.clone(), queue: found.queue, least_usecs };
        return Ok(found.iter().map(queue).collect());
    }
    Ok(vec![Place::Device {
        interface: interface.clone(),
        least_usecs,
        has_adaptive: has("adaptive-rx"),
        counts_frames: has("rx-max-frames"),
    }])
}

/// Records the original settings. While Apus sets NAPI deferral, the adaptive moderation of the NIC is off, because it
/// would delay packets for an unknown time.
fn steered(
    access: &Access,
    config: &InterfaceConfig,
    places: &[Place],
    least_usecs: u32,
    patience: Duration,
) -> anyhow::Result<Shared> {
    let mut targets: Vec<Target> = places.iter().map(Place::target).collect();
    let beside: Vec<(AnySetting, Value)> = places.iter().filter_map(Place::beside).collect();
    targets.extend(beside.iter().map(|(setting, _)| setting.clone().into()));
    let adaptive = match config.place {
        TypedPlace::Nic => None,
        TypedPlace::Napi | TypedPlace::Epoll => card_that_adapts(access, &config.name, least_usecs)?,
    };
    targets.extend(adaptive.as_ref().map(Place::target));
    let lacking = privilege::lacking(privilege::needed(targets.iter().map(|target| &target.setting)))?;
    if !lacking.is_empty() {
        let what = format!("cannot moderate {}", config.name);
        let why = format!("without {}, its settings cannot be changed", privilege::names(lacking).join(" and "));
        return Err(unsupported(what, why, "run as root, or use --dry-run, which changes nothing"));
    }
    let mut steered =
        Steered::new_within(access, &format!("moderate {}", config.name), &targets, COMMAND, VERSION, patience)?;
    // A driver may show rx-usecs and refuse to change it (virtio-net without VIRTIO_NET_F_NOTF_COAL).
    if config.place == TypedPlace::Nic
        && let Some(first) = places.first()
        && let Err(error) = steered.steer(0, &first.value(Profile::eqe(TRIAL_USECS, 0)))
    {
        let what = format!("cannot moderate {} with --place nic", config.name);
        return Err(unsupported(what, error, "use --place napi, which works with every driver"));
    }
    let mut steer = |number: usize, value: &Value| match steered.steer(number, value) {
        Ok(moved) if moved.is_good() => None,
        Ok(moved) => Some(format!("{moved:?}")),
        Err(error) => Some(error.to_string()),
    };
    for (number, (setting, value)) in (places.len()..).zip(&beside) {
        if let Some(why) = steer(number, value) {
            let what = format!("cannot moderate {}: {} cannot be {value}", config.name, setting.label());
            return Err(unsupported(what, why, "use --place nic if its driver offers rx-usecs"));
        }
    }
    if let Some(card) = adaptive {
        let off = card.value(Profile::IMMEDIATE);
        match steer(places.len() + beside.len(), &off) {
            None => note(&format!("{}: the NIC's adaptive moderation is switched off until the end", config.name)),
            Some(why) => note(&format!(
                "{}: the NIC's adaptive moderation cannot be switched off, so the NIC may delay packets for an unknown time: {why}",
                config.name
            )),
        }
    }
    Ok(Arc::new(Mutex::new(steered)))
}

/// The coalescing settings of the NIC, if its adaptive moderation is on.
fn card_that_adapts(access: &Access, interface: &str, least_usecs: u32) -> anyhow::Result<Option<Place>> {
    let Some(value) = Coalesce::new(interface).read(access)? else { return Ok(None) };
    if !adapts(&value, least_usecs) {
        return Ok(None);
    }
    let has = |field: &str| value.field(field).is_some();
    let (has_adaptive, counts_frames) = (has("adaptive-rx"), has("rx-max-frames"));
    Ok(Some(Place::Device { interface: interface.to_owned(), least_usecs, has_adaptive, counts_frames }))
}

/// An actuator for each queue.
fn actuators(shared: &Shared, places: &[Place], queues: usize) -> Vec<Any> {
    let mut all: Vec<Any> = Vec::new();
    for (number, place) in places.iter().enumerate() {
        let setter = Setter::new(shared.clone(), number, place.clone());
        match place.is_of_device() {
            true => all.extend(Strictest::of(setter, queues).into_iter().map(|one| -> Any { Box::new(one) })),
            false => all.push(Box::new(setter)),
        }
    }
    all
}

fn goal_of(config: &InterfaceConfig, queue: u32) -> Goal {
    config.queues.iter().find(|(number, _)| *number == queue).map_or(config.goal, |(_, goal)| *goal)
}

/// The file in which to record the calls of DIM. `None` if they are not recorded.
fn recorder(options: Options<'_>, config: &InterfaceConfig, queue: u32) -> anyhow::Result<Option<Recorder>> {
    match (options.record, config.policy) {
        (Some(folder), Policy::NetDim) => Ok(Some(Recorder::new(folder, &config.name, queue)?)),
        _ => Ok(None),
    }
}

/// The profile in force on each of `queues` queues before anything is changed.
fn in_force(access: &Access, places: &[Place], queues: usize) -> anyhow::Result<Vec<Profile>> {
    let mut all = Vec::with_capacity(queues);
    for place in places {
        let value = place.setting().read(access)?;
        all.push(value.and_then(|value| place.profile(&value)).unwrap_or(Profile::IMMEDIATE));
    }
    all.resize(queues, all.last().copied().unwrap_or(Profile::IMMEDIATE));
    Ok(all)
}

fn controller(
    config: &InterfaceConfig,
    queue: u32,
    loss: Option<LossBound>,
    is_shared: bool,
    in_force: Profile,
) -> Controller<Monotonic> {
    let goal = goal_of(config, queue);
    let policy = match config.policy {
        Policy::Static(profile) => Moderation::Static(Static::new(profile)),
        Policy::NetDim => {
            let dim = NetDim::new(Direction::Rx, PeriodMode::Eqe, DIM_BEGINS);
            Moderation::NetDim(dim.expect("DIM has five profiles"))
        }
        Policy::Goal => Moderation::Goal(GoalModeration::new(GoalModerationConfig {
            goal: Some(goal),
            direction: Direction::Rx,
            loss,
            limits: Limits { usecs: LONGEST_USECS, usecs_step: 1, frames: 0 },
            ends_empty: ends_empty(config.place),
            remaining: None,
        })),
    };
    let controller = Controller::new(policy, goal, in_force, is_shared);
    if ends_empty(config.place) { controller.ending_empty() } else { controller }
}

/// Whether each timer ends with an empty poll, as with NAPI deferral.
fn ends_empty(place: TypedPlace) -> bool {
    match place {
        TypedPlace::Napi | TypedPlace::Epoll => true,
        TypedPlace::Nic => false,
    }
}

/// The limit of the interrupt delay at which the receive ring does not overflow, from the size of the ring and the
/// highest packet rate. `None` for policies other than `goal`. Also `None`, with a note to the user, if the size or the
/// rate is unknown.
fn loss_bound(access: &Access, config: &InterfaceConfig) -> anyhow::Result<Option<LossBound>> {
    /// Size of the shortest Ethernet frame in bytes, with its check sequence (IEEE 802.3-2018, 3.2.7).
    const SHORTEST_FRAME: u64 = 64;
    let interface = &config.name;
    if config.policy != Policy::Goal {
        return Ok(None);
    }
    let ring = Rings::new(interface).read(access)?;
    let descriptors = ring.as_ref().and_then(|ring| ring.field("rx")?.parse().ok());
    // A driver that does not know the speed reports an error or -1.
    let speed = access.number(&format!("/sys/class/net/{interface}/speed")).ok().flatten();
    let line = speed
        .filter(|megabits| *megabits > 0)
        .map(|megabits| BitRate::new(megabits * 1_000_000).frames_of(SHORTEST_FRAME));
    let why = match (descriptors, config.peak_rate.or(line)) {
        (Some(descriptors), Some(peak)) => return Ok(Some(LossBound { descriptors, peak })),
        (None, _) => "its driver does not report the ring size",
        (_, None) => "its driver does not report a line rate; state --peak-rate",
    };
    note(&format!("{interface}: only the goal limits the timer, not the size of the receive ring: {why}"));
    Ok(None)
}

/// Restores the original settings. Returns whether all of them were restored.
fn restore(interface: &str, shared: Shared, patience: Duration) -> bool {
    let Some(steered) = Arc::into_inner(shared).and_then(|inner| inner.into_inner().ok()) else { return false };
    match steered.release_within(patience) {
        Ok(Some(back)) if !back.closed => {
            note(&format!(
                "{interface}: not all settings are restored yet (settings of an interface that is down are not available); look at \
                 apus tune status, then run apus tune rollback {}",
                back.id
            ));
            false
        }
        Ok(_) => true,
        Err(error) => {
            note(&format!("{interface}: its settings are not restored ({error}); try again with apus tune rollback"));
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::moderation::Delays;
    use steer::moderation::{QueueSeen, Reason};
    use steer::{Acted, Controller as _, Reading};
    use units::{Instant, Nanos};

    /// Each decision in 3 s of 5,000 packets per second, which arrive alone.
    fn decisions(place: TypedPlace) -> Vec<(u32, Reason)> {
        let goal: Goal = "p99=100us".parse().unwrap();
        let policy = Policy::Goal;
        let config = InterfaceConfig { name: "x".into(), goal, policy, place, peak_rate: None, queues: Vec::new() };
        let mut one = controller(&config, 0, None, false, Profile::IMMEDIATE);
        let mut decisions = Vec::new();
        for reading in 1..600u64 {
            let now = Instant::<Monotonic>::from_nanos(reading * 5_000_000);
            let (shortest, longest) = (Nanos::from_micros(5), Nanos::from_micros(10));
            let seen = QueueSeen {
                packets: Some(25 * reading),
                bytes: Some(2_500 * reading),
                polls: Some(25 * reading),
                full_polls: Some(0),
                after: Some(vec![Delays { packets: 25, shortest, longest }]),
                beside: Some(Nanos::ZERO),
            };
            let decision = one.decide(now, &Reading { taken: now, seen });
            if let Some(wish) = decision.apply {
                decisions.push((wish.profile.usecs, decision.reason));
                one.acted(now, &wish, &Acted::InForce);
            }
        }
        decisions
    }

    /// Regression test: with `--place epoll`, the policy did not know that each timer ends with an empty poll, and set
    /// timers that cost more polls than they save.
    #[test]
    fn the_two_deferrals_decide_alike() {
        assert_eq!(decisions(TypedPlace::Epoll), decisions(TypedPlace::Napi));
        assert_ne!(decisions(TypedPlace::Nic), decisions(TypedPlace::Napi));
    }
}
