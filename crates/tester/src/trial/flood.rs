//! A flood sends as many frames as possible to measure the rate at which frames come back. It does not measure latency.

use std::sync::atomic::{AtomicBool, Ordering};

use live::device::{Device, Health, Statistics};
use live::pool::{Frame, Pool};
use units::{Instant, Monotonic, Nanos};

use crate::Error;
use crate::clock::TrialClock;
use crate::frame::{Layout, Parsed, Template, parse};
use crate::gaps::{Gap, GapWatch};

/// Maximum number of frames per send or receive call.
const BATCH: usize = 64;
/// Time between two checks of the device's health.
const HEALTH_PERIOD: Nanos = Nanos::from_millis(250);

/// Configuration of a flood.
#[derive(Clone, Copy, Debug)]
pub struct FloodConfig {
    /// Content and size of the frames.
    pub layout: Layout,
    /// Time at the start of the flood during which frames are sent but not counted.
    pub warm_up: Nanos,
    /// Time after the warm-up during which frames are counted.
    pub duration: Nanos,
    /// If two successive clock readings of the loop are further apart than this, the time between them is a gap.
    pub gap_threshold: Nanos,
    /// Time added to `gap_threshold` for each frame of a `tx` or `rx` call.
    pub frame_allowance: Nanos,
}

impl FloodConfig {
    /// A flood with the same gap thresholds as a normal trial.
    pub fn new(layout: Layout, warm_up: Nanos, duration: Nanos) -> Self {
        let (gap_threshold, frame_allowance) = (Nanos::from_micros(30), Nanos::from_micros(5));
        Self { layout, warm_up, duration, gap_threshold, frame_allowance }
    }
}

/// The result of a flood. The numbers do not include the warm-up, except where a field says so.
#[derive(Clone, PartialEq, Debug)]
pub struct Flood {
    /// Start of the counted time.
    pub start: Instant<Monotonic>,
    /// Length of the counted time.
    pub counted: Nanos,
    /// Frames that the device accepted.
    pub sent: u64,
    /// Intact test frames that came back.
    pub received: u64,
    /// Damaged test frames that came back.
    pub corrupted: u64,
    /// Frames that are not test frames.
    pub foreign: u64,
    /// Frames lost by the tester's own device, including the warm-up.
    pub device: Statistics,
    /// Times when the tester's loop did not run, including the warm-up.
    pub gaps: Vec<Gap>,
    /// Whether the trial was interrupted.
    pub interrupted: bool,
}

/// Floods one queue from the calling thread, which busy-loops. Setting `stop` ends the flood early.
pub fn flood(
    config: &FloodConfig,
    device: &mut dyn Device,
    queue: usize,
    pool: &mut Pool,
    clock: &impl TrialClock,
    stop: &AtomicBool,
) -> Result<Flood, Error> {
    let template = Template::new(&config.layout, config.layout.size, 1)?;
    if template.data() > pool.longest_frame() {
        return Err(Error::invalid(
            format!("frames of {} bytes", config.layout.size.octets()),
            format!("a slot of the pool has room for {}", pool.longest_frame()),
        ));
    }
    let before = device.statistics(queue);
    let now = clock.now();
    let start = now + config.warm_up;
    let end = start + config.duration;
    let mut next_health = now;
    let mut watch = GapWatch::new(config.gap_threshold, now);
    let mut flood = Flood {
        start,
        counted: Nanos::ZERO,
        sent: 0,
        received: 0,
        corrupted: 0,
        foreign: 0,
        device: Statistics::default(),
        gaps: Vec::new(),
        interrupted: false,
    };
    let (mut outbox, mut inbox): (Vec<Frame>, Vec<Frame>) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
    let mut sequence = 0;
    let result = loop {
        let now = clock.now();
        if now >= end {
            flood.counted = now.since(start).unwrap_or(Nanos::ZERO);
            break Ok(());
        }
        if flood.interrupted || stop.load(Ordering::Relaxed) {
            flood.counted = now.since(start).unwrap_or(Nanos::ZERO);
            flood.interrupted = true;
            break Ok(());
        }
        if now >= next_health {
            next_health = now + HEALTH_PERIOD;
            match device.health() {
                Ok(Health::Up | Health::Down) => {}
                // The device, such as a capture file, has ended: there is nothing more to receive.
                Ok(Health::Finished) => flood.interrupted = true,
                Err(error) => break Err(error),
            }
        }
        while outbox.len() < BATCH {
            let Some(mut frame) = pool.take() else { break };
            pool.set_len(&mut frame, template.data());
            template.write(pool.bytes_mut(&mut frame), sequence, now);
            sequence += 1;
            outbox.push(frame);
        }
        let sent = device.tx(queue, pool, &mut outbox);
        let mut received = 0;
        // Receive all frames that have arrived: if they stayed in the ring, later frames would be lost.
        loop {
            let count = device.rx(queue, pool, &mut inbox, BATCH);
            received += count;
            for frame in inbox.drain(..) {
                if now >= start {
                    match parse(pool.bytes(&frame)) {
                        Parsed::Test(_) => flood.received += 1,
                        Parsed::Corrupted => flood.corrupted += 1,
                        Parsed::Foreign => flood.foreign += 1,
                    }
                }
                pool.give(frame);
            }
            if count < BATCH {
                break;
            }
        }
        if now >= start {
            flood.sent += sent as u64;
        }
        watch.after_work(clock.now(), config.frame_allowance * (sent + received) as u64);
    };
    for frame in outbox.drain(..) {
        pool.give(frame);
    }
    result?;
    flood.device = device.statistics(queue).since(&before);
    flood.gaps = watch.into_gaps();
    Ok(flood)
}

impl Flood {
    /// Frames sent per second; `None` if no time was counted.
    pub fn sent_pps(&self) -> Option<f64> {
        super::rate(self.sent, self.counted)
    }
    /// Frames that came back, per second; `None` if no time was counted or no frame came back.
    pub fn received_pps(&self) -> Option<f64> {
        super::rate(self.received, self.counted)
    }
}
