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
//! The queue stays bounded, also below zero, as a credit. Hence the long-run share of late packets is at most `e`, if any
//! candidate can achieve that.
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
//! correct it ([`plan`]). A late packet corrects it at once, also in a short sleep in which the model expects hardly any
//! packet, as with regular gaps that are a little longer than an octave ([`gaps`]) of silence. What is compared is the
//! number of late packets per sleep, not their share: if more packets come than expected, those are unexpected as well.
//! (Without timestamps, shares are compared, because the number of packets is less certain.)
//!
//! **The current silence** begins when the last frame became visible, not when it arrived
//! ([`traffic`]). At 7 Mpps, about 20 frames are being written into memory at any time. A policy
//! that measured from the last arrival would wait for frames that have already arrived.
//!
//! **A wait ends** with its busy period ([`plan`]): when the queue is empty again, which
//! includes the packets that arrived while others were served. The wait is charged for the whole busy period, and for
//! every packet that is late within it.
//!
//! **Trials.** A candidate that was not chosen for a long time is gradually expected to be late less often
//! ([`Plan::doubt`]), and while the core only polls, waits gradually become cheaper ([`prices`]), until one is tried.
//! The goal must allow the late packets of these trials, which limits how frequent they are.
//!
//! **Frequency.** A frequency policy uses two results: [`Adaptive::outlook`] estimates what the cheapest waits would
//! cost at another frequency, where work takes longer or shorter. [`Adaptive::paid_since`] reports what the waits have
//! actually cost.
//!
//! **Hold-off.** A device may delay its interrupt after the first waiting frame, so that one wake-up serves several
//! frames. [`Adaptive::hold_off`] chooses this delay a few times a second ([`hold_off`]).
//!
//! **Idle states.** How deep the core idles may be limited, so that it wakes up faster. [`Adaptive::limit_idle`] chooses
//! the limit from time to time, and lifts it while no frames come ([`idle_limit`]).
//!
//! **Bounds.** No timed sleep is longer than the goal's latency or the time until the ring overflows. Any longer wait
//! ends when the first frame arrives. A packet that was late although the core was awake is not learned or charged.
//!
//! **Stalls of the machine** (other work, firmware, the host of a virtual machine) make packets late whatever the
//! policy does, so polling cannot make up for them. A wait that ended very late counts as stalled, not as late, in at
//! most a quarter as many cases as the goal allows late packets ([`tail`]). Where stalls are more frequent, the core
//! also shows them while it is awake, as gaps between its polls ([`stalls`]), and correspondingly more waits count as
//! stalled. The lateness of a stalled wait is not learned. The packets that came during the stall are not charged, and
//! a limited number of other late packets after it is forgiven ([`forgiveness`]). So are packets that would have been
//! late with polling as well ([`polling`]).
//!
//! **Idle cores.** After 50 ms without a frame, or if frames come at least 45 ms apart on average, the core blocks,
//! whatever the goal is. Otherwise it would have to stay awake all the time for one rare packet.
//!
//! **Without arrival timestamps** ([`Arrivals::unstamped`](super::Arrivals::unstamped)), the policy only knows that a
//! packet arrived after the previous poll. After a sleep, it charges as many late packets as it expects, and it measures when packets come
//! within a sleep: it replaces some sleeps by polling for as long ([`phases`]). At first, it assumes the worst case:
//! that all packets came just after the previous poll. If the device ended the wait, it charges the late packets that
//! the model expects. The model then uses the lateness of measured interrupts ([`Adaptive::know`]) or, if none were
//! measured, that of timers, because both wake the core from the same idle states. Until some timed waits have ended,
//! even that is unknown, and only an idle core waits for the device. Some information is lost. Lateness caused by the
//! device itself is not visible, so it is neither learned nor charged. Gaps, and therefore periods, are only as exact
//! as the polls.
//!
//! **Without a goal** the policy uses [`DEFAULT_GOAL`].
//!
//! **At the start,** the policy does not know what waits cost, and learns their costs from its first packets. On a
//! platform that was measured before, [`Adaptive::know`] avoids this phase.

//!
//! **Where to find what.** Each file depends only on those in the lines above it.
//!
//! | files | contents |
//! | --- | --- |
//! | [`math`], [`slower`], [`choice`], [`costs`], [`depth`] | arithmetic, factors of frequencies, the candidates, measured costs, limits of idle states |
//! | [`stalls`], [`forgiveness`], [`owed`], [`paid`] | accounts: of stalls, late packets and costs |
//! | [`tail`], [`prices`], [`gaps`], [`period`], [`phases`] | what is learned: distributions, costs, arrivals |
//! | [`late`], [`polling`], [`outcome`], [`service`], [`traffic`] | what a poll shows: late packets, waits, work, arrivals |
//! | [`plan`] | what each candidate is expected to lead to, and the cheapest one |
//! | [`hold_off`], [`idle_limit`] | trials of hold-offs, choice of the limit of idle states |
//! | this file, [`learn`], [`decide`] | the policy: its state, an observation in, a decision out |

mod belief;
mod choice;
mod costs;
mod decide;
mod depth;
mod forgiveness;
mod gaps;
mod hold_off;
mod idle_limit;
mod late;
mod learn;
mod math;
mod outcome;
mod owed;
mod paid;
mod period;
mod phases;
mod plan;
mod polling;
mod prices;
mod service;
mod slower;
mod stalls;
mod tail;
mod traffic;

use units::{Instant, Nanos, Quantile};

use super::{Action, Decision, Observation, Reason, WaitPolicy};
use crate::{Goal, LossBound};
pub use belief::Belief;
use choice::{BLOCK, Choice, POLL};
pub use costs::{LENGTHS, Lateness, TimedCost, WakeCosts};
use depth::Depth;
pub use depth::IdleState;
use forgiveness::Forgiveness;
use hold_off::{Totals, Trials};
use idle_limit::Depths;
use late::{Deadline, Unseen, picked_up};
pub use owed::AIM_EIGHTHS;
use owed::Owed;
pub use paid::Paid;
use plan::Plan;
pub use plan::Prospect;
use polling::Polling;
use prices::Kind;
use service::Service;
pub use slower::Slower;
use stalls::Stalls;
use tail::Tail;
use traffic::Traffic;

/// The goal if the user chose none: p99 within 100 us. It is tight enough that users of a kernel network stack would
/// not notice the difference. It is loose enough that most machines can meet it with interrupts and sleeps of a few
/// tens of microseconds, using a few per cent of a core.
pub const DEFAULT_GOAL: Goal = Goal { quantile: Quantile::P99, latency: Nanos::from_micros(100) };

/// `1 / RESERVE_PART` of the goal's latency is reserved for delays that the worker cannot see (the wire, the peer).
const RESERVE_PART: u64 = 8;
/// The same without arrival timestamps: then the time from the arrival until a poll can find the frame (the interrupt,
/// the driver) is not visible either. On `net_af_xdp`, polling all the time had a p99 of 35 to 55 us.
const BLIND_RESERVE_PART: u64 = 5;
/// Upper limit of the reserve for delays that the worker cannot see. With 10 us, p99 exceeded a goal of 120 us by up to
/// 5 us, because a sender of 100 kpps has to queue its own frames.
const RESERVE_MOST: Nanos = Nanos::from_micros(15);

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
    longest_sleep: Nanos,
    deadline: Deadline,
    /// Whether the reserve was given ([`Adaptive::with_unseen`]).
    knows_reserve: bool,

    // What was learned.
    plan: Plan,
    traffic: Traffic<C>,
    service: Service<C>,
    stalls: Stalls<C>,
    /// The share of waits that may count as stalled, in ppm.
    stalls_ppm: u32,
    /// Whether the cost of any wait has been measured yet.
    measured: bool,

    // The accounts.
    owed: Owed,
    polling: Polling<C>,
    forgiveness: Forgiveness,
    paid: Paid,
    /// Late packets of which only the expected number is known.
    unseen: Unseen,
    /// Number of packets since the start.
    packets: u64,
    /// Number of waits for a forecast burst since the start.
    forecasts: u64,
    /// Number of waits before which a burst was forecast, whether they ended at the burst or not.
    foretold: u64,

    // The last wait.
    chosen: Chosen,
    /// Whether late packets are charged to the last wait: while its frames are still being picked up.
    charged: bool,
    /// If the last wait ended in a stall: when it was due to end, and when it ended. The packets may take more polls.
    stalled: Option<[Instant<C>; 2]>,
    /// The hold-off during the last wait that has ended.
    ended_held: Nanos,
    /// What the last decision was based on.
    compared: Compared,

    // What is done from time to time.
    trials: Trials<C>,
    depths: Depths<C>,
    /// Whether the core is idle: no frames come, or hardly any.
    idle: bool,
    /// Whether the core rests without the limit of its idle states until the next frame arrives.
    resting: bool,
    /// When a block ends so that this can be decided. `None` if the limit would stay.
    reconsiders: Option<Instant<C>>,
    /// When the policy last learned from a wait, or last reduced its trust in the known costs.
    learned: Option<Instant<C>>,
    /// When a candidate that was not chosen recently last became more attractive ([`Plan::doubt`]).
    doubted: Instant<C>,
}

/// The wait that was chosen last.
#[derive(Clone, Copy, Debug)]
struct Chosen {
    /// The candidate. Late packets are charged to it.
    slot: usize,
    /// The share of the candidate's packets that the model expected to be late, in millionths.
    expected: u64,
    /// Number of late packets that the model expected of a sleep, in millionths of a packet.
    number: u64,
    /// The expected duration of the last wait for the device, in nanoseconds. What is learned about the wait is stored
    /// under this duration, because the policy later looks it up by the expected duration. The actual duration depends
    /// on how late the wait ended.
    planned: u64,
    /// The hold-off during that wait.
    held: Nanos,
    /// How deep the core could idle during that wait.
    depth: Depth,
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
        let allowed = goal.quantile.above_ppm();
        let ring_time = config.loss.map_or(Nanos::MAX, |loss| loss.longest_absence());
        let longest_sleep = goal.latency.min(ring_time);
        let target = goal.latency.saturating_sub(reserve(goal, RESERVE_PART));
        let owed = Owed::new(allowed);
        let [aim, longest, ring] = [target, longest_sleep, ring_time].map(Nanos::as_nanos);
        Self {
            goal,
            longest_sleep,
            deadline: Deadline { target, spacing: Nanos::ZERO },
            knows_reserve: false,
            plan: Plan::new(aim, longest, ring, owed.share(), config.interrupts),
            traffic: Traffic::new(),
            service: Service::new(),
            stalls: Stalls::new(),
            stalls_ppm: stalls::always_counted(allowed),
            measured: false,
            owed,
            polling: Polling::new(),
            forgiveness: Forgiveness::new(stalls::always_counted(allowed)),
            paid: Paid::default(),
            unseen: Unseen::default(),
            packets: 0,
            forecasts: 0,
            foretold: 0,
            chosen: Chosen { slot: BLOCK, expected: 0, number: 0, planned: 0, held: Nanos::ZERO, depth: Depth::NONE },
            charged: false,
            stalled: None,
            ended_held: Nanos::ZERO,
            compared: Compared::Nothing,
            trials: Trials::new(),
            depths: Depths::new(),
            idle: true,
            resting: false,
            reconsiders: None,
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
        (self.deadline.spacing, self.knows_reserve) = (spacing, true);
        self.plan.set_spacing(spacing.as_nanos());
        self.set_reserve(unseen);
        self
    }

    fn set_reserve(&mut self, unseen: Nanos) {
        self.deadline.target = self.goal.latency.saturating_sub(unseen);
        self.plan.set_target(self.deadline.target.as_nanos());
    }

    /// Tells the policy that a hold-off delays the frames themselves, and not only the interrupt: no poll finds them
    /// earlier. That is so with NAPI deferral, because frames reach an AF_XDP socket when the kernel polls the device.
    /// The policy then tries only hold-offs that leave room for the known lateness of blocks, and gives a hold-off up
    /// as soon as it owes many late packets. `longest` is the longest hold-off at which the ring that holds the frames
    /// meanwhile (not [`AdaptiveConfig::loss`]'s) does not overflow; [`Nanos::MAX`] if it is unknown.
    pub fn expect_held_frames(&mut self, longest: Nanos) {
        self.plan.hold_frames(longest.as_nanos());
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
        let known = in_force.min(hold_off::LONGEST);
        let totals = Totals { paid: self.paid, packets: self.packets, forecasts: self.forecasts };
        let wanted = self.trials.choose(now, known.as_nanos(), &mut self.plan, &self.owed, totals);
        // What is as it was stays as it is, also if it is longer than the policy counts.
        if wanted == known.as_nanos() { in_force } else { Nanos::from_nanos(wanted) }
    }

    /// Sets the idle states of the worker's CPU, in cpuidle's order: the shallowest first. With them, the policy can
    /// [choose](Self::limit_idle) how deep the core idles.
    pub fn know_idle_states(&mut self, states: &[IdleState]) {
        self.depths.know(states, self.deadline.target.as_nanos());
    }

    /// Chooses how deep the core may idle: the longest exit latency of the idle states that the operating system may
    /// choose (on Linux, `pm_qos_resume_latency_us` of the CPU). [`Nanos::MAX`] means no limit. `in_force` is the
    /// present one. Call this before a decision if it [is due](Self::limit_idle_is_due), and set the result at once: the
    /// policy assumes it for the next wait.
    ///
    /// While no frames arrive, there is no limit. Where costs are CPU time only, a limit is chosen only if it halves
    /// them: what it adds to the power of an idle core is not known then.
    pub fn limit_idle(&mut self, now: Instant<C>, in_force: Nanos) -> Nanos {
        let before = self.depths.changes();
        let idle = self.is_idle();
        let wanted = self.depths.choose(now, (idle, in_force), &mut self.plan, &self.owed, (self.paid, self.foretold));
        if before != self.depths.changes() {
            self.trials.idle_limit_changed();
        }
        wanted
    }

    /// Whether [`Self::limit_idle`] should be called now.
    #[inline]
    pub fn limit_idle_is_due(&self, now: Instant<C>) -> bool {
        self.depths.is_due(now, self.is_idle())
    }

    /// Whether the core should idle as deep as it can.
    #[inline]
    fn is_idle(&self) -> bool {
        self.idle || self.resting
    }

    /// Number of changes of [how deep the core may idle](Self::limit_idle).
    pub fn idle_limit_changes(&self) -> u32 {
        self.depths.changes()
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
        self.paid.since(then, span, self.owed.each(self.plan.mean_gap()))
    }

    /// The hold-off during the last wait that has ended.
    pub fn ended_hold_off(&self) -> Nanos {
        self.ended_held
    }

    /// The recent mean time between packets.
    pub fn mean_gap(&self) -> Nanos {
        Nanos::from_nanos(self.plan.mean_gap())
    }

    /// Tells the policy that another frequency was requested. From now on, work and wake-ups take longer by `slower`.
    pub fn change(&mut self, slower: Slower) {
        self.trials.frequency_changed();
        self.depths.frequency_changed();
        self.service.scale(slower.work);
        self.plan.change(slower);
    }

    /// The goal that the policy meets: the configured one, or [`DEFAULT_GOAL`].
    pub fn goal(&self) -> Goal {
        self.goal
    }
}

/// The reserve for delays that the worker cannot see: `1 / part` of the goal's latency, up to a limit.
fn reserve(goal: Goal, part: u64) -> Nanos {
    (goal.latency / part).min(RESERVE_MOST)
}

impl<C> WaitPolicy<C> for Adaptive<C> {
    #[inline]
    fn decide(&mut self, seen: &Observation<'_, C>) -> Decision<C> {
        let received = seen.received();
        self.learn_awake(seen, received);
        if received > 0 || seen.ended.is_some() {
            if self.chosen.depth.number() == self.plan.depth().number() {
                self.learn(seen);
            } else {
                self.learn_of_before(seen);
            }
        }
        if received == 0 {
            self.service.rests();
            self.charged = false;
            return self.decide_drained(seen.now, seen.now, false);
        }
        let drained = seen.queues.iter().all(|queue| queue.received == queue.fill);
        self.resting = false;
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
            gap: nanos(self.plan.mean_gap()),
            aimed_ppm: self.owed.share() as u32,
            owed_millionths: self.owed.owed(),
            multiplier_256ths: multiplier,
        })
    }
}

impl<C> Clone for Adaptive<C> {
    fn clone(&self) -> Self {
        Self { plan: self.plan.clone(), traffic: self.traffic.clone(), service: self.service.clone(), ..*self }
    }
}
