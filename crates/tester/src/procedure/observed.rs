//! Converts the trials of all ports to the summary that procedures need.

use units::{Instant, Monotonic, Nanos};

use super::{Anomalies, LATE, Observed, Offer, TesterSide};
use crate::histogram::Histogram;
use crate::ledger::{Fate, HIGHEST_LATENCY_NS};
use crate::search::Outcome;
use crate::trial::Trial;

impl Observed {
    /// Adds up the lanes (directions) of one trial. One loop runs all lanes, so the time and cost of the loop count
    /// only once. `reset` is when the reset of the device began: what was lost earlier is no outage of this reset.
    pub fn of(trials: &[Trial], offer: &Offer, reset: Option<Instant<Monotonic>>) -> Self {
        let mut seen = Self {
            outcome: Outcome::default(),
            anomalies: Anomalies::default(),
            latency: Histogram::new(),
            tagged: None,
            last_loss: None,
            outage: None,
            tester: TesterSide::default(),
            reset_note: None,
            interrupted: trials.iter().any(|trial| trial.interrupted),
        };
        for (lane, trial) in trials.iter().enumerate() {
            let from = reset.map_or(Nanos::ZERO, |at| at.since(trial.start).unwrap_or(Nanos::ZERO));
            seen.add(trial, offer, from, lane == 0);
        }
        seen
    }

    /// Whether the losses may be the tester's fault, so that the trial says nothing about the device: the tester sent
    /// frames more than [`LATE`] behind their schedule, and the device lost no more than bursts of late frames explain.
    ///
    /// After a stall, the tester sends the overdue frames in one burst. A device that sustains the rate loses no more
    /// frames than such bursts contain; twice as many are allowed. If it lost more, the rate was too high for it, whatever
    /// the tester did.
    pub fn is_disturbed(&self) -> bool {
        let later_than = |limit: Nanos| self.tester.pacing.count_above(limit.as_nanos());
        // The last frames of a burst are hardly late. Those that are late by a tenth of LATE are at least 90 % of it.
        self.outcome.lost > 0 && later_than(LATE) > 0 && self.outcome.lost <= 2 * later_than(LATE / 10)
    }

    /// The outcome by which a search judges the device. A disturbed trial counts as one in which the tester sent
    /// nothing: it limits the search, but does not blame the device.
    pub fn judged(&self) -> Outcome {
        let Outcome { sent, unsent, .. } = self.outcome;
        if self.is_disturbed() { Outcome { sent: 0, lost: 0, unsent: sent + unsent } } else { self.outcome }
    }

    /// Adds a lane. Losses that began before `from` are neither the last loss nor an outage.
    fn add(&mut self, trial: &Trial, offer: &Offer, from: Nanos, first: bool) {
        let (counts, outcome) = (&trial.counts, trial.outcome());
        // A frame that arrived after a later one of its flow counts as lost, because it was not forwarded in order.
        self.outcome.sent += outcome.sent;
        self.outcome.lost += outcome.lost + counts.reordered;
        self.outcome.unsent += outcome.unsent;
        self.anomalies.add(&Anomalies {
            duplicates: counts.duplicates,
            reordered: counts.reordered,
            corrupted: counts.corrupted,
            looped: counts.looped,
            foreign: counts.foreign,
        });
        let tester = &mut self.tester;
        tester.pacing.add(&trial.lateness);
        tester.sent += counts.sent;
        tester.own_losses += trial.device.rx_ring_full + trial.device.rx_no_buffer;
        if first {
            tester.busy += trial.cost.busy;
            tester.idle += trial.cost.idle;
            tester.idle_rounds += trial.cost.idle_rounds;
            tester.link_down_seen += trial.link_down_seen;
        }
        let (mut last_forwarded, mut losing, mut tag_due) = (Nanos::ZERO, false, self.tagged.is_none() && first);
        let mut lost_before = false; // whether the frames lost now are part of an outage that began before `from`
        for (due, fate) in trial.ledger.iter() {
            let latency = match fate {
                Fate::Received(latency) => latency,
                Fate::ReceivedTooLate => Nanos::from_nanos(u64::from(HIGHEST_LATENCY_NS) + 1),
                Fate::Missing | Fate::Unsent => {
                    lost_before |= fate == Fate::Missing && due < from;
                    if fate == Fate::Missing && !lost_before {
                        self.last_loss = Some(self.last_loss.map_or(due, |known| known.max(due)));
                        losing = true;
                    }
                    tag_due &= due < offer.latency_from;
                    continue;
                }
            };
            if std::mem::take(&mut losing) {
                let length = |(from, to): (Nanos, Nanos)| to.saturating_sub(from);
                if self.outage.is_none_or(|known| length((last_forwarded, due)) > length(known)) {
                    self.outage = Some((last_forwarded, due));
                }
            }
            (last_forwarded, lost_before) = (due, false);
            if due >= offer.latency_from {
                self.latency.record(latency.as_nanos());
                if std::mem::take(&mut tag_due) {
                    self.tagged = Some(latency);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use live::device::Statistics;

    use super::*;
    use crate::frame::FrameSize;
    use crate::ledger::Ledger;
    use crate::sizes::Sizes;
    use crate::trial::{Counts, LoopCost};

    /// A trial of 100 frames, one every millisecond, of which those in `lost` are lost.
    fn trial(lost: &[std::ops::Range<u64>]) -> Trial {
        let mut ledger = Ledger::with_room(100);
        for number in 0..100 {
            let sequence = ledger.intend(Nanos::from_millis(number));
            if !lost.iter().any(|range| range.contains(&number)) {
                ledger.received(sequence, Nanos::from_micros(5));
            }
        }
        let received = 100 - lost.iter().map(|range| range.end - range.start).sum::<u64>();
        Trial {
            start: Instant::from_nanos(1_000_000_000),
            warm_up: Nanos::ZERO,
            planned: Nanos::from_millis(100),
            sending: Nanos::from_millis(100),
            ledger,
            counts: Counts { intended: 100, sent: 100, received, ..Counts::default() },
            gaps: Vec::new(),
            lateness: Histogram::new(),
            cost: LoopCost::default(),
            device: Statistics::default(),
            link_down_seen: 0,
            interrupted: false,
        }
    }

    /// The longest outage of the whole trial once counted as the reset.
    #[test]
    fn only_outages_that_begin_after_the_reset_are_of_the_reset() {
        let seen = |lost: &[std::ops::Range<u64>], reset: Option<u64>| {
            let offer = Offer::constant(&Sizes::one(FrameSize::SMALLEST), 1_000, Nanos::from_millis(100), Nanos::ZERO);
            let reset = reset.map(|at| Instant::from_nanos(1_000_000_000) + Nanos::from_millis(at));
            let seen = Observed::of(&[trial(lost)], &offer, reset);
            let ms = |time: Nanos| time.as_nanos() / 1_000_000;
            (seen.outage.map(|(from, to)| (ms(from), ms(to))), seen.last_loss.map(ms))
        };
        let lost = [5..15, 40..43];
        assert_eq!(seen(&lost, None), (Some((4, 15)), Some(42)));
        assert_eq!(seen(&lost, Some(25)), (Some((39, 43)), Some(42)));
        assert_eq!(seen(&lost, Some(40)), (Some((39, 43)), Some(42)), "it begins at once");
        assert_eq!(seen(&lost, Some(10)), (Some((39, 43)), Some(42)), "the first one had begun");
        assert_eq!(seen(&lost, Some(41)), (None, None));
        assert_eq!(seen(&[5..15, 90..100], Some(25)), (None, Some(99)), "it does not end");
    }
}
