//! The high level: a policy, the clock, the waits, and telemetry.
//!
//! ```text
//!   Ready ──begin: clock, observe, decide──► Begun ──end: clock, cost, telemetry──► Ready
//!             apus_wait does both, and carries out the decision between them
//! ```
//! **Times.** The waiter sees only its own calls. It assumes that after a wait, the loop immediately polls and takes
//! the packets from the queue, and that the loop has processed these packets when it calls the waiter again. Unless the
//! device stamps packets with their arrival time, the waiter only knows that they arrived after the previous poll.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use live::cpu::Cpu as _;
use live::meter::Meter;
use live::telemetry::{DropReason, State, Telemetry};
use live::worker::{GAP, UNWAKEABLE};
use policy::wait::{Action, Arrivals, Decision, Ended, Observation, Policy, Queue, Reason, WaitKind, WaitPolicy as _};
use units::{Instant, Monotonic, Nanos};

use crate::config::Settings;
use crate::decide::{Seen, action, told};
use crate::error::{Code, fail};
use crate::publish::publish;
use crate::sys::{LibcCpu, Memory, Uncancelled, Waitpkg, Watched, process};
use crate::types::{APUS_NEVER, DecisionOut, Done, QueueIn, Wakes, Woken};

type At = Instant<Monotonic>;

/// While a loop polls without waiting, one in this many decisions is published in telemetry. A decision of another
/// kind, or for another reason, is always published.
const PUBLISHED_EVERY: u32 = 1024;
/// Maximum number of packets per poll that are added to the histogram of pick-up delays.
const COUNTED: u32 = 256;

/// Why a waiter does not watch memory and descriptors at the same time.
const EITHER: &str = "a wait would miss one of the two: watch either memory (umwait) or descriptors (poll)";

/// Everything that one loop needs to wait: policy, clock, waits and telemetry.
#[derive(Debug)]
pub struct Waiter {
    settings: Settings,
    policy: Policy<Monotonic>,
    cpu: LibcCpu,
    meter: Meter,
    waitpkg: Option<Waitpkg>,
    watched: Watched,
    memory: Option<Memory>,
    telemetry: Option<Telemetry>,
    /// The process that created the waiter. `owner` is the first thread that waited with it.
    process: u32,
    owner: Option<u64>,
    /// Times of the second-to-last poll and of the last poll.
    polls: (At, At),
    ended: Option<Ended<Monotonic>>,
    begun: Option<Begun>,
    /// Kind and reason of the last published decision, and the number of decisions since then.
    published: (Option<(WaitKind, Reason)>, u32),
}

/// A wait between [`Waiter::begin`] and [`Waiter::end`].
#[derive(Clone, Copy, Debug)]
struct Begun {
    at: At,
    decision: Decision<Monotonic>,
    /// The thread's CPU time before the wait. `None` if the cost of this wait is not measured.
    before: Option<Nanos>,
}

impl Waiter {
    /// Creates a waiter. Its state in telemetry is `starting`.
    pub fn new(settings: Settings) -> Result<Self, Code> {
        let cpu = LibcCpu;
        let mode = settings.mode;
        let telemetry = settings.shown.as_ref().map(|shown| publish(shown, mode)).transpose()?;
        let now = cpu.now();
        Ok(Self {
            policy: settings.policy(settings.wakes == Wakes::Caller),
            settings,
            meter: Meter::new(&cpu),
            cpu,
            waitpkg: Waitpkg::here(),
            watched: Watched::none(),
            memory: None,
            telemetry,
            process: process(),
            owner: None,
            polls: (now, now),
            ended: None,
            begun: None,
            published: (None, 0),
        })
    }

    /// Sets what can end a blocking wait. Resets the policy if this changes whether a packet can end one.
    pub fn set_wakes(&mut self, wakes: Wakes) -> Result<(), Code> {
        self.ready()?;
        let before = self.can_wake();
        self.settings.wakes = wakes;
        self.wakes_changed(before);
        Ok(())
    }

    /// Adds a file descriptor. A blocking wait ends when the descriptor becomes readable.
    pub fn watch(&mut self, fd: i32) -> Result<(), Code> {
        self.watchable()?;
        if self.memory.is_some() {
            return Err(fail(Code::Config, format_args!("memory is watched, so {EITHER}")));
        }
        let before = self.can_wake();
        self.watched.add(fd)?;
        self.wakes_changed(before);
        Ok(())
    }

    /// Removes a file descriptor.
    pub fn unwatch(&mut self, fd: i32) -> Result<(), Code> {
        self.ready()?;
        let before = self.can_wake();
        self.watched.remove(fd)?;
        self.wakes_changed(before);
        Ok(())
    }

    /// Sets or removes the word in memory that ends a blocking wait when it changes.
    pub fn watch_memory(&mut self, memory: Option<Memory>) -> Result<(), Code> {
        self.watchable()?;
        if memory.is_some() && !self.watched.is_empty() {
            return Err(fail(Code::Config, format_args!("descriptors are watched, so {EITHER}")));
        }
        if memory.is_some() && self.waitpkg.is_none() {
            let why = "this CPU has no umwait (waitpkg in /proc/cpuinfo), or does not report the rate of its time stamp counter: watch a descriptor instead";
            return Err(fail(Code::Unsupported, why));
        }
        let before = self.can_wake();
        self.memory = memory;
        self.wakes_changed(before);
        Ok(())
    }

    fn watchable(&self) -> Result<(), Code> {
        self.ready()?;
        match self.settings.wakes {
            Wakes::Watched => Ok(()),
            other => Err(fail(
                Code::Config,
                format_args!("config.wakes is {other}, so nothing can be watched: set it to APUS_WAKES_WATCHED"),
            )),
        }
    }

    /// Whether a packet can end a blocking wait.
    fn can_wake(&self) -> bool {
        match self.settings.wakes {
            Wakes::Watched => !self.watched.is_empty() || self.memory.is_some(),
            Wakes::Caller => true,
            Wakes::Nothing => false,
        }
    }

    /// Resets the policy if [`can_wake`](Self::can_wake) is no longer `before`: a policy must know it from the start.
    fn wakes_changed(&mut self, before: bool) {
        let now = self.can_wake();
        if now != before {
            self.policy = self.settings.policy(now);
        }
    }

    /// Decides how to wait after a poll, and waits.
    pub fn wait(&mut self, queues: &[QueueIn]) -> Result<Done, Code> {
        let decision = self.begin(queues)?;
        let until = Instant::from_nanos(decision.until_ns);
        let kind = self.begun.map_or(WaitKind::Poll, |begun| begun.decision.action.kind());
        let (cut, woken) = match kind {
            WaitKind::Poll => (until, Woken::Not),
            WaitKind::Pause => {
                self.pause(until);
                (until, Woken::ByTime)
            }
            WaitKind::Sleep => {
                // Limit a sleep like a blocking wait; a policy that wanted a longer one decides again.
                let cut = until.min(self.cpu.now() + self.settings.longest_block);
                self.cpu.sleep_until(cut);
                (cut, Woken::ByTime)
            }
            WaitKind::Block => self.block(until),
        };
        // The policy gets the end that it decided; the caller, the end of this wait.
        let done = self.end(kind, None, Some(woken))?;
        Ok(if kind == WaitKind::Poll { done } else { Done { until_ns: cut.as_nanos(), ..done } })
    }

    /// Reads the clock, passes the observations to the policy, and returns its decision.
    pub fn begin(&mut self, queues: &[QueueIn]) -> Result<DecisionOut, Code> {
        self.ready()?;
        if self.owner.is_none() {
            self.adopt();
        }
        let now = self.cpu.now();
        let mut seen = Seen::none();
        for (number, queue) in queues.iter().enumerate() {
            let fill = match self.settings.burst {
                // The poll returned as many packets as the loop takes at once, so more may be waiting.
                burst @ 1.. if queue.fill == 0 && queue.received >= burst => queue.received.saturating_add(1),
                _ => queue.fill,
            };
            let queue = LibcCpu::monotonic_stamps(QueueIn { fill, ..*queue });
            seen.add(number, &queue, now, Some(self.polls))?;
        }
        let ended = self.ended.take();
        self.count(seen.queues(), queues, ended.as_ref(), now);
        let decision = self.policy.decide(&Observation { now, queues: seen.queues(), ended });
        let kind = decision.action.kind();
        self.publish(now, &decision);
        let before = match kind {
            WaitKind::Sleep | WaitKind::Block => self.meter.begin(kind, &self.cpu),
            WaitKind::Poll | WaitKind::Pause => None,
        };
        self.begun = Some(Begun { at: now, decision, before });
        Ok(told(&decision, now))
    }

    /// Records how the caller waited since [`begin`](Self::begin). `until` is the end that the caller set; `None` means
    /// the end that `begin` decided. `woken` says what ended the wait; if it is `None`, the times decide this.
    pub fn end(&mut self, kind: WaitKind, until: Option<At>, woken: Option<Woken>) -> Result<Done, Code> {
        self.own()?;
        let begun = self.begun.ok_or_else(|| fail(Code::Order, "no wait is open: call apus_wait_begin first"))?;
        let Begun { at: began, decision, before } = begun;
        let until = until.or_else(|| decision.action.until(began));
        let Some(done) = action(kind, began, until) else {
            return Err(fail(Code::Observation, format_args!("a {kind} needs an end: set until_ns")));
        };
        self.begun = None;
        let ended = if kind == WaitKind::Poll { began } else { self.cpu.now() };
        self.polls = (self.polls.1, ended);
        if kind == WaitKind::Poll {
            let (until_ns, reason) = (began.as_nanos(), decision.reason as u32);
            return Ok(Done { began_ns: until_ns, ended_ns: until_ns, until_ns, reason, ..Done::default() });
        }
        let span = ended.since(began).unwrap_or(Nanos::ZERO);
        let spent = match kind {
            WaitKind::Pause => Some(span),
            _ => self.meter.end(before, &self.cpu),
        };
        self.ended = Some(Ended { action: done, began, ended, spent, idle: Nanos::ZERO });
        if let Some(telemetry) = &self.telemetry {
            telemetry.waited(kind, span);
            match kind {
                WaitKind::Pause if until.and_then(|until| ended.since(until)).is_some_and(|late| late > GAP) => {
                    telemetry.gap(until.unwrap_or(ended), ended);
                }
                WaitKind::Pause => {}
                _ => telemetry.touch(ended),
            }
        }
        let by_itself = || match until {
            Some(until) if ended >= until => Woken::ByTime,
            _ => Woken::ByDevice,
        };
        Ok(Done {
            began_ns: began.as_nanos(),
            ended_ns: ended.as_nanos(),
            until_ns: until.map_or(APUS_NEVER, Instant::as_nanos),
            kind: kind as u32,
            reason: decision.reason as u32,
            woken: woken.unwrap_or_else(by_itself) as u32,
            reserved: 0,
        })
    }

    /// Increases the loop's counters in telemetry.
    pub fn add(&self, rx_bytes: u64, tx_packets: u64, tx_bytes: u64, dropped: u64) -> Result<(), Code> {
        self.own()?;
        if let Some(telemetry) = &self.telemetry {
            telemetry.received(0, rx_bytes);
            telemetry.sent(tx_packets, tx_bytes);
            telemetry.dropped(DropReason::Discard, dropped);
        }
        Ok(())
    }

    /// Pauses until `until`, without giving up the CPU.
    fn pause(&mut self, until: At) {
        match self.waitpkg {
            Some(waitpkg) => _ = waitpkg.rest(None, until, || LibcCpu.now()),
            None => _ = self.cpu.pause_until(until),
        }
    }

    /// Waits until `until`, but at most for the maximum length of a blocking wait. A change of the watched memory, or a
    /// watched descriptor, ends the wait early. Returns the latest end, and what ended the wait.
    fn block(&mut self, until: At) -> (At, Woken) {
        let nothing = self.watched.is_empty() && self.memory.is_none();
        let longest = if nothing { UNWAKEABLE.min(self.settings.longest_block) } else { self.settings.longest_block };
        let now = self.cpu.now();
        let until = until.min(now + longest);
        let woken = match (&self.memory, self.waitpkg) {
            // The thread keeps its core in this wait.
            (Some(memory), Some(waitpkg)) => waitpkg.rest(Some(memory), until, || LibcCpu.now()).0,
            _ => self.watched.block(until.since(now).unwrap_or(Nanos::ZERO)),
        };
        (until, woken)
    }

    /// Makes the calling thread the owner of the waiter. Called only if the waiter has no owner yet.
    #[cold]
    fn adopt(&mut self) {
        let _uncancelled = Uncancelled::new();
        // Both can fail, for example in a chroot without /proc. The waits are then less precise, or telemetry keeps the
        // thread that created the waiter; an error would be worse, because the loop would never wait.
        if !self.settings.keep_slack {
            let _ = live::os::set_timer_slack(Nanos::from_nanos(1));
        }
        if let Some(telemetry) = &self.telemetry {
            let _ = telemetry.runs_here();
            telemetry.state(State::Running);
        }
        // Nothing is known of the time before: the first packets are not late by the age of the waiter.
        let now = self.cpu.now();
        self.polls = (now, now);
        self.owner = Some(thread());
    }

    /// Fails if the waiter belongs to another thread or process, or if a wait is open.
    #[inline]
    fn ready(&self) -> Result<(), Code> {
        self.own()?;
        match self.begun {
            None => Ok(()),
            Some(_) => Err(fail(Code::Order, "a wait is open: call apus_wait_end first")),
        }
    }

    /// Fails if the waiter belongs to another thread or process.
    #[inline]
    fn own(&self) -> Result<(), Code> {
        if self.process != process() {
            return Err(fail(Code::Thread, "the waiter belongs to the parent process: create one in each process"));
        }
        match self.owner {
            Some(owner) if owner != thread() => Err(fail(
                Code::Thread,
                "the waiter belongs to the first thread that waited with it: create one in each thread",
            )),
            _ => Ok(()),
        }
    }

    /// Adds the result of a poll to the counters in telemetry.
    fn count(&self, seen: &[Queue<Monotonic>], queues: &[QueueIn], ended: Option<&Ended<Monotonic>>, now: At) {
        let Some(telemetry) = &self.telemetry else { return };
        let received: u64 = queues.iter().map(|queue| u64::from(queue.received)).sum();
        telemetry.polled(received == 0);
        if received == 0 {
            return;
        }
        telemetry.received(received, 0);
        for queue in seen {
            if let Some(lateness) = queue.arrivals.as_ref().and_then(|came| lateness(came, ended)) {
                (0..queue.received.min(COUNTED)).for_each(|_| telemetry.picked_up(lateness));
            }
        }
        let service = now.since(self.polls.1).unwrap_or(Nanos::ZERO);
        telemetry.served(service);
        telemetry.busy(service);
        // The caller reports how long it worked. How much of this time its polls took is not known.
        telemetry.useful(service);
        telemetry.touch(now);
    }

    /// Publishes the decision for `apus top`, together with what the policy expected from it.
    fn publish(&mut self, now: At, decision: &Decision<Monotonic>) {
        let Some(telemetry) = &self.telemetry else { return };
        let (kind, reason) = (decision.action.kind(), decision.reason);
        telemetry.decided(reason);
        let (last, since) = &mut self.published;
        *since = since.saturating_add(1);
        if kind == WaitKind::Poll && *last == Some((kind, reason)) && *since < PUBLISHED_EVERY {
            return;
        }
        if let Some(belief) = self.policy.belief() {
            self.published = (Some((kind, reason)), 0);
            telemetry.believed(now, kind, reason, belief);
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let Some(telemetry) = self.telemetry.take() else { return };
        if self.process != process() {
            // The telemetry file belongs to the parent process.
            std::mem::forget(telemetry);
            return;
        }
        telemetry.state(State::Stopped);
    }
}

/// How late the packets of a poll were picked up. Without time stamps, this is the time since the previous poll, which
/// is an upper bound: the oldest packet may have arrived just after that poll. `None` if packets without time stamps
/// ended a blocking wait, because the bound would then be the length of the wait, which says nothing.
fn lateness(came: &Arrivals<Monotonic>, ended: Option<&Ended<Monotonic>>) -> Option<Nanos> {
    let by_device =
        ended.is_some_and(|wait| matches!(wait.action, Action::BlockUntil(_)) && wait.overshoot().is_none());
    (came.stamped || !by_device).then(|| came.lateness())
}

/// A number that identifies the calling thread. No two threads of this process ever get the same number.
#[inline]
fn thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static THIS: Cell<u64> = const { Cell::new(0) };
    }
    THIS.with(|this| {
        if this.get() == 0 {
            this.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        this.get()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Config;

    fn waiter(config: &Config) -> Waiter {
        // SAFETY: no string in it is set.
        Waiter::new(unsafe { Settings::read(config) }.unwrap()).unwrap()
    }

    /// Regression test: once, the descriptors of such a waiter did not end its waits.
    #[test]
    fn either_memory_or_descriptors_are_watched() {
        let word = 0u64;
        // SAFETY: the word outlives the waiter.
        let memory = unsafe { Memory::new(&word, u64::MAX, 0) }.unwrap();
        let mut made = waiter(&Config::default());
        made.memory = Some(memory);
        assert_eq!(made.watch(0), Err(Code::Config));
        assert_eq!(made.watch_memory(None), Ok(()));
        assert_eq!(made.watch(0), Ok(()));
        assert_eq!(made.watch_memory(Some(memory)), Err(Code::Config));
    }

    /// Regression test: once, the first packets counted as late by the age of the waiter.
    #[test]
    fn packets_of_the_first_poll_are_not_late_by_the_age_of_the_waiter() {
        let mut made = waiter(&Config::default());
        let created = Instant::from_nanos(made.cpu.now().as_nanos().saturating_sub(60_000_000_000));
        made.polls = (created, created);
        made.begin(&[QueueIn { received: 1, ..QueueIn::default() }]).unwrap();
        assert_ne!(made.polls.0, created);
    }
}
