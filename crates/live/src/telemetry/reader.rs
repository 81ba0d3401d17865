//! Reads workers' files. It maps files read-only, so it cannot affect a worker.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, fence};

use policy::wait::{Belief, Reason, WaitKind};
use units::{Instant, Monotonic, Nanos};

use super::folder::{self, Folder, me, open_file};
use super::histogram::Histogram;
use super::layout::{self, GAPS, MAGIC, NONE, PORTS, Page, VERSION, health_number};
use super::process::{Process, Scheduling};
use super::sys::{Mapping, copied};
use super::{DropReason, Identity, State, now};
use crate::Error;
use crate::device::{Health, Statistics};

/// Reads the telemetry file of one worker.
#[derive(Debug)]
pub struct Reader {
    source: Source,
    path: PathBuf,
    process: Process,
    owner: u32,
    inode: u64,
    /// The owner's user ID, if the instance's name is shown with it as a prefix, to distinguish instances of different
    /// users.
    prefix: Option<u32>,
}

/// How a worker's file is read.
#[derive(Debug)]
enum Source {
    /// The file is mapped. It belongs to the calling user or to root, so no other user can truncate it.
    Mapped(Mapping),
    /// The file is copied at each reading, because it belongs to another user.
    Copied(File),
}

/// The page, mapped or copied, for one reading.
enum View<'a> {
    Mapped(&'a Page),
    Copied(Box<Page>),
}

impl Deref for View<'_> {
    type Target = Page;

    fn deref(&self) -> &Page {
        match self {
            Self::Mapped(page) => page,
            Self::Copied(page) => page,
        }
    }
}

impl Source {
    fn page(&self) -> View<'_> {
        match self {
            Self::Mapped(mapping) => View::Mapped(mapping.page()),
            Self::Copied(file) => View::Copied(copied(file)),
        }
    }
}

/// A copy of a worker's file without its list of gaps. Each counter is exact. Because the worker keeps running while
/// the counters are read, two of them may differ by one poll.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// Identifies the worker that writes the file.
    pub identity: Identity,
    /// The worker's process.
    pub process: Process,
    /// The thread ID (TID) of the worker's thread.
    pub tid: u32,
    /// The scheduling policy and priority of the worker's thread.
    pub scheduling: Scheduling,
    /// When the worker began to run; until then, when its file was created.
    pub started: Instant<Monotonic>,
    /// When this snapshot was taken.
    pub taken: Instant<Monotonic>,
    /// When the worker last updated the file.
    pub updated: Instant<Monotonic>,
    /// The worker's state. `None` if the file contains an unknown number.
    pub state: Option<State>,
    /// What the worker has counted since it was created.
    pub counts: Counts,
    /// The last published choice of the wait policy. `None` if the mode does not compare waits, if no choice has been
    /// made yet, or if the worker was writing a choice at every attempt to read it.
    pub choice: Option<Choice>,
}

/// A choice of the wait policy, and the expectations that led to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    /// When the choice was made.
    pub at: Instant<Monotonic>,
    /// The kind of wait that was chosen.
    pub kind: WaitKind,
    /// Why the policy made this choice.
    pub reason: Reason,
    /// What the policy expected of this choice.
    pub belief: Belief,
}

/// The counters of a worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Number of polls. One poll covers all queues of the worker.
    pub polls: u64,
    /// Number of polls that found no frame in any queue.
    pub empty_polls: u64,
    /// Number of frames received from devices.
    pub received_frames: u64,
    /// Number of bytes in the received frames.
    pub received_bytes: u64,
    /// Number of frames passed to devices for sending.
    pub sent_frames: u64,
    /// Number of bytes in the sent frames.
    pub sent_bytes: u64,
    /// Time spent processing and sending frames.
    pub busy: Nanos,
    /// Total duration of the polls that found frames, each from its start until the frames were processed and sent.
    /// Polls that found nothing do not count. This duration divided by the elapsed time is the worker's occupancy.
    pub useful: Nanos,
    /// Number of dropped frames, indexed by the number of the [`DropReason`].
    pub dropped: [u64; DropReason::ALL.len()],
    /// Number and duration of the waits, indexed by the number of the [`WaitKind`].
    pub waits: [Wait; WaitKind::ALL.len()],
    /// Number of decisions, indexed by the number of the [`Reason`].
    pub reasons: [u64; Reason::ALL.len()],
    /// Number of gaps: times when something else ran on the core although the worker neither slept nor blocked.
    pub gaps: u64,
    /// Total length of the gaps.
    pub gap_time: Nanos,
    /// Counters and health of each port, by port number.
    pub ports: Vec<PortCounts>,
    /// Time from each frame's arrival to its pick-up.
    pub lateness: Histogram,
    /// Time from the pick-up of a batch of frames until they were processed and sent, with one value per batch.
    pub service: Histogram,
}

/// Number and total duration of the waits of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wait {
    /// Number of waits.
    pub count: u64,
    /// Total duration of the waits.
    pub time: Nanos,
}

/// What a port's device reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortCounts {
    /// The port's name, for example its interface.
    pub name: String,
    /// The device's counters, summed over the worker's queues of the port.
    pub statistics: Statistics,
    /// The port's health. `None` if it is not known.
    pub health: Option<Health>,
    /// Whether busy polling has an effect. `None` if it was not requested or is not known yet.
    pub busy_poll: Option<bool>,
}

/// The gaps in a span of time. A gap is a time when something else ran on the core although the worker neither slept
/// nor blocked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gaps {
    /// Start and end of each gap, in ascending order.
    pub spans: Vec<(Instant<Monotonic>, Instant<Monotonic>)>,
    /// Whether `spans` may be incomplete because older gaps were overwritten. The file keeps a fixed number of gaps.
    pub overrun: bool,
}

/// Number of attempts to read a choice while the worker overwrites it. A worker writes a choice every few microseconds.
/// Reading the two cache lines of a choice takes a few hundred nanoseconds.
const TRIES: usize = 16;

/// A file or folder that was found but does not belong to a living worker.
#[derive(Debug)]
pub struct Leftover {
    /// Path of the file or folder.
    pub path: PathBuf,
    /// Why the file is not read.
    pub why: String,
}

impl Reader {
    /// Opens a worker's file, whether or not the worker is alive.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = open_file(path).map_err(|e| Error::system(format!("open telemetry {}", path.display()), e))?;
        Self::of(file, path)
    }

    /// Opens a worker's file in the folder of its instance.
    pub(super) fn within(folder: &Folder, name: &str) -> Result<Self, Error> {
        let path = folder.path().join(name);
        let file = folder.file(name).map_err(|e| Error::system(format!("open telemetry {}", path.display()), e))?;
        Self::of(file, &path)
    }

    fn of(file: File, path: &Path) -> Result<Self, Error> {
        let what = || format!("telemetry {}", path.display());
        let invalid = |why: String| Error::Invalid { what: what(), why };
        let metadata = file.metadata().map_err(|e| Error::system(format!("read {}", what()), e))?;
        let expected = size_of::<Page>() as u64;
        if !metadata.is_file() {
            return Err(invalid("not a file".to_owned()));
        }
        if metadata.len() < 64 {
            return Err(invalid(format!("only {} bytes long: truncated, or not written by Apus", metadata.len())));
        }
        let (magic, version, size) = preamble(&file).map_err(|e| Error::system(format!("read {}", what()), e))?;
        if magic != MAGIC {
            return Err(invalid("not written by Apus: it does not begin with APUSTEL1".to_owned()));
        }
        if version != VERSION || size != expected {
            return Err(invalid(format!(
                "written by another version of Apus (layout {version}, {size} bytes; this one reads layout {VERSION}, \
                 {expected} bytes): use the apus that the instance was started with"
            )));
        }
        if metadata.len() != expected {
            return Err(invalid(format!("{} bytes long instead of {expected}: truncated", metadata.len())));
        }
        let owner = metadata.uid();
        let source = if owner == 0 || owner == me() {
            Source::Mapped(Mapping::read_only(&file).map_err(|e| Error::system(format!("map {}", what()), e))?)
        } else {
            Source::Copied(file)
        };
        let (pid, start_ticks) = {
            let header = &source.page().header;
            (header.pid.get(), header.process_start_ticks.get())
        };
        let pid = u32::try_from(pid).map_err(|_| invalid("it contains no valid PID".to_owned()))?;
        Ok(Self {
            source,
            path: path.to_owned(),
            process: Process { pid, start_ticks },
            owner,
            inode: metadata.ino(),
            prefix: None,
        })
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The process of the worker.
    pub fn process(&self) -> Process {
        self.process
    }

    /// Inode number of the file.
    pub(super) fn inode(&self) -> u64 {
        self.inode
    }

    /// Whether the worker's process still runs. False if the process and the file belong to different users: then the
    /// process is not the worker's, whatever the file says.
    pub fn is_alive(&self) -> bool {
        self.process.is_alive() && self.process.user().is_none_or(|user| user == self.owner)
    }

    /// Reads the file without its list of gaps.
    pub fn snapshot(&self) -> Snapshot {
        let page = &*self.source.page();
        let header = &page.header;
        let mut identity = identity(page);
        if let Some(user) = self.prefix {
            identity.instance = format!("{user}/{}", identity.instance);
        }
        Snapshot {
            identity,
            process: self.process,
            tid: header.tid.get() as u32,
            scheduling: Scheduling { policy: header.scheduling.get(), priority: header.priority.get() },
            started: Instant::from_nanos(header.started_ns.get()),
            taken: now(),
            updated: Instant::from_nanos(page.hot.updated_ns.get()),
            state: State::ALL.into_iter().find(|state| *state as u64 == header.state.get()),
            counts: counts(page),
            choice: (0..TRIES).find_map(|_| choice(&self.source.page().choice)).flatten(),
        }
    }

    /// Reads the gaps that overlap the time from `start` to `end`.
    pub fn gaps_between(&self, start: Instant<Monotonic>, end: Instant<Monotonic>) -> Gaps {
        let cells = &self.source.page().gaps;
        let before = cells.written.get();
        fence(Ordering::Acquire);
        let oldest = before.saturating_sub(GAPS as u64);
        let read: Vec<_> = (oldest..before)
            .map(|number| {
                let slot = &cells.ring[(number % GAPS as u64) as usize];
                (number, (Instant::from_nanos(slot.start_ns.get()), Instant::from_nanos(slot.end_ns.get())))
            })
            .collect();
        fence(Ordering::Acquire);
        // With `written` gaps complete, the worker may be writing the next one, which overwrites gap `written - GAPS`.
        let intact = self.source.page().gaps.written.get().saturating_sub(GAPS as u64 - 1);
        let kept: Vec<_> = read.into_iter().filter(|(number, _)| *number >= intact).map(|(_, gap)| gap).collect();
        let overrun = intact > 0 && kept.first().is_none_or(|(began, _)| *began > start);
        let spans = kept.into_iter().filter(|(began, ended)| *ended >= start && *began <= end).collect();
        Gaps { spans, overrun }
    }
}

impl Counts {
    /// Number of frames that were received and then dropped for this reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    /// Number and total duration of the waits of this kind.
    pub fn wait(&self, kind: WaitKind) -> Wait {
        self.waits[kind as usize]
    }

    /// Number of decisions that were made for this reason.
    pub fn reason(&self, reason: Reason) -> u64 {
        self.reasons[reason as usize]
    }

    /// For each reason, its name and the number of decisions made for it.
    pub fn decisions(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Reason::ALL.into_iter().map(|reason| (reason.name(), self.reason(reason)))
    }

    /// What was counted after `earlier`, the counts of an earlier snapshot of the same worker.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            polls: self.polls.saturating_sub(earlier.polls),
            empty_polls: self.empty_polls.saturating_sub(earlier.empty_polls),
            received_frames: self.received_frames.saturating_sub(earlier.received_frames),
            received_bytes: self.received_bytes.saturating_sub(earlier.received_bytes),
            sent_frames: self.sent_frames.saturating_sub(earlier.sent_frames),
            sent_bytes: self.sent_bytes.saturating_sub(earlier.sent_bytes),
            busy: self.busy.saturating_sub(earlier.busy),
            useful: self.useful.saturating_sub(earlier.useful),
            dropped: std::array::from_fn(|i| self.dropped[i].saturating_sub(earlier.dropped[i])),
            waits: std::array::from_fn(|i| Wait {
                count: self.waits[i].count.saturating_sub(earlier.waits[i].count),
                time: self.waits[i].time.saturating_sub(earlier.waits[i].time),
            }),
            reasons: std::array::from_fn(|i| self.reasons[i].saturating_sub(earlier.reasons[i])),
            gaps: self.gaps.saturating_sub(earlier.gaps),
            gap_time: self.gap_time.saturating_sub(earlier.gap_time),
            ports: self
                .ports
                .iter()
                .enumerate()
                .map(|(i, port)| {
                    let then = earlier.ports.get(i).map_or(Statistics::default(), |p| p.statistics);
                    PortCounts { statistics: port.statistics.since(&then), ..port.clone() }
                })
                .collect(),
            lateness: self.lateness.since(&earlier.lateness),
            service: self.service.since(&earlier.service),
        }
    }
}

/// Finds the living workers under `root`, sorted by instance and number, and leftover files. The result is empty if the
/// directory does not exist. For the default root, it includes the workers of all users. The name of an instance of a
/// user other than root and the caller starts with the user's ID, for example `1000/edge`. The name of the caller's own
/// instance starts with the ID only if root has an instance of the same name.
pub fn instances(root: &Path) -> Result<(Vec<Reader>, Vec<Leftover>), Error> {
    let failed = |e: io::Error| Error::system(format!("read telemetry directory {}", root.display()), e);
    let (mut living, mut leftovers) = (Vec::<(String, u32, Reader)>::new(), Vec::new());
    let folders = folder::all(root).map_err(failed)?;
    leftovers.extend(folders.unread.into_iter().map(|(path, error)| may_not_be_read(path, &error)));
    for folder in folders.open {
        let usual = folder.owner() == 0 || folder.owner() == me() || root != Path::new(super::ROOT);
        look_into(&folder, usual, if usual { MOST } else { MOST_OF_OTHERS }, &mut living, &mut leftovers)
            .map_err(failed)?;
    }
    living.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    Ok((living.into_iter().map(|(_, _, reader)| reader).collect(), leftovers))
}

/// Maximum number of folders and files that are opened of a user who is neither root nor the calling user. This limit
/// prevents such a user from exhausting the time or the file descriptors of a reader that runs as root.
const MOST_OF_OTHERS: usize = 128;
/// The same for a folder of root, of the calling user, or that the caller named. It is more than the workers of any
/// host, and reading so many takes less than a second.
const MOST: usize = 16_384;

/// The note about a folder that exists but that the calling user may not read.
fn may_not_be_read(path: PathBuf, error: &io::Error) -> Leftover {
    Leftover { path, why: format!("it may not be read ({error}), so its instances are missing here") }
}

/// Searches a user's folder and adds what it finds to `living` and `leftovers`. If `usual` is false, instance names
/// always start with the user's ID. After `most` folders and files, the search stops and adds a note to `leftovers`.
fn look_into(
    folder: &Folder,
    usual: bool,
    most: usize,
    living: &mut Vec<(String, u32, Reader)>,
    leftovers: &mut Vec<Leftover>,
) -> io::Result<()> {
    let mut opened = 0;
    let (instances, mut more) = folder.names_at_most(most)?;
    for instance in instances {
        let mut found = Vec::new();
        let prefix = (!usual || living.iter().any(|(name, ..)| *name == instance)).then_some(folder.owner());
        let shown = prefix.map_or_else(|| instance.clone(), |user| format!("{user}/{instance}"));
        opened += 1;
        let directory = match folder.inner(&instance) {
            Ok(directory) => directory,
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                leftovers.push(may_not_be_read(folder.path().join(&instance), &e));
                continue;
            }
            Err(_) => None,
        };
        // An entry that is not a folder of the same owner was not made by Apus: ignore it.
        let Some(directory) = directory else { continue };
        let (names, cut) = directory.names_at_most(most.saturating_sub(opened))?;
        opened += names.len();
        if cut || opened > most {
            more = true;
            break;
        }
        for (number, name) in workers(names) {
            let path = directory.path().join(&name);
            match Reader::within(&directory, &name) {
                Ok(reader) if reader.is_alive() => found.push((shown.clone(), number, Reader { prefix, ..reader })),
                Ok(reader) => {
                    let why = format!("its process {} has ended", reader.process.pid);
                    leftovers.push(Leftover { path, why });
                }
                // The worker ended during the search and removed its file.
                Err(Error::System { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                Err(error) => leftovers.push(Leftover { path, why: error.to_string() }),
            }
        }
        living.extend(found);
    }
    if more {
        let why =
            format!("user {} has more than {most} folders and files there; the others are not read", folder.owner());
        leftovers.push(Leftover { path: folder.path().to_owned(), why });
    }
    Ok(())
}

/// Removes the files of the calling user's workers whose processes have ended. Returns the paths of the removed files.
///
/// Keeps files that this version cannot read, because it cannot tell to which process they belong.
pub fn remove_leftovers(root: &Path) -> Result<Vec<PathBuf>, Error> {
    let root = folder::own(root);
    let failed = |e: io::Error| Error::system(format!("clear telemetry directory {}", root.display()), e);
    let mut removed = Vec::new();
    let Some(folder) = Folder::open(&root).map_err(failed)? else { return Ok(removed) };
    for instance in folder.names().map_err(failed)? {
        let Ok(Some(directory)) = folder.inner(&instance) else { continue };
        for (_, name) in worker_files(&directory).map_err(failed)? {
            if Reader::within(&directory, &name).is_ok_and(|reader| !reader.is_alive()) {
                directory.remove(&name).map_err(failed)?;
                removed.push(directory.path().join(name));
            }
        }
        folder.remove_empty(&instance);
    }
    Ok(removed)
}

/// The numbers and names of the files `worker-<n>` in an instance's directory.
pub(super) fn worker_files(directory: &Folder) -> io::Result<Vec<(u32, String)>> {
    Ok(workers(directory.names()?).collect())
}

/// Of the names of an instance's files, those of workers, with their numbers.
fn workers(names: Vec<String>) -> impl Iterator<Item = (u32, String)> {
    let number = |name: &str| name.strip_prefix("worker-")?.parse().ok();
    names.into_iter().filter_map(move |name| Some((number(&name)?, name)))
}

/// Reads the magic number, the layout version and the size of the page from the start of the file, before mapping it.
fn preamble(file: &File) -> io::Result<(u64, u64, u64)> {
    use std::os::unix::fs::FileExt;
    let mut bytes = [0; 24];
    file.read_exact_at(&mut bytes, 0)?;
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
    Ok((word(0), word(8), word(16)))
}

fn ports(page: &Page) -> &[layout::Port] {
    &page.ports[..(page.header.port_count.get() as usize).min(PORTS)]
}

fn identity(page: &Page) -> Identity {
    let header = &page.header;
    Identity {
        instance: header.instance.get(),
        worker: header.worker.get() as u32,
        app: header.app.get(),
        mode: header.mode.get(),
        goal: Some(header.goal.get()).filter(|goal| !goal.is_empty()),
        ports: ports(page).iter().map(|port| port.name.get()).collect(),
        cpu: Some(header.cpu.get()).filter(|cpu| *cpu != NONE).map(|cpu| cpu as u32),
    }
}

fn counts(page: &Page) -> Counts {
    let hot = &page.hot;
    Counts {
        polls: hot.polls.get(),
        empty_polls: hot.empty_polls.get(),
        received_frames: hot.rx_frames.get(),
        received_bytes: hot.rx_bytes.get(),
        sent_frames: hot.tx_frames.get(),
        sent_bytes: hot.tx_bytes.get(),
        busy: Nanos::from_nanos(hot.busy_ns.get()),
        useful: Nanos::from_nanos(page.useful.time_ns.get()),
        dropped: std::array::from_fn(|i| page.drops[i].get()),
        waits: std::array::from_fn(|i| Wait {
            count: page.waits[i].count.get(),
            time: Nanos::from_nanos(page.waits[i].time_ns.get()),
        }),
        reasons: std::array::from_fn(|i| page.reasons[i].get()),
        gaps: page.gaps.written.get(),
        gap_time: Nanos::from_nanos(page.gaps.time_ns.get()),
        ports: ports(page).iter().map(port).collect(),
        lateness: page.lateness.snapshot(),
        service: page.service.snapshot(),
    }
}

/// Reads the last published choice. `None` if the worker is just writing it: try again. `Some(None)` if no choice has
/// been published.
fn choice(cells: &layout::Choice) -> Option<Option<Choice>> {
    let done = cells.done.get();
    fence(Ordering::Acquire);
    let at = Instant::from_nanos(cells.at_ns.get());
    let kind = WaitKind::ALL.into_iter().find(|kind| *kind as u64 == cells.kind.get());
    let reason = Reason::ALL.into_iter().find(|reason| *reason as u64 == cells.reason.get());
    let belief = Belief {
        wait: Nanos::from_nanos(cells.wait_ns.get()),
        lasts: Nanos::from_nanos(cells.lasts_ns.get()),
        costs: Some(cells.costs_ns.get()).filter(|costs| *costs != NONE).map(Nanos::from_nanos),
        late_worth: Nanos::from_nanos(cells.late_worth_ns.get()),
        gap: Nanos::from_nanos(cells.gap_ns.get()),
        aimed_ppm: cells.aimed_ppm.get() as u32,
        owed_millionths: cells.owed_millionths.get(),
        multiplier_256ths: cells.multiplier_256ths.get(),
    };
    fence(Ordering::Acquire);
    let whole = cells.begun.get() == done;
    whole.then(|| kind.zip(reason).filter(|_| done > 0).map(|(kind, reason)| Choice { at, kind, reason, belief }))
}

fn port(cells: &layout::Port) -> PortCounts {
    PortCounts {
        name: cells.name.get(),
        statistics: Statistics {
            rx_ring_full: cells.rx_ring_full.get(),
            rx_no_buffer: cells.rx_no_buffer.get(),
            rx_invalid: cells.rx_invalid.get(),
            tx_invalid: cells.tx_invalid.get(),
            tx_dropped: cells.tx_dropped.get(),
        },
        health: [Health::Up, Health::Down, Health::Finished]
            .into_iter()
            .find(|health| health_number(*health) == cells.health.get()),
        busy_poll: [false, true].into_iter().find(|effect| u64::from(*effect) == cells.busy_poll.get()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Root, identity};
    use super::super::{Telemetry, layout};
    use super::*;
    use std::fs;

    const fn at(nanos: u64) -> Instant<Monotonic> {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn gaps_of_a_time_and_those_that_were_overwritten() {
        let root = Root::new("gaps");
        let worker = Telemetry::create(&root.0, &identity("a", 0)).unwrap();
        let reader = Reader::open(worker.path()).unwrap();
        assert_eq!(reader.gaps_between(at(0), at(u64::MAX)), Gaps { spans: vec![], overrun: false });

        (0..10).for_each(|n| worker.gap(at(n * 100), at(n * 100 + 10)));
        let middle = reader.gaps_between(at(205), at(400));
        assert_eq!(middle.spans, [(at(200), at(210)), (at(300), at(310)), (at(400), at(410))]);
        assert!(!middle.overrun);

        (10..layout::GAPS as u64 + 10).for_each(|n| worker.gap(at(n * 100), at(n * 100 + 10)));
        assert!(reader.gaps_between(at(0), at(2_000)).overrun);
        assert!(!reader.gaps_between(at(2_000), at(3_000)).overrun);
        let counts = reader.snapshot().counts;
        assert_eq!(
            (counts.gaps, counts.gap_time.as_nanos()),
            (layout::GAPS as u64 + 10, (layout::GAPS as u64 + 10) * 10)
        );
    }

    #[test]
    fn a_gap_is_never_read_half_written() {
        let root = Root::new("gap-race");
        let worker = Telemetry::create(&root.0, &identity("a", 0)).unwrap();
        let reader = Reader::open(worker.path()).unwrap();
        std::thread::scope(|scope| {
            let writing = scope.spawn(move || (0..300_000).for_each(|n| worker.gap(at(n * 10), at(n * 10 + 7))));
            let mut seen = 0;
            while !writing.is_finished() {
                for (began, ended) in reader.gaps_between(at(0), at(u64::MAX)).spans {
                    assert_eq!(ended.since(began), Some(Nanos::from_nanos(7)));
                    seen += 1;
                }
            }
            println!("{seen} gaps read meanwhile");
        });
    }

    #[test]
    fn a_choice_is_never_read_half_written() {
        let root = Root::new("choice-race");
        let worker = Telemetry::create(&root.0, &identity("a", 0)).unwrap();
        let reader = Reader::open(worker.path()).unwrap();
        let one = |n: u64| Belief {
            wait: Nanos::from_nanos(n),
            lasts: Nanos::from_nanos(n),
            costs: Some(Nanos::from_nanos(n)),
            late_worth: Nanos::from_nanos(n),
            gap: Nanos::from_nanos(n),
            aimed_ppm: n as u32,
            owed_millionths: n,
            multiplier_256ths: n,
        };
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let stop = &stop;
            let writing = scope.spawn(move || {
                let mut n = 0;
                while !stop.load(Ordering::Relaxed) {
                    n += 1;
                    worker.believed(Instant::from_nanos(n), WaitKind::Sleep, Reason::Budget, one(n));
                }
                (worker, n)
            });
            let (mut last, mut seen) = (0, 0);
            while seen < 1_000 {
                if let Some(Some(choice)) = choice(&reader.source.page().choice) {
                    let n = choice.belief.owed_millionths;
                    assert_eq!((choice.at, choice.belief), (Instant::from_nanos(n), one(n)));
                    seen += u32::from(n != last);
                    last = n;
                }
            }
            stop.store(true, Ordering::Relaxed);
            let (worker, n) = writing.join().unwrap();
            assert_eq!(reader.snapshot().choice.map(|choice| choice.belief), Some(one(n)));
            drop(worker);
        });
    }

    #[test]
    fn foreign_files_are_refused_with_the_reason() {
        let root = Root::new("foreign");
        let worker = Telemetry::create(&root.0, &identity("a", 0)).unwrap();
        let good = fs::read(worker.path()).unwrap();
        let file = root.0.join("file");
        let why = |bytes: &[u8]| {
            fs::write(&file, bytes).unwrap();
            Reader::open(&file).unwrap_err().to_string()
        };
        assert!(why(b"").contains("truncated"));
        assert!(why(&good[..good.len() / 2]).contains("truncated"));
        assert!(why(&[7; 4096]).contains("not written by Apus"));
        let mut old = good.clone();
        old[8] = 99;
        assert!(why(&old).contains("another version"));
        let mut noise = good.clone();
        noise[24..].fill(0xff);
        fs::write(&file, &noise).unwrap();
        assert!(Reader::open(&file).unwrap_err().to_string().contains("PID"));
        noise[32..40].copy_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
        fs::write(&file, &noise).unwrap();
        let reader = Reader::open(&file).unwrap();
        let snapshot = reader.snapshot();
        assert_eq!((snapshot.state, snapshot.choice), (None, None));
        assert_eq!(snapshot.counts.since(&snapshot.counts).polls, 0);
        let _ = (snapshot.counts.lateness.count(), snapshot.counts.lateness.mean(), reader.gaps_between(at(0), at(1)));
        assert!(!reader.is_alive());
        assert!(Reader::open(&root.0).is_err());
    }

    /// Regression test: a user with a thousand folders once exhausted the file descriptors of `apus metrics` run by
    /// root.
    #[test]
    fn of_others_only_so_much_is_opened() {
        let root = Root::new("most");
        let workers: Vec<_> =
            ["a", "b", "c"].map(|name| Telemetry::create(&root.0, &identity(name, 0)).unwrap()).into();
        let folder = Folder::open(&root.0).unwrap().unwrap();
        for (most, shown) in [(6, 3), (5, 2), (4, 2), (3, 1), (0, 0)] {
            let (mut living, mut leftovers) = (Vec::new(), Vec::new());
            look_into(&folder, false, most, &mut living, &mut leftovers).unwrap();
            assert_eq!((living.len(), leftovers.len()), (shown, usize::from(shown < workers.len())), "{most}");
            assert!(
                leftovers.iter().all(|one| one.path == root.0 && one.why.contains("are not read")),
                "{leftovers:?}"
            );
        }
    }

    /// Of a folder with a million other files, all names were once read.
    #[test]
    fn of_many_files_only_so_many_names_are_read() {
        let root = Root::new("many");
        let _worker = Telemetry::create(&root.0, &identity("a", 0)).unwrap();
        (0..50).for_each(|n| fs::write(root.0.join(format!("a/junk-{n}")), "").unwrap());
        let folder = Folder::open(&root.0).unwrap().unwrap();
        let names = |most| {
            let (names, more) = folder.inner("a").unwrap().unwrap().names_at_most(most).unwrap();
            (names.len(), more)
        };
        assert_eq!([names(10), names(51), names(usize::MAX)], [(10, true), (51, false), (51, false)]);
        let (mut living, mut leftovers) = (Vec::new(), Vec::new());
        look_into(&folder, true, 20, &mut living, &mut leftovers).unwrap();
        assert!(leftovers.len() == 1 && leftovers[0].why.contains("more than 20 folders and files"), "{leftovers:?}");
    }

    #[test]
    fn no_directory_means_no_instance() {
        let (living, leftovers) = instances(Path::new("/nonexistent/apus")).unwrap();
        assert!(living.is_empty() && leftovers.is_empty());
    }
}
