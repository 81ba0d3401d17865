//! The expectations behind a decision, to be shown to people.

use units::Nanos;

/// What [`Adaptive`](super::Adaptive) expects of the wait that it chose, and how many late packets it owes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Belief {
    /// Length of the chosen wait. For a block, it is the expected time until the next frame. Zero if the policy polls
    /// again, or if the core blocks because it is idle.
    pub wait: Nanos,
    /// Duration of the whole episode: the wait, the wake-up, and the work on the packets that arrive during them. Zero
    /// if the policy compared no waits, because an idle core blocks whatever the cost.
    pub lasts: Nanos,
    /// Cost of the whole episode without its late packets, as the time for which a polling core costs the same. `None`
    /// until a first wait was measured; before that, the policy only assumes costs.
    pub costs: Option<Nanos>,
    /// Late packets expected in the episode, expressed as the time in which the policy aims at that many. If the wait
    /// is chosen as a trial, fewer are expected than the learned number.
    pub late_worth: Nanos,
    /// The mean time between packets.
    pub gap: Nanos,
    /// The share of late packets that the policy aims at, in ppm. It is a little less than the goal allows.
    pub aimed_ppm: u32,
    /// The number of late packets owed, in millionths of a packet: each late packet adds one, and each packet subtracts
    /// the share that the policy aims at. The number is capped.
    pub owed_millionths: u64,
    /// The price of one more late packet, in 256ths. One unit of price is the time in which the policy aims at one late
    /// packet.
    pub multiplier_256ths: u64,
}

impl Belief {
    /// Cost of the decision per packet: the cost of a wait, divided by the number of packets that arrive during it at
    /// the mean rate. `None` if the cost is unknown.
    pub fn price(&self) -> Option<Nanos> {
        Some(Nanos::from_nanos(self.per_time(self.costs?, self.gap.as_nanos())?))
    }

    /// Cost of the episode as a share of a polling core, in ppm. `None` if the cost is unknown.
    pub fn core_ppm(&self) -> Option<u64> {
        self.per_time(self.costs?, 1_000_000)
    }

    /// The share of packets that the decision is expected to make late, in ppm, at the mean rate. It comes from what
    /// was learned about similar waits, corrected by what was observed of this one. `None` if the policy compared no
    /// waits.
    pub fn expected_late_ppm(&self) -> Option<u64> {
        Some(self.per_time(self.late_worth, u64::from(self.aimed_ppm))?.min(1_000_000))
    }

    /// `part / lasts`, in units of `1 / scale`.
    fn per_time(&self, part: Nanos, scale: u64) -> Option<u64> {
        let lasts = u128::from(self.lasts.as_nanos());
        let share = (u128::from(part.as_nanos()) * u128::from(scale)).checked_div(lasts)?;
        Some(u64::try_from(share).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Adaptive, AdaptiveConfig};
    use super::*;
    use crate::wait::tests::{empty, frames};
    use crate::wait::{Action, Arrivals, Decision, Ended, Observation, Queue, Reason, WaitPolicy};
    use units::{Instant, Simulated};

    const BELIEF: Belief = Belief {
        wait: Nanos::from_micros(90),
        lasts: Nanos::from_micros(100),
        costs: Some(Nanos::from_micros(20)),
        late_worth: Nanos::from_micros(40),
        gap: Nanos::from_micros(10),
        aimed_ppm: 7_500,
        owed_millionths: 0,
        multiplier_256ths: 0,
    };

    #[test]
    fn prices_are_those_of_the_time_that_the_wait_takes() {
        // Ten packets share 20 us, a fifth of the time.
        assert_eq!((BELIEF.price(), BELIEF.core_ppm()), (Some(Nanos::from_micros(2)), Some(200_000)));
        // In 100 us come as many late packets as may come in 40 us.
        assert_eq!(BELIEF.expected_late_ppm(), Some(3_000));
        let unmeasured = Belief { costs: None, ..BELIEF };
        assert_eq!(
            (unmeasured.price(), unmeasured.core_ppm(), unmeasured.expected_late_ppm()),
            (None, None, Some(3_000))
        );
        let idle = Belief { lasts: Nanos::ZERO, ..BELIEF };
        assert_eq!((idle.price(), idle.core_ppm(), idle.expected_late_ppm()), (None, None, None));
        let huge = Belief { costs: Some(Nanos::MAX), late_worth: Nanos::MAX, lasts: Nanos::from_nanos(1), ..BELIEF };
        assert_eq!((huge.price(), huge.expected_late_ppm()), (Some(Nanos::MAX), Some(1_000_000)));
    }

    /// A packet each 100 us is served by waits that end `late`; says the last decision that compared any.
    fn after(policy: &mut Adaptive<Simulated>, packets: u64, late: Nanos, spent: Option<Nanos>) -> Decision<Simulated> {
        let start = 1_000_000_000;
        let mut decision = frames(policy, start, 1);
        for number in 1..=packets {
            let came = Instant::from_nanos(start + number * 100_000);
            let began = came.before(Nanos::from_micros(95)).unwrap();
            // A core that polls on finds the frame as it comes.
            let waits = decision.action != Action::Poll;
            let picked_up = if waits { came + late } else { came };
            let action = decision.action;
            let arrivals = Some(Arrivals::stamped(came, came, picked_up));
            let ended = waits.then_some(Ended { action, began, ended: picked_up, spent, idle: Nanos::ZERO });
            let now = picked_up + Nanos::from_micros(1);
            let queues = [Queue { received: 1, fill: 1, arrivals }];
            decision = policy.decide(&Observation { now, queues: &queues, ended });
        }
        decision
    }

    fn held(goal: &str) -> Adaptive<Simulated> {
        Adaptive::new(AdaptiveConfig { goal: goal.parse().ok(), ..AdaptiveConfig::default() })
    }

    #[test]
    fn a_choice_says_what_it_was_made_by() {
        let mut policy = held("p99=200us");
        assert_eq!(policy.belief(), None, "nothing was decided yet");
        let us = Nanos::from_micros;
        let decision = after(&mut policy, 2_000, us(5), Some(us(7)));
        let belief = policy.belief().expect("it compared waits");
        assert_ne!(decision.action, Action::Poll, "{belief:?}");
        let gap = belief.gap.as_nanos();
        assert!((99_000..=101_000).contains(&gap), "{belief:?}");
        // Several packets share a wait of 7 us and more, and each takes 1 us of work.
        let price = belief.price().unwrap().as_nanos();
        assert!((1_000..=20_000).contains(&price), "{price} {belief:?}");
        assert!(belief.core_ppm().unwrap().abs_diff(price * 1_000_000 / gap) <= 20, "{belief:?}");
        assert_eq!((belief.aimed_ppm, belief.owed_millionths, belief.multiplier_256ths), (7_500, 0, 0));
        assert!(belief.expected_late_ppm().unwrap() < 10_000, "{belief:?}");
        // Frames that were left in the ring are taken at once: nothing is compared.
        let now = Instant::from_nanos(2_000_000_000);
        let arrivals = Some(Arrivals::stamped(now, now, now));
        policy.decide(&Observation { now, queues: &[Queue { received: 64, fill: 70, arrivals }], ended: None });
        assert_eq!(policy.belief(), None);
    }

    #[test]
    fn late_packets_are_owed_until_they_are_paid() {
        let mut policy = held("p99=50us");
        let us = Nanos::from_micros;
        after(&mut policy, 40, us(70), Some(us(7)));
        let belief = policy.belief().unwrap();
        // Each late packet counts one, each packet takes away 0.0075.
        let late = belief.owed_millionths.div_ceil(1_000_000);
        assert!(late >= 1 && belief.owed_millionths >= late * 1_000_000 - 41 * 7_500, "{belief:?}");
        assert!(belief.multiplier_256ths > 0, "{belief:?}");
        after(&mut policy, 20_000, Nanos::ZERO, Some(us(7)));
        assert_eq!(policy.belief().unwrap().owed_millionths, 0);
    }

    #[test]
    fn what_is_not_known_is_not_said() {
        let mut policy = held("p99=200us");
        after(&mut policy, 100, Nanos::from_micros(5), None);
        let belief = policy.belief().unwrap();
        assert_eq!((belief.costs, belief.price()), (None, None), "no wait was measured");
        assert!(belief.expected_late_ppm().is_some());
        // After a long silence the core blocks whatever that costs.
        let decision = empty(&mut policy, 3_000_000_000);
        assert_eq!(decision.reason, Reason::Idle);
        let idle = policy.belief().unwrap();
        assert_eq!((idle.lasts, idle.price(), idle.expected_late_ppm()), (Nanos::ZERO, None, None));
    }
}
