//! Handles frames in the packet buffers of their driver, and sends the same buffers, without making a `Frame` of each.
//!
//! ```text
//!   rx_packets ─► app.handle, in place ─┬─ all to one port that can ─► tx_packets ─► next burst, if this one was full
//!                                       └─ otherwise ─► make_frames: as any other frames from here on
//! ```

use std::any::TypeId;

use policy::wait::WaitPolicy;
use units::Monotonic;

use super::{BURST, QueueRef, Worker, route};
use crate::app::{App, Verdict};
use crate::cpu::Cpu;
use crate::device::Health;
use crate::telemetry::DropReason;

/// Number of frames after which one poll receives no more packet buffers, if the worker has no other queue. Otherwise,
/// [`BURST`]. Several full bursts in one poll share its clock readings and its decision, which take about 0.1 us.
const LONGEST_TURN: usize = 4 * BURST;
/// Maximum number of polls with frames for which a worker does not try to pass on a queue's frames in place, after it
/// could not do so.
const LONGEST_PAUSE: u32 = 1024;

/// When a worker tries to pass on a queue's frames in place. A try that fails costs time: a frame must be made of each
/// packet buffer after all. So after each failure in a row, the worker waits for twice as many polls.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Tries {
    /// Number of polls with frames until the next try.
    wait: u32,
    /// Number of polls that the worker waited after the last failure. 0 if the last try succeeded.
    waited: u32,
}

/// The result of [`Worker::handle_in_place`].
struct Handled {
    /// Number of frames, from the first on, that are to be sent to the same port.
    count: usize,
    /// That port. `None` if there is no such frame.
    to: Option<usize>,
    /// The verdict on the next frame, if it was handled too.
    other: Option<Verdict>,
    /// Number of bytes in the `count` frames.
    bytes: u64,
}

impl Tries {
    /// Whether the next poll tries.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.wait == 0
    }

    /// A poll that did not try found frames.
    pub(super) fn polled(&mut self) {
        self.wait = self.wait.saturating_sub(1);
    }

    /// A try succeeded.
    #[inline]
    fn succeeded(&mut self) {
        self.waited = 0;
    }

    /// A try failed.
    fn failed(&mut self) {
        self.waited = (2 * self.waited).clamp(1, LONGEST_PAUSE);
        self.wait = self.waited;
    }
}

impl<A: App, P: WaitPolicy<Monotonic>, C: Cpu> Worker<A, P, C> {
    /// Receives packet buffers. Returns how many, and whether more may wait.
    #[inline]
    pub(super) fn receive_packets(&mut self, port: usize, queue: usize) -> (usize, bool) {
        let Self { ports, pool, packets, .. } = self;
        let Some(device) = ports[port].device.in_place() else { return (0, false) };
        let full = device.rx_packets(queue, pool, packets, BURST);
        (packets.len(), full)
    }

    /// Passes on the received packet buffers in place. As long as bursts are full, receives and passes on more. Returns
    /// the number of received frames.
    ///
    /// If a burst cannot be passed on in place, makes frames of it: those that were handled wait to be sent, and the
    /// others are in `batch`.
    #[inline]
    pub(super) fn pass_on(&mut self, index: usize, kind: TypeId, mut full: bool) -> usize {
        let QueueRef { port, queue, .. } = self.queues[index];
        let most = if self.queues.len() == 1 { LONGEST_TURN } else { BURST };
        let mut burst = self.packets.len();
        let (mut received, mut passed, mut bytes) = (burst, 0, 0);
        loop {
            let handled = self.handle_in_place(port);
            if !self.send_in_place(port, kind, &handled) {
                self.make_frames(port, &handled);
                self.queues[index].in_place.failed();
                break;
            }
            if !self.packets.is_empty() {
                self.drop_refused(port, &handled);
            } else {
                passed += burst;
                bytes += handled.bytes;
            }
            self.queues[index].in_place.succeeded();
            if !full || received >= most {
                break;
            }
            (burst, full) = self.receive_packets(port, queue);
            if burst == 0 {
                break;
            }
            received += burst;
        }
        self.telemetry.received(passed as u64, bytes);
        self.telemetry.sent(passed as u64, bytes);
        received
    }

    /// Sends the packet buffers as they are, if all are to be sent to one port that can send such buffers. Returns false
    /// if not. The buffers that the port does not accept are left.
    #[inline]
    fn send_in_place(&mut self, port: usize, kind: TypeId, handled: &Handled) -> bool {
        if handled.count < self.packets.len() {
            return false;
        }
        let longest = self.ports[port].longest;
        let Some(to) = handled.to.and_then(|to| self.ports.get_mut(to)) else { return false };
        if to.in_place != Some(kind) || to.health == Health::Down || to.longest < longest {
            return false;
        }
        let Some(device) = to.device.in_place() else { return false };
        device.tx_packets(to.tx_queue, &mut self.pool, &mut self.packets);
        true
    }

    /// Passes the frames in place to the application, until one is not to be sent to the same port as those before it,
    /// or cannot be handled in place.
    ///
    /// A function of its own, so that the compiler keeps what its loop needs in registers.
    #[inline(never)]
    fn handle_in_place(&mut self, port: usize) -> Handled {
        let Self { ports, pool, packets, app, .. } = self;
        let (mut to, mut other, mut bytes) = (None, None, 0);
        let count = pool.each_packet(packets, ports[port].longest, |data| {
            let len = data.len();
            match app.handle(port, data) {
                Verdict::Send(next) if to.is_none_or(|known| known == next) => to = Some(next),
                verdict => {
                    other = Some(verdict);
                    return false;
                }
            }
            bytes += len as u64;
            true
        });
        Handled { count, to, other, bytes }
    }

    /// Counts a burst that was handled, and of which packet buffers are left: the port did not accept them. Drops these.
    #[cold]
    fn drop_refused(&mut self, port: usize, handled: &Handled) {
        let refused = self.packets.len();
        self.make_frames_of(port, BURST);
        let left: u64 = self.batch.iter().map(|frame| frame.len() as u64).sum();
        self.telemetry.received(handled.count as u64, handled.bytes);
        self.telemetry.sent((handled.count - refused) as u64, handled.bytes.saturating_sub(left));
        self.telemetry.dropped(DropReason::TxFull, refused as u64);
        self.batch.drain(..).for_each(|frame| self.pool.give(frame));
    }

    /// Makes frames of the received packet buffers. Those that were handled are sorted by outgoing port, and the others
    /// are put into `batch`.
    #[inline(never)]
    fn make_frames(&mut self, port: usize, &Handled { count, to, other, .. }: &Handled) {
        let verdicts = std::iter::repeat_n(to.map(Verdict::Send), count).flatten().chain(other);
        for verdict in verdicts {
            self.make_frames_of(port, 1);
            for frame in self.batch.drain(..) {
                self.telemetry.received(1, frame.len() as u64);
                route(frame, verdict, &mut self.ports, &mut self.pool, &self.telemetry);
            }
        }
        self.make_frames_of(port, BURST);
        let bytes: u64 = self.batch.iter().map(|frame| frame.len() as u64).sum();
        self.telemetry.received(self.batch.len() as u64, bytes);
    }

    /// Makes frames of the first `count` packet buffers, and puts them into `batch`.
    fn make_frames_of(&mut self, port: usize, count: usize) {
        if let Some(device) = self.ports[port].device.in_place() {
            device.make_frames(&mut self.pool, &mut self.packets, count, &mut self.batch);
        }
    }
}
