//! What a control loop is made of: a sensor, a controller, an actuator, and what they tell each other.

use std::fmt;

use units::{Instant, Nanos};

/// What a sensor has seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reading<S, C> {
    /// When it was seen. It is as old as the time since then.
    pub taken: Instant<C>,
    /// What was seen. What the sensor cannot know is a `None` in it, never a zero.
    pub seen: S,
}

impl<S, C> Reading<S, C> {
    /// The age of the reading at `now`.
    pub fn age(&self, now: Instant<C>) -> Nanos {
        now.since(self.taken).unwrap_or(Nanos::ZERO)
    }
}

/// Why a sensor sees nothing. The text is for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Blind(pub String);

impl fmt::Display for Blind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Sees what a setting does.
pub trait Sensor<C> {
    /// What it sees.
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

/// What a controller wants, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision<T, R> {
    /// The setting to apply. `None` keeps what is in force.
    pub apply: Option<T>,
    /// The reason.
    pub reason: R,
}

/// Decides what the setting should be. Pure: no clock, no file, no thread.
pub trait Controller<C> {
    /// What it decides by.
    type Seen;
    /// What it wants.
    type Setting: Clone + PartialEq + fmt::Debug;
    /// What the machine puts in force.
    type InForce: Clone + PartialEq + fmt::Debug;
    /// Why.
    type Reason: Clone + PartialEq + fmt::Debug;

    /// Time between two readings.
    fn interval(&self) -> Nanos;

    /// The setting to begin with. `None`: what is in force stays until the first decision.
    fn first(&self) -> Option<Decision<Self::Setting, Self::Reason>>;

    /// Decides by a reading. It is not asked while a setting is being applied.
    fn decide(&mut self, now: Instant<C>, reading: &Reading<Self::Seen, C>) -> Decision<Self::Setting, Self::Reason>;

    /// Takes in what became of a setting that it wanted.
    fn acted(&mut self, now: Instant<C>, wanted: &Self::Setting, acted: &Acted<Self::InForce>);

    /// Takes in that another loop, which shares the setting, has changed what is in force.
    fn shifted(&mut self, now: Instant<C>, in_force: &Self::InForce);

    /// The setting that does no harm while nothing is seen, and the reason to give for it. `None`: what is in force
    /// stays.
    fn safe(&mut self) -> Option<Decision<Self::Setting, Self::Reason>>;
}

/// What became of a setting that was to be applied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Acted<F> {
    /// It is in force.
    InForce,
    /// Another one is in force: the machine rounded or limited it.
    Rounded {
        /// The setting in force.
        now: F,
        /// The reason. `None` if the machine does not say.
        why: Option<String>,
    },
    /// It was accepted, and changed nothing.
    Ignored {
        /// The reason. `None` if the machine does not say.
        why: Option<String>,
    },
    /// It was refused. What was in force still is.
    Refused {
        /// The reason.
        why: String,
    },
    /// It is on its way: look again after this time.
    Later {
        /// The time until then.
        after: Nanos,
    },
    /// There is nothing to set now. It is applied when there is.
    Away(Away),
    /// It can no longer be set.
    Lost(Lost),
}

/// Why there is nothing to set now, although its device exists. The text is for people.
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
    /// Somebody else has set it. It is left as they set it.
    Theirs {
        /// Their value.
        now: String,
    },
    /// The device to which the setting belonged is gone.
    Gone,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Theirs { now } => write!(f, "somebody else set it to {now}; it is left so"),
            Self::Gone => f.write_str("it is gone"),
        }
    }
}

/// How a setting stands between two changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Standing {
    /// As it was left.
    AsLeft,
    /// It was away and is back, with a value of the machine's own: it must be applied again.
    Fresh,
    /// There is nothing to set now.
    Away(Away),
    /// It can no longer be set.
    Lost(Lost),
}

/// Applies settings.
pub trait Actuator<C> {
    /// What it applies.
    type Setting;
    /// What the machine puts in force.
    type InForce;

    /// Applies a setting.
    fn set(&mut self, now: Instant<C>, setting: &Self::Setting) -> Acted<Self::InForce>;

    /// Looks what became of a setting that was [`Acted::Later`].
    fn look(&mut self, now: Instant<C>) -> Acted<Self::InForce>;

    /// How the setting stands. It is asked once a second, so that a change by somebody else is noticed although nothing
    /// is to be applied.
    fn stands(&mut self) -> Standing;

    /// What is in force, if another loop that shares the setting has changed it since this loop knew it last.
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
