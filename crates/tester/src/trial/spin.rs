//! The busy loop of a trial.

use std::collections::VecDeque;
use std::iter::Peekable;
use std::sync::atomic::{AtomicBool, Ordering};

use live::device::{Device, Health, Statistics};
use live::pool::{Frame, Pool};
use units::{Instant, Monotonic, Nanos};

use super::{Counts, LoopCost, Trial, TrialConfig};
use crate::Error;
use crate::clock::TrialClock;
use crate::frame::{Encapsulation, FrameSize, Parsed, Template, parse};
use crate::gaps::GapWatch;
use crate::histogram::Histogram;
use crate::ledger::Ledger;
use crate::schedule::{Arrival, Arrivals};

/// Time between the start of the loop and the first frame.
const LEAD: Nanos = Nanos::from_millis(1);
/// Time between two checks of the device's health.
pub(super) const HEALTH_PERIOD: Nanos = Nanos::from_millis(250);
/// Time to wait for duplicates after the last missing frame has come back.
const SETTLE: Nanos = Nanos::from_millis(2);
/// Maximum number of frames per receive call.
pub(super) const RX_BATCH: usize = 64;

/// Runs a trial on one queue, on the calling thread, which busy-loops. Setting `stop` ends the trial early.
pub fn run(
    config: &TrialConfig,
    device: &mut dyn Device,
    queue: usize,
    pool: &mut Pool,
    clock: &impl TrialClock,
    stop: &AtomicBool,
) -> Result<Trial, Error> {
    let (arrivals, span, expected) = plan(config, device, queue)?;
    let before = device.statistics(queue);
    let mut state = Run::new(config, &arrivals, expected, pool, device, clock.now())?;
    state.begin(clock.now());
    let spun = state.spin(arrivals, span, device, queue, pool, clock, stop);
    state.give_back(pool);
    let (planned, interrupted, link_down_seen) = spun?;
    Ok(state.finish(planned, device.statistics(queue).since(&before), link_down_seen, interrupted))
}

/// Returns the arrivals of the schedule, the length of the period in which frames are due, and the expected number of
/// frames. Returns an error if the trial cannot be run.
pub(super) fn plan(config: &TrialConfig, device: &dyn Device, queue: usize) -> Result<(Arrivals, Nanos, u64), Error> {
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
    Ok((arrivals, span, expected))
}

/// Duration of a capture: the time of its last frame plus one mean gap; `None` if all frames are due at the same time.
fn list_span(list: &[Arrival]) -> Option<Nanos> {
    let last = list.last()?.offset;
    let gaps = list.len() as u64 - 1;
    (last > Nanos::ZERO).then(|| last + last / gaps + Nanos::from_nanos(1))
}

/// The prepared frames, one for each configured size and for each size that occurs in a capture.
struct Templates {
    /// Frames of the configured sizes, in the order in which they are sent. The pattern repeats.
    pattern: Vec<Template>,
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
        let pattern = match &config.sizes {
            Some(sizes) => sizes.pattern().iter().copied().map(make).collect::<Result<_, Error>>()?,
            None => vec![make(config.layout.size)?],
        };
        Ok(Self { pattern, others })
    }

    #[inline]
    fn of(&self, arrival: Arrival, sequence: u64) -> &Template {
        let usual = if self.pattern.len() == 1 { 0 } else { (sequence % self.pattern.len() as u64) as usize };
        let Some(octets) = arrival.data_octets else { return &self.pattern[usual] };
        // `new` prepared a frame for each size that occurs.
        let at = self.others.partition_point(|template| template.data() < octets as usize);
        self.others.get(at).unwrap_or(&self.pattern[usual])
    }
}

/// State of a running trial.
pub(super) struct Run<'a> {
    config: &'a TrialConfig,
    templates: Templates,
    start: Instant<Monotonic>,
    ledger: Ledger,
    /// Frames built but not yet accepted by the device. `due` has their sequence numbers and due times.
    pending: Vec<Frame>,
    due: VecDeque<(u64, Instant<Monotonic>)>,
    /// Whether the pool was empty when the next frame had to be built.
    no_buffer: bool,
    inbox: Vec<Frame>,
    /// For each flow, the lowest sequence number that would not count as reordered.
    next_expected: Vec<u64>,
    last_handover: Instant<Monotonic>,
    last_progress: Instant<Monotonic>,
    watch: GapWatch,
    counts: Counts,
    lateness: Histogram,
    cost: LoopCost,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        config: &'a TrialConfig,
        arrivals: &Arrivals,
        expected: u64,
        pool: &Pool,
        device: &dyn Device,
        now: Instant<Monotonic>,
    ) -> Result<Self, Error> {
        let templates = Templates::new(config, arrivals.recorded().unwrap_or_default(), pool, device)?;
        let flows = match config.layout.encapsulation {
            Encapsulation::Flows(flows) => flows.count as usize,
            _ => 1,
        };
        Ok(Self {
            config,
            templates,
            start: now + LEAD,
            // Room for the number of Poisson arrivals: 2 % plus 1,000 frames above the mean is more than 4 sigma for
            // every mean.
            ledger: Ledger::with_room((expected + expected / 50 + 1_000) as usize),
            pending: Vec::with_capacity(config.batch),
            due: VecDeque::with_capacity(config.batch),
            no_buffer: false,
            inbox: Vec::with_capacity(RX_BATCH),
            next_expected: vec![0; flows],
            last_handover: now + LEAD,
            last_progress: now + LEAD,
            watch: GapWatch::new(config.gap_threshold, now),
            counts: Counts::default(),
            lateness: Histogram::new(),
            cost: LoopCost::default(),
        })
    }

    /// Moves the start of the trial to just after `now`, because preparing the trial may have taken long.
    pub(super) fn begin(&mut self, now: Instant<Monotonic>) {
        self.start = now + LEAD;
        (self.last_handover, self.last_progress) = (self.start, self.start);
        self.watch = GapWatch::new(self.config.gap_threshold, now);
    }

    /// Time since the start of the trial.
    pub(super) fn elapsed(&self, now: Instant<Monotonic>) -> Nanos {
        now.since(self.start).unwrap_or(Nanos::ZERO)
    }

    /// Gives the unsent frames back to their pool.
    pub(super) fn give_back(&mut self, pool: &mut Pool) {
        for frame in self.pending.drain(..) {
            pool.give(frame);
        }
    }

    /// Builds the result. `planned` is the time in which frames were due.
    pub(super) fn finish(self, planned: Nanos, device: Statistics, link_down_seen: u64, interrupted: bool) -> Trial {
        Trial {
            start: self.start,
            warm_up: self.config.warm_up,
            planned,
            sending: self.last_handover.since(self.start).unwrap_or(Nanos::ZERO).max(planned),
            ledger: self.ledger,
            counts: self.counts,
            gaps: self.watch.into_gaps(),
            lateness: self.lateness,
            cost: self.cost,
            device,
            link_down_seen,
            interrupted,
        }
    }

    /// Records a pass of a loop that runs several lanes.
    pub(super) fn pass(&mut self, round: Instant<Monotonic>, now: Instant<Monotonic>, busy: bool) {
        let gaps = self.watch.count();
        self.watch.at(now);
        if self.watch.count() == gaps {
            self.account(now.since(round).unwrap_or(Nanos::ZERO), !busy);
        }
    }

    /// Whether all frames have been sent, and no more are expected to arrive.
    pub(super) fn is_done(&self, arrivals: &mut Peekable<Arrivals>, span: Nanos, now: Instant<Monotonic>) -> bool {
        let more = !self.pending.is_empty() || arrivals.peek().is_some_and(|next| next.offset < span);
        !more && self.is_drained(now)
    }

    /// Records a frame that arrived at the port that must receive it.
    pub(super) fn arrived(&mut self, parsed: Parsed, picked_up: Instant<Monotonic>) {
        self.last_progress = picked_up;
        self.record(parsed, picked_up);
    }

    /// Counts a frame that came back to a port other than the one that must receive it.
    pub(super) fn looped(&mut self, picked_up: Instant<Monotonic>) {
        self.counts.looped += 1;
        self.last_progress = picked_up;
    }

    /// Loops until all frames have been sent, and each has come back or timed out. Returns the time in which frames
    /// were due, whether the trial was interrupted, and how often the link was found down.
    #[allow(clippy::too_many_arguments)] // the arguments of run()
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
            if self.is_done(&mut arrivals, span, now) {
                return Ok((span, interrupted, link_down_seen));
            }
        }
    }

    /// Builds the frames that are due, at most one batch. Frames that are already too late count as unsent.
    #[inline]
    pub(super) fn build(
        &mut self,
        arrivals: &mut Peekable<Arrivals>,
        span: Nanos,
        now: Instant<Monotonic>,
        pool: &mut Pool,
    ) {
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
            let template = self.templates.of(arrival, self.ledger.len());
            let Some(mut frame) = pool.take() else {
                self.no_buffer = true; // retried in the next pass, until the frame is too late
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

    /// Hands the built frames to the device. Frames that the device does not accept in time count as unsent.
    #[inline]
    pub(super) fn send(
        &mut self,
        device: &mut dyn Device,
        queue: usize,
        pool: &mut Pool,
        clock: &impl TrialClock,
    ) -> usize {
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
            // A frame is never sent early: `build` waits until it is due.
            self.lateness.record(before.since(due).unwrap_or(Nanos::ZERO).as_nanos());
        }
        self.counts.sent += taken as u64;
        if taken > 0 {
            (self.last_handover, self.last_progress) = (after, after);
        }
        taken
    }

    /// Receives frames and records them. The arrival time of all these frames is the clock reading right after the
    /// call.
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
    pub(super) fn record(&mut self, parsed: Parsed, picked_up: Instant<Monotonic>) {
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
        // If the due time in the header does not match the sequence number, the frame is left over from an earlier
        // trial with the same stream number.
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
        let flow = (sequence % self.next_expected.len() as u64) as usize;
        if sequence < self.next_expected[flow] {
            counts.reordered += 1;
        } else {
            self.next_expected[flow] = sequence + 1;
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

    /// Whether the wait for frames is over: it timed out, or all frames have come back.
    fn is_drained(&self, now: Instant<Monotonic>) -> bool {
        let since = |then| now.since(then).unwrap_or(Nanos::ZERO);
        since(self.last_handover) >= self.config.drain
            || (self.counts.lost() == 0 && since(self.last_progress) >= SETTLE)
    }
}
