//! The goal's policy against fixed timers, in virtual time: a receive queue with NAPI deferral, whose polls and
//! application share one CPU.
//!
//! What a poll, a timer and a packet cost, and the stalls of the machine, are about those of a small virtual machine
//! (`benches/moderate.py` on veth). As there, a packet is judged by the timer in force and the time from reception to the
//! application's read. So a timer costs CPU time and delay, and the polls that it saves make the application earlier.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

use policy::Goal;
use policy::moderation::{
    Delays, Direction, GoalModeration, GoalModerationConfig, Limits, Moderation, Profile, Static,
};
use steer::moderation::{Moderate, QueueSeen, Wish};
use steer::{Acted, Actuator, Blind, Machine, Reading, Sensor, Standing};
use units::{Instant, Nanos, Simulated};

type Time = Instant<Simulated>;

const US: f64 = 1e3;
const SECOND: f64 = 1e9;

/// What takes CPU time, in nanoseconds.
const INTERRUPT: f64 = 3.0 * US;
const POLL: f64 = 1.5 * US;
const PACKET: f64 = 0.5 * US;
const WAKE: f64 = 2.0 * US;

/// The receive queue's traffic.
#[derive(Clone, Copy, Debug)]
enum Load {
    /// Packets a second, with exponential gaps.
    Poisson(f64),
    /// Packets a second while it is on, and for how long it is on and off, in nanoseconds.
    OnOff(f64, f64, f64),
    /// Connections that each send a request when the previous one is answered. One client serves them, in so many
    /// nanoseconds each.
    Closed(usize, f64),
}

/// What happens besides.
#[derive(Clone, Copy, Debug)]
struct World {
    load: Load,
    /// CPU time of the application for a packet, in nanoseconds.
    work: f64,
    /// CPU time that a timer costs when it is set and fires, in nanoseconds.
    timer: f64,
    /// Stalls of the machine: how many a second, and their mean length in nanoseconds.
    stalls: (f64, f64),
}

/// A timer costs what an interrupt costs, and the machine seldom stalls.
const BARE: (f64, (f64, f64)) = (3.0 * US, (0.2, 500.0 * US));
/// A timer is set through the hypervisor and wakes a thread, and the hypervisor runs others.
const GUEST: (f64, (f64, f64)) = (12.0 * US, (20.0, 1_000.0 * US));

struct Random(u64);

impl Random {
    /// From 0 to below 1 (splitmix64).
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
    fn exponential(&mut self, mean: f64) -> f64 {
        -(1.0 - self.uniform()).ln() * mean
    }
}

/// What the kernel does next about the queue.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Napi {
    /// The next packet interrupts.
    Enabled,
    /// It polls from this time on. The interrupt or the timer before it costs so much.
    Polls(f64, f64),
    /// The timer fires then.
    Waits(f64),
}

struct Queue {
    world: World,
    random: Random,
    stalling: Random,
    profile: Profile,
    /// Arrivals that are known, in order. With [`Load::Closed`], those of the requests that are under way.
    arrivals: VecDeque<f64>,
    /// The next arrival of the other loads.
    open: f64,
    /// When the client is free.
    client: f64,
    napi: Napi,
    /// Reception, and timer in force then, of packets that the application has not read.
    socket: VecDeque<(f64, f64)>,
    /// When the CPU is free.
    free: f64,
    is_asleep: bool,
    /// Begin and length of the next stall. No length yet: it is still to be drawn.
    stall: (f64, f64),
    packets: u64,
    polls: u64,
    busy: f64,
    seen: Vec<Delays>,
    /// The delays with the timer, in nanoseconds.
    delays: Vec<f64>,
    /// Second and microseconds of each timer that was set.
    applied: Vec<(f64, u32)>,
}

impl Queue {
    fn new(world: World, seed: u64) -> Self {
        let mut random = Random(seed);
        let mut arrivals = VecDeque::new();
        if let Load::Closed(connections, each) = world.load {
            arrivals.extend((0..connections).map(|n| n as f64 * each));
        }
        let open = if let Load::Closed(..) = world.load { f64::MAX } else { random.exponential(10.0 * US) };
        let mut stalling = Random(!seed);
        let stall = (stalling.exponential(SECOND / world.stalls.0), 0.0);
        Self {
            world,
            random,
            stalling,
            profile: Profile::IMMEDIATE,
            arrivals,
            open,
            client: 0.0,
            napi: Napi::Enabled,
            socket: VecDeque::new(),
            free: 0.0,
            is_asleep: true,
            stall,
            packets: 0,
            polls: 0,
            busy: 0.0,
            seen: Vec::new(),
            delays: Vec::new(),
            applied: Vec::new(),
        }
    }

    /// Makes the arrivals up to `until` known.
    fn arrive(&mut self, until: f64) {
        while self.open <= until {
            let at = self.open;
            self.arrivals.push_back(at);
            self.open += match self.world.load {
                Load::Poisson(rate) => self.random.exponential(SECOND / rate),
                Load::OnOff(rate, on, off) => {
                    let gap = self.random.exponential(SECOND / rate);
                    if at % (on + off) + gap < on { gap } else { gap + off }
                }
                Load::Closed(..) => unreachable!("it has no time of its own"),
            };
        }
    }

    /// The CPU works from `at` on. Returns when it has done so, behind its other work and the stalls.
    fn work(&mut self, at: f64, takes: f64) -> f64 {
        let begins = at.max(self.free);
        let mut ends = begins + takes;
        loop {
            if self.stall.1 == 0.0 {
                self.stall.1 = self.stalling.exponential(self.world.stalls.1).max(1.0);
            }
            let (began, lasts) = self.stall;
            if began >= ends {
                break;
            }
            ends += (began + lasts - began.max(begins)).max(0.0);
            self.stall = (began + lasts + self.stalling.exponential(SECOND / self.world.stalls.0), 0.0);
        }
        self.busy += takes;
        self.free = ends;
        ends
    }

    /// The queue's life up to `until`. The application works only when the kernel leaves it time.
    fn live(&mut self, until: f64) {
        loop {
            self.arrive(until);
            let next = match self.napi {
                Napi::Enabled => self.arrivals.front().copied().unwrap_or(f64::MAX),
                Napi::Polls(at, _) | Napi::Waits(at) => at,
            };
            let reads = self.socket.front().map_or(f64::MAX, |(at, _)| at.max(self.free));
            if next.max(self.free).min(reads) > until {
                break;
            }
            if next > reads {
                self.read();
                continue;
            }
            match self.napi {
                Napi::Enabled => self.napi = Napi::Polls(next, INTERRUPT),
                Napi::Waits(at) => self.napi = Napi::Polls(at, self.world.timer),
                Napi::Polls(at, before) => self.poll(at, before),
            }
        }
    }

    fn poll(&mut self, at: f64, before: f64) {
        let began = self.work(at, before + POLL);
        self.polls += 1;
        self.arrive(began);
        let timer = self.profile.timer().map_or(0.0, |timer| timer.as_nanos() as f64);
        let mut taken = 0;
        while taken < 64 && self.arrivals.front().is_some_and(|at| *at <= began) {
            self.arrivals.pop_front();
            self.work(began, PACKET);
            self.socket.push_back((began, timer));
            taken += 1;
        }
        self.packets += taken;
        self.napi = if taken == 64 {
            Napi::Polls(self.free, 0.0)
        } else if taken > 0 && timer > 0.0 {
            Napi::Waits(self.free + timer)
        } else {
            Napi::Enabled
        };
    }

    fn read(&mut self) {
        let Some((reception, timer)) = self.socket.pop_front() else { return };
        let wake = if std::mem::take(&mut self.is_asleep) { WAKE } else { 0.0 };
        let begins = self.work(reception, wake);
        let after = begins - reception;
        let bucket = Nanos::from_micros((after / US).ceil() as u64);
        self.seen.push(Delays { packets: 1, shortest: bucket, longest: bucket });
        self.delays.push(after + timer);
        let done = self.work(begins, self.world.work);
        self.is_asleep = self.socket.is_empty();
        if let Load::Closed(_, each) = self.world.load {
            self.client = self.client.max(done) + each;
            self.arrivals.push_back(self.client);
        }
    }
}

struct Eye(Rc<RefCell<Queue>>);

impl Sensor<Simulated> for Eye {
    type Seen = QueueSeen;
    fn read(&mut self, now: Time) -> Result<Reading<QueueSeen, Simulated>, Blind> {
        let mut queue = self.0.borrow_mut();
        let seen = QueueSeen {
            packets: Some(queue.packets),
            bytes: Some(queue.packets * 100),
            polls: Some(queue.polls),
            full_polls: Some(0),
            after: Some(std::mem::take(&mut queue.seen)),
            beside: Some(Nanos::ZERO),
        };
        Ok(Reading { taken: now, seen })
    }
}

struct Hand(Rc<RefCell<Queue>>);

impl Actuator<Simulated> for Hand {
    type Setting = Wish;
    type InForce = Profile;
    fn set(&mut self, now: Time, wish: &Wish) -> Acted<Profile> {
        let mut queue = self.0.borrow_mut();
        queue.profile = wish.profile;
        queue.applied.push((now.as_nanos() as f64 / SECOND, wish.profile.usecs));
        Acted::InForce
    }
    fn look(&mut self, _: Time) -> Acted<Profile> {
        Acted::InForce
    }
    fn stands(&mut self) -> Standing {
        Standing::AsLeft
    }
}

/// What a run showed after its warm-up.
struct Outcome {
    /// Share of the packets that may have been later than the goal.
    late: f64,
    /// CPU time a packet, in microseconds.
    cost: f64,
    /// Polls a packet.
    polls: f64,
    applied: Vec<(f64, u32)>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "late {:.2} %, {:.2} us and {:.2} polls a packet", 100.0 * self.late, self.cost, self.polls)
    }
}

/// A run, with its warm-up and what is measured in seconds.
fn run(world: World, policy: Moderation<Simulated>, goal: Goal, seed: u64, (warm_up, measured): (u64, u64)) -> Outcome {
    let queue = Rc::new(RefCell::new(Queue::new(world, seed)));
    let controller = Moderate::new(policy, goal, Profile::IMMEDIATE, false);
    let mut machine = Machine::new(Eye(queue.clone()), controller, Hand(queue.clone()));
    let mut now = Instant::from_nanos(0);
    let mut before = None;
    while now.as_nanos() < (warm_up + measured) * 1_000_000_000 {
        machine.poll(now);
        now = machine.poll_at().unwrap();
        let mut queue = queue.borrow_mut();
        queue.live(now.as_nanos() as f64);
        if before.is_none() && now.as_nanos() >= warm_up * 1_000_000_000 {
            before = Some((queue.packets, queue.polls, queue.busy));
            queue.delays.clear();
        }
    }
    let queue = queue.borrow();
    let before = before.unwrap();
    let packets = (queue.packets - before.0).max(1) as f64;
    let limit = goal.latency.as_nanos() as f64;
    let late = queue.delays.iter().filter(|delay| **delay > limit).count() as f64;
    Outcome {
        late: late / queue.delays.len().max(1) as f64,
        cost: (queue.busy - before.2) / packets / US,
        polls: (queue.polls - before.1) as f64 / packets,
        applied: queue.applied.clone(),
    }
}

fn ours(goal: Goal) -> Moderation<Simulated> {
    Moderation::Goal(GoalModeration::new(GoalModerationConfig {
        goal: Some(goal),
        direction: Direction::Rx,
        loss: None,
        limits: Limits { usecs: 1_000_000, usecs_step: 1, frames: 0 },
        ends_empty: true,
        remaining: None,
    }))
}

/// No timer, and then in steps of about a third.
const TIMERS: [u32; 12] = [0, 10, 15, 20, 30, 40, 50, 65, 80, 125, 200, 280];

#[test]
fn holds_what_a_fixed_timer_holds_at_about_its_cost() {
    let seed = 7;
    let loads = [
        (Load::Poisson(1e3), 2.0),
        (Load::Poisson(10e3), 2.0),
        (Load::Poisson(30e3), 2.0),
        (Load::Poisson(90e3), 2.0),
        (Load::Poisson(90e3), 6.0),
        (Load::Poisson(200e3), 1.5),
        (Load::OnOff(100e3, 10e6, 40e6), 2.0),
        (Load::Closed(20, 9.0 * US), 7.0),
        (Load::Closed(1, 9.0 * US), 7.0),
    ];
    let mut lost = Vec::new();
    let mut all = 0;
    for (load, work) in loads {
        for (machine, (timer, stalls)) in [("bare", BARE), ("guest", GUEST)] {
            let world = World { load, work: work * US, timer, stalls };
            for goal in ["p99=50us", "p99=100us", "p99=300us", "p99.9=300us"] {
                let goal: Goal = goal.parse().unwrap();
                let allowed = f64::from(goal.quantile.above_ppm()) / 1e6;
                let fixed = TIMERS.map(|usecs| {
                    let profile = if usecs == 0 { Profile::IMMEDIATE } else { Profile::eqe(usecs, 0) };
                    (usecs, run(world, Moderation::Static(Static::new(profile)), goal, seed, (4, 8)))
                });
                let our = run(world, ours(goal), goal, seed, (4, 8));
                let holds = fixed.iter().filter(|(_, outcome)| outcome.late <= allowed);
                let best = holds.min_by(|a, b| a.1.cost.total_cmp(&b.1.cost));
                let what = match best {
                    // Nothing holds it: then not much later than without any timer.
                    None if our.late > fixed[0].1.late.max(allowed) * 1.6 => "LATER",
                    None => "none",
                    Some(_) if our.late > allowed * 1.05 => "MISSED",
                    Some((_, best)) if our.cost > 1.1 * best.cost => "DEARER",
                    Some(_) => "ok",
                };
                // However it ends, it is not far from what can be had.
                let best_cost = best.map_or(f64::MAX, |(_, best)| best.cost);
                assert!(our.late <= 2.0 * fixed[0].1.late.max(allowed) && our.cost <= 1.5 * best_cost, "{our}");
                all += 1;
                let (timer, best) = best.unwrap_or(&fixed[0]);
                let line = format!(
                    "{what:6} {load:?} {work} us {machine} {goal}: {our}, {:.2} x; best {timer} us: {best}; off {}; last {:?}",
                    our.cost / best.cost,
                    fixed[0].1,
                    &our.applied[our.applied.len().saturating_sub(6)..],
                );
                println!("{line}");
                if !["ok", "none"].contains(&what) {
                    lost.push(line);
                }
            }
        }
    }
    // Seeds 7 to 10 lose 2 to 5.
    assert!(lost.len() <= 5, "{} of {all}:\n{}", lost.len(), lost.join("\n"));
}
