//! Parses an end of a period in the past: a moment, a date, or a duration before now.

use std::str::FromStr;

use chrono::{DateTime, Utc};

use crate::cli::time_span::{parse_moment, parse_span};
use crate::gateway::store::Timestamp;

/// A moment, mostly in the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MomentArg(DateTime<Utc>);

// === impl MomentArg ===

impl MomentArg {
    pub(super) fn moment(self) -> Timestamp {
        self.0.into()
    }

    fn parse(text: &str, now: DateTime<Utc>) -> Option<Self> {
        parse_moment(text).or_else(|| now.checked_sub_signed(parse_span(text)?)).map(Self)
    }
}

impl FromStr for MomentArg {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text, Utc::now()).ok_or(
            "expected a date, a date and time such as 2026-11-21T03:00:00Z, or a duration before now such as 24h or 7d",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        let now = DateTime::parse_from_rfc3339("2026-11-21T03:00:00Z").unwrap().to_utc();
        let moment = MomentArg::parse(text, now).map(|parsed| parsed.moment().to_string());
        assert_eq!(moment.as_deref(), expected, "{text}");
    }

    #[test]
    fn a_moment_a_date_and_a_duration_before_now_are_understood() {
        check("2026-11-20T10:00:00+02:00", Some("2026-11-20T08:00:00.000Z"));
        check("2026-11-20", Some("2026-11-20T00:00:00.000Z"));
        check("90s", Some("2026-11-21T02:58:30.000Z"));
        check("24h", Some("2026-11-20T03:00:00.000Z"));
        check("1w", Some("2026-11-14T03:00:00.000Z"));
    }

    #[test]
    fn everything_else_is_refused() {
        for text in [
            "",
            "h",
            "24",
            "-1h",
            "1.5h",
            "24 h",
            "yesterday",
            "2026-13-01",
            "99999999999999999999d",
            "9223372036854775807w",
            "1é",
        ] {
            check(text, None);
        }
    }
}
