//! Days as they are stored and printed: UTC, such as 2026-11-21. Their texts sort in the order of the days.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Days, NaiveDate, Utc};
use serde::{Serialize, Serializer};

use super::Timestamp;

/// A day in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct UtcDay(NaiveDate);

impl UtcDay {
    /// Returns the day that is this many days earlier, or the first day that can be written.
    pub(crate) fn minus(self, days: u32) -> Self {
        self.0.checked_sub_days(Days::new(days.into())).unwrap_or(NaiveDate::MIN).into()
    }
}

impl From<Timestamp> for UtcDay {
    fn from(time: Timestamp) -> Self {
        DateTime::<Utc>::from(time).date_naive().into()
    }
}

impl From<NaiveDate> for UtcDay {
    /// Converts a day. A day outside the years of four digits, whose text would not sort, becomes the first or last
    /// such day.
    fn from(date: NaiveDate) -> Self {
        let first = NaiveDate::from_ymd_opt(0, 1, 1).unwrap_or(NaiveDate::MIN);
        let last = NaiveDate::from_ymd_opt(9999, 12, 31).unwrap_or(NaiveDate::MAX);
        Self(date.clamp(first, last))
    }
}

impl From<UtcDay> for NaiveDate {
    fn from(day: UtcDay) -> Self {
        day.0
    }
}

impl FromStr for UtcDay {
    type Err = chrono::ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<NaiveDate>().map(Self::from)
    }
}

impl fmt::Display for UtcDay {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0)
    }
}

impl Serialize for UtcDay {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_begins_at_midnight_in_utc() {
        let day = UtcDay::from("2026-11-22T00:30:00+02:00".parse::<Timestamp>().unwrap());
        assert_eq!(day.to_string(), "2026-11-21");
        assert_eq!(day.minus(30).to_string(), "2026-10-22");
        assert_eq!("2026-11-21".parse::<UtcDay>().unwrap(), day);
    }

    #[test]
    fn days_outside_four_digit_years_are_clamped() {
        assert_eq!("+12345-01-01".parse::<UtcDay>().unwrap().to_string(), "9999-12-31");
        assert_eq!("-0001-12-31".parse::<UtcDay>().unwrap().to_string(), "0000-01-01");
        assert_eq!("0000-01-01".parse::<UtcDay>().unwrap().minus(1).to_string(), "0000-01-01");
    }
}
