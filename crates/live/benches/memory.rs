//! What a frame costs on the memory device: rx, macswap in place, tx.
//!
//! `cargo bench -p live --bench memory`. Fifteen runs. The time is the thread's own CPU time, since the
//! machine may be shared; and since a shared core is slower too, the minimum stands beside the median.

use std::hint::black_box;

use live::device::Device;
use live::device::memory::MemoryDevice;
use live::pool::{Frame, Pool, PoolConfig};
use rustix::time::{ClockId, clock_gettime};

const RUNS: usize = 15;
const FRAMES: usize = 4_000_000;

/// Ethernet: destination 02:..:01, source 02:..:02, EtherType 0x88b5 (local experimental,
/// IEEE 802-2014 table 9-1).
const HEADER: [u8; 14] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5];

fn macswap(data: &mut [u8]) {
    if let Some((destination, rest)) = data.split_first_chunk_mut::<6>()
        && let Some(source) = rest.first_chunk_mut::<6>()
    {
        std::mem::swap(destination, source);
    }
}

/// Nanoseconds that this thread has run.
fn cpu_time() -> i64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// One run: nanoseconds a frame.
fn run(batch: usize, swap: bool, device: &mut impl Device, pool: &mut Pool, frames: &mut Vec<Frame>) -> f64 {
    let start = cpu_time();
    let mut count = 0;
    while count < FRAMES {
        count += device.rx(0, pool, frames, batch);
        if swap {
            for frame in frames.iter_mut() {
                macswap(pool.bytes_mut(frame));
            }
        }
        device.tx(0, pool, black_box(frames));
    }
    (cpu_time() - start) as f64 / count as f64
}

fn main() -> Result<(), live::Error> {
    println!("{:>6} {:>12} {:>10} {:>10} {:>10}   ns a frame, {RUNS} runs", "batch", "work", "median", "min", "max");
    for batch in [32, 64] {
        for (work, swap) in [("none", false), ("macswap", true)] {
            let mut pool = Pool::new(PoolConfig::default())?;
            let mut device = MemoryDevice::source("memory", &HEADER, 64)?;
            let mut frames = Vec::with_capacity(batch);
            let mut runs: Vec<f64> = (0..RUNS).map(|_| run(batch, swap, &mut device, &mut pool, &mut frames)).collect();
            runs.sort_by(f64::total_cmp);
            println!("{batch:>6} {work:>12} {:>10.2} {:>10.2} {:>10.2}", runs[RUNS / 2], runs[0], runs[RUNS - 1]);
            let free = pool.free();
            assert_eq!(free, pool.frames() as usize, "slots were lost");
        }
    }
    Ok(())
}
