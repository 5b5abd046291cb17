//! A whole number within bounds, which is read from every JSON spelling of such a number, for example `1.0` or `1e0`.

use std::fmt;
use std::str::FromStr;

use serde::de::{Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A whole number from `MIN` to `MAX`, both included.
///
/// ```
/// use imagate::client::ImageCount;
///
/// let count = ImageCount::new(4)?;
/// assert_eq!(count.get(), 4);
/// assert!(ImageCount::new(1_000).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bounded<const MIN: i64, const MAX: i64>(i64);

/// The error for a number or a text that is not a whole number within the bounds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a whole number from {min} to {max}, but got {found}")]
pub struct OutOfBounds {
    min: i64,
    max: i64,
    found: RefusedValue,
}

/// A value outside of the bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
enum RefusedValue {
    Integer(i64),
    /// Any other number, or a text.
    Text(String),
}

// === impl Bounded ===

impl<const MIN: i64, const MAX: i64> Bounded<MIN, MAX> {
    /// The minimum value.
    pub const MIN: Self = Self(MIN);
    /// The maximum value.
    pub const MAX: Self = Self(MAX);

    /// Creates a number after checking the bounds.
    ///
    /// # Errors
    ///
    /// Returns an error if the value is below `MIN` or above `MAX`.
    pub const fn new(value: i64) -> Result<Self, OutOfBounds> {
        if MIN <= value && value <= MAX {
            Ok(Self(value))
        } else {
            Err(OutOfBounds { min: MIN, max: MAX, found: RefusedValue::Integer(value) })
        }
    }

    /// Creates a number from a literal, whose bounds are checked while the program is compiled.
    ///
    /// ```
    /// use imagate::client::ImageCount;
    ///
    /// assert_eq!(ImageCount::of::<2>().get(), 2);
    /// ```
    ///
    /// ```compile_fail
    /// let count = imagate::client::ImageCount::of::<11>();
    /// ```
    #[must_use]
    pub const fn of<const VALUE: i64>() -> Self {
        const { assert!(MIN <= VALUE && VALUE <= MAX, "the number is out of bounds") };
        Self(VALUE)
    }

    /// Returns the number.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }

    fn out_of_bounds(found: impl fmt::Display) -> OutOfBounds {
        OutOfBounds { min: MIN, max: MAX, found: RefusedValue::Text(found.to_string()) }
    }
}

impl fmt::Display for RefusedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(value) => value.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl<const MIN: i64, const MAX: i64> TryFrom<i64> for Bounded<MIN, MAX> {
    type Error = OutOfBounds;

    fn try_from(value: i64) -> Result<Self, OutOfBounds> {
        Self::new(value)
    }
}

impl<const MIN: i64, const MAX: i64> From<Bounded<MIN, MAX>> for i64 {
    fn from(bounded: Bounded<MIN, MAX>) -> Self {
        bounded.get()
    }
}

impl<const MIN: i64, const MAX: i64> fmt::Display for Bounded<MIN, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<const MIN: i64, const MAX: i64> FromStr for Bounded<MIN, MAX> {
    type Err = OutOfBounds;

    /// Parses decimal digits with an optional minus sign, as in a form or on the command line.
    fn from_str(text: &str) -> Result<Self, OutOfBounds> {
        let number = if text.starts_with('+') { None } else { text.parse().ok() };
        number.map_or_else(|| Err(Self::out_of_bounds(format_args!("'{text}'"))), Self::new)
    }
}

impl<const MIN: i64, const MAX: i64> Serialize for Bounded<MIN, MAX> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(self.0)
    }
}

impl<'de, const MIN: i64, const MAX: i64> Deserialize<'de> for Bounded<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WholeNumber)
    }
}

// === impl WholeNumber ===

struct WholeNumber<const MIN: i64, const MAX: i64>;

impl<const MIN: i64, const MAX: i64> Visitor<'_> for WholeNumber<MIN, MAX> {
    type Value = Bounded<MIN, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from {MIN} to {MAX}")
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Self::Value, E> {
        Bounded::new(value).map_err(E::custom)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Self::Value, E> {
        let value = i64::try_from(value).map_err(|_| E::custom(Self::Value::out_of_bounds(value)))?;
        self.visit_i64(value)
    }

    /// Accepts a float without a fraction: JSON has one kind of number, so `1`, `1.0` and `1e0` are the same value.
    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Self::Value, E> {
        // Up to 2^53 every whole number has its own float. A larger float may differ from the number in the text.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        if value.fract() != 0.0 {
            return Err(E::invalid_type(Unexpected::Float(value), &self));
        }
        if value.abs() > EXACT {
            return Err(E::custom(Self::Value::out_of_bounds(value)));
        }
        #[expect(clippy::cast_possible_truncation, reason = "whole and within 2^53, checked above")]
        self.visit_i64(value as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Count = Bounded<1, 10>;

    #[track_caller]
    fn check(json: &str, expected: Result<i64, &str>) {
        let parsed = serde_json::from_str::<Count>(json).map(Count::get).map_err(|error| error.to_string());
        match (parsed, expected) {
            (Ok(value), Ok(expected)) => assert_eq!(value, expected, "{json}"),
            (Err(message), Err(part)) => assert!(message.contains(part), "{json}: {message}"),
            (parsed, expected) => panic!("{json}: expected {expected:?}, got {parsed:?}"),
        }
    }

    #[test]
    fn every_spelling_of_a_whole_number_is_read() {
        check("1", Ok(1));
        check("1.0", Ok(1));
        check("1e0", Ok(1));
        check("1E1", Ok(10));
        check("100e-1", Ok(10));
    }

    #[test]
    fn other_values_than_whole_numbers_are_refused() {
        check("1.5", Err("floating point `1.5`, expected a whole number from 1 to 10"));
        check("\"1\"", Err("string \"1\", expected a whole number"));
        check("true", Err("boolean `true`, expected a whole number"));
        check("null", Err("null, expected a whole number"));
        check("[1]", Err("sequence, expected a whole number"));
    }

    #[test]
    fn a_number_out_of_bounds_is_refused_with_the_bounds() {
        check("0", Err("expected a whole number from 1 to 10, but got 0"));
        check("11", Err("from 1 to 10, but got 11"));
        check("-1", Err("but got -1"));
        check("1e300", Err("from 1 to 10"));
        check("18446744073709551615", Err("but got 18446744073709551615"));
    }

    #[test]
    fn a_number_is_always_written_as_an_integer() {
        let count: Count = serde_json::from_str("1e1").unwrap();
        assert_eq!(serde_json::to_string(&count).unwrap(), "10");
    }

    #[test]
    fn a_text_must_be_decimal_digits() {
        assert_eq!("10".parse::<Count>(), Count::new(10));
        for text in ["", "+1", " 1", "1.0", "eleven", "11", "99999999999999999999"] {
            assert!(text.parse::<Count>().is_err(), "{text}");
        }
    }

    #[test]
    fn bounds_may_be_negative_and_as_wide_as_the_type() {
        assert_eq!(serde_json::from_str::<Bounded<-5, -1>>("-5").unwrap().get(), -5);
        let widest = serde_json::from_str::<Bounded<{ i64::MIN }, { i64::MAX }>>("-9223372036854775808").unwrap();
        assert_eq!(widest.get(), i64::MIN);
    }
}
