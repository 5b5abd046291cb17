//! Times as they are stored and printed: UTC, RFC 3339, milliseconds. Their texts sort in the order of the times.

use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, SubsecRound, TimeDelta, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A time of the system clock. Durations are never computed from two such times, because the clock can jump.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Timestamp(DateTime<Utc>);

impl Timestamp {
    /// The last time whose text sorts correctly, because its year has four digits.
    pub(crate) const LAST: Self = Self(match DateTime::from_timestamp_millis(253_402_300_799_999) {
        Some(time) => time,
        None => DateTime::<Utc>::MAX_UTC,
    });

    /// The current time.
    pub(crate) fn now() -> Self {
        Utc::now().into()
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    /// Adds a duration. The result is at most the last time that can be written.
    fn add(self, duration: Duration) -> Self {
        let sum = TimeDelta::from_std(duration).ok().and_then(|delta| self.0.checked_add_signed(delta));
        sum.map_or(Self::LAST, Self::from).min(Self::LAST)
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;

    /// Subtracts a duration. The result is at least the beginning of 1970.
    fn sub(self, duration: Duration) -> Self {
        let difference = TimeDelta::from_std(duration).ok().and_then(|delta| self.0.checked_sub_signed(delta));
        difference.map_or(Self(DateTime::UNIX_EPOCH), Self::from).max(Self(DateTime::UNIX_EPOCH))
    }
}

impl From<DateTime<Utc>> for Timestamp {
    /// Truncates to milliseconds, so that a time that is written and read again is unchanged.
    fn from(time: DateTime<Utc>) -> Self {
        Self(time.trunc_subsecs(3))
    }
}

impl From<Timestamp> for DateTime<Utc> {
    fn from(time: Timestamp) -> Self {
        time.0
    }
}

impl FromStr for Timestamp {
    type Err = chrono::ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(DateTime::parse_from_rfc3339(text)?.to_utc().into())
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0.to_rfc3339_opts(SecondsFormat::Millis, true))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        DateTime::<Utc>::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::Timestamp;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(text.parse::<Timestamp>().unwrap().to_string(), expected);
    }

    #[test]
    fn times_are_written_in_utc_with_milliseconds() {
        check("2026-11-21T03:00:00Z", "2026-11-21T03:00:00.000Z");
        check("2026-11-21T03:00:00.1239Z", "2026-11-21T03:00:00.123Z");
        check("2026-11-21T05:00:00.5+02:00", "2026-11-21T03:00:00.500Z");
    }

    #[test]
    fn a_time_is_unchanged_after_a_round_trip() {
        let now = Timestamp::now();
        assert_eq!(now.to_string().parse::<Timestamp>().unwrap(), now);
    }
}
