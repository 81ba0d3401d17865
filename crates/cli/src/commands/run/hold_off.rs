//! `--hold-off`: sets the NAPI deferral that each worker's policy wants, and restores the original one at the end.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use host::knob::{Access, Error, Setting as _, defers_each_queue, napis_of};
use host::privilege;
use host::transaction::{Steered, Target};
use live::hold_off::HoldOff;
use live::instance::Instance;
use live::port::PortKind;
use policy::moderation::Profile;
use steer::moderation::Wish;
use steer::moderation::place::{Place, Setter, Shared};
use steer::{Acted, Actuator, Lost, Standing};
use units::{Monotonic, Nanos};

use super::COMMAND;
use crate::Failure;
use crate::commands::ports;
use crate::documents::VERSION;

/// Time between two checks whether somebody else has changed a setting, or an interface came up again.
const CHECK: Duration = Duration::from_secs(1);

/// The queues whose hold-off the workers choose.
pub(super) struct HoldOffs {
    access: Access,
    steered: Shared,
    /// One entry per worker.
    workers: Vec<Queues>,
    next_check: Instant,
}

/// The queues of one worker.
#[derive(Default)]
struct Queues {
    setters: Vec<Setter>,
    /// The last hold-off that was set. `None` if it must be set again.
    asked: Option<Nanos>,
    /// Number of times that it was changed.
    changes: u64,
    is_lost: bool,
}

impl HoldOffs {
    /// Records the deferral of all queues, which the instance has opened, in the journal. Changes nothing yet.
    pub(super) fn begin(instance: &Instance) -> anyhow::Result<Self> {
        let access = Access::live()?;
        let mut workers: Vec<Queues> = instance.hold_offs().iter().map(|_| Queues::default()).collect();
        let mut places = Vec::new();
        for port in instance.ports().iter().filter(|port| port.kind == PortKind::AfXdp) {
            let served = port.driver.as_ref().map_or(&[][..], |driver| &driver.queues);
            let found = napis_of(&access, &port.name, served)?;
            let what = || format!("cannot choose a hold-off for {}", port.name);
            if found.is_empty() {
                let why = "it has no NAPI instance: it is down, or its driver has none in this XDP mode";
                let fix = format!("ip link set dev {} up, use native XDP (on veth), or omit --hold-off", port.name);
                return Err(Failure::lacking(what(), why, fix).into());
            }
            if !defers_each_queue(&access, &found)? {
                let why = "this kernel cannot defer the interrupts of a single queue";
                return Err(Failure::lacking(what(), why, "use Linux 6.13 or later, or omit --hold-off").into());
            }
            for (napi, _) in found {
                // The workers take turns in the list of queues. If the driver does not tell which instance belongs to which
                // queue, they take turns in the list of instances.
                let turn = served.iter().position(|queue| *queue == napi.queue).unwrap_or(napi.queue as usize);
                places.push((turn % workers.len(), port.name.clone(), napi.queue));
            }
        }
        let place = |(_, interface, queue): &(usize, String, u32)| Place::Deferral {
            interface: interface.clone(),
            queue: *queue,
            suspends: false,
        };
        let targets: Vec<Target> = places.iter().map(|of| place(of).target()).collect();
        let steered = Arc::new(Mutex::new(Steered::new(&access, "hold-off", &targets, COMMAND, VERSION)?));
        for (number, of) in places.iter().enumerate() {
            workers[of.0].setters.push(Setter::new(steered.clone(), number, place(of)));
        }
        let hold_offs = Self { access, steered, workers, next_check: Instant::now() + CHECK };
        for (queues, hold_off) in hold_offs.workers.iter().zip(instance.hold_offs()) {
            hold_off.report(queues.in_force(&hold_offs.access)?);
        }
        Ok(hold_offs)
    }

    /// Sets what the workers want, and reports to them what is in force. Returns a warning for each worker whose setting was
    /// lost.
    pub(super) fn poll(&mut self, hold_offs: &[HoldOff]) -> Vec<String> {
        let is_due = Instant::now() >= self.next_check;
        if is_due {
            self.next_check = Instant::now() + CHECK;
        }
        let mut warnings = Vec::new();
        for (number, (queues, hold_off)) in self.workers.iter_mut().zip(hold_offs).enumerate() {
            let mut lost = is_due.then(|| queues.check()).flatten();
            let wanted = hold_off.wanted();
            if !queues.is_lost && queues.asked.unwrap_or(hold_off.in_force()) != wanted {
                // If the capability was not set aside, there is nothing to resume.
                let _ = privilege::resume();
                lost = lost.or(queues.set(wanted));
                let _ = privilege::rest(live::os::lasting_capabilities());
            }
            if is_due || queues.asked != Some(hold_off.in_force()) {
                // An interface that is gone holds nothing off.
                hold_off.report(queues.in_force(&self.access).unwrap_or(Nanos::ZERO));
            }
            if let Some(lost) = lost {
                queues.is_lost = true;
                warnings.push(format!("worker {number} no longer chooses its hold-off: {lost}"));
            }
        }
        warnings
    }

    /// How often each worker's hold-off was changed.
    pub(super) fn changes(&self) -> Vec<u64> {
        self.workers.iter().map(|queues| queues.changes).collect()
    }

    /// Restores the original settings. Returns a warning if one could not be restored.
    pub(super) fn end(self) -> Option<String> {
        let Self { steered, workers, .. } = self;
        drop(workers);
        let steered = Arc::into_inner(steered).and_then(|inner| inner.into_inner().ok())?;
        ports::restored(|| steered.release())
    }
}

impl Queues {
    /// Sets the hold-off. `Some` if a setting was lost.
    fn set(&mut self, wanted: Nanos) -> Option<Lost> {
        let profile = match u32::try_from(wanted.as_nanos() / 1_000) {
            Ok(0) => Profile::IMMEDIATE,
            Ok(usecs) => Profile::eqe(usecs, 0),
            Err(_) => return None,
        };
        let (now, wish) = (units::Instant::<Monotonic>::ORIGIN, Wish { profile, most: None });
        (self.asked, self.changes) = (Some(wanted), self.changes + 1);
        self.setters.iter_mut().find_map(|setter| match setter.set(now, &wish) {
            Acted::Lost(lost) => Some(lost),
            _ => None,
        })
    }

    /// Checks that the settings are as they were left. `Some` if one was lost.
    fn check(&mut self) -> Option<Lost> {
        if self.is_lost {
            return None;
        }
        for setter in &mut self.setters {
            match Actuator::<Monotonic>::stands(setter) {
                Standing::AsLeft => {}
                Standing::Fresh | Standing::Away(_) => self.asked = None,
                Standing::Lost(lost) => return Some(lost),
            }
        }
        None
    }

    /// The longest hold-off in force on these queues.
    fn in_force(&self, access: &Access) -> Result<Nanos, Error> {
        let mut longest = Nanos::ZERO;
        for setter in &self.setters {
            let value = setter.place().setting().read(access)?;
            let profile = value.and_then(|value| setter.place().profile(&value));
            longest = longest.max(profile.and_then(|profile| profile.timer()).unwrap_or(Nanos::ZERO));
        }
        Ok(longest)
    }
}
