//! Days as they are stored and printed: UTC, such as 2026-11-21. Their text sorts as they do.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Days, NaiveDate, Utc};
use serde::{Serialize, Serializer};

use super::Timestamp;

/// A day in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Day(NaiveDate);

impl Day {
    /// So many days earlier, or the first day that can be written.
    pub(crate) fn minus(self, days: u32) -> Self {
        self.0.checked_sub_days(Days::new(days.into())).unwrap_or(NaiveDate::MIN).into()
    }
}

impl From<Timestamp> for Day {
    fn from(moment: Timestamp) -> Self {
        DateTime::<Utc>::from(moment).date_naive().into()
    }
}

impl From<NaiveDate> for Day {
    /// What lies outside of the years of four digits, whose text would not sort, is the first or the last of their days.
    fn from(date: NaiveDate) -> Self {
        let first = NaiveDate::from_ymd_opt(0, 1, 1).unwrap_or(NaiveDate::MIN);
        let last = NaiveDate::from_ymd_opt(9999, 12, 31).unwrap_or(NaiveDate::MAX);
        Self(date.clamp(first, last))
    }
}

impl From<Day> for NaiveDate {
    fn from(day: Day) -> Self {
        day.0
    }
}

impl FromStr for Day {
    type Err = chrono::ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<NaiveDate>().map(Self::from)
    }
}

impl fmt::Display for Day {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0)
    }
}

impl Serialize for Day {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_begins_at_midnight_in_utc() {
        let day = Day::from("2026-11-22T00:30:00+02:00".parse::<Timestamp>().unwrap());
        assert_eq!(day.to_string(), "2026-11-21");
        assert_eq!(day.minus(30).to_string(), "2026-10-22");
        assert_eq!("2026-11-21".parse::<Day>().unwrap(), day);
    }

    #[test]
    fn what_would_not_sort_is_the_first_or_the_last_day() {
        assert_eq!("+12345-01-01".parse::<Day>().unwrap().to_string(), "9999-12-31");
        assert_eq!("-0001-12-31".parse::<Day>().unwrap().to_string(), "0000-01-01");
        assert_eq!("0000-01-01".parse::<Day>().unwrap().minus(1).to_string(), "0000-01-01");
    }
}
