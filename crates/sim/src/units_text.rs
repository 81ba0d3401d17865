//! Quantities in TOML: texts with a unit, checked strictly. A bare number where a unit belongs, a unit
//! of another kind and a key that does not exist are errors that name the line and the remedy.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserializer, Error as _, Visitor};
use serde::{Deserialize, de::DeserializeOwned};
use units::Microwatts;

/// A text that is no valid document: where, and what would be right.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{place}:{line}: {what}")]
pub struct TextError {
    /// The file's or machine's name.
    pub place: String,
    /// The line, from 1; 1 if the error concerns the whole.
    pub line: usize,
    /// What is wrong, and what would be right.
    pub what: String,
}

/// Reads a document of type `T`, whose unknown keys are errors if its types say so
/// (`deny_unknown_fields`). `place` is what errors call it.
pub fn from_toml<T: DeserializeOwned>(text: &str, place: &str) -> Result<T, TextError> {
    toml::from_str(text).map_err(|error| TextError {
        place: place.to_owned(),
        line: error.span().map_or(1, |span| line_of(text, span.start)),
        what: error.message().to_owned(),
    })
}

/// The line, from 1, of the octet at `offset`.
pub fn line_of(text: &str, offset: usize) -> usize {
    1 + text.as_bytes()[..offset.min(text.len())].iter().filter(|octet| **octet == b'\n').count()
}

/// A quantity that is written as a text with its unit: `"50us"`, `"2.2GHz"`, `"10Gbps"`.
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
                // The quantity's own error says what would be right; it has no text that it takes.
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

/// Power, written `"1.8W"`, `"350mW"`, `"500uW"`.
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

/// Voltage in microvolts, written `"0.75V"`, `"750mV"`.
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

/// Octets, written `"64B"`, `"512KiB"`, `"2MiB"`.
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

/// `12.5W` as a whole number of the base unit; `None` if it isn't one.
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

/// A number that no unit belongs to.
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
            ("span = \"1us\"\nspam = 1", 2, ["spam", "clock"]),
            ("clock = \"1GHz\"", 1, ["missing", "span"]),
            ("span = \"1us\"\nframes = -1", 2, ["-1", "from 0"]),
        ] {
            let error = from_toml::<Document>(text, "a.toml").unwrap_err();
            assert_eq!((error.line, error.place.as_str()), (line, "a.toml"), "{error}");
            for part in parts {
                assert!(error.what.contains(part), "{text:?}: {error}");
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
