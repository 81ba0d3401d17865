//! The sensor of a receive queue: [`host::watch`] on its NAPI instance.
//!
//! Once a second, [`Queues`] also looks which NAPI instance serves each queue (an interface that went down and up has
//! new ones), and which moderation there is beside the steered one.

use std::sync::{Arc, Mutex, PoisonError};

use host::knob::{Access, Coalesce, Error, Napi, Setting as _, Value, napis_of};
use host::watch::{BUCKETS, NapiCounts, NapiWatch, bounds};
use policy::moderation::Delays;
use units::{Instant, Nanos};

use super::QueueSeen;
use crate::seam::{Blind, Reading, Sensor};

/// Time between two looks at the NAPI instances. One look costs two requests to the kernel for each interface.
const LOOK_EVERY: Nanos = Nanos::from_secs(1);

/// A receive queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Queue {
    /// The interface's name.
    pub interface: String,
    /// The number of the queue.
    pub queue: u32,
    /// The kernel's ID of its NAPI instance.
    pub napi: u32,
    /// The moderation that is not steered.
    pub beside: Beside,
}

/// The moderation that is not steered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beside {
    /// The card's own, as NAPI's deferral is steered.
    Card,
    /// NAPI's deferral, as the card's own is steered.
    Deferral,
}

/// The queues that one watch sees, which their sensors share.
#[derive(Debug)]
pub struct Queues {
    access: Access,
    watch: NapiWatch,
    /// By place; `None` where a queue was removed.
    queues: Vec<Option<Seen>>,
    looked: Option<Nanos>,
}

/// A queue, and the bound of the moderation beside.
#[derive(Debug)]
struct Seen {
    queue: Queue,
    beside: Option<Nanos>,
}

impl Queues {
    /// Begins to watch, no queue yet.
    pub fn new(access: &Access) -> Result<Self, Error> {
        Ok(Self { access: access.clone(), watch: NapiWatch::new(&[])?, queues: Vec::new(), looked: None })
    }

    /// Watches a queue, too. Returns its place.
    pub fn add(&mut self, queue: Queue) -> Result<usize, Error> {
        let free = self.queues.iter().position(Option::is_none);
        let place = free.unwrap_or(self.queues.len());
        self.watch.follow(place, queue.napi)?;
        let seen = Some(Seen { queue, beside: None });
        match self.queues.get_mut(place) {
            Some(free) => *free = seen,
            None => self.queues.push(seen),
        }
        self.looked = None;
        Ok(place)
    }

    /// Watches the queue at a place no longer.
    pub fn remove(&mut self, place: usize) {
        if let Some(seen) = self.queues.get_mut(place) {
            *seen = None;
            // What is not forgotten is counted in vain.
            let _ = self.watch.forget(place);
        }
    }

    /// The watch.
    pub fn watch(&self) -> &NapiWatch {
        &self.watch
    }

    /// The queue at a place, with its present NAPI instance.
    pub fn queue(&self, place: usize) -> Option<&Queue> {
        Some(&self.queues.get(place)?.as_ref()?.queue)
    }

    /// Looks at the instances and at the moderation beside, if that is due. If an instance cannot be read now, it stays as
    /// it was; if the moderation beside cannot be read, its bound is unknown.
    fn look(&mut self, now: Nanos) {
        if self.looked.is_some_and(|looked| now.saturating_sub(looked) < LOOK_EVERY) {
            return;
        }
        self.looked = Some(now);
        let mut known: Vec<Known> = Vec::new();
        for place in 0..self.queues.len() {
            let Some(Seen { queue, .. }) = &self.queues[place] else { continue };
            let Queue { interface, queue: number, napi, beside } = queue.clone();
            if !known.iter().any(|known| known.interface == interface) {
                known.push(self.known(&interface));
            }
            let Some(known) = known.iter().find(|known| known.interface == interface) else { continue };
            let bound = match beside {
                Beside::Card => known.card,
                Beside::Deferral => deferral(&Napi::new(&interface, number).read(&self.access)),
            };
            let now = known.napis.iter().find(|(napi, _)| napi.queue == number).map_or(napi, |(_, id)| *id);
            let follows = now == napi || self.watch.follow(place, now).is_ok();
            if let Some(seen) = &mut self.queues[place] {
                seen.beside = bound;
                if follows {
                    seen.queue.napi = now;
                }
            }
        }
    }

    fn known(&self, interface: &str) -> Known {
        let of_it = self.queues.iter().flatten().filter(|seen| seen.queue.interface == interface);
        let numbers: Vec<u32> = of_it.clone().map(|seen| seen.queue.queue).collect();
        let napis = napis_of(&self.access, interface, &numbers).unwrap_or_default();
        let needs_card = of_it.into_iter().any(|seen| seen.queue.beside == Beside::Card);
        let card = needs_card.then(|| card(&Coalesce::new(interface).read(&self.access))).flatten();
        Known { interface: interface.to_owned(), napis, card }
    }
}

/// What a look found of an interface.
struct Known {
    interface: String,
    napis: Vec<(Napi, u32)>,
    card: Option<Nanos>,
}

/// The bound of a card's own moderation. A card without any has none; adaptive moderation has no bound.
fn card(value: &Result<Option<Value>, Error>) -> Option<Nanos> {
    let Ok(Some(value)) = value else { return value.as_ref().ok().map(|_| Nanos::ZERO) };
    if value.field("adaptive-rx").is_some_and(|on| on != "0") {
        return None;
    }
    Some(Nanos::from_micros(value.field("rx-usecs").map_or(Some(0), |usecs| usecs.parse().ok())?))
}

/// The bound of NAPI's deferral.
fn deferral(value: &Result<Option<Value>, Error>) -> Option<Nanos> {
    let Ok(Some(value)) = value else { return value.as_ref().ok().map(|_| Nanos::ZERO) };
    let number = |field: &str| value.field(field).map_or(Some(0), |text| text.parse::<u64>().ok());
    Some(Nanos::from_nanos(if number("defer-hard-irqs")? == 0 { 0 } else { number("gro-flush-timeout")? }))
}

/// Sees one queue of [`Queues`].
#[derive(Debug)]
pub struct Watched {
    queues: Arc<Mutex<Queues>>,
    place: usize,
    last: Option<NapiCounts>,
    counts_polls: bool,
}

impl Watched {
    /// Sees queue number `place` of the list.
    pub fn new(queues: Arc<Mutex<Queues>>, place: usize) -> Self {
        Self { queues, place, last: None, counts_polls: true }
    }

    /// Without the polls, which do not say what a setting would save that is not in force.
    #[must_use]
    pub fn without_polls(self) -> Self {
        Self { counts_polls: false, ..self }
    }
}

impl<C> Sensor<C> for Watched {
    type Seen = QueueSeen;

    fn read(&mut self, now: Instant<C>) -> Result<Reading<QueueSeen, C>, Blind> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.look(Nanos::from_nanos(now.as_nanos()));
        let counts = queues.watch.read(self.place).map_err(|error| Blind(error.to_string()))?;
        let beside = queues.queues.get(self.place).and_then(|seen| seen.as_ref()?.beside);
        let mut seen = seen(self.last.as_ref(), &counts, beside);
        seen.polls = seen.polls.filter(|_| self.counts_polls);
        self.last = Some(counts);
        Ok(Reading { taken: now, seen })
    }
}

/// What the counters say, and the delays since the last time.
fn seen(last: Option<&NapiCounts>, now: &NapiCounts, beside: Option<Nanos>) -> QueueSeen {
    let delays = grown(last.map(|last| &last.delays), &now.delays);
    let held = grown(last.map(|last| &last.held), &now.held);
    QueueSeen {
        packets: now.packets,
        bytes: now.bytes,
        polls: Some(now.polls),
        full_polls: Some(now.full_polls),
        after: Some(together(delays, held)),
        beside,
    }
}

/// The packets of each bucket that came since the last time, the longest times first.
fn grown(last: Option<&[u64; BUCKETS]>, now: &[u64; BUCKETS]) -> Vec<Delays> {
    let of = |bucket: usize| {
        let before = last.map_or(0, |last| last[bucket]);
        let packets = u32::try_from(now[bucket].wrapping_sub(before)).unwrap_or(u32::MAX);
        let (shortest, longest) = bounds(bucket);
        (packets > 0).then_some(Delays { packets, shortest, longest })
    };
    (0..BUCKETS).rev().filter_map(of).collect()
}

/// The delays with the times that GRO held packets. Which packet was held for how long is not known: those that were held
/// longest are taken to be the latest. Both lists begin with the longest times.
fn together(delays: Vec<Delays>, held: Vec<Delays>) -> Vec<Delays> {
    let mut held = held.into_iter();
    let mut hold = held.next();
    let mut all = Vec::with_capacity(delays.len());
    for mut delay in delays {
        while let Some(longest) = &mut hold {
            let packets = delay.packets.min(longest.packets);
            let (shortest, latest) = (delay.shortest + longest.shortest, delay.longest + longest.longest);
            all.push(Delays { packets, shortest, longest: latest });
            delay.packets -= packets;
            longest.packets -= packets;
            if longest.packets == 0 {
                hold = held.next();
            }
            if delay.packets == 0 {
                break;
            }
        }
        if delay.packets > 0 {
            all.push(delay);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_came_since_the_last_reading_is_seen() {
        let mut counts =
            NapiCounts { packets: 5, bytes: 500, polls: 3, full_polls: 1, delays: [0; BUCKETS], held: [0; BUCKETS] };
        counts.delays[8] = 4;
        let first = seen(None, &counts, Some(Nanos::ZERO));
        assert_eq!((first.packets, first.bytes, first.polls, first.full_polls), (5, 500, Some(3), Some(1)));
        let (shortest, longest) = bounds(8);
        assert_eq!(first.after, Some(vec![Delays { packets: 4, shortest, longest }]));
        let mut later = counts.clone();
        later.delays[8] += 1;
        later.delays[20] += 2;
        let after = seen(Some(&counts), &later, None).after.unwrap();
        assert_eq!(after.iter().map(|delays| delays.packets).collect::<Vec<_>>(), [2, 1], "the latest first");
    }

    #[test]
    fn the_longest_held_are_taken_to_be_the_latest() {
        let of = |parts: &[(u32, u64)]| -> Vec<Delays> {
            let delays = |(packets, us): &(u32, u64)| Delays {
                packets: *packets,
                shortest: Nanos::from_micros(*us),
                longest: Nanos::from_micros(us + 1),
            };
            parts.iter().map(delays).collect()
        };
        let parts = |all: Vec<Delays>| -> Vec<(u32, u64, u64)> {
            let part = |one: Delays| (one.packets, one.shortest.as_micros_floor(), one.longest.as_micros_floor());
            all.into_iter().map(part).collect()
        };
        let delays = || of(&[(2, 50), (10, 20)]);
        assert_eq!(parts(together(delays(), of(&[]))), [(2, 50, 51), (10, 20, 21)]);
        let held = of(&[(1, 200), (3, 100)]);
        assert_eq!(
            parts(together(delays(), held)),
            [(1, 250, 252), (1, 150, 152), (2, 120, 122), (8, 20, 21)],
            "one 200 us, three 100 us"
        );
        // More were held than were read until now.
        assert_eq!(parts(together(of(&[(1, 5)]), of(&[(4, 10)]))), [(1, 15, 17)]);
    }

    #[test]
    fn what_is_beside_has_a_bound_or_not() {
        let of = |fields: &[(&str, u64)]| Ok(Some(Value::fields(fields.iter().copied())));
        let failed = || Err(Error::System { what: "x".into(), why: "y".into() });
        assert_eq!(card(&of(&[("rx-usecs", 50), ("adaptive-rx", 0)])), Some(Nanos::from_micros(50)));
        assert_eq!(card(&of(&[("rx-usecs", 50), ("adaptive-rx", 1)])), None);
        assert_eq!(card(&of(&[("tx-usecs", 50)])), Some(Nanos::ZERO));
        assert_eq!((card(&Ok(None)), card(&failed())), (Some(Nanos::ZERO), None));
        assert_eq!(deferral(&of(&[("defer-hard-irqs", 2), ("gro-flush-timeout", 7_000)])), Some(Nanos::from_micros(7)));
        assert_eq!(deferral(&of(&[("defer-hard-irqs", 0), ("gro-flush-timeout", 7_000)])), Some(Nanos::ZERO));
        assert_eq!((deferral(&Ok(None)), deferral(&failed())), (Some(Nanos::ZERO), None));
    }
}
