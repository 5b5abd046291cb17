//! Parses spans of time as people type them: a whole number with one unit.

use std::time::Duration;

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};

use crate::gateway::store::Timestamp;

/// Parses a span such as `24h` or `7d`.
pub(super) fn parse_span(text: &str) -> Option<TimeDelta> {
    let digits = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = digits.parse().ok()?;
    match &text[digits.len()..] {
        "s" => TimeDelta::try_seconds(number),
        "m" => TimeDelta::try_minutes(number),
        "h" => TimeDelta::try_hours(number),
        "d" => TimeDelta::try_days(number),
        "w" => TimeDelta::try_weeks(number),
        _ => None,
    }
}

/// Parses a date and time, or a date, which stands for its first moment in UTC.
pub(super) fn parse_moment(text: &str) -> Option<DateTime<Utc>> {
    let moment = DateTime::parse_from_rfc3339(text).ok().map(|moment| moment.to_utc());
    moment.or_else(|| Some(text.parse::<NaiveDate>().ok()?.and_hms_opt(0, 0, 0)?.and_utc()))
}

/// Parses the value of an argument for a duration: a span, or `0`.
pub(super) fn parse_duration(text: &str) -> Result<Duration, &'static str> {
    let span = if text == "0" { Some(TimeDelta::zero()) } else { parse_span(text) };
    span.and_then(|span| span.to_std().ok()).ok_or("expected a duration such as 24h or 7d, or 0")
}

/// Parses the value of an argument for the end of a validity: a span from now, a date or a moment.
pub(super) fn parse_end(text: &str) -> Result<Timestamp, &'static str> {
    parse_end_at(text, Utc::now())
        .ok_or("expected a duration from now such as 30d, a date, or a date and time such as 2026-11-21T03:00:00Z")
}

fn parse_end_at(text: &str, now: DateTime<Utc>) -> Option<Timestamp> {
    parse_moment(text).or_else(|| now.checked_add_signed(parse_span(text)?)).map(Timestamp::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        let now = DateTime::parse_from_rfc3339("2026-11-21T03:00:00Z").unwrap().to_utc();
        assert_eq!(parse_end_at(text, now).map(|end| end.to_string()).as_deref(), expected, "{text}");
    }

    #[test]
    fn an_end_is_a_time_from_now_a_date_or_a_moment() {
        check("30d", Some("2026-12-21T03:00:00.000Z"));
        check("90s", Some("2026-11-21T03:01:30.000Z"));
        check("2026-12-01", Some("2026-12-01T00:00:00.000Z"));
        check("2026-12-01T10:00:00+02:00", Some("2026-12-01T08:00:00.000Z"));
        for text in ["", "d", "30", "-1d", "1.5d", "tomorrow", "99999999999999999999d", "9223372036854775807w", "1é"] {
            check(text, None);
        }
    }

    #[test]
    fn a_duration_may_be_zero() {
        assert_eq!(parse_duration("0"), Ok(Duration::ZERO));
        assert_eq!(parse_duration("24h"), Ok(Duration::from_secs(86_400)));
        assert!(parse_duration("-1h").is_err() && parse_duration("24").is_err());
    }
}
