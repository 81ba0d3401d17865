//! Polling cores simulated in virtual time, and the control loops that set their frequency.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::rc::Rc;

use policy::Goal as Latency;
use policy::frequency::PStates;
use policy::frequency::outside::{GoalConfig, TimeOfDay, Transition, TwoLevel};
use units::Simulated;

use super::*;
use crate::machine::{Machine, Poll, Step, run};
use crate::seam::{Actuator, Blind, Sensor, Standing};

type Time = Instant<Simulated>;

const MHZ: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

fn mhz(n: u64) -> Hertz {
    Hertz::new(n * MHZ)
}

fn pstates() -> PStates {
    PStates::new(&[3_000, 2_600, 2_200, 1_800, 1_200, 800].map(mhz)).unwrap()
}

/// Arrival pattern of packets.
#[derive(Clone, Debug)]
enum Traffic {
    /// Poisson arrivals whose rate changes at given times: (seconds, packets per second).
    Steps(Vec<(f64, f64)>),
    /// Poisson arrivals at the first number (packets per second), alternately on and off for the second number of
    /// seconds.
    OnOff(f64, f64),
}

impl Traffic {
    fn rate(&self, at: f64) -> f64 {
        match self {
            Self::Steps(steps) => steps.iter().rfind(|(from, _)| *from <= at).map_or(0.0, |(_, rate)| *rate),
            Self::OnOff(rate, half) => {
                if ((at / half) as u64).is_multiple_of(2) {
                    *rate
                } else {
                    0.0
                }
            }
        }
    }
}

/// A polling core. Packets wait in a queue; each takes a fixed number of cycles.
struct World {
    traffic: Traffic,
    cycles: f64,
    ring: usize,
    random: u64,
    now: u64,
    next: u64,
    /// Arrival times of the packets in the queue, in nanoseconds, oldest first.
    queue: std::collections::VecDeque<u64>,
    free_at: u64,
    frequency: Hertz,
    ceiling: Hertz,
    /// A request that has not taken effect yet: the time in nanoseconds at which it will, and the frequency.
    pending: Option<(u64, Hertz)>,
    stalls: u64,
    goal: Nanos,
    packets: u64,
    lost: u64,
    busy: u64,
    judged: u64,
    late: u64,
    asked: Vec<(u64, Hertz)>,
    hertz_nanos: f64,
    is_blind: bool,
    /// Whether the loop reports its busy time and its delays.
    tells: bool,
}

impl World {
    fn new(traffic: Traffic, cycles: f64, seed: u64) -> Rc<RefCell<Self>> {
        let mut world = Self {
            traffic,
            cycles,
            ring: 1_024,
            random: seed,
            now: 0,
            next: 0,
            queue: Default::default(),
            free_at: 0,
            frequency: mhz(3_000),
            ceiling: mhz(3_000),
            pending: None,
            stalls: 0,
            goal: Nanos::from_micros(500),
            packets: 0,
            lost: 0,
            busy: 0,
            judged: 0,
            late: 0,
            asked: Vec::new(),
            hertz_nanos: 0.0,
            is_blind: false,
            tells: true,
        };
        world.next = world.gap();
        Rc::new(RefCell::new(world))
    }

    /// Draws a random number above 0 and at most 1 (splitmix64).
    fn random(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64 + f64::EPSILON
    }

    /// Time of the next packet of a Poisson process at the present rate, in nanoseconds. At most 1 ms from now, when
    /// the rate is checked again.
    fn gap(&mut self) -> u64 {
        let rate = self.traffic.rate(self.now as f64 / 1e9);
        let gap = if rate > 0.0 { -self.random().ln() / rate * 1e9 } else { f64::MAX };
        self.now + gap.min(1e6) as u64 + 1
    }

    fn take_effect(&mut self, at: u64) {
        if let Some((when, frequency)) = self.pending
            && when <= at
        {
            self.pending = None;
            if frequency != self.frequency {
                self.frequency = frequency;
                self.stalls += 1;
                // The core stalls for 12 us.
                self.free_at = self.free_at.max(when) + 12_000;
            }
        }
    }

    fn serve(&mut self, until: u64) {
        while let Some(&came) = self.queue.front() {
            let begin = self.free_at.max(came);
            let takes = (self.cycles / self.frequency.as_hertz() as f64 * 1e9) as u64;
            if begin + takes > until {
                break;
            }
            self.queue.pop_front();
            self.free_at = begin + takes;
            self.busy += takes;
            self.judged += 1;
            self.late += u64::from(self.free_at - came > self.goal.as_nanos());
        }
    }

    fn live(&mut self, until: u64) {
        while self.next <= until {
            let at = self.next;
            self.hertz_nanos += self.frequency.as_hertz() as f64 * (at - self.now) as f64;
            self.take_effect(at);
            self.serve(at);
            let was = self.now;
            self.now = at;
            // A check without a packet comes exactly 1 ms after the previous one.
            let rate = self.traffic.rate(at as f64 / 1e9);
            if rate > 0.0 && at - was < 1_000_000 {
                self.packets += 1;
                if self.queue.len() < self.ring { self.queue.push_back(at) } else { self.lost += 1 }
            }
            self.next = self.gap();
        }
        self.hertz_nanos += self.frequency.as_hertz() as f64 * (until - self.now) as f64;
        self.take_effect(until);
        self.serve(until);
        self.now = until;
    }
}

impl Sensor<Simulated> for Rc<RefCell<World>> {
    type Seen = CoreSeen;
    fn read(&mut self, now: Time) -> Result<Reading<CoreSeen, Simulated>, Blind> {
        let mut world = self.borrow_mut();
        world.live(now.as_nanos());
        if world.is_blind {
            return Err(Blind("no permission".into()));
        }
        let tells = world.tells;
        let seen = CoreSeen {
            packets: Some(world.packets - world.lost),
            lost: Some(world.lost),
            busy: tells.then(|| Nanos::from_nanos(world.busy)),
            late: tells.then_some((world.judged, world.late)),
            ..CoreSeen::default()
        };
        Ok(Reading { taken: now, seen })
    }
}

/// Actuator that sets the simulated frequency, with the delay of second-generation hardware.
struct Hand(Rc<RefCell<World>>, Hertz);

impl Actuator<Simulated> for Hand {
    type Setting = Hertz;
    type InForce = InForce;
    fn set(&mut self, now: Time, wish: &Hertz) -> Acted<InForce> {
        let mut world = self.0.borrow_mut();
        let granted = (*wish).min(world.ceiling);
        world.asked.push((now.as_nanos(), granted));
        world.pending = Some((now.as_nanos() + 530_000, granted));
        self.1 = world.ceiling;
        let in_force = InForce { frequency: granted, ceiling: world.ceiling };
        if granted == *wish { Acted::InForce } else { Acted::Rounded { now: in_force, why: None } }
    }
    fn look(&mut self, _: Time) -> Acted<InForce> {
        Acted::InForce
    }
    fn stands(&mut self) -> Standing {
        Standing::AsLeft
    }
    fn shifted(&mut self) -> Option<InForce> {
        let mut world = self.0.borrow_mut();
        let ceiling = world.ceiling;
        let frequency = world.pending.map_or(world.frequency, |(_, to)| to).min(ceiling);
        if world.frequency > ceiling {
            world.pending = Some((0, ceiling));
        }
        (std::mem::replace(&mut self.1, ceiling) != ceiling).then_some(InForce { frequency, ceiling })
    }
}

type Loop = Machine<Simulated, Rc<RefCell<World>>, Pace<Simulated>, Hand>;

impl Poll<Simulated> for Loop {
    fn poll(&mut self, now: Time) {
        Machine::poll(self, now);
    }
    fn poll_at(&self) -> Option<Time> {
        Machine::poll_at(self)
    }
}

const HIGHEST: InForce = InForce { frequency: mhz_(3_000), ceiling: mhz_(3_000) };

const fn mhz_(n: u64) -> Hertz {
    Hertz::new(n * MHZ)
}

fn goal(latency: Option<&str>) -> Outside<Simulated> {
    let latency: Option<Latency> = latency.map(|text| text.parse().unwrap());
    let transition = Transition::default();
    Outside::Goal(Goal::new(GoalConfig { pstates: pstates(), transition, busy_ppm: 800_000, latency }))
}

fn steered(world: &Rc<RefCell<World>>, policy: Outside<Simulated>, judge: Judge) -> Loop {
    Machine::new(world.clone(), Pace::new(policy, judge, HIGHEST), Hand(world.clone(), mhz(3_000)))
}

fn during(machine: &mut Loop, from_s: f64, to_s: f64) {
    let time = std::cell::Cell::new(Instant::from_nanos((from_s * 1e9) as u64));
    let end = Instant::from_nanos((to_s * 1e9) as u64);
    run(
        &mut [machine],
        || time.get(),
        |until: Time| {
            time.set(until);
            if until > end { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        },
    );
}

/// Mean frequency as a share of the highest, share of late packets, and frequency changes per second.
fn result(world: &Rc<RefCell<World>>) -> (f64, f64, f64) {
    let world = world.borrow();
    let seconds = world.now as f64 / 1e9;
    (
        world.hertz_nanos / world.now as f64 / 3e9,
        world.late as f64 / world.judged.max(1) as f64,
        world.stalls as f64 / seconds,
    )
}

/// 30,000 cycles take 10 us at 3 GHz, so the core handles at most 100,000 packets per second.
const CYCLES: f64 = 30_000.0;
const FULL: f64 = 100_000.0;

#[test]
fn a_latency_goal_is_held_at_a_third_less_than_the_highest_frequency() {
    for load in [0.1, 0.2, 0.3, 0.4, 0.5] {
        for seed in [1, 2, 3, 0xdead] {
            for traffic in [Traffic::Steps(vec![(0.0, load * FULL)]), Traffic::OnOff(load * FULL, 2.0)] {
                let world = World::new(traffic.clone(), CYCLES, seed);
                let mut machine = steered(&world, goal(Some("p99=500us")), Judge::Loop);
                during(&mut machine, 0.0, 60.0);
                let (mean, late, changes) = result(&world);
                println!("{load} {traffic:?}: {mean:.2} of 3 GHz, {:.3} % late, {changes:.2} changes/s", late * 100.0);
                assert!(mean <= 0.65, "{load} {traffic:?} {seed}: {mean}");
                assert!(late <= 0.01, "{load} {traffic:?} {seed}: {late}");
                assert!(changes < 3.0, "{load} {traffic:?} {seed}: {changes}");
                assert_eq!(world.borrow().lost, 0);
            }
        }
    }
}

/// The core handles at most 5,000 packets per second. At half the load, 10 ms have 25 packets, so a span in which the
/// core is always busy is often just a burst.
#[test]
fn bursts_of_few_packets_that_are_in_time_do_not_raise_the_frequency() {
    const FEW: f64 = 5_000.0;
    let steps = vec![(0.0, 0.1), (6.0, 0.3), (12.0, 0.5), (18.0, 0.2), (24.0, 0.4), (30.0, 0.1), (36.0, 0.3)];
    let steps = Traffic::Steps(steps.into_iter().map(|(at, load)| (at, load * FEW)).collect());
    for traffic in [Traffic::Steps(vec![(0.0, 0.3 * FEW)]), Traffic::OnOff(0.5 * FEW, 2.0), steps] {
        for seed in [1, 2, 3, 0xdead] {
            let world = World::new(traffic.clone(), 600_000.0, seed);
            world.borrow_mut().goal = Nanos::from_millis(10);
            let mut machine = steered(&world, goal(Some("p99=10ms")), Judge::Loop);
            during(&mut machine, 0.0, 40.0);
            let (mean, late, changes) = result(&world);
            println!("{traffic:?}: {mean:.2} of 3 GHz, {:.3} % late, {changes:.2} changes/s", late * 100.0);
            assert!(mean <= 0.65, "{traffic:?} {seed}: {mean}");
            assert!(late <= 0.01, "{traffic:?} {seed}: {late}");
            assert!(changes < 3.0, "{traffic:?} {seed}: {changes}");
        }
    }
}

#[test]
fn steps_of_the_load_are_followed() {
    let steps = vec![(0.0, 0.1), (10.0, 0.5), (20.0, 0.9), (30.0, 0.2), (40.0, 0.0), (50.0, 0.4)];
    let steps = steps.into_iter().map(|(at, load)| (at, load * FULL)).collect();
    let world = World::new(Traffic::Steps(steps), CYCLES, 7);
    let mut machine = steered(&world, goal(Some("p99=500us")), Judge::Loop);
    let mut at = |from: f64, to: f64| {
        during(&mut machine, from, to);
        world.borrow().frequency
    };
    assert_eq!(at(0.0, 9.9), mhz(800));
    assert_eq!(at(9.9, 19.9), mhz(1_800));
    assert_eq!(at(19.9, 29.9), mhz(3_000));
    // The load stepped to 90 % while the core ran at 1.8 GHz. The packets that this delayed use up the goal's late
    // budget, so the policy waits before it tries a lower frequency again.
    at(29.9, 59.9);
    let (_, late, _) = result(&world);
    assert!(late <= 0.01, "{late}");
}

#[test]
fn idle_and_load_are_told_apart_by_packets_within_100_ms() {
    for seed in 1..6 {
        let world = World::new(Traffic::OnOff(2_000.0, 2.0), CYCLES, seed);
        world.borrow_mut().tells = false;
        let cost = Judge::Packets(PacketCost::default());
        let mut machine = steered(&world, goal(None), cost);
        let (mut late, mut switches, mut slow_under_load) = (0, 0, 0);
        let mut told = Phase::Unknown;
        for step in 0..12_000u64 {
            let at = step * 10_000_000;
            machine.poll(Instant::from_nanos(at));
            let truly = if (at / (2 * SECOND)).is_multiple_of(2) { Phase::Load } else { Phase::Idle };
            let since = at % (2 * SECOND);
            let phase = machine.controller().phase();
            if since == 100_000_000 && at > SECOND {
                switches += 1;
                late += u64::from(phase != truly);
            }
            if phase != told {
                told = phase;
            }
            // The core has only ever had this load, so it is unknown whether a lower frequency would suffice.
            let slow = world.borrow().frequency < mhz(3_000);
            slow_under_load += u64::from(truly == Phase::Load && since >= 100_000_000 && slow);
        }
        assert!(switches >= 58 && late == 0, "{late} of {switches}");
        assert_eq!(slow_under_load, 0, "{slow_under_load} looks");
        let (mean, ..) = result(&world);
        assert!(mean < 0.75, "{mean}");
    }
}

#[test]
fn a_part_of_the_learned_load_gets_a_part_of_the_frequency_and_loses_nothing() {
    let steps = Traffic::Steps(vec![(0.0, 0.9 * FULL), (5.0, 0.3 * FULL), (15.0, 0.9 * FULL)]);
    let world = World::new(steps, CYCLES, 3);
    world.borrow_mut().tells = false;
    let mut machine = steered(&world, goal(None), Judge::Packets(PacketCost::default()));
    during(&mut machine, 0.0, 4.9);
    assert_eq!(world.borrow().frequency, mhz(3_000), "nothing less was ever shown to suffice");
    during(&mut machine, 4.9, 14.9);
    assert_eq!(world.borrow().frequency, mhz(1_800));
    during(&mut machine, 14.9, 20.0);
    assert_eq!((world.borrow().frequency, world.borrow().lost), (mhz(3_000), 0));
}

#[test]
fn a_firmware_limit_is_noticed_and_planned_with() {
    let world = World::new(Traffic::Steps(vec![(0.0, 0.6 * FULL)]), CYCLES, 5);
    let mut machine = steered(&world, goal(Some("p99=500us")), Judge::Loop);
    during(&mut machine, 0.0, 10.0);
    world.borrow_mut().ceiling = mhz(2_200);
    during(&mut machine, 10.0, 20.0);
    let asked = world.borrow().asked.clone();
    let above = asked.iter().filter(|(at, f)| *at > 10 * SECOND && *f > mhz(2_200)).count();
    assert_eq!((machine.controller().in_force().ceiling, above), (mhz(2_200), 0));
    world.borrow_mut().ceiling = mhz(3_000);
    world.borrow_mut().traffic = Traffic::Steps(vec![(0.0, 0.95 * FULL)]);
    during(&mut machine, 20.0, 30.0);
    assert_eq!(world.borrow().frequency, mhz(3_000));
}

#[test]
fn the_figures_of_a_span_are_those_of_its_end_without_those_of_its_beginning() {
    let world = World::new(Traffic::Steps(vec![(0.0, 0.1 * FULL), (10.0, 0.5 * FULL)]), CYCLES, 5);
    let mut machine = steered(&world, goal(Some("p99=500us")), Judge::Loop);
    during(&mut machine, 0.0, 10.0);
    let then = machine.controller().figures();
    during(&mut machine, 10.0, 20.0);
    let now = machine.controller().figures();
    let part = now.since(&then);
    assert_eq!((part.span + then.span, part.wishes + then.wishes), (now.span, now.wishes));
    assert_eq!(part.packets.unwrap() + then.packets.unwrap(), now.packets.unwrap());
    assert_eq!(part.late.unwrap().judged + then.late.unwrap().judged, now.late.unwrap().judged);
    assert!(part.mean_frequency() > now.mean_frequency() && now.mean_frequency() > then.mean_frequency());
    assert!(part.busy_ppm() > then.busy_ppm(), "{part:?} {then:?}");
    assert_eq!(now.since(&now).busy_ppm(), None, "nothing was observed");
}

#[test]
fn the_blind_get_the_highest() {
    let world = World::new(Traffic::Steps(vec![(0.0, 0.1 * FULL)]), CYCLES, 5);
    let mut machine = steered(&world, goal(None), Judge::Loop);
    during(&mut machine, 0.0, 5.0);
    assert_eq!(world.borrow().frequency, mhz(800));
    world.borrow_mut().is_blind = true;
    during(&mut machine, 5.0, 7.0);
    assert_eq!(world.borrow().frequency, mhz(3_000));
    world.borrow_mut().is_blind = false;
    during(&mut machine, 7.0, 9.0);
    assert_eq!(world.borrow().frequency, mhz(800));
}

#[test]
fn other_policies_are_obeyed() {
    let world = World::new(Traffic::OnOff(1_000.0, 1.0), CYCLES, 5);
    let policy = Outside::TwoLevel(TwoLevel::new(&pstates()));
    let mut machine = steered(&world, policy, Judge::Packets(PacketCost::default()));
    during(&mut machine, 0.0, 0.9);
    assert_eq!(world.borrow().frequency, mhz(3_000));
    during(&mut machine, 0.9, 1.2);
    assert_eq!(world.borrow().frequency, mhz(800));
    let slots = [policy::frequency::outside::Slot { from: Nanos::ZERO, frequency: mhz(1_200) }];
    let day = Outside::TimeOfDay(TimeOfDay::new(&slots, Nanos::ZERO).unwrap());
    let mut machine = steered(&world, day, Judge::Nothing);
    let step = machine.poll(Instant::from_nanos(2 * SECOND));
    assert_eq!(step, Step::Applied { wanted: mhz(1_200), reason: Reason::Begin, acted: Acted::InForce });
    assert_eq!(machine.controller().phase(), Phase::Unknown);
}

#[test]
fn a_counter_that_starts_anew_is_no_load() {
    let (mut pace, at) = (Pace::new(goal(None), Judge::Loop, HIGHEST), |ms: u64| Instant::from_nanos(ms * MHZ));
    let reading = |ms: u64, busy: u64| Reading {
        taken: at(ms),
        seen: CoreSeen { busy: Some(Nanos::from_micros(busy)), ..CoreSeen::default() },
    };
    pace.decide(at(0), &reading(0, 5_000));
    pace.decide(at(10), &reading(10, 10_000));
    assert_eq!(pace.occupancy(), Some(Occupancy::Share(500_000)));
    let decision = pace.decide(at(20), &reading(20, 100));
    assert_eq!((pace.phase(), pace.occupancy()), (Phase::Unsure, Some(Occupancy::Unsure(Unsure::Silent))));
    assert_eq!(decision.reason, Reason::Unsure(Unsure::Silent));
}
