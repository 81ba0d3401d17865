//! As many frames as go out: for the rate that comes back, not for latency.

use std::sync::atomic::{AtomicBool, Ordering};

use live::device::{Device, Health, Statistics};
use live::pool::{Frame, Pool};
use units::{Instant, Monotonic, Nanos};

use crate::Error;
use crate::clock::TrialClock;
use crate::frame::{Layout, Parsed, Template, parse};
use crate::gaps::{Gap, GapWatch};

/// Frames handed over and taken at a time.
const BATCH: usize = 64;
/// How often the device's health is asked for.
const HEALTH_PERIOD: Nanos = Nanos::from_millis(250);

/// What to flood with.
#[derive(Clone, Copy, Debug)]
pub struct FloodConfig {
    /// The frames.
    pub layout: Layout,
    /// Sent at the start and not counted.
    pub warm_up: Nanos,
    /// How long to count after that.
    pub duration: Nanos,
    /// Time between two clock readings from which on it is a gap.
    pub gap_threshold: Nanos,
    /// Added to the threshold for each frame of a `tx` or `rx` call.
    pub frame_allowance: Nanos,
}

impl FloodConfig {
    /// With the thresholds of a trial.
    pub fn new(layout: Layout, warm_up: Nanos, duration: Nanos) -> Self {
        let (gap_threshold, frame_allowance) = (Nanos::from_micros(30), Nanos::from_micros(5));
        Self { layout, warm_up, duration, gap_threshold, frame_allowance }
    }
}

/// What came of it, the warm-up left out.
#[derive(Clone, PartialEq, Debug)]
pub struct Flood {
    /// When counting began.
    pub start: Instant<Monotonic>,
    /// How long was counted.
    pub counted: Nanos,
    /// Frames that the device took.
    pub sent: u64,
    /// Intact test frames that came back.
    pub received: u64,
    /// Damaged test frames that came back.
    pub corrupted: u64,
    /// Frames that are none of ours.
    pub foreign: u64,
    /// What the tester's own device lost meanwhile, warm-up included.
    pub device: Statistics,
    /// The times in which the tester's loop did not run, warm-up included.
    pub gaps: Vec<Gap>,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
}

/// Floods one queue, on the calling thread, which spins. `stop` ends it early and cleanly.
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
                // A device that has an end (a file) has nothing more to receive.
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
        // All that came: what stays in the ring would be lost to the next frames.
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
    /// Frames a second that were sent; `None` if nothing was counted.
    pub fn sent_pps(&self) -> Option<f64> {
        super::rate(self.sent, self.counted)
    }
    /// Frames a second that came back; `None` if nothing was counted or came.
    pub fn received_pps(&self) -> Option<f64> {
        super::rate(self.received, self.counted)
    }
}
