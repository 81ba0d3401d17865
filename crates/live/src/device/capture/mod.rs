//! A wrapper around a device, which also writes the device's frames to a capture file.
//!
//! The worker copies each frame into a buffer. A separate thread writes full buffers to the file and returns them
//! empty. The worker never waits for this thread: if no buffer is free, the frame is forwarded as usual, but counts as
//! missed in the capture.
//!
//! ```text
//!   data core ── full buffers (bounded channel) ──► writer thread ──► file
//!       ◄─────── empty buffers (bounded channel) ───────┘
//! ```

use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use pcap::{LONGEST_RECORD, PcapWriter, RECORD_HEADER, Resolution, record_header};
use units::{Instant, Monotonic, Nanos};

use super::{Capabilities, Device, Health, Injected, Statistics};
use crate::Error;
use crate::os;
use crate::pool::{Frame, Pool};

/// What to capture, and where to write it.
#[derive(Clone, Debug)]
pub struct CaptureConfig {
    /// Path of the capture file. Its format is pcap with nanosecond timestamps.
    pub path: PathBuf,
    /// Whether to capture received frames. Their time in the file is their arrival timestamp; without one, the time at
    /// which the worker picked them up.
    pub received: bool,
    /// Whether to capture sent frames. Their time in the file is the time of the send call.
    pub sent: bool,
    /// Maximum number of bytes to keep of each frame.
    pub snap: usize,
    /// Number of buffers between the worker and the writer thread.
    pub buffers: usize,
    /// Size of a buffer in bytes. If a batch of sent frames does not fit into one buffer, the rest of the batch is
    /// missed.
    pub buffer_size: usize,
    /// The difference between the real-time clock and the monotonic clock. It is added to all times, so that the times
    /// in the file count from 1970.
    pub clock_to_realtime: Nanos,
}

impl CaptureConfig {
    /// Captures whole frames of both directions, through 8 buffers of 1 MiB. At 10 Gbit/s, the buffers bridge 6 ms in
    /// which the disk accepts no data. One buffer has room for a batch of 64 jumbo frames.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            received: true,
            sent: true,
            snap: LONGEST_RECORD,
            buffers: 8,
            buffer_size: 1 << 20,
            clock_to_realtime: Nanos::ZERO,
        }
    }
}

#[derive(Debug, Default)]
struct Shared {
    captured: AtomicU64,
    missed: AtomicU64,
    unwritten: AtomicU64,
    error: OnceLock<String>,
}

/// Reads the counters of a capture. It can be used from any thread.
#[derive(Clone, Debug)]
pub struct CaptureMeter(Arc<Shared>);

impl CaptureMeter {
    /// Number of frames handed to the writer thread or waiting in the current buffer.
    pub fn captured(&self) -> u64 {
        self.0.captured.load(Relaxed)
    }
    /// Number of frames that are not in the file because no buffer had room for them: the disk was too slow.
    pub fn missed(&self) -> u64 {
        self.0.missed.load(Relaxed)
    }
    /// Number of frames that are not in the file because of [`error`](Self::error).
    pub fn unwritten(&self) -> u64 {
        self.0.unwritten.load(Relaxed)
    }
    /// The error that stopped writing to the file. `None` if there was none.
    pub fn error(&self) -> Option<&str> {
        self.0.error.get().map(String::as_str)
    }
}

/// A buffer of records that will be written to the file.
#[derive(Debug)]
struct Buffer {
    octets: Vec<u8>,
    frames: u64,
}

/// The worker's side of the channels to and from the writer thread.
#[derive(Debug)]
struct Spool {
    current: Option<Buffer>,
    /// Channel to the writer thread. `None` only during drop.
    full: Option<SyncSender<Buffer>>,
    empty: Receiver<Buffer>,
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
    snap: usize,
    buffer_size: usize,
}

impl Spool {
    fn start(config: &CaptureConfig) -> Result<Self, Error> {
        let CaptureConfig { snap, buffers, buffer_size, .. } = *config;
        let invalid =
            |why: &str| Err(Error::Invalid { what: format!("capture to {}", config.path.display()), why: why.into() });
        if snap == 0 || snap > LONGEST_RECORD {
            return invalid("the length to keep of each frame must be 1 to 262144 bytes");
        }
        if buffers < 2 || buffer_size < snap.min(2048) + RECORD_HEADER {
            return invalid("it needs at least 2 buffers, each with room for a frame");
        }
        let shared = Arc::<Shared>::default();
        let output = PcapWriter::create(&config.path, Resolution::Nanos)?;
        let (full, to_write) = sync_channel(buffers);
        let (give_back, empty) = sync_channel(buffers);
        for _ in 0..buffers {
            let buffer = Buffer { octets: Vec::with_capacity(buffer_size), frames: 0 };
            give_back.try_send(buffer).map_err(|_| Error::Invalid {
                what: "capture".into(),
                why: "its own channel did not take its own buffers".into(),
            })?;
        }
        let for_writer = shared.clone();
        let (report, started) = sync_channel(1);
        let write = move || {
            // The file is open, so writing to it needs no privilege. Capabilities belong to the thread: the worker and
            // the main thread drop only their own.
            let dropped = os::give_up_privileges();
            let may_write = dropped.is_ok();
            let _ = report.send(dropped);
            if may_write {
                write_all(output, &to_write, &give_back, &for_writer);
            }
        };
        let writer = std::thread::Builder::new()
            .name("apus-capture".into())
            .spawn(write)
            .map_err(|e| Error::system("start the capture's writer thread", e))?;
        // Waits, so that no frame passes before the capabilities are gone.
        started.recv().map_err(|e| Error::system("start the capture's writer thread", io::Error::other(e)))??;
        let (full, writer) = (Some(full), Some(writer));
        Ok(Self { current: None, full, empty, shared, writer, snap, buffer_size })
    }

    /// Makes room for `octets` bytes in the current buffer, if possible. If the buffer is too full, submits it and gets
    /// an empty one.
    fn make_room(&mut self, octets: usize) {
        if self.current.as_ref().is_some_and(|b| b.octets.len() + octets > self.buffer_size) {
            self.submit();
        }
        if self.current.is_none() {
            self.current = self.empty.try_recv().ok();
        }
    }

    /// The number of bytes that a frame takes in a buffer.
    fn size_of(&self, frame: &Frame) -> usize {
        RECORD_HEADER + frame.len().min(self.snap)
    }

    /// Adds a frame to the current buffer. Returns whether it fitted.
    fn push(&mut self, at: Nanos, data: &[u8]) -> bool {
        let kept = &data[..data.len().min(self.snap)];
        let Some(buffer) = &mut self.current else { return false };
        if buffer.octets.len() + RECORD_HEADER + kept.len() > self.buffer_size {
            return false;
        }
        let Some(header) = record_header(Resolution::Nanos, at, kept.len(), data.len()) else { return false };
        buffer.octets.extend_from_slice(&header);
        buffer.octets.extend_from_slice(kept);
        buffer.frames += 1;
        true
    }

    /// Resets the current buffer to an earlier length and number of frames.
    fn truncate(&mut self, octets: usize, frames: u64) {
        if let Some(buffer) = &mut self.current {
            buffer.octets.truncate(octets);
            buffer.frames = frames;
        }
    }

    fn filled(&self) -> (usize, u64) {
        self.current.as_ref().map_or((0, 0), |b| (b.octets.len(), b.frames))
    }

    /// Counts frames that are in the current buffer, and frames for which no buffer had room. After an error, the disk's
    /// speed is not the reason that these are missing.
    fn count(&self, captured: u64, missed: u64) {
        self.shared.captured.fetch_add(captured, Relaxed);
        if missed > 0 {
            let failed = self.shared.error.get().is_some();
            let counter = if failed { &self.shared.unwritten } else { &self.shared.missed };
            counter.fetch_add(missed, Relaxed);
        }
    }

    /// Hands the current buffer to the writer thread. The channel has room for all existing buffers.
    fn submit(&mut self) {
        let Some(buffer) = self.current.take_if(|b| b.frames > 0) else { return };
        let frames = buffer.frames;
        if self.full.as_ref().is_none_or(|full| full.try_send(buffer).is_err()) {
            // The writer is gone.
            lose(&self.shared, frames);
        }
    }
}

/// Moves frames from the count of captured frames to that of unwritten frames.
fn lose(shared: &Shared, frames: u64) {
    shared.captured.fetch_sub(frames, Relaxed);
    shared.unwritten.fetch_add(frames, Relaxed);
}

impl Drop for Spool {
    /// Waits until everything is written.
    fn drop(&mut self) {
        self.submit();
        self.full = None;
        if let Some(Err(_)) = self.writer.take().map(JoinHandle::join) {
            let _ = self.shared.error.set("the capture's writer thread panicked".into());
        }
    }
}

/// The writer thread. It runs until the worker closes the channel. After an error, it counts all further
/// frames as unwritten.
fn write_all(
    mut output: PcapWriter<impl Write>,
    to_write: &Receiver<Buffer>,
    give_back: &SyncSender<Buffer>,
    shared: &Shared,
) {
    while let Ok(mut buffer) = to_write.recv() {
        let written = if shared.error.get().is_none() {
            // Flushes after each buffer, so that an error concerns only the frames of this buffer. A buffer is large
            // enough for this.
            output.write_raw(&buffer.octets).and_then(|()| output.flush()).map_err(|e| {
                let _ = shared.error.set(e.to_string());
            })
        } else {
            Err(())
        };
        if written.is_err() {
            lose(shared, buffer.frames);
        }
        buffer.octets.clear();
        buffer.frames = 0;
        // Cannot block: the channel has room for all buffers. If the worker has closed it, the buffer is no longer
        // needed.
        let _ = give_back.try_send(buffer);
    }
    // Writes the header if the file has no frames.
    if let (None, Err(e)) = (shared.error.get(), output.flush()) {
        let _ = shared.error.set(e.to_string());
    }
}

/// A device whose frames are also written to a capture file, with times of clock `C`.
///
/// A buffer is handed to the writer thread when it is full, when the worker is about to block, and when the worker
/// checks the port's health. Dropping the device completes the file. If the capture fails, the port continues to work;
/// [`CaptureMeter`] reports the failure.
#[derive(Debug)]
pub struct Capturing<D, C> {
    inner: D,
    clock: C,
    spool: Spool,
    received: bool,
    sent: bool,
    clock_to_realtime: Nanos,
}

impl<D: Device, C: Fn() -> Instant<Monotonic> + Send> Capturing<D, C> {
    /// Wraps `inner`, creates the file and starts the writer thread.
    pub fn new(inner: D, clock: C, config: &CaptureConfig) -> Result<(Self, CaptureMeter), Error> {
        let spool = Spool::start(config)?;
        let meter = CaptureMeter(spool.shared.clone());
        let CaptureConfig { received, sent, clock_to_realtime, .. } = *config;
        Ok((Self { inner, clock, spool, received, sent, clock_to_realtime }, meter))
    }

    fn time(&self, at: Instant<Monotonic>) -> Nanos {
        self.clock_to_realtime + Nanos::from_nanos(at.as_nanos())
    }
}

impl<D: Device, C: Fn() -> Instant<Monotonic> + Send> Device for Capturing<D, C> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn queues(&self) -> usize {
        self.inner.queues()
    }

    fn rx(&mut self, queue: usize, pool: &mut Pool, out: &mut Vec<Frame>, room: usize) -> usize {
        let before = out.len();
        let count = self.inner.rx(queue, pool, out, room);
        if self.received && count > 0 {
            let now = (self.clock)();
            let mut captured = 0;
            for frame in &out[before..] {
                self.spool.make_room(self.spool.size_of(frame));
                let at = self.time(frame.arrived().unwrap_or(now));
                captured += u64::from(self.spool.push(at, pool.bytes(frame)));
            }
            self.spool.count(captured, count as u64 - captured);
        }
        count
    }

    fn tx(&mut self, queue: usize, pool: &mut Pool, frames: &mut Vec<Frame>) -> usize {
        if !self.sent || frames.is_empty() {
            return self.inner.tx(queue, pool, frames);
        }
        // The data of a frame are gone once it is sent. So all frames are copied to one buffer before, and those that
        // the device did not accept are removed afterwards.
        self.spool.make_room(frames.iter().map(|frame| self.spool.size_of(frame)).sum());
        let (start, frames_before) = self.spool.filled();
        let at = self.time((self.clock)());
        let fitted = frames.iter().take_while(|frame| self.spool.push(at, pool.bytes(frame))).count();
        let taken = self.inner.tx(queue, pool, frames);
        if taken < fitted {
            let end = self.end_of(start, taken);
            self.spool.truncate(end, frames_before + taken as u64);
        }
        let captured = taken.min(fitted);
        self.spool.count(captured as u64, (taken - captured) as u64);
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
        self.spool.submit();
        self.inner.arm(queue)
    }

    fn disarm(&mut self, queue: usize) {
        self.inner.disarm(queue);
    }

    fn wait_handle(&self, queue: usize) -> Option<BorrowedFd<'_>> {
        self.inner.wait_handle(queue)
    }

    fn health(&mut self) -> Result<Health, Error> {
        self.spool.submit();
        self.inner.health()
    }

    fn statistics(&mut self, queue: usize) -> Statistics {
        self.inner.statistics(queue)
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
}

impl<D, C> Capturing<D, C> {
    /// The offset at which the `n`th record after offset `start` of the current buffer ends.
    fn end_of(&self, start: usize, n: usize) -> usize {
        let octets = self.spool.current.as_ref().map_or(&[][..], |b| &b.octets);
        (0..n).fold(start, |at, _| match octets.get(at + 8..at + 12) {
            Some(&[a, b, c, d]) => at + RECORD_HEADER + u32::from_le_bytes([a, b, c, d]) as usize,
            _ => at,
        })
    }
}

#[cfg(test)]
mod tests;
