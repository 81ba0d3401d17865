//! The cheapest wait that keeps the goal: what Apus is for.
//!
//! A packet's delay, as far as the worker can see it, is the end of its wait (late by the wake-up)
//! plus the work. The policy learns what each kind of wait really costs here, from how late its own
//! waits end, and what the traffic looks like, and each time a poll comes back empty it takes the
//! first of these that applies:
//!
//! ```text
//!   empty poll (or, where sleeps pay, one that emptied the rings)
//!      │
//!      ├─ nothing for 50 ms, or a frame each 45 ms ───────► block                       [idle]
//!      ├─ the interrupt keeps the goal, is in credit, and
//!      │  costs no more than a timer would ───────────────► block                       [interrupt]
//!      ├─ a period is known                                       (one in 128: block)   [probe]
//!      │     ├─ a burst is due now, or not over yet ──────► poll                        [imminent]
//!      │     └─ it is due later ──────────────────────────► block until just before     [periodic]
//!      ├─ the budget, less the timer's lateness,
//!      │  leaves a sleep worth its price ─────────────────► sleep that long             [budget]
//!      │     └─ cut by the ring ──────────────────────────►                             [loss_bound]
//!      ├─ the interrupt is in credit, and keeps the goal
//!      │  or makes but one packet late ───────────────────► block                       [interrupt]
//!      └─ otherwise ──────────────────────────────────────► poll      [goal_too_tight] or [late]
//! ```
//! **Budget.** The goal's latency, less the work's own time as measured, less a reserve of an eighth
//! (at most 10 us; more where more is known) for what the worker cannot see: the wire and the peer. A timed
//! sleep is shorter
//! than that by as much as such a sleep usually ends late ([`tail`]), and by a caution ([`risk`]).
//!
//! **Risk.** The goal's quantile allows a share of late packets, and each kind of wait has a part of
//! it. Packets that are late after a sleep or a wait for a forecast burst raise the caution at once,
//! by which such waits are then shorter; punctual ones lower it slowly, so that the late ones are
//! the allowed share in the end. An interrupt cannot be made shorter: it has credit, which each packet
//! earns and each late one pays, and in debt it is not used. The policy so backs off at once, by as
//! much as the goal asks, and comes back to see whether the price is still the same. A wait answers for the
//! packets that came during it, however many polls take them. A packet that is late although the core was
//! awake was not made late by a wait, and none pays for it.
//!
//! **Bounds.** No timed sleep is longer than the goal's latency or the ring's time to overflow. A
//! longer wait is always one that the first arriving frame ends.
//!
//! **Without a goal** the policy holds [`DEFAULT_GOAL`].
//!
//! **At the start** nothing is known of what waits cost, and the first hundred packets or so find it out by being
//! late. [`Adaptive::know`] spares them that, on a platform that was measured before.

mod costs;
mod period;
mod risk;
mod tail;

use units::{Instant, Nanos, Quantile};

use super::{Action, Arrivals, Decision, Observation, Reason, WaitKind, WaitPolicy};
use crate::{Goal, LossBound};
pub use costs::{LENGTHS, Lateness, TimedCost, WakeCosts};
use period::Period;
use risk::{Account, Caution};
use tail::Tail;

/// What is held if nothing was asked for: p99 within 100 us. Tight enough that no user of a kernel
/// network stack would notice, and loose enough that interrupts and sleeps of some ten microseconds
/// keep it on most machines, at a few per cent of a core.
pub const DEFAULT_GOAL: Goal = Goal { quantile: Quantile::P99, latency: Nanos::from_micros(100) };

/// Silence after which the interrupt alone ends the wait, whatever the goal: a core that stayed awake
/// for the first packet after a silence of a twentieth of a second would never rest.
const IDLE_AFTER: Nanos = Nanos::from_millis(50);
/// Frames that come further apart than this on average are no traffic, but an idle core's.
const SPARSE: Nanos = Nanos::from_millis(45);
/// The shortest timed sleep: about half of what its wake-up costs in CPU time. A shorter one saves next to
/// nothing, and makes packets no less late: on a 2-vCPU VM (Linux 6.18) sleeps of 2, 4 and 8 us in a row
/// took 95, 65 and 45 % of a core, with the same p99.
const SHORTEST_SLEEP: Nanos = Nanos::from_micros(4);
/// What a wake-up costs in CPU time, about: a wait for a forecast arrival must save more.
const WAKE_COST: Nanos = Nanos::from_micros(10);
/// The reserve for what the worker cannot see is this part of the goal...
const RESERVE_PART: u64 = 8;
/// ...but at most this.
const RESERVE_MOST: Nanos = Nanos::from_micros(10);
/// The share of the late packets that the goal allows which each kind of wait may cause, in
/// percent: an interrupt spends credit, a sleep and a wait for a forecast burst are shortened by caution.
/// Chosen by trial on a noisy 2-vCPU VM; no theory stands behind the division.
const INTERRUPT_SHARE: u64 = 55;
const SLEEP_SHARE: u64 = 35;
const PERIODIC_SHARE: u64 = 15;
/// Classes of timed waits by their length: a core that slept longer wakes later (C-states, and the
/// halt polling of a host). Below 16 us, then one an octave, the last from 1 ms on.
const CLASSES: usize = 8;

/// What a timed wake-up costs, in percent of what one by interrupt costs: setting the timer is extra.
/// On a 2-vCPU VM (Linux 6.18) a timed wake-up was measured at 6.0 to 7.4 us of CPU time; for one by
/// interrupt, 5.3 us is an estimate, from a worker's CPU time less 3 us a packet.
const TIMER_COST: u64 = 130;
/// Waits after which what was learned is worked out anew.
const REPLAN: u32 = 64;
/// While a period is followed, one in so many polls with frames is left to the interrupt, to see what it costs now.
const PROBE_EVERY: u32 = 128;
/// Late packets that a kind of wait owes at most: about a ring of them.
const MOST_OWED: u64 = 4_096;
/// Where sleeps are not taken because what was learned forbids them, one is tried after so many polls with frames, times the
/// share of late packets that the goal allows, in millionths: one in 128 at p99, one in 1280 at p99.9.
const TRY_SHARE: u32 = 1_280_000;
/// Samples from which on a class's lateness is believed.
const ENOUGH: u32 = 16;
/// The lateness that a timed wait reckons with, as a share of those seen. Robust against a few bad ones,
/// which [`Caution`] answers for.
const USUAL_PPM: u32 = 750_000;

/// What [`Adaptive`] is to hold.
#[derive(Clone, Copy, Debug)]
pub struct AdaptiveConfig {
    /// The latency goal; without one, [`DEFAULT_GOAL`].
    pub goal: Option<Goal>,
    /// No wait is longer than this bound allows.
    pub loss: Option<LossBound>,
    /// Whether a frame can end a block. If not, only timed waits are used.
    pub interrupts: bool,
}

impl Default for AdaptiveConfig {
    fn default() -> Self {
        Self { goal: None, loss: None, interrupts: true }
    }
}

/// See the [module](self).
#[derive(Debug)]
pub struct Adaptive<C> {
    goal: Goal,
    interrupts: bool,
    /// No timed sleep is longer than this: the goal and the ring.
    longest_sleep: Nanos,
    ring_time: Nanos,
    period: Period<C>,
    /// The mean gap between frames.
    gap: Nanos,
    last_arrival: Option<Instant<C>>,
    /// How long frames took from pick-up to departure.
    service: Tail,
    /// How late timed waits ended, by their length.
    overshoot: [Tail; CLASSES],
    /// What the interrupt may still spend.
    interrupt: Account,
    /// By how much sleeps are shorter than planned, because planned ones were late too often.
    caution: Caution,
    /// By how much waits for a forecast burst end earlier than they usually have to.
    periodic_caution: Caution,
    /// How late interrupts woke the core.
    interrupt_lateness: Tail,
    /// Stalls of the machine are put up with as long as they make up a quarter of what the goal allows.
    stalls_ppm: u32,
    /// The goal less the reserve: arrival to departure, as the worker sees it.
    target: Nanos,
    /// The sleep that the budget allows, but for the caution.
    timed: (Nanos, Reason),
    /// How long before a forecast arrival a wait of each class has to end.
    guards: [Nanos; CLASSES],
    /// Whether the guards are up to date: a period was known at the last [`plan`](Self::plan).
    guarded: bool,
    /// Whether interrupts alone keep the goal.
    interrupt_keeps_goal: bool,
    /// Polls with frames since the interrupt was last tried.
    since_interrupt: u32,
    /// Polls with frames since a sleep that nothing seemed to allow was last tried, and after how many it is tried again.
    since_sleep: u32,
    try_every: u32,
    /// Waits since the budget was worked out.
    learned: u32,
    /// Frames until `service` is sampled again.
    until_service_sample: u32,
    /// The wait whose frames the polls still take: it is charged for those that are late.
    charged: Option<Action<C>>,
}

impl<C> Adaptive<C> {
    /// Knows nothing yet.
    pub fn new(config: AdaptiveConfig) -> Self {
        let goal = config.goal.unwrap_or(DEFAULT_GOAL);
        let ring_time = config.loss.map_or(Nanos::MAX, |loss| loss.longest_absence());
        let allowed = u64::from(goal.quantile.above_ppm());
        let mut policy = Self {
            goal,
            interrupts: config.interrupts,
            longest_sleep: goal.latency.min(ring_time),
            ring_time,
            period: Period::new(),
            gap: IDLE_AFTER,
            last_arrival: None,
            service: Tail::new(),
            overshoot: [const { Tail::new() }; CLASSES],
            interrupt: Account::new(allowed * INTERRUPT_SHARE / 100),
            caution: Caution::new(goal.latency, allowed * SLEEP_SHARE / 100),
            periodic_caution: Caution::new(goal.latency, allowed * PERIODIC_SHARE / 100),
            interrupt_lateness: Tail::new(),
            stalls_ppm: goal.quantile.above_ppm() / 4,
            target: goal.latency.saturating_sub((goal.latency / RESERVE_PART).min(RESERVE_MOST)),
            timed: (Nanos::ZERO, Reason::Budget),
            guards: [Nanos::ZERO; CLASSES],
            guarded: false,
            interrupt_keeps_goal: true,
            since_interrupt: 0,
            since_sleep: 0,
            try_every: TRY_SHARE.div_ceil(goal.quantile.above_ppm().max(1)).max(1),
            learned: 0,
            until_service_sample: 0,
            charged: None,
        };
        policy.plan();
        policy
    }

    /// Starts from what was measured on this platform instead of from nothing. To be called before the first
    /// decision: what was learned is given up where `costs` knows better.
    pub fn know(&mut self, costs: &WakeCosts) {
        for cost in costs.timed.iter().flatten() {
            self.overshoot[class(cost.length)] = Tail::from_measured(&cost.lateness);
        }
        if let Some(lateness) = &costs.interrupt {
            self.interrupt_lateness = Tail::from_measured(lateness);
        }
        // Waits reckon with what is usual, and the caution leaves room for the rest. Found by late packets it grows
        // from nothing; measured, it begins at what is exceeded by no more waits than may be late, and shrinks while
        // all is well. Sleeps are about as long as the budget, waits for a forecast may be of any length.
        let rest = |cost: &TimedCost, share| {
            cost.lateness.exceeded_by(share).saturating_sub(cost.lateness.p75.max(cost.lateness.p50))
        };
        let timed = || costs.timed.iter().flatten();
        let budget = class(self.target.min(self.longest_sleep));
        let longer = timed().rev().filter(|cost| class(cost.length) >= budget).min_by_key(|cost| class(cost.length));
        if let Some(sleep) = longer.or_else(|| timed().max_by_key(|cost| class(cost.length))) {
            self.caution.begin_at(rest(sleep, self.caution.share()));
        }
        if let Some(most) = timed().map(|cost| rest(cost, self.periodic_caution.share())).max() {
            self.periodic_caution.begin_at(most);
        }
        self.plan();
    }

    /// Reckons with this from the end of the worker's work to a packet's departure, where the reserve for what the
    /// worker cannot see is less.
    pub fn with_unseen(mut self, unseen: Nanos) -> Self {
        self.target = self.target.min(self.goal.latency.saturating_sub(unseen));
        self.plan();
        self
    }

    /// The goal that is held.
    pub fn goal(&self) -> Goal {
        self.goal
    }

    /// Works out, from what was learned, what [`decide_empty`](Self::decide_empty) goes by.
    fn plan(&mut self) {
        let budget = self.target.saturating_sub(self.service.upper_quantile(900_000));
        self.interrupt_keeps_goal = self.interrupt_lateness.samples() < ENOUGH
            || self.interrupt_lateness.upper_quantile(self.goal.quantile.as_ppm()) <= budget;
        // Eight searches, for what is asked of a known period only.
        self.guarded = self.period.is_known();
        if self.guarded {
            for class in 0..CLASSES {
                let lateness = self.lateness_of(class);
                self.guards[class] =
                    lateness.upper_quantile(USUAL_PPM) + self.periodic_caution.span() + Nanos::from_micros(1);
            }
        }
        self.timed = self.timed_sleep(budget);
    }

    /// The timed sleep that a budget allows: shorter by as much as such a sleep usually ends late. How
    /// much more has to be left for the unusual, [`Caution`] finds out.
    fn timed_sleep(&self, budget: Nanos) -> (Nanos, Reason) {
        // The lateness depends on the class, the class on the sleep, and the sleep on the lateness: the
        // class of the whole budget is the safe one to start from, and once more is near enough.
        let mut sleep = budget;
        for _ in 0..2 {
            sleep = budget.saturating_sub(self.lateness_of(class(sleep)).upper_quantile(USUAL_PPM));
        }
        let ring = self.ring_time.saturating_sub(self.lateness_of(class(self.longest_sleep)).upper_quantile(990_000));
        let (span, reason) = if ring < sleep { (ring, Reason::LossBound) } else { (sleep, Reason::Budget) };
        (span, reason)
    }

    /// How late timed waits of this class end: of the nearest class that has been tried, longer ones
    /// first, since a longer wait ends no earlier.
    fn lateness_of(&self, class: usize) -> &Tail {
        let tried = |c: &usize| self.overshoot[*c].samples() >= ENOUGH;
        let nearest = (class..CLASSES).find(tried).or_else(|| (0..class).rev().find(tried));
        &self.overshoot[nearest.unwrap_or(class)]
    }

    fn learn(&mut self, seen: &Observation<'_, C>) {
        // A stall of the machine is no property of the wait that it happened in: not learned, not paid for.
        let mut stalled = false;
        if let Some(wait) = &seen.ended
            && wait.action.kind() != WaitKind::Pause
        {
            if let Some(late) = wait.overshoot() {
                let planned = wait.action.until(wait.began).and_then(|due| due.since(wait.began));
                stalled = self.overshoot[class(planned.unwrap_or(Nanos::ZERO))].add(late, self.stalls_ppm);
            } else if let Some(arrivals) = seen.queues.iter().filter_map(|q| q.arrivals.as_ref()).next() {
                stalled = self.interrupt_lateness.add(arrivals.lateness(), self.stalls_ppm);
            }
            self.learned += 1;
        }
        if let Some(wait) = &seen.ended {
            self.charged = Some(wait.action);
        }
        for queue in seen.queues {
            let (Some(arrivals), received) = (&queue.arrivals, u64::from(queue.received)) else { continue };
            if let Some(span) = self.last_arrival.and_then(|last| arrivals.last.since(last)) {
                // One frame is what most polls bring: no division for it.
                let gap = if received <= 1 { span } else { span / received }.min(IDLE_AFTER);
                self.gap = (self.gap * 31 + gap) / 32;
            }
            self.last_arrival = Some(self.last_arrival.map_or(arrivals.last, |last| last.max(arrivals.last)));
            self.period.arrived(arrivals.first, arrivals.last);
            self.since_interrupt = self.since_interrupt.saturating_add(1);
            self.since_sleep = self.since_sleep.saturating_add(1);
            self.interrupt.earn(received);
            self.caution.relax(received);
            self.periodic_caution.relax(received);
            if !stalled {
                // At first no more is owed than what waited. What is late after that has queued up behind it.
                let waiting = u64::from(queue.fill.max(queue.received));
                self.charge(seen.now, arrivals, received, if seen.ended.is_some() { waiting } else { MOST_OWED });
            }
            if self.until_service_sample == 0 {
                self.until_service_sample = 16;
                self.service.add(seen.now.since(arrivals.picked_up).unwrap_or(Nanos::ZERO), 0);
            }
            self.until_service_sample -= 1;
        }
        // What came during the wait may take several polls.
        if stalled || seen.queues.iter().all(|queue| queue.received >= queue.fill) {
            self.charged = None;
        }
        if self.learned >= REPLAN || self.guarded != self.period.is_known() {
            self.learned = 0;
            self.plan();
        }
    }

    /// Charges the wait before these frames for those that are late, until it owes `most`.
    fn charge(&mut self, now: Instant<C>, arrivals: &Arrivals<C>, received: u64, most: u64) {
        let Some(wait) = self.charged else { return };
        let latest = now.before(self.target).unwrap_or(Instant::ORIGIN);
        let Some(over) = latest.since(arrivals.first).filter(|over| *over > Nanos::ZERO) else { return };
        // Of the frames after the first, taken to be spread evenly, those that came before `latest`.
        let spread = arrivals.last.since(arrivals.first).unwrap_or(Nanos::ZERO).max(over);
        let late = 1 + (received.max(1) - 1) * over.as_nanos() / spread.as_nanos();
        let (late, most) = (late.min(MOST_OWED), most.min(MOST_OWED));
        match wait {
            Action::BlockUntil(None) => self.interrupt.pay(late, most),
            Action::BlockUntil(Some(_)) => self.periodic_caution.raise(late, received, most),
            Action::SleepUntil(_) => self.caution.raise(late, received, most),
            Action::Poll | Action::Pause(_) => {}
        }
    }

    /// The sleep that budget and caution allow.
    fn careful_sleep(&self) -> Nanos {
        self.timed.0.saturating_sub(self.caution.span())
    }

    fn interrupt_is_cheaper(&self, timed: Nanos) -> bool {
        self.gap * TIMER_COST / 100 >= timed
    }

    /// After a poll that brought frames, but not as many as it could. Where sleeps are what pays, it
    /// sleeps at once, from the time of that poll: another one would find next to nothing, and what has
    /// come meanwhile is waited for no longer than if it had come just after. `None`: poll again.
    fn sleep_from(&self, seen: &Observation<'_, C>) -> Option<Decision<C>> {
        let timed = self.careful_sleep();
        if self.interrupt_is_cheaper(timed) || self.period.is_known() {
            return None;
        }
        let polled = seen.queues.iter().filter_map(|q| q.arrivals.as_ref()).map(|a| a.picked_up).min()?;
        let emptied = seen.queues.iter().all(|q| q.received == q.fill);
        let until = polled + timed;
        let left = until.since(seen.now)?;
        (emptied && left >= SHORTEST_SLEEP)
            .then_some(Decision { action: Action::SleepUntil(until), reason: self.timed.1 })
    }

    fn decide_empty(&mut self, now: Instant<C>) -> Decision<C> {
        let silence = self.last_arrival.and_then(|last| now.since(last));
        let idle = self.gap >= SPARSE || silence.is_none_or(|s| s >= IDLE_AFTER);
        if self.interrupts && idle {
            return Decision { action: Action::BlockUntil(None), reason: Reason::Idle };
        }
        let timed = self.careful_sleep();
        let interrupt = self.interrupts && self.interrupt.in_credit();
        let interrupt_cheaper = self.interrupt_is_cheaper(timed);
        if interrupt && interrupt_cheaper && self.interrupt_keeps_goal {
            return self.interrupt(Reason::Interrupt);
        }
        if let Some(forecast) = self.period.forecast(now) {
            if now < forecast.last_ends {
                return Decision { action: Action::Poll, reason: Reason::Imminent };
            }
            if now > forecast.to {
                // Not at its time: it may be lost. A late one ends the wait, the next one is waited for.
                return self.await_forecast(now, forecast.next);
            }
            if interrupt && self.since_interrupt >= PROBE_EVERY {
                return self.interrupt(Reason::Probe);
            }
            return self.await_forecast(now, forecast.from);
        }
        if interrupt && interrupt_cheaper {
            return self.interrupt(Reason::Interrupt);
        }
        if timed >= SHORTEST_SLEEP {
            return Decision { action: Action::SleepUntil(now + timed), reason: self.timed.1 };
        }
        // One that does not keep the goal is worth its late packet, but not many.
        if interrupt && (self.interrupt_keeps_goal || self.gap >= self.target) {
            return self.interrupt(Reason::Interrupt);
        }
        if self.since_sleep >= self.try_every && self.timed.0 < SHORTEST_SLEEP && self.gap >= SHORTEST_SLEEP {
            // What was learned of sleeps forbids them, and without any it would be believed for ever.
            self.since_sleep = 0;
            return Decision { action: Action::SleepUntil(now + SHORTEST_SLEEP), reason: Reason::Probe };
        }
        let reason = if self.caution.span() > Nanos::ZERO { Reason::Late } else { Reason::GoalTooTight };
        Decision { action: Action::Poll, reason }
    }

    /// Blocks until the next frame.
    fn interrupt(&mut self, reason: Reason) -> Decision<C> {
        self.since_interrupt = 0;
        Decision { action: Action::BlockUntil(None), reason }
    }

    /// Waits until shortly before `due`: as much before it as such a wait usually ends late.
    fn await_forecast(&self, now: Instant<C>, due: Instant<C>) -> Decision<C> {
        let ahead = due.since(now).unwrap_or(Nanos::ZERO);
        let wait = ahead.saturating_sub(self.guards[class(ahead)]).saturating_sub(self.periodic_caution.span());
        if wait < WAKE_COST {
            return Decision { action: Action::Poll, reason: Reason::Imminent };
        }
        let until = now + wait;
        let action = if self.interrupts {
            Action::BlockUntil(Some(until))
        } else {
            Action::SleepUntil(until.min(now + self.longest_sleep))
        };
        Decision { action, reason: Reason::Periodic }
    }
}

impl<C> WaitPolicy<C> for Adaptive<C> {
    #[inline]
    fn decide(&mut self, seen: &Observation<'_, C>) -> Decision<C> {
        let received = seen.received();
        if received > 0 || seen.ended.is_some() {
            self.learn(seen);
        }
        if received > 0 {
            return self.sleep_from(seen).unwrap_or(Decision { action: Action::Poll, reason: Reason::Traffic });
        }
        self.decide_empty(seen.now)
    }
}

/// The class of a timed wait of this length.
fn class(span: Nanos) -> usize {
    let octaves = (span.as_micros_floor() / 16).checked_ilog2().map_or(0, |o| o as usize + 1);
    octaves.min(CLASSES - 1)
}

impl<C> Clone for Adaptive<C> {
    fn clone(&self) -> Self {
        Self {
            period: self.period.clone(),
            service: self.service.clone(),
            overshoot: self.overshoot.clone(),
            interrupt_lateness: self.interrupt_lateness.clone(),
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Simulated;

    #[test]
    fn the_caution_begins_at_what_no_more_waits_exceed_than_may_be_late() {
        let us = Nanos::from_micros;
        let cost = |length, rare| {
            let lateness = Lateness { p50: us(3), p75: us(4), p90: us(5), p99: us(6), p999: us(rare) };
            Some(TimedCost { length: us(length), lateness })
        };
        let mut costs = WakeCosts::default();
        (costs.timed[0], costs.timed[1]) = (cost(50, 11), cost(350, 19));
        let cautions = |goal: &str| {
            let config = AdaptiveConfig { goal: goal.parse().ok(), ..AdaptiveConfig::default() };
            let mut policy = Adaptive::<Simulated>::new(config);
            policy.know(&costs);
            (policy.caution.span(), policy.periodic_caution.span())
        };
        // Of one in a hundred, sleeps may make 35 % late, and waits for a forecast 15 %: fewer than p99 leaves. Sleeps
        // are as long as the budget; waits for a forecast, of any length.
        assert_eq!(cautions("p99=40us"), (us(11 - 4), us(19 - 4)));
        // Of one in two: 17.5 % and 7.5 %.
        assert_eq!(cautions("p50=40us"), (us(5 - 4), us(6 - 4)));
        // Never more than half of the goal.
        assert_eq!(cautions("p99=20us").1, us(10));
    }
}
