use super::*;
use crate::device::memory::{LinkConfig, MemoryDevice, MemoryHandle};
use crate::pool::PoolConfig;
use pcap::PcapReader;

fn path(test: &str) -> PathBuf {
    std::env::temp_dir().join(format!("apus-capture-{test}-{}.pcap", std::process::id()))
}

fn clock() -> Instant<Monotonic> {
    Instant::from_nanos(5_000)
}

fn port() -> (MemoryDevice, MemoryHandle, Pool, Vec<Frame>) {
    let (port, far) = MemoryDevice::scripted("p", LinkConfig::default()).unwrap();
    (port, far, Pool::new(PoolConfig { frames: 64, ..PoolConfig::default() }).unwrap(), Vec::new())
}

/// Reads time, original length and data of each record, and removes the file.
fn contents(path: &PathBuf) -> Vec<(u64, u32, Vec<u8>)> {
    let mut reader = PcapReader::open(path).unwrap();
    let mut all = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        all.push((record.at.as_nanos(), record.original_len, record.bytes.to_vec()));
    }
    std::fs::remove_file(path).unwrap();
    all
}

/// A device that accepts only a limited number of frames per send call.
struct Narrow<D>(D, usize);

impl<D: Device> Device for Narrow<D> {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn queues(&self) -> usize {
        self.0.queues()
    }
    fn rx(&mut self, queue: usize, pool: &mut Pool, out: &mut Vec<Frame>, room: usize) -> usize {
        self.0.rx(queue, pool, out, room)
    }
    fn tx(&mut self, queue: usize, pool: &mut Pool, frames: &mut Vec<Frame>) -> usize {
        let rest = frames.split_off(frames.len().min(self.1));
        let taken = self.0.tx(queue, pool, frames);
        frames.extend(rest);
        taken
    }
    fn backlog(&self, queue: usize) -> usize {
        self.0.backlog(queue)
    }
    fn arm(&mut self, queue: usize) -> Result<(), Error> {
        self.0.arm(queue)
    }
    fn disarm(&mut self, queue: usize) {
        self.0.disarm(queue);
    }
    fn wait_handle(&self, queue: usize) -> Option<BorrowedFd<'_>> {
        self.0.wait_handle(queue)
    }
    fn health(&mut self) -> Result<Health, Error> {
        self.0.health()
    }
    fn statistics(&mut self, queue: usize) -> Statistics {
        self.0.statistics(queue)
    }
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }
}

#[test]
fn both_directions_with_their_times_and_only_what_was_taken() {
    let path = path("both");
    let (inner, far, mut pool, mut frames) = port();
    let config = CaptureConfig { snap: 3, clock_to_realtime: Nanos::from_secs(1), ..CaptureConfig::new(&path) };
    let (mut port, meter) = Capturing::new(Narrow(inner, 2), clock, &config).unwrap();
    far.push(0, &[1; 5], Some(Instant::from_nanos(4_000)));
    far.push(0, &[2; 2], None);
    far.push(0, &[3; 3], None);
    assert_eq!(port.rx(0, &mut pool, &mut frames, 32), 3);
    assert_eq!((port.tx(0, &mut pool, &mut frames), frames.len()), (2, 1));
    assert_eq!((meter.captured(), meter.missed()), (5, 0));
    assert_eq!(port.tx(0, &mut pool, &mut frames), 1);
    drop(port);
    let (rx, now) = (1_000_004_000, 1_000_005_000);
    let one = (5, vec![1; 3]);
    let expected = [
        (rx, one.0, one.1.clone()),
        (now, 2, vec![2; 2]),
        (now, 3, vec![3; 3]),
        (now, one.0, one.1),
        (now, 2, vec![2; 2]),
        (now, 3, vec![3; 3]),
    ];
    assert_eq!(contents(&path), expected);
    assert_eq!((meter.captured(), meter.missed(), meter.error(), pool.free()), (6, 0, None, 64));
}

#[test]
fn only_the_directions_asked_for() {
    for (received, sent) in [(true, false), (false, true)] {
        let path = path(if received { "received" } else { "sent" });
        let (inner, far, mut pool, mut frames) = port();
        let config = CaptureConfig { received, sent, ..CaptureConfig::new(&path) };
        let (mut port, meter) = Capturing::new(inner, clock, &config).unwrap();
        far.push(0, &[1], Some(Instant::from_nanos(4_000)));
        port.rx(0, &mut pool, &mut frames, 32);
        port.tx(0, &mut pool, &mut frames);
        drop(port);
        assert_eq!((contents(&path), meter.captured()), (vec![(if received { 4_000 } else { 5_000 }, 1, vec![1])], 1));
    }
}

/// Even if the writer is slow, every frame is forwarded, and is either in the file or counted as missed.
#[test]
fn captured_and_missed_are_all() {
    let path = path("all");
    let config = CaptureConfig { snap: 60, buffers: 2, buffer_size: 300, ..CaptureConfig::new(&path) };
    let mut pool = Pool::new(PoolConfig { frames: 64, ..PoolConfig::default() }).unwrap();
    let source = MemoryDevice::source("m", &[7; 60], 60).unwrap();
    let (mut port, meter) = Capturing::new(source, clock, &config).unwrap();
    let (mut frames, mut passed) = (Vec::new(), 0);
    for _ in 0..500 {
        passed += port.rx(0, &mut pool, &mut frames, 8);
        passed += port.tx(0, &mut pool, &mut frames);
    }
    assert_eq!(passed, 8_000);
    drop(port);
    assert!(meter.missed() >= 4_000 - 1_500, "of a batch of 8, at most 3 fit when sent");
    assert_eq!(meter.captured() + meter.missed(), 8_000);
    assert_eq!(contents(&path).len() as u64, meter.captured());
}

/// If the disk is full, the port continues to work, and the meter reports the error.
#[test]
fn a_capture_that_fails_does_not_stop_the_port() {
    let (inner, far, mut pool, mut frames) = port();
    let (mut port, meter) = Capturing::new(inner, clock, &CaptureConfig::new("/dev/full")).unwrap();
    for _ in 0..2 {
        far.push(0, &[1], None);
        assert_eq!(port.rx(0, &mut pool, &mut frames, 32), 1);
        assert_eq!((port.tx(0, &mut pool, &mut frames), port.health().unwrap()), (1, Health::Up));
    }
    drop(port);
    // They were once counted as missed, as if the disk were too slow.
    assert_eq!((meter.captured(), meter.missed(), meter.unwritten()), (0, 0, 4));
    assert!(meter.error().unwrap().contains("/dev/full"));
}

#[test]
fn refuses_captures_that_cannot_be() {
    let good = CaptureConfig::new(path("bad"));
    for bad in [
        CaptureConfig { snap: 0, ..good.clone() },
        CaptureConfig { snap: LONGEST_RECORD + 1, ..good.clone() },
        CaptureConfig { buffers: 1, ..good.clone() },
        CaptureConfig { buffer_size: 100, ..good.clone() },
        CaptureConfig { path: "/nowhere/x.pcap".into(), ..good },
    ] {
        assert!(Capturing::new(port().0, clock, &bad).is_err());
    }
}
