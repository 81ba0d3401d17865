//! Chooses how deep the core may idle: a limit of the exit latency of its idle states, by what waits cost with it.
//!
//! A deep idle state draws less power, but ends late. If the goal is tighter than its exit latency, a policy without
//! influence on the state can only poll or sleep too briefly for the state. With a limit (Linux,
//! Documentation/power/pm_qos_interface.rst: the resume latency of a device, here the CPU), blocks end in time.
//!
//! ```text
//!   each 50 ms:   present limit ──── what its waits cost, expected or paid ──────┐
//!                 other limits ───── what waits are expected to cost there ──────┴─► cheapest, twice in a row
//!                                    or what was paid there, for a while                      │
//!                                                         changes to it, learns there  ◄──────┘
//! ```
//!
//! **At first,** the deepest limit is taken whose exit latency is at most a quarter of the goal's latency less the reserve.
//!
//! **Expected costs.** What waits lead to is learned apart for each limit. For a limit that was not tried, the policy uses
//! what it knows of timed waits without a limit, of the lengths for which Linux chooses the limit's deepest state (Linux,
//! Documentation/admin-guide/pm/cpuidle.rst: no governor chooses a state whose target residency exceeds the time until
//! the next timer). If there were none, it uses what it knows of the next shallower limit, or else of the next deeper one,
//! and adds or subtracts the difference of the exit latencies. If the device has a hold-off that can be chosen, each other
//! limit is expected to have the one that suits it: a deep state may only pay if packets gather meanwhile. After a change of
//! the limit, another hold-off is tried soon ([`hold_off`](super::hold_off)).
//!
//! **Debt.** As long as late packets are owed ([`owed`](super::owed)), no deeper limit is tried.
//!
//! **Rest.** While the core is idle, there is no limit. The limit is also lifted in a silence of more than 1 ms, if the
//! deeper state should save more than the late packets cost that end the silence (`Adaptive::rests`). The first wait
//! after the silence has no limit yet.

use units::{Instant, Nanos};

use super::depth::{DEPTHS, Depth, IdleState, LIMITS};
use super::owed::Owed;
use super::paid::Paid;
use super::plan::{Expected, Expecting, Plan};
use super::prices::class;
use super::slower::SAME;

// All these numbers are estimates. They were chosen by what they gave in `apus sim goals`, on the draws of SPEC.md, S11,
// that were used to choose among versions.

/// The policy begins with the deepest limit whose exit latency is at most 1/`BEGINS` of the goal's latency less the reserve.
const BEGINS: u64 = 4;
/// Minimum time between two comparisons.
const LOOK: Nanos = Nanos::from_millis(50);
/// A comparison is made in steps of a few microseconds, at least this long apart, because a packet may wait meanwhile.
const STEP: Nanos = Nanos::from_micros(500);
/// Minimum number of waits that were learned between a change and the next comparison.
const LEARNS: u32 = 16;
/// Another limit must cost less than the present one by more than 1/`WORTHWHILE`.
const WORTHWHILE: u64 = 8;
/// If only CPU time is known, a shallower limit must reduce it by this factor: it always reduces the CPU time of
/// wake-ups, and what it adds to the power of the idle core is not known.
const UNKNOWN_POWER: u64 = 2;
/// After this many comparisons, what was paid counts if it is less than expected.
const SHOWS: u32 = 4;
/// After this many comparisons, what was paid counts also if it is much more than expected.
const JUDGED: u32 = 16;
/// After this many comparisons, what is paid is measured anew.
const WINDOW: u32 = 4 * JUDGED;
/// Upper limit of what was paid, in 2^-16 of a polling core.
const MOST_PAID: u64 = 1 << 24;
/// If the core was idle for longer than this, what is paid is measured anew.
const LONG_IDLE: Nanos = Nanos::from_secs(1);
/// Lower limit of the ratio of paid to expected cost, in 256ths.
const LEAST: u64 = SAME / 4;
/// What was paid with a limit is remembered for this many comparisons.
const REMEMBERED: u32 = 256;
/// A return to a limit that was left fewer comparisons ago doubles the time until the next change.
const SOON: u32 = 64;
/// The longest time until the next change, in comparisons.
const MOST_PATIENCE: u32 = 256;

/// What was known of a limit when it was left.
#[derive(Clone, Copy, Debug)]
struct Left {
    /// What was paid, relative to what had been expected, in 256ths.
    ratio: u64,
    /// The mean gap between packets at that time, in nanoseconds.
    gap: u64,
    /// Number of comparisons since.
    ago: u32,
}

impl Left {
    /// The ratio of paid to expected costs, if it says something of traffic with this mean gap.
    fn ratio(&self, gap: u64) -> Option<u64> {
        (self.ago < REMEMBERED && self.gap.abs_diff(gap) <= gap / 4).then_some(self.ratio)
    }
}

/// The limits, and the comparison of them.
#[derive(Debug)]
pub(super) struct Depths<C> {
    depths: [Option<Depth>; DEPTHS],
    left: [Option<Left>; DEPTHS],
    /// What was chosen for a core that is not idle.
    chosen: Depth,
    /// Whether the core was idle at the last call.
    idle: bool,
    /// When that last changed.
    idled_since: Option<Instant<C>>,
    /// Whether somebody else's limit is in force.
    refused: bool,
    /// The longest exit latency that was asked for last.
    asked: Nanos,
    /// When the last step of a comparison was made.
    looked: Option<Instant<C>>,
    /// For which limit costs are being computed, and how far. `None` between two comparisons.
    progress: Option<(usize, Expecting)>,
    /// What waits are expected to cost with each limit.
    expected: [Expected; DEPTHS],
    /// Number of comparisons since the last change, and when the first of them was made, with the totals then.
    looks: u32,
    since: Option<(Instant<C>, Paid)>,
    /// At the last comparison: number of waits that were learned, and number of waits with a forecast burst.
    waits: u32,
    foretold: u64,
    /// Number of waits that had been learned at the last change.
    learned: u32,
    /// The cheapest limit at the last comparison.
    cheapest: usize,
    /// Number of comparisons until a change is possible, and the number after the next change.
    wait: u32,
    patience: u32,
    /// Number of changes of `chosen`.
    changes: u32,
}

impl<C> Depths<C> {
    pub(super) const fn new() -> Self {
        Self {
            depths: [Some(Depth::NONE), None, None, None],
            left: [None; DEPTHS],
            chosen: Depth::NONE,
            idle: true,
            idled_since: None,
            refused: false,
            asked: Nanos::MAX,
            looked: None,
            progress: None,
            expected: [Expected::POLLS; DEPTHS],
            looks: 0,
            since: None,
            waits: 0,
            foretold: 0,
            learned: 0,
            cheapest: DEPTHS,
            wait: 0,
            patience: 0,
            changes: 0,
        }
    }

    /// Sets the idle states of the core. With the goal's latency less the reserve, `target` (in nanoseconds), chooses the
    /// limit to begin with.
    pub(super) fn know(&mut self, states: &[IdleState], target: u64) {
        let mut exits = [0; DEPTHS];
        exits[0] = states.iter().map(|state| state.exit.as_nanos()).max().unwrap_or(0);
        // Who polls needs no idle state, and the deepest one needs no limit.
        let next = |after: u64| {
            let longer =
                states.iter().map(|state| state.exit.as_nanos()).filter(|exit| (after + 1..exits[0]).contains(exit));
            longer.min()
        };
        let mut limits = [None; LIMITS];
        let mut before = 0;
        for limit in &mut limits {
            *limit = next(before);
            before = limit.unwrap_or(u64::MAX - 1);
        }
        exits[1..].iter_mut().zip(limits).for_each(|(exit, limit)| *exit = limit.unwrap_or(0));
        self.depths = [Some(Depth::new(0, (0, 0), exits)), None, None, None];
        for (number, limit) in (1..DEPTHS).zip(limits) {
            let of = |state: &&IdleState| limit.is_some_and(|limit| state.exit.as_nanos() <= limit);
            let (allowed, deeper) = (states.iter().filter(of), states.iter().filter(|state| !of(state)));
            let first = class(allowed.map(|state| state.residency.as_nanos()).max().unwrap_or(0));
            let end = class(deeper.map(|state| state.residency.as_nanos()).min().unwrap_or(0));
            self.depths[number] = limit.map(|_| Depth::new(number, (first, end.max(first)), exits));
        }
        let fits = |depth: &&Depth| depth.exit() <= target / BEGINS;
        let none = &self.depths[..1];
        let first = none.iter().chain(self.depths[1..].iter().rev()).flatten().find(fits);
        self.chosen = first.or(self.depths[1].as_ref()).or(self.depths[0].as_ref()).copied().unwrap_or(Depth::NONE);
    }

    /// Whether there is something to choose: at least one limit.
    fn chooses(&self) -> bool {
        self.depths[1].is_some()
    }

    /// Whether there is a limit now that can be lifted.
    #[inline]
    pub(super) fn is_limited(&self) -> bool {
        !self.idle && !self.refused && self.chosen.limit().is_some()
    }

    /// Whether [`Self::choose`] should be called now. `idle` says whether the core is idle.
    #[inline]
    pub(super) fn is_due(&self, now: Instant<C>, idle: bool) -> bool {
        let pause = if self.progress.is_some() { STEP } else { LOOK };
        let is_time = |looked: Instant<C>| now.since(looked).is_some_and(|since| since >= pause);
        self.chooses() && (idle != self.idle || self.looked.is_none_or(is_time))
    }

    /// Number of changes of the limit for a core that is not idle.
    pub(super) fn changes(&self) -> u32 {
        self.changes
    }

    /// Compares the limits, from time to time, and returns the one to have: the longest exit latency of the allowed
    /// states. `in_force` is the present one. An `idle` core has no limit.
    pub(super) fn choose(
        &mut self,
        now: Instant<C>,
        (idle, in_force): (bool, Nanos),
        plan: &mut Plan,
        owed: &Owed,
        totals: (Paid, u64),
    ) -> Nanos {
        if !self.chooses() {
            return in_force;
        }
        if in_force != self.asked {
            // Somebody else's, or ours was refused.
            self.chosen = self.allowed(in_force);
            (self.looks, self.since, self.learned) = (0, None, plan.learned());
            (self.wait, self.refused) = (MOST_PATIENCE, true);
            self.changes = self.changes.wrapping_add(1);
            return self.take(self.chosen, in_force, plan);
        }
        if idle != self.idle {
            let idled = self.idled_since.replace(now).filter(|_| !idle);
            if idled.is_some_and(|since| now.since(since).is_some_and(|idled| idled >= LONG_IDLE)) {
                (self.looks, self.since) = (0, None);
            }
            self.idle = idle;
            self.refused = false;
            let depth = if idle { self.none() } else { self.chosen };
            return self.take(depth, Nanos::from_nanos(depth.longest()), plan);
        }
        if !self.is_due(now, idle) {
            return in_force;
        }
        self.looked = Some(now);
        if idle || plan.learned().wrapping_sub(self.learned) < LEARNS {
            return in_force;
        }
        if !self.go_on(plan) {
            return in_force;
        }
        let best = self.compare(now, plan, owed, totals);
        if best == self.chosen {
            return in_force;
        }
        self.chosen = best;
        self.refused = false;
        (self.looks, self.since, self.learned) = (0, None, plan.learned());
        self.changes = self.changes.wrapping_add(1);
        self.take(best, Nanos::from_nanos(best.longest()), plan)
    }

    /// Computes a part of what waits are expected to cost with each limit. Returns whether all is known.
    fn go_on(&mut self, plan: &mut Plan) -> bool {
        let (number, so_far) = self.progress.get_or_insert((0, Expecting::NONE));
        if let Some(depth) = self.depths[*number]
            && let Some(expected) = plan.expect_with(depth, so_far)
        {
            self.expected[*number] = expected;
            (*number, *so_far) = (*number + 1, Expecting::NONE);
        }
        let is_last = self.depths.get(*number).is_none_or(Option::is_none);
        if is_last {
            self.progress = None;
        }
        is_last
    }

    /// How deep the core idles if no state with a longer exit latency than `most` is allowed: the deepest limit that
    /// allows no more, or the shallowest if each does.
    fn allowed(&self, most: Nanos) -> Depth {
        let most = most.as_nanos();
        let mut all = self.depths.iter().flatten();
        let none = *all.next().unwrap_or(&Depth::NONE);
        let shallowest = all.clone().next();
        if most >= none.exit() {
            return none;
        }
        all.rfind(|depth| depth.longest() <= most).or(shallowest).copied().unwrap_or(none)
    }

    /// The core's depth without a limit.
    fn none(&self) -> Depth {
        self.depths[0].unwrap_or(Depth::NONE)
    }

    /// The limit to have from now on.
    fn compare(&mut self, now: Instant<C>, plan: &Plan, owed: &Owed, (total, foretold): (Paid, u64)) -> Depth {
        let (present, gap) = (plan.depth(), plan.mean_gap());
        self.left.iter_mut().flatten().for_each(|left| left.ago = left.ago.saturating_add(1));
        self.looks = self.looks.saturating_add(1);
        self.wait = self.wait.saturating_sub(1);
        // The time before the first comparison began with waits of before the change.
        let (since, then) = *self.since.get_or_insert((now, total));
        // Most bursts are forecast.
        let waits = u64::from(plan.learned().wrapping_sub(self.waits));
        let forecasts = 2 * (foretold - core::mem::replace(&mut self.foretold, foretold)) > waits;
        self.waits = plan.learned();
        let looks = self.looks;
        if looks <= SHOWS {
            return present;
        }
        let span = now.since(since).unwrap_or(Nanos::ZERO);
        let (_, paid) = total.since(then, span, owed.each(gap));
        let paid = paid.min(MOST_PAID);
        if self.looks >= WINDOW {
            // What comes next may be other traffic.
            (self.looks, self.since) = (0, None);
        }
        let of_present = self.expected[present.number()];
        // Until a hold-off with which this limit was chosen is in force, what is paid says nothing.
        let gathers = looks <= JUDGED && of_present.best.costs < of_present.present.costs;
        let expected = if gathers { of_present.best.costs } else { of_present.present.costs };
        let weighs = plan.weighs_idle();
        // What was paid may be less, because of forecasts, or because arrivals depend on each other.
        let is_judged = paid < expected || looks > JUDGED && paid > expected + expected / 4;
        let here = if is_judged { paid } else { expected };
        let ratio = (here * SAME / expected.max(1)).max(LEAST);
        // What costs more than expected here may do so elsewhere.
        let ratios = self.left.iter().flatten().filter_map(|left| left.ratio(gap));
        let wrong = ratios.chain([ratio, SAME]).max().unwrap_or(SAME);
        let cost_with = |depth: Depth| {
            let prospect = self.expected[depth.number()].best;
            let cost = match self.left[depth.number()].as_ref().and_then(|left| left.ratio(gap)) {
                _ if depth == present => here,
                Some(ratio) => prospect.costs * ratio / SAME,
                // Waits for forecast bursts end in time with any limit.
                None if forecasts => prospect.free,
                None => prospect.costs * wrong / SAME,
            };
            (depth, cost.min(1 << 16))
        };
        // From the deepest to the shallowest.
        let mut all = self.depths[..1].iter().chain(self.depths[1..].iter().rev()).flatten();
        let mut best = cost_with(*all.next().unwrap_or(&Depth::NONE));
        let factor = if weighs { 1 } else { UNKNOWN_POWER };
        for other in all.map(|depth| cost_with(*depth)) {
            if other.1 * factor < best.1 {
                best = other;
            }
        }
        let before = core::mem::replace(&mut self.cheapest, best.0.number());
        let worth = if best.0.is_shallower(present) { best.1 * factor } else { best.1 / factor };
        if best.0 == present || before != best.0.number() || self.wait > 0 || worth + here / WORTHWHILE >= here {
            return present;
        }
        // While the policy polls to make up for late packets, every other limit looks cheap. A trial of a deeper one may
        // make more packets late.
        if !best.0.is_shallower(present) && owed.multiplier() > 0 {
            return present;
        }
        self.left[present.number()] = Some(Left { ratio, gap, ago: 0 });
        let returns = self.left[best.0.number()].is_some_and(|left| left.ago < SOON);
        self.patience = if returns { (2 * self.patience).clamp(1, MOST_PATIENCE) } else { self.patience / 2 };
        self.wait = self.patience;
        best.0
    }

    /// Another frequency was requested: what was paid before says nothing of it.
    pub(super) fn frequency_changed(&mut self) {
        (self.looks, self.since, self.progress) = (0, None, None);
    }

    /// From now on, the core idles that deep. Returns `asked`, the longest exit latency that allows it.
    fn take(&mut self, depth: Depth, asked: Nanos, plan: &mut Plan) -> Nanos {
        if depth != plan.depth() {
            plan.set_depth(depth);
        }
        self.asked = asked;
        asked
    }
}

impl<C> Clone for Depths<C> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<C> Copy for Depths<C> {}

#[cfg(test)]
mod tests {
    use super::super::choice::BLOCK;
    use super::super::{Adaptive, AdaptiveConfig};
    use super::*;
    use crate::wait::{Action, Arrivals, Ended, Observation, Queue, WaitPolicy as _};
    use units::Simulated;

    type At = Instant<Simulated>;

    const fn state(exit_us: u64, residency_us: u64) -> IdleState {
        IdleState { exit: Nanos::from_micros(exit_us), residency: Nanos::from_micros(residency_us) }
    }

    /// POLL, C1, C1E and C6 of a server CPU (Linux, drivers/idle/intel_idle.c, `skx_cstates`).
    const SERVER: [IdleState; 4] = [state(0, 0), state(2, 2), state(10, 20), state(133, 600)];
    /// What the core draws in each state, in hundredths of what it draws when it polls. Made up.
    const DRAWS: [u64; 4] = [100, 50, 40, 5];

    fn us(micros: u64) -> Nanos {
        Nanos::from_micros(micros)
    }

    /// A core that receives packets from one queue, and enters the deepest allowed state whose residency is at most the
    /// time until its next timer.
    struct World {
        policy: Adaptive<Simulated>,
        now: At,
        /// The limit in force, and whether the core takes the limits that the policy wants.
        limit: Nanos,
        takes: bool,
        /// Whether the policy is told what the idle states draw.
        weighs: bool,
        asked: u32,
        packets: u64,
        late: u64,
        polled: Nanos,
        random: u64,
    }

    impl World {
        fn new(goal: &str) -> Self {
            let config = AdaptiveConfig { goal: goal.parse().ok(), ..AdaptiveConfig::default() };
            let mut policy = Adaptive::new(config);
            policy.know_idle_states(&SERVER);
            let now = At::from_nanos(1_000_000);
            let counts = (0, 0, 0);
            let (asked, packets, late) = counts;
            let random = 0x2545_F491_4F6C_DD1D;
            let (limit, polled) = (Nanos::MAX, Nanos::ZERO);
            Self { policy, now, limit, takes: true, weighs: true, asked, packets, late, polled, random }
        }

        /// Gaps between 0 and twice the mean.
        fn gap(&mut self, mean: Nanos) -> Nanos {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            Nanos::from_nanos(1 + self.random % (2 * mean.as_nanos()))
        }

        fn idles(&self, timer: Nanos) -> usize {
            let fits = |state: &IdleState| state.residency <= timer && state.exit <= self.limit;
            SERVER.iter().rposition(fits).unwrap_or(0)
        }

        fn limits(&mut self) {
            if self.policy.limit_idle_is_due(self.now) {
                let wanted = self.policy.limit_idle(self.now, self.limit);
                if wanted != self.limit {
                    self.asked += 1;
                    self.limit = if self.takes { wanted } else { self.limit };
                }
            }
        }

        /// Runs until a packet that arrives at `arrival` is served.
        fn serve(&mut self, arrival: At, goal: Nanos) {
            let mut ended = None;
            loop {
                self.limits();
                let came = self.now >= arrival;
                let picked_up = self.now;
                self.now = self.now + Nanos::from_nanos(if came { 2_000 } else { 200 });
                let arrivals = came.then(|| Arrivals::stamped(arrival, arrival, picked_up));
                let queues = [Queue { received: u32::from(came), fill: u32::from(came), arrivals }];
                let action = self.policy.decide(&Observation { now: self.now, queues: &queues, ended }).action;
                ended = None;
                if came {
                    self.packets += 1;
                    self.late += u64::from(self.now.since(arrival).unwrap() > goal);
                }
                let health = self.now + Nanos::from_millis(100);
                let (until, by_device) = match action {
                    Action::Poll => {
                        if !came {
                            // The polls until the packet arrives, at most for 10 us.
                            let next = arrival.min(self.now + us(10));
                            self.polled += next.since(self.now).unwrap_or(Nanos::ZERO);
                            self.now = self.now.max(next);
                        }
                        if came {
                            return;
                        }
                        continue;
                    }
                    Action::Pause(span) => (self.now + span, None),
                    Action::SleepUntil(until) => (until.min(health), None),
                    Action::BlockUntil(until) => {
                        let until = until.unwrap_or(health).min(health);
                        (until, (!came && arrival < until).then_some(arrival.max(self.now)))
                    }
                };
                if came {
                    // The wait after this packet is that before the next one, which is not known here: the next call
                    // decides again.
                    return;
                }
                let began = self.now;
                let index = self.idles(until.since(began).unwrap_or(Nanos::ZERO));
                let due = by_device.unwrap_or(until);
                let lasted = due.since(began).unwrap_or(Nanos::ZERO);
                let (exit, draws) = (SERVER[index].exit, DRAWS[index]);
                self.now = due + exit + us(3);
                // CPU time does not include the exit from the idle state.
                let (idle, spent) = match self.weighs {
                    true => (lasted.scale(draws, 100), lasted.scale(draws, 100) + exit + us(3)),
                    false => (Nanos::ZERO, us(6)),
                };
                ended = Some(Ended { action, began, ended: self.now, spent: Some(spent), idle });
            }
        }

        fn run(&mut self, time: Nanos, mean: Nanos, goal: Nanos) {
            let end = self.now + time;
            while self.now < end {
                let gap = self.gap(mean);
                self.serve(self.now + gap, goal);
            }
        }
    }

    #[test]
    fn limits_are_the_exit_latencies_that_differ() {
        let exits = |states: &[IdleState]| {
            let mut depths = Depths::<Simulated>::new();
            depths.know(states, 50_000);
            (depths.depths.map(|depth| depth.map(|depth| depth.exit() / 1_000)), depths.chosen.number())
        };
        assert_eq!(exits(&SERVER), ([Some(133), Some(2), Some(10), None], 2), "10 us are less than a quarter of 50 us");
        // Whatever the order, and however many there are.
        let odd = [0, 10, 20, 5, 30, 20, 25].map(|exit| state(exit, exit));
        assert_eq!(exits(&odd).0, [Some(30), Some(5), Some(10), Some(20)]);
        for few in [&SERVER[..1], &SERVER[..2], &SERVER[3..], &[]] {
            let (depths, chosen) = exits(few);
            assert_eq!((&depths[1..], chosen), (&[None; 3][..], 0), "{few:?}");
        }
    }

    #[test]
    fn the_deepest_state_that_the_goal_bears_is_allowed() {
        // With C6, each packet would be late.
        let mut tight = World::new("p99.9=50us");
        tight.run(Nanos::from_secs(4), us(300), us(50));
        assert_eq!(tight.limit, us(10));
        assert!(tight.late * 1_000 <= tight.packets, "{} of {}", tight.late, tight.packets);
        assert!(tight.polled < Nanos::from_millis(400), "{}", tight.polled);
        let mut loose = World::new("p99.9=500us");
        loose.run(Nanos::from_secs(4), us(300), us(500));
        assert_eq!((loose.limit, loose.late), (Nanos::MAX, 0));
        assert!(loose.policy.idle_limit_changes() <= 2, "{}", loose.policy.idle_limit_changes());
    }

    #[test]
    fn a_limit_must_halve_the_cpu_time_if_nothing_else_is_known() {
        for (goal, of, limit) in [("p99.9=500us", us(500), Nanos::MAX), ("p99.9=50us", us(50), us(10))] {
            let mut world = World { weighs: false, ..World::new(goal) };
            world.run(Nanos::from_secs(4), us(300), of);
            assert_eq!(world.limit, limit, "{goal}");
        }
    }

    #[test]
    fn an_idle_core_has_no_limit() {
        let mut world = World::new("p99.9=50us");
        world.run(Nanos::from_secs(2), us(300), us(50));
        assert_eq!(world.limit, us(10));
        let next = world.now + Nanos::from_millis(700);
        while world.now < next.before(Nanos::from_millis(150)).unwrap() {
            // Nothing comes: each call ends with the health check of a block.
            let until = world.now + Nanos::from_millis(100);
            world.limits();
            let queues = [Queue { received: 0, fill: 0, arrivals: None }];
            let action = world.policy.decide(&Observation { now: world.now, queues: &queues, ended: None }).action;
            assert!(matches!(action, Action::BlockUntil(_) | Action::Poll), "{action:?}");
            world.now = if action == Action::Poll { world.now + us(1) } else { until };
        }
        assert_eq!(world.limit, Nanos::MAX);
        world.run(Nanos::from_millis(20), us(300), us(50));
        assert_eq!(world.limit, us(10), "the first packets bring it back");
    }

    /// The wait after the first packet of each burst begins without a limit, and ends when there is one.
    #[test]
    fn a_wait_is_learned_with_the_limit_with_which_it_began() {
        let mut world = World::new("p99.9=50us");
        let queues = |arrivals: Option<Arrivals<Simulated>>| {
            let frames = if arrivals.is_some() { 32 } else { 0 };
            [Queue { received: frames, fill: frames, arrivals }]
        };
        for _ in 0..200 {
            // Nothing comes for 300 ms.
            for _ in 0..3 {
                world.limits();
                world.policy.decide(&Observation { now: world.now, queues: &queues(None), ended: None });
                world.now = world.now + Nanos::from_millis(100);
            }
            assert_eq!(world.limit, Nanos::MAX);
            // Packets, and others 200 us later, which wake the core from C6.
            let now = world.now;
            let first = queues(Some(Arrivals::stamped(now, now, now)));
            world.policy.decide(&Observation { now: now + us(2), queues: &first, ended: None });
            world.policy.choose(BLOCK, 0, 200_000);
            let (came, woken, action) = (now + us(200), now + us(340), Action::BlockUntil(None));
            let ended = Some(Ended { action, began: now + us(3), ended: woken, spent: None, idle: us(10) });
            world.now = woken;
            world.limits();
            let second = queues(Some(Arrivals::stamped(came, came, woken)));
            world.policy.decide(&Observation { now: woken + us(2), queues: &second, ended });
        }
        assert_ne!(world.policy.plan.depth().number(), 0);
        let deep = *world.policy.depths.depths[0].as_ref().unwrap();
        let with_a_limit = world.policy.plan.known_block_lateness();
        world.policy.plan.set_depth(deep);
        let without = world.policy.plan.known_block_lateness();
        assert!(without > us(130) && with_a_limit < us(30), "{without} {with_a_limit}");
    }

    /// Without interrupts, the core sleeps while no frames come, also without a limit.
    #[test]
    fn an_idle_core_without_interrupts_has_no_limit() {
        let config = AdaptiveConfig { goal: "p99.9=50us".parse().ok(), interrupts: false, ..AdaptiveConfig::default() };
        let mut world = World::new("p99.9=50us");
        world.policy = Adaptive::new(config);
        world.policy.know_idle_states(&SERVER);
        world.run(Nanos::from_millis(500), us(300), us(50));
        assert_ne!(world.limit, Nanos::MAX);
        for _ in 0..200 {
            world.limits();
            let queues = [Queue { received: 0, fill: 0, arrivals: None }];
            world.policy.decide(&Observation { now: world.now, queues: &queues, ended: None });
            world.now = world.now + Nanos::from_millis(1);
        }
        assert_eq!(world.limit, Nanos::MAX);
    }

    #[test]
    fn a_machine_that_refuses_is_seldom_asked_again() {
        let mut world = World { takes: false, ..World::new("p99.9=50us") };
        world.run(Nanos::from_secs(10), us(300), us(50));
        assert!((1..=3).contains(&world.asked), "{}", world.asked);
        assert_eq!(world.policy.plan.depth().number(), 0, "what is learned is learned of the deep state");
        assert!(world.late * 500 <= world.packets, "{} of {}", world.late, world.packets);
    }

    #[test]
    fn what_was_not_tried_is_expected_from_its_neighbours() {
        let mut world = World::new("p99.9=50us");
        world.run(Nanos::from_secs(1), us(300), us(50));
        let depths = world.policy.depths.depths.map(|depth| depth.unwrap_or(Depth::NONE));
        let [deep, shallow, present] = [0, 1, 2].map(|number| expected(&mut world, depths[number]).best);
        assert!(deep.costs > 60_000, "133 us instead of 10 us: {deep:?}");
        assert!(deep.free < present.free, "but the state would draw less: {deep:?} {present:?}");
        assert_eq!(shallow.costs, shallow.free, "no packet would be late");
        assert_eq!(world.policy.plan.depth(), depths[2], "nothing has changed");
    }

    /// What waits are expected to cost with a limit.
    fn expected(world: &mut World, depth: Depth) -> Expected {
        let mut so_far = Expecting::NONE;
        loop {
            if let Some(expected) = world.policy.plan.expect_with(depth, &mut so_far) {
                return expected;
            }
        }
    }

    /// Packets 60 us apart end each block before C6 saves what its exit costs. With a hold-off it lasts longer.
    #[test]
    fn a_limit_is_compared_with_the_hold_off_that_suits_it() {
        let mut world = World::new("p99.9=500us");
        world.run(Nanos::from_secs(1), us(60), us(500));
        let deep = world.policy.depths.none();
        let Expected { present, best } = expected(&mut world, deep);
        assert_eq!(best, present, "no device has a hold-off");
        world.policy.hold_off(world.now, Nanos::ZERO);
        let with = expected(&mut world, deep);
        assert_eq!(with.present, present);
        assert!(with.best.costs < present.costs * 3 / 4, "{with:?}");
    }
}
