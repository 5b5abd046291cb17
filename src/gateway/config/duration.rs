//! Durations in written form: `30s`, `1h 30m`.

use std::time::Duration;

/// The description of a duration in messages.
pub(super) const EXPECTED: &str = "a duration such as \"30s\", \"5m\" or \"1h 30m\"";

/// The units from the smallest to the largest, in milliseconds.
const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// The longest duration of a setting, except of retention periods (our choice). A day added to an `Instant` cannot
/// overflow.
pub(super) const LONGEST: Duration = Duration::from_secs(86_400);

/// Parses one or more whole numbers with a unit, each unit at most once.
pub(super) fn parse(text: &str) -> Option<Duration> {
    let mut remaining = text.trim();
    let mut used_units = Vec::new();
    let mut total: u64 = 0;
    while !remaining.is_empty() {
        let (number, after) = split(remaining, |byte| byte.is_ascii_digit());
        let (unit, after) = split(after.trim_start(), |byte| byte.is_ascii_alphabetic());
        let (_, milliseconds) = UNITS.iter().find(|(name, _)| *name == unit)?;
        if used_units.contains(&unit) {
            return None;
        }
        used_units.push(unit);
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(*milliseconds)?)?;
        remaining = after.trim_start();
    }
    (!used_units.is_empty()).then(|| Duration::from_millis(total))
}

/// Returns the duration as [`parse`] reads it, from the largest unit to the smallest; parts below a millisecond are
/// dropped.
pub(super) fn format(duration: Duration) -> String {
    let mut remaining = duration.as_millis();
    let mut words = Vec::new();
    for (unit, milliseconds) in UNITS.iter().rev() {
        let count = remaining / u128::from(*milliseconds);
        remaining %= u128::from(*milliseconds);
        if count > 0 {
            words.push(format!("{count}{unit}"));
        }
    }
    if words.is_empty() { "0s".to_owned() } else { words.join(" ") }
}

fn split(text: &str, matches: impl Fn(u8) -> bool) -> (&str, &str) {
    let end = text.bytes().position(|byte| !matches(byte)).unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<u64>) {
        assert_eq!(parse(text), expected.map(Duration::from_millis), "{text}");
    }

    #[test]
    fn numbers_with_units_are_parsed() {
        check("30s", Some(30_000));
        check("5m", Some(300_000));
        check("1h 30m", Some(5_400_000));
        check("1h30m", Some(5_400_000));
        check(" 250 ms ", Some(250));
        check("1d", Some(86_400_000));
        check("0s", Some(0));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            " ",
            "30",
            "s",
            "30 seconds",
            "-5s",
            "1.5s",
            "5s 5s",
            "5S",
            "5m,3s",
            "99999999999999999999s",
            "213503982335d",
        ] {
            check(text, None);
        }
    }

    #[test]
    fn a_printed_duration_is_parsed_again() {
        for (text, milliseconds) in [("0s", 0), ("30s", 30_000), ("2m 30s", 150_000), ("1d 1ms", 86_400_001)] {
            assert_eq!(format(Duration::from_millis(milliseconds)), text);
            check(text, Some(milliseconds));
        }
    }
}
