//! The value of a setting: one string, or several fields that belong together.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The value of a setting. No special value stands for a setting that does not exist: functions return `None` instead.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(untagged)]
pub enum Value {
    /// One string as the kernel shows and accepts it, without the newline.
    Text(String),
    /// Fields that are read together and depend on each other, such as the minimum and maximum frequency. A wanted
    /// value may contain only some of the fields; the others do not change.
    Fields(BTreeMap<String, String>),
}

impl Value {
    /// Makes a value that is one string.
    pub fn text(text: impl fmt::Display) -> Self {
        Self::Text(text.to_string())
    }

    /// Makes a value of several fields.
    pub fn fields<K: fmt::Display, V: fmt::Display>(fields: impl IntoIterator<Item = (K, V)>) -> Self {
        Self::Fields(fields.into_iter().map(|(k, v)| (k.to_string(), v.to_string())).collect())
    }

    /// The value as one string. `None` if it consists of fields.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Fields(_) => None,
        }
    }

    /// The fields of the value. `None` if it is one string.
    pub fn as_fields(&self) -> Option<&BTreeMap<String, String>> {
        match self {
            Self::Fields(fields) => Some(fields),
            Self::Text(_) => None,
        }
    }

    /// This value, reduced to the fields that `other` has as well.
    #[must_use]
    pub fn fields_of(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Fields(fields), Self::Fields(other)) => {
                let known = fields.iter().filter(|(field, _)| other.contains_key(*field));
                Self::Fields(known.map(|(field, text)| (field.clone(), text.clone())).collect())
            }
            _ => self.clone(),
        }
    }

    /// This value with the fields of `other` in place of its own.
    #[must_use]
    pub fn overlaid(self, other: &Self) -> Self {
        match (self, other) {
            (Self::Fields(mut fields), Self::Fields(other)) => {
                fields.extend(other.clone());
                Self::Fields(fields)
            }
            (_, other) => other.clone(),
        }
    }

    /// The string in the field `name`. `None` if there is no such field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.as_fields()?.get(name).map(String::as_str)
    }
}

/// Formats the value as `performance` or `max=3500000 min=800000`.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) if text.is_empty() => f.write_str("(empty)"),
            Self::Text(text) => f.write_str(text),
            Self::Fields(fields) => {
                for (n, (key, value)) in fields.iter().enumerate() {
                    write!(f, "{}{key}={value}", if n > 0 { " " } else { "" })?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_json() {
        for value in [Value::text("a b"), Value::text(""), Value::fields([("min", 1), ("max", 2)])] {
            let text = serde_json::to_string(&value).unwrap();
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        }
    }

    #[test]
    fn shows_fields_in_order() {
        assert_eq!(Value::fields([("min", "1"), ("max", "2")]).to_string(), "max=2 min=1");
    }
}
