//! The cheapest wait that keeps the goal: what Apus is for.
//!
//! **The problem.** The loop makes episodes: a wait, the wake-up, the packets that came meanwhile. Of the waits that it
//! could take, each lasts `T`, costs `C` (the time of a core that polls and costs as much: CPU time, or energy where
//! that is known), and makes `L` packets late. The least `E[C] / E[T]` is wanted, subject to late packets being no more
//! than the share `e` of all that the goal's quantile leaves.
//!
//! **The rule** is drift plus penalty for renewal systems (M. J. Neely, "Stochastic Network Optimization with Application
//! to Communication and Queueing Systems", 2010, sections 4.3 and 7.2): a virtual queue ([`Owed`]) holds the late packets
//! that are owed; a late one adds 1, each packet takes away `e`. At each decision the candidate is taken with the least
//!
//! ```text
//!   (C + m g L / e) / T        m: the queue, as a multiplier; g: the mean gap, so that g / e is the time
//!                              in which the goal allows one late packet
//! ```
//! As long as nothing is owed (`m = 0`) that is the cheapest wait. Each late packet makes lateness dearer until waits that
//! cause less of it are the cheaper ones, and polling (`C = T`, `L = 0`) at the last; punctual ones make it cheaper again.
//! Mixtures arise by themselves, and trying what has not been tried is part of it. The queue stays bounded, so that the
//! share of late packets is in the long run no more than `e`, if any candidate can do that.
//!
//! ```text
//!             ┌────────── learned ──────────┐                 ┌── plan: T, C, L of each candidate ──┐
//!  wait ends ─┤ lateness by kind and length │                 │ sleep: the budget less the lateness │
//!             │ price    by kind and length ├──► expected ──► │        (50 ... 100 %, 2x), 1/2, 1/4 │──► the least
//!  frames ────┤ gaps by octave; the period  │    T, C, L      │ block: until the next frame         │    of all
//!             │ work a packet               │       ▲         │ until shortly before a forecast     │
//!             └──────────────┬──────────────┘       │         │ poll on                             │
//!                            └─ seen: late share ───┘         └─────────────────▲───────────────────┘
//!                               of each candidate                               │
//!  late? ───────────────────────────────────────────────────────────────────► owed
//! ```
//! **Expected lateness** is a model's: a packet that comes `u` after the beginning of a sleep `s` waits for its end, which
//! is late by what such sleeps were, and for its work; one that ends a block takes as long as those before it did. So a
//! candidate is judged before it is tried. Where the model expects too much or too little, what was seen of the candidate sets it
//! right ([`Plan::corrected`](plan::Plan)), at once after a late packet.
//!
//! **Silence** begins when the last frame could be seen, and not when it arrived: [`OnTheWay`](arrivals::OnTheWay). At 7 Mpps 20 frames are
//! on their way into memory at any time; to wait for the next one would be to wait for what has arrived.
//!
//! **The end of a wait** is when the packets that came meanwhile, and while these were served, are all served: its busy period
//! ([`Plan::until_drained`](plan::Plan)). It pays for all of that, and answers for all packets that are late within it.
//!
//! **Trying.** What has not been taken for long gets cheaper ([`prices`]) and is expected to be late less often
//! ([`Plan::doubt`](plan::Plan::doubt)), until it is tried: as often as the goal allows the late packets of such a trial.
//!
//! **Frequency.** [`Adaptive::outlook`] works out what the cheapest waits would cost if everything took longer or shorter, and
//! [`Adaptive::paid_since`] what they have cost: by these a frequency policy chooses.
//!
//! **Bounds.** No timed sleep is longer than the goal's latency or the ring's time to overflow. A longer wait is always
//! one that the first arriving frame ends. Stalls of the machine are not learned and not paid for as long as they make
//! up a quarter of what the goal allows late ([`tail`]); nor is a packet that was late although the core was awake.
//!
//! **Silence.** After 50 ms without a frame, or a frame each 45 ms, the core blocks whatever the goal: one that stayed
//! awake for the first packet after a twentieth of a second would never rest.
//!
//! **Without a goal** the policy holds [`DEFAULT_GOAL`].
//!
//! **At the start** nothing is known of what waits cost; [`Adaptive::know`] spares the first packets that, on a platform
//! that was measured before.

mod arrivals;
mod belief;
mod costs;
mod owed;
mod period;
mod plan;
mod prices;
mod tail;

use units::{Instant, Nanos, Quantile};

use super::{Action, Arrivals, Decision, Ended, Observation, Reason, WaitKind, WaitPolicy};
use crate::{Goal, LossBound};
pub use belief::Belief;
pub use costs::{LENGTHS, Lateness, TimedCost, WakeCosts};
use owed::Owed;
use period::Period;
pub use plan::Slower;
use plan::{BLOCK, Choice, POLL, Plan, UNTIL};
use prices::Kind;
use tail::Tail;

/// What is held if nothing was asked for: p99 within 100 us. Tight enough that no user of a kernel
/// network stack would notice, and loose enough that interrupts and sleeps of some ten microseconds
/// keep it on most machines, at a few per cent of a core.
pub const DEFAULT_GOAL: Goal = Goal { quantile: Quantile::P99, latency: Nanos::from_micros(100) };

/// Silence after which the interrupt alone ends the wait, whatever the goal.
const IDLE_AFTER: Nanos = Nanos::from_millis(50);
/// Frames that come further apart than this on average are no traffic, but an idle core's.
const SPARSE: u64 = 45_000_000;
/// The reserve for what the worker cannot see (the wire, the peer) is this part of the goal...
const RESERVE_PART: u64 = 8;
/// ...but at most this.
const RESERVE_MOST: Nanos = Nanos::from_micros(10);
/// What waits cost is doubted after so long without one.
const DOUBT_AFTER: Nanos = Nanos::from_millis(50);
/// Late packets that the goal must allow in a time, for a share of that time's to mean anything.
const COUNTS: i128 = 8;
/// Frames of which it is known what they took.
const WORKED: u64 = 1024;
/// Polls with frames between two samples of their work.
const SERVICE_EVERY: u32 = 16;

/// What [`Adaptive`] is to hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
    longest_sleep: Nanos,
    /// The goal less the reserve: arrival to departure, as the worker sees it.
    target: Nanos,
    /// How far frames of a burst depart from each other at least.
    spacing: Nanos,
    /// Stalls of the machine are put up with as long as they make up a quarter of what the goal allows.
    stalls_ppm: u32,
    owed: Owed,
    plan: Plan,
    period: Period<C>,
    last_arrival: Option<Instant<C>>,
    on_the_way: arrivals::OnTheWay,
    /// How long frames took to depart, but for what they waited before the core began to work.
    service: Tail,
    /// When it began, as long as each poll brings frames.
    busy_since: Option<Instant<C>>,
    until_service_sample: u32,
    /// Time, in nanoseconds, and the frames that it went into, halved now and then.
    worked: (u64, u64),
    /// The candidate that was chosen last, and whether its frames are still being taken: it answers for the late ones.
    chosen: usize,
    /// The share of its packets that the model expects to be late, in millionths.
    expected: u64,
    /// How long a wait for the device was expected to be. What was learned is asked for by that, so it is learned by that: how
    /// long it was in the end depends on how late it ended.
    planned: u64,
    charged: bool,
    /// What the last decision was made by.
    compared: Compared,
    /// Whether any wait has said what it cost.
    measured: bool,
    paid: Paid,
    /// When a wait was learned from, or what is known was doubted.
    learned: Option<Instant<C>>,
    /// When the candidates that were not taken were doubted last.
    doubted: Instant<C>,
}

/// What has been paid since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Paid {
    /// What waits have saved against polling as long as they lasted, in nanoseconds.
    saved: i64,
    /// Late packets less those that are aimed at, in millionths.
    late: i64,
}

/// What a decision was made by.
#[derive(Clone, Copy, Debug)]
enum Compared {
    /// Frames are left to be taken at once.
    Nothing,
    /// Nothing has come for long.
    Idle,
    /// The cheapest of all waits, at this multiplier.
    Waits(Choice, u64),
}

impl<C> Adaptive<C> {
    /// Knows nothing yet.
    pub fn new(config: AdaptiveConfig) -> Self {
        let goal = config.goal.unwrap_or(DEFAULT_GOAL);
        let ring_time = config.loss.map_or(Nanos::MAX, |loss| loss.longest_absence());
        let longest_sleep = goal.latency.min(ring_time);
        let target = goal.latency.saturating_sub((goal.latency / RESERVE_PART).min(RESERVE_MOST));
        let owed = Owed::new(goal.quantile.above_ppm());
        let [aim, longest, ring] = [target, longest_sleep, ring_time].map(Nanos::as_nanos);
        Self {
            goal,
            interrupts: config.interrupts,
            longest_sleep,
            target,
            spacing: Nanos::ZERO,
            stalls_ppm: goal.quantile.above_ppm() / 4,
            owed,
            plan: Plan::new(aim, longest, ring, owed.share(), config.interrupts),
            period: Period::new(),
            last_arrival: None,
            on_the_way: arrivals::OnTheWay::new(),
            service: Tail::new(),
            busy_since: None,
            until_service_sample: 0,
            worked: (0, 0),
            chosen: BLOCK,
            expected: 0,
            planned: 0,
            charged: false,
            compared: Compared::Nothing,
            measured: false,
            paid: Paid::default(),
            learned: None,
            doubted: Instant::ORIGIN,
        }
    }

    /// Starts from what was measured on this platform instead of from nothing. To be called before the first
    /// decision: what was learned is given up where `costs` knows better.
    pub fn know(&mut self, costs: &WakeCosts) {
        for cost in costs.timed.iter().flatten() {
            self.plan.know(Kind::Timer, Some(cost.length.as_nanos()), &Tail::from_measured(&cost.lateness));
        }
        if let Some(lateness) = &costs.interrupt {
            self.plan.know(Kind::Device, None, &Tail::from_measured(lateness));
        }
        self.plan.forget();
    }

    /// Reckons with this from the end of the worker's work to the departure of the first packet, and with so much between packets,
    /// instead of with a reserve for what the worker cannot see.
    pub fn with_unseen(mut self, unseen: Nanos, spacing: Nanos) -> Self {
        self.target = self.goal.latency.saturating_sub(unseen);
        self.spacing = spacing;
        self.plan.target = self.target.as_nanos();
        self.plan.spacing = spacing.as_nanos();
        self.plan.forget();
        self
    }

    /// What holding the goal would cost if things took so much longer, as a share of a core that polls, in 2^-16.
    pub fn outlook(&self, slower: Slower) -> u64 {
        self.plan.outlook(slower)
    }

    /// What has been paid up to now.
    pub fn paid(&self) -> Paid {
        self.paid
    }

    /// What has been paid in the last `span`, since it was `then`, as shares of a core that polls, in 2^-16: for the waits and
    /// the work; and with the late packets, of which each beyond those that are aimed at is paid for by polling for the time in which
    /// one is allowed.
    pub fn paid_since(&self, then: Paid, span: Nanos) -> (u64, u64) {
        let (span, each) = (i128::from(span.as_nanos()), i128::from(self.owed.each(self.plan.gaps.mean())));
        // Where the goal allows hardly any in that time, a few are no share.
        let counts = span >= each * COUNTS;
        let polls = if counts { i128::from(self.paid.late - then.late).max(0) * each / 1_000_000 } else { 0 };
        let paid = (span - i128::from(self.paid.saved - then.saved)).max(0);
        let share = |paid: i128, of: i128| u64::try_from((paid << 16) / of.max(1)).unwrap_or(u64::MAX);
        (share(paid, span), share(paid + polls, span + polls))
    }

    /// The mean time between packets of late.
    pub fn mean_gap(&self) -> Nanos {
        Nanos::from_nanos(self.plan.gaps.mean())
    }

    /// Everything takes so much longer from now on: another frequency was asked for.
    pub fn change(&mut self, slower: Slower) {
        self.service.scale(slower.work);
        self.worked.0 = self.worked.0 * slower.work / 256;
        self.plan.change(slower);
    }

    /// The goal that is held.
    pub fn goal(&self) -> Goal {
        self.goal
    }

    fn learn(&mut self, seen: &Observation<'_, C>) {
        let mut stalled = false;
        if let Some(wait) = &seen.ended {
            self.learned = Some(seen.now);
            stalled = self.learn_wait(wait, seen);
            self.charged = wait.action.kind() != WaitKind::Pause;
            self.busy_since = None;
        }
        self.busy_since = self.busy_since.or(picked_up(seen));
        let (mut received, mut late) = (0, 0);
        for queue in seen.queues {
            let (Some(arrivals), frames) = (&queue.arrivals, u64::from(queue.received)) else { continue };
            received += frames;
            self.learn_arrivals(arrivals, frames);
            if self.charged && !stalled {
                late += self.late(seen.now, arrivals, frames);
                if self.chosen == BLOCK {
                    // The first and the last stand for all that came between.
                    for arrival in [arrivals.first, arrivals.last] {
                        self.plan.departed(seen.now.since(arrival).unwrap_or(Nanos::ZERO));
                    }
                }
            }
            if self.until_service_sample == 0 {
                self.until_service_sample = SERVICE_EVERY;
                // What came meanwhile has waited for the frames before it, too.
                let began = self.busy_since.map_or(arrivals.picked_up, |began| began.max(arrivals.first));
                self.service.add(seen.now.since(began).unwrap_or(Nanos::ZERO), 0, tail::MEMORY);
                let work = seen.now.since(arrivals.picked_up).unwrap_or(Nanos::ZERO);
                self.plan.service = self.service.upper_quantile(900_000).as_nanos();
                self.worked = (self.worked.0 + work.as_nanos(), self.worked.1 + frames);
                self.plan.work = self.worked.0 / self.worked.1.max(1);
                if self.worked.1 > WORKED {
                    self.worked = (self.worked.0 / 2, self.worked.1 / 2);
                }
                self.owed.set_gap(self.plan.gaps.mean());
            }
            self.until_service_sample -= 1;
        }
        self.owed.packets(received, late);
        self.paid.late += (late * 1_000_000) as i64 - (received * self.owed.share()) as i64;
        if self.charged {
            if !stalled {
                self.plan.saw(self.chosen, received, late, self.expected);
            }
            // What came during the wait may take several polls, and so does what comes meanwhile.
            self.charged = !stalled && received > 0;
        }
    }

    /// Learns what a wait was like; says whether it met a stall of the machine.
    fn learn_wait(&mut self, wait: &Ended<C>, seen: &Observation<'_, C>) -> bool {
        if wait.action.kind() == WaitKind::Pause {
            return false;
        }
        let lasted = wait.ended.since(wait.began).unwrap_or(Nanos::ZERO).as_nanos();
        let (kind, length, late) = match wait.overshoot() {
            Some(late) => {
                let planned = wait.action.until(wait.began).and_then(|due| due.since(wait.began));
                (Kind::Timer, planned.unwrap_or(Nanos::ZERO).as_nanos(), Some(late))
            }
            None => {
                let first = seen.queues.iter().filter_map(|queue| queue.arrivals.as_ref()).next();
                // What came before the wait began did not wait for the device.
                let late = |came: &Arrivals<C>| came.picked_up.since(came.first.max(wait.began)).unwrap_or(Nanos::ZERO);
                (Kind::Device, self.planned, first.map(late))
            }
        };
        let stalled = late.is_some_and(|late| self.plan.ended(kind, length, late, self.stalls_ppm));
        self.measured |= wait.spent.is_some();
        // Where nobody measures, the way back is what a wait costs at least.
        let spent = wait.spent.or(late.filter(|_| !self.measured));
        if let Some(spent) = spent.filter(|_| !stalled) {
            // The core is awake from the wait's end until it has picked up what came, too.
            let taking = picked_up(seen).unwrap_or(seen.now).since(wait.ended).unwrap_or(Nanos::ZERO);
            self.plan.spent(kind, lasted, (spent + taking).as_nanos(), wait.idle.as_nanos());
            self.paid.saved += lasted as i64 - spent.as_nanos() as i64;
        }
        stalled
    }

    fn learn_arrivals(&mut self, arrivals: &Arrivals<C>, frames: u64) {
        if let Some(gap) = self.last_arrival.and_then(|last| arrivals.first.since(last)) {
            self.plan.gaps.add(gap.as_nanos(), 1);
        }
        if frames > 1 {
            let spread = arrivals.last.since(arrivals.first).unwrap_or(Nanos::ZERO).as_nanos();
            self.plan.gaps.add(spread / (frames - 1), frames - 1);
        }
        self.on_the_way.add(arrivals.picked_up.since(arrivals.last).unwrap_or(Nanos::ZERO).as_nanos());
        self.last_arrival = Some(self.last_arrival.map_or(arrivals.last, |last| last.max(arrivals.last)));
        self.period.arrived(arrivals.first, arrivals.last);
    }

    /// Of the frames of a poll, taken to have come evenly, those that are later than the target. What each waits less than the one
    /// before it, it waits in part for that one to depart.
    fn late(&self, now: Instant<C>, arrivals: &Arrivals<C>, frames: u64) -> u64 {
        let latest = now.before(self.target).unwrap_or(Instant::ORIGIN);
        let Some(over) = latest.since(arrivals.first).filter(|over| *over > Nanos::ZERO) else { return 0 };
        let spread = arrivals.last.since(arrivals.first).unwrap_or(Nanos::ZERO);
        let spread = spread.saturating_sub(self.spacing * (frames.max(1) - 1)).max(over);
        1 + (frames.max(1) - 1) * over.as_nanos() / spread.as_nanos()
    }

    /// What to do after a poll that left nothing in the rings; `polled` is when it looked, and `traffic` whether it
    /// brought frames.
    fn decide_drained(&mut self, now: Instant<C>, polled: Instant<C>, traffic: bool) -> Decision<C> {
        let on_the_way = Nanos::from_nanos(self.on_the_way.least());
        // Of what has arrived since the rings were looked at, or was then on its way into them, nothing is known.
        let silence = self.last_arrival.map(|last| polled.since(last + on_the_way).unwrap_or(Nanos::ZERO));
        let idle = silence.is_none_or(|silence| silence >= IDLE_AFTER) || self.plan.gaps.mean() >= SPARSE;
        if self.interrupts && idle {
            (self.chosen, self.expected, self.planned) = (BLOCK, 0, silence.map_or(0, Nanos::as_nanos));
            self.compared = Compared::Idle;
            return Decision { action: Action::BlockUntil(None), reason: Reason::Idle };
        }
        if self.learned.is_none_or(|at| now.since(at).is_some_and(|since| since >= DOUBT_AFTER)) {
            self.learned = Some(now);
            self.plan.age();
        }
        let allowed_each = || Nanos::from_nanos(self.owed.each(self.plan.gaps.mean()));
        if now.since(self.doubted).is_none_or(|since| since >= DOUBT_AFTER && since >= allowed_each()) {
            self.doubted = now;
            // Who is deep in debt tries nothing.
            if self.owed.multiplier() <= 256 {
                self.plan.doubt();
            }
        }
        let multiplier = self.owed.multiplier();
        let silence = silence.unwrap_or(Nanos::ZERO).as_nanos();
        let mut best = self.plan.best(arrivals::octave(silence), multiplier, now.as_nanos());
        let forecast = self.forecast(now);
        if let Some(forecast) = forecast {
            best.or(forecast);
        }
        self.compared = Compared::Waits(best, multiplier);
        match best.slot {
            POLL => {
                let reason = match (traffic, multiplier > 0) {
                    (true, _) => Reason::Traffic,
                    (false, true) => Reason::Late,
                    (false, false) => Reason::GoalTooTight,
                };
                Decision { action: Action::Poll, reason }
            }
            BLOCK => {
                (self.chosen, self.expected, self.planned) = (BLOCK, best.late, best.wait);
                Decision { action: Action::BlockUntil(None), reason: Reason::Interrupt }
            }
            slot @ UNTIL.. => {
                (self.chosen, self.expected, self.planned) = (slot, best.late, best.wait);
                let until = now + Nanos::from_nanos(best.wait);
                let action = if self.interrupts {
                    Action::BlockUntil(Some(until))
                } else {
                    Action::SleepUntil(until.min(now + self.longest_sleep))
                };
                Decision { action, reason: Reason::Periodic }
            }
            slot => {
                // From when the rings were looked at: what has come since waits no longer than if it had come just after.
                let until = polled + Nanos::from_nanos(best.wait);
                if until.since(now).is_none_or(|left| left < Nanos::from_nanos(best.wait / 2)) {
                    self.compared = Compared::Nothing;
                    return Decision { action: Action::Poll, reason: Reason::Traffic };
                }
                (self.chosen, self.expected) = (slot, best.late);
                let reason = if best.cut { Reason::LossBound } else { Reason::Budget };
                Decision { action: Action::SleepUntil(until), reason }
            }
        }
    }

    /// The best wait for a forecast burst, if there is one to wait for.
    fn forecast(&mut self, now: Instant<C>) -> Option<Choice> {
        let multiplier = self.owed.multiplier();
        let forecast = self.period.forecast(now).filter(|forecast| now >= forecast.last_ends)?;
        // Not at its time: it may be lost. A late one ends the wait, the next one is waited for.
        let due = if now > forecast.to { forecast.next } else { forecast.from };
        let due = due + Nanos::from_nanos(self.on_the_way.least());
        // Within its time nothing is known of it but that it comes soon.
        let ahead = due.since(now).map(Nanos::as_nanos).filter(|ahead| *ahead > 0)?;
        let polling = forecast.to.since(forecast.from).unwrap_or(Nanos::ZERO).as_nanos() / 2;
        let lasts = ahead + polling;
        let plan = self.plan.forecast(ahead);
        let mut best = None;
        for (part, margin) in plan.margins.iter().enumerate().filter(|(_, margin)| **margin < ahead) {
            let (late, weight) = (plan.lates[part], plan.weights[part]);
            let costs = plan.costs[part] + polling + weight * multiplier / 256;
            let choice =
                Choice { slot: plan::until(part), wait: ahead - margin, costs, lasts, late, weight, cut: false };
            best.get_or_insert(choice).or(choice);
        }
        if plan.block.wait > 0 {
            let plan::Cell { wait, late, weight, .. } = plan.block;
            let costs = plan.block.costs + weight * multiplier / 256;
            let choice =
                Choice { slot: BLOCK, wait, costs, lasts: lasts.max(plan.block.lasts), late, weight, cut: false };
            best.get_or_insert(choice).or(choice);
        }
        best
    }
}

/// When the poll picked up what it brought.
fn picked_up<C>(seen: &Observation<'_, C>) -> Option<Instant<C>> {
    seen.queues.iter().filter_map(|queue| queue.arrivals.as_ref()).map(|arrivals| arrivals.picked_up).min()
}

impl<C> WaitPolicy<C> for Adaptive<C> {
    #[inline]
    fn decide(&mut self, seen: &Observation<'_, C>) -> Decision<C> {
        let received = seen.received();
        if received > 0 || seen.ended.is_some() {
            self.learn(seen);
        }
        if received == 0 {
            (self.busy_since, self.charged) = (None, false);
            return self.decide_drained(seen.now, seen.now, false);
        }
        let drained = seen.queues.iter().all(|queue| queue.received == queue.fill);
        match picked_up(seen) {
            Some(polled) if drained => self.decide_drained(seen.now, polled, true),
            _ => {
                self.compared = Compared::Nothing;
                Decision { action: Action::Poll, reason: Reason::Traffic }
            }
        }
    }

    #[inline]
    fn belief(&self) -> Option<Belief> {
        let (choice, multiplier) = match self.compared {
            Compared::Nothing => return None,
            Compared::Idle => (Choice::default(), self.owed.multiplier()),
            Compared::Waits(choice, multiplier) => (choice, multiplier),
        };
        let costs = choice.costs - choice.weight * multiplier / 256;
        let nanos = Nanos::from_nanos;
        Some(Belief {
            wait: nanos(choice.wait),
            lasts: nanos(choice.lasts),
            // Polling costs what it lasts, on any machine.
            costs: (self.measured || choice.slot == POLL).then_some(nanos(costs)),
            late_worth: nanos(choice.weight),
            gap: nanos(self.plan.gaps.mean()),
            aimed_ppm: self.owed.share() as u32,
            owed_millionths: self.owed.owed(),
            multiplier_256ths: multiplier,
        })
    }
}

impl<C> Clone for Adaptive<C> {
    fn clone(&self) -> Self {
        Self { plan: self.plan.clone(), period: self.period.clone(), service: self.service.clone(), ..*self }
    }
}
