//! The packets that arrive in the simulated run, and the deadline of each.

use policy::Goal;
use units::Nanos;

use super::Why;
use super::prices::Machine;
use super::schedule::{Line, Packets};
use crate::At;
use crate::hw::link::PREAMBLE;
use crate::scenario::Scenario;
use crate::traffic::Kind;
use crate::world;

/// Packets are treated as one if the time between them is less than 1 / `SHARE` of the time that they can wait. This
/// lowers the bound's cost of wake-ups by about the same fraction.
pub const SHARE: u64 = 64;
/// Packets are also treated as one if they are closer together than 1 / `ENTRIES` of the window, so memory and
/// computing time do not grow with the window.
pub const ENTRIES: u64 = 1_000_000;

/// The packets of some runs.
#[derive(Debug)]
pub struct Arrivals {
    /// Packets that can be served in time and whose deadline lies within the window. One line per core of each run.
    pub lines: Vec<Line>,
    /// Number of all packets that arrived within the window.
    pub packets: u64,
    /// Number of packets that are late whatever the worker does.
    pub late: u64,
}

impl Arrivals {
    /// No runs.
    pub const NONE: Self = Self { lines: Vec::new(), packets: 0, late: 0 };

    /// Adds the arrivals of the run of `scenario` with this `seed`.
    pub fn add(&mut self, scenario: &Scenario, seed: u64, goal: Goal, machine: &Machine) -> Result<(), Why> {
        if scenario.traffic.iter().any(|stream| matches!(stream.traffic.kind, Kind::Request(_))) {
            return Err(Why::Closed);
        }
        let begin = At::ORIGIN + scenario.warm_up;
        let end = begin + scenario.duration;
        let cores = scenario.worker.cores() as usize;
        let window = (begin.as_nanos(), end.as_nanos());
        let first = self.lines.len();
        self.lines.resize(first + cores, Line { window, packets: Vec::new() });
        let nic = &scenario.host.nic;
        let mut answer = (0, Nanos::ZERO);
        world::arrivals(scenario, seed, end, |queue, arrival, visible, octets| {
            if arrival < begin {
                return;
            }
            self.packets += 1;
            let leaves = arrival + goal.latency;
            if leaves >= end {
                return;
            }
            if answer.0 != octets {
                // From the doorbell to the last bit on an idle wire; times are rounded down.
                let bits = (PREAMBLE + u64::from(octets)) * 8;
                let wire = u128::from(bits) * 1_000_000_000 / u128::from(nic.link.rate.as_bps().max(1));
                let out = nic.transmit + nic.bus_time(octets.into()) + Nanos::from_nanos(wire as u64);
                answer = (octets, if machine.sends { out } else { Nanos::ZERO });
            }
            let deadline = leaves.before(answer.1 + machine.shortest_service);
            match deadline.filter(|deadline| *deadline >= visible) {
                None => self.late += 1,
                Some(deadline) => {
                    let (release, deadline) = (visible.as_nanos(), deadline.as_nanos());
                    let slack = deadline - release;
                    let close = (slack / SHARE).max(scenario.duration.as_nanos() / ENTRIES);
                    self.lines[first + queue % cores].push(Packets { release, deadline, count: 1 }, close);
                }
            }
        })?;
        Ok(())
    }
}
