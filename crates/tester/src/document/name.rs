//! The name of a value from a fixed set, as documents write it.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use units::{Named, UnknownName};

/// The name of a value of `T`. In JSON it is a string; in the schema it is an `enum` of all names.
pub struct Name<T> {
    name: &'static str,
    of: PhantomData<fn() -> T>,
}

impl<T> Name<T> {
    /// The name.
    pub const fn as_str(self) -> &'static str {
        self.name
    }
}

impl<T: Named> Name<T> {
    /// The name of this value.
    pub fn of(value: &T) -> Self {
        Self { name: value.name(), of: PhantomData }
    }

    /// Parses a name; returns an error if it is not one of the names of `T`.
    pub fn read(text: &str) -> Result<Self, UnknownName> {
        let name = T::NAMES.iter().find(|name| **name == text).ok_or(UnknownName::of::<T>())?;
        Ok(Self { name, of: PhantomData })
    }
}

impl<T: Named> From<&T> for Name<T> {
    fn from(value: &T) -> Self {
        Self::of(value)
    }
}

impl<T: Named> From<T> for Name<T> {
    fn from(value: T) -> Self {
        Self::of(&value)
    }
}

// Implemented by hand, because derive would demand the same traits of `T`.
impl<T> Clone for Name<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Name<T> {}
impl<T> PartialEq for Name<T> {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}
impl<T> Eq for Name<T> {}
impl<T> PartialOrd for Name<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Name<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.name.cmp(other.name)
    }
}
impl<T> std::ops::Deref for Name<T> {
    type Target = str;
    fn deref(&self) -> &str {
        self.name
    }
}
impl<T> PartialEq<&str> for Name<T> {
    fn eq(&self, other: &&str) -> bool {
        self.name == *other
    }
}
/// Lets a `&str` look up an entry in a map whose keys are names.
impl<T> std::borrow::Borrow<str> for Name<T> {
    fn borrow(&self) -> &str {
        self.name
    }
}
impl<T> fmt::Debug for Name<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.name, f)
    }
}
impl<T> fmt::Display for Name<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}

impl<T> Serialize for Name<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}

impl<'de, T: Named> Deserialize<'de> for Name<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        Self::read(&text).map_err(|error| serde::de::Error::custom(format!("{text:?}: {error}")))
    }
}

/// The name of each value of `T` with its meaning, which is the doc comment of the value without links.
pub fn meanings<T: Named>() -> impl Iterator<Item = (&'static str, String)> {
    T::NAMES.iter().zip(T::MEANINGS).map(|(name, meaning)| (*name, without_links(meaning.trim())))
}

/// Replaces ``[`text`](place)`` and ``[`text`]`` by `` `text` ``; of a path such as `a::b`, keeps only `b`.
fn without_links(text: &str) -> String {
    let mut parts = text.split("[`");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once("`]").unwrap_or((part, ""));
        let rest = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')).map_or(rest, |(_, rest)| rest);
        plain.push_str(&format!("`{}`{rest}", name.rsplit("::").next().unwrap_or(name)));
    }
    plain
}

/// A map whose keys are names.
pub fn by_name<T: Named, V>(pairs: impl IntoIterator<Item = (T, V)>) -> BTreeMap<Name<T>, V> {
    pairs.into_iter().map(|(value, of)| (Name::of(&value), of)).collect()
}

impl<T: Named> JsonSchema for Name<T> {
    fn schema_name() -> Cow<'static, str> {
        T::PATH.rsplit("::").next().unwrap_or(T::PATH).into()
    }

    fn schema_id() -> Cow<'static, str> {
        T::PATH.into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut schema = json_schema!({ "type": "string", "enum": T::NAMES });
        let said = meanings::<T>().filter(|(_, meaning)| !meaning.is_empty());
        let lines: Vec<String> = said.map(|(name, meaning)| format!("`{name}`: {meaning}")).collect();
        if !lines.is_empty() {
            schema.insert("description".into(), lines.join("\n").into());
        }
        schema
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::wait::WaitKind;

    #[test]
    fn meanings_have_no_links() {
        assert_eq!(
            without_links("If [`super::Set`] can; [`Caps`](crate::Caps) says (as it may)."),
            "If `Set` can; `Caps` says (as it may)."
        );
        assert_eq!(meanings::<WaitKind>().next(), Some(("poll", "Polls again at once.".to_owned())));
    }

    #[test]
    fn a_name_is_a_string_of_its_set() {
        let name = Name::of(&WaitKind::Sleep);
        assert_eq!(serde_json::to_string(&name).unwrap(), "\"sleep\"");
        assert_eq!(serde_json::from_str::<Name<WaitKind>>("\"sleep\"").unwrap(), name);
        let error = serde_json::from_str::<Name<WaitKind>>("\"doze\"").unwrap_err();
        assert!(error.to_string().starts_with("\"doze\": expected poll, pause, sleep or block"), "{error}");
    }
}
