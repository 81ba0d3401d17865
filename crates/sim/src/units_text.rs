//! Quantities in TOML as strings with a unit, checked strictly. A missing unit, a unit of another kind and an unknown
//! key are errors. The error names the line and the fix.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserializer, Error as _, Visitor};
use serde::{Deserialize, de::DeserializeOwned};
use toml::de::{DeTable, DeValue};
use units::Microwatts;

/// An error in a document: where it is, what is wrong, and what would be right.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{place}:{line}: {what}; {fix}")]
pub struct TextError {
    /// The name of the file or machine.
    pub place: String,
    /// The line, counted from 1; also 1 if the error concerns the whole document.
    pub line: usize,
    /// What is wrong, with the full name of the key.
    pub what: String,
    /// What would be right instead.
    pub fix: String,
}

/// Reads a document of type `T`. Unknown keys are errors if the type says so (`deny_unknown_fields`). Error messages
/// call the document `place`.
pub fn from_toml<T: DeserializeOwned>(text: &str, place: &str) -> Result<T, TextError> {
    toml::from_str(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        let key = error.span().and_then(|_| key_at(text, offset));
        let (what, fix) = explained(error.message(), key.as_deref());
        TextError { place: place.to_owned(), line: line_of(text, offset), what, fix }
    })
}

/// Splits serde's message into two parts: what is wrong, with the full name of the key, and what would be right.
/// Messages of this crate's own types keep their wording.
fn explained(message: &str, key: Option<&str>) -> (String, String) {
    let quoted = |text: &str| text.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let name = key.map_or_else(|| "the file".to_owned(), |key| format!("`{key}`"));
    let is = if key.is_some() { "is" } else { "is no TOML:" };
    if let Some(rest) = message.strip_prefix("unknown field ") {
        let mut names = quoted(rest).into_iter();
        let typed = names.next().unwrap_or_default();
        let known: Vec<String> = names.collect();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        return (format!("unknown key {name}"), crate::strict::suggestion(&typed, &known));
    }
    if let Some(missing) = message.strip_prefix("missing field ").map(quoted).and_then(|names| names.into_iter().next())
    {
        let full = key.map_or_else(|| missing.clone(), |key| format!("{key}.{missing}"));
        let fix = match missing.as_str() {
            "source" => {
                "add source = \"...\": the document and section that the value is from, or how it was made".into()
            }
            _ => format!("add {missing}, as the built-in machines have it: apus sim machines NAME"),
        };
        return (format!("`{full}` is missing"), fix);
    }
    if let Some((what, expected)) = message.split_once(", expected ") {
        let what = what.strip_prefix("invalid type: ").or(what.strip_prefix("invalid value: ")).unwrap_or(what);
        return (format!("{name} {is} {what}"), format!("expected {expected}"));
    }
    match message.split_once(": expected ") {
        Some((value, expected)) => (format!("{name} is {value}"), format!("expected {expected}")),
        None => (format!("{name}: {}", message.trim_end()), "write it as TOML, as the built-in machines are".into()),
    }
}

/// The full name of the key at byte `offset`, or of the table whose header is at `offset`.
fn key_at(text: &str, offset: usize) -> Option<String> {
    fn within(table: &DeTable<'_>, offset: usize, path: &str) -> Option<String> {
        table.iter().find_map(|(key, value)| {
            let name = key.get_ref();
            let path = if path.is_empty() { name.to_string() } else { format!("{path}.{name}") };
            let deeper = match value.get_ref() {
                DeValue::Table(table) => within(table, offset, &path),
                DeValue::Array(items) => items.iter().enumerate().find_map(|(number, item)| {
                    let DeValue::Table(table) = item.get_ref() else { return None };
                    let name = match table.get("name").map(|name| name.get_ref()) {
                        Some(DeValue::String(name)) => name.to_string(),
                        _ => number.to_string(),
                    };
                    let path = format!("{path}.{name}");
                    within(table, offset, &path).or_else(|| item.span().contains(&offset).then_some(path))
                }),
                _ => None,
            };
            let here = key.span().contains(&offset) || value.span().contains(&offset);
            deeper.or_else(|| here.then_some(path))
        })
    }
    within(DeTable::parse(text).ok()?.get_ref(), offset, "")
}

/// The line, counted from 1, that contains byte `offset`.
pub fn line_of(text: &str, offset: usize) -> usize {
    1 + text.as_bytes()[..offset.min(text.len())].iter().filter(|octet| **octet == b'\n').count()
}

/// A quantity written as a string with its unit: `"50us"`, `"2.2GHz"`, `"10Gbps"`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Text<T>(pub T);

impl<'de, T> Deserialize<'de> for Text<T>
where
    T: FromStr,
    T::Err: fmt::Display,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfText<T>(std::marker::PhantomData<T>);
        impl<T> Visitor<'_> for OfText<T>
        where
            T: FromStr,
            T::Err: fmt::Display,
        {
            type Value = Text<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                // No quantity accepts an empty text, and the error says what it does accept.
                match T::from_str("") {
                    Err(error) => write!(f, "a text in quotes: {error}"),
                    Ok(_) => f.write_str("a text in quotes"),
                }
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Text<T>, E> {
                text.parse().map(Text).map_err(|error: T::Err| E::custom(format!("{text:?}: {error}")))
            }
        }
        deserializer.deserialize_any(OfText(std::marker::PhantomData))
    }
}

/// A power, written `"1.8W"`, `"350mW"`, `"500uW"`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Power(pub Microwatts);

impl FromStr for Power {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        decimal(text, &[("uW", 1), ("mW", 1_000), ("W", 1_000_000)])
            .map(|n| Self(Microwatts::new(n)))
            .ok_or_else(|| "expected a power such as 1.8W or 350mW (uW, mW, W)".to_owned())
    }
}

/// A voltage in microvolts, written `"0.75V"`, `"750mV"`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Microvolts(pub u64);

impl FromStr for Microvolts {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        decimal(text, &[("uV", 1), ("mV", 1_000), ("V", 1_000_000)])
            .map(Self)
            .ok_or_else(|| "expected a voltage such as 0.75V or 750mV (uV, mV, V)".to_owned())
    }
}

/// A number of bytes, written `"64B"`, `"512KiB"`, `"2MiB"`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Octets(pub u64);

impl FromStr for Octets {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        decimal(text, &[("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20)])
            .map(Self)
            .ok_or_else(|| "expected a size such as 1500B or 512KiB (B, KiB, MiB)".to_owned())
    }
}

/// Converts a number with a unit, such as `12.5W`, to a whole number of the base unit. `None` if the result is not
/// whole.
fn decimal(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(split);
    let factor = units.iter().find(|(name, _)| *name == unit.trim_start())?.1;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || (number.contains('.') && fraction.is_empty()) || fraction.len() > 9 {
        return None;
    }
    let scale = 10u64.pow(fraction.len() as u32);
    let digits = if fraction.is_empty() { 0 } else { fraction.parse::<u64>().ok()? };
    let below = u128::from(digits) * u128::from(factor);
    if !below.is_multiple_of(u128::from(scale)) {
        return None;
    }
    let below = u64::try_from(below / u128::from(scale)).ok()?;
    whole.parse::<u64>().ok()?.checked_mul(factor)?.checked_add(below)
}

/// Reads a number without a unit.
pub fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let number = i64::deserialize(deserializer)?;
    u32::try_from(number).map_err(|_| D::Error::custom(format!("{number}: expected a number from 0 to {}", u32::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::{Hertz, Nanos};

    #[derive(Deserialize, Debug)]
    #[serde(deny_unknown_fields)]
    struct Document {
        span: Text<Nanos>,
        clock: Option<Text<Hertz>>,
        #[serde(default, deserialize_with = "count")]
        frames: u32,
    }

    #[test]
    fn reads_what_has_a_unit() {
        let read: Document = from_toml("span = \"1.5us\"\nclock = \"2.2GHz\"\nframes = 64", "x").unwrap();
        assert_eq!((read.span.0, read.frames), (Nanos::from_nanos(1_500), 64));
        assert_eq!(read.clock.unwrap().0, Hertz::new(2_200_000_000));
    }

    #[test]
    fn an_error_names_place_line_and_remedy() {
        for (text, line, parts) in [
            ("\nspan = 5", 2, ["duration", "50us"]),
            ("span = \"5\"", 1, ["\"5\"", "50us"]),
            ("span = \"1us\"\n\nclock = \"2us\"", 3, ["frequency", "2us"]),
            ("span = \"1us\"\nspam = 1", 2, ["unknown key `spam`", "did you mean `span`?"]),
            ("clock = \"1GHz\"", 1, ["missing", "span"]),
            ("span = \"1us\"\nframes = -1", 2, ["-1", "from 0"]),
        ] {
            let error = from_toml::<Document>(text, "a.toml").unwrap_err();
            assert_eq!((error.line, error.place.as_str()), (line, "a.toml"), "{error}");
            for part in parts {
                assert!(error.to_string().contains(part), "{text:?}: {error}");
            }
        }
    }

    #[test]
    fn powers_voltages_and_sizes() {
        assert_eq!("1.8W".parse::<Power>().unwrap().0, Microwatts::new(1_800_000));
        assert_eq!("0.6555V".parse::<Microvolts>().unwrap().0, 655_500);
        assert_eq!("384KiB".parse::<Octets>().unwrap().0, 384 << 10);
        for text in ["1.8", "W", "1,8W", "-1W", "1.W", "0.0000001W", "99999999999999999999W", ""] {
            assert!(text.parse::<Power>().is_err(), "{text:?} was taken");
        }
    }
}
