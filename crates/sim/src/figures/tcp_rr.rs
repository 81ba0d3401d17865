//! S2.4: request and response under static and adaptive moderation, and the interrupts that it saves.

use policy::moderation::{Action, Direction, ModerationPolicy, NetDim, PeriodMode, Profile, Sample};
use units::{Nanos, Simulated};

use super::{Figure, Input, Kind, Row, Theirs};
use crate::At;
use crate::hw::interrupt::{DelayFrom, Moderation, ModerationModel};
use crate::machine::MachineError;
use crate::random::Random;

/// Transactions a second with static coalescing: the row that the rest of the round trip is set by.
const STATIC_RATE: f64 = 20_360.0;
/// Transactions of a run.
const TRANSACTIONS: u64 = 60_000;
/// Irregularity of one way, a standard deviation.
const DEVIATION: Nanos = Nanos::from_nanos(500);

/// bnxt_en's static receive coalescing (`bnxt_init_dflt_coal`, Linux 4.17): 14 us, 30 buffers. A ring that
/// is idle interrupts at once (`RING_IDLE`, set below 50 us).
const STATIC_BULK: ModerationModel = ModerationModel::delayed(Nanos::from_micros(14), 30);

pub(super) fn figure(seed: u64) -> Result<Figure, MachineError> {
    let round_trip = Nanos::from_nanos((1e9 / STATIC_RATE) as u64);
    let both = request_response(round_trip, [true, true], seed);
    let one = request_response(round_trip, [true, false], seed);
    let fixed = request_response(round_trip, [false, false], seed);
    let rate = |case: &str| Row::predicted(case, "transactions", "1/s", Kind::Typical);
    let ratio = |case: &str| Row::predicted(case, "adaptive over static", "", Kind::Typical);
    let mut rows = vec![
        rate("static").theirs(Theirs::Value(STATIC_RATE)).modelled(fixed.rate).calibrated(),
        rate("adaptive on both hosts").theirs(Theirs::Value(19_513.0)).modelled(both.rate),
        ratio("adaptive on both hosts").theirs(Theirs::Value(19_513.0 / STATIC_RATE)).modelled(both.rate / fixed.rate),
        Row::predicted("adaptive on both hosts", "reduction", "%", Kind::Typical)
            .theirs(Theirs::Value(4.0))
            .modelled((1.0 - both.rate / fixed.rate) * 100.0)
            .because(
                "A small difference of two rates; theirs, 20,360 to 19,513, is 4.2 % (“~4 %”). Each host adds the shortest \
                 profile's 1 us, and now and then the 8 us of the next that DIM tries.",
            ),
        rate("adaptive on one host").modelled(one.rate),
        Row::predicted("adaptive on both hosts", "profile changes", "1/s", Kind::Typical).modelled(both.changes),
    ];
    for (case, gap) in [("30 kpps", 33_333), ("300 kpps", 3_333), ("2 Mpps", 500)] {
        let (fixed, dim) = bulk(Nanos::from_nanos(gap), seed);
        rows.push(
            Row::predicted(format!("receive {case}, Poisson"), "interrupts saved", "%", Kind::Typical)
                .modelled((1.0 - dim / fixed) * 100.0),
        );
    }
    Ok(Figure {
        id: "s2.4",
        title: "TCP_RR under static and adaptive moderation, and interrupts saved",
        document: "Dynamic Interrupt Moderation (Gospodarek), maintaining TCP_RR performance; improved CPU utilization",
        method: "A closed loop of two hosts, one transaction at a time, whose round trip without moderation is set by the \
                 static row. Adaptive is DIM bit for bit as the kernel has it (policy::moderation::NetDim), one \
                 instance for each receive queue, its profiles applied at once. Static interrupts at once when the ring \
                 was idle, as bnxt_en's does. The document draws the CPU that is saved without a number: interrupts \
                 saved are Apus's own, against bnxt_en's static 14 us and 30 frames."
            .into(),
        inputs: inputs(round_trip),
        rows,
        plots: Vec::new(),
    })
}

fn inputs(round_trip: Nanos) -> Vec<Input> {
    let dim = "Linux include/linux/dim.h and lib/dim/net_dim.c (7.0)";
    vec![
        Input::new(
            "round trip without moderation",
            round_trip.to_string(),
            "calibrated on the static row, 20,360 a second",
        ),
        Input::new("DIM profiles", "receive, EQE: 1, 8, 64, 128, 256 us", dim),
        Input::new("DIM window", "64 events; 11 % is significant", dim),
        Input::new(
            "static moderation",
            "14 us, 30 buffers; at once when the ring was idle",
            "Linux drivers/net/ethernet/broadcom/bnxt/bnxt.c, bnxt_init_dflt_coal and RING_IDLE (4.17)",
        ),
        Input::new(
            "both hosts adaptive",
            "yes",
            "assumption: the slides do not say which host was set; the row with one is beside it",
        ),
        Input::new(
            "irregularity of one way",
            format!("{DEVIATION} standard deviation"),
            "assumption: without any, DIM would see rates that are equal to the last digit",
        ),
    ]
}

struct Closed {
    rate: f64,
    changes: f64,
}

/// A host's receive queue.
struct Host {
    interrupt: Moderation,
    dim: Option<NetDim<Simulated>>,
    events: u64,
    packets: u64,
    changes: u64,
}

/// Octets of a request or response on the wire: one octet of payload in a minimum frame.
const OCTETS: u64 = 66;

impl Host {
    fn new(adaptive: bool) -> Self {
        let dim = adaptive.then(|| NetDim::new(Direction::Rx, PeriodMode::Eqe, 0).expect("within the table"));
        let model = dim.as_ref().map_or(ModerationModel::OFF, |dim| model(dim.profile()));
        Self { interrupt: Moderation::new(model), dim, events: 0, packets: 0, changes: 0 }
    }

    /// A frame arrives; when its interrupt fires.
    fn receive(&mut self, at: At) -> At {
        self.interrupt.frame(at);
        let fires = self.interrupt.poll_at().unwrap_or(at);
        self.packets += u64::from(self.interrupt.fire(fires).unwrap_or(0));
        self.sample(fires);
        fires
    }

    /// What the driver does at the end of each poll.
    fn sample(&mut self, now: At) {
        self.events += 1;
        let Some(dim) = &mut self.dim else { return };
        let sample = Sample {
            now,
            events: self.events,
            packets: self.packets,
            bytes: self.packets * OCTETS,
            completions: 0,
            delays: None,
        };
        if let Action::Apply(profile) = dim.decide(&sample).action {
            self.interrupt.set(now, model(profile));
            self.changes += 1;
            dim.applied(now);
        }
    }
}

fn model(profile: Profile) -> ModerationModel {
    let from = match profile.mode {
        PeriodMode::Eqe => DelayFrom::FirstFrame,
        PeriodMode::Cqe => DelayFrom::LastFrame,
    };
    ModerationModel {
        delay: profile.timer().unwrap_or(Nanos::ZERO),
        from,
        frames: profile.frames,
        interval: Nanos::ZERO,
    }
}

fn request_response(round_trip: Nanos, adaptive: [bool; 2], seed: u64) -> Closed {
    let mut random = Random::stream(seed, 24);
    let mut hosts = adaptive.map(Host::new);
    let begin = At::from_nanos(1_000_000);
    let mut now = begin;
    for _ in 0..TRANSACTIONS {
        for host in &mut hosts {
            now = host.receive(now + random.normal(round_trip / 2, DEVIATION));
        }
    }
    let seconds = now.since(begin).unwrap_or(Nanos::ZERO).as_nanos() as f64 / 1e9;
    let changes = hosts.iter().map(|host| host.changes).sum::<u64>() as f64 / seconds;
    Closed { rate: TRANSACTIONS as f64 / seconds, changes }
}

/// Interrupts a second of a Poisson load of this mean gap: static, and adaptive.
fn bulk(gap: Nanos, seed: u64) -> (f64, f64) {
    let count = |mut host: Host| {
        let mut random = Random::stream(seed, 25);
        let (begin, mut now) = (At::from_nanos(1_000_000), At::from_nanos(1_000_000));
        for _ in 0..150_000 {
            now = now + random.exponential(gap);
            while let Some(fires) = host.interrupt.poll_at().filter(|at| *at <= now) {
                host.packets += u64::from(host.interrupt.fire(fires).unwrap_or(0));
                host.sample(fires);
            }
            host.interrupt.frame(now);
        }
        host.interrupt.fired() as f64 / now.since(begin).unwrap_or(Nanos::ZERO).as_nanos() as f64
    };
    let fixed = Host { interrupt: Moderation::new(STATIC_BULK), ..Host::new(false) };
    (count(fixed), count(Host::new(true)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adaptive_costs_transactions_and_saves_interrupts() {
        let rows = figure(1).unwrap().rows;
        let value = |case: &str, quantity: &str| {
            rows.iter().find(|r| r.case == case && r.quantity == quantity).and_then(|r| r.modelled).unwrap()
        };
        let both = value("adaptive on both hosts", "transactions");
        let one = value("adaptive on one host", "transactions");
        assert!(both < one && one < STATIC_RATE, "{both} {one}");
        assert!(value("receive 300 kpps, Poisson", "interrupts saved") > 50.0);
    }
}
