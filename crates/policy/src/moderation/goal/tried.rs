//! What share of the packets was late with the timers that were tried last.

use core::cmp::Reverse;

use units::{Instant, Nanos};

use super::LONGEST_PATIENCE;

/// Number of timers that are remembered.
const TIMERS: usize = 8;
/// A timer that differs from a remembered one by at most `1 / ALIKE` is taken for the same.
const ALIKE: u64 = 16;
/// If more packets than this are late (in millionths), the CPU is taken to be busy, and not only stalled from time to time.
/// An estimate: more than the share of time that the stalls of a small virtual machine take.
const BUSY_PPM: u64 = 50_000;
/// Above this many packets, the earlier half of what is known of a timer counts half.
const MOST_PACKETS: u64 = 1 << 20;

/// The timers that were tried last. No timer is one of them: zero.
#[derive(Debug)]
pub(super) struct Tried<C> {
    timers: [Option<Known<C>>; TIMERS],
}

#[derive(Debug)]
struct Known<C> {
    timer: Nanos,
    packets: u64,
    late: u64,
    at: Instant<C>,
}

/// The result of a timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Share {
    pub packets: u64,
    /// Number of late packets, for whatever reason.
    pub late: u64,
}

impl<C> Tried<C> {
    pub fn new() -> Self {
        Self { timers: [const { None }; TIMERS] }
    }

    /// Adds what was seen of `timer` up to `now`.
    pub fn add(&mut self, now: Instant<C>, timer: Nanos, seen: Share) {
        if let Some(known) = self.timers.iter_mut().flatten().find(|known| alike(known.timer, timer)) {
            let is_old = now.since(known.at).is_none_or(|age| age >= LONGEST_PATIENCE);
            let part = if is_old {
                u64::MAX
            } else if known.packets > MOST_PACKETS {
                2
            } else {
                1
            };
            known.packets = known.packets / part + seen.packets;
            known.late = known.late / part + seen.late;
            known.at = now;
            return;
        }
        let oldest = |place: &Option<Known<C>>| place.as_ref().map(|known| known.at.as_nanos());
        let place = (0..TIMERS).min_by_key(|n| oldest(&self.timers[*n])).unwrap_or(0);
        self.timers[place] = Some(Known { timer, packets: seen.packets, late: seen.late, at: now });
    }

    /// What is known of `timer`.
    pub fn of(&self, now: Instant<C>, timer: Nanos) -> Option<Share> {
        let known = self.timers.iter().flatten().find(|known| alike(known.timer, timer))?;
        let is_recent = now.since(known.at).is_some_and(|age| age < LONGEST_PATIENCE);
        is_recent.then_some(Share { packets: known.packets, late: known.late })
    }

    /// The timers that are known from at least `enough` packets, not long ago, with their shares.
    fn known(&self, now: Instant<C>, enough: u64) -> impl Iterator<Item = (Nanos, Share)> + '_ {
        let is_known = move |known: &&Known<C>| {
            known.packets >= enough && now.since(known.at).is_some_and(|age| age < LONGEST_PATIENCE)
        };
        let all = self.timers.iter().flatten().filter(is_known);
        all.map(|known| (known.timer, Share { packets: known.packets, late: known.late }))
    }

    /// The longest timer below `below` of whose packets at most `ppm` were late.
    pub fn good(&self, now: Instant<C>, enough: u64, ppm: u64, below: Nanos) -> Option<Nanos> {
        let good = self.known(now, enough).filter(|(timer, share)| *timer < below && share.ppm() <= ppm);
        good.map(|(timer, _)| timer).max()
    }

    /// What is known of `timer`, or else of the longest timer that is at least half as long and shorter than `present`.
    pub fn about(&self, now: Instant<C>, enough: u64, timer: Nanos, present: Nanos) -> Option<(Nanos, Share)> {
        let exact = self.of(now, timer).filter(|known| known.packets >= enough).map(|known| (timer, known));
        let near = || {
            let known = self.others(now, enough, present).filter(|(known, _)| (timer / 2..present).contains(known));
            known.max_by_key(|(known, _)| *known)
        };
        if timer == Nanos::ZERO { exact } else { exact.or_else(near) }
    }

    /// What is known of the timers below the present one.
    pub fn below(&self, now: Instant<C>, enough: u64, present: Nanos) -> impl Iterator<Item = Share> + '_ {
        self.others(now, enough, present).filter(move |(timer, _)| *timer < present).map(|(_, share)| share)
    }

    /// The timer with the smallest share of late packets, apart from the `present` one; of several, the longest.
    pub fn least_late(&self, now: Instant<C>, enough: u64, present: Nanos) -> Option<(Nanos, Share)> {
        self.others(now, enough, present).min_by_key(|(timer, share)| (share.ppm(), Reverse(*timer)))
    }

    /// The known timers, apart from the `present` one.
    fn others(&self, now: Instant<C>, enough: u64, present: Nanos) -> impl Iterator<Item = (Nanos, Share)> + '_ {
        self.known(now, enough).filter(move |(timer, _)| !alike(*timer, present))
    }

    /// The shortest timer above `above` of whose packets more than `ppm` were late.
    pub fn bad(&self, now: Instant<C>, enough: u64, ppm: u64, above: Nanos) -> Option<Nanos> {
        let bad = self.known(now, enough).filter(|(timer, share)| *timer > above && share.ppm() > ppm);
        bad.map(|(timer, _)| timer).min()
    }
}

/// Whether two timers are taken for the same.
fn alike(one: Nanos, other: Nanos) -> bool {
    let (shorter, longer) = (one.min(other), one.max(other));
    longer.saturating_sub(shorter) <= longer / ALIKE
}

impl Share {
    /// Whether the share is so near to `allowed_ppm` that chance could carry it above. The number of late packets varies
    /// by one standard deviation (Poisson), but by no more than a quarter.
    pub fn is_near(self, allowed_ppm: u64) -> bool {
        let allowed = (u128::from(self.packets) * u128::from(allowed_ppm) / 1_000_000) as u64;
        self.late > allowed - allowed.isqrt().min(allowed / 4)
    }

    /// Whether `other` is so much larger that stalls of the machine do not explain it: above [`BUSY_PPM`], and at least
    /// twice as large or larger by a quarter of all packets.
    pub fn is_far_below(self, other: Self) -> bool {
        let far = (2 * self.ppm()).min(self.ppm() + 250_000);
        other.ppm() > far.max(BUSY_PPM)
    }

    /// The late packets, in millionths of all.
    pub fn ppm(self) -> u64 {
        (self.late * 1_000_000).checked_div(self.packets).unwrap_or(0)
    }

    pub fn and(self, other: Option<Self>) -> Self {
        let Some(other) = other else { return self };
        Self { packets: self.packets + other.packets, late: self.late + other.late }
    }
}

// Implemented by hand, because a derive would also require `Clone` of the clock's marker type.
impl<C> Clone for Known<C> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<C> Copy for Known<C> {}
impl<C> Clone for Tried<C> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<C> Copy for Tried<C> {}
