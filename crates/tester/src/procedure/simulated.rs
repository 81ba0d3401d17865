//! For tests: a simulated device in virtual time, with known capacity, buffer, latency and recovery time.

use units::Nanos;

use super::{Anomalies, Measurer, Observed, Offer, TesterSide};
use crate::Error;
use crate::Random;
use crate::histogram::Histogram;
use crate::search::Outcome;
use crate::sizes::Sizes;

/// The device, and the tester that measures it.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// Highest rate that the device forwards, in frames per second.
    pub capacity_pps: u64,
    /// Size of the device's buffer, in frames.
    pub buffer: u64,
    /// A frame's latency is `base`, plus an exponentially distributed time with the mean `spread`, plus its time in the
    /// buffer.
    pub base: Nanos,
    pub spread: Nanos,
    /// Time for which the device discards all frames after a phase above its capacity.
    pub recovers_in: Nanos,
    /// Time for which the device discards all frames during a reset.
    pub resets_in: Nanos,
    /// Highest rate at which the simulated tester can send.
    pub ceiling_pps: u64,
    /// One frame in `each` is changed as `tamper` says.
    pub each: u64,
    pub tamper: Tamper,
    /// Period and length of the tester's stalls. After a stall, it sends the overdue frames.
    pub stalls: Option<(Nanos, Nanos)>,
    /// Number of the trial in which a port disappears (`vanishes_at`), or in which the user stops the procedure
    /// (`stops_at`).
    pub vanishes_at: Option<u32>,
    pub stops_at: Option<u32>,
    pub random: Random,
    pub trials: u32,
    pub now: Nanos,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tamper {
    No,
    Duplicate,
    Reorder,
    Corrupt,
    Loop,
    /// The tester does not send the frame.
    Skip,
    /// The same in every second trial, not counting learning frames.
    SkipSometimes,
}

impl Simulated {
    pub fn new(seed: u64) -> Self {
        Self {
            capacity_pps: 1_000,
            buffer: 2,
            base: Nanos::from_micros(10),
            spread: Nanos::from_micros(5),
            recovers_in: Nanos::from_millis(200),
            resets_in: Nanos::from_millis(3_500),
            ceiling_pps: 2_000,
            each: u64::MAX,
            tamper: Tamper::No,
            stalls: None,
            vanishes_at: None,
            stops_at: None,
            random: Random::new(seed),
            trials: 0,
            now: Nanos::ZERO,
        }
    }

    /// When a frame is sent that is due at `due` in the trial that begins now.
    fn sent_at(&self, due: u64) -> u64 {
        let Some((every, length)) = self.stalls else { return due };
        let into = (self.now.as_nanos() + due) % every.as_nanos();
        due + length.as_nanos().saturating_sub(into)
    }

    /// The quantile `q` of the device's latency without queueing, in ns.
    pub fn quantile(&self, q: f64) -> f64 {
        self.base.as_nanos() as f64 - (1.0 - q).ln() * self.spread.as_nanos() as f64
    }
}

impl Measurer for Simulated {
    fn trial(&mut self, offer: &Offer) -> Result<Observed, Error> {
        self.trials += 1;
        if self.vanishes_at.is_some_and(|trial| self.trials >= trial) {
            let (port, why) = ("sim0".into(), "it was removed".into());
            return Err(Error::Device(live::Error::PortLost { port, why }));
        }
        let service = 1_000_000_000 / self.capacity_pps;
        let mut seen = Observed {
            outcome: Outcome::default(),
            anomalies: Anomalies::default(),
            latency: Histogram::new(),
            tagged: None,
            last_loss: None,
            outage: None,
            tester: TesterSide::default(),
            reset_note: None,
            interrupted: self.stops_at.is_some_and(|trial| self.trials >= trial),
        };
        let (mut free_at, mut begins, mut dead_until, mut tag_due) = (0u64, 0u64, 0u64, true);
        let mut before_outage: Option<u64> = None;
        let mut last_forwarded = 0;
        let span = offer.span().as_nanos();
        let reset = (offer.reset).then(|| (span / 4, span / 4 + self.resets_in.as_nanos()));
        for phase in &offer.phases {
            let length = phase.duration.as_nanos();
            let frames = (u128::from(length) * u128::from(phase.rate_pps)).div_ceil(1_000_000_000) as u64;
            for frame in 0..frames {
                let due = begins + Nanos::from_secs(1).scale(frame, phase.rate_pps).as_nanos();
                let number = seen.outcome.sent + seen.outcome.unsent + 1;
                let special = number.is_multiple_of(self.each);
                let skips = match self.tamper {
                    Tamper::Skip => true,
                    Tamper::SkipSometimes => self.trials.is_multiple_of(4),
                    _ => false,
                };
                if special && skips {
                    seen.outcome.unsent += 1;
                    continue;
                }
                seen.outcome.sent += 1;
                seen.tester.sent += 1;
                let at = self.sent_at(due);
                seen.tester.pacing.record(at - due + 100);
                let queued = free_at.saturating_sub(at).div_ceil(service);
                let resetting = reset.is_some_and(|(from, to)| (from..to).contains(&due));
                let gone = special && matches!(self.tamper, Tamper::Corrupt | Tamper::Loop | Tamper::Reorder);
                if queued > self.buffer || due < dead_until || resetting || gone {
                    seen.outcome.lost += 1;
                    seen.last_loss = Some(Nanos::from_nanos(due));
                    before_outage = before_outage.or(Some(last_forwarded));
                    match self.tamper {
                        Tamper::Corrupt if gone => seen.anomalies.corrupted += 1,
                        Tamper::Loop if gone => seen.anomalies.looped += 1,
                        Tamper::Reorder if gone => seen.anomalies.reordered += 1,
                        _ => {}
                    }
                    continue;
                }
                if special && self.tamper == Tamper::Duplicate {
                    seen.anomalies.duplicates += 1;
                }
                if let Some(before) = before_outage.take() {
                    let longest = seen.outage.map_or(0, |(from, to)| to.as_nanos() - from.as_nanos());
                    if due - before > longest {
                        seen.outage = Some((Nanos::from_nanos(before), Nanos::from_nanos(due)));
                    }
                }
                last_forwarded = due;
                let waits = free_at.max(at) - due;
                free_at = free_at.max(at) + service;
                if due >= offer.latency_from.as_nanos() {
                    let own = self.random.exponential(self.spread.as_nanos() as f64) as u64;
                    let latency = waits + self.base.as_nanos() + own;
                    seen.latency.record(latency);
                    if std::mem::take(&mut tag_due) {
                        seen.tagged = Some(Nanos::from_nanos(latency));
                    }
                }
            }
            begins += length;
            if phase.rate_pps > self.capacity_pps && seen.outcome.lost > 0 {
                dead_until = begins + self.recovers_in.as_nanos();
            }
        }
        self.now += offer.span() + offer.residue;
        Ok(seen)
    }

    fn ceiling(&mut self, _: &Sizes, span: Nanos) -> Result<u64, Error> {
        if self.stopped() {
            return Ok(0);
        }
        self.now += span;
        Ok(self.ceiling_pps)
    }

    fn wait(&mut self, span: Nanos) {
        self.now += span;
    }

    fn stopped(&self) -> bool {
        self.stops_at.is_some_and(|trial| self.trials >= trial)
    }
}
