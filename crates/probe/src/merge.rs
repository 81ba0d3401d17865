//! Several runs of one probe become one result.

use crate::mark::MarkKind;
use crate::measured::{Blocked, Measured, Series, Term};
use crate::record::Recorder;

impl Measured {
    /// Adds another run of the same probe and variant. Distributions are joined, each run stays a round of its own;
    /// what only the probe knows stays that of the first run.
    pub fn merge(&mut self, other: &Self) -> Result<(), crate::Error> {
        for mark in &other.marks {
            if !self.marks.contains(mark) {
                self.marks.push(mark.clone());
            }
        }
        let steps: Vec<&str> =
            self.marks.iter().filter(|mark| mark.kind == MarkKind::ClockStep).map(|mark| mark.text.as_str()).collect();
        let refused = (!steps.is_empty()).then(|| format!("the clocks cannot be believed: {}", steps.join("; ")));
        let (before, more) = (self.duration_ns, other.duration_ns);
        for term in &other.terms {
            match self.terms.iter_mut().find(|of| of.name == term.name) {
                Some(of) => of.merge(term, refused.as_deref(), (before, more))?,
                None => self.terms.push(term.clone()),
            }
        }
        self.duration_ns += more;
        self.interrupted |= other.interrupted;
        if self.exceeded.is_none() {
            self.exceeded.clone_from(&other.exceeded);
        }
        Ok(())
    }
}

impl Term {
    /// Adds another run, which took `more`; this one took `before`.
    fn merge(&mut self, other: &Self, refused: Option<&str>, (before, more): (u64, u64)) -> Result<(), crate::Error> {
        let joined = |a: &Series, b: &Series| -> Result<Series, crate::Error> {
            let mut recorder = Recorder::try_from(a)?;
            recorder.add(&Recorder::try_from(b)?);
            Ok(recorder.series(refused))
        };
        self.raw = joined(&self.raw, &other.raw)?;
        self.back_filled = match (&self.back_filled, &other.back_filled) {
            (Some(a), Some(b)) => Some(joined(a, b)?),
            _ => None,
        };
        self.blocked = self.blocked.zip(other.blocked).map(|(a, b)| {
            let weighted = |a: Option<f64>, b: Option<f64>| {
                let sum = a? * before as f64 + b? * more as f64;
                (before + more > 0).then(|| sum / (before + more) as f64)
            };
            Blocked {
                stalls: a.stalls + b.stalls,
                blocked_ns: a.blocked_ns + b.blocked_ns,
                share: weighted(a.share, b.share),
                late_share: weighted(a.late_share, b.late_share),
            }
        });
        self.rounds.extend(&other.rounds);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Nanos;

    fn series(samples: impl IntoIterator<Item = u64>) -> Series {
        let mut recorder = Recorder::new();
        samples.into_iter().for_each(|ns| recorder.record(Nanos::from_nanos(ns)));
        recorder.series(None)
    }

    #[test]
    fn runs_are_joined_and_stay_rounds() {
        let blocked = |share| Some(Blocked { stalls: 1, blocked_ns: 5, share: Some(share), late_share: Some(share) });
        let mut term = Term::new("x", series(1..=500), None, blocked(0.1));
        let other = Term::new("x", series(501..=1000), None, blocked(0.4));
        term.merge(&other, None, (1_000, 2_000)).unwrap();
        assert_eq!((term.raw.n, term.raw.min_ns, term.raw.max_ns), (1000, Some(1), Some(1000)));
        assert_eq!((term.rounds.len(), term.rounds[1].max_ns), (2, Some(1000)));
        let all = term.blocked.unwrap();
        assert!(all.stalls == 2 && (all.share.unwrap() - 0.3).abs() < 1e-12);
        term.merge(&other, Some("the clock was set"), (1, 1)).unwrap();
        assert_eq!(term.raw.p50_ns, None);
    }
}
