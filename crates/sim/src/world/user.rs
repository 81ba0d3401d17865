//! A worker in user space: the loop of `live::worker`, on a modelled core and clock.
//!
//! ```text
//!   ┌──► poll every queue: take ─► work ─► send ──► observation ──► wait policy ─► frequency policy
//!   │                                                                   │
//!   └── carry out: poll | pause | sleep | arm, poll once more, block ◄──┘
//! ```
//! The wait policies run unchanged, because they see what the live loop would show them.
//!
//! **Empty polls** are skipped if this makes little or no difference. An empty poll changes no state of a
//! [`Poll`](policy::wait::Poll) loop with a fixed frequency. So all polls up to the next frame are counted at once, and
//! the result is exact. With [`Adaptive`](policy::wait::Adaptive), consecutive empty polls are carried out at growing
//! intervals of at most [`STRIDE`]. So the policy may change its decision up to [`STRIDE`] later than without skipping.
//! The poll that finds a frame is never skipped. [`GoalFrequency`](policy::frequency::GoalFrequency) depends on time
//! only, so it is treated in the same way. All other policies count polls, and none of their polls is skipped.

use policy::frequency::{self, Frequency, FrequencyPolicy as _};
use policy::moderation::{PeriodMode, Profile};
use policy::wait::{Action, Arrivals, Decision, Ended, Observation, Policy, Queue, Reason, WaitKind, WaitPolicy as _};
use units::{Cycles, Nanos, Simulated};

use super::core::{Core, Path, Whom};
use super::ledger::Drawn;
use super::metronome::Thread;
use super::port::Port;
use super::profiles::Profiles;
use super::queue::Waiting;
use super::tally::{Shares, Tally};
use crate::At;
use crate::hw::cpufreq::Load;
use crate::machine::WorkModel;
use crate::outcome::{Activity, Drop, Moderated, Term};
use crate::scenario::HEALTH_INTERVAL;

/// Maximum number of frames taken from a queue at once: `live::worker::BURST`.
pub const BURST: usize = 64;
/// The maximum interval between polls for policies that depend on time only.
pub const STRIDE: Nanos = Nanos::from_nanos(500);
/// Maximum interval between two checks of a real-time throttle while polls are skipped.
const THROTTLE_LOOK: Nanos = Nanos::from_micros(100);
/// Cost of a system call that writes `pm_qos_resume_latency_us`, with locks and notifiers. A high estimate.
const LIMITS_IDLE: Cycles = Cycles::new(10_000);

/// How a worker waits.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // one per worker
pub enum Scheme {
    /// A wait policy decides; no other worker serves this worker's queues.
    Policy(Policy<Simulated>),
    /// The worker is one of several threads that share a queue.
    Shared(Thread),
}

/// Configuration of a worker.
#[derive(Debug)]
pub struct Config {
    /// The queues that the worker serves.
    pub queues: Vec<usize>,
    pub scheme: Scheme,
    pub frequency: Option<Frequency<Simulated>>,
    pub work: WorkModel,
    /// Whether frames carry the time of their arrival.
    pub stamps: bool,
    /// Whether the worker forwards the frames. If not, a frame's delay ends with its processing.
    pub forward: bool,
    /// What changes the frequency if no policy does. `None` if the frequency is fixed or a policy changes it.
    pub scaling: Option<super::Scaling>,
    /// Whether this worker receives all frames, because there is no other.
    pub alone: bool,
    /// `None` if the wait policy does not choose how long the NIC delays interrupts.
    pub holds_off: Option<HoldOff>,
    /// Whether the wait policy chooses how deep the core may idle.
    pub limits_idle: bool,
}

/// How the wait policy may change the hold-off: how long the NIC delays interrupts.
#[derive(Clone, Copy, Debug)]
pub struct HoldOff {
    /// Minimum time between two changes.
    pub every: Nanos,
    /// Cost of a change, per queue.
    pub costs: Cycles,
}

/// The worker's counts within the window.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub polls: u64,
    pub empty_polls: u64,
    pub reasons: [u64; Reason::ALL.len()],
    pub waits: [u64; WaitKind::ALL.len()],
    pub waited: [Nanos; WaitKind::ALL.len()],
    pub frequency_reasons: [u64; frequency::Reason::ALL.len()],
    pub idle_limit_changes: u64,
}

/// How empty polls are skipped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Skip {
    /// No poll is skipped.
    None,
    /// All polls up to the next frame are skipped.
    Exact,
    /// Polls are carried out at intervals that double, up to [`STRIDE`].
    Stride,
}

#[derive(Debug)]
enum State {
    Running,
    /// Polls are skipped. The first skipped poll would have begun at `from`; each takes `period` nanoseconds.
    Skipping {
        from: At,
        period: u64,
        reason: Reason,
    },
    /// The queues are armed. The worker polls once more before it blocks.
    Armed {
        action: Action<Simulated>,
        until: Option<At>,
    },
    Resting {
        action: Action<Simulated>,
        began: At,
        due: At,
    },
    Waking {
        action: Action<Simulated>,
        began: At,
        path: Path,
    },
}

/// The state of a worker.
#[derive(Debug)]
pub struct User {
    config: Config,
    pub core: Core,
    pub counts: Counts,
    state: State,
    skip: Skip,
    /// Number of consecutive polls that found nothing.
    empty: u32,
    batch: Vec<Waiting>,
    seen: Vec<Queue<Simulated>>,
    ended: Option<Ended<Simulated>>,
    /// Energy that the core had drawn when the wait began, in femtojoules.
    drawn: Drawn,
    /// The wake-up that ended the last wait. It delayed the frames of the first poll after the wait.
    path: Option<Path>,
    /// Busy time since the frequency policy was last asked.
    busy: Nanos,
    asleep: Nanos,
    /// When the loop last began to run. A real-time throttle counts from then.
    ran_from: At,
    /// When the wait policy may next change the hold-off.
    holds_off_at: At,
    /// How deep the wait policy lets the core idle.
    idle_limit: Nanos,
    /// The hold-offs of the worker's queues, which all have the same.
    profiles: Profiles,
}

impl User {
    pub fn new(config: Config, core: Core) -> Self {
        let timeless = config.scaling.is_none() && !core.is_throttled();
        let skip = match (&config.scheme, &config.frequency) {
            (Scheme::Policy(Policy::Poll(_)), None | Some(Frequency::Fixed(_))) if timeless => Skip::Exact,
            (
                Scheme::Policy(Policy::Poll(_) | Policy::Adaptive(_)),
                None | Some(Frequency::Fixed(_) | Frequency::Goal(_)),
            ) => Skip::Stride,
            _ => Skip::None,
        };
        let seen = Vec::with_capacity(config.queues.len());
        let holds_off_at = config.holds_off.map_or(At::from_nanos(u64::MAX), |hold_off| At::ORIGIN + hold_off.every);
        Self {
            config,
            core,
            counts: Counts::default(),
            state: State::Running,
            skip,
            empty: 0,
            batch: Vec::with_capacity(BURST),
            seen,
            ended: None,
            drawn: Drawn::default(),
            path: None,
            busy: Nanos::ZERO,
            asleep: Nanos::ZERO,
            ran_from: At::ORIGIN,
            holds_off_at,
            idle_limit: Nanos::MAX,
            profiles: Profiles::new(Profile::IMMEDIATE),
        }
    }

    /// Acts at `now`. Returns when the worker wants to act next.
    pub fn act(&mut self, now: At, port: &mut Port, tally: &mut Tally) -> At {
        match std::mem::replace(&mut self.state, State::Running) {
            State::Running => self.poll_and_decide(now, port, tally),
            State::Skipping { from, period, reason } => {
                self.skipped(from, now, period, reason, tally);
                if !self.config.alone {
                    self.config.queues.iter().for_each(|queue| port.watch(*queue, false));
                }
                self.poll_and_decide(now, port, tally)
            }
            State::Armed { action, until } => {
                let polled = self.poll(now, port, tally);
                if self.received() > 0 {
                    self.disarm(port);
                    self.ended = None;
                    return self.decide(now, polled, port, tally);
                }
                self.give_away(polled, action, until)
            }
            State::Resting { action, began, due } => {
                let path = self.core.wake_by_timer(due, now, Whom::Thread);
                self.state = State::Waking { action, began, path };
                path.ready()
            }
            State::Waking { action, began, path } => {
                self.disarm(port);
                self.waited(action, began, now, tally);
                self.path = Some(path);
                self.ran_from = now;
                self.poll_and_decide(now, port, tally)
            }
        }
    }

    fn poll_and_decide(&mut self, now: At, port: &mut Port, tally: &mut Tally) -> At {
        let mut now = now;
        if let Scheme::Shared(thread) = &mut self.config.scheme
            && !thread.holds
        {
            thread.holds = port.queues[self.config.queues[0]].shared.try_lock(now, tally.within(now));
            let Thread { model, holds, .. } = *thread;
            now = self.core.execute(now, model.lock, Activity::Working);
            if !holds {
                let until = now + model.timeout;
                return self.give_away(now, Action::SleepUntil(until), Some(until));
            }
        }
        let polled = self.poll(now, port, tally);
        self.decide(now, polled, port, tally)
    }

    /// Tells the worker that an interrupt of one of its queues fired at `fired`. Returns when the worker will act.
    /// `None` if it was not resting.
    pub fn interrupted(&mut self, fired: At) -> Option<At> {
        let State::Resting { action, began, .. } = self.state else { return None };
        let path = self.core.wake_by_interrupt(fired, Whom::Thread);
        self.state = State::Waking { action, began, path };
        Some(path.ready())
    }

    /// When the poll begins that will see the frame that has arrived in `queue`. `None` if no polls are being skipped.
    pub fn sees(&self, queue: usize, port: &Port) -> Option<At> {
        let State::Skipping { from, period, .. } = self.state else { return None };
        let ahead = port.queues[queue].next_visible()?.since(from).unwrap_or(Nanos::ZERO).as_nanos();
        Some(from + Nanos::from_nanos(ahead.div_ceil(period) * period))
    }

    /// Closes the counts at the end of the simulation. If the wait policy chose the hold-offs, returns each queue's
    /// history of them.
    pub fn finish(&mut self, end: At, tally: &Tally) -> Vec<Moderated> {
        if let State::Skipping { from, period, reason } = self.state {
            self.skipped(from, end, period, reason, tally);
        }
        let queues = if self.config.holds_off.is_some() { &self.config.queues[..] } else { &[] };
        queues.iter().map(|queue| self.profiles.clone().finish(*queue, tally)).collect()
    }

    /// Counts the polls that were skipped from `from` to `to`.
    fn skipped(&mut self, from: At, to: At, period: u64, reason: Reason, tally: &Tally) {
        if tally.within(from) {
            let polls = to.since(from).unwrap_or(Nanos::ZERO).as_nanos().div_ceil(period);
            self.counts.polls += polls;
            self.counts.empty_polls += polls;
            self.counts.reasons[reason as usize] += polls;
        }
    }

    fn received(&self) -> u32 {
        self.seen.iter().map(|queue| queue.received).sum()
    }

    fn disarm(&self, port: &mut Port) {
        self.config.queues.iter().for_each(|queue| port.queues[*queue].disarm());
    }

    /// Polls every queue once, and processes and sends the frames. Returns when the last frame is finished.
    #[inline]
    fn poll(&mut self, now: At, port: &mut Port, tally: &mut Tally) -> At {
        self.seen.clear();
        let mut at = now;
        for index in 0..self.config.queues.len() {
            let queue = self.config.queues[index];
            port.fetch(at, tally);
            let burst = if matches!(self.config.scheme, Scheme::Shared(_)) { super::metronome::BURST } else { BURST };
            let fill = port.queues[queue].take(at, burst, &mut self.batch);
            at = if self.batch.is_empty() {
                self.seen.push(Queue { received: 0, fill: 0, arrivals: None });
                self.core.execute(at, self.config.work.poll, Activity::Polling)
            } else {
                self.serve(at, queue, fill, port, tally)
            };
        }
        let counted = tally.within(now);
        self.counts.polls += u64::from(counted);
        self.counts.empty_polls += u64::from(counted && self.received() == 0);
        self.path = None;
        // Even on the fastest core a loop takes at least 1 ns.
        at.max(now + Nanos::from_nanos(1))
    }

    /// Processes and sends the batch that was taken at `now`. Returns when its last frame is finished.
    fn serve(&mut self, now: At, queue: usize, fill: u32, port: &mut Port, tally: &mut Tally) -> At {
        let received = self.batch.len() as u64;
        let WorkModel { poll, burst, frame } = self.config.work;
        let taking = poll.min(burst);
        let rest = Cycles::new(burst.count() - taking.count() + received * frame.count());
        let picked_up = self.core.execute(now, taking, Activity::Working);
        let done = self.core.execute(picked_up, rest, Activity::Working);
        self.busy += done.since(now).unwrap_or(Nanos::ZERO);
        let arrivals = self.arrivals(picked_up);
        self.seen.push(Queue { received: received as u32, fill, arrivals: Some(arrivals) });
        let served = Served::new(&self.core, self.path, (now, done), self.batch[0].visible, burst, frame);
        for index in 0..self.batch.len() {
            let frame = self.batch[index];
            let shares = served.shares(&frame);
            if !self.config.forward {
                tally.departed(queue, frame.octets, frame.arrival, done, shares);
                port.answered(&frame, done);
                continue;
            }
            match port.send(queue, &frame, done) {
                Some((departure, octets)) => {
                    let mut shares = shares;
                    shares[Term::Transmit as usize] = departure.since(done).unwrap_or(Nanos::ZERO).as_nanos();
                    tally.departed(queue, octets, frame.arrival, departure, shares);
                    port.answered(&frame, departure);
                }
                None => port.lose(queue, &frame, Drop::TxFull, done, tally),
            }
        }
        self.batch.clear();
        done
    }

    fn arrivals(&self, picked_up: At) -> Arrivals<Simulated> {
        match (self.config.stamps, self.batch.first(), self.batch.last()) {
            (true, Some(first), Some(last)) => Arrivals::stamped(first.arrival, last.arrival, picked_up),
            _ => Arrivals::stamped(picked_up, picked_up, picked_up),
        }
    }

    /// Asks the policies after the poll that began at `polled_at` and ended at `now`, and carries out their decisions.
    /// Returns when to act next.
    fn decide(&mut self, polled_at: At, now: At, port: &mut Port, tally: &mut Tally) -> At {
        let now = if now < self.holds_off_at { now } else { self.hold_off(now, port, tally) };
        let now = if self.config.limits_idle { self.limit_idle(now, tally) } else { now };
        let seen = Observation { now, queues: &self.seen, ended: self.ended.take() };
        let empty = seen.received() == 0;
        let counted = tally.within(now);
        let decision = match &mut self.config.scheme {
            Scheme::Policy(policy) => policy.decide(&seen),
            // The thread polls until the queue is empty.
            Scheme::Shared(_) if !empty => Decision { action: Action::Poll, reason: Reason::Traffic },
            Scheme::Shared(thread) => {
                thread.holds = false;
                let shared = &mut port.queues[self.config.queues[0]].shared;
                let sleep = shared.release(now, &thread.model, thread.threads, counted);
                Decision { action: Action::SleepUntil(now + sleep), reason: Reason::Fixed }
            }
        };
        self.counts.reasons[decision.reason as usize] += u64::from(counted);
        if let Some(policy) = &mut self.config.frequency {
            let (busy, asleep) = (std::mem::take(&mut self.busy), std::mem::take(&mut self.asleep));
            let running = Some(self.core.frequency());
            let waiting = match &self.config.scheme {
                Scheme::Policy(Policy::Adaptive(waiting)) => Some(waiting),
                _ => None,
            };
            let asked = policy.decide(&frequency::Observation { poll: &seen, busy, asleep, running, waiting });
            self.counts.frequency_reasons[asked.reason as usize] += u64::from(counted);
            if let frequency::Action::Request(wanted) = asked.action {
                self.core.request(now, wanted);
                if let Scheme::Policy(Policy::Adaptive(waiting)) = &mut self.config.scheme {
                    waiting.change(policy.slower());
                }
            }
        }
        if let Some(scaling) = &mut self.config.scaling {
            scaling.steer(now, &mut self.core, Load::default());
        }
        self.empty = if empty { self.empty.saturating_add(1) } else { 0 };
        match decision.action {
            Action::Poll => {
                let now = self.go_on(now);
                if empty { self.skip_ahead(polled_at, now, decision.reason, port, tally) } else { now }
            }
            Action::Pause(span) => {
                let until = now + span;
                self.drawn = self.core.drawn_until(now);
                self.core.pause(now);
                self.waited(decision.action, now, until, tally);
                self.go_on(until)
            }
            Action::SleepUntil(until) => self.give_away(now, decision.action, Some(until)),
            Action::BlockUntil(until) => {
                for queue in &self.config.queues {
                    port.queues[*queue].arm(now);
                }
                self.state = State::Armed { action: decision.action, until };
                now
            }
        }
    }

    /// Lets the wait policy choose the hold-off of the queues. Returns when that is done.
    #[cold]
    fn hold_off(&mut self, now: At, port: &mut Port, tally: &Tally) -> At {
        let (Some(hold_off), Scheme::Policy(policy)) = (self.config.holds_off, &mut self.config.scheme) else {
            return now;
        };
        self.holds_off_at = now + hold_off.every;
        let present = port.queues[self.config.queues[0]].rx.model().delay;
        let wanted = policy.hold_off(now, present);
        if wanted == present {
            return now;
        }
        let usecs = u32::try_from(wanted.as_micros_floor()).unwrap_or(u32::MAX);
        let profile = if usecs == 0 { Profile::IMMEDIATE } else { Profile { usecs, frames: 0, mode: PeriodMode::Eqe } };
        let mut at = now;
        for queue in &self.config.queues {
            at = self.core.execute(at, hold_off.costs, Activity::Working);
            port.queues[*queue].program(at, profile);
        }
        self.profiles.change(at, profile, tally);
        at
    }

    /// Lets the wait policy choose how deep the core may idle. Returns when that is done.
    fn limit_idle(&mut self, now: At, tally: &Tally) -> At {
        let Scheme::Policy(policy) = &mut self.config.scheme else { return now };
        if !policy.limit_idle_is_due(now) {
            return now;
        }
        let wanted = policy.limit_idle(now, self.idle_limit);
        if wanted == self.idle_limit {
            return now;
        }
        self.counts.idle_limit_changes += u64::from(tally.within(now));
        self.idle_limit = wanted;
        self.core.limit_idle(wanted);
        self.core.execute(now, LIMITS_IDLE, Activity::Working)
    }

    /// Notes that the loop has run up to `now`. Returns when it may continue.
    #[inline]
    fn go_on(&mut self, now: At) -> At {
        let from = std::mem::replace(&mut self.ran_from, now);
        let allowed = self.core.ran(from, now);
        self.ran_from = allowed;
        allowed
    }

    /// Skips polls that would find nothing. Returns when the next poll that matters begins. The poll that began at
    /// `polled_at` was empty, and the next would begin at `now`.
    fn skip_ahead(&mut self, polled_at: At, now: At, reason: Reason, port: &mut Port, tally: &Tally) -> At {
        if self.skip == Skip::None {
            return now;
        }
        let period = now.since(polled_at).unwrap_or(Nanos::ZERO).as_nanos();
        let next_frame = self.config.queues.iter().filter_map(|queue| port.queues[*queue].next_visible());
        // With several workers, most coming frames are for the others. The port notifies this worker of its own.
        let coming = if self.config.alone { port.next_due() } else { None };
        // Counting begins and ends with the window.
        let boundary = if now < tally.window.0 { tally.window.0 } else { tally.window.1 };
        let mut until = next_frame.chain(coming).fold(boundary, At::min);
        // Polls are skipped only as long as nothing else happens to the core.
        until = self.core.undisturbed_until().map_or(until, |at| until.min(at));
        if self.core.is_throttled() {
            until = until.min(now + THROTTLE_LOOK);
        }
        let ahead = until.since(now).unwrap_or(Nanos::ZERO).as_nanos();
        if period == 0 || ahead == 0 || self.core.may_stall(now, now) {
            return now;
        }
        let polls = match self.skip {
            Skip::Stride => {
                // Skips 0, 1, 3, 7... polls, so the distance doubles each time.
                let most = (STRIDE.as_nanos() / period).max(1);
                let doubled = 1u64 << self.empty.saturating_sub(1).min(16);
                ahead.div_ceil(period).min(doubled.min(most) - 1)
            }
            _ => ahead.div_ceil(period),
        };
        if polls == 0 {
            return now;
        }
        self.state = State::Skipping { from: now, period, reason };
        if !self.config.alone {
            self.config.queues.iter().for_each(|queue| port.watch(*queue, true));
        }
        now + Nanos::from_nanos(polls * period)
    }

    /// Gives up the core from `now` until `until` at the latest.
    fn give_away(&mut self, now: At, action: Action<Simulated>, until: Option<At>) -> At {
        self.core.ran(self.ran_from, now);
        self.drawn = self.core.drawn_until(now);
        let due = until.unwrap_or(now + HEALTH_INTERVAL).min(now + HEALTH_INTERVAL);
        self.state = State::Resting { action, began: now, due };
        self.core.rest(now, due, Whom::Thread)
    }

    fn waited(&mut self, action: Action<Simulated>, began: At, ended: At, tally: &Tally) {
        let span = ended.since(began).unwrap_or(Nanos::ZERO);
        if action.kind() != WaitKind::Pause {
            self.asleep += span;
        }
        if tally.within(began) {
            self.counts.waits[action.kind() as usize] += 1;
            self.counts.waited[action.kind() as usize] += span;
        }
        let drawn = self.core.drawn_until(ended);
        let spent = Some(self.core.awake_for(drawn.all.saturating_sub(self.drawn.all)));
        let idle = self.core.awake_for(drawn.idle.saturating_sub(self.drawn.idle));
        self.ended = Some(Ended { action, began, ended, spent, idle });
    }
}

/// A processed batch: the times that its frames have in common.
pub struct Served {
    path: Option<Path>,
    /// End of the wait before the poll. Time 0 if there was no wait.
    ready: At,
    /// When the batch's last frame was finished.
    done: At,
    stall: (At, At),
    taken: (At, At),
    /// Processing time counted for each frame, in nanoseconds: the frame's cost and the batch's.
    own: u64,
    /// Whether queueing, processing and sending alone explain the delay: no wait, stall or interruption.
    plain: bool,
}

impl Served {
    /// A batch that was processed within `span`, at a cost of `burst` per batch and `frame` per frame. Its first frame
    /// was visible at `oldest`.
    pub fn new(core: &Core, path: Option<Path>, span: (At, At), oldest: At, burst: Cycles, frame: Cycles) -> Self {
        let (stall, taken) = (core.stall(), core.taken());
        let (now, done) = span;
        let own = core.span(burst) + core.span(frame);
        let lost = overlap(stall, now, done) + overlap(taken, now, done);
        let available = done.since(now).unwrap_or(Nanos::ZERO).as_nanos().saturating_sub(lost);
        let ready = path.map_or(At::ORIGIN, |path| path.ready());
        // Few polls follow a wait or meet a disturbance.
        let plain = path.is_none() && stall.1 <= oldest && taken.1 <= oldest;
        Self { path, ready, done, stall, taken, own: own.as_nanos().min(available), plain }
    }

    /// Splits a frame's delay into its terms, except for sending and queueing, which are added later. Queueing is the
    /// remainder.
    #[inline]
    pub fn shares(&self, frame: &Waiting) -> Shares {
        let mut shares = Shares::default();
        shares[Term::Delivery as usize] = frame.due.since(frame.arrival).unwrap_or(Nanos::ZERO).as_nanos();
        shares[Term::Moderation as usize] = frame.visible.since(frame.due).unwrap_or(Nanos::ZERO).as_nanos();
        shares[Term::Work as usize] = self.own;
        if !self.plain {
            if let Some(path) = &self.path {
                path.share_out(frame.visible, &mut shares);
            }
            let from = self.ready.max(frame.visible);
            shares[Term::FrequencyStall as usize] += overlap(self.stall, from, self.done);
            shares[Term::Scheduling as usize] += overlap(self.taken, from, self.done);
        }
        shares
    }
}

/// How much of `span` lies between `from` and `to`, in nanoseconds.
pub fn overlap(span: (At, At), from: At, to: At) -> u64 {
    let (from, to) = (span.0.max(from), span.1.min(to));
    to.since(from).unwrap_or(Nanos::ZERO).as_nanos()
}
