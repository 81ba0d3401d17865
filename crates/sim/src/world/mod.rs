//! The world: traffic, a NIC, cores and their policies, in simulated time.
//!
//! ```text
//!   traffic ──► Port: wire, bus, queues ──► interrupt ──► Core: the way back from rest
//!                  ▲        │ fetch                          │
//!                  └─ send ─┴──────── User or Kernel ◄───────┘      all counted by Tally and Ledger
//! ```
//! Each component that wants to act has a slot in the [`Agenda`]. A worker that polls continues by itself until another
//! component's turn comes, so a busy loop costs no events. A frame concerns only its own queue and worker. So the work
//! per frame does not grow with the number of workers, except for the logarithm in the agenda.
//!
//! **Limits.** There is one NIC with one port. A worker processes a whole batch in one step and so runs ahead of the
//! others by the length of the batch; frames that two workers send at the same time leave in the order of the steps. A
//! client's response counts as received when its last bit has left the NIC. The receive path loses frames only if
//! descriptors run out.

mod core;
mod kernel;
mod ledger;
mod measure;
mod metronome;
mod port;
mod profiles;
mod queue;
mod report;
mod tally;
mod user;

pub use kernel::WEIGHT;
pub use user::BURST;

use policy::frequency::{
    Fixed, Frequency, FrequencyPolicy as _, GoalFrequency, GoalFrequencyConfig, L3fwdPower, Platform, PowerTable,
    TwoLevel,
};
use policy::moderation::{
    self, Direction, GoalModeration, GoalModerationConfig, Limits, NetDim, PeriodMode, Profile, Static,
};
use policy::wait::{Adaptive, AdaptiveConfig, IdleState, Mode, Policy, Poll};
use policy::{Goal, LossBound};
use units::{Hertz, Nanos, Simulated};

use self::core::{Core, Parts};
use crate::At;
use crate::engine::{Agenda, Id};
use crate::hw::ModelError;
use crate::hw::aspm::Aspm;
use crate::hw::cpufreq::{Governor, Load};
use crate::hw::cstate::CState;
use crate::hw::interrupt::DelayFrom;
use crate::hw::pstate::PState;
use crate::hw::scheduler::{Class, Scheduler};
use crate::hw::timer::Timer;
use crate::hw::vcpu::Vcpu;
use crate::outcome::Outcome;
use crate::random::Random;
use crate::scenario::{FrequencyPlan, KernelModel, ModerationPlan, Scenario, Wait, Worker as Work};
use crate::traffic::Source;
use kernel::Kernel;
use ledger::Ledger;
use metronome::Thread;
use port::{Feed, Port};
use queue::QueuePair;
use tally::Tally;
use user::{HoldOff, Scheme, User};

/// The seed for measuring the wake-up costs before the simulation. It does not depend on the scenario's seed.
const MEASURED: u64 = 0;
/// Number of the first random stream for traffic; each `[[traffic]]` table has one stream.
const TRAFFIC: u64 = 1_000;
/// Number of the port's random stream.
const PORT: u64 = 1;
/// Number of the first random stream for cores.
const CORES: u64 = 1_000_000;

/// Switches a core between two frequencies at fixed times, without a policy.
#[derive(Clone, Debug)]
pub struct Toggle {
    /// The next frequency, and the one after it.
    pub next: (Hertz, Hertz),
    /// When the next change is due.
    pub at: At,
    /// How long each frequency lasts.
    pub every: Nanos,
}

impl Toggle {
    /// The frequency to request at `now`, if a change is due.
    fn due(&mut self, now: At) -> Option<Hertz> {
        if now < self.at {
            return None;
        }
        let (wanted, other) = self.next;
        self.next = (other, wanted);
        // A core that slept through several changes carries out only one.
        while self.at <= now {
            self.at = self.at + self.every;
        }
        Some(wanted)
    }
}

/// What changes a core's frequency if no policy does.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // one per core
pub(crate) enum Scaling {
    Toggle(Toggle),
    Governor(Governor),
}

impl Scaling {
    /// Requests the frequency that is due at `now`, if any. `packets` holds NAPI's packet counts, which some governors
    /// need.
    fn steer(&mut self, now: At, core: &mut Core, packets: Load) {
        let wanted = match self {
            Self::Toggle(toggle) => toggle.due(now),
            Self::Governor(governor) => governor.decide(now, core.frequency(), &Load { idle: core.idle(), ..packets }),
        };
        if let Some(wanted) = wanted {
            core.request(now, wanted);
        }
    }
}

/// One core's worker.
#[derive(Debug)]
enum Worker {
    User(Box<User>),
    Kernel(Box<Kernel>),
}

/// The world of one scenario.
#[derive(Debug)]
pub struct World {
    agenda: Agenda,
    port: Port,
    tally: Tally,
    workers: Vec<Worker>,
    /// Whether the workers are notified of sent frames.
    with_tx: bool,
    /// Which queues can raise interrupts.
    armed: Vec<bool>,
    armed_count: usize,
    end: At,
    /// Amount of simulation work: events, workers' steps between events, and queue checks.
    steps: u64,
}

/// Runs a scenario to its end. `seed` replaces the scenario's own seed if it is given.
///
/// The same scenario and seed give exactly the same outcome.
pub fn run(scenario: &Scenario, seed: Option<u64>) -> Result<Outcome, ModelError> {
    let seed = seed.unwrap_or(scenario.seed);
    let mut world = World::new(scenario, seed)?;
    world.run();
    Ok(world.finish(scenario, seed))
}

/// Calls `each` for every frame that arrives before `end`, in order: with its queue, its arrival time, the time when it
/// is in memory, and the size of its answer. With the same seed, [`run`] sees the same frames, unless the traffic waits
/// for answers.
pub(crate) fn arrivals(
    scenario: &Scenario,
    seed: u64,
    end: At,
    each: impl FnMut(usize, At, At, u32),
) -> Result<(), ModelError> {
    port(scenario, seed)?.arrivals(end, each);
    Ok(())
}

/// Whether the workers are notified of sent frames.
const fn with_tx(scenario: &Scenario) -> bool {
    matches!(scenario.worker, Work::Kernel { .. })
}

/// Makes the NIC with its queues and its traffic.
fn port(scenario: &Scenario, seed: u64) -> Result<Port, ModelError> {
    let nic = &scenario.host.nic;
    let feeds = scenario.traffic.iter().enumerate().map(|(number, stream)| {
        let random = Random::stream(seed, TRAFFIC + number as u64);
        let source = Source::new(&stream.traffic, nic.link.rate, random, stream.records.clone());
        Feed::new(source, stream.traffic.queue, stream.answer)
    });
    let lazy = !with_tx(scenario);
    let pairs =
        (0..scenario.queues as usize).map(|number| QueuePair::new(number, nic, lazy)).collect::<Result<_, _>>()?;
    let aspm = scenario.host.aspm.map(Aspm::new).transpose()?;
    Port::new(nic.clone(), pairs, feeds.collect(), aspm, Random::stream(seed, PORT))
}

impl World {
    /// Builds the world at time 0.
    fn new(scenario: &Scenario, seed: u64) -> Result<Self, ModelError> {
        let from = At::ORIGIN + scenario.warm_up;
        let window = (from, from + scenario.duration);
        let queues = scenario.queues as usize;
        let port = port(scenario, seed)?;
        let goal = scenario.goal.map(|goal| goal.latency);
        let cores = scenario.worker.cores() as usize;
        let mut world = Self {
            agenda: Agenda::new(1 + 2 * queues + cores),
            port,
            tally: Tally::new(window, queues, goal),
            workers: Vec::with_capacity(cores),
            with_tx: with_tx(scenario),
            armed: vec![false; queues],
            armed_count: 0,
            end: window.1,
            steps: 0,
        };
        for number in 0..cores {
            let mut random = Random::stream(seed, CORES + number as u64);
            // Cores begin at random times within 50 ns, less than the shortest polling loop takes.
            let begins = At::ORIGIN + random.uniform(Nanos::ZERO, Nanos::from_nanos(50));
            let worker = worker(scenario, number, window, random, &mut world.port)?;
            world.workers.push(worker);
            world.agenda.set(world.worker_id(number), Some(begins));
        }
        Ok(world)
    }

    // Ids: the port, then each queue's interrupt, then each queue's sent frames, then the workers. So among events at
    // the same time, a frame comes before its interrupt, and the interrupt before a poll.
    fn interrupt_id(&self, queue: usize) -> Id {
        1 + queue
    }
    fn sent_id(&self, queue: usize) -> Id {
        1 + self.armed.len() + queue
    }
    fn worker_id(&self, worker: usize) -> Id {
        1 + 2 * self.armed.len() + worker
    }

    fn run(&mut self) {
        let queues = self.armed.len();
        while let Some((now, id)) = self.agenda.next().filter(|(now, _)| *now < self.end) {
            self.steps += 1;
            match id {
                0 => self.port.fetch(now, &mut self.tally),
                id if id <= queues => self.interrupt(id - 1, now),
                id if id <= 2 * queues => {
                    self.port.queues[id - 1 - queues].announce(now);
                    self.look_at(id - 1 - queues);
                }
                id => {
                    self.work(id - 1 - 2 * queues, now);
                    continue;
                }
            }
            self.tell();
        }
    }

    /// Lets the worker act until it is another component's turn.
    fn work(&mut self, number: usize, now: At) {
        let (id, mut now) = (self.worker_id(number), now);
        self.agenda.set(id, None);
        loop {
            let next = match &mut self.workers[number] {
                Worker::User(user) => user.act(now, &mut self.port, &mut self.tally),
                Worker::Kernel(kernel) => kernel.act(now, &mut self.port, &mut self.tally),
            };
            for queue in (number..self.armed.len()).step_by(self.workers.len()) {
                if self.armed[queue] || self.port.queues[queue].is_armed() {
                    self.look_at(queue);
                }
            }
            self.tell();
            if next >= self.end || !self.agenda.would_be_next(id, next) {
                self.agenda.set(id, Some(next));
                return;
            }
            self.steps += 1;
            now = next;
        }
    }

    /// Lets the interrupt of `queue` fire.
    fn interrupt(&mut self, queue: usize, now: At) {
        self.port.queues[queue].fire(now, &self.tally);
        let number = queue % self.workers.len();
        let acts_at = match &mut self.workers[number] {
            Worker::User(user) => user.interrupted(now),
            Worker::Kernel(kernel) => kernel.interrupted(queue, now),
        };
        if let Some(at) = acts_at {
            self.agenda.set(self.worker_id(number), Some(at));
        }
        self.look_at(queue);
    }

    /// Notifies the workers whose frames have arrived, and schedules the port if a worker waits for the next frame. The
    /// cost depends on the number of frames, not on the number of queues.
    fn tell(&mut self) {
        while let Some(queue) = self.port.told.pop() {
            self.look_at(queue);
            let number = queue % self.workers.len();
            let Worker::User(user) = &self.workers[number] else { continue };
            let id = self.worker_id(number);
            if let Some(at) = user.sees(queue, &self.port)
                && self.agenda.get(id).is_none_or(|due| at < due)
            {
                self.agenda.set(id, Some(at));
            }
        }
        let wanted = self.armed_count > 0 || self.port.is_watched();
        self.agenda.set(0, if wanted { self.port.next_due() } else { None });
    }

    /// Updates the slots of `queue` in the agenda: its interrupt and its next sent frame.
    fn look_at(&mut self, queue: usize) {
        self.steps += 1;
        let pair = &self.port.queues[queue];
        let (armed, interrupt) = (pair.is_armed(), pair.interrupt_at(self.with_tx));
        let sent = if self.with_tx { pair.next_completion() } else { None };
        self.armed_count = self.armed_count + usize::from(armed) - usize::from(self.armed[queue]);
        self.armed[queue] = armed;
        self.agenda.set(self.interrupt_id(queue), interrupt);
        self.agenda.set(self.sent_id(queue), sent);
    }

    fn finish(mut self, scenario: &Scenario, seed: u64) -> Outcome {
        self.port.finish(self.end, &mut self.tally);
        let mut moderated = Vec::new();
        let mut cores = Vec::with_capacity(self.workers.len());
        for worker in self.workers {
            cores.push(match worker {
                Worker::User(mut user) => {
                    moderated.extend(user.finish(self.end, &self.tally));
                    report::of_user(*user, self.end)
                }
                Worker::Kernel(mut kernel) => {
                    moderated.extend(kernel.finish(&mut self.tally));
                    report::of_kernel(*kernel, self.end)
                }
            });
        }
        moderated.sort_by_key(|queue| queue.queue);
        Outcome { steps: self.steps, ..report::outcome(scenario, seed, self.tally, &self.port, cores, moderated) }
    }
}

/// Makes the worker of core `number`, with its queues.
fn worker(
    scenario: &Scenario,
    number: usize,
    window: (At, At),
    mut random: Random,
    port: &mut Port,
) -> Result<Worker, ModelError> {
    let host = &scenario.host;
    let goal = scenario.goal.map(|goal| goal.latency);
    let frequency = frequency_policy(scenario, goal);
    let (first, scaling) = match (&frequency, scenario.frequency) {
        (Some(policy), _) => (policy.requested(), None),
        (None, FrequencyPlan::Toggle { low, high, every }) => {
            (high, Some(Scaling::Toggle(Toggle { next: (low, high), at: At::ORIGIN + every, every })))
        }
        (None, FrequencyPlan::Governor(model, range)) => {
            let governor = Governor::new(model, range, is_realtime(scenario));
            let first = governor.requested();
            (first, (!governor.is_fixed()).then_some(Scaling::Governor(governor)))
        }
        (None, _) => (host.processor.base, None),
    };
    let phase = At::ORIGIN + random.uniform(Nanos::ZERO, host.processor.pstates.period);
    let pstate = PState::new(host.processor.pstates, first, phase)?;
    let ledger = Ledger::new(&host.processor.power, &host.processor.cstates, window, pstate.frequency());
    let core = |pstate: PState, ledger: Ledger, random: Random| -> Result<Core, ModelError> {
        Ok(Core::new(Parts {
            pstate,
            cstate: CState::new(host.processor.cstates.clone())?,
            scheduler: Scheduler::new(host.scheduler)?,
            vcpu: host.vcpu.map(Vcpu::new),
            timer: Timer::new(host.timer),
            delivery: host.processor.delivery,
            handling: host.handling,
            affinity: host.affinity,
            latency_limit: host.latency_limit,
            tick: host.tick,
            ledger,
            disturbance: host.disturbance,
            random,
            window,
        }))
    };
    // The wake-up costs are measured on a second core of the same kind, which is then dropped.
    let known = match scenario.worker {
        Work::User { knows: true, .. } => {
            let pstate = PState::new(host.processor.pstates, first, phase)?;
            let ledger = Ledger::new(&host.processor.power, &host.processor.cstates, window, first);
            let random = Random::stream(MEASURED, number as u64);
            Some(measure::wake_costs(core(pstate, ledger, random)?, &host.nic)?)
        }
        _ => None,
    };
    let core = core(pstate, ledger, random)?;
    let (cores, all) = (scenario.worker.cores() as usize, scenario.queues as usize);
    let queues = (number..all).step_by(cores);
    Ok(match scenario.worker {
        Work::User { wait, interrupts, limits_idle, work, forward, stamps, .. } => {
            let (queues, scheme) = match wait {
                Wait::Metronome(model) => {
                    let queue = number % all;
                    let threads = (queue..cores).step_by(all).count() as u64;
                    (vec![queue], Scheme::Shared(Thread { model, threads, holds: false }))
                }
                wait => {
                    let mut policy = wait_policy(scenario, wait, goal, interrupts);
                    known.iter().for_each(|costs| policy.know(costs));
                    if limits_idle {
                        policy.know_idle_states(&idle_states(host));
                    }
                    (queues.collect(), Scheme::Policy(policy))
                }
            };
            let alone = scenario.worker.cores() == 1;
            let holds_off = match scenario.moderation {
                ModerationPlan::HoldOff { every } => Some(HoldOff { every, costs: KernelModel::PROGRAM }),
                _ => None,
            };
            let config = user::Config {
                queues,
                scheme,
                frequency,
                work,
                stamps,
                forward,
                scaling,
                alone,
                holds_off,
                limits_idle,
            };
            Worker::User(Box::new(User::new(config, core)))
        }
        Work::Kernel { model, stamps, .. } => {
            let queues = queues
                .map(|queue| {
                    let policy = moderation_policy(scenario, goal)?;
                    if !matches!(scenario.moderation, ModerationPlan::Fixed) {
                        port.queues[queue].program(At::ORIGIN, moderation::ModerationPolicy::profile(&policy));
                    }
                    Ok((queue, policy))
                })
                .collect::<Result<_, ModelError>>()?;
            let config = kernel::Config { queues, frequency, model, stamps, scaling };
            Worker::Kernel(Box::new(Kernel::new(config, core)))
        }
    })
}

/// The idle states that the core may use, as cpuidle describes them.
fn idle_states(host: &crate::scenario::Host) -> Vec<IdleState> {
    let cstates = &host.processor.cstates;
    let states = cstates.states[..=cstates.deepest].iter().filter(|state| state.stated_exit <= host.latency_limit);
    states.map(|state| IdleState { exit: state.stated_exit, residency: state.residency }).collect()
}

/// The limit on a worker's absence: while the worker is away, a receive ring must hold all arriving frames. They arrive
/// at the stated peak rate, or else at line rate with the traffic's shortest frames.
pub(crate) fn loss_bound(scenario: &Scenario) -> LossBound {
    let nic = &scenario.host.nic;
    let shortest = scenario.traffic.iter().flat_map(|s| s.traffic.sizes.octets()).min().copied();
    let line = nic.link.rate.frames_of(shortest.unwrap_or(crate::traffic::SHORTEST_FRAME).into());
    let peak = scenario.goal.and_then(|goal| goal.peak).unwrap_or(line);
    LossBound { descriptors: nic.rx_descriptors, peak }
}

/// Whether a FIFO thread runs on the cores: the loop, or the application to which the kernel passes packets.
fn is_realtime(scenario: &Scenario) -> bool {
    let thread = match scenario.worker {
        Work::User { .. } => true,
        Work::Kernel { model, .. } => model.application.is_some(),
    };
    thread && scenario.host.scheduler.class == Class::Fifo
}

/// The frequency policy. `None` if a governor or a toggle changes the frequency.
fn frequency_policy(scenario: &Scenario, goal: Option<Goal>) -> Option<Frequency<Simulated>> {
    let pstates = scenario.host.processor.pstates;
    Some(match scenario.frequency {
        FrequencyPlan::Fixed(frequency) => Frequency::Fixed(Fixed::new(frequency)),
        FrequencyPlan::TwoLevel(range) => Frequency::TwoLevel(TwoLevel::new(&range)),
        FrequencyPlan::L3fwdPower(range) => Frequency::L3fwdPower(L3fwdPower::new(range)),
        FrequencyPlan::Goal(range) => {
            let power = PowerTable::new(&range, |frequency| scenario.host.processor.power.active(frequency, 1_000));
            let platform =
                Platform { pstates: range, power: Some(power), sequencing: pstates.period, stall: pstates.block };
            let peak_is_stated = scenario.goal.is_some_and(|goal| goal.peak.is_some());
            let config = GoalFrequencyConfig { goal, platform, loss: Some(loss_bound(scenario)), peak_is_stated };
            let rest_of_burst = scenario.host.nic.link.spacing(longest_frame(scenario)) * (user::BURST as u64 / 2);
            Frequency::Goal(GoalFrequency::new(config).with_unseen(unseen(scenario) + rest_of_burst))
        }
        FrequencyPlan::Governor(..) | FrequencyPlan::Toggle { .. } => return None,
    })
}

/// The part of a frame's delay that a policy cannot measure, from the worker's send to the frame's last bit on the
/// wire: the NIC's fetch and the frame itself.
fn unseen(scenario: &Scenario) -> Nanos {
    let nic = &scenario.host.nic;
    let octets = longest_frame(scenario);
    nic.transmit + nic.bus_time(octets) + nic.link.spacing(octets)
}

fn longest_frame(scenario: &Scenario) -> u64 {
    let longest = scenario.traffic.iter().flat_map(|s| s.traffic.sizes.octets()).max().copied();
    u64::from(longest.unwrap_or(crate::traffic::SHORTEST_FRAME))
}

fn wait_policy(scenario: &Scenario, wait: Wait, goal: Option<Goal>, interrupts: bool) -> Policy<Simulated> {
    let loss = Some(loss_bound(scenario));
    match wait {
        // Metronome's threads share a queue and never ask this policy.
        Wait::Metronome(_) => Policy::Poll(Poll),
        Wait::Mode(Mode::Adaptive(_)) => {
            let policy = Adaptive::new(AdaptiveConfig { goal, loss, interrupts });
            Policy::Adaptive(
                policy.with_unseen(unseen(scenario), scenario.host.nic.link.spacing(longest_frame(scenario))),
            )
        }
        Wait::Mode(mode) => mode.policy(),
    }
}

fn moderation_policy(scenario: &Scenario, goal: Option<Goal>) -> Result<moderation::Moderation<Simulated>, ModelError> {
    Ok(match scenario.moderation {
        // A fixed setting may also throttle, which a profile cannot express. The queue keeps the setting itself, so
        // this profile is only reported.
        ModerationPlan::Fixed | ModerationPlan::HoldOff { .. } => {
            moderation::Moderation::Static(Static::new(nearest_profile(scenario)))
        }
        ModerationPlan::Dim { index, profiles, .. } => {
            let dim = NetDim::with_profiles(profiles, index);
            moderation::Moderation::NetDim(dim.ok_or_else(|| ModelError {
                part: "moderation",
                what: format!("DIM has no profile {index}: expected one of its table"),
            })?)
        }
        ModerationPlan::Goal => moderation::Moderation::Goal(GoalModeration::new(GoalModerationConfig {
            goal,
            direction: Direction::Rx,
            loss: Some(loss_bound(scenario)),
            limits: LIMITS,
            ends_empty: false,
            remaining: None,
        })),
    })
}

/// The moderation values that a modelled NIC accepts: any whole number of microseconds and frames up to the limits that
/// ethtool accepts for such drivers (i40e: at most 8,160 us).
const LIMITS: Limits = Limits { usecs: 8_160, usecs_step: 1, frames: 1_024 };

/// The profile closest to the fixed moderation setting.
fn nearest_profile(scenario: &Scenario) -> Profile {
    let model = &scenario.host.nic.rx_moderation;
    let usecs = u32::try_from(model.delay.max(model.interval).as_micros_floor()).unwrap_or(u32::MAX);
    let mode = if model.from == DelayFrom::LastFrame { PeriodMode::Cqe } else { PeriodMode::Eqe };
    Profile { usecs, frames: model.frames, mode }
}
