//! The settings that control a queue's moderation: those of its NAPI instance, the NIC's coalescing for the queue, or
//! the NIC's coalescing for the whole device.
//!
//! | setting | timer | frames | available with |
//! | --- | --- | --- | --- |
//! | NAPI deferral | `gro-flush-timeout` | none | every driver with NAPI, each queue on its own |
//! | NAPI deferral and suspension | `gro-flush-timeout`, `irq-suspend-timeout` | none | the same, for epoll busy-polling |
//! | NAPI deferral of the device | `gro_flush_timeout` | none | every driver with NAPI, before Linux 6.13; the shortest timer decides |
//! | coalescing of a queue | `rx-usecs` | `rx-max-frames` | drivers with `ethtool --per-queue` |
//! | coalescing of the device | `rx-usecs` | `rx-max-frames` | drivers with `ethtool -C`; the shortest timer decides |
//!
//! NAPI deferral starts with the first packet, which raises an interrupt at once. Packets that arrive before the timer
//! expires are then processed together (Linux, net/core/dev.c, `napi_complete_done`). Deferral ends after one empty
//! poll ([`EMPTY_POLLS`]).
//!
//! While Apus sets a device's coalescing, it turns off adaptive moderation by the NIC, the driver or the kernel (DIM).
//! When Apus restores its other changes, it also restores adaptive moderation.

use std::sync::{Arc, Mutex, PoisonError};

use host::knob::{AnySetting, Coalesce, CoalesceQueue, DeviceDeferral, Error, Napi, NapiDeferral, Value};
use host::transaction::{Look, Moved, Steered, Target};
use policy::moderation::{PeriodMode, Profile};
use units::{Instant, Nanos};

use super::Wish;
use crate::seam::{Acted, Actuator, Away, Lost, Standing};

/// Number of empty polls after which the queue's interrupt is enabled again (`defer-hard-irqs`). With 1, a queue that
/// becomes idle costs one more poll than without deferral. A larger number would keep the core busy after the last
/// packet.
pub const EMPTY_POLLS: u32 = 1;

/// The smallest `rx-usecs` above 0 that a driver interprets as a time. Returns 0 for drivers that interpret every
/// number as a time. Intel's drivers interpret smaller numbers as modes in which the driver itself adapts the timer (1
/// and 3), or reject them.
///
/// Source: Linux, drivers/net/ethernet/intel: `e1000_set_coalesce` (e1000/e1000_ethtool.c, e1000e/ethtool.c),
/// `igb_set_coalesce`, `igbvf_set_coalesce`, `igc_ethtool_set_coalesce` with their `…_MIN_ITR_USECS` of 10;
/// `ixgbe_set_coalesce` and `ixgbevf_set_coalesce`, where 1 is the only mode.
pub fn least_usecs(driver: &str) -> u32 {
    match driver {
        "e1000" | "e1000e" | "igb" | "igbvf" | "igc" => 10,
        "ixgbe" | "ixgbevf" => 2,
        _ => 0,
    }
}

/// A setting that controls moderation: one row of the [module](self)'s table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// NAPI deferral of one queue.
    Deferral {
        /// Name of the interface.
        interface: String,
        /// Number of the receive queue.
        queue: u32,
        /// Whether an application that busy-polls with epoll may suspend the queue's interrupts while it is busy. Apus
        /// then sets `irq-suspend-timeout` to the timer, so that no packet waits longer than the timer, however late
        /// the application polls again.
        suspends: bool,
    },
    /// NAPI deferral of all queues of a device.
    DeviceDeferral {
        /// Name of the interface.
        interface: String,
    },
    /// The NIC's coalescing for one queue (`ethtool --per-queue`).
    Queue {
        /// Name of the interface.
        interface: String,
        /// Number of the queue.
        queue: u32,
        /// The smallest `rx-usecs` that the driver interprets as a time ([`least_usecs`]), in microseconds.
        least_usecs: u32,
    },
    /// The NIC's coalescing for a whole device (`ethtool -C`).
    Device {
        /// Name of the interface.
        interface: String,
        /// The smallest `rx-usecs` that the driver interprets as a time ([`least_usecs`]), in microseconds.
        least_usecs: u32,
        /// Whether the driver supports `adaptive-rx`. If so, Apus turns it off.
        has_adaptive: bool,
        /// Whether the driver supports `rx-max-frames`.
        counts_frames: bool,
    },
}

impl Place {
    /// The setting of the crate `host` that controls this moderation.
    pub fn setting(&self) -> AnySetting {
        match self {
            Self::Deferral { interface, queue, .. } => Napi::new(interface, *queue).into(),
            Self::DeviceDeferral { interface } => DeviceDeferral::new(interface).timeout.into(),
            Self::Queue { interface, queue, .. } => CoalesceQueue::new(interface, *queue).into(),
            Self::Device { interface, .. } => Coalesce::new(interface).into(),
        }
    }

    /// The setting of the crate `host`, limited to the fields that Apus changes.
    pub fn target(&self) -> Target {
        let Value::Fields(fields) = self.value(Profile::IMMEDIATE) else { return self.setting().into() };
        Target::fields(self.setting(), fields.into_keys())
    }

    /// Another setting that must have a fixed value while Apus controls this one, and that value. `None` if no other
    /// setting is needed.
    pub fn beside(&self) -> Option<(AnySetting, Value)> {
        match self {
            // This number of deferred interrupts has no effect while the timeout is 0.
            Self::DeviceDeferral { interface } => {
                let polls = DeviceDeferral::new(interface).empty_polls;
                Some((polls.into(), Value::text(EMPTY_POLLS.to_string())))
            }
            Self::Deferral { .. } | Self::Queue { .. } | Self::Device { .. } => None,
        }
    }

    /// Whether all queues of the device share the setting.
    pub fn is_of_device(&self) -> bool {
        matches!(self, Self::DeviceDeferral { .. } | Self::Device { .. })
    }

    /// The profile nearest to `wanted` that this place supports. A time that the driver does not support because it is
    /// too short becomes 0 (no timer), so that packets are never delayed longer than wanted.
    fn possible(&self, wanted: Profile) -> Profile {
        match self {
            Self::Queue { least_usecs, .. } | Self::Device { least_usecs, .. } if wanted.usecs < *least_usecs => {
                Profile { usecs: 0, ..wanted }
            }
            _ => wanted,
        }
    }

    /// The value to write for `profile`, or for the nearest supported profile.
    pub fn value(&self, profile: Profile) -> Value {
        let profile = self.possible(profile);
        match self {
            Self::DeviceDeferral { .. } => Value::text(profile.timer().unwrap_or(Nanos::ZERO).as_nanos().to_string()),
            Self::Deferral { suspends, .. } => {
                let gro_flush_timeout = profile.timer().unwrap_or(Nanos::ZERO);
                let defer_hard_irqs = if profile.usecs == 0 { 0 } else { EMPTY_POLLS };
                let mut value = NapiDeferral { defer_hard_irqs, gro_flush_timeout }.value();
                if let (true, Value::Fields(fields)) = (suspends, &mut value) {
                    fields.insert("irq-suspend-timeout".into(), gro_flush_timeout.as_nanos().to_string());
                }
                value
            }
            Self::Queue { .. } => {
                Value::fields([("rx-usecs", profile.usecs), ("rx-max-frames", frames(profile)), ("adaptive-rx", 0)])
            }
            Self::Device { has_adaptive, counts_frames, .. } => {
                let mut fields = vec![("rx-usecs", profile.usecs)];
                fields.extend(counts_frames.then_some(("rx-max-frames", frames(profile))));
                fields.extend(has_adaptive.then_some(("adaptive-rx", 0)));
                Value::fields(fields)
            }
        }
    }

    /// The profile that `value` stands for. `None` if `value` has no timer field.
    pub fn profile(&self, value: &Value) -> Option<Profile> {
        let number = |field: &str| value.field(field)?.parse::<u64>().ok();
        let usecs = match self {
            Self::DeviceDeferral { .. } => value.as_text()?.parse::<u64>().ok()?.div_ceil(1_000),
            Self::Deferral { .. } if number("defer-hard-irqs")? == 0 => 0,
            Self::Deferral { .. } => number("gro-flush-timeout")?.div_ceil(1_000),
            Self::Queue { .. } | Self::Device { .. } => number("rx-usecs")?,
        };
        let frames = number("rx-max-frames").unwrap_or(u64::from(usecs == 0));
        Some(Profile { usecs: u32::try_from(usecs).ok()?, frames: u32::try_from(frames).ok()?, mode: PeriodMode::Eqe })
    }
}

/// Number of frames after which the NIC interrupts. Without a timer, the number must be at least 1; otherwise the NIC
/// would never interrupt.
fn frames(profile: Profile) -> u32 {
    if profile.usecs == 0 { profile.frames.max(1) } else { profile.frames }
}

/// The controlled settings. The actuators of all queues share them.
pub type Shared = Arc<Mutex<Steered>>;

/// Actuator that writes one moderation setting.
#[derive(Debug)]
pub struct Setter {
    steered: Shared,
    /// Index of the setting in the list of controlled settings.
    number: usize,
    place: Place,
    longest: Longest,
    /// Whether the driver refused the last requested profile, so that another one is in force.
    is_refused: bool,
}

impl Setter {
    /// Creates an actuator for `place`. `number` is the index of its setting in `steered`.
    pub fn new(steered: Shared, number: usize, place: Place) -> Self {
        Self { steered, number, place, longest: Longest::default(), is_refused: false }
    }

    /// The moderation setting that this actuator writes.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The profile in force now, whoever set it. `None` if the setting does not exist now.
    pub fn in_force(&self) -> Result<Option<Profile>, Error> {
        let value = self.steered.lock().unwrap_or_else(PoisonError::into_inner).value(self.number)?;
        Ok(value.and_then(|value| self.place.profile(&value)))
    }

    fn write(&self, profile: Profile) -> Result<Acted<Profile>, Error> {
        let wanted = self.place.value(profile);
        let moved = self.steered.lock().unwrap_or_else(PoisonError::into_inner).steer(self.number, &wanted)?;
        Ok(match moved {
            Moved::AsWanted { .. } => Acted::InForce,
            Moved::Otherwise { now, why } => match self.place.profile(&now) {
                Some(now) => Acted::Rounded { now, why },
                None => Acted::Ignored { why: Some(format!("it reads as {now}")) },
            },
            // Report what is in force now, which may differ from what was read at the beginning.
            Moved::Unmoved { now, why } => match self.place.profile(&now) {
                Some(now) => Acted::Rounded { now, why: why.or_else(|| Some("the driver changed nothing".into())) },
                None => Acted::Ignored { why },
            },
            Moved::LetGo { now } => Acted::Lost(Lost::Theirs { now: now.to_string() }),
            Moved::Away => Acted::Away(away()),
            Moved::Gone => Acted::Lost(Lost::Gone),
        })
    }
}

/// The longest `rx-usecs` that a driver accepts. Drivers do not tell it: they refuse longer ones (e1000e above 10,000,
/// ixgbe above 956).
#[derive(Clone, Default, Debug)]
struct Longest {
    /// The longest known to be accepted, and how the driver refused a longer one. `None` until it has refused one.
    known: Option<(u32, String)>,
}

impl Longest {
    /// Maximum number of shorter times to try after a refusal. The seventh is the 16,384th part: 131 us of the longest
    /// deferral that the kernel knows. The others suffice to come within a seventh of the longest accepted time.
    const TRIES: u32 = 12;

    /// Applies `profile`, or the longest time below it that the driver accepts. `least` is the shortest time to try, in
    /// microseconds; `write` asks the driver. Also returns whether the driver refused the profile.
    fn apply(
        &mut self,
        profile: Profile,
        least: u32,
        mut write: impl FnMut(Profile) -> Result<Acted<Profile>, Error>,
    ) -> (Acted<Profile>, bool) {
        let limited = |longest: u32, why: &str, now: Profile| {
            let why = format!("{longest}us is the longest time that its driver is known to accept ({why})");
            (Acted::Rounded { now, why: Some(why) }, true)
        };
        let first = match &self.known {
            Some((longest, _)) if profile.usecs > *longest => Profile { usecs: *longest, ..profile },
            _ => profile,
        };
        let error = match (write(first), &self.known) {
            (Ok(Acted::InForce), Some((longest, why))) if first != profile => return limited(*longest, why, first),
            (Ok(Acted::Rounded { now, .. }), Some((longest, why))) if first != profile => {
                return limited(*longest, why, now);
            }
            (Ok(acted), _) => return (acted, false),
            (Err(error), _) => error,
        };
        let refused = |error: &Error| (Acted::Refused { why: error.to_string() }, true);
        if !matches!(error, Error::Refused { .. }) {
            return refused(&error);
        }
        // Takes a quarter of the time until the driver accepts it, and then goes half of the way back, as long as that
        // gains more than a sixteenth.
        let (mut accepted, mut too_long) = (None::<(u32, Profile)>, first.usecs);
        for _ in 0..Self::TRIES {
            let next = match accepted {
                None => too_long / 4,
                Some((shortest, _)) => shortest + (too_long - shortest) / 2,
            };
            let gains = |(shortest, _): (u32, _)| next - shortest > shortest / 16;
            if next < least.max(1) || !accepted.is_none_or(gains) {
                break;
            }
            match write(Profile { usecs: next, ..first }) {
                Ok(Acted::InForce) => accepted = Some((next, Profile { usecs: next, ..first })),
                Ok(Acted::Rounded { now, .. }) if now.usecs > next / 2 => accepted = Some((next, now)),
                Ok(acted @ (Acted::Lost(_) | Acted::Away(_))) => return (acted, false),
                Ok(_) => too_long = next,
                Err(Error::Refused { .. }) => too_long = next,
                Err(error) => return refused(&error),
            }
        }
        let Some((longest, now)) = accepted else { return refused(&error) };
        let why = error.to_string().replace('\n', "; ");
        let limited = limited(longest, &why, now);
        self.known = Some((longest, why));
        limited
    }
}

/// What [`Strictest`] needs from an actuator: apply a profile, and check that it is still in force.
pub(super) trait One: std::fmt::Debug {
    fn apply(&mut self, profile: Profile) -> Acted<Profile>;
    fn standing(&mut self) -> Standing;
    fn is_refused(&self) -> bool;
}

impl One for Setter {
    fn apply(&mut self, profile: Profile) -> Acted<Profile> {
        let possible = self.place.possible(profile);
        let mut longest = std::mem::take(&mut self.longest);
        let (acted, is_refused) = match self.place {
            Place::Queue { least_usecs, .. } | Place::Device { least_usecs, .. } => {
                longest.apply(possible, least_usecs, |profile| self.write(profile))
            }
            Place::Deferral { .. } | Place::DeviceDeferral { .. } => match self.write(possible) {
                Ok(acted) => (acted, false),
                Err(error) => (Acted::Refused { why: error.to_string() }, true),
            },
        };
        self.longest = longest;
        self.is_refused = is_refused || matches!(acted, Acted::Ignored { .. });
        match acted {
            Acted::InForce if possible != profile => {
                let why = format!("to its driver, rx-usecs={} is not a time", profile.usecs);
                Acted::Rounded { now: possible, why: Some(why) }
            }
            acted => acted,
        }
    }

    fn standing(&mut self) -> Standing {
        match self.steered.lock().unwrap_or_else(PoisonError::into_inner).look(self.number) {
            Ok(Look::LetGo { now }) => Standing::Lost(Lost::Theirs { now: now.to_string() }),
            Ok(Look::Gone) => Standing::Lost(Lost::Gone),
            Ok(Look::Away) => Standing::Away(away()),
            Ok(Look::Fresh) => {
                // The driver may accept longer times now.
                self.longest = Longest::default();
                Standing::Fresh
            }
            // A setting that cannot be read now is not treated as lost.
            Ok(Look::Ours) | Err(_) => Standing::AsLeft,
        }
    }

    fn is_refused(&self) -> bool {
        self.is_refused
    }
}

fn away() -> Away {
    Away("the interface is down, or the queue is not in use".into())
}

impl<C> Actuator<C> for Setter {
    type Setting = Wish;
    type InForce = Profile;

    fn set(&mut self, _: Instant<C>, wish: &Wish) -> Acted<Profile> {
        self.apply(wish.profile)
    }

    /// Never called: the kernel applies moderation settings at once, so none is ever pending.
    fn look(&mut self, _: Instant<C>) -> Acted<Profile> {
        Acted::InForce
    }

    fn stands(&mut self) -> Standing {
        self.standing()
    }

    fn is_refused(&self) -> bool {
        self.is_refused
    }
}

/// Actuator for a moderation setting that several queues share. Among the queues that receive packets, the one that
/// needs the shortest timer decides. If no queue profits from a timer, there is none.
#[derive(Debug)]
pub struct Strictest {
    setter: Box<dyn One + Send>,
    wishes: Vec<Option<Wish>>,
    /// The last requested profile, and its outcome.
    asked: Option<(Profile, Acted<Profile>)>,
    in_force: Option<Profile>,
}

impl Strictest {
    /// Creates an actuator for each of the `queues` queues that share this setting.
    pub fn of(setter: Setter, queues: usize) -> Vec<StrictestOf> {
        Self::by(Box::new(setter), queues)
    }

    pub(super) fn by(setter: Box<dyn One + Send>, queues: usize) -> Vec<StrictestOf> {
        let shared = Self { setter, wishes: vec![None; queues], asked: None, in_force: None };
        let shared = Arc::new(Mutex::new(shared));
        (0..queues).map(|queue| StrictestOf { shared: shared.clone(), queue, known: None }).collect()
    }

    /// The profile for all queues, and the number of the queue that decides: the longest timer that is the best one for
    /// some queue, but not longer than each queue accepts. `None` if no queue receives packets.
    fn strictest(&self) -> Option<(usize, Profile)> {
        let length = |profile: &Profile| (profile.usecs, profile.frames);
        let busy =
            || self.wishes.iter().enumerate().filter_map(|(queue, wish)| Some((queue, (*wish)?, (*wish)?.most?)));
        let accepted = busy().map(|(queue, _, most)| (queue, most)).min_by_key(|(_, most)| length(most))?;
        let best = busy().map(|(queue, wish, _)| (queue, wish.profile)).max_by_key(|(_, best)| length(best))?;
        Some(if length(&best.1) < length(&accepted.1) { best } else { accepted })
    }

    fn set(&mut self, queue: usize, wish: Wish) -> Acted<Profile> {
        self.wishes[queue] = Some(wish);
        let strictest = self.strictest();
        // If no queue receives packets, the profile stays as it is; at the start, it is the one that this queue
        // requests.
        let wanted = match (strictest, &self.asked) {
            (Some((_, most)), _) => most,
            (None, Some((asked, _))) => *asked,
            (None, None) => wish.profile,
        };
        let acted = match &self.asked {
            Some((asked, acted)) if *asked == wanted && !matches!(acted, Acted::Refused { .. } | Acted::Away(_)) => {
                acted.clone()
            }
            _ => self.setter.apply(wanted),
        };
        self.asked = Some((wanted, acted.clone()));
        match &acted {
            Acted::InForce => self.in_force = Some(wanted),
            Acted::Rounded { now, .. } => self.in_force = Some(*now),
            _ => {}
        }
        match acted {
            Acted::InForce if wanted != wish.profile => {
                let why = match strictest {
                    Some((who, _)) if who != queue => {
                        format!("the device has one timer for all queues, and queue {who} needs this one")
                    }
                    _ => "the device has one timer for all queues, and others need it".into(),
                };
                Acted::Rounded { now: wanted, why: Some(why) }
            }
            acted => acted,
        }
    }
}

/// Actuator of one queue that shares its moderation setting with other queues ([`Strictest`]).
#[derive(Debug)]
pub struct StrictestOf {
    shared: Arc<Mutex<Strictest>>,
    queue: usize,
    /// The profile in force, as last reported to this queue's loop.
    known: Option<Profile>,
}

impl<C> Actuator<C> for StrictestOf {
    type Setting = Wish;
    type InForce = Profile;

    fn set(&mut self, _: Instant<C>, wish: &Wish) -> Acted<Profile> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let acted = shared.set(self.queue, *wish);
        self.known = shared.in_force;
        acted
    }

    fn look(&mut self, _: Instant<C>) -> Acted<Profile> {
        Acted::InForce
    }

    fn stands(&mut self) -> Standing {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let standing = shared.setter.standing();
        if standing != Standing::AsLeft {
            shared.asked = None;
        }
        standing
    }

    fn shifted(&mut self) -> Option<Profile> {
        let in_force = self.shared.lock().unwrap_or_else(PoisonError::into_inner).in_force;
        if in_force == self.known {
            return None;
        }
        self.known = in_force;
        in_force
    }

    fn is_refused(&self) -> bool {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).setter.is_refused()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A driver that knows multiples of 10 us, and remembers what it was asked for.
    #[derive(Clone, Default, Debug)]
    struct Driver(Arc<Mutex<Vec<u32>>>);

    impl One for Driver {
        fn apply(&mut self, profile: Profile) -> Acted<Profile> {
            self.0.lock().unwrap().push(profile.usecs);
            let now = Profile::eqe(profile.usecs / 10 * 10, 0);
            if now.usecs == profile.usecs { Acted::InForce } else { Acted::Rounded { now, why: None } }
        }
        fn standing(&mut self) -> Standing {
            Standing::AsLeft
        }
        fn is_refused(&self) -> bool {
            false
        }
    }

    /// A queue that profits most from a timer of `usecs`, and accepts one of `most`.
    fn wish(usecs: u32, most: Option<u32>) -> Wish {
        let profile = |usecs| if usecs == 0 { Profile::IMMEDIATE } else { Profile::eqe(usecs, 0) };
        Wish { profile: profile(usecs), most: most.map(profile) }
    }

    /// Regression test: the timer was never off, although no queue profited from one.
    #[test]
    fn there_is_no_timer_if_no_queue_profits_from_one() {
        let driver = Driver::default();
        let mut queues = Strictest::by(Box::new(driver.clone()), 2);
        let now = Instant::<units::Simulated>::ORIGIN;
        let mut set = |queue: usize, wish: Wish| Actuator::set(&mut queues[queue], now, &wish);
        assert_eq!(set(0, wish(0, Some(80))), Acted::InForce);
        assert_eq!(set(1, wish(0, Some(60))), Acted::InForce);
        assert!(matches!(set(0, wish(70, Some(70))), Acted::Rounded { now, .. } if now.usecs == 60));
        assert!(matches!(set(0, wish(30, Some(70))), Acted::InForce));
        let Acted::Rounded { now, why } = set(1, wish(0, Some(50))) else { panic!() };
        assert!(now.usecs == 30 && why.as_ref().unwrap().contains("queue 0 needs this one"), "{why:?}");
        assert_eq!(set(0, wish(0, Some(80))), Acted::InForce);
        assert_eq!(*driver.0.lock().unwrap(), [0, 60, 30, 0]);
    }

    #[test]
    fn the_strictest_queue_with_packets_decides_and_the_others_learn_it() {
        let driver = Driver::default();
        let mut queues = Strictest::by(Box::new(driver.clone()), 3);
        let now = Instant::<units::Simulated>::ORIGIN;
        let mut set = |queue: usize, wish: Wish| Actuator::set(&mut queues[queue], now, &wish);
        assert_eq!(set(0, wish(100, Some(100))), Acted::InForce);
        assert_eq!(set(1, wish(50, Some(50))), Acted::InForce);
        // Its packets come alone: it needs no timer, and puts up with 80 us.
        let Acted::Rounded { now: in_force, why } = set(2, wish(0, Some(80))) else { panic!() };
        assert!(in_force == Profile::eqe(50, 0) && why.unwrap().contains("queue 1 needs"));
        // No packets come to queue 1 any more.
        assert!(matches!(set(1, wish(50, None)), Acted::Rounded { now, .. } if now.usecs == 80));
        // The driver rounds.
        assert!(matches!(set(2, wish(0, Some(77))), Acted::Rounded { now, .. } if now.usecs == 70));
        // Nobody has packets: it stays.
        assert!(matches!(set(2, wish(0, None)), Acted::Rounded { now, .. } if now.usecs == 100));
        assert_eq!(set(0, wish(100, None)), Acted::InForce);
        assert_eq!(*driver.0.lock().unwrap(), [100, 50, 80, 77, 100]);
        let mut shifted = |queue: usize| Actuator::<units::Simulated>::shifted(&mut queues[queue]);
        assert_eq!((shifted(0), shifted(0), shifted(1), shifted(2)), (None, None, Some(Profile::eqe(100, 0)), None));
    }

    /// Regression test: after one refusal of a long time, the timer stayed off.
    #[test]
    fn the_longest_time_that_a_driver_accepts_is_learned() {
        let refusal =
            |usecs: u32| Error::Refused { what: format!("set {usecs}"), why: "ERANGE".into(), fix: "choose".into() };
        for (limit, asked) in [(10_000, 20_000), (956, 2_000_000), (250, 256), (16_383, 2_147_483), (64, 100)] {
            let (mut longest, mut tried) = (Longest::default(), Vec::new());
            let mut apply = |usecs: u32| {
                tried.clear();
                let write = |profile: Profile| {
                    tried.push(profile.usecs);
                    if profile.usecs <= limit { Ok(Acted::InForce) } else { Err(refusal(profile.usecs)) }
                };
                let acted = longest.apply(Profile::eqe(usecs, 0), 10, write);
                (acted, tried.clone())
            };
            let ((acted, is_refused), tries) = apply(asked);
            let Acted::Rounded { now, why } = acted else { panic!("{acted:?}") };
            assert!(is_refused && now.usecs <= limit && now.usecs > limit / 2, "{limit}: {now:?}");
            assert!(why.unwrap().contains("ERANGE") && tries.len() <= 13, "{tries:?}");
            assert_eq!(tries.iter().rev().find(|usecs| **usecs <= limit), Some(&now.usecs), "it is in force");
            // The next time, nothing is tried.
            let ((acted, is_refused), tries) = apply(asked + 1);
            assert!(is_refused && matches!(acted, Acted::Rounded { now: again, .. } if again == now), "{acted:?}");
            assert_eq!(tries, [now.usecs]);
            assert_eq!(apply(20), ((Acted::InForce, false), vec![20]));
        }
    }

    #[test]
    fn a_driver_that_refuses_every_time_is_asked_a_few_times() {
        let (mut longest, mut tries) = (Longest::default(), 0);
        let (acted, is_refused) = longest.apply(Profile::eqe(2_000_000, 0), 10, |_| {
            tries += 1;
            Err(Error::Refused { what: "set".into(), why: "EBUSY".into(), fix: "wait".into() })
        });
        assert!(is_refused && matches!(&acted, Acted::Refused { why } if why.contains("EBUSY")), "{acted:?}");
        assert!(tries <= 13 && longest.known.is_none(), "{tries}");
    }

    #[test]
    fn a_profile_and_its_value_say_the_same() {
        let interface = || "eth0".to_owned();
        let deferral = Place::Deferral { interface: interface(), queue: 1, suspends: false };
        let suspending = Place::Deferral { interface: interface(), queue: 1, suspends: true };
        let queue = Place::Queue { interface: interface(), queue: 1, least_usecs: 0 };
        let device = Place::Device { interface: interface(), least_usecs: 0, has_adaptive: true, counts_frames: true };
        let all = Place::DeviceDeferral { interface: interface() };
        assert_eq!(deferral.value(Profile::eqe(50, 0)).to_string(), "defer-hard-irqs=1 gro-flush-timeout=50000");
        assert_eq!(deferral.value(Profile::IMMEDIATE).to_string(), "defer-hard-irqs=0 gro-flush-timeout=0");
        let both = "defer-hard-irqs=1 gro-flush-timeout=50000 irq-suspend-timeout=50000";
        assert_eq!(suspending.value(Profile::eqe(50, 0)).to_string(), both);
        let none = "defer-hard-irqs=0 gro-flush-timeout=0 irq-suspend-timeout=0";
        assert_eq!(suspending.value(Profile::IMMEDIATE).to_string(), none);
        assert_eq!(queue.value(Profile::eqe(50, 32)).to_string(), "adaptive-rx=0 rx-max-frames=32 rx-usecs=50");
        assert_eq!(device.value(Profile::eqe(0, 0)).to_string(), "adaptive-rx=0 rx-max-frames=1 rx-usecs=0");
        assert_eq!(all.value(Profile::eqe(50, 0)).to_string(), "50000");
        assert_eq!(all.setting().label(), "/sys/class/net/eth0/gro_flush_timeout");
        assert_eq!(all.beside().unwrap().0.label(), "/sys/class/net/eth0/napi_defer_hard_irqs");
        let plain = Place::Device { interface: interface(), least_usecs: 0, has_adaptive: false, counts_frames: false };
        assert_eq!(plain.value(Profile::eqe(50, 32)).to_string(), "rx-usecs=50");
        for profile in [Profile::eqe(50, 32), Profile::IMMEDIATE, Profile::eqe(1, 0)] {
            assert_eq!(queue.profile(&queue.value(profile)), Some(profile));
            assert_eq!(deferral.profile(&deferral.value(profile)).unwrap().timer(), profile.timer());
            assert_eq!(all.profile(&all.value(profile)).unwrap().timer(), profile.timer());
        }
        assert_eq!(queue.profile(&Value::text("x")), None);
    }

    #[test]
    fn no_mode_of_a_driver_is_asked_for() {
        let usecs_of = |driver: &str, usecs: u32| {
            let least_usecs = least_usecs(driver);
            let plain =
                || Place::Device { interface: "eth0".into(), least_usecs, has_adaptive: false, counts_frames: false };
            let queue = Place::Queue { interface: "eth0".into(), queue: 0, least_usecs };
            let asked = [plain().value(Profile::eqe(usecs, 0)), queue.value(Profile::eqe(usecs, 0))];
            asked.map(|value| value.field("rx-usecs").unwrap().parse::<u32>().unwrap())
        };
        for usecs in 1..10 {
            assert_eq!(usecs_of("e1000e", usecs), [0, 0], "{usecs}");
            assert_eq!(usecs_of("mlx5_core", usecs), [usecs, usecs]);
        }
        assert_eq!((usecs_of("igb", 10), usecs_of("ixgbe", 1), usecs_of("ixgbe", 2)), ([10; 2], [0; 2], [2; 2]));
    }
}
