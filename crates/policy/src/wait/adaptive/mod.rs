//! The cheapest wait that keeps the goal: what Apus is for.
//!
//! A packet's delay, as far as the worker can see it, is the end of its wait (late by the wake-up)
//! plus the work. The policy learns what each kind of wait really costs here, from how late its own
//! waits end, and what the traffic looks like, and each time a poll comes back empty it takes the
//! first of these that applies:
//!
//! ```text
//!   empty poll
//!      │
//!      ├─ nothing for 50 ms ──────────────────────────────► block                       [idle]
//!      ├─ the interrupt is in credit, and wakes
//!      │  no more often than a timer would ───────────────► block                       [interrupt]
//!      ├─ a period is known
//!      │     ├─ a burst is due now, or not over yet ──────► poll                        [imminent]
//!      │     └─ it is due later ──────────────────────────► block until just before     [periodic]
//!      ├─ the budget, less the timer's lateness,
//!      │  leaves a sleep worth its price ─────────────────► sleep that long             [budget]
//!      │     └─ cut by the ring ──────────────────────────►                             [loss_bound]
//!      ├─ the interrupt is in credit ─────────────────────► block                       [interrupt]
//!      └─ otherwise ──────────────────────────────────────► poll      [goal_too_tight] or [late]
//! ```
//! **Budget.** The goal's latency, less the work's own time as measured, less a reserve of an eighth
//! (at most 10 us) for what the worker cannot see: the wire and the peer. A timed sleep is shorter
//! than the budget by the margin that its measured lateness asks for (see [`tail`]).
//!
//! **Credit.** The goal's quantile allows a share of late packets. Each packet that is handled earns
//! its share to each kind of wait; each packet that is late after a wait is paid for by the kind of
//! wait that was to blame. A kind in debt is not used until the packets since have paid for it: the
//! policy backs off at once, by exactly as much as the goal asks, and comes back to see whether the
//! price is still the same. A packet that is late although the core was awake was not made late by a
//! wait, and no wait pays for it.
//!
//! **Bounds.** No timed sleep is longer than the goal's latency or the ring's time to overflow. A
//! longer wait is always one that the first arriving frame ends.
//!
//! **Without a goal** the policy holds [`DEFAULT_GOAL`].

mod period;
mod tail;

use units::{Instant, Nanos, Quantile};

use super::{Action, Arrivals, Decision, Ended, Observation, Reason, WaitKind, WaitPolicy};
use crate::{Goal, LossBound};
use period::Period;
use tail::Tail;

/// What is held if nothing was asked for: p99 within 100 us, which a kernel network stack on an
/// untuned host about reaches (rtla and cyclictest figures in the field: tens of microseconds of
/// wake-up latency, [PREEMPT_RT x86, tuned: 10 to 50 us]), at a few per cent of a core.
pub const DEFAULT_GOAL: Goal = Goal { quantile: Quantile::P99, latency: Nanos::from_micros(100) };

/// Silence after which the interrupt alone ends the wait, whatever the goal: a core that stayed awake
/// for the first packet after a silence of a twentieth of a second would never rest.
const IDLE_AFTER: Nanos = Nanos::from_millis(50);
/// The shortest timed sleep. Even this one rests the core for as long as it is late, and OVS-DPDK
/// starts from it too.
const SHORTEST_SLEEP: Nanos = Nanos::from_micros(1);
/// What a wake-up costs in CPU time, about: a wait for a forecast arrival must save more.
const WAKE_COST: Nanos = Nanos::from_micros(10);
/// The reserve for what the worker cannot see is this part of the goal...
const RESERVE_PART: u64 = 8;
/// ...but at most this.
const RESERVE_MOST: Nanos = Nanos::from_micros(10);
/// The share of the late packets that the goal allows which each kind of wait may cause, in
/// percent: interrupts are used in proportion to it, sleeps plan within it.
const INTERRUPT_SHARE: u64 = 45;
const SLEEP_SHARE: u64 = 55;
/// Credit is counted in millionths of a packet; this is one late packet.
const ONE_LATE: i64 = 1_000_000;
/// No kind of wait hoards more credit than this many late packets...
const MOST_CREDIT: i64 = 4 * ONE_LATE;
/// ...or owes more, so that a bad moment of the machine is not paid for without end.
const MOST_DEBT: i64 = -8 * ONE_LATE;
/// Classes of timed waits by their length: a core that slept longer wakes later (C-states, and the
/// halt polling of a host). Below 16 us, then one an octave, the last from 1 ms on.
const CLASSES: usize = 8;

/// Samples from which on a class's lateness is believed.
const ENOUGH: u32 = 8;

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
    /// The sleep that the budget allows; computed when something was learned.
    budget: Option<(Nanos, Reason)>,
    /// Frames until `service` is sampled again.
    until_service_sample: u32,
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
            budget: None,
            until_service_sample: 0,
        };
        policy.plan();
        policy
    }

    /// The goal that is held.
    pub fn goal(&self) -> Goal {
        self.goal
    }

    /// What of the goal is left for a wait: less the work, less the reserve.
    fn lateness_budget(&self) -> Nanos {
        let reserve = (self.goal.latency / RESERVE_PART).min(RESERVE_MOST);
        self.goal.latency.saturating_sub(reserve).saturating_sub(self.service.upper_quantile(900_000))
    }

    /// Works out the timed sleep that the budget allows.
    fn plan(&mut self) {
        let budget = self.lateness_budget().saturating_sub(self.caution.span());
        // The margin depends on the class, the class on the sleep, and the sleep on the margin: the
        // class of the whole budget is the safe one to start from, and once more is near enough.
        let mut sleep = budget;
        for _ in 0..2 {
            // The packets of the time by which the wake-up exceeds its margin are late; such time may
            // make up the allowed share of the whole, which is the sleep and its usual lateness.
            let lateness = self.lateness_of(sleep);
            let whole = sleep + lateness.upper_quantile(500_000);
            let excess = whole.scale(u64::from(self.goal.quantile.above_ppm()) * SLEEP_SHARE, 100_000_000);
            sleep = budget.saturating_sub(lateness.margin(excess));
        }
        let ring = self.ring_time.saturating_sub(self.lateness_of(self.longest_sleep).upper_quantile(990_000));
        self.budget = if sleep.min(ring) < SHORTEST_SLEEP {
            None
        } else if ring < sleep {
            Some((ring, Reason::LossBound))
        } else {
            Some((sleep, Reason::Budget))
        };
    }

    /// How late timed waits of this length end: of the nearest class that has been tried, longer ones
    /// first, since a longer wait ends no earlier.
    fn lateness_of(&self, span: Nanos) -> &Tail {
        let class = class(span);
        let tried = |c: &usize| self.overshoot[*c].samples() >= ENOUGH;
        let nearest = (class..CLASSES).find(tried).or_else(|| (0..class).rev().find(tried));
        &self.overshoot[nearest.unwrap_or(class)]
    }

    fn learn(&mut self, seen: &Observation<'_, C>) {
        let mut learned = false;
        if let Some(wait) = &seen.ended
            && let Some(late) = wait.overshoot()
            && wait.action.kind() != WaitKind::Pause
        {
            let planned = wait.action.until(wait.began).and_then(|due| due.since(wait.began));
            self.overshoot[class(planned.unwrap_or(Nanos::ZERO))].add(late);
            learned = true;
        }
        for queue in seen.queues {
            let (Some(arrivals), received) = (&queue.arrivals, u64::from(queue.received)) else { continue };
            if let Some(span) = self.last_arrival.and_then(|last| arrivals.last.since(last)) {
                let gap = (span / received.max(1)).min(IDLE_AFTER);
                self.gap = (self.gap * 15 + gap) / 16;
            }
            self.last_arrival = Some(self.last_arrival.map_or(arrivals.last, |last| last.max(arrivals.last)));
            self.period.arrived(arrivals.first, arrivals.last);
            self.settle(seen, arrivals, received);
            if self.until_service_sample == 0 {
                self.until_service_sample = 16;
                self.service.add(seen.now.since(arrivals.picked_up).unwrap_or(Nanos::ZERO));
                learned = true;
            }
            self.until_service_sample -= 1;
        }
        if learned {
            self.plan();
        }
    }

    /// Pays what these frames earn, and charges the wait before them for those that are late.
    fn settle(&mut self, seen: &Observation<'_, C>, arrivals: &Arrivals<C>, received: u64) {
        self.interrupt.earn(received);
        self.caution.relax(received);
        let Some(wait) = &seen.ended else { return };
        let reserve = (self.goal.latency / RESERVE_PART).min(RESERVE_MOST);
        let latest = seen.now.before(self.goal.latency.saturating_sub(reserve)).unwrap_or(Instant::ORIGIN);
        let Some(over) = latest.since(arrivals.first).filter(|over| *over > Nanos::ZERO) else { return };
        // Of the frames after the first, taken to be spread evenly, those that came before `latest`.
        let spread = arrivals.last.since(arrivals.first).unwrap_or(Nanos::ZERO).max(over);
        let late = 1 + (received - 1) * over.as_nanos() / spread.as_nanos();
        match wait.action.kind() {
            WaitKind::Block if !timed_out(wait) => self.interrupt.pay(late),
            WaitKind::Block | WaitKind::Sleep => self.caution.raise(late),
            WaitKind::Poll | WaitKind::Pause => {}
        }
    }

    fn decide_empty(&mut self, now: Instant<C>) -> Decision<C> {
        let silence = self.last_arrival.and_then(|last| now.since(last));
        if self.interrupts && silence.is_none_or(|s| s >= IDLE_AFTER) {
            return Decision { action: Action::BlockUntil(None), reason: Reason::Idle };
        }
        let longest_timed = self.budget.map_or(Nanos::ZERO, |(span, _)| span);
        let interrupt = self.interrupts && self.interrupt.in_credit();
        if interrupt && self.gap >= longest_timed {
            return Decision { action: Action::BlockUntil(None), reason: Reason::Interrupt };
        }
        if let Some(forecast) = self.period.forecast(now)
            && now <= forecast.to
        {
            if now < forecast.last_ends {
                return Decision { action: Action::Poll, reason: Reason::Imminent };
            }
            return self.await_forecast(now, forecast.from);
        }
        if let Some((span, reason)) = self.budget {
            return Decision { action: Action::SleepUntil(now + span), reason };
        }
        if interrupt {
            return Decision { action: Action::BlockUntil(None), reason: Reason::Interrupt };
        }
        let reason = if self.caution.span() > Nanos::ZERO { Reason::Late } else { Reason::GoalTooTight };
        Decision { action: Action::Poll, reason }
    }

    /// Waits until shortly before `due`: as much before it as such a wait usually ends late.
    fn await_forecast(&self, now: Instant<C>, due: Instant<C>) -> Decision<C> {
        let ahead = due.since(now).unwrap_or(Nanos::ZERO);
        let lateness = self.lateness_of(ahead);
        let usual = lateness.upper_quantile(900_000);
        let worst = lateness.upper_quantile(1_000_000 - self.goal.quantile.above_ppm() / 2);
        let guard = usual.max(worst.saturating_sub(self.lateness_budget())) + Nanos::from_micros(1);
        let wait = ahead.saturating_sub(guard);
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
            return Decision { action: Action::Poll, reason: Reason::Traffic };
        }
        self.decide_empty(seen.now)
    }
}

/// Whether a block ended by its time rather than by a frame.
fn timed_out<C>(wait: &Ended<C>) -> bool {
    wait.overshoot().is_some()
}

/// The class of a timed wait of this length.
fn class(span: Nanos) -> usize {
    let octaves = (span.as_micros_floor() / 16).checked_ilog2().map_or(0, |o| o as usize + 1);
    octaves.min(CLASSES - 1)
}

/// What a kind of wait may spend of the late packets that the goal allows.
#[derive(Clone, Copy, Debug)]
struct Account {
    credit: i64,
    /// Millionths of a late packet that each packet earns.
    share: i64,
}

impl Account {
    fn new(share_ppm: u64) -> Self {
        Self { credit: ONE_LATE, share: share_ppm as i64 }
    }

    fn earn(&mut self, packets: u64) {
        self.credit = (self.credit + packets as i64 * self.share).min(MOST_CREDIT);
    }

    fn pay(&mut self, packets: u64) {
        self.credit = (self.credit - packets as i64 * ONE_LATE).max(MOST_DEBT);
    }

    fn in_credit(&self) -> bool {
        self.credit >= 0
    }
}

/// An integral controller: late packets shorten the sleep at once, punctual ones lengthen it slowly,
/// so that in the end the share of late packets is the allowed one (stochastic approximation of a
/// quantile: H. Robbins and S. Monro, 1951).
#[derive(Clone, Copy, Debug)]
struct Caution {
    /// In millionths of a nanosecond.
    span: u64,
    most: u64,
    /// What one late packet adds, in nanoseconds.
    step: u64,
    /// The share of late packets that is allowed, in millionths.
    share: u64,
}

impl Caution {
    /// A late packet costs a 32nd of the goal.
    fn new(latency: Nanos, share: u64) -> Self {
        let latency = latency.as_nanos().min(1_000_000_000);
        Self { span: 0, most: latency * 1_000_000, step: latency / 32, share }
    }

    fn relax(&mut self, packets: u64) {
        self.span = self.span.saturating_sub(packets * self.step * self.share);
    }

    fn raise(&mut self, packets: u64) {
        self.span = (self.span + packets * self.step * 1_000_000).min(self.most);
    }

    fn span(&self) -> Nanos {
        Nanos::from_nanos(self.span / 1_000_000)
    }
}

impl<C> Clone for Adaptive<C> {
    fn clone(&self) -> Self {
        Self { period: self.period.clone(), service: self.service.clone(), overshoot: self.overshoot.clone(), ..*self }
    }
}
