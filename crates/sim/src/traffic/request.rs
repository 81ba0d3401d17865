//! A closed loop of requests, like netperf's TCP_RR: each request is sent when the previous one has been answered.
//!
//! ```text
//!   client ── think ──► request ── distance ──► our wire … our wire ── distance ──► client ── think ──► …
//! ```
//! A longer delay in the server lowers the rate: each connection makes 1 / (delay + 2 distances + think) transactions
//! per second.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use units::Nanos;

use super::{Frame, Sizes};
use crate::At;
use crate::random::Random;

/// Parameters of the closed loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Number of clients. Each has at most one outstanding request. At least 1.
    pub connections: u32,
    /// One-way time from the client's application to the simulated host's port: the client's stack and NIC, and the
    /// cable.
    pub distance: Nanos,
    /// Time from the arrival of an answer at the client to the next request; the mean if [`Request::think_varies`].
    pub think: Nanos,
    /// Whether the time from an answer to the next request is exponentially distributed with the mean `think`. If
    /// false, it is always `think`.
    pub think_varies: bool,
    /// Time after which a lost request is sent again. Linux's minimum is 200 ms (`TCP_RTO_MIN`, include/net/tcp.h).
    pub timeout: Nanos,
}

impl Request {
    /// Linux's minimum retransmission timeout, `TCP_RTO_MIN`: include/net/tcp.h, HZ / 5.
    pub const TIMEOUT: Nanos = Nanos::from_millis(200);
}

/// The clients.
#[derive(Debug)]
pub struct Source {
    what: Request,
    sizes: Sizes,
    random: Random,
    /// Arrival times of the requests on their way to the simulated host, with their connections. At most one per
    /// connection.
    pending: BinaryHeap<Reverse<(At, u32)>>,
}

impl Source {
    /// Makes a source whose clients start thinking at `start`. The first request of each client arrives after its think
    /// time and `distance`, plus one nanosecond more than for the client before.
    pub fn new(what: &Request, sizes: Sizes, start: At, random: Random) -> Self {
        let pending = BinaryHeap::with_capacity(what.connections as usize);
        let mut source = Self { what: *what, sizes, random, pending };
        for connection in 0..what.connections {
            let at = start + source.thinks() + what.distance + Nanos::from_nanos(connection.into());
            source.pending.push(Reverse((at, connection)));
        }
        source
    }

    /// The minimum time from an answer to the next request, both at the simulated host.
    pub const fn round_trip(&self) -> Nanos {
        self.what.distance.saturating_add(self.what.distance)
    }

    fn thinks(&mut self) -> Nanos {
        if self.what.think_varies { self.random.exponential(self.what.think) } else { self.what.think }
    }

    /// Draws the next request on its way to the simulated host. `None` if there is none.
    pub fn draw(&mut self) -> Option<Frame> {
        let Reverse((at, tag)) = self.pending.pop()?;
        Some(Frame { at, octets: self.sizes.draw(), tag, queue: None })
    }

    /// Puts back a drawn frame, because an earlier one has come up since.
    pub fn put_back(&mut self, frame: Frame) {
        self.pending.push(Reverse((frame.at, frame.tag)));
    }

    /// Reports that the answer to `connection` leaves the simulated host's wire at `at`.
    pub fn answered(&mut self, connection: u32, at: At) {
        let next = at + self.what.distance + self.thinks() + self.what.distance;
        self.pending.push(Reverse((next, connection)));
    }

    /// Reports that the request of `connection` was lost at `at`.
    pub fn lost(&mut self, connection: u32, at: At) {
        self.pending.push(Reverse((at + self.what.timeout, connection)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_transaction_each_round_trip() {
        let us = Nanos::from_micros;
        let what =
            Request { connections: 2, distance: us(5), think: us(1), think_varies: false, timeout: Request::TIMEOUT };
        let mut source = Source::new(&what, Sizes::fixed(64).unwrap(), At::ORIGIN, Random::stream(3, 3));
        let (first, second) = (source.draw().unwrap(), source.draw().unwrap());
        assert_eq!((first.at.as_nanos(), first.tag, second.tag), (6_000, 0, 1));
        assert_eq!(source.draw(), None, "nobody has been answered");
        source.answered(1, At::from_nanos(20_000));
        source.lost(0, At::from_nanos(6_000));
        assert_eq!(source.draw().map(|f| (f.at.as_nanos(), f.tag)), Some((31_000, 1)));
        assert_eq!(source.draw().map(|f| (f.at.as_nanos(), f.tag)), Some((200_006_000, 0)));
    }
}
