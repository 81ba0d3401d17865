//! A forwarder that sleeps between packets: interrupt mode on l3fwd-power's scheme.

use policy::wait::{Action, Hybrid300, Observation, Queue, WaitPolicy};
use units::{Cycles, Hertz, Nanos};

use super::Summary;
use crate::At;
use crate::hw::aspm::Aspm;
use crate::hw::cstate::{CState, CStateModel, Wakeup};
use crate::hw::governor::Menu;
use crate::hw::interrupt::{Affinity, Handling, Moderation, ModerationModel};
use crate::hw::link::PREAMBLE;
use crate::hw::nic::NicModel;
use crate::hw::spread::Spread;
use crate::hw::vcpu::Vcpu;
use crate::machine::Processor;
use crate::random::Random;

/// The longest that the application blocks: l3fwd-power's `epoll_wait`, 10 ms.
const TIMEOUT: Nanos = Nanos::from_millis(10);

/// A host, its controller, and how both are set.
pub(super) struct Sleeper<'a> {
    pub nic: &'a NicModel,
    pub processor: &'a Processor,
    pub frequency: Hertz,
    pub cstates: CStateModel,
    pub choice: Choice,
    pub handling: Handling,
    pub affinity: Affinity,
    /// Interrupt throttling.
    pub interval: Nanos,
    /// How long the kernel may keep a woken thread from its core.
    pub unpreemptible: Spread,
    /// A virtual machine.
    pub virtual_machine: bool,
    /// The number of a packet after which the hypervisor loses one wake-up.
    pub loses_after: Option<u64>,
    /// The controller's link sleeps when it is idle.
    pub aspm: bool,
}

/// Which idle state is entered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// The deepest that is allowed.
    Deepest,
    /// What the menu governor says.
    Menu,
}

/// One packet every so often.
pub(super) struct Stream {
    pub gap: Nanos,
    /// The generator's own irregularity, a standard deviation.
    pub deviation: Nanos,
    pub packets: u64,
    /// Octets of a frame.
    pub octets: u64,
}

/// What was seen.
#[derive(Default)]
pub(super) struct Seen {
    pub latency: Summary,
    /// Packets that met a loop that still polled.
    pub polled: u64,
}

impl Sleeper<'_> {
    /// How long the loop polls after the last packet before it sleeps: the policy's own decisions, on
    /// this core's polls.
    pub fn window(&self) -> Nanos {
        let (mut policy, mut now) = (Hybrid300::new(), At::from_nanos(1));
        let poll = self.processor.work.poll / self.frequency;
        let began = now;
        loop {
            now = now + poll;
            let queue = Queue { received: 0, fill: 0, arrivals: None };
            let seen = Observation { now, queues: &[queue], ended: None };
            match policy.decide(&seen).action {
                Action::Poll => {}
                Action::Pause(span) => now = now + span,
                Action::SleepUntil(_) | Action::BlockUntil(_) => return now.since(began).unwrap_or(Nanos::ZERO),
            }
        }
    }

    /// Sends the stream through.
    pub fn run(&self, stream: &Stream, seed: u64) -> Seen {
        let Self { nic, processor, frequency, .. } = *self;
        let mut random = Random::stream(seed, 10);
        let mut core = CState::new(self.cstates.clone()).expect("a machine's idle states are sound");
        let mut link = self.aspm.then(|| Aspm::new(processor.aspm).expect("a machine's link is sound"));
        let (mut menu, mut vcpu) = (Menu::new(), Vcpu::new(processor.vcpu));
        let mut interrupt = Moderation::new(ModerationModel::throttled(self.interval));
        let (window, bus) = (self.window(), nic.bus_time(stream.octets));
        let inward = nic.link.time_of(PREAMBLE + stream.octets) + nic.link.latency + nic.receive + bus;
        let outward = nic.transmit + bus + nic.link.latency;
        let disturbance = processor.disturbance;
        let phase = random.below(disturbance.every.as_nanos());
        let mut seen = Seen::default();
        let mut sent = At::from_nanos(1_000_000);
        let (mut awake, mut sleeps) = (sent, sent + window);
        let mut done = sent;
        let mut loses_after = self.loses_after;
        for packet in 0..stream.packets {
            let arrives = sent + inward + random.uniform(Nanos::ZERO, nic.jitter);
            let visible = arrives + link.as_mut().map_or(Nanos::ZERO, |link| link.access(arrives));
            let mut work = Cycles::new(processor.work.burst.count() + processor.work.frame.count());
            let from = if visible <= awake {
                // The core was on its way to an earlier packet.
                awake.max(done)
            } else if visible < sleeps {
                seen.polled += 1;
                let poll = processor.work.poll / frequency + Nanos::from_micros(1);
                visible.max(done) + random.uniform(Nanos::ZERO, poll)
            } else {
                let idle_from = sleeps + processor.switch / frequency;
                let lost = loses_after.take_if(|number| packet > *number).is_some();
                interrupt.frame(visible);
                let fires = interrupt.poll_at().unwrap_or(visible);
                interrupt.fire(fires);
                let delivery = processor.delivery.deliver(frequency, self.handling, self.affinity, &mut random);
                let mut now = fires + delivery.message;
                if now >= idle_from {
                    self.idle(&mut core, &mut menu, idle_from);
                    let state = core.state().map_or(Cycles::new(0), |state| state.refill);
                    work = Cycles::new(work.count() + state.count());
                    menu.observe(now.since(idle_from).unwrap_or(Nanos::ZERO));
                    now = now + core.wake(now, Wakeup::Interrupt, &mut random);
                }
                now = now + delivery.handling + delivery.ipi + self.unpreemptible.sample(&mut random);
                now = if self.virtual_machine {
                    vcpu.halt(sleeps, frequency);
                    let woken = vcpu.wake(now, frequency).expect("it was halted");
                    now + woken.kick + woken.resume
                } else {
                    now + delivery.resume
                };
                awake = if lost { sleeps + TIMEOUT } else { now };
                awake
            };
            done = from + work / frequency;
            done = done + overlap(from.before(inward).unwrap_or(from), done, disturbance, phase, &mut random);
            sleeps = done + window;
            interrupt.taken();
            seen.latency.add((done + outward).since(sent).unwrap_or(Nanos::ZERO));
            let least = stream.gap.saturating_sub(stream.deviation * 6);
            sent = sent + random.normal(stream.gap, stream.deviation).max(least);
        }
        seen
    }

    fn idle(&self, core: &mut CState, menu: &mut Menu, from: At) {
        match self.choice {
            Choice::Deepest => core.enter_state(from, self.cstates.deepest),
            Choice::Menu => {
                let predicted = menu.predict(TIMEOUT);
                core.enter(from, predicted, Nanos::MAX);
            }
        }
    }
}

/// What the disturbance that falls between `from` and `to` takes, if one does.
fn overlap(from: At, to: At, model: crate::machine::Disturbance, phase: u64, random: &mut Random) -> Nanos {
    let every = model.every.as_nanos();
    let since = |at: At| (at.as_nanos() + every - phase % every) / every;
    if since(from) == since(to) {
        return Nanos::ZERO;
    }
    model.takes.sample(random)
}
