//! A device wrapper that logs the latest calls to the device.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use units::{Instant, Monotonic};

use super::{Capabilities, Device, Health, Injected, Statistics};
use crate::Error;
use crate::pool::{Frame, Pool};

/// A call to a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// When the call was made.
    pub at: Instant<Monotonic>,
    /// The queue that was called. `None` if the call concerned the whole port.
    pub queue: Option<usize>,
    /// The kind of call and its result.
    pub what: What,
}

/// The kind of call, and its result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// Frames were received.
    Rx {
        /// Number of frames received.
        frames: usize,
        /// Number of polls of this queue that found no frames since the last `Rx` event.
        after_empty: u64,
    },
    /// Frames were sent.
    Tx {
        /// Number of frames that the device accepted.
        taken: usize,
        /// Number of frames that the worker offered.
        offered: usize,
    },
    /// The queue was armed, or arming failed.
    Arm {
        /// Whether arming succeeded.
        ok: bool,
    },
    /// The queue was disarmed.
    Disarm,
    /// The health of the port changed. `None` if the health check failed.
    Health(Option<Health>),
}

/// Writes an event as text, such as `@17000ns q0 rx 3 after 12 empty`.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}ns ", self.at.as_nanos())?;
        match self.queue {
            Some(queue) => write!(f, "q{queue} ")?,
            None => f.write_str("port ")?,
        }
        match self.what {
            What::Rx { frames, after_empty: 0 } => write!(f, "rx {frames}"),
            What::Rx { frames, after_empty } => write!(f, "rx {frames} after {after_empty} empty"),
            What::Tx { taken, offered } => write!(f, "tx {taken} of {offered}"),
            What::Arm { ok: true } => f.write_str("arm"),
            What::Arm { ok: false } => f.write_str("arm failed"),
            What::Disarm => f.write_str("disarm"),
            What::Health(Some(Health::Up)) => f.write_str("health up"),
            What::Health(Some(Health::Down)) => f.write_str("health down"),
            What::Health(Some(Health::Finished)) => f.write_str("health finished"),
            What::Health(None) => f.write_str("health error"),
        }
    }
}

/// A ring of the latest events.
#[derive(Debug)]
struct Log {
    events: Vec<Event>,
    capacity: usize,
    /// Total number of events so far. When the ring is full, the oldest event is at this index modulo the capacity.
    total: usize,
}

impl Log {
    fn push(&mut self, event: Event) {
        if self.events.len() < self.capacity {
            self.events.push(event);
        } else if let Some(oldest) = self.events.get_mut(self.total % self.capacity) {
            *oldest = event;
        }
        self.total += 1;
    }
}

/// Reads the log of a [`Traced`] device, while the device is in use and afterwards.
#[derive(Clone, Debug)]
pub struct TraceLog(Arc<Mutex<Log>>);

impl TraceLog {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The latest events, oldest first.
    pub fn events(&self) -> Vec<Event> {
        let log = self.log();
        let (later, earlier) = log.events.split_at(if log.total > log.capacity { log.total % log.capacity } else { 0 });
        [earlier, later].concat()
    }

    /// Number of older events that were overwritten.
    pub fn overwritten(&self) -> usize {
        let log = self.log();
        log.total - log.events.len()
    }

    /// The log as text, one line per event. If older events are missing, the first line says so.
    pub fn lines(&self) -> Vec<String> {
        let missing = self.overwritten();
        let head = (missing > 0).then(|| format!("({missing} earlier events were overwritten)"));
        head.into_iter().chain(self.events().iter().map(Event::to_string)).collect()
    }
}

/// A device whose calls are logged, with the time of the clock `C`.
///
/// Polls that find no frames are only counted, and health is logged only when it changes. Each event costs a clock
/// reading and an uncontended lock. All memory is allocated at the start.
#[derive(Debug)]
pub struct Traced<D, C> {
    inner: D,
    clock: C,
    log: TraceLog,
    /// For each queue, the number of polls since the last poll that found frames.
    empty: Vec<u64>,
    health: Option<Option<Health>>,
}

impl<D: Device, C: Fn() -> Instant<Monotonic> + Send> Traced<D, C> {
    /// Wraps `inner` and keeps the latest `capacity` events (at least one).
    pub fn new(inner: D, clock: C, capacity: usize) -> (Self, TraceLog) {
        let capacity = capacity.max(1);
        let log = TraceLog(Arc::new(Mutex::new(Log { events: Vec::with_capacity(capacity), capacity, total: 0 })));
        let empty = vec![0; inner.queues()];
        (Self { inner, clock, log: log.clone(), empty, health: None }, log)
    }

    fn note(&self, queue: Option<usize>, what: What) {
        let at = (self.clock)();
        self.log.log().push(Event { at, queue, what });
    }
}

impl<D: Device, C: Fn() -> Instant<Monotonic> + Send> Device for Traced<D, C> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn queues(&self) -> usize {
        self.inner.queues()
    }

    fn rx(&mut self, queue: usize, pool: &mut Pool, out: &mut Vec<Frame>, room: usize) -> usize {
        let frames = self.inner.rx(queue, pool, out, room);
        if frames == 0 {
            self.empty[queue] += 1;
        } else {
            let after_empty = std::mem::take(&mut self.empty[queue]);
            self.note(Some(queue), What::Rx { frames, after_empty });
        }
        frames
    }

    fn tx(&mut self, queue: usize, pool: &mut Pool, frames: &mut Vec<Frame>) -> usize {
        let offered = frames.len();
        let taken = self.inner.tx(queue, pool, frames);
        if offered > 0 {
            self.note(Some(queue), What::Tx { taken, offered });
        }
        taken
    }

    fn finish(&mut self, queue: usize) {
        self.inner.finish(queue);
    }

    fn injected(&self) -> Injected {
        self.inner.injected()
    }

    fn backlog(&self, queue: usize) -> usize {
        self.inner.backlog(queue)
    }

    fn arm(&mut self, queue: usize) -> Result<(), Error> {
        let armed = self.inner.arm(queue);
        self.note(Some(queue), What::Arm { ok: armed.is_ok() });
        armed
    }

    fn disarm(&mut self, queue: usize) {
        self.inner.disarm(queue);
        self.note(Some(queue), What::Disarm);
    }

    fn wait_handle(&self, queue: usize) -> Option<BorrowedFd<'_>> {
        self.inner.wait_handle(queue)
    }

    fn health(&mut self) -> Result<Health, Error> {
        let health = self.inner.health();
        let now = Some(health.as_ref().ok().copied());
        if self.health != now {
            self.health = now;
            self.note(None, What::Health(health.as_ref().ok().copied()));
        }
        health
    }

    fn statistics(&mut self, queue: usize) -> Statistics {
        self.inner.statistics(queue)
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::device::memory::{LinkConfig, LinkState, MemoryDevice};
    use crate::pool::PoolConfig;

    #[test]
    fn the_log_is_the_story() {
        let time = AtomicU64::new(0);
        let clock = move || Instant::from_nanos(time.fetch_add(10, Ordering::Relaxed));
        let (port, far) = MemoryDevice::scripted("p", LinkConfig::default()).unwrap();
        let (mut port, log) = Traced::new(port, clock, 8);
        let mut pool = Pool::new(PoolConfig { frames: 4, ..PoolConfig::default() }).unwrap();
        let mut frames = Vec::new();
        for _ in 0..3 {
            port.rx(0, &mut pool, &mut frames, 32);
        }
        port.arm(0).unwrap();
        far.push(0, &[1], None);
        far.push(0, &[2], None);
        port.disarm(0);
        port.rx(0, &mut pool, &mut frames, 32);
        port.tx(0, &mut pool, &mut frames);
        port.tx(0, &mut pool, &mut frames);
        assert!(port.health().is_ok() && port.health().is_ok());
        far.set_state(LinkState::Lost);
        assert!(port.health().is_err());
        let story = [
            "@0ns q0 arm",
            "@10ns q0 disarm",
            "@20ns q0 rx 2 after 3 empty",
            "@30ns q0 tx 2 of 2",
            "@40ns port health up",
            "@50ns port health error",
        ];
        assert_eq!(log.lines(), story);
        for _ in 0..5 {
            port.disarm(0);
        }
        assert_eq!((log.overwritten(), log.events().len(), log.lines().len()), (3, 8, 9));
        assert_eq!(log.lines()[0], "(3 earlier events were overwritten)");
        assert_eq!(log.lines()[1], story[3]);
        assert_eq!(log.lines()[8], "@100ns q0 disarm");
    }
}
