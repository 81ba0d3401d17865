//! Estimates the load of a polling core from the counters of the NIC that it polls.

use host::nic::Counted;
use units::{Instant, Nanos};

use super::CoreSeen;
use crate::seam::{Blind, Reading, Sensor};

/// Sensor that reads the packet counters of the network interface that a core polls.
pub struct NicSensor {
    counted: Counted,
    /// Reads the time of day, for policies that need it.
    time_of_day: Option<fn() -> Option<Nanos>>,
}

impl NicSensor {
    /// Creates a sensor that reads these packet counters.
    pub fn new(counted: Counted) -> Self {
        Self { counted, time_of_day: None }
    }

    /// Makes the sensor also read the time of day.
    #[must_use]
    pub fn with_time_of_day(mut self, read: fn() -> Option<Nanos>) -> Self {
        self.time_of_day = Some(read);
        self
    }
}

impl<C> Sensor<C> for NicSensor {
    type Seen = CoreSeen;

    fn read(&mut self, now: Instant<C>) -> Result<Reading<CoreSeen, C>, Blind> {
        let (packets, lost) = self.counted.read().map_err(|error| Blind(error.to_string()))?;
        let time_of_day = self.time_of_day.and_then(|read| read());
        let seen = CoreSeen { packets: Some(packets), lost: Some(lost), time_of_day, ..CoreSeen::default() };
        Ok(Reading { taken: now, seen })
    }
}
