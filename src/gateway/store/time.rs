//! Moments as they are stored and printed: UTC, RFC 3339, milliseconds. Their text sorts as they do.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, SecondsFormat, SubsecRound, Utc};
use serde::{Serialize, Serializer};

/// A moment on the wall clock. Durations are never computed from it: clocks jump.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Timestamp(DateTime<Utc>);

impl Timestamp {
    /// This moment.
    pub(crate) fn now() -> Self {
        Utc::now().into()
    }
}

impl From<DateTime<Utc>> for Timestamp {
    /// Cuts off what is below a millisecond, so that a value equals itself after a round trip.
    fn from(moment: DateTime<Utc>) -> Self {
        Self(moment.trunc_subsecs(3))
    }
}

impl From<Timestamp> for DateTime<Utc> {
    fn from(moment: Timestamp) -> Self {
        moment.0
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

#[cfg(test)]
mod tests {
    use super::Timestamp;

    #[track_caller]
    fn check(text: &str, stored: &str) {
        assert_eq!(text.parse::<Timestamp>().unwrap().to_string(), stored);
    }

    #[test]
    fn every_moment_is_written_in_utc_with_three_decimals() {
        check("2026-11-21T03:00:00Z", "2026-11-21T03:00:00.000Z");
        check("2026-11-21T03:00:00.1239Z", "2026-11-21T03:00:00.123Z");
        check("2026-11-21T05:00:00.5+02:00", "2026-11-21T03:00:00.500Z");
    }

    #[test]
    fn a_moment_equals_itself_after_a_round_trip() {
        let now = Timestamp::now();
        assert_eq!(now.to_string().parse::<Timestamp>().unwrap(), now);
    }
}
