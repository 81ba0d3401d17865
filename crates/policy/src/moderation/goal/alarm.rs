//! Whether so many of the latest packets are late that the timer must be shortened at once.

use units::Nanos;

/// Number of interrupts with late packets that raise an alarm. One or two may be caused by a stall of the machine.
const ALARM_INTERRUPTS: u32 = 3;
/// The excess of late packets raises an alarm if its square is above this times the sum of the squares of the readings'
/// late packets: about 2.5 standard deviations if the late packets come from stalls that happen by chance.
const ALARM_SQUARES: u128 = 6;

/// Counts the latest late packets, reading by reading. They are kept apart from the window, because they must raise an
/// alarm before they stand out among all packets of a long window.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Alarm {
    /// The current reading.
    reading: Reading,
    streak: Streak,
    excess: Excess,
}

/// The packets of a reading.
#[derive(Clone, Copy, Default, Debug)]
struct Reading {
    packets: u64,
    /// Number of packets that were later than the goal, but would have been in time with a shorter timer.
    late: u64,
    /// Number of packets that would be late whatever the timer is.
    unavoidable: u64,
    /// The longest delay of those that are not late whatever the timer is.
    longest: Nanos,
}

/// The latest readings in a row that all had late packets which a shorter timer could have avoided.
#[derive(Clone, Copy, Default, Debug)]
struct Streak {
    interrupts: u32,
    packets: u64,
    late: u64,
}

/// The readings since there was no excess of late packets (a cumulative sum: E. S. Page, "Continuous inspection
/// schemes", Biometrika 41, 1954).
#[derive(Clone, Copy, Default, Debug)]
struct Excess {
    interrupts: u32,
    /// Number of packets that were late although a shorter timer could have helped, in millionths, beyond twice what
    /// the goal allows and beyond those that would be late whatever the timer is.
    late_ppm: u64,
    /// Sum of the squares of the readings' late packets.
    squares: u128,
    /// The longest delay of the late packets.
    longest: Nanos,
}

impl Alarm {
    /// Adds packets to the reading, of which `late` were later than the goal, but not whatever the timer is.
    pub fn add(&mut self, packets: u64, late: u64, longest: Nanos) {
        self.reading.packets += packets;
        self.reading.late += late;
        self.reading.longest = self.reading.longest.max(longest);
    }

    /// Adds packets to the reading, of which `late` would be late whatever the timer is.
    pub fn add_unavoidable(&mut self, packets: u64, late: u64) {
        self.reading.packets += packets;
        self.reading.unavoidable += late;
    }

    /// Ends a reading: the packets since the previous one count as coming from `interrupts` interrupts. Returns whether
    /// some were late.
    pub fn end_reading(&mut self, interrupts: u32, allowed_ppm: u64) -> bool {
        let Reading { packets, late, unavoidable, longest } = core::mem::take(&mut self.reading);
        if packets == 0 {
            return false;
        }
        if late == 0 {
            self.streak = Streak::default();
        } else {
            self.streak.interrupts += interrupts;
            self.streak.packets += packets;
            self.streak.late += late;
            self.excess.interrupts += interrupts;
            self.excess.squares += u128::from(late) * u128::from(late);
            self.excess.longest = self.excess.longest.max(longest);
        }
        let allowed = 2 * packets * allowed_ppm + unavoidable * 1_000_000;
        self.excess.late_ppm = (self.excess.late_ppm + late * 1_000_000).saturating_sub(allowed);
        if self.excess.late_ppm == 0 {
            self.excess = Excess::default();
        }
        late + unavoidable > 0
    }

    /// The longest delay of the latest packets, if packets are certainly too late; otherwise `None`. They are certainly
    /// too late if several interrupts delivered late packets, more than the goal allows of `enough`, and if either most
    /// packets of the latest readings are late, or more packets than a few stalls of the machine would explain.
    pub fn raised(&self, enough: u64, allowed_ppm: u64) -> Option<Nanos> {
        let Excess { interrupts, late_ppm, squares, longest } = self.excess;
        if interrupts < ALARM_INTERRUPTS || late_ppm <= enough * allowed_ppm {
            return None;
        }
        let late = u128::from(late_ppm / 1_000_000);
        let most = self.streak.interrupts >= ALARM_INTERRUPTS && self.streak.late * 2 >= self.streak.packets;
        (most || late * late > ALARM_SQUARES * squares).then_some(longest)
    }
}
