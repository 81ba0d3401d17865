//! A core: how long its work takes, what it does while the thread rests, and how it wakes up.
//!
//! ```text
//!   Running ── rest ──► [switch] ── nobody else? ──► idle state ── interrupt, timer ──► Running
//!                             └──── background ────► other ─────────────┘
//! ```
//! A wake-up is recorded as a [`Path`]: the times at which the terms of the latency budget end.

use units::{Cycles, Hertz, Nanos};

use super::ledger::{Drawn, Ledger};
use super::tally::Shares;
use crate::At;
use crate::hw::cstate::{CState, Wakeup};
use crate::hw::governor::{Menu, Tick};
use crate::hw::interrupt::{Affinity, DeliveryModel, Handling};
use crate::hw::pstate::PState;
use crate::hw::scheduler::Scheduler;
use crate::hw::timer::Timer;
use crate::hw::vcpu::Vcpu;
use crate::machine::Disturbance;
use crate::outcome::{Activity, Book, Term};
use crate::random::Random;

/// Estimated work of the timer tick on an idle core.
const TICK_WORK: Cycles = Cycles::new(5_000);
/// Upper limit of the time for [`TICK_WORK`] and the exit from the idle state before it. A tick that comes less than
/// this time before the end of an idle period is treated as part of the wake-up that ends the period.
const TICK_TAKES: Nanos = Nanos::from_micros(200);
/// Stands for "never".
const NEVER: At = At::from_nanos(u64::MAX);

/// What a wake-up starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whom {
    /// A waiting thread, which the scheduler must start.
    Thread,
    /// The interrupt handler itself, which does its work in interrupt context.
    Handler,
}

/// A wake-up, from the end of a wait to the first poll. Each stage has a term of the latency budget and the time at
/// which the stage ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    stages: [(Term, At); 8],
}

impl Path {
    /// When the thread polls again.
    pub fn ready(&self) -> At {
        self.stages[self.stages.len() - 1].1
    }

    /// Distributes the waiting time of a frame over the budget's terms. The frame was visible to software from `from`
    /// on.
    pub fn share_out(&self, from: At, shares: &mut Shares) {
        let mut reached = from;
        for (term, until) in self.stages {
            if let Some(span) = until.since(reached) {
                shares[term as usize] += span.as_nanos();
                reached = until;
            }
        }
    }
}

/// A thread that has given up its core.
#[derive(Clone, Copy, Debug)]
struct Rest {
    /// When the thread stopped running.
    from: At,
    /// When the core went idle; later than `from` if the host polled first. `None` if the core runs another task
    /// instead.
    idle_from: Option<At>,
    /// Time from `from` to the expiry of the thread's timer.
    bound: Nanos,
}

/// The models and settings of which a core consists.
#[derive(Debug)]
pub struct Parts {
    pub pstate: PState,
    pub cstate: CState,
    pub scheduler: Scheduler,
    pub vcpu: Option<Vcpu>,
    pub timer: Timer,
    pub delivery: DeliveryModel,
    pub handling: Handling,
    pub affinity: Affinity,
    /// The longest reported exit latency that an idle state may have (PM QoS).
    pub latency_limit: Nanos,
    pub tick: Tick,
    pub ledger: Ledger,
    /// What interrupts the core now and then. `None` if nothing does.
    pub disturbance: Option<Disturbance>,
    pub random: Random,
    pub window: (At, At),
}

/// The state of a core.
#[derive(Debug)]
pub struct Core {
    parts: Parts,
    menu: Menu,
    /// The longest exit latency of the idle states that the core may choose, in addition to the host's limit.
    idle_limit: Nanos,
    rest: Option<Rest>,
    /// The current frequency.
    frequency: Hertz,
    /// The duration of a cycle at the current frequency, in 2^-32 ns.
    cycle: u64,
    /// Start and end of the last stall by a frequency change.
    stall: (At, At),
    /// When the core is interrupted next.
    disturbed_at: At,
    /// Start and end of the last interruption.
    taken: (At, At),
    /// Idle time since the start of the simulation.
    idle: Nanos,
    /// Number of frequency changes within the window.
    pub frequency_changes: u64,
    pub frequency_requests: u64,
    pub wakeups: u64,
}

impl Core {
    pub fn new(parts: Parts) -> Self {
        let frequency = parts.pstate.frequency();
        let mut core = Self {
            menu: Menu::new(parts.tick),
            idle_limit: Nanos::MAX,
            rest: None,
            frequency,
            cycle: cycle(frequency),
            stall: (At::ORIGIN, At::ORIGIN),
            disturbed_at: NEVER,
            taken: (At::ORIGIN, At::ORIGIN),
            idle: Nanos::ZERO,
            frequency_changes: 0,
            frequency_requests: 0,
            wakeups: 0,
            parts,
        };
        core.next_disturbance(At::ORIGIN);
        core
    }

    /// Energy drawn from the start of the simulation to `now`, in femtojoules.
    pub fn drawn_until(&self, now: At) -> Drawn {
        self.parts.ledger.drawn_until(now)
    }

    /// How long the core would have to poll at the current frequency to draw `femtojoules`.
    pub fn awake_for(&self, femtojoules: u128) -> Nanos {
        self.parts.ledger.awake_for(femtojoules, self.frequency)
    }

    fn next_disturbance(&mut self, now: At) {
        let Parts { disturbance, random, .. } = &mut self.parts;
        self.disturbed_at = disturbance.map_or(NEVER, |d| now + random.exponential(d.every));
    }

    /// The current frequency.
    pub fn frequency(&self) -> Hertz {
        self.frequency
    }

    /// Idle time since the start of the simulation, without the current rest.
    pub fn idle(&self) -> Nanos {
        self.idle
    }

    /// Start and end of the last stall by a frequency change.
    pub fn stall(&self) -> (At, At) {
        self.stall
    }

    /// Start and end of the last interruption by another task.
    pub fn taken(&self) -> (At, At) {
        self.taken
    }

    /// When the core next changes frequency or is interrupted, if it goes on working. `None` means never.
    pub fn undisturbed_until(&self) -> Option<At> {
        let disturbed = Some(self.disturbed_at).filter(|at| *at < NEVER);
        [self.parts.pstate.poll_at(), disturbed].into_iter().flatten().min()
    }

    /// The duration of `work` at the current frequency.
    #[inline]
    pub fn span(&self, work: Cycles) -> Nanos {
        Nanos::from_nanos(((u128::from(work.count()) * u128::from(self.cycle)) >> 32) as u64)
    }

    /// Whether the core is stalled at `now`, or will be interrupted or change its frequency before `until`.
    #[inline]
    pub fn may_stall(&self, now: At, until: At) -> bool {
        self.stall.1 > now || self.disturbed_at < until || self.parts.pstate.poll_at().is_some_and(|due| due < until)
    }

    /// Executes `work` from `now` on. Returns when the work ends.
    #[inline]
    pub fn execute(&mut self, now: At, work: Cycles, activity: Activity) -> At {
        let ends = now + self.span(work);
        if !self.may_stall(now, ends) {
            self.parts.ledger.set(now, activity, self.frequency);
            return ends;
        }
        self.execute_slowly(now, work, activity)
    }

    /// Executes `work` while the core may stall, change its frequency or be interrupted. Returns when the work ends.
    fn execute_slowly(&mut self, now: At, work: Cycles, activity: Activity) -> At {
        let (changes, due) = (self.parts.pstate.changes(), self.parts.pstate.poll_at());
        let standing = if self.stall.1 > now { Activity::Stalled } else { activity };
        self.parts.ledger.set(now, standing, self.frequency);
        self.parts.ledger.set(self.stall.1.max(now), activity, self.frequency);
        let ends = self.parts.pstate.execute(now, work);
        if let Some(due) = due.filter(|_| self.parts.pstate.changes() > changes) {
            self.changed(due);
            self.parts.ledger.set(due, Activity::Stalled, self.frequency);
            self.parts.ledger.set(self.stall.1, activity, self.frequency);
        }
        self.disturb(now, ends, activity)
    }

    /// Interrupts the core if an interruption is due between `now` and `ends`. Returns when the work ends, including
    /// the interruption.
    fn disturb(&mut self, now: At, ends: At, activity: Activity) -> At {
        let mut ends = ends;
        while self.disturbed_at < ends
            && let Some(Disturbance { takes, .. }) = self.parts.disturbance
        {
            let from = self.disturbed_at.max(now);
            // In a guest, both the host's and the guest's tick interrupt the core.
            let guest = self.parts.vcpu.as_ref().map_or(Nanos::ZERO, |vcpu| vcpu.tick(self.frequency));
            let span = takes.sample(&mut self.parts.random) + guest;
            let to = from + span;
            // Interruptions without a gap between them count as one, so that none is counted twice in a delay.
            self.taken = if from <= self.taken.1 { (self.taken.0, to) } else { (from, to) };
            self.parts.ledger.set(from, Activity::Other, self.frequency);
            self.parts.ledger.set(to, activity, self.frequency);
            ends = ends + span;
            self.next_disturbance(to);
        }
        ends
    }

    /// Notes that the frequency changed at `due`.
    fn changed(&mut self, due: At) {
        self.frequency = self.parts.pstate.frequency();
        self.cycle = cycle(self.frequency);
        self.stall = (due, self.parts.pstate.blocked_until());
        self.frequency_changes += u64::from(self.counts(due));
    }

    /// Carries out a frequency change that is due by `now`. Returns when it was due. `None` if no change was due.
    fn catch_up(&mut self, now: At) -> Option<At> {
        let due = self.parts.pstate.poll_at().filter(|due| *due <= now)?;
        self.parts.pstate.poll(now)?;
        self.changed(due);
        Some(due)
    }

    fn counts(&self, at: At) -> bool {
        at >= self.parts.window.0 && at < self.parts.window.1
    }

    /// Requests a frequency.
    pub fn request(&mut self, now: At, wanted: Hertz) {
        self.frequency_requests += u64::from(self.counts(now));
        self.parts.pstate.request(now, wanted);
        if self.catch_up(now).is_some() {
            self.parts.ledger.set(now, Activity::Stalled, self.frequency);
        }
    }

    /// Records that the core executes `pause`, its cheapest running state, from `now` on.
    pub fn pause(&mut self, now: At) {
        self.parts.ledger.set(now, Activity::Pausing, self.frequency);
    }

    /// Notes that the thread ran from `began` to `now`. Returns when the thread may continue: later than `now` if a
    /// real-time throttle stops it.
    #[inline]
    pub fn ran(&mut self, began: At, now: At) -> At {
        if self.parts.scheduler.model().throttle.is_none() {
            return now;
        }
        let allowed = self.parts.scheduler.ran(now, now.since(began).unwrap_or(Nanos::ZERO));
        if allowed > now {
            self.parts.ledger.set(now, Activity::Other, self.frequency);
        }
        allowed
    }

    /// Whether a real-time throttle applies to the thread.
    pub fn is_throttled(&self) -> bool {
        self.parts.scheduler.model().throttle.is_some()
    }

    /// Lets `whom` give up the core from `now` until `due` at the latest. Returns when the timer will fire.
    pub fn rest(&mut self, now: At, due: At, whom: Whom) -> At {
        let from = match whom {
            Whom::Thread => {
                let switch = self.parts.scheduler.model().switch;
                self.execute(now, switch, Activity::Working)
            }
            Whom::Handler => now,
        };
        let nobody_else = self.parts.scheduler.block();
        let idle_from = if nobody_else {
            let host_polls_until = self.parts.vcpu.as_mut().map(|vcpu| vcpu.halt(from, self.frequency));
            // Counted as polling until it is known when the core went idle.
            self.parts.ledger.set(from, Activity::Polling, self.frequency);
            Some(host_polls_until.unwrap_or(from))
        } else {
            self.parts.ledger.set(from, Activity::Other, self.frequency);
            None
        };
        self.rest = Some(Rest { from, idle_from, bound: due.since(from).unwrap_or(Nanos::ZERO) });
        self.parts.timer.arm(due);
        // A timer that is due before the thread has stopped running ends the rest at once.
        self.parts.timer.poll_at().map_or(due, |at| at.max(from))
    }

    /// Lets a NIC interrupt fire at `fired` and end the core's rest. Returns the path by which `whom` wakes up.
    pub fn wake_by_interrupt(&mut self, fired: At, whom: Whom) -> Path {
        let asleep_at = self.frequency;
        let change = self.catch_up(fired);
        let Parts { delivery, handling, affinity, random, timer, .. } = &mut self.parts;
        let delivery = delivery.deliver(self.frequency, *handling, *affinity, random);
        timer.cancel();
        let told = fired + delivery.message + delivery.ipi;
        let before = [(Term::Moderation, fired), (Term::Delivery, told)];
        self.account_rest(told, asleep_at, change);
        let resume = if whom == Whom::Thread { delivery.resume } else { Nanos::ZERO };
        self.wake(told, Wakeup::Interrupt, whom, before, (delivery.handling, resume))
    }

    /// Lets the timer that was set for `due` fire at `fired`. Returns the path by which `whom` wakes up.
    pub fn wake_by_timer(&mut self, due: At, fired: At, whom: Whom) -> Path {
        let asleep_at = self.frequency;
        let change = self.catch_up(fired);
        let lateness = self.parts.timer.poll(fired, &mut self.parts.random).unwrap_or(Nanos::ZERO);
        self.account_rest(fired, asleep_at, change);
        let before = [(Term::Queueing, due), (Term::Scheduling, fired)];
        self.wake(fired, Wakeup::Timer, whom, before, (lateness, Nanos::ZERO))
    }

    /// Records what the core did from the start of the rest until the wake-up reached it at `told`. The idle state is
    /// computed only now, because the length of the rest is known only now. If `change` is set, the frequency was
    /// `asleep_at` until that time.
    fn account_rest(&mut self, told: At, asleep_at: Hertz, change: Option<At>) {
        let Some(rest) = self.rest else { return };
        let activity = match rest.idle_from.filter(|from| *from < told) {
            Some(from) => self.idled(from, rest.from + rest.bound, told, (asleep_at, change)),
            None if rest.idle_from.is_some() => Activity::Polling,
            None => Activity::Other,
        };
        if let Some(at) = change {
            self.parts.ledger.set(at, activity, self.frequency);
        }
    }

    /// Records that the core was idle from `from` until the wake-up reached it at `told`; its next timer was due at
    /// `due`. The governor chose the idle state at the start, and again after each tick that was not stopped. Returns
    /// the last activity.
    fn idled(&mut self, mut from: At, due: At, told: At, (asleep_at, change): (Hertz, Option<At>)) -> Activity {
        let now_at = self.frequency;
        let frequency = |at: At| if change.is_some_and(|change| change <= at) { now_at } else { asleep_at };
        loop {
            let next_tick = self.menu.next_tick(from);
            let predicted = self.menu.predict(due.since(from).unwrap_or(Nanos::ZERO), next_tick);
            let index = self.parts.cstate.enter(from, predicted.idle, self.parts.latency_limit.min(self.idle_limit));
            let activity = Activity::Idle(index);
            self.parts.ledger.set(from, activity, frequency(from));
            let ticks = predicted.ticks && from + next_tick + TICK_TAKES < told;
            let until = if ticks { from + next_tick } else { told };
            let idle = until.since(from).unwrap_or(Nanos::ZERO);
            self.idle += idle;
            if !ticks {
                self.menu.observe(idle);
                return activity;
            }
            self.menu.ticked();
            if let Some(at) = change.filter(|at| (from..until).contains(at)) {
                self.parts.ledger.set(at, activity, now_at);
            }
            self.parts.ledger.set(until, Activity::Waking, frequency(until));
            let awake = until + self.parts.cstate.wake(until, Wakeup::Timer, &mut self.parts.random);
            self.parts.ledger.set(awake, Activity::Working, frequency(awake));
            from = awake + TICK_WORK / frequency(awake);
        }
    }

    /// Wakes the core. The wake-up reaches it at `told`. `handling` is the time from the exit of the idle state to the
    /// scheduler, `resume` the time after the scheduler.
    fn wake(
        &mut self,
        told: At,
        by: Wakeup,
        whom: Whom,
        before: [(Term, At); 2],
        (handling, resume): (Nanos, Nanos),
    ) -> Path {
        let from = self.rest.take().map_or(told, |rest| rest.from);
        self.wakeups += u64::from(self.counts(told));
        // An interruption of an idle core delays nothing, so it is skipped.
        if self.disturbed_at < told {
            self.next_disturbance(told);
        }
        let vcpu = self.parts.vcpu.as_mut().and_then(|vcpu| vcpu.wake(told, self.frequency));
        let idled = self.parts.cstate.state().map(|state| state.refill.count());
        let mut awake = told.max(from);
        if idled.is_some() {
            self.parts.ledger.set(told, Activity::Waking, self.frequency);
            awake = told + self.parts.cstate.wake(told, by, &mut self.parts.random);
        }
        self.parts.ledger.set(awake, Activity::Working, self.frequency);
        let handled = awake + handling + vcpu.map_or(Nanos::ZERO, |woken| woken.kick);
        let (dispatched, lost) = match whom {
            // If the host was still polling, it never gave the core to another task.
            Whom::Thread if vcpu.is_some_and(|woken| woken.polled) => {
                self.parts.scheduler.goes_on();
                (handled, Cycles::new(0))
            }
            Whom::Thread => self.dispatch(handled),
            Whom::Handler => (handled, Cycles::new(0)),
        };
        // A guest's thread resumes after the VM entry and the guest's own wake-up. It does not return from a system
        // call of this core.
        let resumed = dispatched + vcpu.map_or(resume, |woken| woken.resume);
        let moving = resumed.max(self.stall.1);
        let refill = Cycles::new(idled.unwrap_or(0) + lost.count());
        let ready = self.execute(resumed, refill, Activity::Working);
        let [first, second] = before;
        // A thread that is woken while it is still stopping must stop before it can start again.
        let waking = if idled.is_some() { Term::CStateExit } else { Term::Scheduling };
        Path {
            stages: [
                first,
                second,
                (waking, awake),
                (Term::Delivery, handled),
                (Term::Scheduling, dispatched),
                (Term::Delivery, resumed),
                (Term::FrequencyStall, moving),
                (Term::CStateExit, ready.max(moving)),
            ],
        }
    }

    /// Makes a thread ready at `now` on a core that is awake. Returns when the thread runs (at once if it is already
    /// running), and the additional cost of its first work.
    pub fn dispatch(&mut self, now: At) -> (At, Cycles) {
        let dispatch = self.parts.scheduler.wake(now, self.frequency, &mut self.parts.random);
        (now + dispatch.delay, dispatch.refill)
    }

    /// Limits the exit latency of the idle states, in addition to the limit that the host sets.
    pub fn limit_idle(&mut self, most: Nanos) {
        self.idle_limit = most;
    }

    /// Cost of an interrupt that arrives while the core is awake.
    pub fn interrupt_work(&self) -> Cycles {
        let DeliveryModel { entry, handler, .. } = self.parts.delivery;
        Cycles::new(entry.count() + handler.count())
    }

    /// Records what a core that still rests at `end` did until then: it counts as idle in the state that
    /// its governor chose.
    pub fn close(&mut self, end: At) {
        if self.rest.is_some() {
            let asleep_at = self.frequency;
            let change = self.catch_up(end);
            self.account_rest(end, asleep_at, change);
        }
    }

    /// The closed record of the core's time and energy.
    pub fn into_record(self) -> (Book, CState) {
        (self.parts.ledger.finish(), self.parts.cstate)
    }
}

/// The duration of a cycle, in 2^-32 ns.
fn cycle(frequency: Hertz) -> u64 {
    ((1_000_000_000u128 << 32) / u128::from(frequency.as_hertz().max(1))) as u64
}
