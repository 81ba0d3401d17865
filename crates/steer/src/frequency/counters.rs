//! Reads the branch counters of a core.

use std::vec::IntoIter;

use host::counters::{BranchCounters, Counts};
use policy::frequency::outside::branches::Branches;
use units::Instant;

use super::CoreSeen;
use crate::seam::{Blind, Reading, Sensor};

/// Sensor that reads how much a core's branch counters increased between two readings.
#[derive(Debug)]
pub struct CounterSensor {
    source: Source,
}

#[derive(Debug)]
enum Source {
    Cpu(BranchCounters, Option<Counts>),
    Recorded(IntoIter<Branches>),
}

impl CounterSensor {
    /// Creates a sensor that reads these hardware counters.
    pub fn new(counters: BranchCounters) -> Self {
        Self { source: Source::Cpu(counters, None) }
    }

    /// Creates a sensor that replays recorded counts: one entry of `spans` per reading.
    pub fn recorded(spans: Vec<Branches>) -> Self {
        Self { source: Source::Recorded(spans.into_iter()) }
    }

    /// Counts since the previous reading. `None` at the first reading.
    pub fn span(&mut self) -> Result<Option<Branches>, Blind> {
        match &mut self.source {
            Source::Recorded(spans) => {
                spans.next().map(Some).ok_or_else(|| Blind("the recorded counts are over".into()))
            }
            Source::Cpu(counters, before) => {
                let now =
                    counters.read().map_err(|error| Blind(format!("cannot read the branch counters: {error}")))?;
                Ok(before.replace(now).map(|then| since(&now, &then)))
            }
        }
    }
}

fn since(now: &Counts, then: &Counts) -> Branches {
    Branches {
        branches: now.branches.saturating_sub(then.branches),
        misses: now.misses.saturating_sub(then.misses),
        cycles: now.cycles.zip(then.cycles).map(|(now, then)| now.saturating_sub(then)),
        enabled: now.enabled.saturating_sub(then.enabled),
        counted: now.counted.saturating_sub(then.counted),
    }
}

impl<C> Sensor<C> for CounterSensor {
    type Seen = CoreSeen;

    fn read(&mut self, now: Instant<C>) -> Result<Reading<CoreSeen, C>, Blind> {
        let branches = self.span()?;
        Ok(Reading { taken: now, seen: CoreSeen { branches, ..CoreSeen::default() } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Nanos;

    #[test]
    fn a_span_is_the_difference_of_two_readings() {
        let then =
            Counts { branches: 10, misses: 1, cycles: Some(100), enabled: Nanos::from_nanos(5), counted: Nanos::ZERO };
        let now = Counts {
            branches: 30,
            misses: 2,
            cycles: None,
            enabled: Nanos::from_nanos(15),
            counted: Nanos::from_nanos(8),
        };
        let span = since(&now, &then);
        assert_eq!((span.branches, span.misses, span.cycles), (20, 1, None));
        assert_eq!((span.enabled, span.counted), (Nanos::from_nanos(10), Nanos::from_nanos(8)));
    }

    #[test]
    fn recorded_spans_come_once_each() {
        let span = Branches { branches: 7, ..Branches::default() };
        let mut sensor = CounterSensor::recorded(vec![span]);
        assert_eq!(sensor.span().unwrap(), Some(span));
        assert!(sensor.span().is_err());
    }
}
