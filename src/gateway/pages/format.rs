//! Numbers, times and names of browsers in readable form.

use chrono::{DateTime, Utc};

/// An integer of one of several types, or a reference to it: templates pass references, even to references.
pub(super) trait CountValue {
    /// The count; a number above `i64::MAX` becomes `i64::MAX`.
    fn count(&self) -> i64;
}

/// A count that may be missing.
pub(super) trait OptionalCountValue {
    /// The count, if there is one.
    fn optional_count(&self) -> Option<i64>;
}

/// A time.
pub(super) trait DateTimeValue {
    /// The time.
    fn date_time(&self) -> DateTime<Utc>;
}

macro_rules! impl_count_value {
    ($($integer:ty)*) => {
        $(impl CountValue for $integer {
            fn count(&self) -> i64 {
                i64::try_from(*self).unwrap_or(i64::MAX)
            }
        })*
    };
}

impl_count_value!(i64 u64 usize u8 u16 u32);

impl<T: CountValue + ?Sized> CountValue for &T {
    fn count(&self) -> i64 {
        (**self).count()
    }
}

impl<T: CountValue> OptionalCountValue for Option<T> {
    fn optional_count(&self) -> Option<i64> {
        self.as_ref().map(CountValue::count)
    }
}

impl<T: OptionalCountValue + ?Sized> OptionalCountValue for &T {
    fn optional_count(&self) -> Option<i64> {
        (**self).optional_count()
    }
}

impl DateTimeValue for DateTime<Utc> {
    fn date_time(&self) -> DateTime<Utc> {
        *self
    }
}

impl<T: DateTimeValue + ?Sized> DateTimeValue for &T {
    fn date_time(&self) -> DateTime<Utc> {
        (**self).date_time()
    }
}

/// Formats `1234567` as `1,234,567`.
pub(super) fn with_thousands_separators(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::from(if number < 0 { "-" } else { "" });
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats an amount in US dollars, such as `$1,234.50`, with a number of decimals in this range. A positive
/// amount that would read as zero is shown as less than the smallest amount, such as `<$0.01`.
pub(super) fn dollars(amount: f64, decimal_range: std::ops::RangeInclusive<usize>) -> String {
    let (min, max) = decimal_range.into_inner();
    let text = format!("{amount:.max$}");
    if amount > 0.0 && text.chars().all(|character| matches!(character, '0' | '.')) {
        return format!("<$0.{}1", "0".repeat(max.saturating_sub(1)));
    }
    let (whole, decimals) = text.split_once('.').unwrap_or((&text, ""));
    let used = decimals.trim_end_matches('0').len().max(min.min(decimals.len()));
    let whole = whole.parse().map_or_else(|_| whole.to_owned(), with_thousands_separators);
    format!("${whole}.{}", &decimals[..used])
}

/// Formats a time for machines, as `<time datetime>` requires it.
pub(super) fn machine_time(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Formats a time for people, to the minute, in UTC. The script of the page replaces it by the local time.
pub(super) fn time_to_minute(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%d %H:%M UTC").to_string()
}

/// Formats a time for people, to the second, in UTC. The script of the page replaces it by the local time.
pub(super) fn time_to_second(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// The units of [`elapsed`], the largest first: the number of seconds, and the key of the text.
const UNITS_OF_TIME: [(i64, &str); 5] = [
    (365 * 86_400, "time.years_ago"),
    (30 * 86_400, "time.months_ago"),
    (86_400, "time.days_ago"),
    (3_600, "time.hours_ago"),
    (60, "time.minutes_ago"),
];

/// The time between two moments: the key of a text, and the number of whole units in it; `None` for less than a minute.
pub(super) fn elapsed(from: DateTime<Utc>, to: DateTime<Utc>) -> Option<(&'static str, i64)> {
    let seconds = (to - from).num_seconds();
    let (unit, text) = UNITS_OF_TIME.iter().find(|(unit, _)| seconds >= *unit)?;
    Some((text, seconds / unit))
}

/// Substrings of `User-Agent`, and the names of their browsers. A browser whose header also contains the substring of
/// another browser comes before that browser.
const BROWSERS: [(&str, &str); 7] = [
    ("Edg/", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("HeadlessChrome/", "Chrome"),
    ("Chrome/", "Chrome"),
    ("Version/", "Safari"),
    ("curl/", "curl"),
];
/// Substrings of `User-Agent`, and the names of their operating systems. The first one that the header contains counts.
const SYSTEMS: [(&str, &str); 6] = [
    ("Windows", "Windows"),
    ("iPhone", "iOS"),
    ("iPad", "iPadOS"),
    ("Mac OS X", "macOS"),
    ("Android", "Android"),
    ("Linux", "Linux"),
];

/// Returns the browser that a header `User-Agent` names, and its system if it is known, such as `Chrome 156, Linux`;
/// `None` if the browser or its version is unknown.
pub(super) fn browser(agent: &str) -> Option<String> {
    let (marker, name) = BROWSERS.iter().find(|(pattern, _)| agent.contains(pattern))?;
    let version =
        agent.split_once(marker).map(|(_, remaining)| remaining.split(|character: char| !character.is_ascii_digit()));
    let version = version.and_then(|mut parts| parts.next()).filter(|version| !version.is_empty())?;
    let system = SYSTEMS.iter().find(|(pattern, _)| agent.contains(pattern)).map(|(_, system)| format!(", {system}"));
    Some(format!("{name} {version}{}", system.unwrap_or_default()))
}

/// Formats a number of milliseconds, as milliseconds, as seconds, or as minutes and seconds.
pub(super) fn latency(milliseconds: i64) -> String {
    match milliseconds {
        ..1_000 => format!("{milliseconds} ms"),
        1_000..60_000 => format!("{}.{} s", milliseconds / 1_000, milliseconds % 1_000 / 100),
        _ => format!("{} min {} s", milliseconds / 60_000, milliseconds % 60_000 / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_a_comma_every_three_digits() {
        for (number, text) in [(0, "0"), (999, "999"), (-1_000, "-1,000"), (1_000, "1,000"), (12_345_678, "12,345,678")]
        {
            assert_eq!(with_thousands_separators(number), text);
        }
    }

    #[test]
    fn amounts_have_as_many_decimals_as_they_need() {
        for (amount, min, max, text) in [
            (0.0, 2, 2, "$0.00"),
            (1.7494, 2, 2, "$1.75"),
            (1.7494, 2, 6, "$1.7494"),
            (0.210_72, 2, 6, "$0.21072"),
            (5.0, 2, 9, "$5.00"),
            (0.075, 2, 9, "$0.075"),
            (0.2, 4, 4, "$0.2000"),
            (1_234_567.891, 2, 2, "$1,234,567.89"),
            (0.004, 2, 2, "<$0.01"),
            (0.000_000_4, 2, 6, "<$0.000001"),
        ] {
            assert_eq!(dollars(amount, min..=max), text, "{amount}");
        }
    }

    #[test]
    fn elapsed_time_is_counted_in_the_largest_whole_unit() {
        let to: DateTime<Utc> = "2026-11-26T18:00:00Z".parse().unwrap();
        let since = |seconds| elapsed(to - chrono::TimeDelta::seconds(seconds), to);
        assert_eq!((since(59), since(-500)), (None, None));
        assert_eq!(since(60), Some(("time.minutes_ago", 1)));
        assert_eq!(since(3_599), Some(("time.minutes_ago", 59)));
        assert_eq!(since(7_200), Some(("time.hours_ago", 2)));
        assert_eq!(since(86_400 * 29), Some(("time.days_ago", 29)));
        assert_eq!(since(86_400 * 364), Some(("time.months_ago", 12)));
        assert_eq!(since(86_400 * 800), Some(("time.years_ago", 2)));
    }

    #[test]
    fn browsers_are_recognized() {
        let linux = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) ";
        let mac = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) ";
        for (agent, name) in [
            (format!("{linux}Chrome/156.0.0.0 Safari/537.36"), "Chrome 156, Linux"),
            (format!("{linux}Chrome/156.0.0.0 Safari/537.36 Edg/155.0.0.0"), "Edge 155, Linux"),
            (format!("{mac}Version/26.1 Safari/605.1.15"), "Safari 26, macOS"),
            ("curl/8.5.0".to_owned(), "curl 8"),
        ] {
            assert_eq!(browser(&agent).as_deref(), Some(name));
        }
        assert_eq!(browser("Chrome/x"), None);
        assert_eq!(browser("somebody's program"), None);
    }

    #[test]
    fn a_latency_is_formatted_in_a_suitable_unit() {
        for (milliseconds, text) in [(0, "0 ms"), (999, "999 ms"), (1_450, "1.4 s"), (125_000, "2 min 5 s")] {
            assert_eq!(latency(milliseconds), text);
        }
    }
}
