//! Which packets of a poll left too late.

use units::{Instant, Nanos};

use super::super::{Arrivals, Observation};
use super::math::product_over;

/// One packet. Expected late packets are counted in millionths of a packet.
pub(super) const ONE: u64 = 1_000_000;

/// When a packet is late.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    /// The goal's latency minus the reserve: the allowed time from arrival to departure as the worker sees it.
    pub(super) target: Nanos,
    /// The shortest time between the departures of two frames of a burst.
    pub(super) spacing: Nanos,
}

impl Deadline {
    /// Expected number of this poll's frames that are later than the target, in millionths of a frame. Only the first
    /// and the last frame have known times. Those between them are assumed to have arrived at any time between them, and
    /// to have left evenly spaced. A later frame has waited less in the ring, but must also wait for the departure of
    /// the frame before it.
    #[inline]
    pub(super) fn late<C>(self, now: Instant<C>, arrivals: &Arrivals<C>, frames: u64) -> u64 {
        let further = frames.max(1) - 1;
        let [first, mut last] = delays(arrivals, now);
        if arrivals.sent.is_none() {
            last = (last + self.spacing * further).min(first);
        }
        let [over_first, over_last] = [first, last].map(|delay| delay.saturating_sub(self.target).as_nanos());
        let (most, least) = (over_first.max(over_last), over_first.min(over_last));
        if most == 0 {
            return 0;
        }
        let spread = first.max(last).saturating_sub(first.min(last)).as_nanos().max(most);
        if least > 0 {
            return frames.max(1) * ONE;
        }
        ONE + product_over(further.saturating_sub(1) * ONE, most, spread) as u64
    }
}

/// The times from arrival to departure of the first and the last frame.
#[inline]
pub(super) fn delays<C>(arrivals: &Arrivals<C>, now: Instant<C>) -> [Nanos; 2] {
    let left = arrivals.sent.map_or([now; 2], |sent| [sent.first, sent.last]);
    [(left[0], arrivals.first), (left[1], arrivals.last)].map(|(left, came)| left.since(came).unwrap_or(Nanos::ZERO))
}

/// How many of a poll's frames arrived before `due`. They are assumed to have arrived evenly spaced.
pub(super) fn came_before<C>(due: Instant<C>, arrivals: &Arrivals<C>, frames: u64) -> u64 {
    let [ahead, spread] = [due, arrivals.last].map(|at| at.since(arrivals.first).unwrap_or(Nanos::ZERO).as_nanos());
    match ahead {
        0 => 0,
        ahead if ahead > spread => frames,
        ahead => (1 + (frames.max(1) - 1).saturating_mul(ahead) / spread).min(frames),
    }
}

/// When the poll picked up its frames. `None` if there were none.
#[inline]
pub(super) fn picked_up<C>(seen: &Observation<'_, C>) -> Option<Instant<C>> {
    seen.queues.iter().filter_map(|queue| queue.arrivals.as_ref()).map(|arrivals| arrivals.picked_up).min()
}

/// Late packets of which only their expected number is known: whole ones count, and fractions are kept.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Unseen {
    /// In millionths of a packet, less than [`ONE`].
    rest: u64,
}

impl Unseen {
    /// Adds late packets, in millionths, and returns how many of them count now.
    pub(super) fn add(&mut self, millionths: u64) -> u64 {
        let unseen = self.rest + millionths;
        self.rest = unseen % ONE;
        unseen / ONE
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::Sent;
    use super::*;
    use units::Simulated;

    fn at(us: u64) -> Instant<Simulated> {
        Instant::from_nanos(us * 1_000)
    }

    #[test]
    fn frames_before_a_stall_are_told_from_those_within() {
        let arrivals = Arrivals::stamped(at(100), at(190), at(300));
        let before = |us: u64| came_before(at(us), &arrivals, 10);
        assert_eq!([0, 100, 101, 145, 190, 191, 400].map(before), [0, 0, 1, 5, 10, 10, 10]);
        let alone = Arrivals::stamped(at(100), at(100), at(300));
        assert_eq!([99, 100, 101].map(|us| came_before(at(us), &alone, 1)), [0, 0, 1]);
        let jumped = Arrivals::stamped(at(0), Instant::from_nanos(u64::MAX), at(300));
        assert!(came_before(Instant::from_nanos(u64::MAX / 2), &jumped, 64) <= 64, "a clock that jumps");
        assert_eq!(came_before(at(400), &arrivals, 0), 0);
    }

    /// Ten packets, 10 us apart, that were picked up 95 us after the first came and processed within 30 us.
    #[test]
    fn a_packet_is_late_if_it_leaves_late_itself() {
        let deadline = Deadline { target: Nanos::from_micros(105), spacing: Nanos::ZERO };
        let arrivals = Arrivals::stamped(at(0), at(90), at(95));
        let late = |arrivals: Arrivals<Simulated>| deadline.late(at(125), &arrivals, 10);
        // The first packet is 20 us too late. The delays of the eight between it and the last lie anywhere from 125 us down
        // to 35 us, so two ninths of them are expected above 105 us.
        assert_eq!(late(arrivals), ONE + 8 * ONE * 2 / 9);
        let sent =
            |first: u64, last: u64| Arrivals { sent: Some(Sent { first: at(first), last: at(last) }), ..arrivals };
        assert_eq!(late(sent(98, 125)), 0, "the first leaves after 98 us, and the last after 35");
        assert_eq!(late(sent(115, 125)), ONE + 8 * ONE * 10 / 80);
        // In an overloaded queue, the last packets are the latest.
        assert_eq!((late(sent(100, 125)), late(sent(100, 220))), (0, ONE + 8 * ONE * 25 / 30));
        assert_eq!(late(sent(130, 250)), 10 * ONE);
        assert_eq!(deadline.late(at(125), &Arrivals::stamped(at(0), at(90), at(95)), 2), ONE, "none is between them");
    }

    /// Packets of Poisson traffic that gathered in sleeps, which ended up to 20 us too late. If each poll's number were
    /// rounded down, a fifth of the late packets would not count.
    #[test]
    fn as_many_packets_are_counted_as_are_late() {
        let deadline = Deadline { target: Nanos::from_micros(105), spacing: Nanos::ZERO };
        let (mut seed, mut counted, mut late) = (1_u64, 0, 0);
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((seed >> 33) as f64 + 1.0) / (1_u64 << 31) as f64
        };
        for _ in 0..10_000 {
            let ends = 105_000 + (random() * 20_000.0) as u64;
            // A packet each 10 us.
            let (mut came, mut packets) = ([0; 64], 1);
            while packets < came.len() {
                let next = came[packets - 1] + (random().ln() * -10_000.0) as u64 + 1;
                if next >= ends {
                    break;
                }
                came[packets] = next;
                packets += 1;
            }
            let came = &came[..packets];
            let [last, now] = [came[packets - 1], ends].map(Instant::<Simulated>::from_nanos);
            counted += deadline.late(now, &Arrivals::stamped(at(0), last, now), packets as u64);
            late += came.iter().filter(|came| ends - **came > 105_000).count() as u64;
        }
        assert!((counted / ONE).abs_diff(late) <= late / 50, "{} of {late}", counted / ONE);
    }

    #[test]
    fn fractions_of_late_packets_add_up() {
        let mut unseen = Unseen::default();
        assert_eq!([400_000, 400_000, 400_000, 2_000_000, 800_000].map(|part| unseen.add(part)), [0, 0, 1, 2, 1]);
    }

    #[test]
    fn a_clock_that_jumps_makes_no_more_packets_late_than_came() {
        let deadline = Deadline { target: Nanos::from_micros(105), spacing: Nanos::ZERO };
        let now = Instant::<Simulated>::from_nanos(u64::MAX);
        assert!((ONE..=64 * ONE).contains(&deadline.late(now, &Arrivals::stamped(at(0), now, now), 64)));
    }
}
