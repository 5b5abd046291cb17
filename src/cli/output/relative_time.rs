//! Times as people say them: `3 min ago`, `in 29 days`.

use chrono::{DateTime, Utc};

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
/// The number of days after which the date says more (our choice).
const MAX_DAYS: i64 = 99;

/// Returns the distance of a time from now, rounded down; a distant time is returned as its date in UTC.
pub(super) fn relative(time: DateTime<Utc>, now: DateTime<Utc>) -> String {
    let seconds = (time - now).num_seconds();
    let distance = match seconds.abs() {
        0..MINUTE => return if seconds > 0 { "in 1 min".to_owned() } else { "just now".to_owned() },
        seconds @ MINUTE..HOUR => format!("{} min", seconds / MINUTE),
        seconds @ HOUR..DAY => format!("{} h", seconds / HOUR),
        seconds if seconds < 2 * DAY => "1 day".to_owned(),
        seconds if seconds / DAY <= MAX_DAYS => format!("{} days", seconds / DAY),
        _ => return time.format("%Y-%m-%d").to_string(),
    };
    if seconds > 0 { format!("in {distance}") } else { format!("{distance} ago") }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    #[test]
    fn distances_have_the_unit_that_says_most() {
        let now = DateTime::parse_from_rfc3339("2026-11-21T03:00:00Z").unwrap().to_utc();
        for (seconds, expected) in [
            (0, "just now"),
            (-59, "just now"),
            (30, "in 1 min"),
            (-60, "1 min ago"),
            (-3599, "59 min ago"),
            (-2 * HOUR, "2 h ago"),
            (-DAY, "1 day ago"),
            (29 * DAY + 5, "in 29 days"),
            (-99 * DAY, "99 days ago"),
            (-100 * DAY, "2026-08-13"),
        ] {
            assert_eq!(relative(now + TimeDelta::seconds(seconds), now), expected, "{seconds}");
        }
    }
}
