//! The policies in a small world of their own: one queue, one core, waits that end late by chance.
//!
//! What is asserted are laws (bounds, order, the goal in a world that allows it), not the world's
//! exact figures.

use policy::wait::*;
use policy::{Goal, LossBound};
use proptest::prelude::*;
use units::{Instant, Nanos, PacketRate, Simulated};

type At = Instant<Simulated>;

/// xorshift64*: G. Marsaglia, "Xorshift RNGs", 2003, and S. Vigna's multiplier.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
    /// Mostly `usual`, with an exponential tail of the same mean on top.
    fn lateness(&mut self, usual_ns: u64) -> Nanos {
        Nanos::from_nanos(usual_ns + (-(1.0 - self.unit()).ln() * usual_ns as f64 / 3.0) as u64)
    }
}

struct Outcome {
    /// Arrival to departure, sorted.
    delays: Vec<u64>,
    /// Share of the time that the core was not given away, per mille.
    awake: u64,
    kinds: [u64; 4],
    reasons: [u64; Reason::ALL.len()],
}

impl Outcome {
    /// The share of packets that were late.
    fn late(&self, goal: &str) -> f64 {
        let goal: Goal = goal.parse().unwrap();
        self.delays.iter().filter(|delay| **delay > goal.latency.as_nanos()).count() as f64 / self.delays.len() as f64
    }
    fn quantile_us(&self, q: f64) -> u64 {
        self.delays[((self.delays.len() - 1) as f64 * q) as usize] / 1_000
    }
}

/// For whoever reads a failed test.
impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "p50 {} us, p99 {} us, awake {}/1000", self.quantile_us(0.5), self.quantile_us(0.99), self.awake)?;
        for reason in Reason::ALL {
            if self.reasons[reason as usize] > 0 {
                write!(f, ", {} {}", reason.name(), self.reasons[reason as usize])?;
            }
        }
        Ok(())
    }
}

/// What waits are like: how late timers and interrupts usually are, and what a wait costs, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Machine {
    timer: u64,
    interrupt: u64,
    timer_cost: u64,
    interrupt_cost: u64,
    /// Mean time between two stalls, at random times, and their mean length (at least half of it), in nanoseconds.
    stalls: Option<(u64, u64)>,
}

/// The stalls of a machine, one after another: from when and until when it runs nothing.
struct Stalls {
    machine: Machine,
    random: Random,
    next: (u64, u64),
}

impl Stalls {
    fn new(machine: Machine) -> Self {
        let mut stalls = Self { machine, random: Random(77), next: (0, 0) };
        stalls.advance();
        stalls
    }

    fn advance(&mut self) {
        let Some((every, length)) = self.machine.stalls else {
            self.next = (u64::MAX, u64::MAX);
            return;
        };
        let mut exponential = |mean: u64| (-(1.0 - self.random.unit()).ln() * mean as f64) as u64;
        let from = self.next.1 + exponential(every);
        self.next = (from, from + length / 2 + exponential(length / 2));
    }

    /// When work ends that begins at `from` and would end at `to` without stalls.
    fn work(&mut self, from: u64, to: u64) -> u64 {
        let mut end = to;
        while self.next.0 < end {
            end += self.next.1.saturating_sub(self.next.0.max(from));
            self.advance();
        }
        end
    }

    /// When a core wakes up that would wake up at `at` without stalls.
    fn wake(&mut self, at: u64) -> u64 {
        let mut end = at;
        while self.next.0 < end {
            end = end.max(self.next.1);
            self.advance();
        }
        end
    }
}

/// Timers 8 us late and interrupts 10 us late or somewhat more, 5 us to enter and leave a wait.
const MACHINE: Machine =
    Machine { timer: 8_000, interrupt: 10_000, timer_cost: 5_000, interrupt_cost: 5_000, stalls: None };

fn run(policy: &mut impl WaitPolicy<Simulated>, arrivals: &[u64]) -> Outcome {
    run_on(MACHINE, policy, arrivals)
}

fn run_on(machine: Machine, policy: &mut (impl WaitPolicy<Simulated> + ?Sized), arrivals: &[u64]) -> Outcome {
    run_with(machine, policy, arrivals, true)
}

/// 0.1 us an empty poll, 2 us a frame, and what the machine says. Unstamped, the policy is told the polls' times alone.
fn run_with(
    machine: Machine,
    policy: &mut (impl WaitPolicy<Simulated> + ?Sized),
    arrivals: &[u64],
    stamped: bool,
) -> Outcome {
    let mut polled_before = At::from_nanos(0);
    let (mut now, mut next, mut ended, mut random) = (1_000u64, 0, None, Random(42));
    let mut stalls = Stalls::new(machine);
    let (mut delays, mut awake, mut kinds, mut reasons) = (Vec::new(), 0u64, [0; 4], [0; Reason::ALL.len()]);
    let end = arrivals.last().unwrap() + 1_000_000;
    while next < arrivals.len() && now < end {
        let began = now;
        now = stalls.work(now, now + 100);
        let first = next;
        while next < arrivals.len() && arrivals[next] <= now && next - first < 64 {
            next += 1;
        }
        let picked_up = At::from_nanos(now);
        let received = next - first;
        now = stalls.work(now, now + 2_000 * received as u64);
        delays.extend(arrivals[first..next].iter().map(|at| now - at));
        let queue = Queue {
            received: received as u32,
            fill: received as u32,
            arrivals: (received > 0).then(|| match stamped {
                false => Arrivals::unstamped(polled_before, picked_up),
                true => Arrivals {
                    first: At::from_nanos(arrivals[first]),
                    last: At::from_nanos(arrivals[next - 1]),
                    picked_up,
                    stamped,
                    held: None,
                    sent: None,
                },
            }),
        };
        polled_before = picked_up;
        let at = At::from_nanos(now);
        let decision = policy.decide(&Observation { now: at, queues: &[queue], ended });
        awake += now - began;
        kinds[decision.action.kind() as usize] += 1;
        reasons[decision.reason as usize] += 1;
        let due = decision.action.until(at).map(At::as_nanos);
        let upcoming = arrivals.get(next).copied().unwrap_or(end);
        let wake = match decision.action {
            Action::Poll => now,
            Action::Pause(_) => {
                awake += due.unwrap() - now;
                due.unwrap()
            }
            Action::SleepUntil(_) => due.unwrap().max(now) + random.lateness(machine.timer).as_nanos(),
            Action::BlockUntil(_) if upcoming <= now => now,
            Action::BlockUntil(_) if due.is_some_and(|due| due < upcoming) => {
                due.unwrap().max(now) + random.lateness(machine.timer).as_nanos()
            }
            Action::BlockUntil(_) => upcoming + random.lateness(machine.interrupt).as_nanos(),
        };
        let wake = if wake > now { stalls.wake(wake) } else { now };
        // The timer's, unless the device ended it.
        let timed = due.is_some_and(|due| wake >= due);
        let cost = if timed { machine.timer_cost } else { machine.interrupt_cost }.min(wake - now);
        ended = (!matches!(decision.action, Action::Poll)).then(|| Ended {
            action: decision.action,
            began: at,
            ended: At::from_nanos(wake),
            spent: Some(Nanos::from_nanos(cost)),
            idle: Nanos::ZERO,
        });
        if matches!(decision.action, Action::SleepUntil(_) | Action::BlockUntil(_)) {
            awake += cost;
        }
        now = wake;
    }
    delays.sort_unstable();
    Outcome { delays, awake: awake * 1_000 / now, kinds, reasons }
}

fn adaptive(goal: &str) -> Adaptive<Simulated> {
    let loss = Some(LossBound { descriptors: 2048, peak: PacketRate::new(3_000_000) });
    Adaptive::new(AdaptiveConfig { goal: Some(goal.parse().unwrap()), loss, interrupts: true })
}

fn periodic(period_us: u64, packets: u64) -> Vec<u64> {
    (1..=packets).map(|k| k * period_us * 1_000).collect()
}

fn poisson(mean_us: f64, packets: usize, seed: u64) -> Vec<u64> {
    let (mut random, mut t) = (Random(seed), 0.0);
    (0..packets)
        .map(|_| {
            t += -(1.0 - random.unit()).ln() * mean_us * 1_000.0;
            t as u64
        })
        .collect()
}

#[test]
fn periodic_traffic_meets_a_core_that_is_awake() {
    let arrivals = periodic(350, 10_000);
    let (ours, polling) = (run(&mut adaptive("p99=20us"), &arrivals), run(&mut Poll, &arrivals));
    assert!(ours.quantile_us(0.99) <= 20, "p99 {} us", ours.quantile_us(0.99));
    assert!(ours.quantile_us(0.5) <= polling.quantile_us(0.5) + 1, "median {} us", ours.quantile_us(0.5));
    assert!(ours.awake < 250, "awake {} per mille", ours.awake);
    assert!(polling.awake > 990);
}

#[test]
fn a_loose_goal_leaves_periodic_traffic_to_the_interrupt() {
    let ours = run(&mut adaptive("p99=200us"), &periodic(350, 10_000));
    assert!(ours.awake < 40, "awake {} per mille", ours.awake);
    assert!(ours.kinds[WaitKind::Sleep as usize] < 50);
}

#[test]
fn slots_of_several_frames_are_foreseen() {
    let arrivals: Vec<u64> = (1..3_000u64).flat_map(|slot| (0..4).map(move |k| slot * 500_000 + k * 3_000)).collect();
    let ours = run(&mut adaptive("p99=20us"), &arrivals);
    println!("{ours}");
    assert!(ours.quantile_us(0.99) <= 20, "p99 {} us", ours.quantile_us(0.99));
    assert!(ours.awake < 300, "awake {} per mille", ours.awake);
}

#[test]
fn looser_goals_cost_less_and_are_kept() {
    let arrivals = poisson(50.0, 40_000, 7);
    let mut before = 1_001;
    for goal_us in [20, 30, 60, 120, 250] {
        let ours = run(&mut adaptive(&format!("p99={goal_us}us")), &arrivals);
        println!("{goal_us} us: {ours}");
        assert!(ours.quantile_us(0.99) <= goal_us, "p99 {} us of {goal_us}", ours.quantile_us(0.99));
        assert!(ours.awake < before, "{goal_us} us: awake {} per mille, before {before}", ours.awake);
        before = ours.awake;
    }
}

#[test]
fn cheaper_than_a_timed_sleep_of_the_same_tail() {
    let arrivals = poisson(50.0, 40_000, 11);
    for goal_us in [30, 60, 120, 250] {
        let ours = run(&mut adaptive(&format!("p99={goal_us}us")), &arrivals);
        let rival = (1..=goal_us)
            .map(|max| run(&mut Backoff::new(Nanos::from_micros(max)), &arrivals))
            .filter(|o| o.quantile_us(0.99) <= ours.quantile_us(0.99))
            .map(|o| o.awake)
            .min();
        println!("{goal_us} us: {ours}; a timed sleep {rival:?}");
        // Where a timed sleep is the best that can be done, ours is one: then they cost the same, but for
        // what it takes to learn that, and to try now and then whether another wait has become the better one.
        let bound = rival.map(|rival| rival + rival.div_ceil(12));
        assert!(bound.is_none_or(|bound| ours.awake <= bound), "{goal_us} us: {} against {rival:?}", ours.awake);
    }
}

#[test]
fn what_it_has_paid_is_what_it_was_charged() {
    for (goal, arrivals) in [("p99=120us", poisson(50.0, 20_000, 3)), ("p99=30us", poisson(20.0, 20_000, 4))] {
        let mut policy = adaptive(goal);
        let ours = run(&mut policy, &arrivals);
        let (paid, _) = policy.paid_since(Paid::default(), Nanos::from_nanos(*arrivals.last().unwrap()));
        let (paid, awake) = (paid * 1_000 / 65_536, ours.awake);
        assert!(paid.abs_diff(awake) <= 10, "{goal}: {paid} per mille of {awake}");
    }
}

/// A worker measures the cost of the first waits, and of a sample of the others.
struct MeasuresSome {
    policy: Adaptive<Simulated>,
    waits: u64,
}

impl WaitPolicy<Simulated> for MeasuresSome {
    fn decide(&mut self, seen: &Observation<'_, Simulated>) -> Decision<Simulated> {
        self.waits += u64::from(seen.ended.is_some());
        let measures = self.waits <= 64 || self.waits.is_multiple_of(16);
        let ended = seen.ended.map(|wait| Ended { spent: wait.spent.filter(|_| measures), ..wait });
        self.policy.decide(&Observation { ended, ..*seen })
    }
}

#[test]
fn what_it_has_paid_includes_the_waits_that_were_not_measured() {
    for (goal, arrivals) in [("p99=120us", poisson(50.0, 20_000, 3)), ("p99=30us", poisson(20.0, 20_000, 4))] {
        let mut policy = MeasuresSome { policy: adaptive(goal), waits: 0 };
        let ours = run(&mut policy, &arrivals);
        let span = Nanos::from_nanos(*arrivals.last().unwrap());
        let (paid, _) = policy.policy.paid_since(Paid::default(), span);
        let (paid, awake) = (paid * 1_000 / 65_536, ours.awake);
        assert!(paid.abs_diff(awake) <= 10, "{goal}: {paid} per mille of {awake}");
    }
}

#[test]
fn a_goal_that_no_wait_can_keep_means_polling() {
    let ours = run(&mut adaptive("p99=4us"), &poisson(50.0, 20_000, 3));
    assert!(ours.quantile_us(0.99) <= 6);
    assert!(ours.awake > 900, "awake {} per mille", ours.awake);
}

#[test]
fn the_goal_is_kept_again_after_the_machine_became_slow() {
    // The same traffic, but the second half's frames arrive in bursts that the first did not have.
    let mut arrivals = poisson(50.0, 20_000, 5);
    let shift = arrivals.last().unwrap() + 50_000;
    arrivals.extend(periodic(500, 4_000).iter().flat_map(|t| (0..8).map(move |k| shift + t + k * 200)));
    let ours = run(&mut adaptive("p99=60us"), &arrivals);
    assert!(ours.quantile_us(0.99) <= 60, "p99 {} us", ours.quantile_us(0.99));
}

/// What a measurement of this world's waits says: `Random::lateness` by its quantiles, in each length.
fn measured_costs() -> WakeCosts {
    let of = |usual: f64| {
        let at = |q: f64| Nanos::from_nanos((usual * (1.0 - (1.0 - q).ln() / 3.0)) as u64);
        Lateness { p50: at(0.5), p75: at(0.75), p90: at(0.9), p99: at(0.99), p999: at(0.999) }
    };
    let timed = [20, 50, 100, 200, 350, 1_000, 5_000, 10_000];
    let cost = |us| Some(TimedCost { length: Nanos::from_micros(us), lateness: of(8_000.0) });
    WakeCosts { timed: timed.map(cost), interrupt: Some(of(10_000.0)) }
}

#[test]
fn the_first_packets_keep_the_goal() {
    // The first 30 ms of Poisson traffic, from 50 starts each, under goals that interrupts alone do not keep.
    for goal_us in [25, 30] {
        let late = |costs: Option<WakeCosts>| {
            let of = |seed: u64| {
                let mut policy = adaptive(&format!("p99={goal_us}us"));
                costs.iter().for_each(|costs| policy.know(costs));
                let ours = run(&mut policy, &poisson(50.0, 600, seed));
                ours.delays.iter().filter(|delay| **delay > goal_us * 1_000).count()
            };
            (1..=50).map(of).sum::<usize>()
        };
        let (without, with) = (late(None), late(Some(measured_costs())));
        println!("{goal_us} us: late of 30,000: {without} without, {with} with what was measured");
        assert!(
            with <= 300 && without <= 300,
            "{goal_us} us: {with} and {without} of 30,000: more than one in a hundred"
        );
    }
}

#[test]
fn wrong_costs_are_unlearned() {
    // Measured on another machine: a tenth, and ten times, of what waits cost here.
    for (wrong, parts) in [(1, 10), (10, 1)] {
        let mut costs = measured_costs();
        let scale = |of: &mut Lateness| {
            for quantile in [&mut of.p50, &mut of.p75, &mut of.p90, &mut of.p99, &mut of.p999] {
                *quantile = quantile.scale(wrong, parts);
            }
        };
        costs.timed.iter_mut().flatten().for_each(|cost| scale(&mut cost.lateness));
        costs.interrupt.iter_mut().for_each(scale);
        let arrivals = poisson(50.0, 40_000, 7);
        let mut policy = adaptive("p99=30us");
        policy.know(&costs);
        let (ours, without) = (run(&mut policy, &arrivals), run(&mut adaptive("p99=30us"), &arrivals));
        println!("{wrong}/{parts}: {ours}\nwithout: {without}");
        assert!(ours.quantile_us(0.99) <= 30, "{wrong}/{parts}: p99 {} us", ours.quantile_us(0.99));
        assert!(ours.awake <= without.awake * 3 / 2, "{wrong}/{parts}: {} and {}", ours.awake, without.awake);
    }
}

/// A core that polls is stalled as often as one that sleeps, so no polling makes up for stalls.
#[test]
fn a_machine_that_stalls_does_not_keep_the_core_awake() {
    const SEEDS: u64 = 20;
    // 0.45 % and 1.5 % of the time.
    for (stalls, goal) in [((33_000_000, 150_000), "p99=120us"), ((25_000_000, 375_000), "p99=250us")] {
        let machine = Machine { interrupt_cost: 15_000, stalls: Some(stalls), ..MACHINE };
        let arrivals = poisson(50.0, 60_000, 5);
        let fixed = |policy: &mut dyn WaitPolicy<Simulated>| {
            let outcome = run_on(machine, policy, &arrivals);
            (outcome.late(goal) <= 0.01).then_some(outcome.awake)
        };
        let sleeps = (1..25).filter_map(|tenth| fixed(&mut Backoff::new(Nanos::from_micros(10 * tenth))));
        let rival = sleeps.chain(fixed(&mut Interrupt)).min().unwrap();
        // Chance moves single runs by a tenth and more.
        let (mut awake, mut late) = (0, 0.0);
        for seed in 1..=SEEDS {
            let ours = run_on(machine, &mut adaptive(goal), &poisson(50.0, 60_000, seed));
            println!("{stalls:?}, {goal}: {ours}; late {:.4}; the cheapest fixed wait {rival}/1000", ours.late(goal));
            (awake, late) = (awake + ours.awake, late + ours.late(goal) / SEEDS as f64);
        }
        println!("{goal}: in the mean {:.2} times, late {late:.4}", awake as f64 / SEEDS as f64 / rival as f64);
        assert!(awake <= rival * SEEDS * 5 / 4, "{goal}: awake {} in the mean, and {rival}", awake / SEEDS);
        // Stalls alone make 0.6 % of the packets late in the second case. In addition, the policy uses what the goal allows.
        assert!(late <= 0.0125, "{goal}: late {late}");
    }
}

/// The machine stalls in one of the first sleeps.
struct StalledOnce {
    policy: Adaptive<Simulated>,
    sleeps: u32,
}

impl WaitPolicy<Simulated> for StalledOnce {
    fn decide(&mut self, seen: &Observation<'_, Simulated>) -> Decision<Simulated> {
        let slept = seen.ended.is_some_and(|wait| wait.action.kind() == WaitKind::Sleep);
        self.sleeps += u32::from(slept);
        let late = if slept && self.sleeps == 12 { Nanos::from_micros(180) } else { Nanos::ZERO };
        let ended = seen.ended.map(|wait| Ended { ended: wait.ended + late, ..wait });
        self.policy.decide(&Observation { ended, ..*seen })
    }
}

#[test]
fn a_stall_at_the_start_does_not_keep_the_core_awake() {
    // The ring lasts 137 us: were the stall taken for how late sleeps end, none would be short enough.
    let new = || {
        let loss = Some(LossBound { descriptors: 2048, peak: PacketRate::new(14_880_000) });
        let goal = Some("p99=250us".parse().unwrap());
        Adaptive::new(AdaptiveConfig { goal, loss, interrupts: true })
    };
    for seed in 1..=10 {
        let arrivals = poisson(50.0, 2_000, seed);
        let (ours, without) =
            (run(&mut StalledOnce { policy: new(), sleeps: 0 }, &arrivals), run(&mut new(), &arrivals));
        println!("{seed}: {ours}\nwithout a stall: {without}");
        assert!(ours.awake <= without.awake + without.awake / 5, "awake {} and {}", ours.awake, without.awake);
    }
}

/// Each second, the sender stops for 45 ms, and then sends 100 packets within 0.1 ms. With polling, 0.4 % of all packets
/// are late, nearly all of them in these bursts.
#[test]
fn rare_bursts_do_not_keep_the_core_awake() {
    let (second, stops) = (1_000_000_000, 955_000_000);
    let mut arrivals = poisson(50.0, 100_000, 1);
    arrivals.retain(|at| at % second < stops);
    arrivals.extend((1..=5).flat_map(|burst| (0..100).map(move |number| burst * second + number * 1_000)));
    let arrivals = sorted(arrivals);
    let machine = Machine { timer: 8_000, interrupt: 6_000, timer_cost: 15_000, interrupt_cost: 10_000, stalls: None };
    let ours = run_on(machine, &mut adaptive("p99=60us"), &arrivals);
    let interrupt = run_on(machine, &mut Interrupt, &arrivals);
    println!(
        "{ours}; late {:.4}; interrupt {interrupt}; late {:.4}",
        ours.late("p99=60us"),
        interrupt.late("p99=60us")
    );
    assert!(interrupt.late("p99=60us") <= 0.01 && ours.late("p99=60us") <= 0.01);
    assert!(ours.awake <= interrupt.awake * 11 / 10, "awake {} and {}", ours.awake, interrupt.awake);
}

/// A packet comes when the policy expects hardly any: the gaps are a little longer than the silences that it tells apart.
/// Some timers end later than the goal's latency.
#[test]
fn regular_gaps_keep_the_goal() {
    for gap in [34_000, 67_000, 90_000, 131_500, 263_000] {
        let arrivals: Vec<u64> = (1..=15_000).map(|number| number * gap).collect();
        let later = [("p99=15us", 20_000), ("p99=20us", 30_000)];
        let sooner = [("p99=15us", 8_000), ("p99=20us", 8_000), ("p99=30us", 20_000), ("p99.9=40us", 20_000)];
        for (goal, timer) in sooner.into_iter().chain(later) {
            let ours = run_on(Machine { timer, interrupt: 8_000, ..MACHINE }, &mut adaptive(goal), &arrivals);
            let allowed = f64::from(goal.parse::<Goal>().unwrap().quantile.above_ppm()) / 1e6;
            println!("each {gap} ns, {goal}, timers {timer} ns late: {ours}; late {:.4}", ours.late(goal));
            assert!(ours.late(goal) <= allowed * 1.25, "each {gap} ns, {goal}: late {}", ours.late(goal));
        }
    }
}

#[test]
fn with_nothing_owed_the_cheapest_wait_is_taken() {
    let arrivals = poisson(50.0, 20_000, 9);
    let of = |timer_cost, interrupt_cost| {
        let machine = Machine { timer_cost, interrupt_cost, ..MACHINE };
        let outcome = run_on(machine, &mut adaptive("p99=150us"), &arrivals);
        println!("{machine:?}: {outcome}");
        (outcome.kinds[WaitKind::Sleep as usize], outcome.kinds[WaitKind::Block as usize])
    };
    // A sleep takes two packets at once, an interrupt one.
    let (sleeps, blocks) = of(4_000, 4_000);
    assert!(sleeps > 20 * blocks, "{sleeps} sleeps, {blocks} blocks");
    let (sleeps, blocks) = of(12_000, 1_000);
    assert!(blocks > 20 * sleeps, "{sleeps} sleeps, {blocks} blocks");
}

#[test]
fn interrupts_that_are_late_too_often_are_still_used_as_often_as_they_may() {
    // The goal less the reserve is 25.4 us, which one interrupt in 55 exceeds; three packets in 400 are aimed at.
    let machine = Machine { timer: 30_000, interrupt: 10_000, ..MACHINE };
    let ours = run_on(machine, &mut adaptive("p99=29us"), &poisson(200.0, 10_000, 4));
    println!("{ours}");
    assert!(ours.quantile_us(0.99) <= 29, "p99 {} us", ours.quantile_us(0.99));
    assert!(ours.awake < 800, "awake {} per mille: it polls", ours.awake);
    assert!(ours.reasons[Reason::Interrupt as usize] > 2_000, "few interrupts: {ours}");
}

/// On for a while at a rate, off for a while.
fn on_off(gap_us: f64, on: usize, off_us: u64, packets: usize, seed: u64) -> Vec<u64> {
    let burst = poisson(gap_us, packets, seed);
    burst.iter().enumerate().map(|(number, at)| at + (number / on) as u64 * off_us * 1_000).collect()
}

/// Anything that a loop could report, sane or not.
fn step() -> impl Strategy<Value = (u64, u32, u64, u64, u64)> {
    (0u64..2_000_000, prop_oneof![3 => Just(0u32), 1 => 0u32..100], 0u64..600_000, 0u64..300_000, 0u64..50_000)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Polling keeps every goal here, so the share of late packets comes to no more than what is allowed: on any
    /// machine, for any stationary arrivals, cold.
    #[test]
    fn the_share_of_late_packets_converges_to_what_is_allowed(
        timer in 1_000u64..60_000,
        interrupt in 1_000u64..60_000,
        timer_cost in 1_000u64..30_000,
        interrupt_cost in 1_000u64..30_000,
        goal_us in 30u64..300,
        quantile in prop_oneof![Just("p90"), Just("p99"), Just("p99.5")],
        gap_us in 12.0f64..200.0,
        on in prop_oneof![Just(usize::MAX), 20usize..200],
        off_us in 500u64..2_000,
        seed in 1u64..1_000_000,
    ) {
        let machine = Machine { timer, interrupt, timer_cost, interrupt_cost, stalls: None };
        let arrivals = on_off(gap_us, on, off_us, 6_000, seed);
        let goal = format!("{quantile}={goal_us}us");
        let ours = run_on(machine, &mut adaptive(&goal), &arrivals);
        let late = ours.delays.iter().filter(|delay| **delay > goal_us * 1_000).count() as u64;
        let allowed = 6_000 * u64::from(goal.parse::<Goal>().unwrap().quantile.above_ppm()) / 1_000_000;
        prop_assert!(late <= allowed + allowed / 20 + 8, "{late} of {allowed} allowed: {ours}");
    }
}

proptest! {
    #[test]
    fn no_timed_wait_exceeds_a_bound(
        goal_us in 1u64..2_000,
        descriptors in 1u32..8_192,
        pps in 1_000u64..50_000_000,
        interrupts: bool,
        steps in prop::collection::vec(step(), 1..400),
    ) {
        let goal = Goal { quantile: units::Quantile::P99, latency: Nanos::from_micros(goal_us) };
        let loss = LossBound { descriptors, peak: PacketRate::new(pps) };
        let mut policy =
            Adaptive::<Simulated>::new(AdaptiveConfig { goal: Some(goal), loss: Some(loss), interrupts });
        let mut again = policy.clone();
        let bound = goal.latency.min(loss.longest_absence());
        let (mut now, mut ended) = (At::from_nanos(1_000_000), None);
        for (advance, received, age, spread, work) in steps {
            now = now + Nanos::from_nanos(advance);
            let first = now.before(Nanos::from_nanos(age + spread)).unwrap_or(At::ORIGIN);
            let arrivals = (received > 0)
                .then(|| Arrivals::stamped(first, first + Nanos::from_nanos(spread), now));
            now = now + Nanos::from_nanos(work);
            let queues = [Queue { received, fill: received, arrivals }, Queue { received: 0, fill: 0, arrivals: None }];
            let seen = Observation { now, queues: &queues, ended };
            let decision = policy.decide(&seen);
            prop_assert_eq!(decision, again.decide(&seen), "the same observations, another decision");
            match decision.action {
                Action::SleepUntil(until) => {
                    let span = until.since(now).expect("in the future");
                    prop_assert!(span <= bound, "{span} exceeds {bound}");
                }
                Action::BlockUntil(_) => prop_assert!(interrupts, "blocks where nothing can wake it"),
                Action::Poll | Action::Pause(_) => {}
            }
            ended = (!matches!(decision.action, Action::Poll)).then_some(Ended {
                action: decision.action,
                began: now,
                ended: now + Nanos::from_nanos(advance),
                spent: None,
                idle: Nanos::ZERO,
            });
        }
    }
}

/// A time or a span that a loop could report, or that a broken clock could.
fn wild() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0u64..1_000_000, 1 => any::<u64>(), 1 => Just(u64::MAX), 1 => 0u64..1 << 40]
}

proptest! {
    /// Clocks that jump, and stamps that contradict each other: no panic, and no wait that ends before it begins.
    #[test]
    fn any_times_are_survived(
        goal_us in 1u64..10_000_000,
        stamped: bool,
        steps in prop::collection::vec(
            (wild(), prop_oneof![Just(0u32), 1u32..100], wild(), wild(), wild(), wild(), any::<bool>()),
            1..200,
        ),
    ) {
        let goal = Goal { quantile: units::Quantile::P99, latency: Nanos::from_micros(goal_us) };
        let mut policy = Adaptive::<Simulated>::new(AdaptiveConfig { goal: Some(goal), loss: None, interrupts: true });
        let (mut now, mut ended) = (At::from_nanos(1_000_000), None);
        for (advance, received, first, last, picked_up, held, jumps) in steps {
            now = if jumps { At::from_nanos(advance) } else { now + Nanos::from_nanos(advance) };
            let [first, last, picked_up] = [first, last, picked_up].map(|ago| now.before(Nanos::from_nanos(ago)));
            let [first, last, picked_up] = [first, last, picked_up].map(|at| at.unwrap_or(At::ORIGIN));
            let arrivals = if stamped {
                Arrivals { held: Some(Nanos::from_nanos(held)), ..Arrivals::stamped(first, last, picked_up) }
            } else {
                Arrivals::unstamped(first, picked_up)
            };
            let queues = [Queue { received, fill: received, arrivals: (received > 0).then_some(arrivals) }];
            let decision = policy.decide(&Observation { now, queues: &queues, ended });
            policy.hold_off(now, Nanos::from_nanos(held));
            if let Some(until) = decision.action.until(now) {
                prop_assert!(until >= now);
            }
            ended = (!matches!(decision.action, Action::Poll)).then_some(Ended {
                action: decision.action,
                began: now,
                ended: now + Nanos::from_nanos(held),
                spent: (held % 2 == 0).then_some(Nanos::from_nanos(last.as_nanos())),
                idle: Nanos::ZERO,
            });
        }
    }
}

/// Bursts of several frames at random times.
fn bursts(mean_us: f64, each: u64, count: usize, seed: u64) -> Vec<u64> {
    poisson(mean_us, count, seed).into_iter().flat_map(|at| (0..each).map(move |k| at + k * 700)).collect()
}

/// Pairs of frames, `apart` microseconds apart, at random times.
fn pairs(mean_us: f64, apart: u64, count: usize, seed: u64) -> Vec<u64> {
    poisson(mean_us, count, seed).into_iter().flat_map(|at| [at, at + apart * 1_000]).collect()
}

fn sorted(mut all: Vec<u64>) -> Vec<u64> {
    all.sort_unstable();
    all
}

#[test]
fn without_stamps_goals_are_still_kept() {
    let mut cheap = 0;
    for (name, arrivals) in [
        ("poisson 50 us", poisson(50.0, 15_000, 7)),
        ("poisson 500 us", poisson(500.0, 8_000, 8)),
        // With fewer packets, chance decides: in 0.3 s, 1.2 % were late in the mean of eight seeds.
        ("poisson 10 us", poisson(10.0, 200_000, 9)),
        ("each 350 us", periodic(350, 8_000)),
        ("each 77 us", periodic(77, 15_000)),
        // Late packets are charged as often as they are expected, so chance decides the share of few bursts.
        ("bursts", sorted(bursts(800.0, 8, 8_000, 10))),
        // The second packet always comes when a sleep has just begun, or at the same time of it.
        ("pairs 3 us apart", sorted(pairs(300.0, 3, 8_000, 11))),
        ("pairs 30 us apart", sorted(pairs(300.0, 30, 8_000, 12))),
    ] {
        for goal_us in [40, 120, 250] {
            for machine in [MACHINE, Machine { timer: 15_000, interrupt: 15_000, ..MACHINE }] {
                let goal = format!("p99={goal_us}us");
                let blind = run_with(machine, &mut adaptive(&goal), &arrivals, false);
                let seeing = run_on(machine, &mut adaptive(&goal), &arrivals);
                println!(
                    "{name}, {goal}, timers {} us:\n  stamped: {seeing}\n  without: {blind}",
                    machine.timer / 1_000
                );
                let quantile = if name == "bursts" { 0.985 } else { 0.99 };
                let latency = blind.quantile_us(quantile);
                assert!(latency <= goal_us, "{name}, {goal}: the {quantile} quantile is {latency} us");
                assert!(blind.awake < 990 || seeing.awake > 700, "{name}, {goal}: it polls");
                cheap += u32::from(blind.awake <= seeing.awake * 2 + 20);
            }
        }
    }
    // What is lost is CPU time; seldom as much as is spent with stamps.
    println!("{cheap} cheap");
    assert!(cheap >= 27, "{cheap} of 36 cost at most twice as much");
}

/// Blocks are taken to be as late as the timers of which enough have ended. A single timer decided that once: in one of
/// these runs, 1.6 % of the packets were late, and 1.35 % in another version.
#[test]
fn without_stamps_blocks_are_as_late_as_most_timers() {
    let machine = Machine { timer: 15_000, interrupt: 15_000, ..MACHINE };
    for seed in 9..12 {
        let run = run_with(machine, &mut adaptive("p99=40us"), &poisson(10.0, 600_000, seed), false);
        assert!(run.quantile_us(0.99) <= 40, "seed {seed}: {run}");
    }
}

/// Where interrupts are later than timers, nobody sees it: the platform's profile must say it.
#[test]
fn without_stamps_a_profile_says_how_late_interrupts_are() {
    let machine = Machine { interrupt: 40_000, ..MACHINE };
    let arrivals = poisson(200.0, 30_000, 12);
    let mut costs = measured_costs();
    costs.interrupt = costs.interrupt.map(|_| {
        let at = |q: f64| Nanos::from_nanos((40_000.0 * (1.0 - (1.0 - q).ln() / 3.0)) as u64);
        Lateness { p50: at(0.5), p75: at(0.75), p90: at(0.9), p99: at(0.99), p999: at(0.999) }
    });
    let mut policy = adaptive("p99=80us");
    policy.know(&costs);
    let ours = run_with(machine, &mut policy, &arrivals, false);
    println!("{ours}");
    assert!(ours.quantile_us(0.99) <= 80, "p99 {} us", ours.quantile_us(0.99));
    assert!(ours.awake < 500, "awake {} per mille", ours.awake);
}
