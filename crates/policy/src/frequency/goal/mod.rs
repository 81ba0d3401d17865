//! The lowest frequency that meets a latency goal.
//!
//! The policy does not guess from utilisation how a frequency affects delays. It computes, for every frequency at the
//! same time, how late the observed frames would have been ([`virtual_queues`]). The needed frequency is the lowest at
//! which no more frames are late than the goal allows. This takes bursts and the goal's quantile into account.
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
//! **Up.** A change takes up to the period of the sequencing timer plus the stall. This can be longer than the goal, so
//! reacting to late frames would come too late. Therefore the policy keeps the highest frequency that any of the last
//! windows needed. It ignores late frames that the account can pay for, but not a growing backlog: in that case, it
//! requests the highest frequency until the backlog is gone.
//!
//! **Down.** An account pays for frames that are late because the frequency was too low. Every frame adds to it the
//! share that the goal allows to be late. The frequency is lowered only if the account could pay for twice as many late
//! frames as the last lowering caused. So the share of late frames meets the goal in the long run, even for bursts that
//! are rarer than windows. Frames that are late at the highest frequency are not charged.
//!
//! **Changes.** The policy makes no request until the hardware has had time to carry out the previous one. It also
//! delays requests for lower frequencies, so that the stalls alone never cause more than a quarter of the late frames
//! that the goal allows. A later request replaces one that the sequencing timer has not taken up yet (Intel
//! 637284-001US, section 4: the last one wins).
//!
//! **The ring.** If the ring's size and the highest packet rate are known, the ring must not overflow before the
//! highest frequency takes effect. The ring fills at the packet rate minus the rate at which the core serves packets.
//! The policy excludes every frequency at which the ring would overflow sooner. (Before 3rd Gen Xeon, applications hid
//! the 12 us stall by queueing: same source.)
//!
//! **Waits.** The virtual queues never sleep: they count the time during which the core is absent as time in which it
//! could have worked. So they give the lowest sufficient frequency. Among this frequency and all higher ones, the
//! policy requests the one at which waiting and working should cost least in total ([`outlook`]). This matters because
//! a lower frequency also slows the wake-up: if waits then make too many packets late, polling at a low frequency can
//! cost more than sleeping at a higher one. Without a wait policy that can estimate this, the policy requests the
//! lowest sufficient frequency.

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

/// 1/`RESERVE_PART` of the goal's latency is reserved for delays that the worker cannot see (the wire, the peer).
const RESERVE_PART: u64 = 8;
/// Upper limit of the reserve for unseen delays. The adaptive wait policy reserves up to 15 us.
const RESERVE_MOST: Nanos = Nanos::from_micros(10);
/// Minimum time over which the highest packet rate is measured.
const SHORTEST_SPAN: Nanos = Nanos::from_micros(100);
/// Minimum length of a window, at whose end the policy decides.
const SHORTEST_WINDOW: Nanos = Nanos::from_millis(10);
/// A window lasts at least this many times as long as a frequency change, up to [`LONGEST_WINDOW`].
const WINDOW_CHANGES: u64 = 20;
/// A window ends after this time, even if it has few frames.
const LONGEST_WINDOW: Nanos = Nanos::from_secs(1);
/// Number of windows whose needed frequencies are remembered. One is not enough: in most windows, a load slightly too
/// high for a frequency looks as if that frequency could handle it.
const MEMORY: usize = 8;
/// Minimum number of frames in a window that ends before [`LONGEST_WINDOW`].
const ENOUGH_FRAMES: u64 = 64;
/// An alarm needs more late frames than this. With 8 late frames, their measured share is right to within a factor of 2
/// with a probability of 99 % (Poisson).
const ENOUGH_LATE: u64 = 8;
/// Minimum number of polls with late frames for an alarm. One or two such polls can be due to a stall of the machine.
const ALARM_POLLS: u32 = 3;
/// A frequency counts as sufficient for a load if it is at least 1/`SPARE_PART` higher than the load needs.
const SPARE_PART: u64 = 64;
/// If more frames than this are late in one window, and the backlog exceeds half the latency limit, the highest
/// frequency is requested, whatever the account's balance.
const MOST_LATE: u64 = 128;
/// Upper limit of the account's balance, in late frames. If twice the cost of the last trial is more, that is the
/// limit.
const MOST_FRAMES: i64 = 256;
/// The stalls of frequency changes may cause at most 1/`STALL_PART` of the late frames that the goal allows.
const STALL_PART: u64 = 4;

/// Settings of a [`GoalFrequency`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GoalFrequencyConfig {
    /// The latency goal. `None` means [`DEFAULT_GOAL`], which all policies use by default.
    pub goal: Option<Goal>,
    /// The frequencies of the machine, and how long a change takes.
    pub platform: Platform,
    /// The size of the smallest receive ring that the core serves, and the highest packet rate of a ring. `None` if
    /// unknown.
    pub loss: Option<LossBound>,
    /// Whether the user stated the packet rate in `loss`. If false, that rate is only the line rate, and the policy
    /// protects the ring against the highest rate that it has seen, plus a margin.
    pub peak_is_stated: bool,
}

/// The policy that this [module](self) describes.
#[derive(Debug)]
pub struct GoalFrequency<C> {
    goal: Goal,
    platform: Platform,
    loss: Option<LossBound>,
    /// Measures the highest packet rate. `None` if the user stated the rate.
    peak: Option<Peak<C>>,
    /// The goal's latency minus the reserve.
    limit: Nanos,
    /// Minimum length of a window on this platform.
    window: Nanos,
    /// Minimum time from any request to a request for a lower frequency.
    patience: Nanos,
    requested: Hertz,
    /// Index of the requested frequency among the P-states.
    state: usize,
    requested_at: Option<Instant<C>>,
    /// Whether the last request has not taken effect yet.
    changing: bool,
    /// What polls and frames cost, in cycles. `None` before the first window.
    cost: Option<Cost>,
    queues: VirtualQueues,
    outlook: Outlook<C>,
    /// How much longer work and wake-ups take at the requested frequency than at the frequency that was requested
    /// before it.
    slower: Slower,
    account: Account,
    /// Number of frames that the last poll left in the rings.
    left: u64,
    last_poll: Option<Instant<C>>,
    /// Time since the last poll that found new frames in the rings.
    available: Nanos,
    /// Whether the core has slept since the rings were last empty.
    away: bool,
    seen: Window<C>,
    /// The frequencies that the last windows needed, newest first.
    needed: [Hertz; MEMORY],
    windows: usize,
}

/// What the policy has seen in the current window.
#[derive(Debug)]
struct Window<C> {
    began: Option<Instant<C>>,
    frames: u64,
    late_polls: u32,
    /// Cost of the polls with frames.
    polls: Polls,
}

/// An account of late frames. Its balance is the number that the goal allows minus the number that occurred. One frame
/// counts as 1,000,000.
#[derive(Clone, Copy, Debug)]
struct Account {
    allowed_ppm: i64,
    balance: i64,
    /// How far the balance has fallen below its maximum since the last request for a lower frequency. `worst` is the
    /// largest such fall.
    fallen: i64,
    worst: i64,
}

impl<C> GoalFrequency<C> {
    /// Creates a policy that starts at the highest frequency.
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

    /// Sets the time from the end of the core's work to a packet's departure. If this time is longer than the policy's
    /// own reserve for unseen delays, it replaces the reserve.
    pub fn with_unseen(mut self, unseen: Nanos) -> Self {
        self.limit = self.limit.min(self.goal.latency.saturating_sub(unseen));
        self
    }

    /// The goal that the policy meets: the configured one, or [`DEFAULT_GOAL`].
    pub fn goal(&self) -> Goal {
        self.goal
    }

    /// Whether the last request must have taken effect by now.
    fn is_settled(&self, now: Instant<C>) -> bool {
        let since = self.requested_at.and_then(|at| now.since(at));
        self.requested_at.is_none() || since.is_some_and(|since| since >= self.platform.settling())
    }

    /// Number of late frames that the goal allows among `frames`.
    fn allowed(&self, frames: u64) -> u64 {
        frames * u64::from(self.goal.quantile.above_ppm()) / 1_000_000
    }

    /// Takes in the result of a poll. Returns the number of frames that arrived since the previous poll.
    fn learn(&mut self, seen: &Observation<'_, C>) -> u64 {
        let now = seen.poll.now;
        // Frames count from when they were picked up, not from when they were processed.
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
            // Frames that a sleep left in the ring or made late are not the fault of the frequency.
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
        // The frames that arrived during a sleep may take several polls.
        self.away &= self.left > 0;
        self.available = Nanos::ZERO;
        came
    }

    /// Whether late frames can be due to a frequency that is too low. At the highest frequency, they can be due only to
    /// a backlog from an earlier, lower one, which lasts at most one window.
    fn is_to_blame(&self, now: Instant<C>) -> bool {
        let recent = self.requested_at.and_then(|at| now.since(at)).is_some_and(|since| since < self.window);
        recent || self.requested < self.platform.pstates.highest()
    }

    /// Number of this poll's frames that were finished later than the limit. The frames of a queue are assumed to have
    /// arrived at equal intervals.
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

    /// The higher frequency to request before the window is full, if too many frames are late. With a large backlog, it
    /// is the highest frequency; the next windows show which one suffices. Otherwise, a higher one is needed only if
    /// the account cannot pay for the late frames.
    fn urgent(&mut self) -> Option<Hertz> {
        let late = self.queues.late(self.state);
        let backlog = self.queues.backlog(self.state);
        let (highest, up) = (self.platform.pstates.highest(), self.platform.pstates.up(self.requested));
        let bound = (2 * self.allowed(self.seen.frames)).max(ENOUGH_LATE);
        if self.seen.late_polls >= ALARM_POLLS && late > bound {
            // A stall of the machine makes many frames late at once, but the backlog then shrinks by itself.
            if backlog > self.limit * 3 / 2 || (late > MOST_LATE && backlog > self.limit / 2) {
                self.remember(up);
                return Some(highest);
            }
            // A small backlog shrinks by itself, and the account can pay for its late frames.
            if self.account.balance < 0 {
                return Some(self.remember(up));
            }
        }
        None
    }

    /// Decides at the end of a window, based on the frequency that the window needed.
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
        // While the account can pay for the late frames, the present frequency suffices.
        if settled && wanted > self.requested && self.account.balance < 0 {
            return self.request(now, wanted, Reason::Load);
        }
        // Among the sufficient frequencies, take the one at which waiting and working cost least.
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

    /// The frequency at which the wait policy expects the lowest cost, among `lowest` and all higher frequencies.
    /// `lowest` itself if there is no wait policy. Soon after a change, the requested frequency if it is at least
    /// `lowest`.
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

    /// The lowest frequency that can process `frames` within `span` with a little time to spare. At a lower frequency,
    /// a backlog could slowly grow.
    fn bears(&self, frames: u64, span: Nanos) -> Hertz {
        let pstates = &self.platform.pstates;
        let Some(cost) = self.cost else { return pstates.highest() };
        let rate = Nanos::from_nanos(frames).scale(1_000_000_000, span.as_nanos()).as_nanos();
        let hertz = rate.saturating_mul(self.cycles(cost)).saturating_mul(SPARE_PART + 1) / SPARE_PART;
        pstates.at_least(Hertz::new(hertz)).unwrap_or(pstates.highest())
    }

    /// Cycles per frame in a poll that returns as many frames as the largest poll so far.
    fn cycles(&self, cost: Cost) -> u64 {
        cost.per_frame.saturating_add(cost.per_poll.div_ceil(self.queues.burst()))
    }

    /// Records the frequency that a window needed. Returns the highest of the remembered frequencies.
    fn remember(&mut self, needed: Hertz) -> Hertz {
        self.needed.rotate_right(1);
        self.needed[0] = needed;
        self.windows = self.windows.saturating_add(1);
        self.needed.iter().fold(needed, |most, needed| most.max(*needed))
    }

    /// The lowest frequency for which `holds` is true. If `holds` is true for a frequency, it must be true for all
    /// higher ones.
    fn at_least(&self, holds: impl Fn(&Self, usize) -> bool) -> Option<Hertz> {
        let states = self.platform.pstates.as_slice();
        (0..states.len()).find(|state| holds(self, *state)).map(|state| states[state])
    }

    /// The lowest frequency at which the ring cannot overflow before a higher frequency takes effect.
    fn ring_needs(&self, now: Instant<C>) -> Hertz {
        let pstates = &self.platform.pstates;
        let (Some(loss), Some(cost)) = (self.loss, self.cost) else { return pstates.lowest() };
        // The rate at which the ring can fill: its descriptors divided by the time of a change.
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
            // Frames that the change itself made late are charged, but are no reason for another change.
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
    /// Opens an account without late frames.
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

    /// The balance needed for another trial of a lower frequency: twice the cost of the last trial.
    fn price(&self) -> i64 {
        self.worst.saturating_mul(2)
    }

    /// Whether the balance is enough for another trial, in case the lower frequency makes frames late.
    fn can_fail(&self) -> bool {
        self.balance >= self.price()
    }

    fn begin_trial(&mut self) {
        (self.fallen, self.worst) = (0, 0);
    }
}

// Implemented by hand, because a derive would also require `Clone` of the clock's marker type.
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
