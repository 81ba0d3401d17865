//! The sensor of a receive queue: [`host::watch`] on its NAPI instance.

use std::sync::Arc;

use host::watch::{NapiCounts, NapiWatch, bounds};
use policy::moderation::Delays;
use units::Instant;

use super::QueueSeen;
use crate::seam::{Blind, Reading, Sensor};

/// Sees one NAPI instance of a watch that all queues share.
#[derive(Debug)]
pub struct Watched {
    watch: Arc<NapiWatch>,
    place: usize,
    last: Option<NapiCounts>,
}

impl Watched {
    /// Sees instance number `place` of the list that is watched.
    pub fn new(watch: Arc<NapiWatch>, place: usize) -> Self {
        Self { watch, place, last: None }
    }
}

impl<C> Sensor<C> for Watched {
    type Seen = QueueSeen;

    fn read(&mut self, now: Instant<C>) -> Result<Reading<QueueSeen, C>, Blind> {
        let counts = self.watch.read(self.place).map_err(|error| Blind(error.to_string()))?;
        let seen = seen(self.last.as_ref(), &counts);
        self.last = Some(counts);
        Ok(Reading { taken: now, seen })
    }
}

/// What the counters say, and the delays since the last time.
fn seen(last: Option<&NapiCounts>, now: &NapiCounts) -> QueueSeen {
    let grown = |(bucket, count): (usize, &u64)| {
        let before = last.map_or(0, |last| last.delays[bucket]);
        let packets = u32::try_from(count.wrapping_sub(before)).unwrap_or(u32::MAX);
        let (shortest, longest) = bounds(bucket);
        (packets > 0).then_some(Delays { packets, shortest, longest })
    };
    QueueSeen {
        packets: now.packets,
        bytes: now.bytes,
        polls: Some(now.polls),
        after: Some(now.delays.iter().enumerate().filter_map(grown).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::watch::BUCKETS;

    #[test]
    fn only_what_came_since_the_last_reading_is_seen() {
        let mut counts = NapiCounts { packets: 5, bytes: 500, polls: 3, full_polls: 0, delays: [0; BUCKETS] };
        counts.delays[8] = 4;
        let first = seen(None, &counts);
        assert_eq!((first.packets, first.bytes, first.polls), (5, 500, Some(3)));
        let (shortest, longest) = bounds(8);
        assert_eq!(first.after, Some(vec![Delays { packets: 4, shortest, longest }]));
        let mut later = counts.clone();
        later.delays[8] += 1;
        later.delays[20] += 2;
        let after = seen(Some(&counts), &later).after.unwrap();
        assert_eq!(after.iter().map(|delays| delays.packets).collect::<Vec<_>>(), [1, 2]);
    }
}
