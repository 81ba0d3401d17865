//! A port that plays a capture file, and records sent frames to another file.

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use pcap::{PcapReader, PcapWriter, Resolution};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use units::{Instant, Monotonic, Nanos};

use crate::Error;
use crate::device::{Capabilities, Device, Health, Statistics};
use crate::pool::{Frame, Pool};

/// Number of descriptors that the device reports. It is DPDK's default for drivers without a preference
/// (lib/ethdev/rte_ethdev.h, `RTE_ETH_DEV_FALLBACK_RX_RINGSIZE`), and a memory device reports the same number. The
/// device has no ring that could overflow.
const DESCRIPTORS: u32 = 512;

/// When the frames of a capture file arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timing {
    /// As fast as the worker receives them.
    Asap,
    /// At the recorded intervals, counted from the first `rx` call.
    Recorded,
}

/// The file to play, and what to do with the frames that are sent.
#[derive(Clone, Debug)]
pub struct PcapPlay {
    /// The file from which the frames come.
    pub input: PathBuf,
    /// When the frames arrive.
    pub timing: Timing,
    /// Whether to play the file again and again. With [`Timing::Recorded`], a pause of one mean gap follows the last
    /// frame of each round.
    pub repeat: bool,
    /// The file to which sent frames are written, in nanosecond format. `None` discards them.
    pub output: Option<PathBuf>,
    /// The difference between the real-time clock and the monotonic clock. It is added to all times, so that the times
    /// in the output count from 1970.
    pub clock_to_realtime: Nanos,
}

impl PcapPlay {
    /// Plays `input` once, as fast as the worker receives the frames, and discards sent frames.
    pub fn new(input: impl Into<PathBuf>) -> Self {
        let input = input.into();
        Self { input, timing: Timing::Asap, repeat: false, output: None, clock_to_realtime: Nanos::ZERO }
    }
}

/// A port whose frames come from a file, with times of the clock `C`. It has one queue.
///
/// ```text
///   Ready ──rx: not due, no slot──► Ready
///     │ ▲                              (the next record is read ahead, so its time is known)
///     │ └─── rx took it; there is a further one (or repeat)
///     ├─── end of file ──► Finished
///     └─── damaged file, failed read or write ──► Failed: health() says why, each time
/// ```
///
/// The device reads and writes files on the worker's core, through buffers of 1 MiB, and loses no frame. To record at
/// full speed, wrap another device in [`Capturing`](crate::device::capture::Capturing) instead. Sent frames are written
/// to the output file at the next call of `health`, which reports a failed write.
#[derive(Debug)]
pub struct PcapDevice<C> {
    name: String,
    clock: C,
    play: PcapPlay,
    reader: PcapReader<BufReader<File>>,
    writer: Option<PcapWriter<BufWriter<File>>>,
    state: State,
    /// Time at which the first record of the current round is due. The first `rx` sets it.
    start: Option<Instant<Monotonic>>,
    /// Number of records read in this round, including the one read ahead.
    in_round: u64,
    /// Timer that `arm` sets to expire when the next record is due.
    timer: OwnedFd,
    statistics: Statistics,
}

#[derive(Debug)]
enum State {
    Ready,
    Finished,
    Failed(Error),
}

/// The error of a failed write to the output file.
fn unwritten(error: pcap::Error) -> Error {
    match error {
        pcap::Error::System { what, source } => Error::Lacking {
            what,
            why: source.to_string(),
            fix: "free space on the file's disk, or give another file with out=".into(),
        },
        invalid @ pcap::Error::Invalid { .. } => invalid.into(),
    }
}

impl<C: Fn() -> Instant<Monotonic> + Send> PcapDevice<C> {
    /// Opens the files and reads the first frame.
    pub fn open(play: PcapPlay, clock: C) -> Result<Self, Error> {
        if play.output.as_deref().is_some_and(|output| same_file(&play.input, output)) {
            return Err(Error::Invalid {
                what: play.input.display().to_string(),
                why: "it is both read and written; choose another file for the output".into(),
            });
        }
        let mut reader = PcapReader::open(&play.input)?;
        let state = if reader.advance()? { State::Ready } else { State::Finished };
        let writer = play.output.as_deref().map(|path| PcapWriter::create(path, Resolution::Nanos)).transpose()?;
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)
            .map_err(|e| Error::system("make a timerfd for a pcap port", e))?;
        let name = play.input.display().to_string();
        let statistics = Statistics::default();
        Ok(Self { name, clock, play, reader, writer, state, start: None, in_round: 1, timer, statistics })
    }

    /// Time at which the record read ahead is due: at once before the first `rx`, and with [`Timing::Asap`].
    fn due(&self) -> Instant<Monotonic> {
        match (self.play.timing, self.start) {
            (Timing::Recorded, Some(start)) => start + self.reader.record().offset,
            _ => Instant::ORIGIN,
        }
    }

    /// Reads the next record ahead. At the end of the file, starts again if `repeat` is set.
    fn advance(&mut self) -> Result<State, Error> {
        let last = self.reader.record().offset;
        if self.reader.advance()? {
            self.in_round += 1;
            return Ok(State::Ready);
        }
        if !self.play.repeat {
            return Ok(State::Finished);
        }
        if self.play.timing == Timing::Recorded {
            let gap = if self.in_round > 1 { last / (self.in_round - 1) } else { Nanos::ZERO };
            if gap == Nanos::ZERO {
                return Err(Error::Invalid {
                    what: self.name.clone(),
                    why: "all its records have the same time, so it cannot be repeated with recorded timing; use timing=asap".into(),
                });
            }
            self.start = self.start.map(|start| start + last + gap);
        }
        self.reader.rewind()?;
        self.in_round = 1;
        Ok(if self.reader.advance()? { State::Ready } else { State::Finished })
    }

    /// Receives the record read ahead. Returns `false` if there is no free slot for it. A record that does not fit into
    /// a slot is counted and discarded.
    fn receive(&mut self, pool: &mut Pool, out: &mut Vec<Frame>, arrived: Option<Instant<Monotonic>>) -> bool {
        let record = self.reader.record();
        let Some(mut frame) = pool.take() else { return false };
        if record.bytes.is_empty() || !pool.set_len(&mut frame, record.bytes.len()) {
            pool.give(frame);
            self.statistics.rx_invalid += 1;
        } else {
            pool.bytes_mut(&mut frame).copy_from_slice(record.bytes);
            if let Some(at) = arrived {
                frame.set_arrived(at);
            }
            out.push(frame);
        }
        true
    }

    fn set_timer(&self, after: Nanos) {
        // A time of 0 would stop the timer. If the record is already due, the timer expires after 1 ns.
        let nanos = after.as_nanos().max(1);
        let it_value = Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 };
        self.apply_timer(it_value);
    }

    fn apply_timer(&self, it_value: Timespec) {
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Fails only for an invalid descriptor or time (timerfd_settime(2)); both are valid.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval, it_value });
    }
}

fn same_file(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

impl<C: Fn() -> Instant<Monotonic> + Send> Device for PcapDevice<C> {
    fn name(&self) -> &str {
        &self.name
    }

    fn queues(&self) -> usize {
        1
    }

    fn rx(&mut self, _queue: usize, pool: &mut Pool, out: &mut Vec<Frame>, room: usize) -> usize {
        let before = out.len();
        let now = (self.play.timing == Timing::Recorded).then(|| (self.clock)());
        self.start = self.start.or(now);
        // A discarded record counts too: a repeated file of such records has no end.
        for _ in 0..room {
            if !matches!(self.state, State::Ready) {
                break;
            }
            let due = self.due();
            if now.is_some_and(|now| now < due) || !self.receive(pool, out, now.map(|_| due)) {
                break;
            }
            self.state = self.advance().unwrap_or_else(State::Failed);
        }
        out.len() - before
    }

    fn tx(&mut self, _queue: usize, pool: &mut Pool, frames: &mut Vec<Frame>) -> usize {
        let mut taken = 0;
        if let Some(writer) = &mut self.writer {
            if matches!(self.state, State::Failed(_)) || frames.is_empty() {
                return 0;
            }
            let at = self.play.clock_to_realtime + Nanos::from_nanos((self.clock)().as_nanos());
            for frame in frames.iter() {
                if let Err(e) = writer.write(at, pool.bytes(frame)) {
                    self.state = State::Failed(unwritten(e));
                    break;
                }
                taken += 1;
            }
        } else {
            taken = frames.len();
        }
        for frame in frames.drain(..taken) {
            pool.give(frame);
        }
        taken
    }

    /// 1 if the next record is due, otherwise 0. Later records have not been read yet.
    fn backlog(&self, _queue: usize) -> usize {
        let due = matches!(self.state, State::Ready)
            && (self.play.timing == Timing::Asap || self.start.is_none() || self.due() <= (self.clock)());
        usize::from(due)
    }

    fn arm(&mut self, _queue: usize) -> Result<(), Error> {
        // If the device has finished or failed, the handle becomes readable at once, so that the worker checks its
        // health.
        let wait = match self.play.timing {
            Timing::Recorded if matches!(self.state, State::Ready) => self.due().since((self.clock)()),
            _ => None,
        };
        self.set_timer(wait.unwrap_or(Nanos::ZERO));
        Ok(())
    }

    fn disarm(&mut self, _queue: usize) {
        self.apply_timer(Timespec { tv_sec: 0, tv_nsec: 0 });
    }

    fn wait_handle(&self, _queue: usize) -> Option<BorrowedFd<'_>> {
        Some(self.timer.as_fd())
    }

    fn health(&mut self) -> Result<Health, Error> {
        let flushed = self.writer.as_mut().map_or(Ok(()), PcapWriter::flush);
        if let (Err(e), false) = (flushed, matches!(self.state, State::Failed(_))) {
            self.state = State::Failed(unwritten(e));
        }
        match &self.state {
            State::Ready => Ok(Health::Up),
            State::Finished => Ok(Health::Finished),
            State::Failed(error) => Err(error.again()),
        }
    }

    fn statistics(&mut self, _queue: usize) -> Statistics {
        self.statistics
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            stamps_arrival: self.play.timing == Timing::Recorded,
            wakes: true,
            rx_descriptors: DESCRIPTORS,
            longest_frame: pcap::LONGEST_RECORD as u32,
            ..Capabilities::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::device::wakeup::readable;
    use crate::pool::PoolConfig;

    const START: u64 = 1_000_000;

    /// A worker asked to stop would never have returned from `rx`.
    #[test]
    fn a_repeated_file_without_a_usable_record_does_not_keep_the_worker() {
        let (mut bed, play) = Bed::new("unusable", &[]);
        let mut writer = PcapWriter::create(&bed.folder.join("in.pcap"), Resolution::Nanos).unwrap();
        for _ in 0..3 {
            writer.write(Nanos::ZERO, &[0; 9000]).unwrap();
        }
        writer.finish().unwrap();
        let play = PcapPlay { repeat: true, timing: Timing::Asap, ..play };
        let mut device = PcapDevice::open(play, || Instant::from_nanos(START)).unwrap();
        assert_eq!(device.rx(0, &mut bed.pool, &mut bed.out, 64), 0);
        assert_eq!(device.statistics(0).rx_invalid, 64);
    }

    struct Bed {
        folder: PathBuf,
        now: Arc<AtomicU64>,
        pool: Pool,
        out: Vec<Frame>,
    }

    impl Bed {
        /// Makes a capture with records of 1, 2, … bytes at these times in us.
        fn new(test: &str, at_us: &[u64]) -> (Self, PcapPlay) {
            let folder = std::env::temp_dir().join(format!("apus-pcap-{test}-{}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            let mut writer = PcapWriter::create(&folder.join("in.pcap"), Resolution::Nanos).unwrap();
            for (n, at) in at_us.iter().enumerate() {
                writer.write(Nanos::from_micros(*at), &vec![n as u8; n + 1]).unwrap();
            }
            writer.finish().unwrap();
            let play = PcapPlay::new(folder.join("in.pcap"));
            let pool = Pool::new(PoolConfig { frames: 8, ..PoolConfig::default() }).unwrap();
            (Self { folder, now: Arc::new(AtomicU64::new(START)), pool, out: Vec::new() }, play)
        }

        fn open(&self, play: PcapPlay) -> PcapDevice<impl Fn() -> Instant<Monotonic> + Send + use<>> {
            let now = self.now.clone();
            PcapDevice::open(play, move || Instant::from_nanos(now.load(Ordering::Relaxed))).unwrap()
        }

        /// Receives frames at `us` us after the start. Returns their lengths.
        fn at(&mut self, us: u64, device: &mut impl Device, room: usize) -> Vec<usize> {
            self.now.store(START + us * 1000, Ordering::Relaxed);
            device.rx(0, &mut self.pool, &mut self.out, room);
            let lens = self.out.iter().map(Frame::len).collect();
            self.pool.give_many(&mut self.out);
            lens
        }
    }

    impl Drop for Bed {
        fn drop(&mut self) {
            assert_eq!(self.pool.free(), 8);
            std::fs::remove_dir_all(&self.folder).unwrap();
        }
    }

    #[test]
    fn plays_with_its_own_timing_and_wakes() {
        let (mut bed, play) = Bed::new("timing", &[500, 510, 510, 540]);
        let mut device = bed.open(PcapPlay { timing: Timing::Recorded, ..play });
        assert_eq!(bed.at(0, &mut device, 32), [1]);
        assert!(bed.at(9, &mut device, 32).is_empty());
        assert_eq!((device.backlog(0), device.health().unwrap()), (0, Health::Up));
        bed.now.store(START + 10_000, Ordering::Relaxed);
        assert_eq!(device.backlog(0), 1);
        device.arm(0).unwrap();
        while !readable(device.wait_handle(0).unwrap()) {}
        device.disarm(0);
        assert!(!readable(device.wait_handle(0).unwrap()));
        device.rx(0, &mut bed.pool, &mut bed.out, 1);
        assert_eq!(bed.out[0].arrived(), Some(Instant::from_nanos(START + 10_000)));
        assert_eq!(bed.at(10, &mut device, 32), [2, 3]);
        assert_eq!(bed.at(100, &mut device, 32), [4]);
        assert_eq!(device.health().unwrap(), Health::Finished);
        assert!(bed.at(1000, &mut device, 32).is_empty());
    }

    #[test]
    fn repeats_a_mean_gap_later() {
        let (mut bed, play) = Bed::new("repeat", &[500, 510, 540]);
        let mut device = bed.open(PcapPlay { timing: Timing::Recorded, repeat: true, ..play });
        assert_eq!(bed.at(0, &mut device, 32), [1]);
        assert_eq!(bed.at(59, &mut device, 32), [2, 3]);
        assert_eq!(bed.at(60, &mut device, 32), [1]);
        assert_eq!(bed.at(130, &mut device, 32), [2, 3, 1, 2]);
        let (bed, play) = Bed::new("repeat-one", &[500]);
        let mut device = bed.open(PcapPlay { timing: Timing::Recorded, repeat: true, ..play });
        let mut bed = bed;
        assert_eq!(bed.at(0, &mut device, 32), [1]);
        assert!(device.health().unwrap_err().to_string().contains("have the same time"));
    }

    #[test]
    fn as_fast_as_taken_without_loss_for_want_of_slots() {
        let (mut bed, play) = Bed::new("asap", &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        let mut device = bed.open(play);
        assert_eq!(device.rx(0, &mut bed.pool, &mut bed.out, 32), 8);
        assert_eq!(device.rx(0, &mut bed.pool, &mut bed.out, 32), 0);
        assert_eq!(device.health().unwrap(), Health::Up);
        assert_eq!(device.tx(0, &mut bed.pool, &mut bed.out), 8);
        assert_eq!(bed.at(0, &mut device, 32), [9, 10]);
        assert_eq!(device.health().unwrap(), Health::Finished);
    }

    #[test]
    fn records_what_is_sent() {
        let (mut bed, play) = Bed::new("output", &[1, 2]);
        let output = bed.folder.join("out.pcap");
        assert!(
            PcapDevice::open(PcapPlay { output: Some(play.input.clone()), ..play.clone() }, || Instant::ORIGIN)
                .is_err()
        );
        let clock_to_realtime = Nanos::from_secs(1_700_000_000);
        let mut device = bed.open(PcapPlay { output: Some(output.clone()), clock_to_realtime, ..play });
        device.rx(0, &mut bed.pool, &mut bed.out, 32);
        assert_eq!(device.tx(0, &mut bed.pool, &mut bed.out), 2);
        assert_eq!(device.health().unwrap(), Health::Finished);
        let mut reader = PcapReader::open(&output).unwrap();
        let first = reader.next_record().unwrap().unwrap();
        assert_eq!((first.at, first.bytes), (clock_to_realtime + Nanos::from_nanos(START), &[0][..]));
        assert_eq!(reader.next_record().unwrap().unwrap().bytes, [1, 1]);
        assert_eq!(reader.next_record().unwrap(), None);
    }

    /// A full disk was reported as invalid input.
    #[test]
    fn a_full_disk_is_an_error_of_the_host_that_stays() {
        let (mut bed, play) = Bed::new("full", &[1]);
        let mut device = bed.open(PcapPlay { output: Some("/dev/full".into()), ..play });
        device.rx(0, &mut bed.pool, &mut bed.out, 32);
        assert_eq!(device.tx(0, &mut bed.pool, &mut bed.out), 1, "it is in the buffer");
        for _ in 0..2 {
            let error = device.health().unwrap_err();
            let said = error.to_string();
            assert!(error.lacks() && said.contains("write /dev/full") && said.contains("out="), "{said}");
        }
    }

    #[test]
    fn a_damaged_file_ends_in_an_error_that_stays() {
        let (mut bed, play) = Bed::new("damaged", &[1, 2, 3]);
        let octets = std::fs::read(&play.input).unwrap();
        std::fs::write(&play.input, &octets[..octets.len() - 1]).unwrap();
        let mut device = bed.open(play);
        assert_eq!(bed.at(0, &mut device, 32), [1, 2]);
        for _ in 0..2 {
            assert!(device.health().unwrap_err().to_string().contains("in.pcap, record 3, offset 59"));
        }
    }
}
