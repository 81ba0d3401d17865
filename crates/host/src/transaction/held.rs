//! Settings that stay changed only as long as a process runs.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsFd as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::apply::{Announced, Applied, Options, announce, apply};
use super::network::network;
use super::rollback::{self, Recovered, RolledBack, rollback_own};
use super::{Error, Plan, Target};
use crate::journal::{Durable, Journal, Lease, Lock, Processes, Record};
use crate::knob::{Access, DeviceDeferral, Error as KnobError, NapiDeferral, defers_each_queue, napis_of};
use crate::vault::Vault;

/// An applied plan that stays in force as long as this value exists. It is rolled back on drop. If this process is
/// killed, the next `apus tune apply`, `apus tune rollback` or `apus run` of any user rolls it back.
///
/// The plan is rolled back in the network namespace in which it was applied, whichever thread drops it.
#[derive(Debug)]
pub struct Held {
    access: Access,
    applied: Applied,
    command: String,
    /// How long a drop waits for another transaction to end.
    patience: Duration,
    /// The network namespace in which the plan was applied, and its name. `None` if the root directory is not `/`.
    namespace: Option<(File, String)>,
}

impl Held {
    /// Applies `plan` for the lifetime of the returned value.
    pub fn new(access: &Access, plan: &Plan, command: &str, version: &str) -> Result<Self, Error> {
        let options = options(access, command, version)?;
        Self::of(access, command, || Ok((apply(access, plan, &options)?, ()))).map(|(held, ())| held)
    }

    /// Records the values of `targets`, which a controller will move. Waits at most `patience` for another
    /// transaction to end.
    pub(super) fn announced(
        access: &Access,
        name: &str,
        targets: &[Target],
        command: &str,
        version: &str,
        patience: Duration,
    ) -> Result<(Self, Announced), Error> {
        let options = Options { patience, ..options(access, command, version)? };
        Self::of(access, command, || announce(access, name, targets, &options))
    }

    fn of<T>(
        access: &Access,
        command: &str,
        begin: impl FnOnce() -> Result<(Applied, T), Error>,
    ) -> Result<(Self, T), Error> {
        let namespace = match network(access) {
            None => None,
            Some(now) => {
                let file = File::open(OWN_NAMESPACE).map_err(|e| KnobError::of(format!("open {OWN_NAMESPACE}"), &e))?;
                Some((file, now.name))
            }
        };
        let (applied, result) = begin()?;
        if let (Some(id), Ok(Some(vault))) = (applied.id, Vault::open(access)) {
            // The number may be that of an earlier transaction, which somebody has rolled back meanwhile.
            given_up().remove(&vault.show(&id.to_string()));
        }
        Ok((Self { access: access.clone(), applied, command: command.into(), patience: PATIENCE, namespace }, result))
    }

    /// Lets a drop wait at most `patience` for another transaction to end.
    pub(super) fn drop_within(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// The result of each item.
    pub fn applied(&self) -> &Applied {
        &self.applied
    }

    /// Rolls the transaction back and returns the result. `None` if nothing had been changed.
    pub fn release(mut self) -> Result<Option<RolledBack>, Error> {
        self.take_back(PATIENCE)
    }

    /// Same as [`Self::release`], but waits at most `patience` for another transaction to end.
    pub(super) fn release_within(mut self, patience: Duration) -> Result<Option<RolledBack>, Error> {
        self.take_back(patience)
    }

    fn take_back(&mut self, patience: Duration) -> Result<Option<RolledBack>, Error> {
        let Some(id) = self.applied.id.take() else { return Ok(None) };
        let here = network(&self.access).map(|now| now.name);
        match &self.namespace {
            Some((file, name)) if here.as_ref() != Some(name) => std::thread::scope(|scope| {
                let thread = scope.spawn(|| {
                    let what = || format!("enter the network namespace {name} again");
                    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                        .map_err(|e| KnobError::of(what(), &e.into()))?;
                    self.one(id, patience)
                });
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }),
            _ => self.one(id, patience),
        }
    }

    fn one(&self, id: u32, patience: Duration) -> Result<Option<RolledBack>, Error> {
        let result = rollback_own(&self.access, id, &self.command, patience);
        let is_closed = |back: &RolledBack| back.closed;
        if !result.as_ref().is_ok_and(|back| back.iter().all(is_closed)) {
            self.give_up(id, result.is_ok());
        }
        Ok(result?.pop())
    }

    /// Gives a transaction up that could not be rolled back completely. From now on, the rest can be rolled back by
    /// everybody, and this process can hold the same settings again. If another transaction is running, only this
    /// process knows that the transaction is given up: its journal cannot be written.
    fn give_up(&self, id: u32, can_write: bool) {
        let Ok(Some(vault)) = Vault::open(&self.access) else { return };
        given_up().insert(vault.show(&id.to_string()));
        if can_write && let Ok(_lock) = Lock::take(&vault, &self.command, Duration::ZERO) {
            let record = |(mut journal, _): (Journal, _)| journal.append(&vault, &Record::Released, Durable::Now);
            // If this fails, only this process knows it, as above.
            let _ = Journal::open(&vault, id).and_then(record);
        }
    }
}

/// The transactions that this process has given up, by the path of their journals.
fn given_up() -> std::sync::MutexGuard<'static, BTreeSet<String>> {
    static GIVEN_UP: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    GIVEN_UP.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this process has given the transaction up.
pub(super) fn is_given_up(vault: &Vault, id: u32) -> bool {
    let all = given_up();
    !all.is_empty() && all.contains(&vault.show(&id.to_string()))
}

/// Options for a transaction that lasts as long as this process.
fn options(access: &Access, command: &str, version: &str) -> Result<Options, KnobError> {
    Ok(Options {
        command: command.into(),
        version: version.into(),
        patience: PATIENCE,
        lease: own_lease(access)?,
        keep_going: false,
    })
}

/// The lease of transactions that last as long as this process.
pub(super) fn own_lease(access: &Access) -> Result<Lease, KnobError> {
    let own = Processes::of(access)?.own()?;
    Ok(own.map_or(Lease::Open, |(pid, started)| Lease::Process { pid, started }))
}

impl Drop for Held {
    fn drop(&mut self) {
        // A change that cannot be rolled back now stays in the journal.
        let _ = self.take_back(self.patience);
    }
}

/// The queues whose interrupts are deferred.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DeferredQueues {
    /// The queues of these NAPI instances, by the kernel's IDs.
    Napis(Vec<u32>),
    /// All queues of the device. Before Linux 6.13, the kernel cannot defer the interrupts of a single queue.
    Device,
}

/// NAPI interrupt deferral of a network interface's receive queues, in force as long as this value exists.
#[derive(Debug)]
pub struct Deferred {
    held: Held,
    queues: DeferredQueues,
}

impl Deferred {
    /// Defers the interrupts of the receive queues `queues` of `interface`, in the calling thread's network namespace,
    /// by setting their NAPI instances. If the driver does not report which instance belongs to which queue (veth), all
    /// instances of the interface are set. If the kernel cannot set single instances, the deferral is set for the whole
    /// device.
    pub fn new(
        access: &Access,
        interface: &str,
        queues: &[u32],
        wanted: NapiDeferral,
        command: &str,
        version: &str,
    ) -> Result<Self, Error> {
        wanted.check()?;
        let found = napis_of(access, interface, queues)?;
        let plan = Plan::new("port");
        let (plan, queues) = if !defers_each_queue(access, &found)? {
            let files = DeviceDeferral::values(interface, wanted);
            (files.into_iter().fold(plan, |plan, (file, value)| plan.with(file, value)), DeferredQueues::Device)
        } else if found.is_empty() {
            return Err(Error::Knob(KnobError::Refused {
                what: format!("defer the interrupts of {interface}"),
                why: "it has no NAPI instance: it is down, or its driver has none in this XDP mode".into(),
                fix: format!("ip link set dev {interface} up, use native XDP (on veth), or omit the deferral"),
            }));
        } else {
            let napis = found.iter().map(|(_, id)| *id).collect();
            let plan = found.into_iter().fold(plan, |plan, (napi, _)| plan.with(napi, wanted.value()));
            (plan, DeferredQueues::Napis(napis))
        };
        let held = Held::new(access, &plan, command, version)?;
        if let Some((item, _)) = held.applied().items.iter().find(|(_, became)| !became.is_good()) {
            use crate::knob::Setting as _;
            let what = item.setting.label();
            return Err(KnobError::NotThere { what, why: "it disappeared while it was being set".into() }.into());
        }
        Ok(Self { held, queues })
    }

    /// The queues whose interrupts are deferred.
    pub fn queues(&self) -> &DeferredQueues {
        &self.queues
    }

    /// Rolls the transaction back and returns the result. `None` if nothing had been changed.
    pub fn release(self) -> Result<Option<RolledBack>, Error> {
        self.held.release()
    }
}

/// Rolls back transactions whose process has ended, and removes transactions that a reboot undid. Each `apply` does so
/// before its own changes. Damaged transactions, and transactions of another network namespace, are left unchanged.
pub fn take_back_abandoned(access: &Access, command: &str) -> Result<Vec<Recovered>, Error> {
    let Some(vault) = Vault::open(access)? else { return Ok(Vec::new()) };
    let _lock = Lock::take(&vault, command, PATIENCE)?;
    access.settle()?;
    rollback::recover(access, &vault)
}

/// How long a measurement waits for another transaction to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// The calling thread's network namespace.
const OWN_NAMESPACE: &str = "/proc/thread-self/ns/net";
