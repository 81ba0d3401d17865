//! The sensor of a receive queue: [`host::watch`] on its NAPI instance.
//!
//! Once a second, [`Queues`] also looks which NAPI instance serves each queue (an interface that went down and up has
//! new ones), and which moderation there is beside the steered one.
//!
//! Without BPF, or on a kernel that does not list its NAPI instances, a queue is not measured ([`Queues::unmeasured`]). Its
//! sensor then sees the moderation beside alone, which is enough for a fixed timer.

use std::sync::{Arc, Mutex, PoisonError};

use host::knob::{Access, Coalesce, Error, Napi, Setting as _, Value, deferral_of, napis_of};
use host::watch::{NapiCounts, NapiWatch, bounds};
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
    /// The kernel's ID of its NAPI instance. `None` if the kernel does not tell.
    pub napi: Option<u32>,
    /// The moderation that is not steered.
    pub beside: Beside,
}

/// The moderation that is not steered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beside {
    /// The card's own, as NAPI's deferral is steered.
    Card {
        /// The shortest `rx-usecs` that its driver takes for a time ([`super::place::least_usecs`]).
        least_usecs: u32,
    },
    /// NAPI's deferral, as the card's own is steered.
    Deferral,
}

/// The queues that one watch sees, which their sensors share.
#[derive(Debug)]
pub struct Queues {
    access: Access,
    watch: Result<NapiWatch, Error>,
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
    /// Begins to watch, no queue yet. Without BPF, nothing is measured.
    pub fn new(access: &Access) -> Self {
        Self { access: access.clone(), watch: NapiWatch::new(&[]), queues: Vec::new(), looked: None }
    }

    /// Why `queue` cannot be measured. `None` if it can.
    pub fn unmeasured(&self, queue: &Queue) -> Option<String> {
        let unlisted = || "the kernel does not list its NAPI instances, which Linux does from 6.8 on".to_owned();
        let failed = self.watch.as_ref().err().map(ToString::to_string);
        failed.or_else(|| queue.napi.is_none().then(unlisted))
    }

    /// Watches a queue, too. Returns its place.
    pub fn add(&mut self, queue: Queue) -> Result<usize, Error> {
        let free = self.queues.iter().position(Option::is_none);
        let place = free.unwrap_or(self.queues.len());
        if let (Ok(watch), Some(napi)) = (&mut self.watch, queue.napi) {
            watch.follow(place, napi)?;
        }
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
            if let Ok(watch) = &mut self.watch {
                watch.forget(place);
            }
        }
    }

    /// The watch. The error says why nothing is measured.
    pub fn watch(&self) -> Result<&NapiWatch, &Error> {
        self.watch.as_ref()
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
                Beside::Card { .. } => known.card,
                Beside::Deferral => deferral(&deferral_of(&self.access, &interface, number)),
            };
            let now = known.napis.iter().find(|(napi, _)| napi.queue == number).map_or(napi, |(_, id)| Some(*id));
            let follows = match (&mut self.watch, now) {
                (Ok(watch), Some(id)) if now != napi => watch.follow(place, id).is_ok(),
                _ => true,
            };
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
        let least = of_it.into_iter().find_map(|seen| match seen.queue.beside {
            Beside::Card { least_usecs } => Some(least_usecs),
            Beside::Deferral => None,
        });
        let card = least.and_then(|least| card(&Coalesce::new(interface).read(&self.access), least));
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
fn card(value: &Result<Option<Value>, Error>, least_usecs: u32) -> Option<Nanos> {
    let Ok(Some(value)) = value else { return value.as_ref().ok().map(|_| Nanos::ZERO) };
    if adapts(value, least_usecs) {
        return None;
    }
    Some(Nanos::from_micros(value.field("rx-usecs").map_or(Some(0), |usecs| usecs.parse().ok())?))
}

/// Whether a card with this coalescing adapts its timer: it says so, or its `rx-usecs` is a mode of its driver
/// ([`super::place::least_usecs`]).
pub fn adapts(coalescing: &Value, least_usecs: u32) -> bool {
    let usecs = coalescing.field("rx-usecs").and_then(|usecs| usecs.parse::<u32>().ok());
    coalescing.field("adaptive-rx").is_some_and(|on| on != "0")
        || usecs.is_some_and(|usecs| usecs > 0 && usecs < least_usecs)
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
        let own = queues.queues.get(self.place).and_then(Option::as_ref);
        let (napi, beside) = own.map_or((None, None), |own| (own.queue.napi, own.beside));
        let (Ok(watch), Some(_)) = (&queues.watch, napi) else {
            return Ok(Reading { taken: now, seen: QueueSeen { beside, ..QueueSeen::default() } });
        };
        let counts = watch.read(self.place).map_err(|error| Blind(error.to_string()))?;
        let mut seen = seen(self.last.as_ref(), &counts, beside);
        seen.polls = seen.polls.filter(|_| self.counts_polls);
        self.last = Some(counts);
        Ok(Reading { taken: now, seen })
    }
}

/// What the counters say, and the delays since the last time.
fn seen(last: Option<&NapiCounts>, now: &NapiCounts, beside: Option<Nanos>) -> QueueSeen {
    let grown = |(bucket, count): (usize, &u64)| {
        let before = last.map_or(0, |last| last.delays[bucket]);
        let packets = u32::try_from(count.wrapping_sub(before)).unwrap_or(u32::MAX);
        let (shortest, longest) = bounds(bucket);
        (packets > 0).then_some(Delays { packets, shortest, longest })
    };
    QueueSeen {
        packets: Some(now.packets),
        bytes: Some(now.bytes),
        polls: Some(now.polls),
        full_polls: Some(now.full_polls),
        after: Some(now.delays.iter().enumerate().filter_map(grown).collect()),
        beside,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::watch::BUCKETS;

    #[test]
    fn only_what_came_since_the_last_reading_is_seen() {
        let mut counts = NapiCounts { packets: 5, bytes: 500, polls: 3, full_polls: 1, delays: [0; BUCKETS] };
        counts.delays[8] = 4;
        let first = seen(None, &counts, Some(Nanos::ZERO));
        assert_eq!((first.packets, first.bytes, first.polls), (Some(5), Some(500), Some(3)));
        assert_eq!(first.full_polls, Some(1));
        let (shortest, longest) = bounds(8);
        assert_eq!(first.after, Some(vec![Delays { packets: 4, shortest, longest }]));
        let mut later = counts.clone();
        later.delays[8] += 1;
        later.delays[20] += 2;
        let after = seen(Some(&counts), &later, None).after.unwrap();
        assert_eq!(after.iter().map(|delays| delays.packets).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn what_is_beside_has_a_bound_or_not() {
        let of = |fields: &[(&str, u64)]| Ok(Some(Value::fields(fields.iter().copied())));
        let failed = || Err(Error::System { what: "x".into(), why: "y".into() });
        assert_eq!(card(&of(&[("rx-usecs", 50), ("adaptive-rx", 0)]), 0), Some(Nanos::from_micros(50)));
        assert_eq!(card(&of(&[("rx-usecs", 50), ("adaptive-rx", 1)]), 0), None);
        assert_eq!(card(&of(&[("tx-usecs", 50)]), 0), Some(Nanos::ZERO));
        assert_eq!((card(&Ok(None), 0), card(&failed(), 0)), (Some(Nanos::ZERO), None));
        // As e1000e comes: 3 is a mode in which it adapts, up to 250 us.
        let of_intel = |usecs| card(&of(&[("rx-usecs", usecs)]), 10);
        assert_eq!((of_intel(0), of_intel(3), of_intel(10)), (Some(Nanos::ZERO), None, Some(Nanos::from_micros(10))));
        assert_eq!(deferral(&of(&[("defer-hard-irqs", 2), ("gro-flush-timeout", 7_000)])), Some(Nanos::from_micros(7)));
        assert_eq!(deferral(&of(&[("defer-hard-irqs", 0), ("gro-flush-timeout", 7_000)])), Some(Nanos::ZERO));
        assert_eq!((deferral(&Ok(None)), deferral(&failed())), (Some(Nanos::ZERO), None));
    }
}
