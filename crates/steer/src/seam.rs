//! The parts of a control loop (sensor, controller and actuator), and the types that they exchange.

use std::fmt;

use units::{Instant, Nanos};

/// An observation by a sensor, and when it was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reading<S, C> {
    /// Time of the observation.
    pub taken: Instant<C>,
    /// The observation. Anything that the sensor cannot know is `None`, never zero.
    pub seen: S,
}

impl<S, C> Reading<S, C> {
    /// The age of the reading at `now`.
    pub fn age(&self, now: Instant<C>) -> Nanos {
        now.since(self.taken).unwrap_or(Nanos::ZERO)
    }
}

/// Why a sensor cannot observe anything; a message for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Blind(pub String);

impl fmt::Display for Blind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Observes the effect of a setting.
pub trait Sensor<C> {
    /// Type of the observations.
    type Seen;

    /// Makes one observation.
    fn read(&mut self, now: Instant<C>) -> Result<Reading<Self::Seen, C>, Blind>;
}

impl<C, S: Sensor<C> + ?Sized> Sensor<C> for Box<S> {
    type Seen = S::Seen;

    fn read(&mut self, now: Instant<C>) -> Result<Reading<Self::Seen, C>, Blind> {
        (**self).read(now)
    }
}

/// A controller's choice of a setting, and the reason for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision<T, R> {
    /// The setting to apply. `None` keeps the setting in force.
    pub apply: Option<T>,
    /// Why this setting was chosen or kept.
    pub reason: R,
}

/// Decides what the setting should be. A controller depends only on its inputs: it uses no clock, file or thread.
pub trait Controller<C> {
    /// Type of the observations.
    type Seen;
    /// Type of the settings.
    type Setting: Clone + PartialEq + fmt::Debug;
    /// Type of the values that can be in force; they may differ from the requested setting, for example by rounding.
    type InForce: Clone + PartialEq + fmt::Debug;
    /// Type of the reasons for a decision.
    type Reason: Clone + PartialEq + fmt::Debug;

    /// Time between two readings.
    fn interval(&self) -> Nanos;

    /// The setting to apply when the loop starts. `None`: the setting in force stays until the first decision.
    fn first(&self) -> Option<Decision<Self::Setting, Self::Reason>>;

    /// Makes a decision from a reading. Not called while a setting is still being applied.
    fn decide(&mut self, now: Instant<C>, reading: &Reading<Self::Seen, C>) -> Decision<Self::Setting, Self::Reason>;

    /// Tells the controller the outcome of a setting that it requested.
    fn acted(&mut self, now: Instant<C>, wanted: &Self::Setting, acted: &Acted<Self::InForce>);

    /// Tells the controller that another loop that shares the setting has changed the value in force.
    fn shifted(&mut self, now: Instant<C>, in_force: &Self::InForce);

    /// A harmless setting to apply while the sensor cannot observe anything, and the reason for it. `None` keeps the
    /// setting in force.
    fn safe(&mut self) -> Option<Decision<Self::Setting, Self::Reason>>;
}

/// The outcome of applying a setting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Acted<F> {
    /// The setting is in force.
    InForce,
    /// A different value is in force: the machine rounded or limited the requested setting.
    Rounded {
        /// The value in force.
        now: F,
        /// The reason. `None` if the machine does not report one.
        why: Option<String>,
    },
    /// The request was accepted, but changed nothing.
    Ignored {
        /// The reason. `None` if the machine does not report one.
        why: Option<String>,
    },
    /// The setting was refused. The previous one is still in force.
    Refused {
        /// Why the setting was refused.
        why: String,
    },
    /// The setting is still being applied; check the outcome after this time.
    Later {
        /// Time to wait before the check.
        after: Nanos,
    },
    /// The setting is not available now. The loop applies it once it is available again.
    Away(Away),
    /// The setting can no longer be changed.
    Lost(Lost),
}

/// Why a setting is not available now, although its device exists; a message for people. Example: the interface is
/// down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Away(pub String);

impl fmt::Display for Away {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a setting can no longer be changed. This is final: the loop ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Lost {
    /// Something other than Apus has changed the setting. Apus leaves it at the new value.
    Theirs {
        /// The new value.
        now: String,
    },
    /// The device or CPU to which the setting belonged no longer exists.
    Gone,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Theirs { now } => write!(f, "somebody else set it to {now}; Apus leaves it at this value"),
            Self::Gone => f.write_str("it is gone"),
        }
    }
}

/// The state of a setting between two changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Standing {
    /// The setting still has the value that Apus wrote.
    AsLeft,
    /// The setting was unavailable for a time and has been reset to the machine's default, so Apus must apply its value
    /// again.
    Fresh,
    /// The setting is not available now, for this reason.
    Away(Away),
    /// The setting can no longer be changed, for this reason.
    Lost(Lost),
}

/// Applies a controller's settings.
pub trait Actuator<C> {
    /// Type of the settings.
    type Setting;
    /// Type of the values that can be in force; they may differ from the requested setting, for example by rounding.
    type InForce;

    /// Applies a setting.
    fn set(&mut self, now: Instant<C>, setting: &Self::Setting) -> Acted<Self::InForce>;

    /// Checks the outcome of a setting for which [`Actuator::set`] returned [`Acted::Later`].
    fn look(&mut self, now: Instant<C>) -> Acted<Self::InForce>;

    /// Checks whether the setting still has the value that Apus wrote. The loop calls this once a second, so that it
    /// notices changes by others even while it has nothing to apply.
    fn stands(&mut self) -> Standing;

    /// The value in force, if another loop that shares the setting has changed the value after this loop last read or
    /// set it; otherwise `None`.
    fn shifted(&mut self) -> Option<Self::InForce> {
        None
    }

    /// Whether the machine refused the last requested setting, so that something else is in force. False for a value
    /// that was only rounded.
    fn is_refused(&self) -> bool {
        false
    }
}

impl<C, A: Actuator<C> + ?Sized> Actuator<C> for Box<A> {
    type Setting = A::Setting;
    type InForce = A::InForce;

    fn set(&mut self, now: Instant<C>, setting: &A::Setting) -> Acted<A::InForce> {
        (**self).set(now, setting)
    }

    fn look(&mut self, now: Instant<C>) -> Acted<A::InForce> {
        (**self).look(now)
    }

    fn stands(&mut self) -> Standing {
        (**self).stands()
    }

    fn shifted(&mut self) -> Option<A::InForce> {
        (**self).shifted()
    }

    fn is_refused(&self) -> bool {
        (**self).is_refused()
    }
}
