//! Which frequencies the hardware supports, and how long it takes to change between them.

use units::{Hertz, Microwatts, Nanos};

/// The frequencies that can be requested, in ascending order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PStates {
    all: [Hertz; Self::MOST],
    count: usize,
}

impl PStates {
    /// Maximum number of P-states. DPDK's power library has the same limit: `RTE_MAX_LCORE_FREQS`
    /// (`lib/power/rte_power_cpufreq.h`).
    pub const MOST: usize = 64;

    /// Sorts `frequencies` and drops duplicates. `None` if the list is empty, if it has more than [`PStates::MOST`]
    /// entries, or if one of them is 0 Hz.
    pub fn new(frequencies: &[Hertz]) -> Option<Self> {
        let mut states = Self { all: [Hertz::new(0); Self::MOST], count: 0 };
        for &frequency in frequencies {
            if frequency.as_hertz() == 0 {
                return None;
            }
            let place = states.as_slice().partition_point(|f| *f < frequency);
            if states.as_slice().get(place) == Some(&frequency) {
                continue;
            }
            if states.count == Self::MOST {
                return None;
            }
            states.all.copy_within(place..states.count, place + 1);
            states.all[place] = frequency;
            states.count += 1;
        }
        (states.count > 0).then_some(states)
    }

    /// Makes equal steps from `lowest` to `highest`, like Intel's multiples of 100 MHz. `None` if `step` is 0, if
    /// `lowest` is above `highest`, or if [`PStates::new`] would return `None`.
    pub fn steps(lowest: Hertz, highest: Hertz, step: Hertz) -> Option<Self> {
        if step.as_hertz() == 0 {
            return None;
        }
        let mut all = [Hertz::new(0); Self::MOST];
        let mut count = 0;
        let mut next = lowest.as_hertz();
        while next <= highest.as_hertz() {
            *all.get_mut(count)? = Hertz::new(next);
            count += 1;
            next = next.checked_add(step.as_hertz())?;
        }
        Self::new(&all[..count])
    }

    /// All frequencies, in ascending order.
    pub fn as_slice(&self) -> &[Hertz] {
        &self.all[..self.count]
    }

    /// The lowest frequency that can be requested.
    pub fn lowest(&self) -> Hertz {
        self.all[0]
    }

    /// The highest frequency that can be requested.
    pub fn highest(&self) -> Hertz {
        self.all[self.count - 1]
    }

    /// The lowest frequency that is at least `frequency`. `None` if even the highest is below it.
    pub fn at_least(&self, frequency: Hertz) -> Option<Hertz> {
        self.as_slice().get(self.as_slice().partition_point(|f| *f < frequency)).copied()
    }

    /// The next higher frequency, or `frequency` itself if there is none.
    pub fn up(&self, frequency: Hertz) -> Hertz {
        self.as_slice().iter().copied().find(|f| *f > frequency).unwrap_or(frequency)
    }

    /// The next lower frequency, or `frequency` itself if there is none.
    pub fn down(&self, frequency: Hertz) -> Hertz {
        self.as_slice().iter().rev().copied().find(|f| *f < frequency).unwrap_or(frequency)
    }
}

/// The power that a polling core draws at each P-state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PowerTable([Microwatts; PStates::MOST]);

impl PowerTable {
    /// Creates a table by calling `power` with the frequency of each P-state.
    pub fn new(pstates: &PStates, mut power: impl FnMut(Hertz) -> Microwatts) -> Self {
        let mut table = [Microwatts::new(0); PStates::MOST];
        for (entry, frequency) in table.iter_mut().zip(pstates.as_slice()) {
            *entry = power(*frequency);
        }
        Self(table)
    }
}

/// What a policy must know about the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Platform {
    /// The frequencies that can be requested.
    pub pstates: PStates,
    /// Power of a polling core at each P-state. `None` if it is unknown; power is then assumed to be proportional to
    /// the frequency.
    pub power: Option<PowerTable>,
    /// The longest time from a request until the hardware begins the change: the period of the processor's sequencing
    /// timer. It is about 500 us on 2nd Gen Intel Xeon Scalable, and 500, 50 or 0 us on the 3rd Gen, depending on a
    /// BIOS setting (Intel 637284-001US, section 4).
    pub sequencing: Nanos,
    /// Time for which the core halts during a frequency change: about 12 us on 2nd Gen Intel Xeon Scalable, a few
    /// hundred nanoseconds on the 3rd Gen (same source).
    pub stall: Nanos,
}

impl Platform {
    /// Power of a polling core at the P-state with this index (0 is the lowest), in microwatts. If the power is
    /// unknown, returns the frequency instead, so only ratios of two results are meaningful.
    pub fn power(&self, state: usize) -> u64 {
        match &self.power {
            Some(PowerTable(table)) => table[state].as_microwatts(),
            None => self.pstates.as_slice()[state].as_hertz() / 1_000,
        }
    }

    /// The longest time from a request to the end of the change.
    pub fn settling(&self) -> Nanos {
        self.sequencing + self.stall
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MHZ: u64 = 1_000_000;

    #[test]
    fn stands_in_ascending_order_and_once() {
        let states = PStates::new(&[2_200, 800, 1_000, 800].map(|f| Hertz::new(f * MHZ))).unwrap();
        assert_eq!(states.as_slice(), [800, 1_000, 2_200].map(|f| Hertz::new(f * MHZ)));
        assert_eq!(states.at_least(Hertz::new(900 * MHZ)), Some(Hertz::new(1_000 * MHZ)));
        assert_eq!(states.at_least(Hertz::new(2_201 * MHZ)), None);
        assert_eq!(states.up(Hertz::new(800 * MHZ)), Hertz::new(1_000 * MHZ));
        assert_eq!(states.up(states.highest()), states.highest());
        assert_eq!(states.down(Hertz::new(1_500 * MHZ)), Hertz::new(1_000 * MHZ));
        assert_eq!(states.down(states.lowest()), states.lowest());
    }

    #[test]
    fn refuses_none_nothing_and_too_many() {
        assert_eq!(PStates::new(&[]), None);
        assert_eq!(PStates::new(&[Hertz::new(0)]), None);
        let many: [Hertz; 65] = core::array::from_fn(|n| Hertz::new(n as u64 + 1));
        assert_eq!(PStates::new(&many), None);
        assert!(PStates::new(&many[1..]).is_some());
        let gigahertz = |n: u64| Hertz::new(n * 1_000 * MHZ);
        assert_eq!(PStates::steps(gigahertz(2), gigahertz(1), Hertz::new(MHZ)), None);
        assert_eq!(PStates::steps(gigahertz(1), gigahertz(2), Hertz::new(MHZ)), None);
        assert_eq!(PStates::steps(gigahertz(1), gigahertz(2), Hertz::new(100 * MHZ)).unwrap().as_slice().len(), 11);
    }

    proptest! {
        #[test]
        fn at_least_is_the_lowest_that_suffices(list in prop::collection::vec(1u64..100, 1..64), want in 0u64..120) {
            extern crate std;
            let hertz: std::vec::Vec<Hertz> = list.iter().map(|f| Hertz::new(*f)).collect();
            let states = PStates::new(&hertz).unwrap();
            let expected = list.iter().copied().filter(|f| *f >= want).min().map(Hertz::new);
            prop_assert_eq!(states.at_least(Hertz::new(want)), expected);
        }
    }
}
