//! A forwarder that polls, between two links: wire, controller, loop, controller, wire.

use std::collections::VecDeque;

use units::{Cycles, Nanos};

use crate::At;
use crate::hw::link::{PREAMBLE, Wire};
use crate::hw::nic::NicModel;
use crate::hw::pstate::PState;
use crate::machine::WorkModel;
use crate::random::Random;

/// Frames that a poll takes at most: DPDK's usual burst.
const BURST: usize = 32;

/// A core with what takes it away from its loop: blocks of frequency changes, and stalls.
pub(super) struct Core {
    pub pstate: PState,
    /// When something takes the core, and for how long; ascending.
    pub stalls: VecDeque<(At, Nanos)>,
}

impl Core {
    /// Executes `work` from `now` on: when it ends.
    fn run(&mut self, now: At, work: Cycles) -> At {
        let mut end = self.pstate.execute(now, work);
        while let Some((at, takes)) = self.stalls.front().copied().filter(|(at, _)| *at < end) {
            // A stall that began in the past, while nothing ran, has partly gone by.
            let gone = now.since(at).unwrap_or(Nanos::ZERO);
            end = end + takes.saturating_sub(gone);
            self.stalls.pop_front();
        }
        end
    }

    /// When something other than the loop happens next.
    fn next_event(&self) -> At {
        let stall = self.stalls.front().map_or(At::from_nanos(u64::MAX), |(at, _)| *at);
        self.pstate.poll_at().map_or(stall, |change| stall.min(change))
    }

    /// Polls from `now` on until a poll begins at or after `visible`; says when that one begins.
    fn poll_until(&mut self, mut now: At, visible: At, poll: Cycles) -> At {
        now = now.max(self.pstate.blocked_until());
        while now < visible {
            let span = (poll / self.pstate.frequency()).max(Nanos::from_nanos(1));
            let quiet = self.next_event().min(visible).since(now).unwrap_or(Nanos::ZERO);
            let polls = quiet.as_nanos() / span.as_nanos();
            // The polls before anything happens need not be looked at one by one.
            now = if polls > 0 { now + span * polls } else { self.run(now, poll) };
            now = now.max(self.pstate.blocked_until());
        }
        now
    }
}

/// What is between the two links.
pub(super) struct Forwarder<'a> {
    pub nic: &'a NicModel,
    pub work: WorkModel,
    /// Octets of every frame, with its check sequence.
    pub octets: u64,
}

/// Frames at equal distances.
#[derive(Clone, Copy)]
pub(super) struct Load {
    /// When the first one begins.
    pub from: At,
    /// Nanoseconds from one frame's begin to the next's, as a fraction.
    pub spacing: (u64, u64),
    /// How many.
    pub frames: u64,
}

impl Load {
    fn at(&self, number: u64) -> At {
        let nanos = u128::from(number) * u128::from(self.spacing.0) / u128::from(self.spacing.1);
        self.from + Nanos::from_nanos(nanos as u64)
    }
}

impl Forwarder<'_> {
    /// Sends the load through; `seen` gets each frame's number and its latency, from its first bit at
    /// the tester to its first bit back there. Says how many frames found no descriptor.
    pub fn forward(&self, core: &mut Core, load: Load, random: &mut Random, mut seen: impl FnMut(u64, Nanos)) -> u64 {
        let mut wire = Wire::new(&self.nic.link).expect("a machine's link is sound");
        let (link, bus) = (&self.nic.link, self.nic.bus_time(self.octets));
        let inward = link.time_of(PREAMBLE + self.octets) + link.latency + self.nic.receive + bus;
        let (mut upcoming, mut number) = (VecDeque::new(), 0);
        let mut last_visible = At::ORIGIN;
        let mut next = |random: &mut Random| {
            (number < load.frames).then(|| {
                let sent = load.at(number);
                // Descriptors are written in order.
                last_visible = last_visible.max(sent + inward + random.uniform(Nanos::ZERO, self.nic.jitter));
                number += 1;
                (number - 1, sent, last_visible)
            })
        };
        let (mut now, mut bus_free, mut dropped) = (load.from, load.from, 0);
        upcoming.extend(next(random));
        while let Some(&(_, _, visible)) = upcoming.front() {
            now = core.poll_until(now, visible, self.work.poll);
            while upcoming.back().is_some_and(|&(_, _, visible)| visible <= now) {
                let Some(frame) = next(random) else { break };
                if upcoming.len() > self.nic.rx_descriptors as usize && frame.2 <= now {
                    dropped += 1;
                } else {
                    upcoming.push_back(frame);
                }
            }
            let taken = upcoming.iter().take(BURST).take_while(|(_, _, visible)| *visible <= now).count();
            let cycles = self.work.burst.count() + self.work.frame.count() * taken as u64;
            now = core.run(now, Cycles::new(cycles));
            for (number, sent, _) in upcoming.drain(..taken) {
                bus_free = bus_free.max(now + self.nic.transmit) + bus;
                let back = wire.send(bus_free, self.octets).begins + link.latency;
                seen(number, back.since(sent).unwrap_or(Nanos::ZERO));
            }
            if upcoming.is_empty() {
                upcoming.extend(next(random));
            }
        }
        dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Summary;
    use crate::machine::Machine;
    use units::Hertz;

    fn core() -> Core {
        let machine = Machine::named("xeon-e5-2699v3").unwrap();
        let pstate = PState::new(machine.processor().unwrap().pstates, Hertz::new(2_200_000_000), At::ORIGIN).unwrap();
        Core { pstate, stalls: VecDeque::new() }
    }

    fn run(core: &mut Core, spacing_ns: u64, frames: u64) -> (Summary, u64) {
        let (nic, host) = (Machine::named("82599").unwrap(), Machine::named("xeon-e5-2699v3").unwrap());
        let work = host.processor().unwrap().work;
        let forwarder = Forwarder { nic: nic.nic().unwrap(), work, octets: 64 };
        let load = Load { from: At::from_nanos(1_000), spacing: (spacing_ns, 1), frames };
        let (mut summary, mut count) = (Summary::default(), 0);
        let dropped = forwarder.forward(core, load, &mut Random::stream(1, 1), |_, latency| {
            summary.add(latency);
            count += 1;
        });
        assert_eq!(count + dropped, frames, "in = out + dropped");
        (summary, dropped)
    }

    #[test]
    fn a_stall_is_met_in_full_by_the_frame_at_its_start() {
        let (quiet, _) = run(&mut core(), 1_000, 2_000);
        let mut disturbed = core();
        disturbed.stalls.push_back((At::from_nanos(500_000), Nanos::from_micros(20)));
        let (stalled, dropped) = run(&mut disturbed, 1_000, 2_000);
        let more = stalled.most() - quiet.most();
        assert!((18_000.0..=21_000.0).contains(&more), "{more}");
        assert!(quiet.most() - quiet.least() < 1_500.0 && dropped == 0);
    }

    #[test]
    fn more_than_the_core_can_do_overflows_the_ring() {
        let (summary, dropped) = run(&mut core(), 20, 50_000);
        assert!(dropped > 20_000, "{dropped}");
        // A full ring, at the core's rate.
        assert!(summary.most() > 60_000.0, "{}", summary.most());
    }
}
