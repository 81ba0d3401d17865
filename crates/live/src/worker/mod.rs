//! The worker's loop: poll all queues, process and send the frames, ask the policy, wait. Each core runs one worker.
//!
//! ```text
//!   ┌──► poll every queue: rx ─► stamp ─► app.handle ─► tx ──► observation ──► policy.decide
//!   │                                                                              │
//!   └────────────── carry out: poll | pause | sleep | arm, poll, block ◄───────────┘
//! ```
//! No frame is lost without being counted: at every decision, received = sent + dropped (for all reasons).

mod in_place;

use std::any::TypeId;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use policy::wait::{Action, Arrivals, Decision, Ended, Observation, Queue, Reason, Sent, WaitKind, WaitPolicy};
use units::{Instant, Monotonic, Nanos};

use crate::Error;
use crate::app::{App, Verdict};
use crate::cpu::{Cpu, MAX_HANDLES, Woken};
use crate::device::{Device, Health};
use crate::hold_off::{self, HoldOff, Received};
use crate::idle_limit::{Chooser, IdleLimit};
use crate::meter::Meter;
use crate::pool::packets::Packets;
use crate::pool::{Frame, Pool};
use crate::telemetry::{DropReason, State, Telemetry};
use in_place::Tries;

/// While a worker keeps choosing to poll for the same reason, it publishes one in `PUBLISHED_EVERY` choices. A polling
/// worker makes a choice about every 10 ns. All other choices are published.
const PUBLISHED_EVERY: u32 = 1024;
/// Maximum number of frames that a worker requests from a queue at once. DPDK's examples and testpmd use 32 to 64.
pub const BURST: usize = 64;
/// Maximum time for which a worker waits if one of its devices cannot wake it.
pub const UNWAKEABLE: Nanos = Nanos::from_millis(1);
/// Time between two checks of the ports' health. An idle worker also updates the time in its telemetry at this
/// interval. No sleep or block lasts longer, so a worker notices a request to stop within about this time.
pub const HEALTH_INTERVAL: Nanos = Nanos::from_millis(100);
/// If two clock readings of a running worker are further apart than this, the time between them counts as a gap:
/// something else must have run on the CPU. For processed frames, more time is allowed. An undisturbed iteration
/// without frames takes well under 1 us.
pub const GAP: Nanos = Nanos::from_micros(30);
/// Time that each processed frame adds to [`GAP`], because processing and sending take time. On veth a frame costs 1 to
/// 4 us, because the peer's receive path runs in the sender's system call.
const GAP_PER_FRAME: Nanos = Nanos::from_micros(8);

/// A flag that asks workers to stop. All clones share the flag.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks the workers to stop. Does not wait for them.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
    /// Whether anyone has asked the workers to stop.
    #[inline]
    pub fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A receive queue of one of the worker's ports.
#[derive(Clone, Copy, Debug)]
struct QueueRef {
    port: usize,
    queue: usize,
    /// The clock's reading just before the last poll of this queue. Frames found by the next poll arrived after this
    /// time.
    polled: Instant<Monotonic>,
    /// When NAPI received the queue's frames. Used only if the policy chooses the hold-off.
    received: Received,
    /// When the worker tries to pass on the queue's frames in place.
    in_place: Tries,
}

struct Port {
    device: Box<dyn Device>,
    /// The transmit queue for frames that other ports send through this port.
    tx_queue: usize,
    /// The longest frame that the device can send, in bytes.
    longest: usize,
    /// Whether the device sends the frames one after another, see [`Capabilities`](crate::device::Capabilities).
    sends_in_turn: bool,
    /// The device's type, if frames can be handled in its driver's packet buffers.
    in_place: Option<TypeId>,
    health: Health,
    out: Vec<Frame>,
}

/// Receives, processes and sends frames on one core.
pub struct Worker<A, P, C> {
    ports: Vec<Port>,
    queues: Vec<QueueRef>,
    pool: Pool,
    app: A,
    policy: P,
    cpu: C,
    telemetry: Telemetry,
    stop: Stop,
    batch: Vec<Frame>,
    packets: Packets,
    seen: Vec<Queue<Monotonic>>,
    /// The last clock reading of the running loop. The next gap is measured from here.
    running_since: Instant<Monotonic>,
    meter: Meter,
    /// Kind and reason of the last published choice, and the number of choices since then that were not published.
    published: (Option<(WaitKind, Reason)>, u32),
    /// The hold-off that the policy chooses, and when it chooses next. `None` if it chooses none.
    hold_off: Option<(HoldOff, Instant<Monotonic>)>,
    /// The limit of the CPU's exit latency that the policy chooses. `None` if it chooses none.
    idle_limit: Option<Chooser>,
}

/// The result of polling all queues.
#[derive(Clone, Copy)]
struct Polled {
    received: usize,
    now: Instant<Monotonic>,
}

/// The result of [`Worker::block`].
enum Blocked {
    /// The poll after arming the interrupts found frames, so the worker did not block.
    FoundFrames(Polled),
    /// The worker blocked.
    Waited(Ended<Monotonic>),
}

/// Why a worker ended without an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finish {
    /// The worker was asked to stop.
    Stopped,
    /// All devices have delivered their last frame. This is how a run with capture files ends.
    Exhausted,
}

impl<A: App, P: WaitPolicy<Monotonic>, C: Cpu> Worker<A, P, C> {
    /// Makes a worker that serves all queues of `devices`. The devices receive frames into `pool`.
    pub fn new(
        devices: Vec<Box<dyn Device>>,
        pool: Pool,
        app: A,
        policy: P,
        cpu: C,
        telemetry: Telemetry,
        stop: Stop,
    ) -> Result<Self, Error> {
        let running_since = cpu.now();
        let queues: Vec<QueueRef> = devices
            .iter()
            .enumerate()
            .flat_map(|(port, device)| {
                (0..device.queues()).map(move |queue| QueueRef {
                    port,
                    queue,
                    polled: running_since,
                    received: Received::default(),
                    in_place: Tries::default(),
                })
            })
            .collect();
        if queues.is_empty() || queues.len() > MAX_HANDLES {
            return Err(Error::Invalid {
                what: format!("a worker with {} queues", queues.len()),
                why: format!("a worker serves 1 to {MAX_HANDLES} queues: use other ports or more workers"),
            });
        }
        let ports = devices
            .into_iter()
            .map(|mut device| {
                // A device that does not state a limit has none.
                let can = device.capabilities();
                let longest = match can.longest_frame {
                    0 => usize::MAX,
                    octets => octets as usize,
                };
                let out = Vec::with_capacity(2 * BURST);
                let in_place = device.in_place().map(|device| device.kind());
                let sends_in_turn = can.sends_in_turn;
                Port { device, tx_queue: 0, longest, sends_in_turn, in_place, health: Health::Up, out }
            })
            .collect();
        let meter = Meter::new(&cpu);
        Ok(Self {
            ports,
            seen: Vec::with_capacity(queues.len()),
            queues,
            pool,
            app,
            policy,
            cpu,
            telemetry,
            stop,
            batch: Vec::with_capacity(BURST),
            packets: Packets::default(),
            running_since,
            meter,
            published: (None, 0),
            hold_off: None,
            idle_limit: None,
        })
    }

    /// Lets the policy choose the hold-off of the worker's queues.
    #[must_use]
    pub fn with_hold_off(mut self, hold_off: HoldOff) -> Self {
        self.hold_off = Some((hold_off, self.running_since));
        self
    }

    /// Lets the policy choose how deep the worker's CPU may idle. It must [know](policy::wait::Policy::know_idle_states)
    /// the states of `idle_limit`.
    #[must_use]
    pub fn with_idle_limit(mut self, idle_limit: IdleLimit) -> Self {
        self.idle_limit = Some(Chooser::new(idle_limit));
        self
    }

    /// The worker's policy, for example to write out what it recorded.
    pub fn policy(&self) -> &P {
        &self.policy
    }

    /// Runs until the worker is asked to stop, all devices are exhausted, or a port is lost.
    pub fn run(&mut self) -> Result<Finish, Error> {
        let ended = self.run_to_end();
        for port in &mut self.ports {
            port.device.finish(port.tx_queue);
        }
        // What was sent since the last check of the ports may still fail to reach its file.
        let result = ended.and_then(|finish| self.last_check().map(|()| finish));
        let state = if result.is_ok() { State::Stopped } else { State::Failed };
        self.report_devices();
        self.telemetry.state(state);
        self.telemetry.touch(self.cpu.now());
        result
    }

    fn run_to_end(&mut self) -> Result<Finish, Error> {
        let mut ended: Option<Ended<Monotonic>> = None;
        // The result of the poll in `block`, if it found frames. The next iteration uses it instead of polling again.
        let mut found: Option<Polled> = None;
        self.running_since = self.cpu.now();
        let mut next_health = self.running_since;
        self.telemetry.begins(self.running_since);
        self.telemetry.state(State::Running);
        loop {
            let Polled { received, now } = match found.take() {
                Some(polled) => polled,
                None => self.poll_queues(),
            };
            if now >= next_health {
                next_health = now + HEALTH_INTERVAL;
                if self.check_health(now)? == Health::Finished && received == 0 {
                    return Ok(Finish::Exhausted);
                }
                // The time for asking the kernel about the ports does not count as a gap.
                self.running_since = self.cpu.now();
            }
            if self.stop.requested() {
                return Ok(Finish::Stopped);
            }
            if let Some((hold_off, next)) = self.hold_off.as_mut().filter(|(_, next)| now >= *next) {
                *next = now + hold_off::INTERVAL;
                hold_off.choose(|in_force| self.policy.hold_off(now, in_force));
            }
            if let Some(limit) = &mut self.idle_limit
                && self.policy.limit_idle_is_due(now)
                && !limit.rests(now)
            {
                limit.choose(now, |in_force| self.policy.limit_idle(now, in_force));
                // The time for the system calls does not count as a gap.
                self.running_since = self.cpu.now();
            }
            let decision = self.policy.decide(&Observation { now, queues: &self.seen, ended });
            self.telemetry.decided(decision.reason);
            self.publish(now, &decision);
            ended = match decision.action {
                Action::Poll => None,
                Action::Pause(span) => {
                    let until = now + span;
                    let after = self.cpu.pause_until(until);
                    self.note_gap(until, after, GAP);
                    Some(self.waited(decision.action, now, after, after.since(now)))
                }
                Action::SleepUntil(until) => {
                    let before = self.meter.begin(WaitKind::Sleep, &self.cpu);
                    // Sleep no longer than this, so that a request to stop is noticed. If the policy asked for more, it
                    // decides again.
                    self.cpu.sleep_until(until.min(now + HEALTH_INTERVAL));
                    let after = self.cpu.now();
                    let spent = self.meter.end(before, &self.cpu);
                    Some(self.waited(decision.action, now, after, spent))
                }
                Action::BlockUntil(until) => match self.block(decision.action, until, &mut next_health)? {
                    Blocked::Waited(wait) => Some(wait),
                    Blocked::FoundFrames(polled) => {
                        found = Some(polled);
                        None
                    }
                },
            };
        }
    }

    /// Polls every queue once, and processes and sends the frames.
    #[inline]
    fn poll_queues(&mut self) -> Polled {
        self.seen.clear();
        let mut received = 0;
        let mut busy = Nanos::ZERO;
        // The last clock reading, taken when the previous poll or wait ended.
        let began = self.running_since;
        // The time when the last queue's frames were done, or `None` if that queue had no frames. It saves another
        // clock reading, which takes 20 to 50 ns.
        let mut last_done = None;
        for index in 0..self.queues.len() {
            last_done = None;
            let QueueRef { port, queue, polled, .. } = self.queues[index];
            self.queues[index].polled = self.running_since;
            let in_place = self.ports[port].in_place.filter(|_| self.queues[index].in_place.is_due());
            let (mut frames, full) = match in_place {
                Some(_) => self.receive_packets(port, queue),
                None => (self.ports[port].device.rx(queue, &mut self.pool, &mut self.batch, BURST), false),
            };
            if frames == 0 {
                self.seen.push(Queue { received: 0, fill: 0, arrivals: None });
                continue;
            }
            let fill = frames + self.ports[port].device.backlog(queue);
            let picked_up = self.running_at(GAP);
            let mut arrivals = match in_place {
                Some(kind) => {
                    frames = self.pass_on(index, kind, full);
                    // When the first burst was picked up. The frames of later bursts waited until it was done, as the last
                    // frames of a longer burst do.
                    Arrivals::unstamped(polled, picked_up)
                }
                None => {
                    self.queues[index].in_place.polled();
                    self.take_in(index, polled, picked_up)
                }
            };
            received += frames;
            let fill = fill.max(frames);
            self.work(port);
            let departing = self.departing();
            self.transmit();
            let done = self.running_at(GAP + GAP_PER_FRAME * frames as u64);
            // To begin to send is assumed to take as long as to send two more frames.
            arrivals.sent = departing.map(|(began, frames)| Sent {
                first: began + done.since(began).unwrap_or(Nanos::ZERO) * 3 / (frames as u64 + 2),
                last: done,
            });
            self.seen.push(Queue { received: frames as u32, fill: fill as u32, arrivals: Some(arrivals) });
            let service = done.since(picked_up).unwrap_or(Nanos::ZERO);
            self.telemetry.served(service);
            busy += service;
            last_done = Some(done);
        }
        let now = match last_done {
            Some(done) => done,
            None => self.running_at(GAP),
        };
        self.telemetry.polled(received == 0);
        if received > 0 {
            self.telemetry.busy(busy);
            self.telemetry.useful(now.since(began).unwrap_or(Nanos::ZERO));
            self.telemetry.touch(now);
        }
        Polled { received, now }
    }

    /// Reads the clock. Counts a gap if more than `allowed` has passed since the last reading.
    #[inline]
    fn running_at(&mut self, allowed: Nanos) -> Instant<Monotonic> {
        let now = self.cpu.now();
        self.note_gap(self.running_since, now, allowed);
        self.running_since = now;
        now
    }

    /// Counts the received batch and returns when its frames arrived. If the device does not stamp frames, they arrived
    /// between the previous poll of their queue, at `polled`, and `picked_up`.
    fn take_in(
        &mut self,
        index: usize,
        polled: Instant<Monotonic>,
        picked_up: Instant<Monotonic>,
    ) -> Arrivals<Monotonic> {
        let mut arrivals: Option<Arrivals<Monotonic>> = None;
        let mut bytes = 0;
        let hold_off = self.hold_off.as_ref().map(|(hold_off, _)| hold_off.longest());
        let received = &mut self.queues[index].received;
        for frame in &self.batch {
            bytes += frame.len() as u64;
            let Some(at) = frame.arrived() else { continue };
            let first = hold_off.map_or(at, |hold_off| received.earliest(at, hold_off));
            // A stamp later than `picked_up` would be an error of the clocks. It counts as a lateness of 0.
            self.telemetry.picked_up(picked_up.since(first).unwrap_or(Nanos::ZERO));
            match &mut arrivals {
                None => {
                    let held = hold_off.and_then(|_| at.since(first));
                    arrivals = Some(Arrivals { first, last: at, picked_up, stamped: true, held, sent: None });
                }
                Some(known) => {
                    known.first = known.first.min(first);
                    known.last = known.last.max(at);
                }
            }
        }
        self.telemetry.received(self.batch.len() as u64, bytes);
        arrivals.unwrap_or(Arrivals::unstamped(polled, picked_up))
    }

    /// Passes each frame of the batch to the application and sorts the frames by outgoing port.
    #[inline]
    fn work(&mut self, port: usize) {
        for mut frame in self.batch.drain(..) {
            let verdict = self.app.handle(port, self.pool.bytes_mut(&mut frame));
            route(frame, verdict, &mut self.ports, &mut self.pool, &self.telemetry);
        }
    }

    /// The present time and the number of frames about to be sent. `None` unless they leave one after another through
    /// a single port.
    #[inline]
    fn departing(&self) -> Option<(Instant<Monotonic>, usize)> {
        let mut ports = self.ports.iter().filter(|port| !port.out.is_empty());
        match (ports.next(), ports.next()) {
            (Some(port), None) if port.sends_in_turn && port.health != Health::Down => {
                Some((self.cpu.now(), port.out.len()))
            }
            _ => None,
        }
    }

    /// Sends the frames of all ports. Frames that a port does not accept are dropped and counted.
    #[inline]
    fn transmit(&mut self) {
        for port in &mut self.ports {
            if port.out.is_empty() {
                continue;
            }
            if port.health == Health::Down {
                self.telemetry.dropped(DropReason::LinkDown, port.out.len() as u64);
            } else {
                let bytes: u64 = port.out.iter().map(|f| f.len() as u64).sum();
                let taken = port.device.tx(port.tx_queue, &mut self.pool, &mut port.out) as u64;
                let left: u64 = port.out.iter().map(|f| f.len() as u64).sum();
                let injected = port.device.injected();
                self.telemetry.sent(taken - injected.frames, bytes - left - injected.octets);
                if injected.frames > 0 {
                    self.telemetry.dropped(DropReason::Injected, injected.frames);
                }
                if port.out.is_empty() {
                    continue;
                }
                self.telemetry.dropped(DropReason::TxFull, port.out.len() as u64);
            }
            for frame in port.out.drain(..) {
                self.pool.give(frame);
            }
        }
    }

    /// Arms the interrupts, polls once more, and blocks if this poll found no frames.
    fn block(
        &mut self,
        action: Action<Monotonic>,
        until: Option<Instant<Monotonic>>,
        next_health: &mut Instant<Monotonic>,
    ) -> Result<Blocked, Error> {
        for &QueueRef { port, queue, .. } in &self.queues {
            self.ports[port].device.arm(queue)?;
        }
        let polled = self.poll_queues();
        let result = if polled.received > 0 {
            Blocked::FoundFrames(polled)
        } else {
            let began = polled.now;
            let mut handles = Handles::default();
            for at in &self.queues {
                handles.add(self.ports[at.port].device.wait_handle(at.queue));
            }
            let longest = began + if handles.all_wake { HEALTH_INTERVAL } else { UNWAKEABLE };
            let before = self.meter.begin(WaitKind::Block, &self.cpu);
            let woken = handles.block(&mut self.cpu, until.map_or(longest, |at| at.min(longest)));
            if woken == Woken::ByError {
                *next_health = began;
            }
            let after = self.cpu.now();
            let spent = self.meter.end(before, &self.cpu);
            Blocked::Waited(self.waited(action, began, after, spent))
        };
        for &QueueRef { port, queue, .. } in &self.queues {
            self.ports[port].device.disarm(queue);
        }
        Ok(result)
    }

    /// Publishes a choice and what the policy expected of it, for `apus top`. See [`PUBLISHED_EVERY`].
    fn publish(&mut self, now: Instant<Monotonic>, decision: &Decision<Monotonic>) {
        let (kind, reason) = (decision.action.kind(), decision.reason);
        let (last, since) = &mut self.published;
        *since = since.saturating_add(1);
        if kind == WaitKind::Poll && *last == Some((kind, reason)) && *since < PUBLISHED_EVERY {
            return;
        }
        if let Some(belief) = self.policy.belief() {
            self.published = (Some((kind, reason)), 0);
            self.telemetry.believed(now, kind, reason, belief);
        }
    }

    /// Counts a wait that has ended. The wait does not count as a gap.
    fn waited(
        &mut self,
        action: Action<Monotonic>,
        began: Instant<Monotonic>,
        ended: Instant<Monotonic>,
        spent: Option<Nanos>,
    ) -> Ended<Monotonic> {
        let span = ended.since(began).unwrap_or(Nanos::ZERO);
        self.telemetry.waited(action.kind(), span);
        if action.kind() != WaitKind::Pause {
            self.telemetry.touch(ended);
        }
        self.running_since = ended;
        Ended { action, began, ended, spent, idle: Nanos::ZERO }
    }

    #[inline]
    fn note_gap(&self, began: Instant<Monotonic>, ended: Instant<Monotonic>, allowed: Nanos) {
        if ended.since(began).is_some_and(|span| span > allowed) {
            self.telemetry.gap(began, ended);
        }
    }

    /// Checks the health of every port. The result is `Finished` if all ports have finished, `Down` if any port is
    /// down, otherwise `Up`.
    fn check_health(&mut self, now: Instant<Monotonic>) -> Result<Health, Error> {
        let mut down = false;
        let mut finished = true;
        for port in &mut self.ports {
            port.health = port.device.health()?;
            down |= port.health == Health::Down;
            finished &= port.health == Health::Finished;
        }
        self.report_devices();
        self.telemetry.state(if down { State::LinkDown } else { State::Running });
        self.telemetry.touch(now);
        Ok(match (finished, down) {
            (true, _) => Health::Finished,
            (_, true) => Health::Down,
            _ => Health::Up,
        })
    }

    /// Checks the health of every port once more after the end of the loop. Ports that write to files flush them now.
    fn last_check(&mut self) -> Result<(), Error> {
        for port in &mut self.ports {
            port.health = port.device.health()?;
        }
        Ok(())
    }

    fn report_devices(&mut self) {
        for (number, port) in self.ports.iter_mut().enumerate() {
            let statistics = (0..port.device.queues()).map(|queue| port.device.statistics(queue)).sum();
            self.telemetry.device(number, statistics, Some(port.health));
            self.telemetry.busy_poll(number, port.device.capabilities().busy_poll);
        }
    }
}

/// Puts a frame to those that its outgoing port sends next, or drops it.
#[inline]
fn route(frame: Frame, verdict: Verdict, ports: &mut [Port], pool: &mut Pool, telemetry: &Telemetry) {
    let reason = match verdict {
        Verdict::Send(to) => match ports.get_mut(to) {
            Some(to) if frame.len() <= to.longest => {
                to.out.push(frame);
                return;
            }
            Some(_) => DropReason::TooLong,
            None => DropReason::NoRoute,
        },
        Verdict::Drop(reason) => reason,
    };
    telemetry.dropped(reason, 1);
    pool.give(frame);
}

/// Collects the wait handles of a worker's queues without allocating memory.
struct Handles<'a> {
    known: [Option<BorrowedFd<'a>>; MAX_HANDLES],
    count: usize,
    all_wake: bool,
}

impl Default for Handles<'_> {
    fn default() -> Self {
        Self { known: [None; MAX_HANDLES], count: 0, all_wake: true }
    }
}

impl<'a> Handles<'a> {
    fn add(&mut self, handle: Option<BorrowedFd<'a>>) {
        match handle {
            Some(fd) => {
                self.known[self.count] = Some(fd);
                self.count += 1;
            }
            None => self.all_wake = false,
        }
    }

    fn block(&self, cpu: &mut impl Cpu, until: Instant<Monotonic>) -> Woken {
        let Some(first) = self.known[0] else { return cpu.block_until(&[], until) };
        let fds: [BorrowedFd<'_>; MAX_HANDLES] = std::array::from_fn(|i| self.known[i].unwrap_or(first));
        cpu.block_until(&fds[..self.count], until)
    }
}
