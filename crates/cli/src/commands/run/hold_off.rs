//! `--hold-off`: sets the NAPI deferral that each worker's policy wants, and restores the original one at the end.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use host::knob::{Access, Rings, Setting as _, defers_each_queue, driver_of, napis_of};
use host::privilege;
use host::transaction::{Steered, Target};
use live::hold_off::{HoldOff, Wish as Wanted};
use live::instance::Instance;
use live::os;
use live::port::{ASSUMED_SPEED, PortKind, SHORTEST_FRAME};
use policy::moderation::Profile;
use steer::moderation::Wish;
use steer::moderation::place::{Place, Setter, Shared};
use steer::{Acted, Actuator, Lost, Standing};
use units::{Monotonic, Nanos, PacketRate};

use super::COMMAND;
use crate::Failure;
use crate::commands::ports;
use crate::documents::VERSION;

/// Time between two checks whether somebody else has changed a setting.
const CHECK: Duration = Duration::from_secs(1);
/// Number of frames that wait in a veth for the kernel's poll (Linux, drivers/net/veth.c, `VETH_RING_SIZE`). Its driver
/// does not report it.
const VETH_RING: u64 = 256;

/// The longest hold-off at which no ring of these interfaces' drivers overflows: frames wait there until the kernel
/// polls. Also returns a warning for each interface whose driver does not report the size of its ring; only the goal
/// limits the hold-off there.
pub(super) fn longest(interfaces: &[String], peak: Option<PacketRate>) -> anyhow::Result<(Nanos, Vec<String>)> {
    let access = Access::live()?;
    let (mut longest, mut warnings) = (Nanos::MAX, Vec::new());
    for interface in interfaces {
        let reported = Rings::new(interface).read(&access)?;
        let reported = reported.as_ref().and_then(|rings| rings.field("rx")?.parse().ok()).filter(|rx| *rx > 0);
        let is_veth = driver_of(&access, interface)?.is_some_and(|driver| driver == "veth");
        let Some(descriptors) = reported.or(is_veth.then_some(VETH_RING)) else {
            warnings.push(format!(
                "{interface}: its driver does not report the size of its receive ring, so only the goal limits the hold-off"
            ));
            continue;
        };
        // An interface that cannot be opened gets its error there.
        let speed = os::interface_facts(interface).ok().and_then(|facts| facts.speed);
        let rate = peak.unwrap_or_else(|| speed.unwrap_or(ASSUMED_SPEED).frames_of(SHORTEST_FRAME));
        longest = longest.min(rate.time_for(descriptors));
    }
    Ok((longest, warnings))
}

/// The queues whose hold-off the workers choose.
pub(super) struct HoldOffs {
    steered: Shared,
    /// One entry per worker.
    workers: Vec<Queues>,
    next_check: Instant,
}

/// The queues of one worker.
#[derive(Default)]
struct Queues {
    setters: Vec<Setter>,
    /// Number of times that the hold-off was changed.
    changes: u64,
    is_lost: bool,
    /// The last reason for which a hold-off was not set.
    trouble: Option<String>,
}

impl HoldOffs {
    /// Records the deferral of all queues, which the instance has opened, in the journal. Changes nothing yet.
    pub(super) fn begin(instance: &Instance) -> anyhow::Result<Self> {
        let access = Access::live()?;
        let mut workers: Vec<Queues> = instance.hold_offs().iter().map(|_| Queues::default()).collect();
        let mut places = Vec::new();
        for port in instance.ports().iter().filter(|port| port.kind == PortKind::AfXdp) {
            let served = port.driver.as_ref().map_or(&[][..], |driver| &driver.queues);
            // Of a veth, which has an instance for each queue but does not say which, the result has all of them.
            let mut found = napis_of(&access, &port.name, served)?;
            found.retain(|(napi, _)| served.contains(&napi.queue));
            let what = || format!("cannot choose a hold-off for {}", port.name);
            if found.is_empty() {
                let why = "its queues have no NAPI instance: it is down, or its driver has none in this XDP mode";
                let fix = format!("ip link set dev {} up, use native XDP (on veth), or omit --hold-off", port.name);
                return Err(Failure::lacking(what(), why, fix).into());
            }
            if !defers_each_queue(&access, &found)? {
                let why = "this kernel cannot defer the interrupts of a single queue";
                return Err(Failure::lacking(what(), why, "use Linux 6.13 or later, or omit --hold-off").into());
            }
            for (napi, _) in found {
                // The workers take turns in the list of queues.
                let turn = served.iter().position(|queue| *queue == napi.queue).unwrap_or(0);
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
        for (queues, hold_off) in workers.iter().zip(instance.hold_offs()) {
            queues.report(hold_off, None);
        }
        Ok(Self { steered, workers, next_check: Instant::now() + CHECK })
    }

    /// Sets what the workers want, and reports to them what is in force. Returns a warning for each worker whose
    /// setting was lost, or could not be changed.
    pub(super) fn poll(&mut self, hold_offs: &[HoldOff]) -> Vec<String> {
        let is_due = Instant::now() >= self.next_check;
        if is_due {
            self.next_check = Instant::now() + CHECK;
        }
        let mut warnings = Vec::new();
        for (number, (queues, hold_off)) in self.workers.iter_mut().zip(hold_offs).enumerate() {
            let mut lost = is_due.then(|| queues.check()).flatten();
            let wish = hold_off.wish();
            if let Some(wanted) = wish.map(|wish| wish.hold_off).filter(|_| !queues.is_lost && lost.is_none()) {
                let before = queues.trouble.clone();
                lost = with_privilege(|| queues.set(wanted));
                if let Some(trouble) = queues.trouble.as_ref().filter(|trouble| Some(*trouble) != before.as_ref()) {
                    warnings.push(format!("worker {number}: its hold-off of {wanted} was not set: {trouble}"));
                }
            }
            if let Some(lost) = lost {
                queues.is_lost = true;
                with_privilege(|| queues.set(Nanos::ZERO));
                warnings.push(format!(
                    "worker {number} no longer chooses its hold-off, and its other queues have none: {lost}"
                ));
            }
            if is_due || wish.is_some() {
                queues.report(hold_off, wish);
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
        // They hold the settings, too.
        drop(workers);
        let steered = Arc::into_inner(steered)?.into_inner().unwrap_or_else(PoisonError::into_inner);
        // If a capability is missing, the release reports it.
        let _ = privilege::resume();
        ports::restored(ports::DEFERRAL, steered.release())
    }
}

/// Runs `change` with the capabilities that the thread has set aside.
fn with_privilege<T>(change: impl FnOnce() -> T) -> T {
    // If a capability is missing, the change reports it.
    let _ = privilege::resume();
    let result = change();
    let _ = privilege::rest(os::lasting_capabilities());
    result
}

impl Queues {
    /// Sets the hold-off. `Some` if a setting was lost.
    fn set(&mut self, wanted: Nanos) -> Option<Lost> {
        let profile = match u32::try_from(wanted.as_nanos() / 1_000).unwrap_or(u32::MAX) {
            0 => Profile::IMMEDIATE,
            usecs => Profile::eqe(usecs, 0),
        };
        let (now, wish) = (units::Instant::<Monotonic>::ORIGIN, Wish { profile, most: None });
        let (mut lost, mut trouble, mut is_changed) = (None, None, false);
        for setter in &mut self.setters {
            match setter.set(now, &wish) {
                Acted::InForce | Acted::Rounded { .. } | Acted::Later { .. } => is_changed = true,
                Acted::Ignored { why } => trouble = why.or_else(|| Some("the setting had no effect".into())),
                Acted::Refused { why } => trouble = Some(why.replace('\n', "; ")),
                Acted::Away(away) => trouble = Some(away.to_string()),
                Acted::Lost(one) => lost = Some(one),
            }
        }
        self.changes += u64::from(is_changed);
        self.trouble = trouble;
        lost
    }

    /// Checks that the settings are as they were left. `Some` if one was lost.
    fn check(&mut self) -> Option<Lost> {
        if self.is_lost {
            return None;
        }
        self.setters.iter_mut().find_map(|setter| match Actuator::<Monotonic>::stands(setter) {
            Standing::Lost(lost) => Some(lost),
            // The policy learns what is in force, and chooses anew.
            Standing::AsLeft | Standing::Fresh | Standing::Away(_) => None,
        })
    }

    /// Reports the longest hold-off in force on these queues. If it cannot be read, the last one counts.
    fn report(&self, hold_off: &HoldOff, answered: Option<Wanted>) {
        let timer = |setter: &Setter| {
            let profile = setter.in_force()?;
            Ok::<_, host::knob::Error>(profile.and_then(|profile| profile.timer()).unwrap_or(Nanos::ZERO))
        };
        let longest = self.setters.iter().try_fold(Nanos::ZERO, |longest, setter| Ok(longest.max(timer(setter)?)));
        let longest = longest.unwrap_or_else(|_: host::knob::Error| hold_off.longest());
        hold_off.report(longest, answered);
    }
}
