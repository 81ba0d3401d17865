//! The sensor of a receive queue: it uses [`host::watch`] on the queue's NAPI instance.
//!
//! Once a second, [`Queues`] also reads which NAPI instance serves each queue (an interface that went down and up has
//! new ones). It also reads the moderation that Apus does not set: the NIC's coalescing or NAPI deferral.
//!
//! Without BPF, or on a kernel that does not list its NAPI instances, a queue is not measured ([`Queues::unmeasured`]).
//! Its sensor then only reads the moderation that Apus does not set, which is enough for a fixed timer.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use host::knob::{
    Access, Coalesce, Error, Napi, Setting as _, Value, deferral_of, interface_index, interface_name, napis_of,
};
use host::watch::{BUCKETS, MOST_WATCHED, NapiCounts, NapiWatch, bounds};
use policy::moderation::Delays;
use units::{Instant, Nanos};

use super::QueueSeen;
use crate::seam::{Blind, Reading, Sensor};

/// Time between two checks of the NAPI instances. Each check costs two system calls per interface.
const LOOK_EVERY: Nanos = Nanos::from_secs(1);

/// Times for which GRO held packets are kept for this many readings. The kernel reports such a time when GRO delivers
/// the packet; the packet's delay is known only when the application reads it. A packet that is not read within this
/// many readings is taken as never read.
const HELD_READINGS: usize = 20;

/// A receive queue that a [`Queues`] watches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Queue {
    /// The interface's name.
    pub interface: String,
    /// The number of the queue.
    pub queue: u32,
    /// The kernel's ID of the queue's NAPI instance. `None` if the kernel does not report it.
    pub napi: Option<u32>,
    /// The moderation that also delays packets although Apus does not set it.
    pub beside: Beside,
}

/// The moderation that also delays packets although Apus does not set it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beside {
    /// The NIC's coalescing, while Apus sets NAPI deferral.
    Card {
        /// The smallest `rx-usecs` that the driver interprets as a time ([`super::place::least_usecs`]), in
        /// microseconds.
        least_usecs: u32,
    },
    /// NAPI deferral, while Apus sets the NIC's coalescing.
    Deferral,
    /// Nothing. A dry run supposes this of a NIC whose adaptive moderation Apus would switch off.
    Nothing,
}

/// All watched queues: one kernel watch that their sensors share.
#[derive(Debug)]
pub struct Queues {
    access: Access,
    watch: Result<NapiWatch, Error>,
    /// The queues by their index; `None` where a queue was removed.
    queues: Vec<Option<Seen>>,
    looked: Option<Nanos>,
}

/// A watched queue, and the maximum delay by the moderation that Apus does not set.
#[derive(Debug)]
struct Seen {
    queue: Queue,
    /// The kernel's index of the queue's interface, which does not change when the interface is renamed.
    index: Option<u32>,
    beside: Option<Nanos>,
    /// Whether the queue has a NAPI instance now.
    is_there: bool,
}

impl Queues {
    /// Attaches the watch, without any queue. If BPF is not available, nothing is measured.
    pub fn new(access: &Access) -> Self {
        Self { access: access.clone(), watch: NapiWatch::new(&[]), queues: Vec::new(), looked: None }
    }

    /// Why `queue` cannot be measured. `None` if it can be measured.
    pub fn unmeasured(&self, queue: &Queue) -> Option<String> {
        let unlisted = || "the kernel does not list its NAPI instances, which Linux does from 6.8 on".to_owned();
        let failed = self.watch.as_ref().err().map(ToString::to_string);
        failed.or_else(|| queue.napi.is_none().then(unlisted))
    }

    /// Adds queues to the watch: all of them, or none if one cannot be watched. Returns their indexes for the other
    /// methods.
    pub fn add_all(&mut self, queues: &[Queue]) -> Result<Vec<usize>, Error> {
        let mut places = Vec::with_capacity(queues.len());
        for queue in queues {
            match self.add(queue.clone()) {
                Ok(place) => places.push(place),
                Err(error) => {
                    places.into_iter().for_each(|place| self.remove(place));
                    return Err(error);
                }
            }
        }
        Ok(places)
    }

    fn add(&mut self, queue: Queue) -> Result<usize, Error> {
        let free = self.queues.iter().position(Option::is_none);
        let place = free.unwrap_or(self.queues.len());
        if let (Ok(watch), Some(napi)) = (&self.watch, queue.napi) {
            if place >= MOST_WATCHED {
                return Err(Error::Refused {
                    what: format!("measure the receive queues of {}", queue.interface),
                    why: format!("at most {MOST_WATCHED} queues can be measured, on all interfaces together"),
                    fix: "control fewer interfaces, or give them fewer queues (ethtool -L)".into(),
                });
            }
            watch.follow(place, napi)?;
        }
        let index = interface_index(&self.access, &queue.interface);
        let seen = Some(Seen { queue, index, beside: None, is_there: true });
        match self.queues.get_mut(place) {
            Some(free) => *free = seen,
            None => self.queues.push(seen),
        }
        self.looked = None;
        Ok(place)
    }

    /// Removes the queue with this index from the watch.
    pub fn remove(&mut self, place: usize) {
        if let Some(seen) = self.queues.get_mut(place) {
            *seen = None;
            if let Ok(watch) = &self.watch {
                // If this fails, the kernel keeps counting for a queue that nobody reads, which does no harm.
                let _ = watch.forget(place);
            }
        }
    }

    /// The kernel watch. The error says why nothing is measured.
    pub fn watch(&self) -> Result<&NapiWatch, &Error> {
        self.watch.as_ref()
    }

    /// The counters of the queue with this index. `None` if it is not measured.
    fn counts(&self, place: usize) -> Option<NapiCounts> {
        self.watch.as_ref().ok()?.read(place).ok()
    }

    /// The queue with this index, with its present NAPI instance. `None` if it was removed.
    pub fn queue(&self, place: usize) -> Option<&Queue> {
        Some(&self.queues.get(place)?.as_ref()?.queue)
    }

    /// Reads the NAPI instances and the moderation that Apus does not set, if that is due. If an instance cannot be
    /// read now, the previous one is kept; if the moderation cannot be read, the upper bound of its delay becomes
    /// unknown.
    fn look(&mut self, now: Nanos) {
        if self.looked.is_some_and(|looked| now.saturating_sub(looked) < LOOK_EVERY) {
            return;
        }
        self.looked = Some(now);
        let mut known: Vec<Known> = Vec::new();
        for place in 0..self.queues.len() {
            let Some(Seen { queue, index, .. }) = &self.queues[place] else { continue };
            let (index, Queue { queue: number, napi, beside, .. }) = (*index, queue.clone());
            if !known.iter().any(|known| known.index == index) {
                known.push(self.known(index));
            }
            let Some(known) = known.iter().find(|known| known.index == index) else { continue };
            let bound = match (beside, &known.name) {
                (_, None) => None,
                (Beside::Card { .. }, Some(_)) => known.card,
                (Beside::Nothing, Some(_)) => Some(Nanos::ZERO),
                (Beside::Deferral, Some(name)) => deferral(&deferral_of(&self.access, name, number)),
            };
            if let Some(seen) = &mut self.queues[place] {
                seen.beside = bound;
            }
            let Some(now) = known.instance(number) else { continue };
            let follows = match (&self.watch, now) {
                (Ok(watch), Some(id)) if Some(id) != napi => watch.follow(place, id).is_ok(),
                _ => true,
            };
            if let Some(seen) = &mut self.queues[place] {
                seen.is_there = now.is_some() && follows;
                if let (Some(now), true) = (now, follows) {
                    seen.queue.napi = Some(now);
                }
            }
        }
    }

    /// Checks the interface with this kernel index, even if it was renamed.
    fn known(&self, index: Option<u32>) -> Known {
        let Some(name) = index.and_then(|index| interface_name(&self.access, index)) else {
            return Known { index, name: None, napis: Some(Vec::new()), card: None };
        };
        let of_it = self.queues.iter().flatten().filter(|seen| seen.index == index);
        let numbers: Vec<u32> = of_it.clone().map(|seen| seen.queue.queue).collect();
        let napis = napis_of(&self.access, &name, &numbers).ok();
        let least = of_it.into_iter().find_map(|seen| match seen.queue.beside {
            Beside::Card { least_usecs } => Some(least_usecs),
            Beside::Deferral | Beside::Nothing => None,
        });
        let card = least.and_then(|least| card(&Coalesce::new(&name).read(&self.access), least));
        Known { index, name: Some(name), napis, card }
    }
}

/// The result of one check of an interface.
struct Known {
    index: Option<u32>,
    /// Present name of the interface. `None` if the interface is gone.
    name: Option<String>,
    /// Its NAPI instances. `None` if the kernel did not tell them.
    napis: Option<Vec<(Napi, u32)>>,
    card: Option<Nanos>,
}

impl Known {
    /// The ID of the NAPI instance of a queue, `Some(None)` if the queue has none, and `None` if that is unknown.
    fn instance(&self, queue: u32) -> Option<Option<u32>> {
        let napis = self.napis.as_ref()?;
        Some(napis.iter().find(|(napi, _)| napi.queue == queue).map(|(_, id)| *id))
    }
}

/// Upper bound of the delay by the NIC's moderation: zero if the NIC has none, `None` if it is adaptive or unreadable.
fn card(value: &Result<Option<Value>, Error>, least_usecs: u32) -> Option<Nanos> {
    let Ok(Some(value)) = value else { return value.as_ref().ok().map(|_| Nanos::ZERO) };
    if adapts(value, least_usecs) {
        return None;
    }
    Some(Nanos::from_micros(value.field("rx-usecs").map_or(Some(0), |usecs| usecs.parse().ok())?))
}

/// Whether a NIC with this coalescing adapts its timer itself: either it reports so (`adaptive-rx`), or its `rx-usecs`
/// is one of the driver's modes ([`super::place::least_usecs`]).
pub fn adapts(coalescing: &Value, least_usecs: u32) -> bool {
    let usecs = coalescing.field("rx-usecs").and_then(|usecs| usecs.parse::<u32>().ok());
    coalescing.field("adaptive-rx").is_some_and(|on| on != "0")
        || usecs.is_some_and(|usecs| usecs > 0 && usecs < least_usecs)
}

/// Upper bound of the delay by NAPI deferral.
fn deferral(value: &Result<Option<Value>, Error>) -> Option<Nanos> {
    let Ok(Some(value)) = value else { return value.as_ref().ok().map(|_| Nanos::ZERO) };
    let number = |field: &str| value.field(field).map_or(Some(0), |text| text.parse::<u64>().ok());
    Some(Nanos::from_nanos(if number("defer-hard-irqs")? == 0 { 0 } else { number("gro-flush-timeout")? }))
}

/// The sensor of one queue of [`Queues`].
#[derive(Debug)]
pub struct Watched {
    queues: Arc<Mutex<Queues>>,
    place: usize,
    last: Option<NapiCounts>,
    /// Times for which GRO held packets that the application has not read yet, oldest reading first.
    held: VecDeque<Vec<Delays>>,
    counts_polls: bool,
}

impl Watched {
    /// Creates the sensor of the queue with the index `place` in `queues`.
    pub fn new(queues: Arc<Mutex<Queues>>, place: usize) -> Self {
        // The counts so far may belong to a queue that had this index before.
        let last = queues.lock().unwrap_or_else(PoisonError::into_inner).counts(place);
        Self { queues, place, last, held: VecDeque::new(), counts_polls: true }
    }

    /// Makes the sensor report no polls. Used in a dry run, where the counted polls do not show what a setting would
    /// save.
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
        if own.is_none_or(|own| !own.is_there) {
            return Err(Blind(
                "its NAPI instance does not exist: the interface is down, or the queue is not in use".into(),
            ));
        }
        let mut seen = seen(self.last.as_ref(), &counts, beside, &mut self.held);
        seen.polls = seen.polls.filter(|_| self.counts_polls);
        self.last = Some(counts);
        Ok(Reading { taken: now, seen })
    }
}

/// Builds an observation from the counters and the delays since the last reading. `held` has the times for which GRO
/// held packets that the application may still read, oldest reading first.
fn seen(
    last: Option<&NapiCounts>,
    now: &NapiCounts,
    beside: Option<Nanos>,
    held: &mut VecDeque<Vec<Delays>>,
) -> QueueSeen {
    held.push_back(grown(last.map(|last| &last.held), &now.held));
    if held.len() > HELD_READINGS {
        held.pop_front();
    }
    let after = together(grown(last.map(|last| &last.delays), &now.delays), held);
    QueueSeen {
        packets: Some(now.packets),
        bytes: Some(now.bytes),
        polls: Some(now.polls),
        full_polls: Some(now.full_polls),
        after: Some(after),
        beside,
    }
}

/// Number of new packets in each histogram bucket since the last reading, longest delays first.
fn grown(last: Option<&[u64; BUCKETS]>, now: &[u64; BUCKETS]) -> Vec<Delays> {
    let of = |bucket: usize| {
        let before = last.map_or(0, |last| last[bucket]);
        let packets = u32::try_from(now[bucket].wrapping_sub(before)).unwrap_or(u32::MAX);
        let (shortest, longest) = bounds(bucket);
        (packets > 0).then_some(Delays { packets, shortest, longest })
    };
    (0..BUCKETS).rev().filter_map(of).collect()
}

/// Adds to the delays the times for which GRO held packets. It is not known which packet GRO held for how long, so the
/// packets held longest are assumed to be those with the longest delays. Times left over in `held` belong to packets
/// that are read later, or never.
fn together(delays: Vec<Delays>, held: &mut VecDeque<Vec<Delays>>) -> Vec<Delays> {
    let mut all = Vec::with_capacity(delays.len());
    for mut delay in delays {
        while delay.packets > 0 {
            let longest = held.iter_mut().filter_map(|reading| reading.first_mut()).max_by_key(|hold| hold.longest);
            let Some(hold) = longest else { break };
            let packets = delay.packets.min(hold.packets);
            let (shortest, latest) = (delay.shortest + hold.shortest, delay.longest + hold.longest);
            all.push(Delays { packets, shortest, longest: latest });
            delay.packets -= packets;
            hold.packets -= packets;
            for reading in held.iter_mut() {
                reading.retain(|hold| hold.packets > 0);
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
        let mut held = VecDeque::new();
        let first = seen(None, &counts, Some(Nanos::ZERO), &mut held);
        assert_eq!((first.packets, first.bytes, first.polls), (Some(5), Some(500), Some(3)));
        assert_eq!(first.full_polls, Some(1));
        let (shortest, longest) = bounds(8);
        assert_eq!(first.after, Some(vec![Delays { packets: 4, shortest, longest }]));
        let mut later = counts.clone();
        later.delays[8] += 1;
        later.delays[20] += 2;
        let after = seen(Some(&counts), &later, None, &mut held).after.unwrap();
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
        let with = |delays, held: &[&[(u32, u64)]]| {
            let mut held: VecDeque<Vec<Delays>> = held.iter().map(|reading| of(reading)).collect();
            let all = parts(together(delays, &mut held));
            (all, parts(held.into_iter().flatten().collect()))
        };
        assert_eq!(with(delays(), &[]), (vec![(2, 50, 51), (10, 20, 21)], vec![]));
        // One was held for 200 us, three for 100 us, in two readings.
        let all = vec![(1, 250, 252), (1, 150, 152), (2, 120, 122), (8, 20, 21)];
        assert_eq!(with(delays(), &[&[(3, 100)], &[(1, 200)]]), (all, vec![]));
        // More were held than are read until now: they count when they are read.
        assert_eq!(with(of(&[(1, 5)]), &[&[(4, 10)]]), (vec![(1, 15, 17)], vec![(3, 10, 11)]));
    }

    #[test]
    fn what_was_held_counts_when_it_is_read_and_not_for_ever() {
        let mut counts =
            NapiCounts { packets: 1, bytes: 100, polls: 1, full_polls: 0, delays: [0; BUCKETS], held: [0; BUCKETS] };
        counts.held[40] = 2;
        let mut held = VecDeque::new();
        let mut last = counts.clone();
        assert_eq!(seen(None, &counts, None, &mut held).after, Some(vec![]));
        counts.delays[8] += 1;
        let after = seen(Some(&last), &counts, None, &mut held).after.unwrap();
        assert_eq!(after[0].shortest, bounds(8).0 + bounds(40).0);
        last = counts.clone();
        for _ in 0..HELD_READINGS {
            assert_eq!(seen(Some(&last), &counts, None, &mut held).after, Some(vec![]));
        }
        counts.delays[8] += 1;
        let after = seen(Some(&last), &counts, None, &mut held).after.unwrap();
        assert_eq!(after[0].shortest, bounds(8).0, "that packet was never read");
    }

    /// Regression test: if the kernel could not list the instances for once, they counted as absent for a second.
    #[test]
    fn an_instance_that_is_unknown_is_not_absent() {
        let of = |napis| Known { index: Some(7), name: Some("eth0".into()), napis, card: None };
        assert_eq!(of(None).instance(0), None);
        let listed = of(Some(vec![(Napi::new("eth0", 1), 8_193)]));
        assert_eq!((listed.instance(0), listed.instance(1)), (Some(None), Some(Some(8_193))));
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
