//! A receive queue with NAPI deferral, whose polls and application share one CPU, in virtual time.
//!
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use policy::Goal;
use policy::moderation::{Delays, Moderation, Profile};
use steer::moderation::{Moderate, QueueSeen, Wish};
use steer::{Acted, Actuator, Blind, Machine, Reading, Sensor, Standing};
use units::{Instant, Nanos, Simulated};

type Time = Instant<Simulated>;

pub const US: f64 = 1e3;
const SECOND: f64 = 1e9;

/// What takes CPU time, in nanoseconds.
const INTERRUPT: f64 = 3.0 * US;
const POLL: f64 = 1.5 * US;
const PACKET: f64 = 0.5 * US;
const WAKE: f64 = 2.0 * US;

/// The receive queue's traffic.
#[derive(Clone, Copy, Debug)]
pub enum Load {
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
pub struct World {
    pub load: Load,
    /// CPU time of the application for a packet, in nanoseconds.
    pub work: f64,
    /// CPU time that a timer costs when it is set and fires, in nanoseconds.
    pub timer: f64,
    /// Stalls of the machine: how many a second, and their mean length in nanoseconds.
    pub stalls: (f64, f64),
    /// A time, from one second to another, in which the CPU takes so many times as long.
    pub slow: Option<(f64, f64, f64)>,
}

/// A timer costs what an interrupt costs, and the machine seldom stalls.
pub const BARE: (f64, (f64, f64)) = (3.0 * US, (0.2, 500.0 * US));
/// A timer is set through the hypervisor and wakes a thread, and the hypervisor runs others.
pub const GUEST: (f64, (f64, f64)) = (12.0 * US, (20.0, 1_000.0 * US));

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
        let is_slow = |(from, to, _): &(f64, f64, f64)| (from * SECOND..to * SECOND).contains(&begins);
        let takes = takes * self.world.slow.filter(is_slow).map_or(1.0, |(.., factor)| factor);
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
pub struct Outcome {
    /// The delays of all packets, in nanoseconds: those that may have been, with the timer.
    delays: Vec<f64>,
    /// CPU time a packet, in microseconds.
    pub cost: f64,
    /// Polls a packet.
    pub polls: f64,
    /// Second and microseconds of each timer that was set.
    pub applied: Vec<(f64, u32)>,
}

impl Outcome {
    /// Share of the packets that may have been later than the goal.
    pub fn late(&self, goal: Goal) -> f64 {
        let limit = goal.latency.as_nanos() as f64;
        let late = self.delays.len() - self.delays.partition_point(|delay| *delay <= limit);
        late as f64 / self.delays.len().max(1) as f64
    }

    pub fn show(&self, goal: Goal) -> String {
        format!("late {:.2} %, {:.2} us and {:.2} polls a packet", 100.0 * self.late(goal), self.cost, self.polls)
    }
}

/// A run, with its warm-up and what is measured in seconds.
pub fn run(
    world: World,
    policy: Moderation<Simulated>,
    goal: Goal,
    seed: u64,
    (warm_up, measured): (u64, u64),
) -> Outcome {
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
    let mut queue = queue.borrow_mut();
    let before = before.unwrap();
    let packets = (queue.packets - before.0).max(1) as f64;
    let mut delays = std::mem::take(&mut queue.delays);
    delays.sort_unstable_by(f64::total_cmp);
    Outcome {
        delays,
        cost: (queue.busy - before.2) / packets / US,
        polls: (queue.polls - before.1) as f64 / packets,
        applied: std::mem::take(&mut queue.applied),
    }
}
