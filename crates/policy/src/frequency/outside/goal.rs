//! Chooses the lowest frequency at which the core is not too busy and not too many packets are late.
//!
//! ```text
//!   HIGHEST ── a window has shown the need ──► NEEDED
//!                                               │ ▲
//!     all windows within the hold time need     │ │
//!     less, and the late packets can be paid    └─┘  [less_load, idle]
//!     for                                       ▲ │
//!     at once: busy all the time [saturated],   │ │
//!     too many late packets [late], unsure      └─┘  to the highest
//!     after a window: more work      [load]     ──►  to what is needed
//! ```
//! **Need.** Useful work takes `occupancy x frequency` cycles per second. A frequency suffices if useful work takes no
//! larger share of its cycles than the busyness goal allows. If a core is busy all the time, it is unknown how much
//! more it needs, so it gets the highest frequency.
//!
//! **Late packets.** If late packets are counted, the policy adapts the busyness goal: it raises the goal step by step
//! while packets are in time, and lowers it when they are late. Late packets are charged to an account, as in the
//! policy inside the loop ([`GoalFrequency`](crate::frequency::GoalFrequency)). Every packet adds the fraction of a
//! packet that the latency goal allows to be late. A lower frequency is tried only if the balance could pay twice for
//! the late packets of the last trial. Packets that are late at the highest frequency are not charged, because no
//! frequency helps them.
//!
//! **Changes.** A lower frequency is requested only if it would have sufficed in all windows of the hold time. If the
//! frequency has to rise again within the hold time, the hold time doubles. Changes are far enough apart that their
//! stalls do not matter ([`Transition::patience`]), and the frequency is lowered only if that pays off within the hold
//! time ([`Transition::worth_after`]).

use units::{Hertz, Instant, Nanos};

use super::{Decision, ONE, Occupancy, OutsidePolicy, Reason, Sample, Transition, scale};
use crate::Goal as Latency;
use crate::frequency::PStates;

/// The lowest busyness goal, in ppm.
pub const LOWEST_BUSY_PPM: u32 = 100_000;
/// The highest busyness goal, in ppm. Above it, even small bursts would make the queues grow without bound.
pub const HIGHEST_BUSY_PPM: u32 = 950_000;

/// Length of a window: ten samples.
const WINDOW: Nanos = Nanos::from_millis(100);
/// A core that is busy for at least this share of a span, in ppm, counts as busy all the time.
const SATURATED: u32 = 980_000;
/// Like [`SATURATED`], for a core that was nearly idle before, or has late packets. The limit is lower because work on
/// an unfinished packet is not counted yet.
const SATURATED_IF_LATE: u32 = 900_000;
/// Minimum number of consecutive spans, busy all the time, that count as a higher load. A single one may be a burst.
/// Does not apply if the core was nearly idle before.
const SATURATED_SPANS: u32 = 2;
/// Like [`SATURATED_SPANS`], while packets are measured and none is late: with few packets per second, a burst lasts
/// for several spans.
const SATURATED_SPANS_IN_TIME: u32 = 10;
/// The frequency rises only if the busyness exceeds its goal by more than this, in ppm. Otherwise noise would make the
/// frequency oscillate.
const MARGIN: u32 = 40_000;
/// The shortest hold time. The longest is `LONGEST_HOLD`.
const SHORTEST_HOLD: Nanos = Nanos::from_millis(300);
const LONGEST_HOLD: Nanos = Nanos::from_secs(4);
/// A lower frequency counts as confirmed after this many hold times.
const LASTED: u64 = 10;
/// Number of windows that are remembered: enough for the longest hold time.
const MEMORY: usize = 40;
/// Maximum initial busyness goal if there is a latency goal, in ppm. The busyness goal then rises in steps of `BUSY_UP`
/// to at most `MOST_BUSY`, and falls in steps of `BUSY_DOWN`.
const FIRST_BUSY: u32 = 700_000;
const BUSY_UP: u32 = 20_000;
const BUSY_DOWN: u32 = 100_000;
const MOST_BUSY: u32 = 920_000;
/// The busyness goal is judged once the latency goal allows this many of the packets to be late, or after
/// `JUDGED_AFTER`.
const ENOUGH_LATE: u64 = 8;
const JUDGED_AFTER: Nanos = Nanos::from_secs(2);
/// Upper limit of the account's balance, in late packets. If twice the cost of the last trial is more, that is the
/// limit.
const MOST_LATE: i64 = 256;

/// Settings of a [`Goal`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GoalConfig {
    /// The frequencies that can be requested.
    pub pstates: PStates,
    /// How long a frequency change takes.
    pub transition: Transition,
    /// The busyness goal: the highest share of time, in ppm, that the core may spend on useful work. If late packets
    /// are counted, this is only the initial value.
    pub busy_ppm: u32,
    /// The latency goal. `None`: the policy ignores late packets.
    pub latency: Option<Latency>,
}

/// The policy that this [module](self) describes.
#[derive(Clone, Debug)]
pub struct Goal<C> {
    config: GoalConfig,
    /// The present busyness goal, in ppm.
    busy_ppm: u32,
    requested: Hertz,
    /// The highest frequency that the machine allows now.
    ceiling: Hertz,
    window: Window,
    /// The frequencies that the last windows needed, in hertz, most recent window first.
    needs: [u64; MEMORY],
    windows: usize,
    /// Number of consecutive spans in which the core was busy all the time.
    saturated: u32,
    changed: Option<Instant<C>>,
    /// When the frequency last fell.
    fell: Option<Instant<C>>,
    hold: Nanos,
    account: Account,
    /// The highest frequency that was too low for the load when it was tried.
    failed: Option<Hertz>,
    judged: Judged,
    /// When the busyness goal was last lowered.
    lowered: Option<Instant<C>>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Window {
    span: Nanos,
    /// Cycles that the core spent on useful work in this window.
    cycles: u64,
}

/// Packets since the busyness goal was last judged, at frequencies below the highest.
#[derive(Clone, Copy, Default, Debug)]
struct Judged {
    span: Nanos,
    packets: u64,
    late: u64,
}

/// Late packets that the goal has allowed so far, minus those that occurred. One packet counts as 1,000,000.
#[derive(Clone, Copy, Default, Debug)]
struct Account {
    balance: i64,
    /// How far the balance has fallen since the last trial. `worst` is the largest value that this reached.
    fallen: i64,
    worst: i64,
}

impl<C> Goal<C> {
    /// Creates a policy that starts at the highest frequency.
    pub fn new(config: GoalConfig) -> Self {
        let highest = config.pstates.highest();
        let first = if config.latency.is_some() { config.busy_ppm.min(FIRST_BUSY) } else { config.busy_ppm };
        Self {
            config,
            busy_ppm: first.clamp(LOWEST_BUSY_PPM, HIGHEST_BUSY_PPM),
            requested: highest,
            ceiling: highest,
            window: Window::default(),
            needs: [0; MEMORY],
            windows: 0,
            saturated: 0,
            changed: None,
            fell: None,
            hold: SHORTEST_HOLD,
            account: Account::default(),
            failed: None,
            judged: Judged::default(),
            lowered: None,
        }
    }

    /// The present busyness goal, in ppm.
    pub fn busy_ppm(&self) -> u32 {
        self.busy_ppm
    }

    /// The hold time: for how long a lower frequency must have been sufficient before the policy requests it.
    pub fn hold(&self) -> Nanos {
        self.hold
    }

    /// The highest frequency that the machine allows.
    fn highest(&self) -> Hertz {
        self.config.pstates.highest().min(self.ceiling)
    }

    /// The requested frequency, limited to what the machine allows.
    fn granted_now(&self) -> Hertz {
        self.requested.min(self.highest())
    }

    fn allowed_ppm(&self) -> Option<u64> {
        self.config.latency.map(|goal| u64::from(goal.quantile.above_ppm()))
    }

    /// Charges late packets to the account. Returns whether packets were late below the highest frequency and the
    /// account is overdrawn.
    fn count_late(&mut self, sample: &Sample<C>) -> bool {
        let (Some(late), Some(allowed)) = (sample.late, self.allowed_ppm()) else { return false };
        // Right after a rise, late packets are the backlog from the lower frequency.
        let since_change = self.changed.and_then(|at| sample.now.since(at));
        let backlog = since_change.is_some_and(|since| since < WINDOW);
        let below = sample.running < self.highest();
        self.account.packets(late.judged, if below || backlog { late.late } else { 0 }, allowed);
        // A backlog shows that the load has risen, not that the core was too busy before.
        if backlog {
            return below && late.late > 0 && self.account.balance < 0;
        }
        self.judged.span += sample.span;
        if !below {
            // Nothing is learned here. What was learned before is forgotten once the account could pay for another
            // trial.
            if self.judged.span >= JUDGED_AFTER && self.account.can_fail() {
                let first = self.config.busy_ppm.min(FIRST_BUSY);
                self.busy_ppm = self.busy_ppm.max((self.busy_ppm + BUSY_UP).min(first));
                self.judged = Judged::default();
            }
            return false;
        }
        self.judged.packets = self.judged.packets.saturating_add(late.judged);
        self.judged.late = self.judged.late.saturating_add(late.late);
        let Judged { span, packets, late: all_late } = self.judged;
        let would_allow = scale(packets, allowed, u64::from(ONE));
        if all_late > would_allow.max(ENOUGH_LATE) {
            // A queue stays late for some time, but this has only one cause: lower the goal only once.
            if self.lowered.and_then(|at| sample.now.since(at)).is_none_or(|since| since >= JUDGED_AFTER) {
                self.busy_ppm = self.busy_ppm.saturating_sub(BUSY_DOWN).max(LOWEST_BUSY_PPM);
                self.lowered = Some(sample.now);
            }
            self.judged = Judged::default();
        } else if would_allow >= ENOUGH_LATE || span >= JUDGED_AFTER {
            if all_late <= would_allow / 2 {
                self.busy_ppm = (self.busy_ppm + BUSY_UP).min(MOST_BUSY);
            }
            self.judged = Judged::default();
        }
        late.late > 0 && self.account.balance < 0
    }

    /// The lowest frequency that suffices for `need` cycles of useful work per second.
    fn suffices(&self, need: u64) -> Hertz {
        let wanted = Hertz::new(scale(need, u64::from(ONE), u64::from(self.busy_ppm)));
        self.config.pstates.at_least(wanted).unwrap_or(self.config.pstates.highest()).min(self.highest())
    }

    /// Requests another frequency at once, usually a higher one, without waiting for the end of the window.
    fn rise(&mut self, now: Instant<C>, wanted: Hertz, reason: Reason) -> Decision {
        if wanted <= self.granted_now() {
            return Decision::keep(reason);
        }
        // With a latency goal, a lower frequency whose late packets cannot be paid for twice was wrong even if it
        // lasted for a while. The longer hold time then remembers the need of a load that comes and goes.
        if let Some(since) = self.fell.take().and_then(|fell| now.since(fell))
            && (since < self.hold || since < LONGEST_HOLD && self.config.latency.is_some() && !self.account.can_fail())
        {
            self.hold = (self.hold * 2).min(LONGEST_HOLD);
        }
        if matches!(reason, Reason::Saturated | Reason::Late) {
            let failed = self.granted_now();
            self.failed = Some(self.failed.map_or(failed, |known| known.max(failed)));
        }
        self.request(now, wanted, reason)
    }

    fn request(&mut self, now: Instant<C>, wanted: Hertz, reason: Reason) -> Decision {
        self.requested = wanted;
        self.changed = Some(now);
        self.window = Window::default();
        self.saturated = 0;
        Decision { request: Some(wanted), reason }
    }

    /// Decides at the end of a window.
    fn decide_window(&mut self, now: Instant<C>) -> Decision {
        let Window { span, cycles } = core::mem::take(&mut self.window);
        let need = scale(cycles, 1_000_000_000, span.as_nanos());
        self.needs.rotate_right(1);
        self.needs[0] = need;
        self.windows = (self.windows + 1).min(MEMORY);
        let requested = self.granted_now();
        let busy = scale(need, u64::from(ONE), requested.as_hertz().max(1));
        if busy > u64::from((self.busy_ppm + MARGIN).min(SATURATED)) {
            let wanted = self.suffices(need);
            return self.rise(now, wanted, if wanted == requested { Reason::Steady } else { Reason::Load });
        }
        // Once a lower frequency has lasted for long, the next step down needs a shorter hold time.
        if let Some(fell) = self.fell
            && now.since(fell).is_some_and(|since| since >= self.hold * LASTED)
        {
            self.fell = None;
            self.hold = (self.hold / 2).max(SHORTEST_HOLD);
        }
        let windows = (self.hold.as_nanos().div_ceil(WINDOW.as_nanos()) as usize).min(MEMORY);
        if self.windows < windows {
            return Decision::keep(Reason::Measuring);
        }
        let most = self.needs[..windows].iter().copied().max().unwrap_or(need);
        let wanted = self.suffices(most);
        if wanted >= requested {
            return Decision::keep(Reason::Steady);
        }
        let quantile = self.config.latency.map(|goal| goal.quantile);
        let since = self.changed.and_then(|at| now.since(at)).unwrap_or(Nanos::MAX);
        // A rise to the highest frequency happens when the need is unknown. It is known soon after, and the needs
        // within the hold time are remembered.
        let least = if requested == self.highest() { SHORTEST_HOLD } else { self.hold };
        if since < least.max(self.config.transition.patience(quantile)) {
            return Decision::keep(Reason::Measuring);
        }
        let worth_after = self.config.transition.worth_after(requested, wanted);
        if since < worth_after {
            return Decision::keep(Reason::NotWorthIt);
        }
        // A frequency that failed before is tried again when the account can pay for it; any other when the balance is
        // not negative.
        let is_trial = self.failed.is_none_or(|failed| wanted <= failed);
        let can_pay = if is_trial { self.account.can_fail() } else { self.account.balance >= 0 };
        if self.config.latency.is_some() && !can_pay {
            return Decision::keep(Reason::Late);
        }
        if is_trial {
            self.account.begin_trial();
            self.failed = None;
        }
        self.fell = Some(now);
        self.request(now, wanted, if most == 0 { Reason::Idle } else { Reason::LessLoad })
    }
}

impl<C> OutsidePolicy<C> for Goal<C> {
    fn requested(&self) -> Hertz {
        self.granted_now()
    }

    fn decide(&mut self, sample: &Sample<C>) -> Decision {
        let highest = self.highest();
        let share = match sample.occupancy {
            Occupancy::Share(share) => share.min(ONE),
            Occupancy::Unsure(_) => {
                self.windows = 0;
                self.window = Window::default();
                return self.rise(sample.now, highest, Reason::Unsure);
            }
        };
        if self.count_late(sample) {
            return self.rise(sample.now, highest, Reason::Late);
        }
        let span = sample.span.as_nanos();
        let useful = scale(scale(sample.running.as_hertz(), u64::from(share), u64::from(ONE)), span, 1_000_000_000);
        self.window.span += sample.span;
        self.window.cycles = self.window.cycles.saturating_add(useful);
        let is_late = sample.late.is_some_and(|late| late.late > 0);
        let least = if is_late { SATURATED_IF_LATE } else { SATURATED };
        self.saturated = if share >= least { self.saturated + 1 } else { 0 };
        // A load that starts on an idle core is not a burst of a known load.
        let was_idle = self.windows > 0 && self.needs[0].saturating_mul(4) < self.granted_now().as_hertz();
        let in_time = self.config.latency.is_some() && sample.late.is_some() && !is_late;
        let enough = if in_time { SATURATED_SPANS_IN_TIME } else { SATURATED_SPANS };
        if self.saturated >= enough || (was_idle && share >= SATURATED_IF_LATE) {
            let at_highest = sample.running >= highest;
            let too_tight = at_highest && self.config.latency.is_some();
            let reason = if too_tight { Reason::GoalTooTight } else { Reason::Saturated };
            if self.granted_now() < highest {
                return self.rise(sample.now, highest, reason);
            }
        }
        if self.window.span >= WINDOW { self.decide_window(sample.now) } else { Decision::keep(Reason::Measuring) }
    }

    fn granted(&mut self, _: Instant<C>, ceiling: Hertz) {
        // The machine does not allow the frequency above its limit now. The request remains, and takes effect when the
        // limit is lifted.
        self.ceiling = ceiling;
    }
}

impl Account {
    fn packets(&mut self, packets: u64, late: u64, allowed_ppm: u64) {
        let earned = i64::try_from(packets.saturating_mul(allowed_ppm)).unwrap_or(i64::MAX);
        let cost = i64::try_from(late).unwrap_or(i64::MAX).saturating_mul(1_000_000);
        let most = self.price().max(MOST_LATE * 1_000_000);
        self.balance = self.balance.saturating_add(earned).min(most).saturating_sub(cost);
        self.fallen = self.fallen.saturating_add(cost).saturating_sub(earned).max(0);
        self.worst = self.worst.max(self.fallen);
    }

    /// The balance needed for another trial: twice the cost of the last one.
    fn price(&self) -> i64 {
        self.worst.saturating_mul(2)
    }

    fn can_fail(&self) -> bool {
        self.balance >= self.price()
    }

    fn begin_trial(&mut self) {
        (self.fallen, self.worst) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frequency::outside::tests::{MS, mhz, pstates, sample};
    use crate::frequency::outside::{Late, Unsure};
    use units::Simulated;

    fn policy(latency: Option<&str>) -> Goal<Simulated> {
        let latency = latency.map(|text| text.parse().unwrap());
        let transition = Transition::default();
        Goal::new(GoalConfig { pstates: pstates(), transition, busy_ppm: 800_000, latency })
    }

    /// Runs work of `need` MHz from `from_ms` to `to_ms`. Returns the requests with their times in ms.
    fn work(policy: &mut Goal<Simulated>, from_ms: u64, to_ms: u64, need: u64) -> std::vec::Vec<(u64, u64, Reason)> {
        let mut requests = std::vec::Vec::new();
        for at in (from_ms + 10..=to_ms).step_by(10) {
            let running = OutsidePolicy::requested(policy);
            let share = scale(need * 1_000_000, u64::from(ONE), running.as_hertz()).min(u64::from(ONE)) as u32;
            let decision = policy.decide(&sample(at, running, share));
            if let Some(frequency) = decision.request {
                requests.push((at, frequency.as_hertz() / 1_000_000, decision.reason));
            }
        }
        requests
    }

    extern crate std;
    use std::vec;

    #[test]
    fn the_lowest_frequency_that_is_not_too_busy() {
        let mut policy = policy(None);
        assert_eq!(
            work(&mut policy, 0, 1_000, 1_000),
            vec![(300, 1_800, Reason::LessLoad)],
            "1 GHz is 56 % of 1.8 GHz"
        );
        assert_eq!(work(&mut policy, 1_000, 3_000, 0), vec![(1_300, 800, Reason::Idle)]);
        // Busy all the time: after one span, as the core was idle before; then what it needs.
        let up = work(&mut policy, 3_000, 5_000, 2_000);
        assert_eq!(up, vec![(3_010, 3_000, Reason::Saturated), (up[1].0, 2_600, Reason::LessLoad)]);
    }

    #[test]
    fn a_little_more_work_goes_up_by_what_it_needs() {
        let mut policy = policy(None);
        work(&mut policy, 0, 1_000, 600);
        assert_eq!(policy.requested, mhz(800));
        assert_eq!(work(&mut policy, 1_000, 2_000, 700), vec![(1_100, 1_200, Reason::Load)]);
    }

    #[test]
    fn a_fall_that_is_taken_back_doubles_the_hold() {
        let mut policy = policy(None);
        work(&mut policy, 0, 300, 0);
        assert_eq!((policy.requested, policy.hold), (mhz(800), SHORTEST_HOLD));
        work(&mut policy, 300, 350, 2_500);
        assert_eq!((policy.requested, policy.hold), (mhz(3_000), SHORTEST_HOLD * 2));
        let down = work(&mut policy, 350, 900, 0);
        assert!(down.iter().all(|(_, mhz, _)| *mhz > 800), "600 ms of a lower need are not over: {down:?}");
        let down = work(&mut policy, 900, 1_600, 0);
        assert_eq!(down.last().map(|(_, mhz, reason)| (*mhz, *reason)), Some((800, Reason::Idle)), "{down:?}");
    }

    #[test]
    fn unsure_is_the_highest_at_once() {
        let mut policy = policy(None);
        work(&mut policy, 0, 1_000, 0);
        let unsure = Sample { occupancy: Occupancy::Unsure(Unsure::Unlike), ..sample(1_010, mhz(800), 0) };
        let decision = policy.decide(&unsure);
        assert_eq!(decision, Decision { request: Some(mhz(3_000)), reason: Reason::Unsure });
        assert_eq!(policy.decide(&Sample { now: Instant::from_nanos(1_020 * MS), ..unsure }).request, None);
    }

    #[test]
    fn a_stall_that_costs_more_than_it_saves_changes_nothing() {
        let transition = Transition { sequencing: Nanos::from_millis(10), stall: Nanos::from_millis(10) };
        let config = GoalConfig { pstates: pstates(), transition, busy_ppm: 800_000, latency: None };
        let mut policy = Goal::<Simulated>::new(config);
        // Stalls of 10 ms may come each 10 s; a step that saves 13 % is worth it after 15 s.
        assert_eq!(work(&mut policy, 0, 900, 2_000), vec![(300, 2_600, Reason::LessLoad)], "the first one is free");
        assert_eq!(work(&mut policy, 900, 9_900, 1_000), vec![]);
        assert_eq!(work(&mut policy, 9_900, 12_000, 1_000).len(), 1);
    }

    #[test]
    fn late_packets_go_up_and_make_it_cautious() {
        let mut policy = policy(Some("p99=100us"));
        let run = |policy: &mut Goal<Simulated>, from: u64, to: u64, late_below: u64| {
            let mut requests = std::vec::Vec::new();
            for at in (from + 10..=to).step_by(10) {
                let running = policy.requested;
                let late = if running < mhz(late_below) { 20 } else { 0 };
                let share = scale(900_000_000, u64::from(ONE), running.as_hertz()).min(1_000_000) as u32;
                let seen = Sample { late: Some(Late { judged: 100, late }), ..sample(at, running, share) };
                requests.extend(policy.decide(&seen).request.map(|f| (at, f.as_hertz() / 1_000_000)));
            }
            requests
        };
        // 900 MHz of work: at 70 % busy, 1.8 GHz suffices, but packets are late below 2.2 GHz.
        let requests = run(&mut policy, 0, 60_000, 2_200);
        assert_eq!(requests[0].1, 1_800);
        let at_lower: usize = requests.windows(2).filter(|pair| pair[0].1 < 2_200).count();
        assert!(policy.busy_ppm < FIRST_BUSY, "{} {requests:?}", policy.busy_ppm);
        assert!(at_lower < 20, "{requests:?}");
        // In time at any frequency: ever busier.
        let mut policy = self::policy(Some("p99=100us"));
        run(&mut policy, 0, 60_000, 0);
        assert_eq!((policy.requested, policy.busy_ppm), (mhz(1_200), MOST_BUSY));
    }

    #[test]
    fn what_the_firmware_does_not_grant_is_not_asked_for() {
        let mut policy = policy(None);
        policy.granted(Instant::from_nanos(0), mhz(2_200));
        assert_eq!(OutsidePolicy::requested(&policy), mhz(2_200));
        work(&mut policy, 0, 1_000, 0);
        assert_eq!(work(&mut policy, 1_000, 1_500, 2_500), vec![(1_010, 2_200, Reason::Saturated)]);
        policy.granted(Instant::from_nanos(0), mhz(3_000));
        assert_eq!(
            work(&mut policy, 1_500, 2_000, 2_500),
            vec![(1_510, 3_000, Reason::Saturated)],
            "what was the highest is not any more"
        );
    }
}
