//! A core driven by the kernel: interrupt, NAPI, and then either forwarding or an application.
//!
//! ```text
//!   Idle ── interrupt ──► poll each scheduled queue, 64 frames at most ──► fewer: complete
//!    ▲                        ▲                                              │ ask the moderation policy
//!    │                        └── 64: again ◄─────────────────────┐         │ arm
//!    │                                                            │         ▼
//!    └──────────────── nothing left ◄── the application, if frames wait for it
//! ```
//! Source: Linux `net/core/dev.c` (`napi_poll`, `net_rx_action`), `Documentation/networking/napi.rst`.
//!
//! **Limits.** An interrupt that arrives while the core works is taken at the end of the current round or batch, not at
//! once. This changes the order of the work, not its amount. Frames are not merged (GRO).

use policy::frequency::{self, Frequency, FrequencyPolicy as _};
use policy::moderation::{self, Delays, Moderation, ModerationPolicy as _, Sample};
use policy::wait::{Action, Arrivals, Ended, Observation, Queue};
use units::{Cycles, Nanos, Simulated};

use super::Scaling;
use super::core::{Core, Path, Whom};
use super::port::Port;
use super::profiles::Profiles;
use super::queue::{RESERVED, Waiting};
use super::tally::{Shares, Tally};
use super::user::{Served, overlap};
use crate::At;
use crate::hw::cpufreq::Load;
use crate::outcome::{Activity, Drop, Moderated, Term};
use crate::scenario::{HEALTH_INTERVAL, KernelModel};

/// The maximum number of frames that one poll takes from a queue: `NAPI_POLL_WEIGHT`, include/linux/netdevice.h.
pub const WEIGHT: usize = 64;
/// Number of frames after which other work gets a turn even if more frames arrive: `net_hotdata.netdev_budget`, 300
/// (`net.core.netdev_budget`).
pub const BUDGET: usize = 300;

/// Configuration of the core.
#[derive(Debug)]
pub struct Config {
    /// The queues that the core serves, with their receive moderation.
    pub queues: Vec<(usize, Moderation<Simulated>)>,
    pub frequency: Option<Frequency<Simulated>>,
    pub model: KernelModel,
    pub stamps: bool,
    /// What changes the frequency if no policy does. `None` if the frequency is fixed or a policy changes it.
    pub scaling: Option<Scaling>,
}

/// The core's counts within the window.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub polls: u64,
    pub empty_polls: u64,
    pub frequency_reasons: [u64; frequency::Reason::ALL.len()],
    pub moderation_reasons: [u64; moderation::Reason::ALL.len()],
}

/// The state of a queue in NAPI.
#[derive(Debug)]
struct Napi {
    queue: usize,
    policy: Moderation<Simulated>,
    scheduled: bool,
    /// Whether the queue was polled since its last interrupt.
    polled: bool,
    /// Number of interrupts since the start of the simulation, for the moderation policy.
    events: u64,
    packets: u64,
    bytes: u64,
    delays: Delays,
    profiles: Profiles,
}

const NO_DELAYS: Delays = Delays { packets: 0, shortest: Nanos::MAX, longest: Nanos::ZERO };

#[derive(Debug)]
enum State {
    Running,
    Resting { began: At, due: At },
    Waking { began: At, path: Path },
}

/// The state of the core.
#[derive(Debug)]
pub struct Kernel {
    config: Config,
    pub core: Core,
    pub counts: Counts,
    state: State,
    napis: Vec<Napi>,
    batch: Vec<Waiting>,
    /// Frames that wait in the sockets, each with the index of its queue and the known terms of its delay.
    socket: Vec<(usize, Waiting, Shares)>,
    seen: Vec<Queue<Simulated>>,
    ended: Option<Ended<Simulated>>,
    path: Option<Path>,
    /// Number of interrupts that arrived while the core worked.
    interrupts: u64,
    /// Number of frames taken since other work last had a turn.
    spent: usize,
    /// Whether the application ran since the core was last idle.
    ran: bool,
    busy: Nanos,
    asleep: Nanos,
    /// Packet counts for a governor that uses them.
    load: Load,
}

impl Kernel {
    pub fn new(mut config: Config, core: Core) -> Self {
        let napis: Vec<Napi> = std::mem::take(&mut config.queues)
            .into_iter()
            .map(|(queue, policy)| Napi {
                queue,
                scheduled: true,
                polled: false,
                events: 0,
                packets: 0,
                bytes: 0,
                delays: NO_DELAYS,
                profiles: Profiles::new(policy.profile()),
                policy,
            })
            .collect();
        Self {
            core,
            counts: Counts::default(),
            state: State::Running,
            batch: Vec::with_capacity(WEIGHT),
            socket: Vec::with_capacity(RESERVED.min(config.model.socket as usize)),
            seen: Vec::with_capacity(napis.len()),
            napis,
            config,
            ended: None,
            path: None,
            interrupts: 0,
            spent: 0,
            ran: false,
            busy: Nanos::ZERO,
            asleep: Nanos::ZERO,
            load: Load::default(),
        }
    }

    /// Acts at `now`. Returns when the core wants to act next.
    pub fn act(&mut self, now: At, port: &mut Port, tally: &mut Tally) -> At {
        match std::mem::replace(&mut self.state, State::Running) {
            State::Running => self.round(now, port, tally),
            State::Resting { began, due } => {
                let path = self.core.wake_by_timer(due, now, Whom::Handler);
                self.state = State::Waking { began, path };
                path.ready()
            }
            State::Waking { began, path } => {
                self.asleep += now.since(began).unwrap_or(Nanos::ZERO);
                self.ended =
                    Some(Ended { action: Action::BlockUntil(None), began, ended: now, spent: None, idle: Nanos::ZERO });
                self.path = Some(path);
                self.round(now, port, tally)
            }
        }
    }

    /// Notes that the interrupt of `queue` fired at `fired`. Returns when the core will act. `None` if the core was not
    /// resting.
    pub fn interrupted(&mut self, queue: usize, fired: At) -> Option<At> {
        for napi in self.napis.iter_mut().filter(|napi| napi.queue == queue) {
            napi.scheduled = true;
            napi.polled = false;
            napi.events += 1;
            self.load.polled_in_a_row = 0;
        }
        let State::Resting { began, .. } = self.state else {
            self.interrupts += 1;
            return None;
        };
        let path = self.core.wake_by_interrupt(fired, Whom::Handler);
        self.state = State::Waking { began, path };
        Some(path.ready())
    }

    /// Polls each scheduled queue once. Then the application runs, or the core rests.
    fn round(&mut self, now: At, port: &mut Port, tally: &mut Tally) -> At {
        let mut at = now;
        if self.interrupts > 0 {
            let taking = Cycles::new(self.core.interrupt_work().count() * std::mem::take(&mut self.interrupts));
            at = self.core.execute(at, taking, Activity::Working);
        }
        self.seen.clear();
        for index in 0..self.napis.len() {
            if self.napis[index].scheduled {
                at = self.poll(at, index, port, tally);
            } else {
                self.seen.push(Queue { received: 0, fill: 0, arrivals: None });
            }
        }
        self.path = None;
        self.steer(at, tally);
        let more = self.napis.iter().any(|napi| napi.scheduled);
        if !self.socket.is_empty() && (!more || self.spent >= BUDGET) {
            at = self.application(at, port, tally);
        }
        if self.spent >= BUDGET || !more {
            self.spent = 0;
        }
        if more || self.interrupts > 0 {
            return at.max(now + Nanos::from_nanos(1));
        }
        let due = at + HEALTH_INTERVAL;
        self.state = State::Resting { began: at, due };
        // From interrupt context the core returns directly to the idle loop; leaving a thread takes a context switch.
        let whom = if std::mem::take(&mut self.ran) { Whom::Thread } else { Whom::Handler };
        self.core.rest(at, due, whom)
    }

    /// Polls a queue once. Returns when the poll ends.
    fn poll(&mut self, now: At, index: usize, port: &mut Port, tally: &mut Tally) -> At {
        let queue = self.napis[index].queue;
        let KernelModel { poll, frame, application, socket, .. } = self.config.model;
        port.fetch(now, tally);
        let fill = port.queues[queue].take(now, WEIGHT, &mut self.batch);
        port.queues[queue].reclaim(now);
        let count = self.batch.len() as u64;
        self.spent += self.batch.len();
        if std::mem::replace(&mut self.napis[index].polled, true) {
            self.load.polled_packets += count;
            self.load.polled_in_a_row += count;
        } else {
            self.load.interrupt_packets += count;
        }
        let began = self.core.execute(now, poll, Activity::Working);
        let done = self.core.execute(began, Cycles::new(count * frame.count()), Activity::Working);
        self.busy += if count > 0 { done.since(now).unwrap_or(Nanos::ZERO) } else { Nanos::ZERO };
        let counted = tally.within(now);
        self.counts.polls += u64::from(counted);
        self.counts.empty_polls += u64::from(counted && count == 0);
        self.look(fill, began);
        let each = done.since(began).unwrap_or(Nanos::ZERO);
        for number in 0..self.batch.len() {
            let waiting = self.batch[number];
            self.napis[index].packets += 1;
            self.napis[index].bytes += u64::from(waiting.octets);
            let at = began + each.scale(number as u64 + 1, count);
            let shares = Served::new(&self.core, self.path, (now, at), waiting.visible, poll, frame).shares(&waiting);
            if application.is_none() {
                self.send(at, index, &waiting, shares, port, tally);
            } else if self.socket.len() < socket as usize {
                self.socket.push((index, waiting, shares));
            } else {
                port.lose(queue, &waiting, Drop::SocketFull, at, tally);
            }
        }
        self.batch.clear();
        if count < WEIGHT as u64 { self.complete(done, index, port, tally) } else { done }
    }

    fn look(&mut self, fill: u32, picked_up: At) {
        let arrivals = match (self.config.stamps, self.batch.first(), self.batch.last()) {
            (_, None, _) | (_, _, None) => None,
            (true, Some(first), Some(last)) => Some(Arrivals::stamped(first.arrival, last.arrival, picked_up)),
            _ => Some(Arrivals::stamped(picked_up, picked_up, picked_up)),
        };
        self.seen.push(Queue { received: self.batch.len() as u32, fill, arrivals });
    }

    /// Asks the moderation policy of a queue that is now empty, and arms the queue's interrupt.
    fn complete(&mut self, now: At, index: usize, port: &mut Port, tally: &Tally) -> At {
        let napi = &mut self.napis[index];
        napi.scheduled = false;
        let delays = std::mem::replace(&mut napi.delays, NO_DELAYS);
        let sample = Sample {
            now,
            events: napi.events,
            packets: napi.packets,
            bytes: napi.bytes,
            completions: napi.events,
            delays: (delays.packets > 0).then_some(delays),
        };
        let decision = napi.policy.decide(&sample);
        self.counts.moderation_reasons[decision.reason as usize] += u64::from(tally.within(now));
        let mut at = now;
        if let moderation::Action::Apply(profile) = decision.action {
            at = self.core.execute(now, self.config.model.program, Activity::Working);
            napi.profiles.change(at, profile, tally);
            port.queues[napi.queue].program(at, profile);
            napi.policy.applied(at, profile);
        }
        port.queues[napi.queue].arm(at);
        at
    }

    /// Lets the application process all frames that wait for it, one after the other.
    fn application(&mut self, now: At, port: &mut Port, tally: &mut Tally) -> At {
        let Some(work) = self.config.model.application else { return now };
        self.ran = true;
        let (runs, refill) = self.core.dispatch(now);
        let switched = runs.since(now).unwrap_or(Nanos::ZERO).as_nanos();
        let mut at = self.core.execute(runs, refill, Activity::Working);
        let mut socket = std::mem::take(&mut self.socket);
        for (index, waiting, mut shares) in socket.drain(..) {
            let began = at;
            at = self.core.execute(began, work, Activity::Working);
            let took = at.since(began).unwrap_or(Nanos::ZERO).as_nanos();
            let (stalled, taken) = (overlap(self.core.stall(), began, at), overlap(self.core.taken(), began, at));
            shares[Term::FrequencyStall as usize] += stalled;
            shares[Term::Scheduling as usize] += switched + taken;
            shares[Term::Work as usize] += took.saturating_sub(stalled + taken);
            self.send(at, index, &waiting, shares, port, tally);
        }
        self.socket = socket;
        self.busy += at.since(now).unwrap_or(Nanos::ZERO);
        at
    }

    fn send(
        &mut self,
        now: At,
        index: usize,
        waiting: &Waiting,
        mut shares: Shares,
        port: &mut Port,
        tally: &mut Tally,
    ) {
        let queue = self.napis[index].queue;
        let Some((departure, octets)) = port.send(queue, waiting, now) else {
            port.lose(queue, waiting, Drop::TxFull, now, tally);
            return;
        };
        shares[Term::Transmit as usize] = departure.since(now).unwrap_or(Nanos::ZERO).as_nanos();
        tally.departed(queue, octets, waiting.arrival, departure, shares);
        port.answered(waiting, departure);
        let delay = departure.since(waiting.arrival).unwrap_or(Nanos::ZERO);
        let delays = &mut self.napis[index].delays;
        delays.packets += 1;
        delays.shortest = delays.shortest.min(delay);
        delays.longest = delays.longest.max(delay);
    }

    /// Asks the frequency policy after a round.
    fn steer(&mut self, now: At, tally: &Tally) {
        let ended = self.ended.take();
        if let Some(policy) = &mut self.config.frequency {
            let poll = Observation { now, queues: &self.seen, ended };
            let (busy, asleep) = (std::mem::take(&mut self.busy), std::mem::take(&mut self.asleep));
            let running = Some(self.core.frequency());
            let asked = policy.decide(&frequency::Observation { poll: &poll, busy, asleep, running, waiting: None });
            self.counts.frequency_reasons[asked.reason as usize] += u64::from(tally.within(now));
            if let frequency::Action::Request(wanted) = asked.action {
                self.core.request(now, wanted);
            }
        }
        if let Some(scaling) = &mut self.config.scaling {
            scaling.steer(now, &mut self.core, self.load);
        }
    }

    /// Closes the counts at the end of the simulation.
    pub fn finish(&mut self, tally: &mut Tally) -> Vec<Moderated> {
        for (index, waiting, _) in &self.socket {
            tally.in_flight(self.napis[*index].queue, waiting.arrival);
        }
        self.napis.drain(..).map(|napi| napi.profiles.finish(napi.queue, tally)).collect()
    }
}
