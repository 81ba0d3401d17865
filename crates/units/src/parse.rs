//! Reads numbers with a unit, as a user types them.

use core::fmt;

/// A string could not be parsed as the expected quantity. The message shows the expected form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParseError {
    expected: &'static str,
    /// Whether the string has the expected form, but the value does not fit in 64 bits.
    too_large: bool,
}

impl ParseError {
    pub(crate) const fn expected(expected: &'static str) -> Self {
        Self { expected, too_large: false }
    }

    const fn too_large(expected: &'static str) -> Self {
        Self { expected, too_large: true }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.too_large {
            true => write!(f, "the value is too large; expected {}", self.expected),
            false => write!(f, "expected {}", self.expected),
        }
    }
}

impl core::error::Error for ParseError {}

/// Parses a string such as `12.5us` with one of the given units. Returns a whole number of the base unit.
///
/// The number has no sign and no exponent. Digits below the base unit must be zero: "1.5ns" is refused, because the
/// types of this crate cannot represent it.
pub(crate) fn scaled(text: &str, units: &[(&str, u64)], expected: &'static str) -> Result<u64, ParseError> {
    let error = ParseError::expected(expected);
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or(error)?;
    let (number, unit) = text.split_at(split);
    let unit = unit.trim_start();
    let factor = units.iter().find(|(name, _)| *name == unit).ok_or(error)?.1;
    let whole = number.split_once('.').map_or(number, |(whole, _)| whole);
    decimal(number, factor).ok_or(match is_too_large(whole, factor) {
        true => ParseError::too_large(expected),
        false => error,
    })
}

/// Whether the product of the digits in `whole` and `factor` does not fit in 64 bits.
fn is_too_large(whole: &str, factor: u64) -> bool {
    !whole.is_empty() && whole.parse::<u64>().ok().and_then(|whole| whole.checked_mul(factor)).is_none()
}

/// `number * factor` for a decimal `number`. `None` if the result is not a whole number.
pub(crate) fn decimal(number: &str, factor: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || (number.contains('.') && fraction.is_empty()) {
        return None;
    }
    let mut value = whole.parse::<u64>().ok()?.checked_mul(factor)?;
    let mut place = factor;
    for digit in fraction.bytes() {
        let digit = u64::from(char::from(digit).to_digit(10)?);
        if !place.is_multiple_of(10) && digit != 0 {
            return None;
        }
        place /= 10;
        value = value.checked_add(digit.checked_mul(place)?)?;
    }
    Some(value)
}
