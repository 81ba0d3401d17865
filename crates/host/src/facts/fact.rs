//! One fact about a host, or the reason why it is not known.

use std::fmt;
use std::sync::Arc;

/// The file, command or register from which a fact was read, named as a person would look it up: `/proc/cmdline`,
/// `ethtool -c ens1f0`, `MSR 0x620`. Paths are those on the host, even if the fact was read from a folder or archive.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Source(Arc<str>);

impl Source {
    /// Makes a source with this name.
    pub fn new(name: impl AsRef<str>) -> Self {
        Self(Arc::from(name.as_ref()))
    }

    /// Makes a source that is a file of the host. The path may lack the leading slash.
    pub(super) fn of_path(path: &str) -> Self {
        let mut name = String::with_capacity(path.len() + 1);
        name.push('/');
        name.push_str(path.trim_start_matches('/'));
        Self(name.into())
    }

    /// The name of the source.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for Source {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

/// Why a fact has no value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Why {
    /// The host does not have what the fact describes. Unlike the other reasons, this one is certain: the reader looked
    /// for it and found nothing.
    Absent,
    /// The user may not read the source.
    NotPermitted,
    /// The recording does not contain the source. Whether the host has it is unknown.
    NotRecorded,
    /// Reading the source disturbs the host (reading a model-specific register interrupts a CPU), and the user did not
    /// request it.
    NotAsked,
    /// The source was read, but its contents cannot be understood. The string says what was found.
    Malformed(Box<str>),
    /// The host does not support the query. The string is the host's answer.
    Unsupported(Box<str>),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("the host does not have it"),
            Self::NotPermitted => f.write_str("no permission to read it"),
            Self::NotRecorded => f.write_str("not recorded"),
            Self::NotAsked => f.write_str("not read, because reading it would interrupt CPUs"),
            Self::Malformed(reason) => write!(f, "not understood: {reason}"),
            Self::Unsupported(reason) => write!(f, "not supported: {reason}"),
        }
    }
}

/// One fact about a host, or the reason why it is unknown. Both come with the source that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fact<T> {
    /// The fact is known.
    Known {
        /// The value of the fact.
        value: T,
        /// Where the value was read.
        source: Source,
    },
    /// There is no value: it is unknown, or the host certainly does not have what the fact describes ([`Why::Absent`]).
    Missing {
        /// Why there is no value.
        why: Why,
        /// Where the reader looked for the value.
        source: Source,
    },
}

impl<T> Fact<T> {
    /// Makes a fact with a known value.
    pub fn known(value: T, source: impl Into<Source>) -> Self {
        Self::Known { value, source: source.into() }
    }

    /// Makes a fact without a value.
    pub fn missing(why: Why, source: impl Into<Source>) -> Self {
        Self::Missing { why, source: source.into() }
    }

    /// Makes a fact for something that the host does not have.
    pub fn absent(source: impl Into<Source>) -> Self {
        Self::missing(Why::Absent, source)
    }

    /// Makes a fact for something that the recording does not contain.
    pub fn not_recorded(source: impl Into<Source>) -> Self {
        Self::missing(Why::NotRecorded, source)
    }

    /// Makes a fact for a source whose contents cannot be understood.
    pub fn malformed(reason: impl Into<Box<str>>, source: impl Into<Source>) -> Self {
        Self::missing(Why::Malformed(reason.into()), source)
    }

    /// The value. `None` if it is unknown or absent.
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Known { value, .. } => Some(value),
            Self::Missing { .. } => None,
        }
    }

    /// Converts the fact into its value. `None` if it is unknown or absent.
    pub fn into_value(self) -> Option<T> {
        match self {
            Self::Known { value, .. } => Some(value),
            Self::Missing { .. } => None,
        }
    }

    /// A copy of the value. `None` if it is unknown or absent.
    pub fn get(&self) -> Option<T>
    where
        T: Copy,
    {
        self.value().copied()
    }

    /// The source of the value, or the place where the reader looked for it.
    pub fn source(&self) -> &Source {
        match self {
            Self::Known { source, .. } | Self::Missing { source, .. } => source,
        }
    }

    /// The reason why there is no value. `None` if there is a value.
    pub fn why(&self) -> Option<&Why> {
        match self {
            Self::Known { .. } => None,
            Self::Missing { why, .. } => Some(why),
        }
    }

    /// Whether there is a value.
    pub fn is_known(&self) -> bool {
        matches!(self, Self::Known { .. })
    }

    /// Whether the host certainly does not have what the fact describes.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Missing { why: Why::Absent, .. })
    }

    /// Whether the fact is unknown: neither known nor certainly absent.
    pub fn is_unknown(&self) -> bool {
        !self.is_known() && !self.is_absent()
    }

    /// Whether the host has what the fact describes. `None` if that is unknown.
    pub fn is_present(&self) -> Option<bool> {
        match self {
            Self::Known { .. } => Some(true),
            Self::Missing { why: Why::Absent, .. } => Some(false),
            Self::Missing { .. } => None,
        }
    }

    /// Whether the value satisfies `test`. `None` if there is no value, even if the reason is [`Why::Absent`].
    pub fn is(&self, test: impl FnOnce(&T) -> bool) -> Option<bool> {
        self.value().map(test)
    }

    /// `Some(Some(value))` if the value is known, `Some(None)` if the host certainly does not have what the fact
    /// describes, `None` if the fact is unknown.
    pub fn settled(&self) -> Option<Option<&T>> {
        match self {
            Self::Known { value, .. } => Some(Some(value)),
            Self::Missing { why: Why::Absent, .. } => Some(None),
            Self::Missing { .. } => None,
        }
    }

    /// Borrows the value. The source stays the same.
    pub fn as_ref(&self) -> Fact<&T> {
        match self {
            Self::Known { value, source } => Fact::Known { value, source: source.clone() },
            Self::Missing { why, source } => Fact::Missing { why: why.clone(), source: source.clone() },
        }
    }

    /// Applies `f` to the value. The source stays the same.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Fact<U> {
        match self {
            Self::Known { value, source } => Fact::Known { value: f(value), source },
            Self::Missing { why, source } => Fact::Missing { why, source },
        }
    }

    /// Parses the value. The source stays the same; a value that cannot be parsed becomes [`Why::Malformed`].
    pub fn parse<U, E: fmt::Display>(self, f: impl FnOnce(T) -> Result<U, E>) -> Fact<U> {
        match self {
            Self::Known { value, source } => match f(value) {
                Ok(value) => Fact::Known { value, source },
                Err(error) => Fact::malformed(error.to_string(), source),
            },
            Self::Missing { why, source } => Fact::Missing { why, source },
        }
    }

    /// Applies `f`, which returns another fact, to the value. A fact without a value stays as it is.
    pub fn and_then<U>(self, f: impl FnOnce(T) -> Fact<U>) -> Fact<U> {
        match self {
            Self::Known { value, .. } => f(value),
            Self::Missing { why, source } => Fact::Missing { why, source },
        }
    }

    /// This fact if it is known, or else the fact that `other` returns. If neither is known, returns the one with the
    /// more informative reason (not permitted before absent, absent before not recorded).
    pub fn or_else(self, other: impl FnOnce() -> Self) -> Self {
        let Self::Missing { why, .. } = &self else { return self };
        let mine = weight(why);
        let other = other();
        match &other {
            Self::Known { .. } => other,
            Self::Missing { why, .. } if weight(why) > mine => other,
            Self::Missing { .. } => self,
        }
    }

    /// Replaces the name of the source.
    pub fn named(self, source: impl Into<Source>) -> Self {
        let source = source.into();
        match self {
            Self::Known { value, .. } => Self::Known { value, source },
            Self::Missing { why, .. } => Self::Missing { why, source },
        }
    }

    /// Combines two facts into one with both values, or with the reason of the first one that is missing. If both are
    /// known, the source is that of the first fact.
    pub fn zip<U>(self, other: Fact<U>) -> Fact<(T, U)> {
        match (self, other) {
            (Self::Known { value, source }, Fact::Known { value: second, .. }) => {
                Fact::Known { value: (value, second), source }
            }
            (Self::Missing { why, source }, _) | (_, Fact::Missing { why, source }) => Fact::Missing { why, source },
        }
    }
}

/// How informative a reason is; a higher number means more informative.
fn weight(why: &Why) -> u8 {
    match why {
        Why::NotRecorded => 0,
        Why::Absent => 1,
        Why::NotAsked => 2,
        Why::Unsupported(_) => 3,
        Why::Malformed(_) => 4,
        Why::NotPermitted => 5,
    }
}

impl<T> Default for Fact<T> {
    /// A fact that was not recorded. Its source is `nowhere`.
    fn default() -> Self {
        Self::not_recorded("nowhere")
    }
}

impl<T: fmt::Display> fmt::Display for Fact<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known { value, .. } => value.fmt(f),
            Self::Missing { why, .. } => why.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_is_knowledge_and_the_rest_is_not() {
        let absent = Fact::<u32>::absent("/sys/x");
        let unknown = Fact::<u32>::not_recorded("/sys/x");
        assert_eq!(absent.is_present(), Some(false));
        assert_eq!(unknown.is_present(), None);
        assert_eq!(absent.settled(), Some(None));
        assert_eq!(unknown.settled(), None);
        assert_eq!(Fact::known(3, "/sys/x").settled(), Some(Some(&3)));
        assert!(unknown.is_unknown() && !absent.is_unknown());
    }

    #[test]
    fn what_cannot_be_read_keeps_its_source() {
        let fact = Fact::known("seven", "/proc/sys/x").parse(str::parse::<u32>);
        assert_eq!(fact.source().as_str(), "/proc/sys/x");
        assert!(matches!(fact.why(), Some(Why::Malformed(reason)) if reason.contains("invalid digit")));
    }

    #[test]
    fn of_two_reasons_the_one_that_says_more_wins() {
        let denied = || Fact::<u8>::missing(Why::NotPermitted, "a");
        let unrecorded = || Fact::<u8>::not_recorded("b");
        assert_eq!(unrecorded().or_else(denied), denied());
        assert_eq!(denied().or_else(unrecorded), denied());
        assert_eq!(denied().or_else(|| Fact::known(1, "c")).get(), Some(1));
        assert_eq!(Fact::known(1, "c").or_else(denied).get(), Some(1));
    }

    #[test]
    fn zip_gives_the_first_reason() {
        assert_eq!(Fact::known(1, "a").zip(Fact::known(2, "b")).get(), Some((1, 2)));
        let fact = Fact::known(1, "a").zip(Fact::<u8>::absent("b"));
        assert_eq!(fact.why(), Some(&Why::Absent));
        assert_eq!(fact.source().as_str(), "b");
    }
}
