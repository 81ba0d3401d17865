//! The settings of an interface that Apus changes: which they are, their original values, and how they are restored.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use host::knob::{Access, AnySetting, Coalesce, CoalesceQueue, DeviceDeferral, Napi, Setting as _, Value};
use host::privilege;
use host::transaction::{Steered, Target};
use policy::moderation::Profile;
use steer::moderation::place::{Place, Setter, Shared, Strictest};
use steer::moderation::watched::{Queue as Watch, adapts};

use super::super::config::InterfaceConfig;
use super::super::queue::Any;
use super::super::{COMMAND, note};
use super::unsupported;
use crate::args::moderate::Place as TypedPlace;
use crate::documents::VERSION;

/// An interrupt delay in microseconds that every driver with interrupt moderation accepts: all drivers in
/// [`least_usecs`](steer::moderation::place::least_usecs) do, and it is one of DIM's profiles (lib/dim/net_dim.c,
/// `rx_profile`: 1, 8, 64, 128 and 256).
const TRIAL_USECS: u32 = 64;

/// The settings to control: one for each queue, or one for the whole device.
pub(super) fn places(
    access: &Access,
    config: &InterfaceConfig,
    found: &[Watch],
    least_usecs: u32,
) -> anyhow::Result<Vec<Place>> {
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
pub(super) fn steered(
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
pub(super) fn card_that_adapts(access: &Access, interface: &str, least_usecs: u32) -> anyhow::Result<Option<Place>> {
    let Some(value) = Coalesce::new(interface).read(access)? else { return Ok(None) };
    if !adapts(&value, least_usecs) {
        return Ok(None);
    }
    let has = |field: &str| value.field(field).is_some();
    let (has_adaptive, counts_frames) = (has("adaptive-rx"), has("rx-max-frames"));
    Ok(Some(Place::Device { interface: interface.to_owned(), least_usecs, has_adaptive, counts_frames }))
}

/// An actuator for each queue.
pub(super) fn actuators(shared: &Shared, places: &[Place], queues: usize) -> Vec<Any> {
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

/// The profile in force on each of `queues` queues before anything is changed.
pub(super) fn in_force(access: &Access, places: &[Place], queues: usize) -> anyhow::Result<Vec<Profile>> {
    let mut all = Vec::with_capacity(queues);
    for place in places {
        let value = place.setting().read(access)?;
        all.push(value.and_then(|value| place.profile(&value)).unwrap_or(Profile::IMMEDIATE));
    }
    all.resize(queues, all.last().copied().unwrap_or(Profile::IMMEDIATE));
    Ok(all)
}

/// Restores the original settings. Returns whether all of them were restored.
pub(super) fn restore(interface: &str, shared: Shared, patience: Duration) -> bool {
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
