//! Creates and writes a worker's telemetry file.

use std::io::{self, ErrorKind};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use policy::wait::{Belief, Reason, WaitKind};
use rustix::fs::{FallocateFlags, fallocate};
use units::{Instant, Monotonic, Nanos};

use super::folder::{self, Folder};
use super::layout::{GAPS, MAGIC, NONE, PORTS, Page, VERSION, health_number};
use super::process::{Process, current_thread, is_mapped_writable};
use super::reader::{Reader, worker_files};
use super::refused::Refused;
use super::sys::Mapping;
use super::{DropReason, Identity, State, now};
use crate::Error;
use crate::device::{Health, Statistics};

/// A worker's counters in shared memory. It is not `Sync`: only one thread writes, so counting is a load and a store.
/// Only [`create`](Telemetry::create), [`runs_here`](Telemetry::runs_here) and drop allocate memory or enter the
/// kernel. Drop unlinks the file.
#[derive(Debug)]
pub struct Telemetry {
    mapping: Mapping,
    path: PathBuf,
    instance: String,
    name: String,
    root: Folder,
    directory: Folder,
    single_writer: PhantomData<std::cell::Cell<()>>,
}

impl Telemetry {
    /// Like [`publish`](Self::publish), with errors that are worded for the command line.
    pub fn create(root: &Path, id: &Identity) -> Result<Self, Error> {
        Self::publish(root, id).map_err(|refused| refused.told(&id.instance))
    }

    /// Creates `root/<instance>/worker-<n>` in state [`State::Starting`]. First removes files that dead workers of this
    /// instance left behind. If `root` is the default, the calling user's folder is used instead ([`folder::own`]).
    ///
    /// Fails if another process runs an instance of this name, if the worker exists already, or if the identity has too
    /// many ports or an invalid name.
    pub fn publish(root: &Path, id: &Identity) -> Result<Self, Refused> {
        check(id)?;
        let root = folder::own(root);
        let name = format!("worker-{}", id.worker);
        let path = root.join(&id.instance).join(&name);
        let lacking = |e: io::Error| Refused::lacking(&path, e);

        let root = Folder::create(&root).map_err(lacking)?;
        let _lock = root.lock(PATIENCE).map_err(lacking)?;
        let directory = root.create_inner(&id.instance).map_err(lacking)?;
        clear_for(&directory, id, Process::current().map_err(lacking)?)?;

        let unnamed = format!(".{name}");
        let mapping = fill(&directory, &unnamed, id);
        let named = mapping.and_then(|mapping| directory.rename(&unnamed, &name).map(|()| mapping)).map_err(lacking);
        match named {
            Ok(mapping) => {
                let instance = id.instance.clone();
                Ok(Self { mapping, path, instance, name, root, directory, single_writer: PhantomData })
            }
            Err(error) => {
                let _ = directory.remove(&unnamed);
                root.remove_empty(&id.instance);
                Err(error)
            }
        }
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    #[inline]
    fn page(&self) -> &Page {
        self.mapping.page()
    }

    /// Writes the calling thread's ID and scheduling to the file. Call this from the worker's thread after its
    /// scheduling class is set. Until then the file names the thread that called `create`.
    pub fn runs_here(&self) -> Result<(), Error> {
        note_thread(self.page()).map_err(|e| Error::system("read /proc/thread-self/stat", e))
    }

    /// Stores that the worker began to run at `now`. Until then, the file says when it was created,
    /// which is before the ports are opened.
    pub fn begins(&self, now: Instant<Monotonic>) {
        self.page().header.started_ns.set(now.as_nanos());
    }

    /// Counts frames received from a device.
    #[inline]
    pub fn received(&self, frames: u64, bytes: u64) {
        self.page().hot.rx_frames.add(frames);
        self.page().hot.rx_bytes.add(bytes);
    }

    /// Counts frames passed to a device for sending.
    #[inline]
    pub fn sent(&self, frames: u64, bytes: u64) {
        self.page().hot.tx_frames.add(frames);
        self.page().hot.tx_bytes.add(bytes);
    }

    /// Counts received frames that were not sent.
    #[inline]
    pub fn dropped(&self, reason: DropReason, frames: u64) {
        self.page().drops[reason as usize].add(frames);
    }

    /// Counts a decision that the policy made for this reason.
    #[inline]
    pub fn decided(&self, reason: Reason) {
        self.page().reasons[reason as usize].add(1);
    }

    /// Publishes the expectations behind a choice that was made at time `at`.
    #[inline]
    pub fn believed(&self, at: Instant<Monotonic>, kind: WaitKind, reason: Reason, belief: Belief) {
        let cells = &self.page().choice;
        let number = cells.done.get().wrapping_add(1);
        cells.begun.set(number);
        // A reader that sees any of the following stores also sees the new `begun`, which differs from `done`.
        fence(Ordering::Release);
        cells.at_ns.set(at.as_nanos());
        cells.kind.set(kind as u64);
        cells.reason.set(reason as u64);
        cells.wait_ns.set(belief.wait.as_nanos());
        cells.lasts_ns.set(belief.lasts.as_nanos());
        cells.costs_ns.set(belief.costs.map_or(NONE, Nanos::as_nanos));
        cells.late_worth_ns.set(belief.late_worth.as_nanos());
        cells.gap_ns.set(belief.gap.as_nanos());
        cells.aimed_ppm.set(u64::from(belief.aimed_ppm));
        cells.owed_millionths.set(belief.owed_millionths);
        cells.multiplier_256ths.set(belief.multiplier_256ths);
        // A reader that sees the new `done` also sees all stores before it.
        fence(Ordering::Release);
        cells.done.set(number);
    }

    /// Counts a wait that took `span`. Call it when the wait has ended.
    #[inline]
    pub fn waited(&self, kind: WaitKind, span: Nanos) {
        let wait = &self.page().waits[kind as usize];
        wait.count.add(1);
        wait.time_ns.add(span.as_nanos());
    }

    /// Counts a poll of all queues. `empty` is true if it found no frame.
    #[inline]
    pub fn polled(&self, empty: bool) {
        self.page().hot.polls.add(1);
        self.page().hot.empty_polls.add(u64::from(empty));
    }

    /// Adds time spent processing and sending frames.
    #[inline]
    pub fn busy(&self, span: Nanos) {
        self.page().hot.busy_ns.add(span.as_nanos());
    }

    /// Adds the duration of a poll that found frames, from its start until those frames were received, processed and
    /// sent.
    #[inline]
    pub fn useful(&self, span: Nanos) {
        self.page().useful.time_ns.add(span.as_nanos());
    }

    /// Counts a frame that the worker picked up `lateness` after its arrival.
    #[inline]
    pub fn picked_up(&self, lateness: Nanos) {
        self.page().lateness.record(lateness);
    }

    /// Counts one batch of frames that was processed and sent within `span` after its pick-up.
    #[inline]
    pub fn served(&self, span: Nanos) {
        self.page().service.record(span);
    }

    /// Records a gap: from `began` to `ended`, something else ran on the worker's core.
    pub fn gap(&self, began: Instant<Monotonic>, ended: Instant<Monotonic>) {
        let gaps = &self.page().gaps;
        let number = gaps.written.get();
        // A reader that sees any part of this gap also sees `written` at `number` or above. It then knows that the old
        // gap at this index is being overwritten.
        fence(Ordering::Release);
        let slot = &gaps.ring[(number % GAPS as u64) as usize];
        slot.start_ns.set(began.as_nanos());
        slot.end_ns.set(ended.as_nanos());
        gaps.time_ns.add(ended.since(began).unwrap_or(Nanos::ZERO).as_nanos());
        // A reader that sees the new `written` also sees the whole gap.
        fence(Ordering::Release);
        gaps.written.set(number + 1);
    }

    /// Stores the counters of a port's device, summed over the worker's queues, and the port's health if it is known.
    ///
    /// Panics if the worker has no such port.
    pub fn device(&self, port: usize, stats: Statistics, health: Option<Health>) {
        assert!((port as u64) < self.page().header.port_count.get(), "port {port} is not in the identity");
        let cells = &self.page().ports[port];
        cells.rx_ring_full.set(stats.rx_ring_full);
        cells.rx_no_buffer.set(stats.rx_no_buffer);
        cells.rx_invalid.set(stats.rx_invalid);
        cells.tx_invalid.set(stats.tx_invalid);
        cells.tx_dropped.set(stats.tx_dropped);
        cells.health.set(health.map_or(NONE, health_number));
    }

    /// Stores whether busy polling has an effect on a port. `effect` is `None` if busy polling was not requested or if
    /// its effect is not known yet.
    ///
    /// Panics if the worker has no such port.
    pub fn busy_poll(&self, port: usize, effect: Option<bool>) {
        assert!((port as u64) < self.page().header.port_count.get(), "port {port} is not in the identity");
        self.page().ports[port].busy_poll.set(effect.map_or(NONE, u64::from));
    }

    /// Stores the worker's new state.
    pub fn state(&self, state: State) {
        self.page().header.state.set(state as u64);
    }

    /// Stores `now` as the time at which the worker last updated the file.
    #[inline]
    pub fn touch(&self, now: Instant<Monotonic>) {
        self.page().hot.updated_ns.set(now.as_nanos());
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        // The lock prevents another worker of this instance from starting just when its directory is removed. If the
        // lock cannot be taken in time, go on without it: at worst that worker reports an error. Ignore errors here:
        // the next start removes a file that is left behind.
        let _lock = self.root.lock(PATIENCE);
        let _ = self.directory.remove(&self.name);
        self.root.remove_empty(&self.instance);
    }
}

/// Maximum time to wait for other workers of this user that are starting or ending. Each of them takes microseconds.
const PATIENCE: Duration = Duration::from_secs(2);

fn check(id: &Identity) -> Result<(), Refused> {
    let name = &id.instance;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let invalid = |why: &str| Err(Refused::Invalid { why: why.to_owned() });
    if name.is_empty() || name.len() > 64 || name.starts_with('.') || !name.chars().all(plain) {
        return invalid("a name has 1 to 64 letters, digits, '-', '_' or '.', and does not start with '.'");
    }
    let texts = [&id.app, &id.mode].into_iter().chain(&id.goal).chain(&id.ports);
    if let Some(text) = texts.into_iter().find(|text| text.contains('\0')) {
        return invalid(&format!("{text:?} holds a zero byte"));
    }
    if id.ports.len() > PORTS {
        return invalid(&format!("{} ports; a worker serves at most {PORTS}", id.ports.len()));
    }
    Ok(())
}

/// Removes the files of dead workers from this instance's directory. Fails if another process runs a worker of this
/// instance, or if this process already runs the worker `id.worker`.
fn clear_for(directory: &Folder, id: &Identity, me: Process) -> Result<(), Refused> {
    for (number, name) in worker_files(directory).map_err(|e| Refused::lacking(directory.path(), e))? {
        // A file that this version cannot read does not belong to a living worker of this version: remove it.
        let reader = Reader::within(directory, &name).ok();
        let owner = reader.as_ref().map(Reader::process).filter(|owner| owner.is_alive());
        // The program that this process ran before execve(2) had the same pid and start time, but execve ends mappings.
        let replaced = |reader: &Reader| !is_mapped_writable(reader.inode());
        match owner {
            Some(owner) if owner == me && reader.as_ref().is_some_and(replaced) => remove(directory, &name)?,
            Some(owner) if owner == me && number == id.worker => return Err(Refused::TakenHere { worker: number }),
            Some(owner) if owner != me => return Err(Refused::Taken { worker: number, pid: owner.pid }),
            Some(_) => {}
            None => remove(directory, &name)?,
        }
    }
    Ok(())
}

fn remove(directory: &Folder, name: &str) -> Result<(), Refused> {
    directory.remove(name).map_err(|e| Refused::lacking(&directory.path().join(name), e))
}

/// Creates the complete file with the temporary name `name`, which no reader opens.
fn fill(directory: &Folder, name: &str, id: &Identity) -> io::Result<Mapping> {
    directory.remove(name)?;
    let file = directory.make(name)?;
    // Reserves the memory: with a full tmpfs a later write would raise SIGBUS.
    fallocate(&file, FallocateFlags::empty(), 0, size_of::<Page>() as u64)?;
    let mapping = Mapping::writable(&file)?;
    let page = mapping.page();
    let header = &page.header;
    let me = Process::current()?;

    header.version.set(VERSION);
    header.size.set(size_of::<Page>() as u64);
    header.worker.set(u64::from(id.worker));
    header.pid.set(u64::from(me.pid));
    header.process_start_ticks.set(me.start_ticks);
    header.started_ns.set(now().as_nanos());
    header.state.set(State::Starting as u64);
    header.cpu.set(id.cpu.map_or(NONE, u64::from));
    note_thread(page)?;
    page.hot.updated_ns.set(now().as_nanos());
    let texts = [
        ("instance", header.instance.set(&id.instance)),
        ("app", header.app.set(&shown(&id.app))),
        ("mode", header.mode.set(&shown(&id.mode))),
        ("goal", header.goal.set(&shown(id.goal.as_deref().unwrap_or("")))),
    ];
    header.port_count.set(id.ports.len() as u64);
    let names = id.ports.iter().zip(&page.ports).map(|(name, port)| {
        port.health.set(NONE);
        port.busy_poll.set(NONE);
        ("port", port.name.set(&shown(name)))
    });
    for (what, fits) in texts.into_iter().chain(names) {
        if !fits {
            return Err(io::Error::new(ErrorKind::InvalidInput, format!("the {what}'s name holds a zero byte")));
        }
    }
    header.magic.set(MAGIC);
    Ok(mapping)
}

fn note_thread(page: &Page) -> io::Result<()> {
    let (tid, scheduling) = current_thread()?;
    page.header.tid.set(tid);
    page.header.scheduling.set(scheduling.policy);
    page.header.priority.set(scheduling.priority);
    Ok(())
}

/// Shortens `text` to at most 64 bytes: keeps the end, which is the informative part of a path, after a `…`.
fn shown(text: &str) -> String {
    const ROOM: usize = 64;
    const MARK: &str = "…";
    if text.len() <= ROOM {
        return text.to_owned();
    }
    let from = (text.len() - (ROOM - MARK.len())..text.len()).find(|&i| text.is_char_boundary(i)).unwrap_or(text.len());
    format!("{MARK}{}", &text[from..])
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Root, identity};
    use super::super::{Choice, Snapshot, instances, remove_leftovers};
    use super::*;
    use std::fs;

    /// All fields have different values, so that a mix-up would show.
    const BELIEF: Belief = Belief {
        wait: Nanos::from_nanos(90_000),
        lasts: Nanos::from_nanos(100_000),
        costs: Some(Nanos::from_nanos(20_000)),
        late_worth: Nanos::from_nanos(40_000),
        gap: Nanos::from_nanos(10_000),
        aimed_ppm: 7_500,
        owed_millionths: 1_200_000,
        multiplier_256ths: 77,
    };

    fn read(worker: &Telemetry) -> Snapshot {
        Reader::open(worker.path()).unwrap().snapshot()
    }

    #[test]
    fn what_is_written_is_read() {
        let root = Root::new("round-trip");
        let id = identity("a", 3);
        let worker = Telemetry::create(&root.0, &id).unwrap();
        let fresh = read(&worker);
        assert_eq!(fresh.identity, id);
        assert_eq!(fresh.state, Some(State::Starting));
        assert_eq!(fresh.counts.ports[1].health, None);
        assert!(fresh.started <= fresh.taken);

        worker.received(3, 180);
        worker.sent(2, 120);
        worker.dropped(DropReason::NoRoute, 1);
        worker.decided(Reason::Periodic);
        worker.believed(Instant::from_nanos(41), WaitKind::Block, Reason::Periodic, BELIEF);
        worker.waited(WaitKind::Sleep, Nanos::from_micros(50));
        worker.polled(false);
        worker.polled(true);
        worker.busy(Nanos::from_nanos(700));
        worker.useful(Nanos::from_nanos(900));
        worker.picked_up(Nanos::from_micros(5));
        worker.served(Nanos::from_nanos(90));
        worker.device(1, Statistics { rx_ring_full: 7, ..Statistics::default() }, Some(Health::Down));
        worker.state(State::Running);
        worker.touch(Instant::from_nanos(42));
        let snapshot = read(&worker);
        let counts = snapshot.counts.since(&fresh.counts);
        assert_eq!(
            (counts.received_frames, counts.received_bytes, counts.sent_frames, counts.sent_bytes),
            (3, 180, 2, 120)
        );
        assert_eq!(counts.received_frames, counts.sent_frames + counts.dropped.iter().sum::<u64>());
        assert_eq!((counts.dropped(DropReason::NoRoute), counts.reason(Reason::Periodic)), (1, 1));
        assert_eq!(
            (counts.wait(WaitKind::Sleep).count, counts.wait(WaitKind::Sleep).time),
            (1, Nanos::from_micros(50))
        );
        assert_eq!((counts.polls, counts.empty_polls, counts.busy), (2, 1, Nanos::from_nanos(700)));
        assert_eq!(counts.useful, Nanos::from_nanos(900));
        assert_eq!((counts.lateness.count(), counts.lateness.max()), (1, Some(Nanos::from_micros(5))));
        assert_eq!(counts.service.count(), 1);
        assert_eq!((counts.ports[1].statistics.rx_ring_full, counts.ports[1].health), (7, Some(Health::Down)));
        assert_eq!((snapshot.state, snapshot.updated), (Some(State::Running), Instant::from_nanos(42)));
        assert_eq!(fresh.choice, None);
        let at = Instant::from_nanos(41);
        let choice = Choice { at, kind: WaitKind::Block, reason: Reason::Periodic, belief: BELIEF };
        assert_eq!(snapshot.choice, Some(choice));
        let unmeasured = Belief { costs: None, ..BELIEF };
        worker.believed(at, WaitKind::Sleep, Reason::Budget, unmeasured);
        let choice = Choice { at, kind: WaitKind::Sleep, reason: Reason::Budget, belief: unmeasured };
        assert_eq!(read(&worker).choice, Some(choice));
    }

    #[test]
    fn a_living_name_is_taken_and_a_dropped_one_free() {
        let root = Root::new("names");
        let first = Telemetry::create(&root.0, &identity("a", 0)).unwrap();
        let second = Telemetry::create(&root.0, &identity("a", 1)).unwrap();
        let again = Telemetry::create(&root.0, &identity("a", 0)).unwrap_err();
        assert!(matches!(again, Error::Invalid { .. }) && again.to_string().contains("its own number"), "{again}");
        assert_eq!(instances(&root.0).unwrap().0.len(), 2);
        drop((first, second));
        let left: Vec<_> = fs::read_dir(&root.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, [".lock"], "something was left behind");
        Telemetry::create(&root.0, &identity("a", 0)).unwrap();
    }

    #[test]
    fn a_dead_instance_is_told_apart_and_cleared() {
        let root = Root::new("dead");
        let worker = Telemetry::create(&root.0, &identity("a", 0)).unwrap();
        let mut dead = fs::read(worker.path()).unwrap();
        drop(worker);
        // The file has the same pid but another start time, as if its process had been killed and the pid reused.
        dead[40..48].copy_from_slice(&1u64.to_le_bytes());
        let leave = |instance: &str| {
            fs::create_dir_all(root.0.join(instance)).unwrap();
            fs::write(root.0.join(instance).join("worker-7"), &dead).unwrap();
        };
        leave("a");
        leave("b");
        let (living, leftovers) = instances(&root.0).unwrap();
        assert!(living.is_empty() && leftovers.len() == 2 && leftovers[0].why.contains("has ended"));
        let _worker = Telemetry::create(&root.0, &identity("a", 0)).unwrap();
        assert_eq!(instances(&root.0).unwrap().1.len(), 1);
        assert_eq!(remove_leftovers(&root.0).unwrap(), [root.0.join("b/worker-7")]);
        assert_eq!(instances(&root.0).unwrap().0.len(), 1);
        assert!(!root.0.join("b").exists());
    }

    /// Regression test: after execve(2), the file of the replaced program once counted as this process's own.
    #[test]
    fn a_file_of_the_program_before_this_one_is_a_leftover() {
        let root = Root::new("exec");
        let worker = Telemetry::create(&root.0, &identity("a", 0)).unwrap();
        let ours = fs::read(worker.path()).unwrap();
        drop(worker);
        for number in [0, 3] {
            fs::create_dir_all(root.0.join("a")).unwrap();
            fs::write(root.0.join(format!("a/worker-{number}")), &ours).unwrap();
            let worker = Telemetry::create(&root.0, &identity("a", 0)).unwrap();
            assert_eq!(fs::read_dir(root.0.join("a")).unwrap().count(), 1, "worker-{number}");
            let refused = Telemetry::publish(&root.0, &identity("a", 0)).unwrap_err();
            assert!(matches!(refused, Refused::TakenHere { worker: 0 }), "{refused:?}");
            drop(worker);
        }
    }

    #[test]
    fn bad_names_are_refused_and_long_ports_marked() {
        let root = Root::new("bad-names");
        for name in ["", ".", "..", "a/b", "a b", "ä", &"x".repeat(65)] {
            let error = Telemetry::create(&root.0, &identity(name, 0)).unwrap_err();
            assert!(matches!(error, Error::Invalid { .. }), "{name:?}: {error}");
        }
        let mut id = identity("a", 0);
        id.ports = vec!["p".to_owned(); PORTS + 1];
        assert!(matches!(Telemetry::create(&root.0, &id), Err(Error::Invalid { .. })));
        id.ports = vec![format!("/{}/in.pcap", "ä".repeat(60))];
        let shown = read(&Telemetry::create(&root.0, &id).unwrap()).identity.ports.remove(0);
        assert!(shown.starts_with('…') && shown.ends_with("/in.pcap"), "{shown}");
    }

    #[test]
    fn an_unwritable_root_names_the_remedy() {
        let root = Root::new("not-a-directory");
        fs::write(root.0.join("file"), "").unwrap();
        let error = Telemetry::create(&root.0.join("file"), &identity("a", 0)).unwrap_err();
        assert!(error.lacks() && error.to_string().contains("fix:"), "{error}");
    }

    #[test]
    fn the_thread_can_be_another_than_the_maker() {
        let root = Root::new("thread");
        let worker = Telemetry::create(&root.0, &identity("a", 0)).unwrap();
        let before = read(&worker).tid;
        let after = std::thread::spawn(move || {
            worker.runs_here().unwrap();
            read(&worker).tid
        });
        assert_ne!(before, after.join().unwrap());
    }
}
