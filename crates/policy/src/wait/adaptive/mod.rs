//! The cheapest wait that meets the latency goal: the main policy of Apus.
//!
//! **The problem.** The loop runs in episodes: a wait, the wake-up, and the work on the packets that arrived meanwhile.
//! With a given candidate wait, the episode lasts `T`, costs `C`, and makes `L` packets late. `C` is the time for which
//! a polling core costs the same; it is based on CPU time, or on energy if that is known. The policy minimises `E[C] /
//! E[T]` under one condition: the share of late packets is at most `e`, the share that the goal's quantile allows to be
//! late.
//!
//! **The rule** is drift plus penalty for renewal systems (M. J. Neely, "Stochastic Network Optimization with
//! Application to Communication and Queueing Systems", 2010, sections 4.3 and 7.2). A virtual queue ([`Owed`]) counts
//! the late packets that are owed: each late packet adds 1, each packet subtracts `e`. Every decision takes the
//! candidate that minimises this expression:
//!
//! ```text
//!   (C + m g L / e) / T        m: the queue, as a multiplier; g: the mean gap, so that g / e is the time
//!                              in which the goal allows one late packet
//! ```
//! While nothing is owed (`m = 0`), that is the cheapest wait. Each late packet raises the price of lateness. As the
//! price rises, waits that cause fewer late packets become the cheapest choice, and finally polling does (`C = T`, `L =
//! 0`). Punctual packets lower the price again. As a result, the policy mixes different waits, and also tries new ones.
//! The queue stays bounded. Hence the long-run share of late packets is at most `e`, if any candidate can achieve that.
//!
//! ```text
//!             ┌────────── learned ──────────┐                 ┌── plan: T, C, L of each candidate ──┐
//!  wait ends ─┤ lateness by kind and length │                 │ sleep: the budget less the lateness │
//!             │ price    by kind and length ├──► expected ──► │        (50 ... 100 %, 2x), 1/2, 1/4 │──► the least
//!  frames ────┤ gaps by octave; the period  │    T, C, L      │ block: until the next frame         │    of all
//!             │ work per packet             │       ▲         │ until shortly before a forecast     │
//!             └──────────────┬──────────────┘       │         │ poll on                             │
//!                            └─ seen: late share ───┘         └─────────────────▲───────────────────┘
//!                               of each candidate                               │
//!  late? ───────────────────────────────────────────────────────────────────► owed
//! ```
//! **Expected lateness** comes from a model. A packet that arrives at time `u` of a sleep `s` waits for the end of the
//! sleep and for its own processing. The sleep is expected to end as late as earlier sleeps of its length. A packet
//! that ends a block is expected to take as long as the packets that ended earlier blocks. So the policy can judge a
//! candidate before trying it. If the model expects too many or too few late packets, observations of the candidate
//! correct it ([`Plan::corrected`](plan::Plan)). A late packet corrects it at once.
//!
//! **The current silence** begins when the last frame became visible, not when it arrived
//! ([`OnTheWay`](arrivals::OnTheWay)). At 7 Mpps, about 20 frames are being written into memory at any time. A policy
//! that measured from the last arrival would wait for frames that have already arrived.
//!
//! **A wait ends** with its busy period ([`Plan::until_drained`](plan::Plan)): when the queue is empty again, which
//! includes the packets that arrived while others were served. The wait is charged for the whole busy period, and for
//! every packet that is late within it.
//!
//! **Trials.** A candidate that was not chosen for a long time gradually becomes cheaper ([`prices`]) and is expected
//! to be late less often ([`Plan::doubt`](plan::Plan::doubt)), until it is tried. The goal must allow the late packets
//! of these trials, which limits how frequent they are.
//!
//! **Frequency.** A frequency policy uses two results: [`Adaptive::outlook`] estimates what the cheapest waits would
//! cost at another frequency, where work takes longer or shorter. [`Adaptive::paid_since`] reports what the waits have
//! actually cost.
//!
//! **Hold-off.** A device may delay its interrupt after the first waiting frame, so that one wake-up serves several
//! frames. [`Adaptive::hold_off`] chooses this delay a few times a second ([`hold_off`]).
//!
//! **Bounds.** No timed sleep is longer than the goal's latency or the time until the ring overflows. Any longer wait
//! ends when the first frame arrives. A packet that was late although the core was awake is not learned or charged.
//!
//! **Stalls of the machine** (other work, firmware, the host of a virtual machine) make packets late whatever the policy
//! does, so polling cannot make up for them. A wait that ended very late counts as stalled, not as late, in at most a
//! quarter as many cases as the goal allows late packets ([`tail`]). Where stalls are more frequent, the core also shows
//! them while it is awake, as gaps between its polls ([`stalls`]), and correspondingly more waits count as stalled. The
//! lateness of a stalled wait is not learned. The packets that came during the stall are not charged, and a limited
//! number of other late packets after it is forgiven ([`Forgiveness`]).
//!
//! **Idle cores.** After 50 ms without a frame, or if frames come at least 45 ms apart on average, the core blocks,
//! whatever the goal is. Otherwise it would have to stay awake all the time for one rare packet.
//!
//! **Without arrival timestamps** ([`Arrivals::unstamped`]), the policy only knows that a packet arrived after the
//! previous poll. After a sleep, it charges as many late packets as it expects, and it measures when packets come within
//! a sleep: it replaces some sleeps by polling for as long ([`phases`]). At first, it assumes the worst case: that all
//! packets came just after the previous poll. If the device ended the wait, it charges the late packets that the model
//! expects. The model then uses the lateness of measured interrupts ([`Adaptive::know`]) or, if none were measured, that
//! of timers, because both wake the core from the same idle states. Until some timed waits have ended, even that is
//! unknown, and only an idle core waits for the device. Some information is lost. Lateness caused by the device itself is
//! not visible, so it is neither learned nor charged. Gaps, and therefore periods, are only as exact as the polls.
//!
//! **Without a goal** the policy uses [`DEFAULT_GOAL`].
//!
//! **At the start,** the policy does not know what waits cost, and learns their costs from its first packets. On a
//! platform that was measured before, [`Adaptive::know`] avoids this phase.

mod arrivals;
mod belief;
mod costs;
mod hold_off;
mod owed;
mod period;
mod phases;
mod plan;
mod prices;
mod stalls;
mod tail;

use units::{Instant, Nanos, Quantile};

use super::{Action, Arrivals, Decision, Ended, Observation, Reason, WaitKind, WaitPolicy};
use crate::{Goal, LossBound};
pub use belief::Belief;
pub use costs::{LENGTHS, Lateness, TimedCost, WakeCosts};
use hold_off::{Before, Next, Totals, Trials};
pub use owed::AIM_EIGHTHS;
use owed::Owed;
use period::Period;
use phases::Phases;
use plan::{BLOCK, Choice, POLL, Plan, UNTIL};
pub use plan::{Prospect, Slower};
use prices::Kind;
use stalls::{Forgiveness, Stalls};
use tail::Tail;

/// The goal if the user chose none: p99 within 100 us. It is tight enough that users of a kernel network stack would
/// not notice the difference. It is loose enough that most machines can meet it with interrupts and sleeps of a few
/// tens of microseconds, using a few per cent of a core.
pub const DEFAULT_GOAL: Goal = Goal { quantile: Quantile::P99, latency: Nanos::from_micros(100) };

/// After a silence of this length, only an interrupt ends the wait, whatever the goal is.
const IDLE_AFTER: Nanos = Nanos::from_millis(50);
/// If the mean gap between frames reaches this length, in nanoseconds, the core counts as idle.
const SPARSE: u64 = 45_000_000;
/// `1 / RESERVE_PART` of the goal's latency is reserved for delays that the worker cannot see (the wire, the peer).
const RESERVE_PART: u64 = 8;
/// The same without arrival timestamps: then the time from the arrival until a poll can find the frame (the interrupt, the
/// driver) is not visible either. On `net_af_xdp`, polling all the time had a p99 of 35 to 55 us.
const BLIND_RESERVE_PART: u64 = 5;
/// Upper limit of the reserve for delays that the worker cannot see. With 10 us, p99 exceeded a goal of 120 us by up to
/// 5 us, because a sender of 100 kpps has to queue its own frames.
const RESERVE_MOST: Nanos = Nanos::from_micros(15);
/// Arrivals without timestamps are known exactly enough to look for a period if the polls are at most this far apart.
const EXACT: Nanos = Nanos::from_micros(10);
/// A longer hold-off of a device counts as this long.
const LONGEST_HOLD: Nanos = Nanos::from_millis(100);
/// If nothing was learned from waits for this long, known costs are trusted less.
const DOUBT_AFTER: Nanos = Nanos::from_millis(50);
/// With a larger multiplier, in 256ths, a hold-off that delays the frames themselves is given up. This is five sixths
/// of the largest multiplier ([`owed`]).
const GIVES_UP: u64 = 5 * 256 / 2;
/// Waits may count as stalled in any case while they are at most `1 / STALLS_PART` of the share of late packets that the
/// goal allows. The same share of packets may be late after stalls without being charged.
const STALLS_PART: u32 = 4;
/// In addition, this many times as many waits may count as stalled as a core that is awake shows stalls, because both
/// numbers are small at first, and differ by chance. These additional waits are at most as many as the late packets that
/// the goal allows: other work of an application keeps the core from polling, and that looks like a stall.
const STALLS_SLACK: u32 = 2;
/// On a machine that stalls, the model's expectation of a candidate weighs up to this many times as much, multiplied by
/// the mean number of packets that are late at the same time. Otherwise, a few packets that stalls made late by chance would rule
/// a candidate out, and after one such moment for each candidate, only polling would be left.
const TRUST: u64 = 4;
/// It weighs that much if stalls take `1 / NOISY_PART` of the share of late packets that the goal allows, or more.
const NOISY_PART: u32 = 8;
/// One packet. Expected late packets are counted in millionths of a packet.
const ONE: u64 = 1_000_000;
/// Late packets enter the cost of a period only if the goal allows at least this many of them in it. Fewer say nothing
/// about their share.
const COUNTS: i128 = 8;
/// The mean work per frame is averaged over about this many frames.
const WORKED: u64 = 1024;
/// Number of polls with frames per sample of the time until a frame departs.
const SERVICE_EVERY: u32 = 16;

/// Settings of [`Adaptive`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdaptiveConfig {
    /// The latency goal. `None` means [`DEFAULT_GOAL`].
    pub goal: Option<Goal>,
    /// The ring that must not overflow during a wait. `None` if its size or its packet rate is unknown.
    pub loss: Option<LossBound>,
    /// Whether an arriving frame can end a block. If false, the policy uses only timed waits.
    pub interrupts: bool,
}

impl Default for AdaptiveConfig {
    fn default() -> Self {
        Self { goal: None, loss: None, interrupts: true }
    }
}

/// The policy that this [module](self) describes.
#[derive(Debug)]
pub struct Adaptive<C> {
    goal: Goal,
    interrupts: bool,
    longest_sleep: Nanos,
    /// The goal's latency minus the reserve: the allowed time from arrival to departure as the worker sees it.
    target: Nanos,
    /// Whether the reserve was given ([`Adaptive::with_unseen`]).
    knows_reserve: bool,
    /// The shortest time between the departures of two frames of a burst.
    spacing: Nanos,
    stalls: Stalls<C>,
    /// When the last decision was made, if it was to poll on and no frames were left.
    polls_since: Option<Instant<C>>,
    /// The share of waits that may count as stalled, in ppm.
    stalls_ppm: u32,
    forgiveness: Forgiveness,
    /// If the last wait ended in a stall: when it was due to end, and when it ended. The packets may take more polls.
    stalled: Option<[Instant<C>; 2]>,
    owed: Owed,
    plan: Plan,
    period: Period<C>,
    last_arrival: Option<Instant<C>>,
    on_the_way: arrivals::OnTheWay,
    /// Distribution of the time from the start of the core's work to the departure of a frame.
    service: Tail,
    /// When the core began to work. `None` unless every poll since then returned frames.
    busy_since: Option<Instant<C>>,
    until_service_sample: u32,
    /// Whether such a sample is to be taken from the next poll that allows it.
    service_is_due: bool,
    /// Time spent on frames, in nanoseconds, and the number of these frames. Both are halved from time to time.
    worked: (u64, u64),
    /// The candidate that was chosen last. While its frames are still being picked up, late packets are charged to it.
    chosen: usize,
    /// The share of the candidate's packets that the model expected to be late, in millionths.
    expected: u64,
    /// The expected duration of the last wait for the device. What is learned about the wait is stored under this
    /// duration, because the policy later looks it up by the expected duration. The actual duration depends on how late
    /// the wait ended.
    planned: u64,
    /// The hold-off during that wait.
    held: Nanos,
    /// The hold-off during the last wait that has ended.
    ended_held: Nanos,
    trials: Trials<C>,
    /// Number of packets since the start.
    packets: u64,
    /// Number of waits for a forecast burst since the start.
    forecasts: u64,
    charged: bool,
    /// Fractions of late packets, in millionths, that were charged as expected because they cannot be observed.
    unseen: u64,
    /// When packets come within a sleep, if they have no timestamps.
    phases: Phases<C>,
    /// What the last decision was based on.
    compared: Compared,
    /// Whether the cost of any wait has been measured yet.
    measured: bool,
    paid: Paid,
    /// When the policy last learned from a wait, or last reduced its trust in the known costs.
    learned: Option<Instant<C>>,
    /// When candidates that had not been chosen were last made more attractive ([`Plan::doubt`](plan::Plan::doubt)).
    doubted: Instant<C>,
}

/// Totals since the start: what waits saved, and how many packets were late. The difference of two totals gives the
/// cost of the period between them; see [`Adaptive::paid_since`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Paid {
    /// What the waits saved, compared with polling for the same time, in nanoseconds of a polling core.
    saved: i128,
    /// Number of late packets minus the number that the policy aimed at, in millionths.
    late: i128,
}

/// What a decision was based on.
#[derive(Clone, Copy, Debug)]
enum Compared {
    /// Nothing was compared, because frames were left in the rings and had to be picked up at once.
    Nothing,
    /// Nothing was compared, because the core is idle: no frame has arrived for a long time.
    Idle,
    /// The costs of all waits were compared. Holds the cheapest wait and the multiplier that was used.
    Waits(Choice, u64),
}

impl<C> Adaptive<C> {
    /// Creates a policy that knows nothing about the platform or the traffic yet.
    pub fn new(config: AdaptiveConfig) -> Self {
        let goal = config.goal.unwrap_or(DEFAULT_GOAL);
        let ring_time = config.loss.map_or(Nanos::MAX, |loss| loss.longest_absence());
        let longest_sleep = goal.latency.min(ring_time);
        let target = goal.latency.saturating_sub(reserve(goal, RESERVE_PART));
        let owed = Owed::new(goal.quantile.above_ppm());
        let [aim, longest, ring] = [target, longest_sleep, ring_time].map(Nanos::as_nanos);
        Self {
            goal,
            interrupts: config.interrupts,
            longest_sleep,
            target,
            knows_reserve: false,
            spacing: Nanos::ZERO,
            stalls: Stalls::new(),
            polls_since: None,
            stalls_ppm: goal.quantile.above_ppm() / STALLS_PART,
            forgiveness: Forgiveness::new(goal.quantile.above_ppm() / STALLS_PART),
            stalled: None,
            owed,
            plan: Plan::new(aim, longest, ring, owed.share(), config.interrupts),
            period: Period::new(),
            last_arrival: None,
            on_the_way: arrivals::OnTheWay::new(),
            service: Tail::new(),
            busy_since: None,
            until_service_sample: 0,
            service_is_due: false,
            worked: (0, 0),
            chosen: BLOCK,
            expected: 0,
            planned: 0,
            held: Nanos::ZERO,
            ended_held: Nanos::ZERO,
            trials: Trials::new(),
            packets: 0,
            forecasts: 0,
            charged: false,
            unseen: 0,
            phases: Phases::new(),
            compared: Compared::Nothing,
            measured: false,
            paid: Paid::default(),
            learned: None,
            doubted: Instant::ORIGIN,
        }
    }

    /// Starts from costs that were measured on this platform. Call this before the first decision: `costs` replaces
    /// what was learned about the waits that it covers.
    pub fn know(&mut self, costs: &WakeCosts) {
        for cost in costs.timed.iter().flatten() {
            self.plan.know(Kind::Timer, Some(cost.length.as_nanos()), &Tail::from_measured(&cost.lateness));
        }
        if let Some(lateness) = &costs.interrupt {
            self.plan.know(Kind::Device, None, &Tail::from_measured(lateness));
        }
        self.plan.forget();
    }

    /// Sets the time from the end of the worker's work to the departure of the first packet, and the time between the
    /// departures of further packets. These replace the policy's own reserve for delays that the worker cannot see.
    pub fn with_unseen(mut self, unseen: Nanos, spacing: Nanos) -> Self {
        (self.spacing, self.knows_reserve) = (spacing, true);
        self.plan.spacing = spacing.as_nanos();
        self.reserve(unseen);
        self
    }

    fn reserve(&mut self, unseen: Nanos) {
        self.target = self.goal.latency.saturating_sub(unseen);
        self.plan.target = self.target.as_nanos();
        self.plan.forget();
    }

    /// Tells the policy that a hold-off delays the frames themselves, and not only the interrupt: no poll finds them
    /// earlier. That is so with NAPI deferral, because frames reach an AF_XDP socket when the kernel polls the device.
    /// The policy then tries only hold-offs that leave room for the known lateness of blocks, and gives a hold-off up
    /// as soon as it owes many late packets. `longest` is the longest hold-off at which the ring that holds the frames
    /// meanwhile (not [`AdaptiveConfig::loss`]'s) does not overflow; [`Nanos::MAX`] if it is unknown.
    pub fn expect_held_frames(&mut self, longest: Nanos) {
        (self.plan.holds_frames, self.plan.longest_hold) = (true, longest.as_nanos());
    }

    /// Estimates what it would cost to meet the goal if work and wake-ups took longer by `slower`.
    pub fn outlook(&self, slower: Slower) -> Prospect {
        self.plan.outlook(slower)
    }

    /// Chooses the hold-off: how long the device should delay its interrupt after the first waiting frame, so that one
    /// wake-up serves several frames. `in_force` is the present one. Call this a few times a second, between decisions,
    /// if the device has such a setting (`ethtool -C rx-usecs`), and set the device to the result at once: the policy
    /// assumes it for the next block. Without arrival timestamps, the result is zero, because nothing would show how
    /// late a hold-off makes packets.
    pub fn hold_off(&mut self, now: Instant<C>, in_force: Nanos) -> Nanos {
        let known = in_force.min(LONGEST_HOLD);
        let wanted = self.choose_hold_off(now, known.as_nanos());
        // What is as it was stays as it is, also if it is longer than the policy counts.
        if wanted == known { in_force } else { wanted }
    }

    fn choose_hold_off(&mut self, now: Instant<C>, in_force: u64) -> Nanos {
        if in_force != self.plan.hold {
            match self.trials.refused(in_force) {
                Some(Before { place, hold, .. }) => self.plan.take_hold((place, hold)),
                None => self.plan.set_hold(in_force),
            }
        }
        if !self.interrupts || self.plan.blind {
            self.plan.set_hold(0);
            return Nanos::ZERO;
        }
        if self.plan.holds_frames && self.owed.multiplier() > GIVES_UP {
            // With this hold-off, no wait is punctual, not even polling.
            if self.plan.hold > 0 {
                self.trials.give_up();
                self.plan.give_hold_up();
            }
            return Nanos::ZERO;
        }
        let totals = Totals { paid: self.paid, packets: self.packets, forecasts: self.forecasts };
        if let Some((span, then)) = self.trials.ends(now, totals) {
            let (_, cost) = self.paid_since(then.paid, span);
            let gap = span.as_nanos() / (self.packets - then.packets).max(1);
            match self.trials.judge(cost, gap) {
                Next::Stay => {}
                // A wait for a forecast burst serves all of it without a hold-off, which would only delay bursts that
                // come early.
                Next::Try if self.forecasts > then.forecasts => {}
                Next::Return(Before { place, hold, .. }) => self.plan.take_hold((place, hold)),
                Next::Try => {
                    // If the goal allows no late packet in a period, those of a trial would take long to pay for.
                    let safe = self.plan.holds_frames || self.owed.each(gap) > span.as_nanos();
                    let other = self.plan.better_hold(safe).filter(|_| !safe || self.plan.knows_blocks());
                    if let Some(other) = other {
                        let (place, hold) = self.plan.present_hold();
                        self.trials.begin(Before { place, hold, cost, gap });
                        self.plan.take_hold(other);
                    }
                }
            }
        }
        Nanos::from_nanos(self.plan.hold)
    }

    /// Totals since the start: what waits saved, and how many packets were late.
    pub fn paid(&self) -> Paid {
        self.paid
    }

    /// The cost of the last `span`; `then` is what [`Adaptive::paid`] returned at its start. Both results are shares of
    /// a polling core, in 2^-16. The first is the cost of the waits and the work. The second also includes late
    /// packets: each one beyond the share that the policy aims at costs as much as polling for the time in which the
    /// policy aims at one late packet.
    pub fn paid_since(&self, then: Paid, span: Nanos) -> (u64, u64) {
        let (span, each) = (i128::from(span.as_nanos()), i128::from(self.owed.each(self.plan.gaps.mean())));
        // If the goal allows hardly any late packets in that time, a few of them are not counted, because they show no
        // share.
        let counts = span >= each * COUNTS;
        let polls = if counts { (self.paid.late - then.late).max(0) * each / 1_000_000 } else { 0 };
        let paid = (span - (self.paid.saved - then.saved)).max(0);
        let share = |paid: i128, of: i128| u64::try_from((paid << 16) / of.max(1)).unwrap_or(u64::MAX);
        (share(paid, span), share(paid + polls, span + polls))
    }

    /// The hold-off during the last wait that has ended.
    pub fn ended_hold_off(&self) -> Nanos {
        self.ended_held
    }

    /// The recent mean time between packets.
    pub fn mean_gap(&self) -> Nanos {
        Nanos::from_nanos(self.plan.gaps.mean())
    }

    /// Tells the policy that another frequency was requested. From now on, work and wake-ups take longer by `slower`.
    pub fn change(&mut self, slower: Slower) {
        self.trials.frequency_changed();
        self.service.scale(slower.work);
        self.worked.0 = self.worked.0 * slower.work / 256;
        self.plan.change(slower);
    }

    /// The goal that the policy meets: the configured one, or [`DEFAULT_GOAL`].
    pub fn goal(&self) -> Goal {
        self.goal
    }

    fn learn(&mut self, seen: &Observation<'_, C>) {
        if let Some(wait) = &seen.ended {
            self.learned = Some(seen.now);
            self.ended_held = self.held;
            self.stalled = self.learn_wait(wait, seen).map(|due| [due, wait.ended]);
            self.charged = wait.action.kind() != WaitKind::Pause;
            self.busy_since = None;
        }
        let starts = self.busy_since.is_none();
        self.busy_since = self.busy_since.or(picked_up(seen));
        let woke = seen.ended.filter(|wait| wait.action.kind() == WaitKind::Block && wait.overshoot().is_none());
        let (mut received, mut late) = (0, 0);
        // Unless the worker knows better, only the frame that ended the wait has waited for the hold-off.
        let oldest = seen.queues.iter().filter_map(|queue| queue.arrivals.as_ref()).map(|came| came.first).min();
        let ended_it = |came: &Arrivals<C>| seen.ended.is_some() && Some(came.first) == oldest;
        for queue in seen.queues {
            let (Some(arrivals), frames) = (&queue.arrivals, u64::from(queue.received)) else { continue };
            received += frames;
            self.learn_arrivals(arrivals, frames, woke.map(|wait| wait.ended));
            if self.charged {
                let before = late;
                if !arrivals.stamped && woke.is_some() {
                    late += self.late_unseen(frames * self.expected);
                    // The work after the wake-up is visible to the worker.
                    let woken = Arrivals { first: arrivals.picked_up, last: arrivals.picked_up, ..*arrivals };
                    late += self.late(seen.now, &woken, frames);
                } else if !arrivals.stamped && seen.ended.is_some() && self.chosen < BLOCK {
                    late += self.late_after_sleep(seen.now, arrivals, frames);
                } else {
                    late += self.late(seen.now, arrivals, frames);
                }
                if let Some(stall) = self.stalled.filter(|_| arrivals.stamped) {
                    // A core that was awake would have been stalled as well, so the frames that came meanwhile are not
                    // late because of the wait.
                    let [before_it, until_its_end] = stall.map(|at| came_before(at, arrivals, frames));
                    late = late.min(before + frames - until_its_end.saturating_sub(before_it));
                }
                let held = arrivals.held.unwrap_or(self.held);
                let shows = arrivals.stamped && (held == Nanos::ZERO || ended_it(arrivals));
                if self.chosen == BLOCK && shows && self.stalled.is_none() {
                    // The first and the last frame represent all those between them.
                    let [first, last] = delays(arrivals, seen.now);
                    self.plan.departed(first, last, held);
                }
            }
            if self.until_service_sample == 0 {
                self.until_service_sample = SERVICE_EVERY;
                self.service_is_due = true;
                let work = seen.now.since(arrivals.picked_up).unwrap_or(Nanos::ZERO);
                self.worked = (self.worked.0.saturating_add(work.as_nanos()), self.worked.1 + frames);
                self.plan.work = self.worked.0 / self.worked.1.max(1);
                if self.worked.1 > WORKED {
                    self.worked = (self.worked.0 / 2, self.worked.1 / 2);
                }
                self.owed.set_gap(self.plan.gaps.mean());
                self.adapt_to_stalls();
            }
            self.until_service_sample -= 1;
            // Frames that arrived during the work have also waited for the frames before them. Where all frames of a
            // poll leave together, that counts. Where each leaves on its own, the first frame after a wait is the one
            // that has waited longest.
            if self.service_is_due && (arrivals.sent.is_none() || starts) {
                self.service_is_due = false;
                let began = self.busy_since.map_or(arrivals.picked_up, |began| began.max(arrivals.first));
                let left = arrivals.sent.map_or(seen.now, |sent| sent.first);
                self.service.add(left.since(began).unwrap_or(Nanos::ZERO), 0, tail::MEMORY);
                self.plan.service = self.service.upper_quantile(900_000).as_nanos();
            }
        }
        self.forgiveness.add(received);
        let mut late = late.min(received);
        if self.stalled.is_some() {
            late -= self.forgiveness.forgive(late);
        }
        self.packets += received;
        self.owed.packets(received, late);
        self.paid.late += i128::from(late) * 1_000_000 - i128::from(received) * i128::from(self.owed.share());
        if self.charged {
            // A block that ended while the hold-off changed says nothing of the new one.
            let is_present = self.chosen != BLOCK || self.held.as_nanos() == self.plan.hold;
            if self.stalled.is_none() && is_present {
                self.plan.saw(self.chosen, received, late, self.expected);
            }
            // The frames of the wait may take several polls, and so may those that arrive meanwhile.
            self.charged = received > 0;
        }
    }

    /// Learns for how long the core was awake since the last wait, or since the last decision if that was to poll on, and
    /// how much of that stalls took.
    #[inline]
    fn learn_awake(&mut self, seen: &Observation<'_, C>, received: u32) {
        let polls_since = self.polls_since.take();
        let Some(since) = seen.ended.map(|wait| wait.ended).or(polls_since) else { return };
        let work = self.plan.work;
        // Without timestamps, and before it is known, work may be anything that the application does.
        let is_known = received == 0 || !self.plan.blind && work > 0;
        let until = picked_up(seen).filter(|_| !is_known).unwrap_or(seen.now);
        let span = until.since(since).unwrap_or(Nanos::ZERO);
        self.stalls.add(span, until, || u64::from(received).saturating_mul(work));
    }

    /// Adapts to the share of time that stalls take from an awake core.
    fn adapt_to_stalls(&mut self) {
        let (allowed, share) = (self.goal.quantile.above_ppm(), self.stalls.share());
        self.stalls_ppm = (allowed / STALLS_PART).saturating_add((share * STALLS_SLACK).min(allowed));
        self.forgiveness.set_limit(self.plan.gaps.mean(), self.owed.batch());
        // The more the machine stalls, the less a late packet says of the wait after which it was late.
        let trust = 16 * TRUST * self.owed.batch().max(16) / 16;
        let noisy = (allowed / NOISY_PART).max(1);
        self.plan.trust = 16 + (trust - 16) * u64::from(share.min(noisy)) / u64::from(noisy);
    }

    /// Learns from a wait that has ended. If it met a stall of the machine, returns when the wait was due to end.
    fn learn_wait(&mut self, wait: &Ended<C>, seen: &Observation<'_, C>) -> Option<Instant<C>> {
        if wait.action.kind() == WaitKind::Pause {
            return None;
        }
        let lasted = wait.ended.since(wait.began).unwrap_or(Nanos::ZERO).as_nanos();
        let timer = wait.overshoot().and_then(|late| Some((wait.action.until(wait.began)?, late)));
        let (kind, length, due) = match timer {
            Some((due, _)) => (Kind::Timer, due.since(wait.began).unwrap_or(Nanos::ZERO).as_nanos(), timer),
            None => {
                let stamped = |came: &&Arrivals<C>| came.stamped;
                let arrivals = seen.queues.iter().filter_map(|queue| queue.arrivals.as_ref());
                let first = arrivals.filter(stamped).min_by_key(|came| came.first);
                // The interrupt is due when the hold-off of the first frame ends, but not before the wait began.
                let late = |came: &Arrivals<C>| {
                    let due = (came.first + came.held.unwrap_or(self.held)).max(wait.began);
                    (due, came.picked_up.since(due).unwrap_or(Nanos::ZERO))
                };
                (Kind::Device, self.planned, first.map(late))
            }
        };
        let late = due.map(|(_, late)| late);
        let stalled = due.filter(|(_, late)| self.plan.ended(kind, length, *late, self.stalls_ppm));
        self.measured |= wait.spent.is_some();
        // If costs are not measured, assume that a wait costs at least its wake-up time.
        let spent = wait.spent.or(late.filter(|_| !self.measured));
        if let Some(spent) = spent.filter(|_| stalled.is_none()) {
            // The core is also awake from the end of the wait until it has picked up the frames.
            let taking = picked_up(seen).unwrap_or(seen.now).since(wait.ended).unwrap_or(Nanos::ZERO);
            self.plan.spent(kind, lasted, (spent + taking).as_nanos(), wait.idle.as_nanos());
            self.paid.saved += i128::from(lasted) - i128::from(spent.as_nanos());
        }
        stalled.map(|(due, _)| due)
    }

    /// Learns the gaps between arrivals. `woke` is when the worker ran again, if the device ended the wait.
    fn learn_arrivals(&mut self, arrivals: &Arrivals<C>, frames: u64, woke: Option<Instant<C>>) {
        if arrivals.stamped {
            return self.learn_stamped(arrivals, frames);
        }
        if !self.plan.blind {
            self.go_blind();
        }
        let picked_up = arrivals.picked_up;
        self.phases.add(arrivals.first, picked_up, frames);
        let between = picked_up.since(arrivals.first).unwrap_or(Nanos::ZERO);
        // The frame that ended the wait arrived just before. Otherwise, frames are assumed to be spread evenly between
        // the polls.
        let (first, last, exact) = match woke {
            Some(woke) => (woke.min(picked_up), picked_up, true),
            None => {
                let half = between / (2 * frames.max(1));
                (arrivals.first + half, picked_up.before(half).unwrap_or(picked_up), between <= EXACT)
            }
        };
        self.learn_gaps(first, last, frames);
        // Do not look for a period in times that are blurred by the polls, nor in windows, which show parts of the traffic.
        if exact && !self.phases.in_window() {
            self.period.arrived(first, last);
        }
    }

    /// The first frames without timestamps have come.
    #[cold]
    fn go_blind(&mut self) {
        self.plan.blind = true;
        if !self.knows_reserve {
            self.reserve(reserve(self.goal, BLIND_RESERVE_PART));
        }
    }

    fn learn_stamped(&mut self, arrivals: &Arrivals<C>, frames: u64) {
        let held = arrivals.held.unwrap_or(Nanos::ZERO);
        match self.last_arrival.and_then(|before| arrivals.last.since(before)) {
            // Held frames arrived at unknown times since the last one. `first` is the earliest, not the likely one.
            Some(span) if held > Nanos::ZERO => {
                self.plan.gaps.add(span.as_nanos() / frames.max(1), frames);
                self.last_arrival = Some(arrivals.last);
            }
            _ => self.learn_gaps(arrivals.first + held, arrivals.last, frames),
        }
        self.on_the_way.add(arrivals.picked_up.since(arrivals.last).unwrap_or(Nanos::ZERO).as_nanos());
        self.period.arrived(arrivals.first + held, arrivals.last);
    }

    fn learn_gaps(&mut self, first: Instant<C>, last: Instant<C>, frames: u64) {
        if let Some(gap) = self.last_arrival.and_then(|before| first.since(before)) {
            self.plan.gaps.add(gap.as_nanos(), 1);
        }
        if frames > 1 {
            let spread = last.since(first).unwrap_or(Nanos::ZERO).as_nanos();
            self.plan.gaps.add(spread / (frames - 1), frames - 1);
        }
        self.last_arrival = Some(self.last_arrival.map_or(last, |before| before.max(last)));
    }

    /// Number of this poll's frames that are later than the target. Frames are assumed to have arrived evenly spaced,
    /// and to have left so. A later frame has waited less in the ring, but must also wait for the departure of the
    /// frame before it.
    fn late(&self, now: Instant<C>, arrivals: &Arrivals<C>, frames: u64) -> u64 {
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
        if least > 0 { frames.max(1) } else { 1 + further * most / spread }
    }

    /// Number of late packets of which only their expected number is known, in millionths.
    fn late_unseen(&mut self, millionths: u64) -> u64 {
        let unseen = self.unseen + millionths;
        self.unseen = unseen % ONE;
        unseen / ONE
    }

    /// Number of frames without timestamps that were late after a sleep, as [`Phases`] expects it. Those that came during
    /// a stall do not count.
    fn late_after_sleep(&mut self, now: Instant<C>, arrivals: &Arrivals<C>, frames: u64) -> u64 {
        let after = |at: Instant<C>| at.since(arrivals.first).unwrap_or(Nanos::ZERO);
        let [first, last] = arrivals.sent.map_or([now; 2], |sent| [sent.first, sent.last]);
        let left = first + last.since(first).unwrap_or(Nanos::ZERO) / 2;
        let over = after(left).saturating_sub(self.target);
        let over = self.stalled.map_or(over, |[due, _]| over.min(after(due)));
        self.late_unseen(frames * self.phases.share(over, arrivals.lateness()))
    }

    /// Decides after a poll that left nothing in the rings. `polled` is when the rings were read; `traffic` says
    /// whether the poll returned frames.
    fn decide_drained(&mut self, now: Instant<C>, polled: Instant<C>, traffic: bool) -> Decision<C> {
        if self.plan.blind && self.phases.lasts(now) {
            self.polls_since = Some(now);
            return Decision { action: Action::Poll, reason: Reason::Budget };
        }
        let on_the_way = Nanos::from_nanos(self.on_the_way.least());
        // Nothing is known about frames that arrived after the rings were read, or that were still being written into
        // them.
        let silence = self.last_arrival.map(|last| polled.since(last + on_the_way).unwrap_or(Nanos::ZERO));
        let idle = silence.is_none_or(|silence| silence >= IDLE_AFTER) || self.plan.gaps.mean() >= SPARSE;
        if self.interrupts && idle {
            (self.chosen, self.expected, self.planned) = (BLOCK, 0, silence.map_or(0, Nanos::as_nanos));
            self.held = Nanos::from_nanos(self.plan.hold);
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
            // A policy that owes many late packets makes no trials.
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
        self.held = Nanos::from_nanos(self.plan.hold);
        match best.slot {
            POLL => {
                self.polls_since = Some(now);
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
                self.forecasts += 1;
                let until = now + Nanos::from_nanos(best.wait);
                let action = if self.interrupts {
                    Action::BlockUntil(Some(until))
                } else {
                    Action::SleepUntil(until.min(now + self.longest_sleep))
                };
                Decision { action, reason: Reason::Periodic }
            }
            slot => {
                // The wait counts from when the rings were read: a frame that arrived since then waits no longer than
                // one that arrived just after.
                let until = polled + Nanos::from_nanos(best.wait);
                if until.since(now).is_none_or(|left| left < Nanos::from_nanos(best.wait / 2)) {
                    self.compared = Compared::Nothing;
                    self.polls_since = Some(now);
                    return Decision { action: Action::Poll, reason: Reason::Traffic };
                }
                let reason = if best.cut { Reason::LossBound } else { Reason::Budget };
                if self.plan.blind && self.phases.opens(now, now + Nanos::from_nanos(best.lasts)) {
                    self.polls_since = Some(now);
                    return Decision { action: Action::Poll, reason };
                }
                (self.chosen, self.expected) = (slot, best.late);
                Decision { action: Action::SleepUntil(until), reason }
            }
        }
    }

    /// The best wait for the next burst that the period predicts. `None` if no burst is predicted.
    fn forecast(&mut self, now: Instant<C>) -> Option<Choice> {
        let multiplier = self.owed.multiplier();
        let forecast = self.period.forecast(now).filter(|forecast| now >= forecast.last_ends)?;
        // A burst that does not come at its time may be lost. If it comes late it ends the wait; the next one is waited
        // for.
        let due = if now > forecast.to { forecast.next } else { forecast.from };
        let due = due + Nanos::from_nanos(self.on_the_way.least());
        // Within the predicted window, it is only known that the burst comes soon.
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

/// The reserve for delays that the worker cannot see: `1 / part` of the goal's latency, up to a limit.
fn reserve(goal: Goal, part: u64) -> Nanos {
    (goal.latency / part).min(RESERVE_MOST)
}

/// The times from arrival to departure of the first and the last frame.
fn delays<C>(arrivals: &Arrivals<C>, now: Instant<C>) -> [Nanos; 2] {
    let left = arrivals.sent.map_or([now; 2], |sent| [sent.first, sent.last]);
    [(left[0], arrivals.first), (left[1], arrivals.last)].map(|(left, came)| left.since(came).unwrap_or(Nanos::ZERO))
}

/// How many of a poll's frames arrived before `due`. They are assumed to have arrived evenly spaced.
fn came_before<C>(due: Instant<C>, arrivals: &Arrivals<C>, frames: u64) -> u64 {
    let [ahead, spread] = [due, arrivals.last].map(|at| at.since(arrivals.first).unwrap_or(Nanos::ZERO).as_nanos());
    match ahead {
        0 => 0,
        ahead if ahead > spread => frames,
        ahead => (1 + (frames.max(1) - 1).saturating_mul(ahead) / spread).min(frames),
    }
}

/// When the poll picked up its frames. `None` if there were none.
fn picked_up<C>(seen: &Observation<'_, C>) -> Option<Instant<C>> {
    seen.queues.iter().filter_map(|queue| queue.arrivals.as_ref()).map(|arrivals| arrivals.picked_up).min()
}

impl<C> WaitPolicy<C> for Adaptive<C> {
    #[inline]
    fn decide(&mut self, seen: &Observation<'_, C>) -> Decision<C> {
        let received = seen.received();
        self.learn_awake(seen, received);
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
            // Polling costs as much as it lasts, on any machine.
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

#[cfg(test)]
mod tests {
    use super::super::Sent;
    use super::*;
    use units::Simulated;

    /// Waits of centuries, as a clock that jumps shows them.
    #[test]
    fn the_account_of_waits_does_not_overflow() {
        let mut policy = Adaptive::new(AdaptiveConfig { goal: None, loss: None, interrupts: true });
        let at = Instant::<Simulated>::from_nanos;
        let queues = [super::super::Queue { received: 0, fill: 0, arrivals: None }];
        for (began, ended) in [(0, u64::MAX / 2), (u64::MAX / 2, u64::MAX - 1)] {
            let wait = Ended {
                action: Action::BlockUntil(None),
                began: at(began),
                ended: at(ended),
                spent: Some(Nanos::ZERO),
                idle: Nanos::ZERO,
            };
            policy.decide(&Observation { now: at(ended), queues: &queues, ended: Some(wait) });
        }
        assert_eq!(policy.paid().saved, i128::from(u64::MAX - 1));
    }

    #[test]
    fn without_timestamps_more_is_reserved_and_stalls_are_not_charged() {
        let goal = "p99=60us".parse().ok();
        let mut policy = Adaptive::<Simulated>::new(AdaptiveConfig { goal, ..Default::default() });
        assert_eq!(policy.target, Nanos::from_nanos(52_500));
        let at = |us: u64| Instant::from_nanos(us * 1_000);
        let arrivals = Arrivals::unstamped(at(0), at(200));
        policy.learn_arrivals(&arrivals, 4, None);
        assert_eq!(policy.target, Nanos::from_micros(48));
        // At first, all packets are assumed to have come at the beginning of the sleep.
        assert_eq!(policy.late_after_sleep(at(202), &arrivals, 4), 4);
        policy.stalled = Some([at(0), at(200)]);
        assert_eq!(policy.late_after_sleep(at(202), &arrivals, 4), 0, "all of them came during the stall");
        policy.stalled = Some([at(40), at(200)]);
        assert_eq!(policy.late_after_sleep(at(202), &arrivals, 4), 4, "they may have come before it");
        let mut known = Adaptive::<Simulated>::new(AdaptiveConfig { goal, ..Default::default() })
            .with_unseen(Nanos::from_micros(5), Nanos::ZERO);
        known.learn_arrivals(&arrivals, 4, None);
        assert_eq!(known.target, Nanos::from_micros(55));
    }

    /// Rounds of an application that works for 300 us whenever it received packets. An empty poll takes `other`.
    fn works_long(stamped: bool, other: Nanos) -> u32 {
        let mut policy = Adaptive::<Simulated>::new(AdaptiveConfig::default());
        let mut now = Instant::from_nanos(1_000_000);
        for round in 0..200_u32 {
            let received = u32::from(round % 2 == 0);
            let picked_up = now + if received == 0 { other } else { Nanos::from_micros(1) };
            let arrivals = if stamped {
                Arrivals::stamped(now, picked_up, picked_up)
            } else {
                Arrivals::unstamped(now, picked_up)
            };
            now = picked_up + Nanos::from_micros(300 * u64::from(received));
            let queues =
                [super::super::Queue { received, fill: received, arrivals: (received > 0).then_some(arrivals) }];
            policy.decide(&Observation { now, queues: &queues, ended: None });
            // As if the policy had decided to poll on.
            policy.polls_since = Some(now);
        }
        policy.stalls.share()
    }

    #[test]
    fn work_on_packets_is_no_stall_but_other_gaps_are() {
        for stamped in [false, true] {
            assert_eq!(works_long(stamped, Nanos::from_micros(2)), 0, "stamped: {stamped}");
            assert!(works_long(stamped, Nanos::from_micros(150)) > 50_000, "stamped: {stamped}");
        }
    }

    #[test]
    fn frames_before_a_stall_are_told_from_those_within() {
        let at = |us: u64| Instant::<Simulated>::from_nanos(us * 1_000);
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
        let policy =
            Adaptive::<Simulated>::new(AdaptiveConfig { goal: "p99=120us".parse().ok(), ..Default::default() });
        assert_eq!(policy.target, Nanos::from_micros(105));
        let at = |us: u64| Instant::from_nanos(us * 1_000);
        let arrivals = Arrivals::stamped(at(0), at(90), at(95));
        let late = |arrivals: Arrivals<Simulated>| policy.late(at(125), &arrivals, 10);
        // The first two packets came more than 105 us before all of them leave, and the third 105 us.
        assert_eq!(late(arrivals), 3);
        let sent =
            |first: u64, last: u64| Arrivals { sent: Some(Sent { first: at(first), last: at(last) }), ..arrivals };
        assert_eq!(late(sent(98, 125)), 0, "the first leaves after 98 us, and the last after 35");
        assert_eq!(late(sent(115, 125)), 2);
        // In an overloaded queue, the last packets are the latest.
        assert_eq!((late(sent(100, 125)), late(sent(100, 220))), (0, 8));
        assert_eq!(late(sent(130, 250)), 10);
    }

    /// `count` packets, 50 to 150 us apart. Each of them ends a block of 40 us that begins after the one before it.
    fn blocks(
        policy: &mut Adaptive<Simulated>,
        count: u64,
        mut each: impl FnMut(&mut Adaptive<Simulated>, Instant<Simulated>),
    ) {
        let us = Nanos::from_micros;
        let mut came = Instant::from_nanos(1_000_000);
        for number in 1..=count {
            came = came + Nanos::from_nanos(50_000 + number * 7_919 % 100_000);
            let (began, picked_up) = (came.before(us(40)).unwrap(), came + us(8) + Nanos::from_nanos(policy.plan.hold));
            let arrivals = Some(Arrivals::stamped(came, came, picked_up));
            let action = Action::BlockUntil(None);
            let ended = Ended { action, began, ended: picked_up, spent: Some(us(20)), idle: us(10) };
            let queues = [super::super::Queue { received: 1, fill: 1, arrivals }];
            policy.decide(&Observation { now: picked_up + us(1), queues: &queues, ended: Some(ended) });
            each(policy, picked_up + us(1));
        }
    }

    /// A policy that knows that a sleep costs as much as polling for as long.
    fn with_goal(goal: &str) -> Adaptive<Simulated> {
        let mut policy = Adaptive::new(AdaptiveConfig { goal: goal.parse().ok(), ..AdaptiveConfig::default() });
        for length in [10, 30, 60, 120, 240, 480].into_iter().cycle().take(240).map(Nanos::from_micros) {
            let (began, due) = (Instant::ORIGIN, Instant::ORIGIN + length);
            let queues = [super::super::Queue { received: 0, fill: 0, arrivals: None }];
            let ended =
                Ended { action: Action::SleepUntil(due), began, ended: due, spent: Some(length), idle: Nanos::ZERO };
            policy.decide(&Observation { now: due, queues: &queues, ended: Some(ended) });
        }
        policy
    }

    #[test]
    fn a_hold_off_is_tried_where_it_gathers() {
        let (mut policy, mut in_force, mut longest) = (with_goal("p99=500us"), Nanos::ZERO, Nanos::ZERO);
        let mut packets = 0;
        blocks(&mut policy, 4_000, |policy, now| {
            packets += 1;
            if packets % 100 == 0 {
                in_force = policy.hold_off(now, in_force);
                longest = longest.max(in_force);
            }
        });
        assert!((Nanos::from_micros(60)..=Nanos::from_micros(500)).contains(&longest), "{longest}");
    }

    #[test]
    fn a_device_that_refuses_or_exaggerates_is_understood() {
        let mut policy = with_goal("p99=500us");
        let (mut asked, mut packets) = (false, 0);
        blocks(&mut policy, 4_000, |policy, now| {
            packets += 1;
            if packets % 100 == 0 {
                asked |= policy.hold_off(now, Nanos::ZERO) > Nanos::ZERO;
                // The next call shows that nothing has changed.
                policy.hold_off(now, Nanos::ZERO);
            }
        });
        assert!(asked);
        policy.hold_off(Instant::from_nanos(1 << 40), Nanos::ZERO);
        assert_eq!(policy.plan.present_hold(), (0, 0));
        let held = policy.hold_off(Instant::from_nanos(1 << 41), Nanos::MAX);
        assert_eq!((held, policy.plan.hold), (Nanos::MAX, LONGEST_HOLD.as_nanos()), "the policy changes nothing yet");
        blocks(&mut policy, 100, |_, _| {});
    }

    #[test]
    fn a_hold_off_that_delays_the_frames_themselves_is_given_up_if_they_are_late() {
        let mut policy = with_goal("p99=150us");
        policy.expect_held_frames(Nanos::MAX);
        // Somebody set it to 200 us, and the policy is asked once: no period ends, so no trial begins.
        blocks(&mut policy, 400, |policy, now| {
            if policy.plan.hold == 0 {
                assert_eq!(policy.hold_off(now, Nanos::from_micros(200)), Nanos::from_micros(200));
            }
        });
        assert!(policy.owed.multiplier() > GIVES_UP);
        let now = Instant::from_nanos(1 << 40);
        assert_eq!(policy.hold_off(now, Nanos::from_micros(200)), Nanos::ZERO);
        assert_eq!(policy.plan.hold, 0);
    }

    /// NAPI received the frame 30 us before it was picked up, and may have held it for 50 us before that.
    #[test]
    fn what_a_hold_off_takes_counts_for_the_goal_but_not_for_the_wake_up() {
        let mut policy = with_goal("p99=90us");
        let us = Nanos::from_micros;
        for number in 1..=100_u64 {
            let came = Instant::from_nanos(number * 1_000_000);
            let (began, picked_up) = (came.before(us(40)).unwrap(), came + us(80));
            let arrivals =
                Arrivals { first: came, last: came, picked_up, stamped: true, held: Some(us(50)), sent: None };
            let action = Action::BlockUntil(None);
            let ended = Ended { action, began, ended: picked_up, spent: Some(us(20)), idle: us(10) };
            let queues = [super::super::Queue { received: 1, fill: 1, arrivals: Some(arrivals) }];
            policy.decide(&Observation { now: picked_up + us(1), queues: &queues, ended: Some(ended) });
        }
        // The goal less the reserve is 78.75 us.
        assert!(policy.owed.multiplier() > 0, "each frame is late");
        let block = policy.plan.known_block_lateness();
        assert!((us(28)..=us(34)).contains(&block), "{block}");
    }

    #[test]
    fn without_interrupts_or_timestamps_there_is_no_hold_off() {
        let us = Nanos::from_micros;
        let deaf = AdaptiveConfig { interrupts: false, ..AdaptiveConfig::default() };
        assert_eq!(Adaptive::<Simulated>::new(deaf).hold_off(Instant::from_nanos(1), us(30)), Nanos::ZERO);
        let mut blind = with_goal("p99=500us");
        let at = Instant::from_nanos;
        let arrivals = Some(Arrivals::unstamped(at(1_000), at(50_000)));
        let queues = [super::super::Queue { received: 1, fill: 1, arrivals }];
        blind.decide(&Observation { now: at(51_000), queues: &queues, ended: None });
        assert_eq!(blind.hold_off(at(60_000), us(30)), Nanos::ZERO);
    }
}
