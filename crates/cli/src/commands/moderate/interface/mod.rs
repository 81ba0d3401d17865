//! An interface whose receive queues are controlled.

mod control;
mod queues;
mod settings;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use host::knob::{Access, driver_of, interface_index, interface_name};
use steer::Machine;
use steer::moderation::place::{Place, Shared, least_usecs};
use steer::moderation::watched::{Beside, Queue as Watch, Queues, Watched};

use super::config::InterfaceConfig;
use super::note;
use super::queue::{Any, Dry, Eye, Queue};
use crate::Failure;
use crate::args::moderate::Place as TypedPlace;
use control::{controller, loss_bound, recorder};
use queues::{check_measured, check_name, find, note_unused_goals, receive_queues};
use settings::{actuators, card_that_adapts, in_force, places, restore, steered};

pub(super) use control::DIM_BEGINS;

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
