//! Observations while one profile was in force.

use units::{Instant, Nanos};

use super::alarm::Alarm;
use super::tried::Share;
use crate::Goal;
use crate::moderation::{Delays, Sample};

/// Number of bins in the histogram of delays. It covers delays from 0 to between two and four times the goal.
const BINS: usize = 256;
/// Weight of one packet. It is more than 1 so that a few packets can be spread over many bins.
const PACKET: u64 = 256;
/// Once the window holds this many packets, it ignores further delays, because a bin's 32 bits would overflow.
const MOST_PACKETS: u64 = 1 << 23;
/// The shortest span over which a rate is measured.
const RATE_SPAN: Nanos = Nanos::from_millis(1);

/// The counters at one point in time.
#[derive(Debug)]
pub(super) struct Totals<C> {
    pub now: Instant<C>,
    pub events: u64,
    pub packets: u64,
}

/// Growth of a queue's counters over `span`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Growth {
    pub span: Nanos,
    pub events: u64,
    pub packets: u64,
}

impl<C> Totals<C> {
    /// The growth since `earlier`. `None` if the clock or a counter went backwards.
    pub fn since(&self, earlier: &Self) -> Option<Growth> {
        // A difference of more than half the range means that the counter was reset, not that it wrapped around.
        let grown = |now: u64, then: u64| Some(now.wrapping_sub(then)).filter(|n| *n <= u64::MAX / 2);
        Some(Growth {
            span: self.now.since(earlier.now)?,
            events: grown(self.events, earlier.events)?,
            packets: grown(self.packets, earlier.packets)?,
        })
    }
}

impl<C> From<&Sample<C>> for Totals<C> {
    fn from(sample: &Sample<C>) -> Self {
        Self { now: sample.now, events: sample.events, packets: sample.packets }
    }
}

impl Growth {
    /// The mean time between two packets. `None` without packets.
    pub fn gap(&self) -> Option<Nanos> {
        (self.packets > 0).then(|| self.span / self.packets)
    }

    /// Number of packets that did not need an interrupt of their own.
    pub fn saved(&self) -> u64 {
        self.packets.saturating_sub(self.events)
    }
}

/// The packet rate as most packets see it. With bursts, it is higher than the mean rate.
#[derive(Debug)]
pub(super) struct Rate<C> {
    since: Option<Totals<C>>,
    packets: u64,
    /// Sum over all spans of at least [`RATE_SPAN`]: the packets of a span, multiplied by their rate in packets per
    /// second.
    weighted: u128,
}

impl<C> Default for Rate<C> {
    fn default() -> Self {
        Self { since: None, packets: 0, weighted: 0 }
    }
}

impl<C> Rate<C> {
    pub fn add(&mut self, now: Totals<C>) {
        let Some(growth) = self.since.as_ref().and_then(|since| now.since(since)) else {
            self.since = Some(now);
            return;
        };
        if growth.span < RATE_SPAN {
            return;
        }
        self.since = Some(now);
        self.packets += growth.packets;
        // Each packet sees the other packets of its span. If only these are counted, the mean over Poisson arrivals is
        // their rate.
        let pairs = u128::from(growth.packets) * u128::from(growth.packets.saturating_sub(1));
        self.weighted = self.weighted.saturating_add(pairs * 1_000_000_000 / u128::from(growth.span.as_nanos()));
    }

    /// The time between two packets at this rate. `None` if no two packets came in the same span.
    pub fn gap(&self) -> Option<Nanos> {
        let gap = (u128::from(self.packets) * 1_000_000_000).checked_div(self.weighted)?;
        u64::try_from(gap).ok().map(Nanos::from_nanos)
    }
}

/// The delays of packets under one profile, separated by whether moderation could have caused them.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// For each bin, the weight that begins in it, minus the weight that ends before it. The running sum is the
    /// histogram. So a sample changes only a few entries, even if its packets are spread over many bins.
    edges: [u32; BINS + 1],
    /// A bin is `1 << shift` nanoseconds wide.
    shift: u32,
    goal: Nanos,
    /// Share of the packets that the goal allows to be late, in ppm.
    allowed_ppm: u64,
    /// Number of packets in the histogram.
    packets: u64,
    /// The latest packets, which decide whether an alarm is raised.
    alarm: Alarm,
    /// Number of packets in the histogram that were later than the goal.
    late: u64,
    /// Number of readings with late packets.
    late_readings: u32,
    /// Late packets of a reading that had some, in the windows before.
    usual_burst: u64,
    /// The longest delay in the histogram.
    longest: Nanos,
    /// Number of packets that would be late whatever the timer is.
    unavoidable: u64,
    /// Number of packets that arrived together with unavoidably late ones, including the late ones.
    with_unavoidable: u64,
}

impl Window {
    pub fn new(goal: Goal) -> Self {
        let width = (goal.latency.as_nanos() / (BINS as u64 / 2)).clamp(1, 1 << 50).next_power_of_two();
        Self {
            edges: [0; BINS + 1],
            shift: width.ilog2(),
            goal: goal.latency,
            allowed_ppm: u64::from(goal.quantile.above_ppm()),
            packets: 0,
            alarm: Alarm::default(),
            late: 0,
            late_readings: 0,
            usual_burst: 0,
            longest: Nanos::ZERO,
            unavoidable: 0,
            with_unavoidable: 0,
        }
    }

    /// Empties the window.
    pub fn clear(&mut self) {
        self.usual_burst = (self.usual_burst + self.burst()) / 2;
        self.edges = [0; BINS + 1];
        self.packets = 0;
        self.alarm = Alarm::default();
        self.late = 0;
        self.late_readings = 0;
        self.longest = Nanos::ZERO;
        self.unavoidable = 0;
        self.with_unavoidable = 0;
    }

    /// Forgets what raised an alarm.
    pub fn calm(&mut self) {
        self.alarm = Alarm::default();
    }

    /// Number of packets whose delay is known.
    pub fn observed(&self) -> u64 {
        self.packets + self.with_unavoidable
    }

    /// Whether some delays are known, but fewer than `enough` to be trusted.
    pub fn is_short_of(&self, enough: u64) -> bool {
        (1..enough).contains(&self.observed())
    }

    /// Late packets of a reading that has some.
    fn burst(&self) -> u64 {
        (self.late + self.unavoidable) / u64::from(self.late_readings.max(1))
    }

    /// Whether more packets are needed because late ones come in bursts: the allowed ones must be those of several. A
    /// burst is taken for at least as long as what one poll receives (`together`).
    pub fn is_short_of_bursts(&self, enough: u64, together: u64) -> bool {
        let burst = self.burst().max(self.usual_burst).max(together).max(1);
        self.allowed() * 1_000_000 < enough * self.allowed_ppm * burst
    }

    /// Adds the delays of packets that one interrupt delivered. The timer delayed them by at most `timer`.
    #[inline]
    pub fn add(&mut self, delays: Delays, timer: Nanos) {
        self.observe(delays, timer);
        self.end_reading(1);
    }

    /// Ends a reading: the packets since the previous one count as coming from `interrupts` interrupts.
    pub fn end_reading(&mut self, interrupts: u32) {
        self.late_readings += u32::from(self.alarm.end_reading(interrupts, self.allowed_ppm));
    }

    /// Adds delays of packets from any number of interrupts to the current reading.
    #[inline]
    pub fn observe(&mut self, delays: Delays, timer: Nanos) {
        if delays.packets == 0 || self.observed() + u64::from(delays.packets) > MOST_PACKETS {
            return;
        }
        let packets = u64::from(delays.packets);
        let spread = delays.longest.saturating_sub(delays.shortest);
        let over = delays.longest.saturating_sub(self.goal);
        let mut late = 0;
        if over > Nanos::ZERO {
            // Number of late packets: the latest one, and those of the others, which are spread evenly, that are above
            // the goal.
            let share = Nanos::from_nanos(packets - 1).scale(over.as_nanos(), spread.as_nanos().max(1));
            late = 1 + share.as_nanos().min(packets - 1);
        }
        if over > timer {
            self.unavoidable += late;
            self.with_unavoidable += packets;
            self.alarm.add_unavoidable(packets, late);
            return;
        }
        self.packets += packets;
        self.alarm.add(packets, late, delays.longest);
        self.late += late;
        self.longest = self.longest.max(delays.longest);
        self.weigh(delays.longest, delays.longest, 1);
        if packets > 1 {
            self.weigh(
                delays.shortest.min(delays.longest),
                delays.longest.saturating_sub(spread / (packets - 1)),
                packets - 1,
            );
        }
    }

    /// Spreads the weight of `packets` evenly over the delays from `from` to `to`.
    fn weigh(&mut self, from: Nanos, to: Nanos, packets: u64) {
        let (from, to) = (self.bin(from), self.bin(to).max(self.bin(from)));
        let bins = (to - from + 1) as u64;
        let (each, rest) = ((packets * PACKET / bins) as u32, (packets * PACKET % bins) as u32);
        self.edges[from] = self.edges[from].wrapping_add(each + rest);
        self.edges[from + 1] = self.edges[from + 1].wrapping_sub(rest);
        self.edges[to + 1] = self.edges[to + 1].wrapping_sub(each);
    }

    fn bin(&self, delay: Nanos) -> usize {
        ((delay.as_nanos() >> self.shift) as usize).min(BINS - 1)
    }

    /// The delay that at most the planned share of the packets exceeds. `None` if no delay is known.
    ///
    /// Packets that are late whatever the timer is use up that share. However, the timer may always make a quarter as
    /// many packets late. Otherwise delays that moderation does not cause would force the policy to give up moderation.
    pub fn quantile(&self) -> Option<Nanos> {
        self.exceeded_by(self.planned())
    }

    /// Whether a shorter timer is needed: too many packets are late that it would make punctual.
    pub fn is_late(&self) -> bool {
        self.exceeded_by(self.allowed()).is_some_and(|delay| delay > self.goal)
    }

    /// All packets whose delay is known, and the late ones.
    pub fn share(&self) -> Share {
        Share { packets: self.observed(), late: self.late + self.unavoidable }
    }

    /// Whether more packets are late than the goal allows.
    pub fn is_missed(&self) -> bool {
        self.late + self.unavoidable > self.allowed()
    }

    fn allowed(&self) -> u64 {
        self.observed() * self.allowed_ppm / 1_000_000
    }

    /// The delay that at most `share` of the packets exceed.
    fn exceeded_by(&self, share: u64) -> Option<Nanos> {
        if self.packets == 0 {
            return None;
        }
        let allowed = share.saturating_sub(self.unavoidable).max(self.unavoidable / 4) * PACKET;
        let mut weights = [0u64; BINS];
        let mut running = 0u32;
        for (weight, edge) in weights.iter_mut().zip(self.edges) {
            running = running.wrapping_add(edge);
            *weight = u64::from(running);
        }
        let mut above = 0;
        for (bin, weight) in weights.iter().enumerate().rev() {
            if above + weight > allowed {
                // Interpolate within the bin.
                let width = Nanos::from_nanos(1 << self.shift);
                let top = Nanos::from_nanos((bin as u64 + 1) << self.shift);
                return Some(top.saturating_sub(width.scale(allowed - above, *weight)).min(self.longest));
            }
            above += weight;
        }
        Some(Nanos::ZERO)
    }

    /// Whether most packets are late whatever the timer is.
    pub fn hopeless(&self) -> bool {
        self.unavoidable > self.observed() / 2
    }

    /// Whether more packets are late than the goal allows, whatever the timer is.
    pub fn is_missed_anyway(&self) -> bool {
        self.unavoidable > self.allowed()
    }

    /// Number of packets of this window that may be late: the allowed share minus a reserve, because the next second
    /// may be worse than this one.
    ///
    /// For independent events, the standard deviation of their number is its square root (Poisson). Late packets come
    /// in bursts, so their number varies more: with bursts of sixteen, four times as much. The reserve is four standard
    /// deviations, limited to a quarter of the allowed number, but never less than one deviation.
    fn planned(&self) -> u64 {
        let allowed = self.allowed();
        let deviation = allowed.isqrt();
        allowed - deviation.max((4 * deviation).min(allowed / 4))
    }

    /// By how much the latest packets exceed the goal, if they are certainly too late ([`Alarm::raised`]).
    pub fn alarm(&self, enough: u64) -> Option<Nanos> {
        self.alarm.raised(enough, self.allowed_ppm).map(|longest| longest.saturating_sub(self.goal))
    }
}

// Implemented by hand, because a derive would also require `Clone` of the clock's marker type.
impl<C> Clone for Rate<C> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<C> Copy for Rate<C> {}
impl<C> Clone for Totals<C> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<C> Copy for Totals<C> {}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;
    use units::Simulated;

    fn window(goal: &str) -> Window {
        Window::new(goal.parse().unwrap())
    }

    fn delays(packets: u32, shortest_us: u64, longest_us: u64) -> Delays {
        Delays { packets, shortest: Nanos::from_micros(shortest_us), longest: Nanos::from_micros(longest_us) }
    }

    #[test]
    fn a_single_delay_is_its_own_quantile() {
        let mut window = window("p99.9=256us");
        for _ in 0..1_000 {
            window.add(delays(40, 3, 128), Nanos::from_micros(128));
        }
        // One in 40 waits 128 us: the latest one in a thousand is one of those.
        assert_eq!(window.quantile(), Some(Nanos::from_micros(128)));
    }

    #[test]
    fn a_median_is_within_a_bin() {
        let mut window = window("p50=100us");
        for _ in 0..1_000 {
            window.add(delays(100, 2, 200), Nanos::from_micros(200));
        }
        let median = window.quantile().unwrap().as_nanos();
        // Of 100,000 packets, 50,000 may be above, less 4 * 223.
        assert!((100_000..103_000).contains(&median), "{median}");
    }

    #[test]
    fn what_no_timer_could_help_is_told_apart() {
        let mut window = window("p99=50us");
        for _ in 0..100 {
            window.add(delays(10, 1, 20), Nanos::from_micros(20));
        }
        // 50 us too late, but only 20 of them can be the timer's.
        window.add(delays(10, 1, 100), Nanos::from_micros(20));
        assert_eq!(window.quantile(), Some(Nanos::from_micros(20)));
        assert_eq!((window.observed(), window.late, window.unavoidable), (1_010, 0, 5));
    }

    #[test]
    fn an_alarm_takes_several_interrupts_and_more_than_the_allowance() {
        let mut window = window("p99=50us");
        let late = delays(100, 40, 60);
        for _ in 0..2 {
            window.add(late, Nanos::from_micros(20));
            assert_eq!(window.alarm(800), None);
        }
        window.add(late, Nanos::from_micros(20));
        assert_eq!(window.alarm(800), Some(Nanos::from_micros(10)));
    }

    /// Regression test: a few stalls of the machine, each of which made some packets late, were taken for a change.
    #[test]
    fn a_few_stalls_are_no_alarm_and_lateness_that_lasts_is() {
        let punctual = delays(100, 1, 40);
        let late = delays(100, 1, 60);
        let mut stalls = window("p99=50us");
        for _ in 0..20 {
            stalls.add(late, Nanos::from_micros(20));
            (0..9).for_each(|_| stalls.add(punctual, Nanos::from_micros(20)));
            assert_eq!(stalls.alarm(800), None);
        }
        let mut lasting = window("p99=50us");
        (0..1_000).for_each(|_| lasting.add(punctual, Nanos::from_micros(20)));
        let alarm = (1..).find(|_| {
            lasting.add(late, Nanos::from_micros(20));
            lasting.alarm(800).is_some()
        });
        assert!(alarm.is_some_and(|readings| readings <= 10), "{alarm:?}");
        assert_eq!(lasting.alarm(800), Some(Nanos::from_micros(10)));
    }

    #[test]
    fn counters_that_were_set_back_give_no_growth() {
        let totals = |ns, events, packets| Totals::<Simulated> { now: Instant::from_nanos(ns), events, packets };
        assert_eq!(totals(10, 5, 5).since(&totals(0, 6, 0)), None);
        assert_eq!(totals(10, 5, 5).since(&totals(11, 0, 0)), None);
        let wrapped = totals(10, 3, 0).since(&totals(0, u64::MAX - 1, u64::MAX)).unwrap();
        assert_eq!((wrapped.events, wrapped.packets), (5, 1));
    }

    proptest! {
        /// Against the packets one by one, as the window takes them to be spread.
        #[test]
        fn quantile_is_that_of_the_packets_to_within_a_bin(
            goal_us in 10u64..500,
            quantile_ppm in 500_000u32..999_900,
            samples in prop::collection::vec((1u32..50, 0u64..100, 0u64..100), 20..200),
        ) {
            let goal = Goal {
                quantile: units::Quantile::from_ppm(quantile_ppm).unwrap(),
                latency: Nanos::from_micros(goal_us),
            };
            let mut window = Window::new(goal);
            let mut all: Vec<u64> = Vec::new();
            for (packets, shortest, spread) in samples {
                // Up to the goal: what is above is judged by the timer, too.
                let (shortest, longest) = (goal_us * shortest / 200, goal_us * (shortest + spread) / 200);
                window.add(delays(packets, shortest, longest), goal.latency);
                let step = (longest - shortest) * 1_000 / u64::from(packets).saturating_sub(1).max(1);
                all.extend((0..u64::from(packets)).map(|n| longest * 1_000 - n * step));
            }
            all.sort_unstable_by(|a, b| b.cmp(a));
            let exact = all[window.planned() as usize];
            let got = window.quantile().unwrap().as_nanos();
            // A bin for each end of a spread.
            prop_assert!(got.abs_diff(exact) <= 3 << window.shift, "{got} for {exact}, bins of {}", 1 << window.shift);
            prop_assert_eq!(window.packets, all.len() as u64);
        }

        #[test]
        fn anything_may_be_added(
            goal_ns in 1u64..u64::MAX,
            samples in prop::collection::vec((any::<u32>(), any::<u64>(), any::<u64>(), any::<u64>()), 0..50),
        ) {
            let goal = Goal { quantile: units::Quantile::P99, latency: Nanos::from_nanos(goal_ns) };
            let mut window = Window::new(goal);
            for (packets, shortest, longest, timer) in samples {
                let (shortest, longest) = (Nanos::from_nanos(shortest), Nanos::from_nanos(longest));
                window.add(Delays { packets: packets % 100_000, shortest, longest }, Nanos::from_nanos(timer));
                let _ = (window.quantile(), window.alarm(1));
            }
        }
    }
}
