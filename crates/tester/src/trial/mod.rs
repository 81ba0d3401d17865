//! One trial: generator and receiver in one spinning loop over one queue of one device.
//!
//! ```text
//!  now ──► build all frames that are due ──► tx ──► rx, pick-up time ──► record ──► now …
//! ```
//! A frame's latency runs from the time at which the schedule meant it to be sent to the clock reading
//! right after the `rx` that brought it back. It therefore holds the tester's own lateness, its `tx`
//! call, and its polling; [`Trial::lateness`] and [`LoopCost`] say how much that can be.
//!
//! **Gaps.** The loop reads its clock before and after `tx`, after an `rx` that brought frames, and once
//! a round. Two readings further apart than `gap_threshold` are a gap. A `tx` call is part of the
//! measured path (on veth it runs the tested device's receive softirq on this CPU), so a long one is not
//! by itself the host's doing; but the host may take the CPU within it. Hence a `tx` of n frames is a gap
//! only when it takes more than `gap_threshold` + n * `tx_allowance`.

mod flood;
mod spin;

use live::device::Statistics;
use units::{Instant, Monotonic, Nanos};

use crate::frame::Layout;
use crate::gaps::{Gap, Recovery, Split, split};
use crate::histogram::Histogram;
use crate::ledger::Ledger;
use crate::schedule::Schedule;
use crate::search::Outcome;

pub use flood::{Flood, FloodConfig, flood};
pub use spin::run;

/// What to do in a trial.
#[derive(Clone, Debug)]
pub struct TrialConfig {
    /// The frames.
    pub layout: Layout,
    /// When they are due.
    pub schedule: Schedule,
    /// For random schedules.
    pub seed: u64,
    /// Tells this trial's frames from those of the trial before.
    pub stream: u16,
    /// Sent at the start and left out of all latencies and losses of [`Trial::split`].
    pub warm_up: Nanos,
    /// How long to send after the warm-up.
    pub duration: Nanos,
    /// How long to wait for frames after the last one was sent (RFC 2544, 23 d: 2 s). The trial ends
    /// earlier if all have come back.
    pub drain: Nanos,
    /// A frame that is later than this is not sent but counted as unsent: after a long gap a flood would
    /// test the rings instead of the schedule.
    pub max_lateness: Nanos,
    /// Frames handed to the device at a time.
    pub batch: usize,
    /// Time between two clock readings from which on it is a gap.
    pub gap_threshold: Nanos,
    /// Added to the threshold for each frame of a `tx` call.
    pub tx_allowance: Nanos,
    /// The most frames that a trial may intend, at 12 octets each.
    pub max_frames: u64,
}

impl TrialConfig {
    /// One second after 0.1 s of warm-up, with the defaults of `apus bench`.
    pub fn new(layout: Layout, schedule: Schedule) -> Self {
        Self {
            layout,
            schedule,
            seed: 1,
            stream: 1,
            warm_up: Nanos::from_millis(100),
            duration: Nanos::from_secs(1),
            drain: Nanos::from_millis(100),
            max_lateness: Nanos::from_millis(1),
            batch: 64,
            gap_threshold: Nanos::from_micros(30),
            // 6,900 cycles a frame at about 2 GHz for tx and the peer's receive softirq on veth
            // (reference/stack.md B1), with room for a slower machine.
            tx_allowance: Nanos::from_micros(5),
            max_frames: 20_000_000,
        }
    }
}

/// Frames counted in a trial, warm-up included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Frames that the schedule wanted sent: sent + unsent.
    pub intended: u64,
    /// Frames that the device took.
    pub sent: u64,
    /// Not sent: already later than `max_lateness` when the loop came round.
    pub unsent_late: u64,
    /// Not sent: the transmit ring stayed full until they were later than `max_lateness`.
    pub unsent_tx_full: u64,
    /// Not sent: no slot was free until they were later than `max_lateness`.
    pub unsent_no_buffer: u64,
    /// Frames that came back, each counted once.
    pub received: u64,
    /// Frames that came back once more.
    pub duplicates: u64,
    /// Frames with a sequence number lower than one that came before (RFC 4737, 3.3); without duplicates.
    pub reordered: u64,
    /// Frames whose test header was damaged. They also count as lost.
    pub corrupted: u64,
    /// Frames that are none of this trial's.
    pub foreign: u64,
}

impl Counts {
    /// Frames sent that did not come back.
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }
    /// Frames intended but not sent: the tester's failure.
    pub fn unsent(&self) -> u64 {
        self.unsent_late + self.unsent_tx_full + self.unsent_no_buffer
    }
}

/// What the tester's own loop cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LoopCost {
    /// Rounds of the loop.
    pub rounds: u64,
    /// Rounds in which nothing was sent or received.
    pub idle_rounds: u64,
    /// Time in idle rounds outside gaps.
    pub idle: Nanos,
    /// Time in the other rounds outside gaps: building, `tx`, `rx`, recording.
    pub busy: Nanos,
}

/// What came of a trial.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The time from which the schedule's offsets count.
    pub start: Instant<Monotonic>,
    /// The warm-up, as configured.
    pub warm_up: Nanos,
    /// How long frames were due: as configured, or until the schedule ended or the trial was interrupted.
    pub planned: Nanos,
    /// From the start to the last frame's hand-over, at least `planned`.
    pub sending: Nanos,
    /// What became of each intended frame.
    pub ledger: Ledger,
    /// Sums, warm-up included.
    pub counts: Counts,
    /// The times in which the tester's loop did not run.
    pub gaps: Vec<Gap>,
    /// Actual send (the reading before `tx`) minus intended send, for each frame sent.
    pub lateness: Histogram,
    /// What the loop cost.
    pub cost: LoopCost,
    /// What the tester's own device lost meanwhile; such frames were not lost by the tested device.
    pub device: Statistics,
    /// Times that the tester's link was found down.
    pub link_down_seen: u64,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
}

impl Trial {
    /// Sorts the samples by whether they met a gap of this loop or of the tested device's.
    pub fn split(&self, tested: &[Gap], recovery: Recovery) -> Split {
        split(&self.ledger, self.start, self.warm_up, &self.gaps, tested, recovery)
    }
    /// What a search is told of it. Losses that the tester's own device counted are the tester's failure.
    pub fn outcome(&self) -> Outcome {
        let own = self.device.rx_ring_full + self.device.rx_no_buffer;
        let own = own.min(self.counts.lost());
        Outcome { sent: self.counts.sent, lost: self.counts.lost() - own, unsent: self.counts.unsent() + own }
    }
    /// Frames a second that the schedule wanted.
    pub fn intended_pps(&self) -> Option<f64> {
        rate(self.counts.intended, self.planned)
    }
    /// Frames a second that were sent.
    pub fn offered_pps(&self) -> Option<f64> {
        rate(self.counts.sent, self.sending)
    }
    /// Frames a second that came back, over the time of sending.
    pub fn received_pps(&self) -> Option<f64> {
        rate(self.counts.received, self.sending)
    }
    /// Frames a second that this loop could send and receive if all rounds were like its busy ones;
    /// `None` if there were none. On veth that includes the softirqs that run within `tx`.
    pub fn ceiling_pps(&self) -> Option<f64> {
        rate(self.counts.sent, self.cost.busy)
    }
    /// The mean time of a round in which nothing happened: how finely the loop looks.
    pub fn idle_round_ns(&self) -> Option<f64> {
        (self.cost.idle_rounds > 0).then(|| self.cost.idle.as_nanos() as f64 / self.cost.idle_rounds as f64)
    }
}

fn rate(frames: u64, span: Nanos) -> Option<f64> {
    (span > Nanos::ZERO && frames > 0).then(|| frames as f64 * 1e9 / span.as_nanos() as f64)
}
