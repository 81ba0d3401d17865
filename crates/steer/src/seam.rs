//! The parts of a control loop: sensor, controller and actuator, and the values that they exchange.

use std::fmt;

use units::{Instant, Nanos};

/// An observation, and the time at which it was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reading<S, C> {
    /// Time of the observation.
    pub taken: Instant<C>,
    /// The observation. What the sensor cannot know is `None` in it, never zero.
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

    /// Reads once.
    fn read(&mut self, now: Instant<C>) -> Result<Reading<Self::Seen, C>, Blind>;
}

impl<C, S: Sensor<C> + ?Sized> Sensor<C> for Box<S> {
    type Seen = S::Seen;

    fn read(&mut self, now: Instant<C>) -> Result<Reading<Self::Seen, C>, Blind> {
        (**self).read(now)
    }
}

/// A setting that a controller wants, and the reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision<T, R> {
    /// The setting to apply. `None` keeps what is in force.
    pub apply: Option<T>,
    /// The reason.
    pub reason: R,
}

/// Decides what the setting should be. Pure: no clock, no file, no thread.
pub trait Controller<C> {
    /// Type of the observations.
    type Seen;
    /// Type of the settings.
    type Setting: Clone + PartialEq + fmt::Debug;
    /// Type of what the machine puts in force, such as a rounded setting.
    type InForce: Clone + PartialEq + fmt::Debug;
    /// Why.
    type Reason: Clone + PartialEq + fmt::Debug;

    /// Time between two readings.
    fn interval(&self) -> Nanos;

    /// The initial setting. `None`: the setting in force stays until the first decision.
    fn first(&self) -> Option<Decision<Self::Setting, Self::Reason>>;

    /// Decides from a reading. Not called while a setting is being applied.
    fn decide(&mut self, now: Instant<C>, reading: &Reading<Self::Seen, C>) -> Decision<Self::Setting, Self::Reason>;

    /// Receives the outcome of a setting that the controller wanted.
    fn acted(&mut self, now: Instant<C>, wanted: &Self::Setting, acted: &Acted<Self::InForce>);

    /// Learns that another loop that shares the setting has changed what is in force.
    fn shifted(&mut self, now: Instant<C>, in_force: &Self::InForce);

    /// The setting that does no harm while there are no observations, and its reason. `None`: the setting in force
    /// stays.
    fn safe(&mut self) -> Option<Decision<Self::Setting, Self::Reason>>;
}

/// The outcome of applying a setting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Acted<F> {
    /// The setting is in force.
    InForce,
    /// A different setting is in force: the machine rounded or limited the wanted one.
    Rounded {
        /// The setting in force.
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
        /// The reason.
        why: String,
    },
    /// The setting is being applied; check again after this time.
    Later {
        /// The time until then.
        after: Nanos,
    },
    /// The setting is not available now. It is applied when it is available again.
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

/// Why a setting can no longer be set. That is final: the loop ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Lost {
    /// Somebody else has set it. Apus leaves it at that value.
    Theirs {
        /// The value that somebody else set.
        now: String,
    },
    /// The device to which the setting belonged is gone.
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
    /// The setting still has the value that Apus set.
    AsLeft,
    /// The setting was unavailable for a time and now has a default value of the machine. It must be applied again.
    Fresh,
    /// The setting is not available now.
    Away(Away),
    /// The setting can no longer be changed.
    Lost(Lost),
}

/// Applies settings.
pub trait Actuator<C> {
    /// Type of the settings.
    type Setting;
    /// Type of what the machine puts in force, such as a rounded setting.
    type InForce;

    /// Applies a setting.
    fn set(&mut self, now: Instant<C>, setting: &Self::Setting) -> Acted<Self::InForce>;

    /// Checks the outcome of a setting that was [`Acted::Later`].
    fn look(&mut self, now: Instant<C>) -> Acted<Self::InForce>;

    /// The state of the setting. It is checked once a second, so that changes by somebody else are noticed even if
    /// there is nothing to apply.
    fn stands(&mut self) -> Standing;

    /// The value in force, if another loop that shares the setting has changed it since this loop last read or set it.
    fn shifted(&mut self) -> Option<Self::InForce> {
        None
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
}
