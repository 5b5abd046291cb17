//! Amounts of money, exact to a billionth of a US dollar. Pure.
//!
//! Floats are only read and written at the border: in settings, in JSON and on pages. Sums are made of integers, so the
//! costs of millions of records add up exactly, and a budget is never passed by a rounding error.

use std::fmt;
use std::iter::Sum;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::tables::PRICE_FACTOR_MAX;

/// The billionths in a dollar.
const NANOS_PER_USD: u64 = 1_000_000_000;
/// The millionths in the factor 1.
const FACTOR_UNIT: u128 = 1_000_000;
/// The tokens that a price of the table is for.
const TOKENS_PER_PRICE: u128 = 1_000_000;

/// An amount in US dollars that is not negative, in billionths. The greatest amount is that of a signed 64-bit integer,
/// which databases can store: about 9 billion dollars. Sums stop at it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Usd(u64);

/// A factor of prices, such as 0.5 for half the price, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Factor(u64);

// === impl Usd ===

impl Usd {
    /// No money.
    pub(crate) const ZERO: Self = Self(0);
    /// The greatest amount.
    pub(crate) const MAX: Self = Self(i64::MAX as u64);

    /// Creates an amount from billionths of a dollar.
    pub(crate) const fn from_nanos(nanos: u64) -> Self {
        if nanos > Self::MAX.0 { Self::MAX } else { Self(nanos) }
    }

    /// Creates an amount from whole dollars and billionths.
    pub(crate) const fn from_parts(dollars: u64, nanos: u64) -> Self {
        Self::from_nanos(dollars.saturating_mul(NANOS_PER_USD).saturating_add(nanos))
    }

    /// Creates an amount from dollars, rounded to a billionth. Returns `None` for a number that is negative, not finite
    /// or too large.
    pub(crate) fn from_dollars(dollars: f64) -> Option<Self> {
        /// The greatest number of dollars whose billionths a 64-bit float can hold to the last digit.
        const EXACT_MAX: f64 = 9_000_000.0;
        if !(0.0..=EXACT_MAX).contains(&dollars) {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be in range")]
        Some(Self((dollars * 1e9).round() as u64))
    }

    /// Returns the billionths of a dollar.
    pub(crate) const fn nanos(self) -> u64 {
        self.0
    }

    /// Returns the amount in dollars.
    #[expect(clippy::cast_precision_loss, reason = "amounts below nine million dollars are exact")]
    pub(crate) fn dollars(self) -> f64 {
        self.0 as f64 / NANOS_PER_USD as f64
    }

    /// Adds two amounts.
    pub(crate) const fn plus(self, other: Self) -> Self {
        Self::from_nanos(self.0.saturating_add(other.0))
    }

    /// Subtracts an amount. The result is at least zero.
    pub(crate) const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Multiplies an amount.
    pub(crate) const fn times(self, factor: u64) -> Self {
        Self::from_nanos(self.0.saturating_mul(factor))
    }

    /// Returns the share that `part` of `all` has, rounded up to a billionth. At most the whole amount.
    pub(crate) fn share(self, part: u64, all: u64) -> Self {
        let product = u128::from(self.0) * u128::from(part.min(all));
        u64::try_from(product.div_ceil(u128::from(all.max(1)))).map_or(self, Self)
    }

    /// Multiplies an amount by a factor. The result is rounded once, and a half of a billionth is rounded up.
    pub(crate) fn scaled(self, factor: Factor) -> Self {
        let product = u128::from(self.0) * u128::from(factor.0);
        let nanos = (product + FACTOR_UNIT / 2) / FACTOR_UNIT;
        u64::try_from(nanos).map_or(Self::MAX, Self::from_nanos)
    }

    /// Returns the cost of tokens whose prices are given for a million of each kind. It is rounded once, and a half of a
    /// billionth is rounded up.
    pub(crate) fn cost_of_tokens(kinds: impl IntoIterator<Item = (u64, Self)>) -> Self {
        let parts = kinds.into_iter().map(|(tokens, price)| u128::from(tokens) * u128::from(price.0));
        let sum = parts.fold(0, u128::saturating_add);
        let nanos = sum.saturating_add(TOKENS_PER_PRICE / 2) / TOKENS_PER_PRICE;
        u64::try_from(nanos).map_or(Self::MAX, Self::from_nanos)
    }
}

// === impl Factor ===

impl Factor {
    /// The factor that changes nothing.
    pub(crate) const ONE: Self = Self(1_000_000);
    /// The greatest factor of the operators' document.
    pub(crate) const MAX: Self = Self(PRICE_FACTOR_MAX as u64 * 1_000_000);

    /// Creates a factor from tenths.
    pub(crate) const fn from_tenths(tenths: u64) -> Self {
        Self(tenths * 100_000)
    }

    /// Creates a factor from a number, rounded to a millionth. Returns `None` for a number that is negative, not finite or
    /// above [`Factor::MAX`].
    pub(crate) fn from_number(number: f64) -> Option<Self> {
        if !(0.0..=Self::MAX.number()).contains(&number) {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be in range")]
        Some(Self((number * 1e6).round() as u64))
    }

    /// Returns the factor as a number.
    #[expect(clippy::cast_precision_loss, reason = "the greatest factor is exact")]
    pub(crate) fn number(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl Serialize for Factor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.number())
    }
}

impl<'de> Deserialize<'de> for Factor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = f64::deserialize(deserializer)?;
        Self::from_number(number).ok_or_else(|| serde::de::Error::custom("the factor is out of range"))
    }
}

impl Sum for Usd {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Self::plus)
    }
}

/// Writes the dollars with at least two and at most nine decimals, such as `0.21072`.
impl fmt::Display for Usd {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = format!("{:09}", self.0 % NANOS_PER_USD);
        let used = decimals.trim_end_matches('0').len().max(2);
        write!(formatter, "{}.{}", self.0 / NANOS_PER_USD, &decimals[..used])
    }
}

impl Serialize for Usd {
    /// Writes the dollars as a number.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.dollars())
    }
}

impl<'de> Deserialize<'de> for Usd {
    /// Reads dollars.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let dollars = f64::deserialize(deserializer)?;
        Self::from_dollars(dollars).ok_or_else(|| serde::de::Error::custom("the amount is out of range"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usd(dollars: f64) -> Usd {
        Usd::from_dollars(dollars).unwrap()
    }

    #[test]
    fn a_share_is_rounded_up() {
        let shares = [(1, 3), (2, 3), (3, 3), (5, 3), (0, 3), (1, 0)].map(|(part, all)| Usd(10).share(part, all).0);
        assert_eq!(shares, [4, 7, 10, 10, 0, 0]);
        assert_eq!(Usd::MAX.share(u64::MAX, u64::MAX), Usd::MAX);
    }

    #[test]
    fn a_decimal_number_is_exact() {
        for (dollars, nanos) in [(0.0, 0), (5.0, 5_000_000_000), (1.25, 1_250_000_000), (0.075, 75_000_000), (1e-9, 1)]
        {
            assert_eq!((usd(dollars).nanos(), usd(dollars).dollars()), (nanos, dollars));
        }
        assert_eq!([-0.01, f64::NAN, f64::INFINITY, 1e12].map(Usd::from_dollars), [None; 4]);
    }

    #[test]
    fn a_scaled_amount_is_rounded_once() {
        let half = Factor::from_number(0.5).unwrap();
        assert_eq!(
            [Usd(3).scaled(half), Usd(4).scaled(half), Usd(3).scaled(Factor::from_tenths(25))].map(Usd::nanos),
            [2, 2, 8]
        );
        assert_eq!(Usd::MAX.scaled(Factor::MAX), Usd::MAX);
        assert_eq!([-0.1, 1000.1, f64::NAN].map(Factor::from_number), [None; 3]);
    }

    #[test]
    fn amounts_are_written_with_all_their_decimals() {
        let texts =
            [(0.0, "0.00"), (1.0, "1.00"), (0.5, "0.50"), (0.210_72, "0.21072"), (12.000_000_001, "12.000000001")];
        for (dollars, text) in texts {
            assert_eq!(usd(dollars).to_string(), text);
            assert_eq!(serde_json::to_string(&usd(dollars)).unwrap().parse::<f64>().unwrap(), dollars);
        }
    }

    #[test]
    fn sums_stop_at_the_greatest_amount() {
        assert_eq!(Usd::MAX.plus(usd(1.0)), Usd::MAX);
        assert_eq!(usd(1.0).minus(usd(2.0)), Usd::ZERO);
        assert_eq!(Usd::MAX.times(2), Usd::MAX);
        assert_eq!(Usd::cost_of_tokens([(u64::MAX, Usd::MAX)]), Usd::MAX);
        assert_eq!([usd(0.1), usd(0.2)].into_iter().sum::<Usd>(), usd(0.3));
    }

    #[test]
    fn the_cost_of_tokens_is_rounded_once() {
        // Each kind alone is 0.4 billionths, which would be rounded to nothing.
        let kinds = [(1, Usd::from_nanos(400_000)), (1, Usd::from_nanos(400_000))];
        assert_eq!(Usd::cost_of_tokens(kinds).nanos(), 1);
        assert_eq!(Usd::cost_of_tokens([(7_024, usd(30.0))]), usd(0.210_72));
    }
}
