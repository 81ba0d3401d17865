//! Observes NAPI instances: packets, polls, and the time from the reception of packets to the application's read.
//!
//! A BPF program on tracepoints counts; it changes nothing. It is attached as long as a [`NapiWatch`] exists, and is
//! detached even if the process is killed. `bpf/watch.bpf.c` explains where it is attached, what it cannot see, and how
//! it recognises a packet:
//!
//! ```text
//!  arrival ──► the poll that takes the packet ──► delivery to the stack ──► the application's read
//!              begins                 |          |
//!                 └── delay, part 1 ──┴─ held ───┴────── delay, part 2 ──────┘
//!                                    [in GRO, until a later poll]
//! ```
//! [`NapiCounts::delays`] is the sum of both parts, without the time for which GRO held the packet;
//! [`NapiCounts::held`] is the time in GRO, for held packets. With NAPI deferral, GRO keeps a TCP segment without a
//! successor until the timer's poll or, while packets arrive, until the kernel's next tick (Linux, net/core/dev.c,
//! `napi_complete_done`).
//!
//! The time that a packet waits in the NIC before its interrupt is not visible here. So the time from a packet's
//! arrival to its read is at most the sum of three parts: the moderation timer, the time in GRO, and the delay. The
//! first two do not always both apply: a segment that arrives while interrupts are enabled does not wait for a timer in
//! the NIC, only in GRO.
//!
//! # Cost
//!
//! Each UDP datagram runs five BPF programs; a TCP segment that GRO merges with others runs one. Above 5,000 packets
//! per second and CPU, [`NapiCounts::delays`] and [`NapiCounts::held`] are sampled at about this rate, with at least
//! one poll in 64; packets, bytes and polls are still counted completely. Reading the counters takes no system call,
//! whatever the number of CPUs. The test `what_the_watch_costs` measures these costs.
//!
//! # Needs
//!
//! - Root, or CAP_BPF and CAP_PERFMON.
//! - Linux 6.8, the first version that reports the IDs of NAPI instances (netdev netlink, `napi-get`). The BPF programs
//!   themselves need only 5.12 (atomic compare-and-exchange), and 6.3 for UDP (tracepoints `sk_data_ready` and
//!   `sock_recv_length`).
//! - `CONFIG_DEBUG_INFO_BTF`, as distributions' kernels have it.

mod sys;
#[cfg(test)]
mod tests;

use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};

use aya::maps::{HashMap, Map, MapData};
use aya::programs::BtfTracePoint;
use aya::{Btf, Ebpf};

use crate::knob::Error;
use units::Nanos;

static OBJECT: &[u8] = aya::include_bytes_aligned!("bpf/watch.bpf.o");

/// Names of the BPF programs, each with its tracepoint (Linux, include/trace/events).
const PROGRAMS: [(&str, &str); 7] = [
    ("on_poll", "napi_poll"),
    ("on_gro_receive", "napi_gro_receive_entry"),
    ("on_gro_frags", "napi_gro_frags_entry"),
    ("on_receive", "netif_receive_skb_entry"),
    ("on_receive_list", "netif_receive_skb_list_entry"),
    ("on_deliver", "netif_receive_skb"),
    ("on_read", "skb_copy_datagram_iovec"),
];
/// Names of the BPF programs that measure UDP datagrams, each with its tracepoint. Both tracepoints need Linux 6.3.
const DATAGRAMS: [(&str, &str); 2] = [("on_queued", "sk_data_ready"), ("on_recv", "sock_recv_length")];
/// Maximum number of NAPI instances in one watch.
pub const MOST_WATCHED: usize = SLOTS;
/// The same number in the BPF program.
const SLOTS: usize = 256;
/// An ID that no NAPI instance has (Linux, net/core/dev.h, `napi_id_valid`).
const NONE: u32 = 0;
/// Number of buckets in each distribution of times (`BUCKETS` in the BPF program).
pub const BUCKETS: usize = 200;
/// Number of counters before the buckets in the BPF program's `struct seen`: four used and four unused ones.
const COUNTERS: usize = 8;
/// Number of 64-bit values that the BPF program stores per instance.
const NUMBERS: usize = COUNTERS + 2 * BUCKETS;
/// Number of 64-bit values that the BPF program stores for all instances.
const ALL: NonZeroUsize = NonZeroUsize::new(SLOTS * NUMBERS).expect("it is positive");

/// Counters of a NAPI instance since the watch began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NapiCounters {
    /// Packets received.
    pub packets: u64,
    /// Bytes received, without the Ethernet headers.
    pub bytes: u64,
    /// Number of times that the kernel polled the instance, after an interrupt or after the deferral timer expired.
    pub polls: u64,
    /// Number of polls that used up their budget, usually because more packets were waiting.
    pub full_polls: u64,
}

/// Counters of a NAPI instance since the watch began, with the distributions of times.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NapiCounts {
    /// Packets received.
    pub packets: u64,
    /// Bytes received, without the Ethernet headers.
    pub bytes: u64,
    /// Number of times that the kernel polled the instance, after an interrupt or after the deferral timer expired.
    pub polls: u64,
    /// Number of polls that used up their budget, usually because more packets were waiting.
    pub full_polls: u64,
    /// Number of packets per bucket of delay. The delay starts with the poll that took the packet, ends when the
    /// application reads it, and excludes the time for which GRO held it. [`bounds`] returns the range of each bucket.
    pub delays: [u64; BUCKETS],
    /// Number of packets per bucket of hold time: the time for which GRO held the packet after the poll that took it.
    /// Packets that GRO delivered in the same poll are not counted here. Of merged segments, only the first counts.
    pub held: [u64; BUCKETS],
}

/// Returns the lower and the upper bound of a bucket. The last bucket contains all times above 16 s (15 * 2^30 ns); its
/// upper bound is [`Nanos::MAX`].
pub fn bounds(bucket: usize) -> (Nanos, Nanos) {
    let lower = |bucket: u64| if bucket < 8 { bucket << 7 } else { (8 + bucket % 8) << (bucket / 8 + 6) };
    let from = Nanos::from_nanos(lower(bucket as u64));
    let to = if bucket + 1 >= BUCKETS { Nanos::MAX } else { Nanos::from_nanos(lower(bucket as u64 + 1)) };
    (from, to)
}

/// Observes NAPI instances until it is dropped.
pub struct NapiWatch {
    seen: sys::Mapped,
    watched: Mutex<Watched>,
    datagrams: Result<(), Error>,
    // Dropping this detaches the programs.
    _programs: Ebpf,
}

/// The NAPI instance that the BPF program counts in each slot.
struct Watched {
    /// A map of the BPF program: from an instance's ID to its slot and to data that the program stores for it.
    slots: HashMap<MapData, u32, [u64; 4]>,
    /// The ID of the instance at each index, or [`NONE`]. The index is also the slot.
    napis: Vec<u32>,
}

impl std::fmt::Debug for NapiWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NapiWatch").field("napis", &self.watched().napis).finish_non_exhaustive()
    }
}

impl NapiWatch {
    /// Starts to observe the instances with these IDs ([`crate::knob::napis_of`]), in any network namespace.
    pub fn new(napis: &[u32]) -> Result<Self, Error> {
        if napis.len() > SLOTS {
            let why = format!("{} instances are too many: at most {SLOTS} can be watched", napis.len());
            return Err(Error::invalid("watch NAPI instances", why));
        }
        let btf = Btf::from_sys_fs().map_err(|e| failed("read the kernel's types (/sys/kernel/btf/vmlinux)", &e))?;
        let mut programs = Ebpf::load(OBJECT).map_err(|e| failed("load the program that watches NAPI", &e))?;
        let slots = programs.take_map("watched").ok_or_else(|| damaged("watched"))?;
        let slots = slots.try_into().map_err(|e| failed("open the map of watched instances", &e))?;
        let mut watched = Watched { slots, napis: Vec::new() };
        napis.iter().enumerate().try_for_each(|(slot, napi)| watched.add(slot, *napi))?;
        let mut attach = |(program, tracepoint): (&str, &str)| {
            let what = format!("attach to the tracepoint {tracepoint}");
            let program = programs.program_mut(program).ok_or_else(|| damaged(program))?;
            let program: &mut BtfTracePoint = program.try_into().map_err(|e| failed(&what, &e))?;
            program.load(tracepoint, &btf).map_err(|e| failed(&what, &e))?;
            program.attach().map_err(|e| failed(&what, &e)).map(drop)
        };
        PROGRAMS.into_iter().try_for_each(&mut attach)?;
        let datagrams = DATAGRAMS.into_iter().try_for_each(attach);
        let seen = match programs.map("seen") {
            Some(Map::Array(map)) => sys::Mapped::new(map.fd(), ALL).map_err(|e| failed("map the counters", &e))?,
            _ => return Err(damaged("seen")),
        };
        Ok(Self { seen, watched: Mutex::new(watched), datagrams, _programs: programs })
    }

    /// Returns `Ok` if UDP datagrams are measured; the error says why not. Linux before 6.3 lacks the tracepoints.
    /// Other protocols are always measured.
    pub fn measures_datagrams(&self) -> Result<(), &Error> {
        self.datagrams.as_ref().map(drop)
    }

    /// Observes NAPI instance `napi` at index `place`: an index in use or the first free one. Replaces the instance
    /// that was observed there: instances get new IDs when the interface goes down and up, or when its number of
    /// channels changes. The counts continue from their present values.
    pub fn follow(&self, place: usize, napi: u32) -> Result<(), Error> {
        let known = self.watched().napis.len();
        if place > known || place >= SLOTS {
            let why = format!("{known} instances are watched, and at most {SLOTS} can be");
            return Err(Error::invalid(format!("NAPI instance {place}"), why));
        }
        let mut watched = self.watched();
        let old = watched.napis.get(place).copied().unwrap_or(NONE);
        if old == napi {
            return Ok(());
        }
        watched.add(place, napi)?;
        watched.release(old)
    }

    /// Stops observing the instance at index `place`. Its counts stay as they are.
    pub fn forget(&self, place: usize) -> Result<(), Error> {
        let slot = self.slot(place)?;
        let mut watched = self.watched();
        let old = std::mem::replace(&mut watched.napis[slot], NONE);
        watched.release(old)
    }

    /// The counters of the instance at index `place` since the watch began, without the
    /// distributions of times. Cheaper than [`NapiWatch::read`].
    pub fn counters(&self, place: usize) -> Result<NapiCounters, Error> {
        let [packets, bytes, polls, full_polls] = self.seen.read(self.slot(place)? * NUMBERS);
        Ok(NapiCounters { packets, bytes, polls, full_polls })
    }

    /// The counters and distributions of the instance at index `place` since the watch began. A poll and its packets
    /// are counted when the poll has ended.
    pub fn read(&self, place: usize) -> Result<NapiCounts, Error> {
        let NapiCounters { packets, bytes, polls, full_polls } = self.counters(place)?;
        let first = self.slot(place)? * NUMBERS + COUNTERS;
        let (delays, held) = (self.seen.read(first), self.seen.read(first + BUCKETS));
        Ok(NapiCounts { packets, bytes, polls, full_polls, delays, held })
    }

    /// Converts an index to the slot with the same number. An unused index is an error.
    fn slot(&self, place: usize) -> Result<usize, Error> {
        let watched = self.watched().napis.len();
        if place < watched {
            return Ok(place);
        }
        Err(Error::invalid(format!("NAPI instance {place}"), format!("{watched} instances are watched")))
    }

    fn watched(&self) -> std::sync::MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watched {
    /// Stops counting instance `napi`, unless it is still listed at some index.
    fn release(&mut self, napi: u32) -> Result<(), Error> {
        if napi == NONE || self.napis.contains(&napi) {
            return Ok(());
        }
        self.slots.remove(&napi).map_err(|e| failed("write the map of watched instances", &e))
    }

    /// Counts instance `napi` in `slot`, which is in use or is the first free one.
    fn add(&mut self, slot: usize, napi: u32) -> Result<(), Error> {
        let value = [slot as u64, 0, 0, 0];
        self.slots.insert(napi, value, 0).map_err(|e| failed("write the map of watched instances", &e))?;
        match self.napis.get_mut(slot) {
            Some(old) => *old = napi,
            None => self.napis.push(napi),
        }
        Ok(())
    }
}

/// Creates the error for a map or a function (`part`) that the BPF program lacks.
fn damaged(part: &str) -> Error {
    let why = format!("the program has no {part}: this build of Apus is damaged");
    Error::System { what: "watch NAPI instances".into(), why }
}

/// Creates the error for a failed BPF operation: its causes, and what to do about it.
fn failed(what: &str, error: &(dyn std::error::Error + 'static)) -> Error {
    let mut why = error.to_string();
    let mut cause = Some(error);
    let mut errno = None;
    while let Some(next) = cause {
        let text = next.to_string();
        if !why.contains(&text) {
            why = format!("{why}: {text}");
        }
        errno = errno.or_else(|| next.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error));
        cause = next.source();
    }
    // Unlike EPERM, EACCES comes from the verifier. Then the program does not fit the kernel.
    if errno == Some(rustix::io::Errno::PERM.raw_os_error()) {
        let fix = "run as root, or with CAP_BPF and CAP_PERFMON".into();
        return Error::NotPermitted { what: what.into(), why, fix };
    }
    let kernel = rustix::system::uname();
    let kernel = kernel.release().to_string_lossy().into_owned();
    let why = format!("{why}; Linux 6.8 or later with CONFIG_DEBUG_INFO_BTF is needed, and this is {kernel}");
    Error::System { what: what.into(), why }
}
