//! How long the core works: the mean per packet, and the time within which nine in ten leave after work began.

use units::{Instant, Nanos};

use super::super::Arrivals;
use super::tail::{MEMORY, Tail};

/// The mean work per frame is averaged over about this many frames.
const WORKED: u64 = 1024;
/// Longer work on a poll's frames counts as this long, in nanoseconds (18 minutes): the machine was suspended.
const LONGEST: u64 = 1 << 40;
/// Number of polls with frames per sample.
const EVERY: u32 = 16;
/// The share of packets that leave within [`Service::departed`], in ppm.
const NINE_IN_TEN: u32 = 900_000;

/// The work of the core, sampled.
#[derive(Debug)]
pub(super) struct Service<C> {
    /// Distribution of the time from the start of the core's work to the departure of a frame.
    departures: Tail,
    /// When the core began to work. `None` unless every poll since then returned frames.
    busy_since: Option<Instant<C>>,
    until_sample: u32,
    /// Whether a departure is to be sampled from the next poll that allows it.
    is_due: bool,
    /// Time spent on frames, in nanoseconds, and the number of these frames. Both are halved from time to time.
    worked: (u64, u64),
}

impl<C> Service<C> {
    pub(super) const fn new() -> Self {
        Self { departures: Tail::new(), busy_since: None, until_sample: 0, is_due: false, worked: (0, 0) }
    }

    /// The core waited, or a poll found nothing.
    #[inline]
    pub(super) fn rests(&mut self) {
        self.busy_since = None;
    }

    /// The core works on frames that it picked up at `picked_up`. Returns whether it begins to.
    #[inline]
    pub(super) fn works(&mut self, picked_up: Option<Instant<C>>) -> bool {
        let begins = self.busy_since.is_none();
        self.busy_since = self.busy_since.or(picked_up);
        begins
    }

    /// Counts a poll with frames. Returns whether it is to be sampled.
    #[inline]
    pub(super) fn polled(&mut self) -> bool {
        let samples = self.until_sample == 0;
        if samples {
            self.until_sample = EVERY;
            self.is_due = true;
        }
        self.until_sample -= 1;
        samples
    }

    /// Samples the `work` on a poll's frames, in nanoseconds. Returns the mean per frame.
    #[inline]
    pub(super) fn worked(&mut self, work: u64, frames: u64) -> u64 {
        self.worked = (self.worked.0 + work.min(LONGEST), self.worked.1 + frames);
        let mean = self.worked.0 / self.worked.1.max(1);
        if self.worked.1 > WORKED {
            self.worked = (self.worked.0 / 2, self.worked.1 / 2);
        }
        mean
    }

    /// Samples a departure, if one is due and this poll allows it. Returns the time in nanoseconds within which nine in
    /// ten packets leave after work began. `begins`: whether the work began with this poll.
    ///
    /// Frames that arrived during the work have also waited for the frames before them. Where all frames of a poll
    /// leave together, that counts. Where each leaves on its own, the first frame after a wait has waited for the
    /// longest time.
    #[inline]
    pub(super) fn departed(&mut self, arrivals: &Arrivals<C>, now: Instant<C>, begins: bool) -> Option<u64> {
        if !self.is_due || !(arrivals.sent.is_none() || begins) {
            return None;
        }
        self.is_due = false;
        let began = self.busy_since.map_or(arrivals.picked_up, |began| began.max(arrivals.first));
        let left = arrivals.sent.map_or(now, |sent| sent.first);
        self.departures.add(left.since(began).unwrap_or(Nanos::ZERO), 0, MEMORY);
        Some(self.departures.upper_quantile(NINE_IN_TEN).as_nanos())
    }

    /// Rescales what was learned by `slower`, in 256ths, because the frequency changed.
    pub(super) fn scale(&mut self, slower: u64) {
        self.departures.scale(slower);
        self.worked.0 = self.worked.0 * slower / 256;
    }
}

impl<C> Clone for Service<C> {
    fn clone(&self) -> Self {
        Self { departures: self.departures.clone(), ..*self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::Sent;
    use units::Simulated;

    fn at(us: u64) -> Instant<Simulated> {
        Instant::from_nanos(us * 1_000)
    }

    #[test]
    fn one_poll_in_sixteen_is_sampled() {
        let mut service = Service::<Simulated>::new();
        assert_eq!((0..160).filter(|_| service.polled()).count(), 10);
        assert_eq!(service.worked(3_000, 2), 1_500);
        assert_eq!(service.worked(3_000, 4), 1_000);
        (0..1_000).for_each(|_| assert!(service.worked(20_000, 10) <= 2_100));
        assert!(service.worked(20_000, 10) > 1_990, "older work fades");
    }

    #[test]
    fn a_departure_is_measured_from_the_beginning_of_the_work() {
        let mut service = Service::new();
        assert!(service.works(Some(at(100))) && service.polled());
        let within = |us: u64, time: Option<u64>| {
            let time = time.expect("sampled");
            assert!((us * 1_000..=us * 1_125).contains(&time), "{time} of {us}");
        };
        within(20, service.departed(&Arrivals::stamped(at(90), at(95), at(100)), at(120), true));
        assert_eq!(service.departed(&Arrivals::stamped(at(90), at(95), at(100)), at(120), true), None, "not due");
        // It began to work on earlier frames; these came meanwhile.
        let mut service = Service::new();
        service.works(Some(at(100)));
        assert!(!service.works(Some(at(120))) && service.polled());
        let came = Arrivals::stamped(at(110), at(115), at(120));
        let alone = Arrivals { sent: Some(Sent { first: at(125), last: at(130) }), ..came };
        assert_eq!(service.departed(&alone, at(140), false), None, "it has waited less than those before it");
        within(30, service.departed(&came, at(140), false));
        service.rests();
        assert!(service.works(Some(at(200))));
    }
}
