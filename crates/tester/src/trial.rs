//! One trial: generator and receiver in one spinning loop over one queue of one device.
//!
//! ```text
//!  now ──► build all frames that are due ──► tx ──► rx, pick-up time ──► record ──► now …
//! ```
//! A frame's latency runs from the time at which the schedule meant it to be sent to the clock reading
//! right after the `rx` that brought it back. It therefore holds the tester's own lateness, its `tx`
//! call, and its polling; [`Trial::lateness`] and [`LoopCost`] say how much that can be.
//!
//! **Gaps.** The loop reads its clock before and after `tx`, after an `rx` that brought frames, and once
//! a round. Two readings further apart than `gap_threshold` are a gap. A `tx` call is part of the
//! measured path (on veth it runs the tested device's receive softirq on this CPU), so a long one is not
//! by itself the host's doing; but the host may take the CPU within it. Hence a `tx` of n frames is a gap
//! only when it takes more than `gap_threshold` + n * `tx_allowance`.

use std::collections::VecDeque;
use std::iter::Peekable;
use std::sync::atomic::{AtomicBool, Ordering};

use live::device::{Device, Health, Statistics};
use live::pool::{Frame, Pool};
use units::{Instant, Monotonic, Nanos};

use crate::Error;
use crate::clock::TrialClock;
use crate::frame::{FrameSize, Layout, Parsed, Template, parse};
use crate::gaps::{Gap, GapWatch, Recovery, Split, split};
use crate::histogram::Histogram;
use crate::ledger::Ledger;
use crate::schedule::{Arrival, Arrivals, Schedule};
use crate::search::Outcome;

/// How long before its first frame a trial starts its loop.
const LEAD: Nanos = Nanos::from_millis(1);
/// How often the device's health is asked for.
const HEALTH_PERIOD: Nanos = Nanos::from_millis(250);
/// How long after the last missing frame came back a trial still listens, for duplicates.
const SETTLE: Nanos = Nanos::from_millis(2);
/// Frames taken from the receive ring at a time.
const RX_BATCH: usize = 64;

/// What to do in a trial.
#[derive(Clone, Debug)]
pub struct TrialConfig {
    /// The frames.
    pub layout: Layout,
    /// When they are due.
    pub schedule: Schedule,
    /// For random schedules.
    pub seed: u64,
    /// Tells this trial's frames from those of the trial before.
    pub stream: u16,
    /// Sent at the start and left out of all latencies and losses of [`Trial::split`].
    pub warm_up: Nanos,
    /// How long to send after the warm-up.
    pub duration: Nanos,
    /// How long to wait for frames after the last one was sent (RFC 2544, 23 d: 2 s). The trial ends
    /// earlier if all have come back.
    pub drain: Nanos,
    /// A frame that is later than this is not sent but counted as unsent: after a long gap a flood would
    /// test the rings instead of the schedule.
    pub max_lateness: Nanos,
    /// Frames handed to the device at a time.
    pub batch: usize,
    /// Time between two clock readings from which on it is a gap.
    pub gap_threshold: Nanos,
    /// Added to the threshold for each frame of a `tx` call.
    pub tx_allowance: Nanos,
    /// The most frames that a trial may intend, at 12 octets each.
    pub max_frames: u64,
}

impl TrialConfig {
    /// One second after 0.1 s of warm-up, with the defaults of `apus bench`.
    pub fn new(layout: Layout, schedule: Schedule) -> Self {
        Self {
            layout,
            schedule,
            seed: 1,
            stream: 1,
            warm_up: Nanos::from_millis(100),
            duration: Nanos::from_secs(1),
            drain: Nanos::from_millis(100),
            max_lateness: Nanos::from_millis(1),
            batch: 64,
            gap_threshold: Nanos::from_micros(30),
            // 6,900 cycles a frame at about 2 GHz for tx and the peer's receive softirq on veth
            // (reference/stack.md B1), with room for a slower machine.
            tx_allowance: Nanos::from_micros(5),
            max_frames: 20_000_000,
        }
    }
}

/// Frames counted in a trial, warm-up included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Frames that the schedule wanted sent: sent + unsent.
    pub intended: u64,
    /// Frames that the device took.
    pub sent: u64,
    /// Not sent: already later than `max_lateness` when the loop came round.
    pub unsent_late: u64,
    /// Not sent: the transmit ring stayed full until they were later than `max_lateness`.
    pub unsent_tx_full: u64,
    /// Not sent: no slot was free until they were later than `max_lateness`.
    pub unsent_no_buffer: u64,
    /// Frames that came back, each counted once.
    pub received: u64,
    /// Frames that came back once more.
    pub duplicates: u64,
    /// Frames with a sequence number lower than one that came before (RFC 4737, 3.3); without duplicates.
    pub reordered: u64,
    /// Frames whose test header was damaged. They also count as lost.
    pub corrupted: u64,
    /// Frames that are none of this trial's.
    pub foreign: u64,
}

impl Counts {
    /// Frames sent that did not come back.
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }
    /// Frames intended but not sent: the tester's failure.
    pub fn unsent(&self) -> u64 {
        self.unsent_late + self.unsent_tx_full + self.unsent_no_buffer
    }
}

/// What the tester's own loop cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LoopCost {
    /// Rounds of the loop.
    pub rounds: u64,
    /// Rounds in which nothing was sent or received.
    pub idle_rounds: u64,
    /// Time in idle rounds outside gaps.
    pub idle: Nanos,
    /// Time in the other rounds outside gaps: building, `tx`, `rx`, recording.
    pub busy: Nanos,
}

/// What came of a trial.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The time from which the schedule's offsets count.
    pub start: Instant<Monotonic>,
    /// The warm-up, as configured.
    pub warm_up: Nanos,
    /// How long frames were due: as configured, or until the schedule ended or the trial was interrupted.
    pub planned: Nanos,
    /// From the start to the last frame's hand-over, at least `planned`.
    pub sending: Nanos,
    /// What became of each intended frame.
    pub ledger: Ledger,
    /// Sums, warm-up included.
    pub counts: Counts,
    /// The times in which the tester's loop did not run.
    pub gaps: Vec<Gap>,
    /// Actual send (the reading before `tx`) minus intended send, for each frame sent.
    pub lateness: Histogram,
    /// What the loop cost.
    pub cost: LoopCost,
    /// What the tester's own device lost meanwhile; such frames were not lost by the tested device.
    pub device: Statistics,
    /// Times that the tester's link was found down.
    pub link_down_seen: u64,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
}

impl Trial {
    /// Sorts the samples by whether they met a gap of this loop or of the tested device's.
    pub fn split(&self, tested: &[Gap], recovery: Recovery) -> Split {
        split(&self.ledger, self.start, self.warm_up, &self.gaps, tested, recovery)
    }
    /// What a search is told of it. Losses that the tester's own device counted are the tester's failure.
    pub fn outcome(&self) -> Outcome {
        let own = self.device.rx_ring_full + self.device.rx_no_buffer;
        let own = own.min(self.counts.lost());
        Outcome { sent: self.counts.sent, lost: self.counts.lost() - own, unsent: self.counts.unsent() + own }
    }
    /// Frames a second that the schedule wanted.
    pub fn intended_pps(&self) -> Option<f64> {
        rate(self.counts.intended, self.planned)
    }
    /// Frames a second that were sent.
    pub fn offered_pps(&self) -> Option<f64> {
        rate(self.counts.sent, self.sending)
    }
    /// Frames a second that came back, over the time of sending.
    pub fn received_pps(&self) -> Option<f64> {
        rate(self.counts.received, self.sending)
    }
    /// Frames a second that this loop could send and receive if all rounds were like its busy ones;
    /// `None` if there were none. On veth that includes the softirqs that run within `tx`.
    pub fn ceiling_pps(&self) -> Option<f64> {
        rate(self.counts.sent, self.cost.busy)
    }
    /// The mean time of a round in which nothing happened: how finely the loop looks.
    pub fn idle_round_ns(&self) -> Option<f64> {
        (self.cost.idle_rounds > 0).then(|| self.cost.idle.as_nanos() as f64 / self.cost.idle_rounds as f64)
    }
}

fn rate(frames: u64, span: Nanos) -> Option<f64> {
    (span > Nanos::ZERO && frames > 0).then(|| frames as f64 * 1e9 / span.as_nanos() as f64)
}

/// Runs a trial on one queue, on the calling thread, which spins. `stop` ends it early and cleanly.
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
            format!("expected a batch from 1 on and one of the {} queues of {}", device.queues(), device.name()),
        ));
    }
    if expected > config.max_frames {
        return Err(Error::invalid(
            format!("a trial of {expected} frames"),
            format!("expected at most {} (12 octets each): shorten it or lower the rate", config.max_frames),
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

/// How long a capture lasts: to its last frame and one mean gap; `None` if all frames are due together.
fn list_span(list: &[Arrival]) -> Option<Nanos> {
    let last = list.last()?.offset;
    let gaps = list.len() as u64 - 1;
    (last > Nanos::ZERO).then(|| last + last / gaps + Nanos::from_nanos(1))
}

/// The frame of the trial's size, and those of a capture's.
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
                    format!("frames of {} octets (with FCS) on {}", size.octets(), device.name()),
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
    /// Built and not yet taken by the device, and their sequence numbers and due times.
    pending: Vec<Frame>,
    due: VecDeque<(u64, Instant<Monotonic>)>,
    /// Whether the pool was empty when the next frame was to be built.
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
    /// Spins until all that was due is sent and has come back or had its time. Returns for how long
    /// frames were due, whether it was interrupted, and how often the link was found down.
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

    /// Builds the frames that are due, at most a batch; those that are too late become unsent.
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

    /// Hands the device what is built; gives up what it has not taken in time.
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

    /// Takes what has come, all with the time right after it was taken, and records it.
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

    /// Whether nothing more is to be waited for, all having been sent.
    fn is_drained(&self, now: Instant<Monotonic>) -> bool {
        let since = |then| now.since(then).unwrap_or(Nanos::ZERO);
        since(self.last_handover) >= self.config.drain
            || (self.counts.lost() == 0 && since(self.last_progress) >= SETTLE)
    }
}
