//! Reads what Apus workers on a CPU publish in telemetry.

use live::telemetry::{Reader, Snapshot};
use policy::Goal;
use policy::wait::WaitKind;
use steer::frequency::CoreSeen;
use steer::{Blind, Reading, Sensor};
use units::{Instant, Monotonic, Nanos};

/// Reads the telemetry of all workers that share a CPU.
pub(super) struct Workers {
    readers: Vec<Reader>,
    goal: Option<Goal>,
    /// Number of packets whose delay was measured, and number of late ones among them, since the sensor began.
    late: (u64, u64),
    before: Vec<Snapshot>,
}

impl Workers {
    pub(super) fn new(readers: Vec<Reader>, goal: Option<Goal>) -> Self {
        Self { readers, goal, late: (0, 0), before: Vec::new() }
    }
}

/// Number of packets whose delay was measured between two snapshots, and number of those that were later than the goal.
/// Telemetry measures pick-up and service separately. Here the service time at the goal's quantile is added to each
/// pick-up delay, which overestimates the number of late packets.
fn late(goal: Goal, now: &Snapshot, then: &Snapshot) -> (u64, u64) {
    let pickup = now.counts.lateness.since(&then.counts.lateness);
    let service = now.counts.service.since(&then.counts.service);
    let serves = service.quantile(goal.quantile).unwrap_or(Nanos::ZERO);
    let judged = pickup.count();
    let in_time = goal.latency.checked_sub(serves).map_or(0, |limit| pickup.count_up_to(limit));
    (judged, judged.saturating_sub(in_time))
}

impl Sensor<Monotonic> for Workers {
    type Seen = CoreSeen;

    fn read(&mut self, now: Instant<Monotonic>) -> Result<Reading<CoreSeen, Monotonic>, Blind> {
        if let Some(reader) = self.readers.iter().find(|reader| !reader.is_alive()) {
            let id = reader.snapshot().identity;
            return Err(Blind(format!("worker {} of {} has ended", id.worker, id.instance)));
        }
        let snapshots: Vec<Snapshot> = self.readers.iter().map(Reader::snapshot).collect();
        let sum = |of: fn(&Snapshot) -> u64| snapshots.iter().map(of).sum::<u64>();
        let span = |of: fn(&Snapshot) -> Nanos| snapshots.iter().fold(Nanos::ZERO, |sum, snapshot| sum + of(snapshot));
        if let Some(goal) = self.goal {
            for (now, then) in snapshots.iter().zip(&self.before) {
                let (judged, late) = late(goal, now, then);
                self.late = (self.late.0 + judged, self.late.1 + late);
            }
        }
        let seen = CoreSeen {
            packets: Some(sum(|s| s.counts.received_frames)),
            lost: Some(sum(|s| s.counts.ports.iter().map(|port| port.statistics.rx_ring_full).sum())),
            busy: Some(span(|s| s.counts.useful)),
            polls: Some((sum(|s| s.counts.polls), sum(|s| s.counts.empty_polls))),
            slept: Some(span(|s| s.counts.wait(WaitKind::Sleep).time + s.counts.wait(WaitKind::Block).time)),
            late: self.goal.map(|_| self.late),
            ..CoreSeen::default()
        };
        self.before = snapshots;
        Ok(Reading { taken: now, seen })
    }
}
