//! The NIC's port: the traffic's frames arrive on one wire and go into the queues, and answers leave on another wire.
//!
//! Frames are fetched as late as possible. When a component looks at the rings, all frames up to that time are put into
//! them. So a worker that polls needs no event per frame. Only an armed interrupt must be notified of each frame.

use units::Nanos;

use super::queue::{QueuePair, Waiting};
use super::tally::Tally;
use crate::At;
use crate::engine::Agenda;
use crate::hw::ModelError;
use crate::hw::aspm::Aspm;
use crate::hw::link::{Passage, Wire};
use crate::hw::nic::NicModel;
use crate::outcome::Drop;
use crate::random::Random;
use crate::traffic::{Frame, Source};

/// A kind of traffic and its next frame.
#[derive(Debug)]
pub struct Feed {
    source: Source,
    next: Option<Frame>,
    /// The queue for all frames of the feed. `None` if they are spread over all queues.
    queue: Option<u32>,
    /// Size of the answers in bytes. `None` if an answer is as large as its frame.
    answer: Option<u32>,
}

impl Feed {
    pub fn new(mut source: Source, queue: Option<u32>, answer: Option<u32>) -> Self {
        let next = source.draw();
        Self { source, next, queue, answer }
    }
}

/// The next frame.
#[derive(Debug)]
struct Coming {
    feed: usize,
    frame: Frame,
    passage: Passage,
    /// When the frame is in memory.
    due: At,
    /// The state of the wire after the frame.
    line: Wire,
    aspm: Option<Aspm>,
}

/// The state of the port.
#[derive(Debug)]
pub struct Port {
    pub nic: NicModel,
    pub queues: Vec<QueuePair>,
    feeds: Vec<Feed>,
    /// When the next frame of each feed arrives.
    order: Agenda,
    /// Queues that have received a frame for which their workers wait, by polling or by interrupt. The component that
    /// fetches frames notifies the workers and empties this list.
    pub told: Vec<usize>,
    /// Number of queues whose workers skip polls until the next frame.
    watched: usize,
    /// Whether arrivals depend on sent frames (request and response).
    closed: bool,
    line: Wire,
    out: Wire,
    aspm: Option<Aspm>,
    random: Random,
    /// The random delay of the next frame in the NIC, in addition to the minimum.
    jitter: Nanos,
    coming: Option<Coming>,
    /// When the last frame was in memory. Later frames reach memory no earlier.
    last_due: At,
    /// The frame size of the last transfer, in bytes, and the time on the bus for that size.
    bus: (u32, Nanos),
}

impl Port {
    pub fn new(
        nic: NicModel,
        queues: Vec<QueuePair>,
        feeds: Vec<Feed>,
        aspm: Option<Aspm>,
        random: Random,
    ) -> Result<Self, ModelError> {
        nic.validate()?;
        let (line, out) = (Wire::new(&nic.link)?, Wire::new(&nic.link)?);
        let last_due = At::ORIGIN;
        let bus = (0, Nanos::ZERO);
        let mut order = Agenda::new(feeds.len());
        feeds.iter().enumerate().for_each(|(feed, f)| order.set(feed, f.next.map(|frame| frame.at)));
        let mut port = Self {
            order,
            told: Vec::with_capacity(queues.len()),
            watched: 0,
            closed: feeds.iter().any(|feed| feed.source.round_trip().is_some()),
            nic,
            queues,
            feeds,
            line,
            out,
            aspm,
            random,
            jitter: Nanos::ZERO,
            coming: None,
            last_due,
            bus,
        };
        port.draw_jitter();
        port.look();
        Ok(port)
    }

    fn on_bus(&mut self, octets: u32) -> Nanos {
        if self.bus.0 != octets {
            self.bus = (octets, self.nic.bus_time(octets.into()));
        }
        self.bus.1
    }

    fn draw_jitter(&mut self) {
        if self.nic.jitter > Nanos::ZERO {
            self.jitter = self.random.uniform(Nanos::ZERO, self.nic.jitter);
        }
    }

    /// Finds the frame that arrives next.
    fn look(&mut self) {
        let first = self.order.next().and_then(|(_, feed)| self.feeds[feed].next.map(|frame| (feed, frame)));
        self.coming = first.map(|(feed, frame)| {
            let mut line = self.line.clone();
            let passage = line.send(frame.at, frame.octets.into());
            let mut aspm = self.aspm.clone();
            let link = aspm.as_mut().map_or(Nanos::ZERO, |aspm| aspm.access(passage.received));
            let due = passage.received + self.nic.receive + self.jitter + self.on_bus(frame.octets) + link;
            Coming { feed, frame, passage, due: due.max(self.last_due), line, aspm }
        });
    }

    /// Draws the feed's next frame.
    fn draw(&mut self, feed: usize) {
        let source = &mut self.feeds[feed];
        source.next = source.source.draw();
        self.order.set(feed, source.next.map(|frame| frame.at));
    }

    /// Sets whether the worker of `queue` is notified of the next frame even while the queue's interrupt is masked.
    pub fn watch(&mut self, queue: usize, watched: bool) {
        let before = std::mem::replace(&mut self.queues[queue].watched, watched);
        self.watched = self.watched + usize::from(watched) - usize::from(before);
    }

    /// Whether some queue has a worker that must be notified of the next frame.
    pub fn is_watched(&self) -> bool {
        self.watched > 0
    }

    /// When the next frame will be in memory. `None` if there is none.
    #[inline]
    pub fn next_due(&self) -> Option<At> {
        self.coming.as_ref().map(|coming| coming.due)
    }

    /// Puts all frames that are in memory by `now` into the rings.
    #[inline]
    pub fn fetch(&mut self, now: At, tally: &mut Tally) {
        while self.coming.as_ref().is_some_and(|coming| coming.due <= now) {
            let Some((queue, waiting)) = self.receive(tally) else { return };
            let pair = &mut self.queues[queue];
            if !pair.arrive(waiting) {
                self.lose(queue, &waiting, Drop::RxFull, waiting.due, tally);
            } else if pair.watched || pair.is_armed() {
                self.told.push(queue);
            }
        }
    }

    /// Takes the next frame off the wire.
    fn receive(&mut self, tally: &mut Tally) -> Option<(usize, Waiting)> {
        let (queue, waiting) = self.next_frame()?;
        tally.offered(queue, waiting.arrival);
        Some((queue, waiting))
    }

    fn next_frame(&mut self) -> Option<(usize, Waiting)> {
        let Coming { feed, frame, passage, due, line, aspm } = self.coming.take()?;
        (self.line, self.aspm, self.last_due) = (line, aspm, due);
        let queues = self.queues.len() as u64;
        self.draw(feed);
        let source = &self.feeds[feed];
        let queue = match frame.queue.or(source.queue) {
            Some(queue) => u64::from(queue) % queues,
            None if queues == 1 => 0,
            None if source.source.round_trip().is_some() => u64::from(frame.tag) % queues,
            None => self.random.below(queues),
        } as usize;
        self.draw_jitter();
        self.look();
        let Frame { octets, tag, .. } = frame;
        Some((queue, Waiting { arrival: passage.received, due, visible: due, octets, feed: feed as u32, tag }))
    }

    /// Calls `each` for every frame that arrives before `end`: with its queue, its arrival time, the time when it is in
    /// memory, and the size of its answer.
    pub fn arrivals(mut self, end: At, mut each: impl FnMut(usize, At, At, u32)) {
        while self.coming.as_ref().is_some_and(|coming| coming.passage.received < end) {
            let Some((queue, Waiting { arrival, due, octets, feed, .. })) = self.next_frame() else { return };
            each(queue, arrival, due, self.feeds[feed as usize].answer.unwrap_or(octets));
        }
    }

    /// Notes that a frame was lost at `now`.
    pub fn lose(&mut self, queue: usize, frame: &Waiting, why: Drop, now: At, tally: &mut Tally) {
        tally.dropped(queue, frame.arrival, why);
        self.feedback(frame, |source| source.lost(frame.tag, now));
    }

    /// Notes that the answer to `frame` was sent; its last bit is on the wire at `departure`.
    #[inline]
    pub fn answered(&mut self, frame: &Waiting, departure: At) {
        self.feedback(frame, |source| source.answered(frame.tag, departure));
    }

    #[inline]
    fn feedback(&mut self, frame: &Waiting, tell: impl FnOnce(&mut Source)) {
        if !self.closed {
            return;
        }
        let feed = &mut self.feeds[frame.feed as usize];
        if feed.source.round_trip().is_none() {
            return;
        }
        tell(&mut feed.source);
        // The frame drawn before may be later than the one that this answer causes, so the order is decided again.
        if let (Source::Request(source), Some(drawn)) = (&mut feed.source, feed.next.take()) {
            source.put_back(drawn);
        }
        self.draw(frame.feed as usize);
        self.look();
    }

    /// Sends the answer to `frame` from `queue` at `now`. Returns when the answer's last bit leaves, and its size in
    /// bytes. `None` if the transmit ring is full.
    #[inline]
    pub fn send(&mut self, queue: usize, frame: &Waiting, now: At) -> Option<(At, u32)> {
        let octets = self.feeds[frame.feed as usize].answer.unwrap_or(frame.octets);
        let way = self.on_bus(octets);
        let departure = self.queues[queue].send(now, octets, &self.nic, way, &mut self.out)?;
        Some((departure, octets))
    }

    /// Closes the counts at the end of the simulation.
    pub fn finish(&mut self, end: At, tally: &mut Tally) {
        while self.coming.as_ref().is_some_and(|coming| coming.passage.received < end) {
            let in_memory = self.next_due().is_some_and(|due| due < end);
            let Some((queue, waiting)) = self.receive(tally) else { break };
            if !in_memory {
                tally.in_flight(queue, waiting.arrival);
            } else if !self.queues[queue].arrive(waiting) {
                tally.dropped(queue, waiting.arrival, Drop::RxFull);
            }
        }
        self.queues.iter().for_each(|queue| queue.finish(tally));
    }
}
