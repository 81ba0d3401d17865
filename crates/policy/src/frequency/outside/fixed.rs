//! A fixed frequency, and a frequency that depends on the time of day.

use units::{Hertz, Nanos};

use super::{Decision, OutsidePolicy, Reason, Sample};

/// Always requests this frequency.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fixed(pub Hertz);

impl<C> OutsidePolicy<C> for Fixed {
    fn requested(&self) -> Hertz {
        self.0
    }

    fn decide(&mut self, _: &Sample<C>) -> Decision {
        Decision::keep(Reason::Fixed)
    }
}

/// A frequency, and the time of day from which it applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// Time since midnight, less than 24 h.
    pub from: Nanos,
    /// Frequency from this time of day on.
    pub frequency: Hertz,
}

/// A frequency for each time of day, like the TIME policy of `vm_power_manager` with its busy and quiet hours (DPDK,
/// doc/guides/sample_app_ug/vm_power_management.rst, "busy_hours", "quiet_hours"), but with any number of levels.
///
/// The last slot of a day lasts until the first slot of the next day.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimeOfDay {
    slots: [Slot; Self::MOST],
    count: usize,
    requested: Hertz,
}

impl TimeOfDay {
    /// Maximum number of slots in a day.
    pub const MOST: usize = 24;

    /// Creates a policy from the slots of a day, in ascending order. `now` is the time since midnight. `None` if there
    /// are no slots or more than [`TimeOfDay::MOST`], if they are not in ascending order, or if a time is 24 h or more.
    pub fn new(slots: &[Slot], now: Nanos) -> Option<Self> {
        const DAY: Nanos = Nanos::from_secs(86_400);
        let first = *slots.first()?;
        let ascends = slots.windows(2).all(|pair| pair[0].from < pair[1].from);
        if slots.len() > Self::MOST || !ascends || slots.iter().any(|slot| slot.from >= DAY) {
            return None;
        }
        let mut day = Self { slots: [first; Self::MOST], count: slots.len(), requested: first.frequency };
        day.slots[..slots.len()].copy_from_slice(slots);
        day.requested = day.at(now);
        Some(day)
    }

    /// The frequency at a time of day.
    fn at(&self, time: Nanos) -> Hertz {
        let slots = &self.slots[..self.count];
        let begun = slots.iter().rfind(|slot| slot.from <= time);
        begun.unwrap_or(&slots[self.count - 1]).frequency
    }
}

impl<C> OutsidePolicy<C> for TimeOfDay {
    fn requested(&self) -> Hertz {
        self.requested
    }

    fn decide(&mut self, sample: &Sample<C>) -> Decision {
        let Some(time) = sample.time_of_day else { return Decision::keep(Reason::TimeOfDay) };
        let wanted = self.at(time);
        if wanted == self.requested {
            return Decision::keep(Reason::TimeOfDay);
        }
        self.requested = wanted;
        Decision { request: Some(wanted), reason: Reason::TimeOfDay }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frequency::outside::tests::{mhz, sample};

    fn slot(hour: u64, n: u64) -> Slot {
        Slot { from: Nanos::from_secs(hour * 3_600), frequency: mhz(n) }
    }

    #[test]
    fn the_last_slot_lasts_over_midnight() {
        let mut day = TimeOfDay::new(&[slot(7, 3_000), slot(22, 800)], Nanos::from_secs(3 * 3_600)).unwrap();
        assert_eq!(day.requested, mhz(800));
        let mut at = |hour: u64| {
            let time_of_day = Some(Nanos::from_secs(hour * 3_600));
            day.decide(&super::Sample { time_of_day, ..sample(0, mhz(800), 0) }).request
        };
        assert_eq!(at(6), None);
        assert_eq!(at(7), Some(mhz(3_000)));
        assert_eq!(at(21), None);
        assert_eq!(at(22), Some(mhz(800)));
        assert_eq!(at(0), None);
    }

    #[test]
    fn a_day_without_order_is_none() {
        let midnight = Nanos::ZERO;
        assert_eq!(TimeOfDay::new(&[], midnight), None);
        assert_eq!(TimeOfDay::new(&[slot(8, 1), slot(7, 2)], midnight), None);
        assert_eq!(TimeOfDay::new(&[slot(8, 1), slot(8, 2)], midnight), None);
        assert_eq!(TimeOfDay::new(&[slot(24, 1)], midnight), None);
        let many: [Slot; 25] = core::array::from_fn(|n| Slot { from: Nanos::from_secs(n as u64), frequency: mhz(1) });
        assert_eq!(TimeOfDay::new(&many, midnight), None);
    }
}
