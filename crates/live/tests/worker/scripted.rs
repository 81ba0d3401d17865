//! Virtual time, and what happens when. The worker's [`Cpu`] is where time passes, so it is also
//! where things happen: each reading of the clock and each wait lets the events due by then occur.

use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use live::Error;
use live::app::App;
use live::cpu::{Cpu, MAX_HANDLES, Woken};
use live::device::memory::{LinkConfig, LinkState, MemoryDevice, MemoryHandle};
use live::device::{Capabilities, Device, Health, Injected, Statistics};
use live::idle_limit::IdleLimit;
use live::pool::{Frame, Pool, PoolConfig};
use live::telemetry::{Identity, Reader, Snapshot, Telemetry};
use live::worker::{Finish, Stop, Worker};
use policy::wait::WaitPolicy;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use units::{Instant, Monotonic, Nanos};

/// What one reading of the clock takes.
pub const TICK: Nanos = Nanos::from_micros(1);
/// What one reading of the thread's CPU time adds to it.
pub const READING: Nanos = Nanos::from_nanos(300);

/// Something that happens.
#[derive(Clone, Debug)]
pub enum Event {
    /// A frame arrives at a port.
    Frame { port: usize, data: Arc<[u8]> },
    /// A frame arrives at a port, which does not stamp it.
    Unstamped { port: usize, data: Arc<[u8]> },
    /// A port's link changes.
    Link { port: usize, state: LinkState },
    /// Someone else has the core for so long.
    Stolen(Nanos),
    /// Someone asks the worker to end.
    Stop,
}

/// The time, for all who need it.
#[derive(Clone, Debug, Default)]
pub struct Time(Arc<AtomicU64>);

impl Time {
    pub fn get(&self) -> Instant<Monotonic> {
        Instant::from_nanos(self.0.load(Relaxed))
    }
    pub fn pass(&self, span: Nanos) {
        self.0.fetch_add(span.as_nanos(), Relaxed);
    }
    fn reach(&self, at: Instant<Monotonic>) {
        self.0.fetch_max(at.as_nanos(), Relaxed);
    }
}

/// What the worker did with its core.
#[derive(Debug, Default)]
pub struct Waits {
    pub pauses: Cell<u64>,
    pub sleeps: Cell<u64>,
    pub blocks: Cell<u64>,
    /// Readings of the thread's CPU time.
    pub readings: Cell<u64>,
}

/// A [`Cpu`] of virtual time.
#[derive(Debug)]
pub struct ScriptedCpu {
    time: Time,
    /// By time; those before `next` have happened.
    events: Vec<(Instant<Monotonic>, Event)>,
    next: Cell<usize>,
    wires: Vec<MemoryHandle>,
    stop: Stop,
    /// How late each wait ends.
    late: Nanos,
    /// What each wait costs in CPU time, and the thread's until now.
    costs: Nanos,
    spent: Cell<Nanos>,
    waits: Rc<Waits>,
}

impl ScriptedCpu {
    /// Lets happen what is due.
    fn happen(&self) {
        while let Some((at, event)) = self.events.get(self.next.get()).filter(|(at, _)| *at <= self.time.get()) {
            self.next.set(self.next.get() + 1);
            match event {
                // A ring that is full says so in the port's statistics.
                Event::Frame { port, data } => _ = self.wires[*port].push(0, data, Some(*at)),
                Event::Unstamped { port, data } => _ = self.wires[*port].push(0, data, None),
                Event::Link { port, state } => self.wires[*port].set_state(*state),
                Event::Stolen(span) => self.time.pass(*span),
                Event::Stop => self.stop.request(),
            }
        }
    }

    fn wait_until(&self, until: Instant<Monotonic>) {
        self.spent.set(self.spent.get() + self.costs);
        self.time.reach(until + self.late);
        self.happen();
    }
}

impl Cpu for ScriptedCpu {
    fn now(&self) -> Instant<Monotonic> {
        self.time.pass(TICK);
        self.happen();
        self.time.get()
    }

    fn thread_time(&self) -> Option<Nanos> {
        self.waits.readings.set(self.waits.readings.get() + 1);
        self.spent.set(self.spent.get() + READING);
        Some(self.spent.get())
    }

    fn pause_until(&mut self, until: Instant<Monotonic>) -> Instant<Monotonic> {
        self.waits.pauses.set(self.waits.pauses.get() + 1);
        self.time.reach(until);
        self.now()
    }

    fn sleep_until(&mut self, until: Instant<Monotonic>) {
        self.waits.sleeps.set(self.waits.sleeps.get() + 1);
        self.wait_until(until);
    }

    fn block_until(&mut self, handles: &[BorrowedFd<'_>], until: Instant<Monotonic>) -> Woken {
        self.waits.blocks.set(self.waits.blocks.get() + 1);
        loop {
            // The devices themselves say whether they would have woken the worker.
            if readable(handles) {
                self.spent.set(self.spent.get() + self.costs);
                self.time.pass(self.late);
                self.happen();
                return Woken::ByDevice;
            }
            match self.events.get(self.next.get()) {
                Some((at, _)) if *at <= until => {
                    self.time.reach(*at);
                    self.happen();
                }
                _ => {
                    self.wait_until(until);
                    return Woken::ByTime;
                }
            }
        }
    }
}

fn readable(handles: &[BorrowedFd<'_>]) -> bool {
    let Some(&first) = handles.first() else { return false };
    let mut set: [PollFd<'_>; MAX_HANDLES] =
        std::array::from_fn(|i| PollFd::from_borrowed_fd(handles.get(i).copied().unwrap_or(first), PollFlags::IN));
    poll(&mut set[..handles.len()], Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
}

/// A worker's world before it starts.
pub struct Script {
    pub time: Time,
    pub wires: Vec<MemoryHandle>,
    pub devices: Vec<Box<dyn Device>>,
    pub late: Nanos,
    /// What each sleep and each block costs in CPU time.
    pub costs: Nanos,
    /// The limit of the exit latency that the policy chooses.
    pub idle_limit: Option<IdleLimit>,
    events: Vec<(Instant<Monotonic>, Event)>,
}

/// What is left of it after the end.
pub struct Ended<P> {
    pub finish: Result<Finish, Error>,
    /// Calls of the allocator during the run.
    pub allocator_calls: u64,
    pub snapshot: Snapshot,
    pub gaps: Vec<(Instant<Monotonic>, Instant<Monotonic>)>,
    pub time: Instant<Monotonic>,
    pub waits: Rc<Waits>,
    pub policy: P,
    pub wires: Vec<MemoryHandle>,
}

impl Script {
    /// A world of `ports` ports with one queue each.
    pub fn new(ports: usize) -> Self {
        let (devices, wires) = (0..ports)
            .map(|port| {
                let (device, wire) = MemoryDevice::scripted(&format!("p{port}"), LinkConfig::default()).unwrap();
                (Box::new(device) as Box<dyn Device>, wire)
            })
            .unzip();
        let (late, costs, idle_limit) = (Nanos::ZERO, Nanos::ZERO, None);
        Self { time: Time::default(), wires, devices, late, costs, idle_limit, events: Vec::new() }
    }

    /// `event` happens at this time.
    pub fn at(&mut self, at: Nanos, event: Event) -> &mut Self {
        self.events.push((Instant::ORIGIN + at, event));
        self
    }

    /// A frame arrives at this time.
    pub fn frame(&mut self, at: Nanos, port: usize, data: &[u8]) -> &mut Self {
        self.at(at, Event::Frame { port, data: data.into() })
    }

    /// Puts something around a port's device.
    pub fn wrap(&mut self, port: usize, with: impl FnOnce(Box<dyn Device>) -> Box<dyn Device>) {
        let device = self.devices.remove(port);
        self.devices.insert(port, with(device));
    }

    /// Runs a worker until the scripted stop.
    pub fn run<P: WaitPolicy<Monotonic> + Clone>(self, app: impl App, policy: P) -> Ended<P> {
        self.run_watched(app, |_| policy)
    }

    /// The same, with a policy that can see the worker's telemetry.
    pub fn run_watched<P: WaitPolicy<Monotonic> + Clone>(
        self,
        app: impl App,
        policy: impl FnOnce(Reader) -> P,
    ) -> Ended<P> {
        let Self { time, wires, devices, late, costs, idle_limit, mut events } = self;
        events.sort_by_key(|(at, _)| *at);
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("worker");
        let telemetry = Telemetry::create(&root, &identity(devices.len())).unwrap();
        let reader = Reader::open(telemetry.path()).unwrap();
        let policy = policy(Reader::open(telemetry.path()).unwrap());
        let (stop, waits) = (Stop::default(), Rc::<Waits>::default());
        let cpu = ScriptedCpu {
            time: time.clone(),
            events,
            next: Cell::new(0),
            wires: wires.clone(),
            stop: stop.clone(),
            late,
            costs,
            spent: Cell::default(),
            waits: waits.clone(),
        };
        let pool = Pool::new(PoolConfig { frames: 2048, ..PoolConfig::default() }).unwrap();
        let mut worker = Worker::new(devices, pool, app, policy, cpu, telemetry, stop).unwrap();
        if let Some(limit) = idle_limit {
            worker = worker.with_idle_limit(limit);
        }
        // Those that the worker needed to learn what a reading costs are not the loop's.
        waits.readings.set(0);
        let before = super::sys::calls();
        let finish = worker.run();
        let allocator_calls = super::sys::calls() - before;
        let gaps = reader.gaps_between(Instant::ORIGIN, time.get());
        assert!(!gaps.overrun);
        Ended {
            finish,
            allocator_calls,
            snapshot: reader.snapshot(),
            gaps: gaps.spans,
            time: time.get(),
            waits,
            policy: worker.policy().clone(),
            wires,
        }
    }
}

fn identity(ports: usize) -> Identity {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    Identity {
        instance: format!("scripted-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed)),
        worker: 0,
        app: "test".into(),
        mode: "test".into(),
        goal: None,
        ports: (0..ports).map(|port| format!("p{port}")).collect(),
        cpu: None,
    }
}

/// A UDP datagram in IPv4 in Ethernet, from 10.0.0.7 to `destination`, port 7.
pub fn udp(destination: [u8; 4]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 0x10, 2, 0, 0, 0, 0, 0xc, 8, 0];
    frame.extend([0x45, 0, 0, 46, 0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 7]);
    frame.extend(destination);
    let sum: u32 = frame[14..34].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    // No UDP checksum, as RFC 768 allows.
    frame.extend([0x30, 0x39, 0, 7, 0, 26, 0, 0]);
    frame.extend([0x5a; 18]);
    frame
}

/// A device with a quirk.
pub struct Quirky {
    pub inner: Box<dyn Device>,
    /// Frames that one `tx` takes.
    pub tx_room: usize,
    /// Arrives just before the first arming takes effect.
    pub before_arming: Option<(MemoryHandle, Vec<u8>)>,
    /// What a look at the port's health takes.
    pub health_takes: Option<(Time, Nanos)>,
    /// What it takes to send a frame: the frames leave one after another.
    pub sending_takes: Option<(Time, Nanos)>,
}

impl Quirky {
    /// Around `inner`, without a quirk yet.
    pub fn new(inner: Box<dyn Device>) -> Self {
        Self { inner, tx_room: usize::MAX, before_arming: None, health_takes: None, sending_takes: None }
    }
}

impl Device for Quirky {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn queues(&self) -> usize {
        self.inner.queues()
    }
    fn rx(&mut self, queue: usize, pool: &mut Pool, out: &mut Vec<Frame>, room: usize) -> usize {
        self.inner.rx(queue, pool, out, room)
    }
    fn tx(&mut self, queue: usize, pool: &mut Pool, frames: &mut Vec<Frame>) -> usize {
        let taken = frames.len().min(self.tx_room);
        let mut rest = frames.split_off(taken);
        let sent = self.inner.tx(queue, pool, frames);
        frames.append(&mut rest);
        if let Some((time, span)) = &self.sending_takes {
            time.pass(*span * sent as u64);
        }
        sent
    }
    fn injected(&self) -> Injected {
        self.inner.injected()
    }
    fn backlog(&self, queue: usize) -> usize {
        self.inner.backlog(queue)
    }
    fn arm(&mut self, queue: usize) -> Result<(), Error> {
        if let Some((wire, data)) = self.before_arming.take() {
            assert!(wire.push(queue, &data, None));
        }
        self.inner.arm(queue)
    }
    fn disarm(&mut self, queue: usize) {
        self.inner.disarm(queue);
    }
    fn wait_handle(&self, queue: usize) -> Option<BorrowedFd<'_>> {
        self.inner.wait_handle(queue)
    }
    fn health(&mut self) -> Result<Health, Error> {
        if let Some((time, span)) = &self.health_takes {
            time.pass(*span);
        }
        self.inner.health()
    }
    fn statistics(&mut self, queue: usize) -> Statistics {
        self.inner.statistics(queue)
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities { sends_in_turn: self.sending_takes.is_some(), ..self.inner.capabilities() }
    }
}
