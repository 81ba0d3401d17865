//! A trial: one busy loop sends and receives frames on one queue of a device.
//!
//! ```text
//!  now ──► build all frames that are due ──► tx ──► rx, pick-up time ──► record ──► now …
//! ```
//! A frame's latency is the time from its due send time in the schedule to the clock reading right after the `rx` call
//! that received it. So the latency includes the tester's own lateness, its `tx` call, and its polling interval.
//! [`Trial::lateness`] and [`LoopCost`] show how large these parts are.
//!
//! **Gaps.** The loop reads its clock before and after `tx`, after an `rx` that received frames, and once per pass. If
//! two successive readings are further apart than `gap_threshold`, the time between them is a gap. A `tx` call is part
//! of the measured path: on veth, it runs the receive softirq of the device under test on this CPU. So a long `tx` call
//! is not always a gap. But the host may also take the CPU during the call. Therefore a `tx` call with n frames counts
//! as a gap only if it takes more than `gap_threshold` + n * `tx_allowance`.

mod flood;
mod lanes;
mod spin;

use live::device::Statistics;
use units::{Instant, Monotonic, Nanos};

use crate::frame::Layout;
use crate::gaps::{Gap, Recovery, Split, split};
use crate::histogram::Histogram;
use crate::ledger::{Fate, Ledger};
use crate::schedule::Schedule;
use crate::search::Outcome;
use crate::sizes::Sizes;

pub use flood::{Flood, FloodConfig, flood};
pub use lanes::{Lane, Port, run_lanes};
pub use spin::run;

/// Configuration of a trial.
#[derive(Clone, Debug)]
pub struct TrialConfig {
    /// Content and size of the frames.
    pub layout: Layout,
    /// Pattern of frame sizes. If `None`, all frames have the size in `layout`; frames of a capture have their recorded
    /// sizes.
    pub sizes: Option<Sizes>,
    /// When the frames are due.
    pub schedule: Schedule,
    /// Random seed of the schedule.
    pub seed: u64,
    /// Number in the header of each test frame. It tells the frames of this trial from those of the previous trial.
    pub stream: u16,
    /// Warm-up time at the start of the trial. [`Trial::split`] leaves out frames that are due during the warm-up.
    pub warm_up: Nanos,
    /// Time to send after the warm-up.
    pub duration: Nanos,
    /// Time to wait for frames after the last one was sent (RFC 2544, 23 d: 2 s). The trial ends earlier if all frames
    /// have come back.
    pub drain: Nanos,
    /// Maximum lateness of a frame. A frame that is later is not sent and counts as unsent. Without this limit, a burst
    /// of overdue frames after a long gap would test the rings instead of the schedule.
    pub max_lateness: Nanos,
    /// Maximum number of frames per send call.
    pub batch: usize,
    /// If two successive clock readings of the loop are further apart than this, the time between them is a gap.
    pub gap_threshold: Nanos,
    /// Time added to `gap_threshold` for each frame of a `tx` call.
    pub tx_allowance: Nanos,
    /// Maximum number of frames in a trial, each of which needs 12 bytes of memory.
    pub max_frames: u64,
}

impl TrialConfig {
    /// A trial of one second after a warm-up of 0.1 s, with the defaults of `apus bench`.
    pub fn new(layout: Layout, schedule: Schedule) -> Self {
        Self {
            layout,
            sizes: None,
            schedule,
            seed: 1,
            stream: 1,
            warm_up: Nanos::from_millis(100),
            duration: Nanos::from_secs(1),
            drain: Nanos::from_millis(100),
            max_lateness: Nanos::from_millis(1),
            batch: 64,
            gap_threshold: Nanos::from_micros(30),
            // On a 2-vCPU VM with about 2 GHz, tx and the peer's receive softirq on veth took 6,900 cycles per frame.
            // The allowance leaves room for a slower machine.
            tx_allowance: Nanos::from_micros(5),
            max_frames: 20_000_000,
        }
    }
}

/// Numbers of frames in a trial, including the warm-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Frames due: the sum of sent and unsent frames.
    pub intended: u64,
    /// Frames that the device accepted.
    pub sent: u64,
    /// Frames not sent because they were already later than [`TrialConfig::max_lateness`] when the loop reached them.
    pub unsent_late: u64,
    /// Frames not sent because the transmit ring stayed full until they were later than [`TrialConfig::max_lateness`].
    pub unsent_tx_full: u64,
    /// Frames not sent because the pool had no free buffer until they were later than [`TrialConfig::max_lateness`].
    pub unsent_no_buffer: u64,
    /// Frames that came back, each counted once.
    pub received: u64,
    /// Further arrivals of frames that had already come back.
    pub duplicates: u64,
    /// Frames with a lower sequence number than an earlier arrival of the same flow (RFC 4737, 3.3), without duplicates.
    pub reordered: u64,
    /// Frames that came back to a port other than the one that must receive them. They also count as lost.
    pub looped: u64,
    /// Frames with a damaged test header. They also count as lost.
    pub corrupted: u64,
    /// Frames that do not belong to this trial.
    pub foreign: u64,
}

impl Counts {
    /// Number of sent frames that did not come back.
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }
    /// Number of due frames that the tester failed to send.
    pub fn unsent(&self) -> u64 {
        self.unsent_late + self.unsent_tx_full + self.unsent_no_buffer
    }
}

/// Number and time of the passes of the tester's loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LoopCost {
    /// Number of passes of the loop, without those in gaps.
    pub rounds: u64,
    /// Number of passes in which no frame was sent or received, without those in gaps.
    pub idle_rounds: u64,
    /// Total time of the idle passes.
    pub idle: Nanos,
    /// Total time of the other passes, in which the loop built, sent, received or recorded frames.
    pub busy: Nanos,
}

/// The result of a trial.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Start of the schedule: due times count from here.
    pub start: Instant<Monotonic>,
    /// The configured warm-up time.
    pub warm_up: Nanos,
    /// Time in which frames were due, including the warm-up: the configured time, or less if the schedule ended or the
    /// trial was interrupted.
    pub planned: Nanos,
    /// Time from the start to the sending of the last frame; at least `planned`.
    pub sending: Nanos,
    /// What happened to each frame.
    pub ledger: Ledger,
    /// Numbers of frames, including the warm-up.
    pub counts: Counts,
    /// Times when the tester's loop did not run.
    pub gaps: Vec<Gap>,
    /// Actual send time (read before `tx`) minus due send time, for each frame sent.
    pub lateness: Histogram,
    /// Number and time of the passes of the tester's loop.
    pub cost: LoopCost,
    /// Frames lost by the tester's own device, not by the device under test.
    pub device: Statistics,
    /// Number of times that the tester found its link down.
    pub link_down_seen: u64,
    /// Whether the trial was interrupted.
    pub interrupted: bool,
}

impl Trial {
    /// Separates the samples that met a gap of the tester's loop or of the loop under test (`tested`) from the others.
    pub fn split(&self, tested: &[Gap], recovery: Recovery) -> Split {
        split(&self.ledger, self.start, self.warm_up, &self.gaps, tested, recovery)
    }
    /// The outcome to record in a search for the highest loss-free rate, without the frames due during the warm-up.
    /// Frames lost by the tester's own device count as unsent. If frames of the warm-up were lost too, its device may
    /// have lost those: only what it lost beyond them is no loss of the device under test.
    pub fn outcome(&self) -> Outcome {
        let mut early = 0;
        let (mut sent, mut lost, mut unsent) = (self.counts.sent, self.counts.lost(), self.counts.unsent());
        for (_, fate) in self.ledger.iter().take_while(|(due, _)| *due < self.warm_up) {
            match fate {
                Fate::Unsent => unsent = unsent.saturating_sub(1),
                Fate::Missing => (sent, lost, early) = (sent.saturating_sub(1), lost.saturating_sub(1), early + 1),
                Fate::Received(_) | Fate::ReceivedTooLate => sent = sent.saturating_sub(1),
            }
        }
        let own = (self.device.rx_ring_full + self.device.rx_no_buffer).saturating_sub(early).min(lost);
        // A frame is due once: what counts as unsent does not count as sent.
        Outcome { sent: sent - own, lost: lost - own, unsent: unsent + own }
    }
    /// Frames due per second; `None` if no frame was due.
    pub fn intended_pps(&self) -> Option<f64> {
        rate(self.counts.intended, self.planned)
    }
    /// Frames sent per second; `None` if no frame was sent.
    pub fn offered_pps(&self) -> Option<f64> {
        rate(self.counts.sent, self.sending)
    }
    /// Frames that came back, per second of sending time; `None` if no frame came back.
    pub fn received_pps(&self) -> Option<f64> {
        rate(self.counts.received, self.sending)
    }
    /// Frames per second that the tester's loop could send and receive if it were never idle; `None` if no frame was
    /// sent. On veth, the time of the loop includes the softirqs that run within `tx`.
    pub fn ceiling_pps(&self) -> Option<f64> {
        rate(self.counts.sent, self.cost.busy)
    }
    /// Mean time of an idle pass in ns; arrival times are only as exact as this. `None` if no pass was idle.
    pub fn idle_round_ns(&self) -> Option<f64> {
        (self.cost.idle_rounds > 0).then(|| self.cost.idle.as_nanos() as f64 / self.cost.idle_rounds as f64)
    }
}

fn rate(frames: u64, span: Nanos) -> Option<f64> {
    (span > Nanos::ZERO && frames > 0).then(|| frames as f64 * 1e9 / span.as_nanos() as f64)
}
