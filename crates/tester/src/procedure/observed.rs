//! Converts the trials of all ports to the summary that procedures need.

use units::Nanos;

use super::{Anomalies, Observed, Offer, TesterSide};
use crate::histogram::Histogram;
use crate::ledger::{Fate, HIGHEST_LATENCY_NS};
use crate::search::Outcome;
use crate::trial::Trial;

impl Observed {
    /// Adds up the lanes (directions) of one trial. One loop runs all lanes, so the time and cost of the loop count
    /// only once.
    pub fn of(trials: &[Trial], offer: &Offer) -> Self {
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
            seen.add(trial, offer, lane == 0);
        }
        seen
    }

    fn add(&mut self, trial: &Trial, offer: &Offer, first: bool) {
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
        for (due, fate) in trial.ledger.iter() {
            let latency = match fate {
                Fate::Received(latency) => latency,
                Fate::ReceivedTooLate => Nanos::from_nanos(u64::from(HIGHEST_LATENCY_NS) + 1),
                Fate::Missing | Fate::Unsent => {
                    if fate == Fate::Missing {
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
            last_forwarded = due;
            if due >= offer.latency_from {
                self.latency.record(latency.as_nanos());
                if std::mem::take(&mut tag_due) {
                    self.tagged = Some(latency);
                }
            }
        }
    }
}
