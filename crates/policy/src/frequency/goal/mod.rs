//! The lowest frequency that keeps a latency goal.
//!
//! What a frequency would do to the delays is not guessed from a utilisation: the traffic that comes is
//! served in numbers at every frequency at once ([`virtual_queues`]), and the lowest at which no more frames
//! are late than the goal allows is the one that is needed. Bursts and the quantile are in that.
//!
//! ```text
//!   HIGHEST ── a window has shown what a frame costs ──► NEEDED
//!                                                         │ ▲
//!     each full window: lower, to what this window and    │ │
//!     the seven before needed, if the account can pay     └─┘
//!     for being wrong                     [less_load]     ▲ │
//!     at once: higher, if more frames are late than the   │ │
//!     account can pay for                       [late]    └─┘
//! ```
//! **Up.** A change takes up to the sequencing timer's period and the stall, which can be longer than the
//! goal: only what was learned before can keep that. So it stays at the highest need of the last windows.
//! Late frames that the account can pay for are left to themselves; those of a backlog that grows are
//! not, and then the highest frequency is asked for, until it has gone.
//!
//! **Down.** Frames that are late because the frequency was too low are paid from an account, into which
//! every frame pays the share that the goal allows. The frequency goes down only if the account could pay twice
//! for what that cost the last time. So the share of late frames stays the goal's in the long run,
//! also for bursts that are rarer than windows. What is late at the highest frequency is nobody's fault.
//!
//! **Changes.** No request follows another within the time that the hardware needs for one, and none to a lower
//! frequency comes so soon that the stalls alone could make a quarter of what the goal allows late. A later
//! request replaces one that the sequencing timer has not taken up (Intel 637284-001US, section 4: the last
//! one wins).
//!
//! **The ring.** If its size and the highest rate of packets are known, it has to last until the highest
//! frequency is in force: no frequency is used at which the rate less what is served would overflow it
//! sooner. (Before 3rd Gen Xeon, applications hid the stall of 12 us by queueing: same source.)
//!
//! **Waits.** In the numbers above the core never sleeps: an absence is time in which it could have worked. So they give the
//! lowest frequency that suffices. Of those from there on, the one is asked for at which waiting and working is
//! expected to cost least ([`outlook`]): the wake-up, too, is slower at a lower frequency, and where waits then make too many packets
//! late, polling at a low one can cost more than sleeping at a higher. Without a waiting policy that can tell, it is the lowest.

mod cost;
mod outlook;
mod peak;
mod virtual_queues;

use units::{Hertz, Instant, Nanos};

use super::{Decision, FrequencyPolicy, Observation, Platform, Reason};
use crate::wait::{Adaptive, DEFAULT_GOAL, Queue, Slower};
use crate::{Goal, LossBound};
use cost::{Cost, Polls};
use outlook::Outlook;
use peak::Peak;
use virtual_queues::VirtualQueues;

/// The reserve for what the worker cannot see (the wire, the peer) is this part of the goal...
const RESERVE_PART: u64 = 8;
/// ...but at most this. Both as in the adaptive wait policy.
const RESERVE_MOST: Nanos = Nanos::from_micros(10);
/// The shortest time over which the highest rate is measured.
const SHORTEST_SPAN: Nanos = Nanos::from_micros(100);
/// The shortest window.
const SHORTEST_WINDOW: Nanos = Nanos::from_millis(10);
/// A window is at least this many times as long as a change takes.
const WINDOW_CHANGES: u64 = 20;
/// A window is over after this long, however few its frames.
const LONGEST_WINDOW: Nanos = Nanos::from_secs(1);
/// Windows whose needs are remembered. A load near what a frequency bears looks bearable in most windows.
const MEMORY: usize = 8;
/// Frames that make a window worth a decision before [`LONGEST_WINDOW`].
const ENOUGH_FRAMES: u64 = 64;
/// Late frames that the goal must allow before a share is believed: then it is right to within a factor
/// of 2 with a probability of 99 % (Poisson).
const ENOUGH_LATE: u64 = 8;
/// Polls with late frames that it takes for an alarm: one or two may be a stall of the machine.
const ALARM_POLLS: u32 = 3;
/// A frequency bears a load if it leaves one part in this many idle.
const SPARE_PART: u64 = 64;
/// Late frames in a window that are too many, however rich the account is.
const MOST_LATE: u64 = 128;
/// What the account holds at most, in late frames, or twice what the last trial has cost.
const MOST_FRAMES: i64 = 256;
/// The share of the late frames that changes may cause is one in this many.
const STALL_PART: u64 = 4;

/// What a [`GoalFrequency`] needs to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GoalFrequencyConfig {
    /// The goal; `None`: the default goal of all policies ([`DEFAULT_GOAL`]).
    pub goal: Option<Goal>,
    /// What the hardware can do, and how long it takes to do it.
    pub platform: Platform,
    /// The smallest receive ring that the core serves and the highest rate of packets; `None` if not known.
    pub loss: Option<LossBound>,
    /// Whether somebody said that rate. If not, it is that of the line, and the ring is made to last at the highest rate
    /// that was seen, with a margin.
    pub peak_is_stated: bool,
}

/// The policy. See the [module](self).
#[derive(Debug)]
pub struct GoalFrequency<C> {
    goal: Goal,
    platform: Platform,
    loss: Option<LossBound>,
    /// The highest rate that was seen; `None` where somebody said it.
    peak: Option<Peak<C>>,
    /// The goal less the reserve.
    limit: Nanos,
    /// The shortest window.
    window: Nanos,
    /// Between a request and one for less.
    patience: Nanos,
    requested: Hertz,
    /// Its place among the P-states.
    state: usize,
    requested_at: Option<Instant<C>>,
    /// Whether that is not in force yet.
    changing: bool,
    /// What frames cost; `None` before the first window.
    cost: Option<Cost>,
    queues: VirtualQueues,
    outlook: Outlook<C>,
    /// What the last request does to everything.
    slower: Slower,
    account: Account,
    /// Frames left in the rings by the last poll.
    left: u64,
    last_poll: Option<Instant<C>>,
    /// The time since frames came last.
    available: Nanos,
    /// Whether the core was away since the rings were empty.
    away: bool,
    seen: Window<C>,
    /// What the last windows needed, the last one first.
    needed: [Hertz; MEMORY],
    windows: usize,
}

/// What was seen since the last decision about a window.
#[derive(Debug)]
struct Window<C> {
    began: Option<Instant<C>>,
    frames: u64,
    late_polls: u32,
    /// What the polls with frames have cost.
    polls: Polls,
}

/// Late frames and what may be late, in parts of a frame: a million is one.
#[derive(Clone, Copy, Debug)]
struct Account {
    allowed_ppm: i64,
    balance: i64,
    /// By how much it has fallen from where it was highest since the last request for less: now, and at most.
    fallen: i64,
    worst: i64,
}

impl<C> GoalFrequency<C> {
    /// Begins with the highest frequency.
    pub fn new(config: GoalFrequencyConfig) -> Self {
        let goal = config.goal.unwrap_or(DEFAULT_GOAL);
        let platform = config.platform;
        let window = (platform.settling() * WINDOW_CHANGES).clamp(SHORTEST_WINDOW, LONGEST_WINDOW);
        let stalls = platform.stall.scale(1_000_000 * STALL_PART, u64::from(goal.quantile.above_ppm()));
        let highest = platform.pstates.highest();
        Self {
            goal,
            platform,
            loss: config.loss,
            peak: (!config.peak_is_stated).then(|| Peak::new(platform.settling().max(SHORTEST_SPAN))),
            limit: goal.latency.saturating_sub((goal.latency / RESERVE_PART).min(RESERVE_MOST)),
            window,
            patience: stalls.max(platform.settling()),
            requested: highest,
            state: platform.pstates.as_slice().len() - 1,
            requested_at: None,
            changing: false,
            cost: None,
            queues: VirtualQueues::new(&platform.pstates),
            outlook: Outlook::new(),
            slower: Slower::NOT,
            account: Account::new(u64::from(goal.quantile.above_ppm())),
            left: 0,
            last_poll: None,
            available: Nanos::ZERO,
            away: false,
            seen: Window::new(None),
            needed: [platform.pstates.lowest(); MEMORY],
            windows: 0,
        }
    }

    /// Reckons with this from the end of the core's work to a packet's departure, where the reserve for what it
    /// cannot see is less.
    pub fn with_unseen(mut self, unseen: Nanos) -> Self {
        self.limit = self.limit.min(self.goal.latency.saturating_sub(unseen));
        self
    }

    /// The goal that is kept.
    pub fn goal(&self) -> Goal {
        self.goal
    }

    /// Whether the last request is in force, as far as time can tell.
    fn is_settled(&self, now: Instant<C>) -> bool {
        let since = self.requested_at.and_then(|at| now.since(at));
        self.requested_at.is_none() || since.is_some_and(|since| since >= self.platform.settling())
    }

    /// Late frames that the goal allows of so many.
    fn allowed(&self, frames: u64) -> u64 {
        frames * u64::from(self.goal.quantile.above_ppm()) / 1_000_000
    }

    /// Takes in a poll; returns the frames that came since the one before.
    fn learn(&mut self, seen: &Observation<'_, C>) -> u64 {
        let now = seen.poll.now;
        // What came had come when it was picked up, not when it was done.
        let picked_up = seen.poll.queues.iter().filter_map(|q| q.arrivals.as_ref()).map(|a| a.picked_up).max();
        let polled = picked_up.unwrap_or(now).min(now);
        let elapsed = self.last_poll.and_then(|last| polled.since(last)).unwrap_or(Nanos::ZERO);
        self.last_poll = Some(polled);
        self.available += elapsed;
        self.away |= seen.asleep > Nanos::ZERO;
        let (mut received, mut waited) = (0, 0);
        for queue in seen.poll.queues {
            received += u64::from(queue.received);
            waited += u64::from(queue.fill.max(queue.received));
        }
        let came = waited.saturating_sub(self.left);
        self.left = waited - received;
        if !self.changing {
            self.outlook.learn(seen, self.state);
        }
        let running = seen.running.or_else(|| self.is_settled(now).then_some(self.requested));
        if let Some(running) = running
            && received > 0
        {
            self.queues.received(received);
            self.seen.polls.add(received, running.cycles_in(seen.busy).count());
        }
        if came == 0 {
            return 0;
        }
        if let Some(peak) = &mut self.peak {
            peak.came(now, came);
        }
        self.seen.frames += came;
        if self.cost.is_some() {
            let before = self.queues.late(self.state);
            self.queues.serve(came, self.available, self.limit);
            // What a sleep has left or made late is not the frequency's.
            let seen_late = if self.away { 0 } else { self.late_frames(seen) };
            if !self.away {
                self.queues.correct(self.state, self.left);
            }
            let late = self.queues.late(self.state) - before;
            self.queues.add_late(self.state, seen_late.saturating_sub(late));
            let late = late.max(seen_late);
            self.account.frames(came, if self.is_to_blame(now) { late } else { 0 });
            self.seen.late_polls += u32::from(late > 0);
        }
        // What came during a sleep may take several polls.
        self.away &= self.left > 0;
        self.available = Nanos::ZERO;
        came
    }

    /// Whether another frequency would have made fewer frames late: not the highest, nor what is left from before
    /// it, which takes a window at most.
    fn is_to_blame(&self, now: Instant<C>) -> bool {
        let recent = self.requested_at.and_then(|at| now.since(at)).is_some_and(|since| since < self.window);
        recent || self.requested < self.platform.pstates.highest()
    }

    /// Frames of this poll that were done later than the limit: of those of a queue, which are taken to have come
    /// evenly.
    fn late_frames(&self, seen: &Observation<'_, C>) -> u64 {
        let Some(latest) = seen.poll.now.before(self.limit) else { return 0 };
        let late = |queue: &Queue<C>| {
            let arrivals = queue.arrivals.as_ref()?;
            let over = latest.since(arrivals.first).filter(|over| *over > Nanos::ZERO)?;
            let spread = arrivals.last.since(arrivals.first)?.max(over);
            let others = u64::from(queue.received.max(1)) - 1;
            Some(1 + Nanos::from_nanos(others).scale(over.as_nanos(), spread.as_nanos()).as_nanos())
        };
        seen.poll.queues.iter().filter_map(late).sum()
    }

    /// Higher, before a full window: if more frames are late than can be paid for. Where the backlog grows, first
    /// it has to go; what suffices, the next windows tell.
    fn urgent(&mut self) -> Option<Hertz> {
        let late = self.queues.late(self.state);
        let backlog = self.queues.backlog(self.state);
        let (highest, up) = (self.platform.pstates.highest(), self.platform.pstates.up(self.requested));
        let bound = (2 * self.allowed(self.seen.frames)).max(ENOUGH_LATE);
        if self.seen.late_polls >= ALARM_POLLS && late > bound {
            // A stall of the machine makes many late at once, and what it has left goes by itself.
            if backlog > self.limit * 3 / 2 || (late > MOST_LATE && backlog > self.limit / 2) {
                self.remember(up);
                return Some(highest);
            }
            // A tail goes by itself, and can be paid for.
            if self.account.balance < 0 {
                return Some(self.remember(up));
            }
        }
        None
    }

    /// A full window: what did it need?
    fn decide_window(&mut self, now: Instant<C>, span: Nanos, waiting: Option<&Adaptive<C>>) -> Decision {
        let knew = self.cost.is_some();
        if let Some(new) = self.seen.polls.cost(self.cost) {
            let cost = Cost::learn(self.cost, new);
            self.cost = Some(cost);
            self.queues.set_cost(cost, &self.platform.pstates);
        }
        let frames = self.seen.frames;
        if !knew {
            self.begin_window(now);
            return Decision::keep(Reason::Measuring);
        }
        let allowed = self.allowed(frames);
        let served = self.queues.lowest(&self.platform.pstates, allowed - allowed.isqrt(), self.limit / 2);
        let highest = self.platform.pstates.highest();
        let alone = self.at_least(|policy, state| policy.queues.alone(state) <= policy.limit);
        let (needed, too_tight) = match (served, alone) {
            (Some(served), Some(alone)) => (served.max(alone).max(self.bears(frames, span)), false),
            _ => (highest, true),
        };
        let floor = self.ring_needs(now);
        let wanted = self.remember(needed).max(floor);
        self.begin_window(now);
        let settled = self.is_settled(now);
        if settled && floor > self.requested {
            return self.request(now, floor, Reason::LossBound);
        }
        // As long as the late frames can be paid for, what runs suffices.
        if settled && wanted > self.requested && self.account.balance < 0 {
            return self.request(now, wanted, Reason::Load);
        }
        // Of those that suffice, the one at which waiting and working costs least.
        let (lowest, wanted) = (wanted, self.cheapest(now, waiting, wanted));
        if settled && wanted > self.requested && wanted > lowest {
            let before = self.state;
            let decision = self.request(now, wanted, Reason::Cheaper);
            self.outlook.hope(before, self.state);
            return decision;
        }
        let waited = self.requested_at.is_none_or(|at| now.since(at).is_some_and(|since| since >= self.patience));
        if wanted < self.requested && settled && waited && self.windows > 1 && self.account.can_fail() {
            self.account.begin_trial();
            let reason = match wanted == lowest {
                false => Reason::Cheaper,
                true if floor == wanted && floor > needed => Reason::LossBound,
                true => Reason::LessLoad,
            };
            let before = self.state;
            let decision = self.request(now, wanted, reason);
            self.outlook.hope(before, self.state);
            return decision;
        }
        Decision::keep(if too_tight { Reason::GoalTooTight } else { Reason::Steady })
    }

    /// The frequency from `lowest` on at which the waiting policy expects to pay least; `lowest` itself if none can tell.
    fn cheapest(&mut self, now: Instant<C>, waiting: Option<&Adaptive<C>>, lowest: Hertz) -> Hertz {
        let Some(waiting) = waiting else { return lowest };
        let states = self.platform.pstates.as_slice();
        let least = states.partition_point(|f| *f < lowest);
        self.outlook.look(now, &self.platform, waiting, self.state);
        if !self.outlook.is_settled() {
            return self.requested.max(lowest);
        }
        states[self.outlook.cheapest(&self.platform, least, self.state)]
    }

    /// The lowest frequency that does the work of so many frames in that time, with a little to spare: below it a
    /// backlog grows, however slowly.
    fn bears(&self, frames: u64, span: Nanos) -> Hertz {
        let pstates = &self.platform.pstates;
        let Some(cost) = self.cost else { return pstates.highest() };
        let rate = Nanos::from_nanos(frames).scale(1_000_000_000, span.as_nanos()).as_nanos();
        let hertz = rate.saturating_mul(self.cycles(cost)).saturating_mul(SPARE_PART + 1) / SPARE_PART;
        pstates.at_least(Hertz::new(hertz)).unwrap_or(pstates.highest())
    }

    /// The cycles of a frame where polls are as large as they get.
    fn cycles(&self, cost: Cost) -> u64 {
        cost.per_frame.saturating_add(cost.per_poll.div_ceil(self.queues.burst()))
    }

    /// Takes in what a window needed; returns the highest need remembered.
    fn remember(&mut self, needed: Hertz) -> Hertz {
        self.needed.rotate_right(1);
        self.needed[0] = needed;
        self.windows = self.windows.saturating_add(1);
        self.needed.iter().fold(needed, |most, needed| most.max(*needed))
    }

    /// The lowest frequency of which something holds, which then holds of all higher ones.
    fn at_least(&self, holds: impl Fn(&Self, usize) -> bool) -> Option<Hertz> {
        let states = self.platform.pstates.as_slice();
        (0..states.len()).find(|state| holds(self, *state)).map(|state| states[state])
    }

    /// The lowest frequency at which the ring lasts until a change is through.
    fn ring_needs(&self, now: Instant<C>) -> Hertz {
        let pstates = &self.platform.pstates;
        let (Some(loss), Some(cost)) = (self.loss, self.cost) else { return pstates.lowest() };
        // What the ring takes in, as a rate: its descriptors over the time of a change.
        let settling = self.platform.settling().as_nanos().max(1);
        let buffered = u128::from(loss.descriptors) * 1_000_000_000 / u128::from(settling);
        let seen = self.peak.as_ref().and_then(|peak| peak.rate(now));
        let highest = seen.map_or(loss.peak, |seen| seen.min(loss.peak));
        let served = u128::from(highest.as_pps()).saturating_sub(buffered);
        let hertz = u64::try_from(served * u128::from(self.cycles(cost))).unwrap_or(u64::MAX);
        pstates.at_least(Hertz::new(hertz)).unwrap_or(pstates.highest())
    }

    fn begin_window(&mut self, now: Instant<C>) {
        self.queues.begin_window();
        self.seen = Window::new(Some(now));
    }

    fn request(&mut self, now: Instant<C>, frequency: Hertz, reason: Reason) -> Decision {
        self.requested = frequency;
        let before = self.state;
        self.state = self.platform.pstates.as_slice().partition_point(|f| *f < frequency);
        self.outlook.change();
        self.slower = self.outlook.slower(&self.platform, before, self.state);
        self.requested_at = Some(now);
        self.changing = true;
        Decision::request(frequency, reason)
    }
}

impl<C> FrequencyPolicy<C> for GoalFrequency<C> {
    fn requested(&self) -> Hertz {
        self.requested
    }

    fn slower(&self) -> Slower {
        self.slower
    }

    #[inline]
    fn decide(&mut self, seen: &Observation<'_, C>) -> Decision {
        let now = seen.poll.now;
        let came = self.learn(seen);
        if self.changing && self.is_settled(now) {
            // What the change itself has made late is paid for, and is no reason for another.
            self.changing = false;
            self.begin_window(now);
        }
        let began = *self.seen.began.get_or_insert(now);
        let could = !self.changing && self.requested < self.platform.pstates.highest();
        if came > 0
            && could
            && let Some(wanted) = self.urgent()
        {
            self.begin_window(now);
            return self.request(now, wanted, Reason::Late);
        }
        let span = now.since(began).unwrap_or(Nanos::ZERO);
        let full = span >= self.window && self.seen.frames >= ENOUGH_FRAMES;
        if full || span >= LONGEST_WINDOW {
            return self.decide_window(now, span, seen.waiting);
        }
        Decision::keep(Reason::Measuring)
    }
}

impl<C> Window<C> {
    fn new(began: Option<Instant<C>>) -> Self {
        Self { began, frames: 0, late_polls: 0, polls: Polls::default() }
    }
}

impl Account {
    /// Empty.
    fn new(allowed_ppm: u64) -> Self {
        Self { allowed_ppm: allowed_ppm as i64, balance: 0, fallen: 0, worst: 0 }
    }

    fn frames(&mut self, came: u64, late: u64) {
        let came = i64::try_from(came).unwrap_or(i64::MAX);
        let cost = i64::try_from(late).unwrap_or(i64::MAX).saturating_mul(1_000_000);
        let earned = came.saturating_mul(self.allowed_ppm);
        let most = self.price().max(MOST_FRAMES * 1_000_000);
        self.balance = self.balance.saturating_add(earned).min(most).saturating_sub(cost);
        self.fallen = self.fallen.saturating_add(cost).saturating_sub(earned).max(0);
        self.worst = self.worst.max(self.fallen);
    }

    /// Twice what the last trial has cost.
    fn price(&self) -> i64 {
        self.worst.saturating_mul(2)
    }

    /// Whether it could pay for another trial.
    fn can_fail(&self) -> bool {
        self.balance >= self.price()
    }

    fn begin_trial(&mut self) {
        (self.fallen, self.worst) = (0, 0);
    }
}

// Written out, because a derive would ask the same of the clock's marker type.
impl<C> Clone for Window<C> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<C> Copy for Window<C> {}
impl<C> Clone for GoalFrequency<C> {
    fn clone(&self) -> Self {
        Self { queues: self.queues.clone(), outlook: self.outlook.clone(), ..*self }
    }
}

#[cfg(test)]
mod tests;
