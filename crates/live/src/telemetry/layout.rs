//! The layout of a worker's file. Readers reject a file whose version is not [`VERSION`], or whose size is wrong.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use policy::wait::{Reason, WaitKind};

use super::DropReason;
use super::histogram::HistogramCells;
use crate::device::Health;

/// The first bytes of a worker's file: "APUSTEL1", little-endian.
pub const MAGIC: u64 = u64::from_le_bytes(*b"APUSTEL1");
/// Version of the layout. Increase it with every change to [`Page`], or to the numbers of an enum that is an index into
/// it.
pub const VERSION: u64 = 5;
/// Maximum number of ports that a worker can have.
pub const PORTS: usize = 8;
/// Number of gaps that a worker's file keeps: the latest ones. A gap is a time when something else ran on the worker's
/// core although the worker was ready to run.
pub const GAPS: usize = 4096;
/// Means "none" in a cell in which 0 is a valid value.
pub const NONE: u64 = u64::MAX;

const DROPS: usize = 16;
const REASONS: usize = 16;
const WAITS: usize = 4;

const _: () = assert!(DropReason::ALL.len() <= DROPS);
const _: () = assert!(Reason::ALL.len() <= REASONS);
const _: () = assert!(WaitKind::ALL.len() == WAITS);
const _: () = assert!(size_of::<Hot>() == 64, "what each poll touches is one cache line");
const _: () = assert!(size_of::<Choice>() == 128, "what a decision writes is two cache lines");
const _: () = assert!(size_of::<Page>().is_multiple_of(64));

/// A number with only one writer. Adding to it is a load and a store, without a locked instruction.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Cell(AtomicU64);

impl Cell {
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }
    #[inline]
    pub fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Text of at most `8 * N` bytes, padded with zeros.
#[derive(Debug)]
#[repr(transparent)]
pub struct Text<const N: usize>([Cell; N]);

impl<const N: usize> Text<N> {
    /// Stores `text` and returns true. If `text` is too long, stores nothing and returns false.
    #[must_use]
    pub fn set(&self, text: &str) -> bool {
        if text.len() > 8 * N || text.contains('\0') {
            return false;
        }
        let mut padded = text.bytes().chain(std::iter::repeat(0));
        for cell in &self.0 {
            cell.set(u64::from_le_bytes(std::array::from_fn(|_| padded.next().unwrap_or(0))));
        }
        true
    }

    pub fn get(&self) -> String {
        let bytes: Vec<u8> = self.0.iter().flat_map(|cell| cell.get().to_le_bytes()).take_while(|b| *b != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// The whole file. All fields are atomic integers, so any bytes are a valid `Page`, even in a damaged or malicious
/// file.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Page {
    pub header: Header,
    pub hot: Hot,
    pub useful: Useful,
    pub waits: [Wait; WAITS],
    pub reasons: [Cell; REASONS],
    pub drops: [Cell; DROPS],
    pub choice: Choice,
    pub ports: [Port; PORTS],
    pub lateness: HistogramCells,
    pub service: HistogramCells,
    pub gaps: Gaps,
}

/// Identifies the worker that writes this file. The cells are written before the file gets its name. After that, only
/// `started_ns`, `state`, `tid`, `scheduling` and `priority` change.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Header {
    pub magic: Cell,
    pub version: Cell,
    pub size: Cell,
    pub worker: Cell,
    pub pid: Cell,
    /// Start time of the process, in clock ticks since boot: field 22 of `/proc/<pid>/stat`. The pid and the start time
    /// together identify a process even after the pid is reused.
    pub process_start_ticks: Cell,
    pub started_ns: Cell,
    pub state: Cell,
    pub tid: Cell,
    pub cpu: Cell,
    /// Number of the thread's scheduling policy, as in sched_setscheduler(2).
    pub scheduling: Cell,
    pub priority: Cell,
    pub instance: Text<8>,
    pub app: Text<8>,
    pub mode: Text<8>,
    pub goal: Text<8>,
    pub port_count: Cell,
}

/// The counters that every poll updates.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Hot {
    pub polls: Cell,
    pub empty_polls: Cell,
    pub rx_frames: Cell,
    pub rx_bytes: Cell,
    pub tx_frames: Cell,
    pub tx_bytes: Cell,
    pub busy_ns: Cell,
    pub updated_ns: Cell,
}

/// The counter that each poll with frames updates.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Useful {
    pub time_ns: Cell,
}

/// The last published choice of the wait policy, and why it was made. Most fields have the meaning of the same field of
/// [`policy::wait::Belief`]. The worker increments `begun` before it writes a choice and `done` after it. A reader
/// reads `done` first, then the fields, then `begun`. If `begun` equals `done`, all the fields belong to one choice.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Choice {
    pub done: Cell,
    pub at_ns: Cell,
    pub kind: Cell,
    pub reason: Cell,
    pub wait_ns: Cell,
    pub lasts_ns: Cell,
    /// `NONE` if no cost has been measured yet.
    pub costs_ns: Cell,
    pub late_worth_ns: Cell,
    pub gap_ns: Cell,
    pub aimed_ppm: Cell,
    pub owed_millionths: Cell,
    pub multiplier_256ths: Cell,
    pub begun: Cell,
}

#[derive(Debug)]
#[repr(C)]
pub struct Wait {
    pub count: Cell,
    pub time_ns: Cell,
}

#[derive(Debug)]
#[repr(C, align(64))]
pub struct Port {
    pub name: Text<8>,
    pub rx_ring_full: Cell,
    pub rx_no_buffer: Cell,
    pub rx_invalid: Cell,
    pub tx_invalid: Cell,
    pub tx_dropped: Cell,
    pub health: Cell,
    /// Whether busy polling has an effect: 0 if not, 1 if it has, `NONE` if it was not requested or is not known yet.
    pub busy_poll: Cell,
}

/// The number that stands for `health` in a [`Port`].
pub const fn health_number(health: Health) -> u64 {
    match health {
        Health::Up => 1,
        Health::Down => 2,
        Health::Finished => 3,
    }
}

/// A ring of gaps with only one writer. `written` is the number of all gaps so far. Gap `n` (from 0) is in `ring` at
/// index `n % GAPS`.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Gaps {
    pub written: Cell,
    pub time_ns: Cell,
    pub ring: [Gap; GAPS],
}

#[derive(Debug)]
#[repr(C)]
pub struct Gap {
    pub start_ns: Cell,
    pub end_ns: Cell,
}
