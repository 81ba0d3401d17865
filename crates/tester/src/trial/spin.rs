//! The loop of a trial.

use std::collections::VecDeque;
use std::iter::Peekable;
use std::sync::atomic::{AtomicBool, Ordering};

use live::device::{Device, Health};
use live::pool::{Frame, Pool};
use units::{Instant, Monotonic, Nanos};

use super::{Counts, LoopCost, Trial, TrialConfig};
use crate::Error;
use crate::clock::TrialClock;
use crate::frame::{FrameSize, Parsed, Template, parse};
use crate::gaps::GapWatch;
use crate::histogram::Histogram;
use crate::ledger::Ledger;
use crate::schedule::{Arrival, Arrivals};

/// Time between the start of the loop and the first frame.
const LEAD: Nanos = Nanos::from_millis(1);
/// Time between two checks of the device's health.
const HEALTH_PERIOD: Nanos = Nanos::from_millis(250);
/// Time to listen for duplicates after the last missing frame came back.
const SETTLE: Nanos = Nanos::from_millis(2);
/// Frames per receive call.
const RX_BATCH: usize = 64;

/// Runs a trial on one queue, on the calling thread, which busy-loops. Setting `stop` ends it early.
pub fn run(
    config: &TrialConfig,
    device: &mut dyn Device,
    queue: usize,
    pool: &mut Pool,
    clock: &impl TrialClock,
    stop: &AtomicBool,
) -> Result<Trial, Error> {
    let arrivals = config.schedule.arrivals(config.seed)?;
    let span = config.warm_up + config.duration;
    let (span, expected) = match arrivals.recorded() {
        Some(list) => (span.min(list_span(list).unwrap_or(span)), list.len() as u64),
        None => (span, config.schedule.expected_frames(span).unwrap_or(u64::MAX)),
    };
    if config.batch == 0 || queue >= device.queues() {
        return Err(Error::invalid(
            format!("batch {} on queue {queue}", config.batch),
            format!("expected a batch of at least 1, and one of the {} queues of {}", device.queues(), device.name()),
        ));
    }
    if expected > config.max_frames {
        return Err(Error::invalid(
            format!("a trial of {expected} frames"),
            format!(
                "expected at most {} (12 bytes of memory each): shorten the trial or lower the rate",
                config.max_frames
            ),
        ));
    }
    let templates = Templates::new(config, arrivals.recorded().unwrap_or_default(), pool, device)?;
    // Poisson: 2 % and 1,000 frames above the mean are more than 4 sigma for every mean.
    let ledger = Ledger::with_room((expected + expected / 50 + 1_000) as usize);
    let before = device.statistics(queue);
    let now = clock.now();
    let mut state = Run {
        config,
        templates,
        start: now + LEAD,
        ledger,
        pending: Vec::with_capacity(config.batch),
        due: VecDeque::with_capacity(config.batch),
        no_buffer: false,
        inbox: Vec::with_capacity(RX_BATCH),
        next_expected: 0,
        last_handover: now + LEAD,
        last_progress: now + LEAD,
        watch: GapWatch::new(config.gap_threshold, now),
        counts: Counts::default(),
        lateness: Histogram::new(),
        cost: LoopCost::default(),
    };
    let spun = state.spin(arrivals, span, device, queue, pool, clock, stop);
    for frame in state.pending.drain(..) {
        pool.give(frame);
    }
    let (planned, interrupted, link_down_seen) = spun?;
    let after = device.statistics(queue);
    let sending = state.last_handover.since(state.start).unwrap_or(Nanos::ZERO).max(planned);
    Ok(Trial {
        start: state.start,
        warm_up: config.warm_up,
        planned,
        sending,
        ledger: state.ledger,
        counts: state.counts,
        gaps: state.watch.into_gaps(),
        lateness: state.lateness,
        cost: state.cost,
        device: after.since(&before),
        link_down_seen,
        interrupted,
    })
}

/// Duration of a capture: up to its last frame plus one mean gap; `None` if all frames are due together.
fn list_span(list: &[Arrival]) -> Option<Nanos> {
    let last = list.last()?.offset;
    let gaps = list.len() as u64 - 1;
    (last > Nanos::ZERO).then(|| last + last / gaps + Nanos::from_nanos(1))
}

/// The frame of the trial's size, and those of a capture's sizes.
struct Templates {
    usual: Template,
    others: Vec<Template>, // in order of size
}

impl Templates {
    fn new(config: &TrialConfig, list: &[Arrival], pool: &Pool, device: &dyn Device) -> Result<Self, Error> {
        let mut sizes: Vec<u32> = list.iter().filter_map(|arrival| arrival.data_octets).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let room = match device.capabilities().longest_frame {
            0 => pool.longest_frame(),
            n => pool.longest_frame().min(n as usize),
        };
        let make = |size: FrameSize| {
            if size.data() > room {
                return Err(Error::invalid(
                    format!("frames of {} bytes (with FCS) on {}", size.octets(), device.name()),
                    format!("expected at most {}, or a pool with larger frames", room + 4),
                ));
            }
            Template::new(&config.layout, size, config.stream)
        };
        let others = sizes.into_iter().map(|n| make(FrameSize::from_data(n)?)).collect::<Result<_, Error>>()?;
        Ok(Self { usual: make(config.layout.size)?, others })
    }

    #[inline]
    fn of(&self, arrival: Arrival) -> &Template {
        let Some(octets) = arrival.data_octets else { return &self.usual };
        // new() made one for each size that occurs.
        let at = self.others.partition_point(|template| template.data() < octets as usize);
        self.others.get(at).unwrap_or(&self.usual)
    }
}

struct Run<'a> {
    config: &'a TrialConfig,
    templates: Templates,
    start: Instant<Monotonic>,
    ledger: Ledger,
    /// Frames built but not yet accepted by the device, with their sequence numbers and due times.
    pending: Vec<Frame>,
    due: VecDeque<(u64, Instant<Monotonic>)>,
    /// Whether the pool was empty when the next frame had to be built.
    no_buffer: bool,
    inbox: Vec<Frame>,
    next_expected: u64,
    last_handover: Instant<Monotonic>,
    last_progress: Instant<Monotonic>,
    watch: GapWatch,
    counts: Counts,
    lateness: Histogram,
    cost: LoopCost,
}

impl Run<'_> {
    /// Loops until every frame was sent and has come back or timed out. Returns how long frames were due, whether it
    /// was interrupted, and how often the link was found down.
    #[allow(clippy::too_many_arguments)] // the world that run() was given
    fn spin(
        &mut self,
        arrivals: Arrivals,
        mut span: Nanos,
        device: &mut dyn Device,
        queue: usize,
        pool: &mut Pool,
        clock: &impl TrialClock,
        stop: &AtomicBool,
    ) -> Result<(Nanos, bool, u64), Error> {
        let mut arrivals = arrivals.peekable();
        let (mut interrupted, mut link_down_seen) = (false, 0);
        let mut now = clock.now();
        let mut health_at = now + HEALTH_PERIOD;
        loop {
            let (round, gaps) = (now, self.watch.count());
            if now >= health_at {
                link_down_seen += u64::from(device.health()? == Health::Down);
                health_at = now + HEALTH_PERIOD;
            }
            if !interrupted && stop.load(Ordering::Relaxed) {
                interrupted = true;
                span = span.min(now.since(self.start).unwrap_or(Nanos::ZERO));
            }
            self.build(&mut arrivals, span, now, pool);
            let sent = self.send(device, queue, pool, clock);
            let received = self.receive(device, queue, pool, clock);
            now = clock.now();
            self.watch.at(now);
            if self.watch.count() == gaps {
                self.account(now.since(round).unwrap_or(Nanos::ZERO), sent + received == 0);
            }
            let more = !self.pending.is_empty() || arrivals.peek().is_some_and(|next| next.offset < span);
            if !more && self.is_drained(now) {
                return Ok((span, interrupted, link_down_seen));
            }
        }
    }

    /// Builds the frames that are due, at most one batch; those that are too late count as unsent.
    #[inline]
    fn build(&mut self, arrivals: &mut Peekable<Arrivals>, span: Nanos, now: Instant<Monotonic>, pool: &mut Pool) {
        while self.pending.len() < self.config.batch {
            let is_due = |next: &Arrival| next.offset < span && self.start + next.offset <= now;
            let Some(arrival) = arrivals.peek().copied().filter(is_due) else { return };
            let due = self.start + arrival.offset;
            if self.is_too_late(due, now) {
                arrivals.next();
                let sequence = self.ledger.intend(arrival.offset);
                self.ledger.unsent(sequence);
                let counter = match (self.pending.is_empty(), self.no_buffer) {
                    (false, _) => &mut self.counts.unsent_tx_full,
                    (true, true) => &mut self.counts.unsent_no_buffer,
                    (true, false) => &mut self.counts.unsent_late,
                };
                *counter += 1;
                self.counts.intended += 1;
                continue;
            }
            let template = self.templates.of(arrival);
            let Some(mut frame) = pool.take() else {
                self.no_buffer = true; // tried again in the next round, until it is too late
                return;
            };
            self.no_buffer = false;
            // Templates::new() checked that every size fits.
            let fits = pool.set_len(&mut frame, template.data());
            debug_assert!(fits, "a template longer than a slot");
            arrivals.next();
            let sequence = self.ledger.intend(arrival.offset);
            self.counts.intended += 1;
            template.write(pool.bytes_mut(&mut frame), sequence, due);
            self.pending.push(frame);
            self.due.push_back((sequence, due));
        }
    }

    fn is_too_late(&self, due: Instant<Monotonic>, now: Instant<Monotonic>) -> bool {
        now.since(due).is_some_and(|late| late > self.config.max_lateness)
    }

    /// Hands the built frames to the device; gives up those not accepted in time.
    #[inline]
    fn send(&mut self, device: &mut dyn Device, queue: usize, pool: &mut Pool, clock: &impl TrialClock) -> usize {
        if self.pending.is_empty() {
            return 0;
        }
        let before = clock.now();
        self.watch.at(before);
        let too_late = self.due.iter().take_while(|(_, due)| self.is_too_late(*due, before)).count();
        for (frame, (sequence, _)) in self.pending.drain(..too_late).zip(self.due.drain(..too_late)) {
            pool.give(frame);
            self.ledger.unsent(sequence);
            self.counts.unsent_tx_full += 1;
        }
        if self.pending.is_empty() {
            return 0;
        }
        let taken = device.tx(queue, pool, &mut self.pending);
        let after = clock.now();
        self.watch.after_work(after, self.config.tx_allowance * taken as u64);
        for (_, due) in self.due.drain(..taken) {
            // Never sent early: build() waits until it is due.
            self.lateness.record(before.since(due).unwrap_or(Nanos::ZERO).as_nanos());
        }
        self.counts.sent += taken as u64;
        if taken > 0 {
            (self.last_handover, self.last_progress) = (after, after);
        }
        taken
    }

    /// Receives frames, all with the time right after the call, and records them.
    #[inline]
    fn receive(&mut self, device: &mut dyn Device, queue: usize, pool: &mut Pool, clock: &impl TrialClock) -> usize {
        let mut inbox = std::mem::take(&mut self.inbox);
        let taken = device.rx(queue, pool, &mut inbox, RX_BATCH);
        if taken > 0 {
            let picked_up = clock.now();
            self.watch.at(picked_up);
            self.last_progress = picked_up;
            for frame in inbox.drain(..) {
                self.record(parse(pool.bytes(&frame)), picked_up);
                pool.give(frame);
            }
        }
        self.inbox = inbox;
        taken
    }

    #[inline]
    fn record(&mut self, parsed: Parsed, picked_up: Instant<Monotonic>) {
        let counts = &mut self.counts;
        let header = match parsed {
            Parsed::Test(header) if header.stream == self.config.stream => header,
            Parsed::Corrupted => {
                counts.corrupted += 1;
                return;
            }
            Parsed::Test(_) | Parsed::Foreign => {
                counts.foreign += 1;
                return;
            }
        };
        // A frame whose time is not that of its number is left over from a trial with the same stream.
        let ours = header.sequence_below(self.ledger.len()).filter(|sequence| {
            self.ledger.offset(*sequence).map(|offset| self.start + offset) == Some(header.intended)
        });
        let (Some(sequence), Some(latency)) = (ours, picked_up.since(header.intended)) else {
            counts.foreign += 1;
            return;
        };
        if !self.ledger.received(sequence, latency) {
            counts.duplicates += 1;
            return;
        }
        counts.received += 1;
        if sequence < self.next_expected {
            counts.reordered += 1;
        } else {
            self.next_expected = sequence + 1;
        }
    }

    fn account(&mut self, took: Nanos, idle: bool) {
        self.cost.rounds += 1;
        if idle {
            self.cost.idle_rounds += 1;
            self.cost.idle += took;
        } else {
            self.cost.busy += took;
        }
    }

    /// Whether nothing more can arrive.
    fn is_drained(&self, now: Instant<Monotonic>) -> bool {
        let since = |then| now.since(then).unwrap_or(Nanos::ZERO);
        since(self.last_handover) >= self.config.drain
            || (self.counts.lost() == 0 && since(self.last_progress) >= SETTLE)
    }
}
