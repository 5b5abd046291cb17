//! Reads how long an account must not be asked, in all the forms that upstreams use.
//!
//! The module does no I/O; the time is an argument. A date is compared with the upstream's own clock if it sends one,
//! so that a wrong clock on either side has no effect. An invalid value is ignored: the account then gets the short
//! cooldown for answers without a wait (U16).

use std::time::{Duration, UNIX_EPOCH};

use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, HeaderName};
use serde_json::{Map, Value};

/// A wait above this limit is ignored as invalid (our choice): no upstream has windows of more than a year. A cooldown has
/// a limit of its own, but callers are told the wait as it is stated.
const MAX_VALID_SECONDS: f64 = 400.0 * 24.0 * 3600.0;
/// The most levels of nested errors that are read (our choice).
const MAX_DEPTH: u32 = 6;
/// A number above this is a time in seconds since 1970 rather than a wait; above [`MIN_TIMESTAMP_MILLIS`], it is in
/// milliseconds.
const MIN_TIMESTAMP_SECONDS: f64 = 1e9;
const MIN_TIMESTAMP_MILLIS: f64 = 1e11;
/// The middle of `x-ratelimit-reset-requests`, `-tokens` and `-images`, and of the headers with what remains of these
/// limits; some upstreams send them without a prefix or a suffix.
const RESET_HEADER: &str = "ratelimit-reset";
const REMAINING_HEADER: &str = "ratelimit-remaining";
/// The usage windows of an account in the headers of upstreams for coding agents.
const USAGE_WINDOWS: [&str; 2] = ["x-codex-primary", "x-codex-secondary"];
/// The members of errors with a wait in seconds or as a period, those with milliseconds, and those with the end of a wait:
/// in lower case and without separators.
const WAIT_MEMBERS: &[&str] = &[
    "resetsinseconds",
    "resetinseconds",
    "resetafterseconds",
    "resetsafterseconds",
    "retryafterseconds",
    "resetsin",
    "resetin",
    "resetafter",
    "resetsafter",
    "retryafter",
    "retryin",
    "retrydelay",
    "waitseconds",
    "cooldownseconds",
];
const MILLIS_MEMBERS: &[&str] = &["retryafterms", "retryaftermilliseconds", "resetsinms", "resetinms"];
const END_MEMBERS: &[&str] = &["resetsat", "resetat", "resettime", "retryat"];
/// Words between the word for a wait and its period.
const FILLERS: [&str; 7] = ["for", "about", "approximately", "around", "another", "at", "least"];

/// Returns the wait that an answer states. The members of its body take precedence over `Retry-After`, that over a
/// sentence, and a sentence over the headers of rate limits. `now` is in seconds since 1970.
pub(super) fn parse_wait(headers: &HeaderMap, body: Option<&Map<String, Value>>, now: f64) -> Option<Duration> {
    let clock = header_text(headers, &DATE).and_then(parse_date).unwrap_or(now);
    let in_body = |read: &dyn Fn(&Map<String, Value>) -> Option<Duration>| find_in_errors(body?, read, MAX_DEPTH);
    in_body(&|error| wait_from_members(error, clock))
        .or_else(|| wait_from_retry_after(headers, clock))
        .or_else(|| in_body(&|error| wait_from_message(error, clock)))
        .or_else(|| wait_from_used_windows(headers))
        .or_else(|| wait_from_rate_limits(headers, clock))
}

/// Returns the current time in seconds since 1970.
pub(super) fn unix_now() -> f64 {
    seconds_as_float(chrono::Utc::now().timestamp())
}

/// Returns a wait in seconds, if it is valid.
fn valid_wait(seconds: f64) -> Option<Duration> {
    let rounded = Some(seconds.ceil()).filter(|seconds| (1.0..=MAX_VALID_SECONDS).contains(seconds))?;
    Duration::try_from_secs_f64(rounded).ok()
}

/// Returns the first wait that is found in an error or in an error within it, which may be JSON in a text or in a list.
fn find_in_errors(
    error: &Map<String, Value>,
    read: &dyn Fn(&Map<String, Value>) -> Option<Duration>,
    depth: u32,
) -> Option<Duration> {
    let depth = depth.checked_sub(1)?;
    let within = |value: &Value| match value {
        Value::Object(members) => find_in_errors(members, read, depth),
        Value::Array(values) => {
            values.iter().filter_map(Value::as_object).find_map(|members| find_in_errors(members, read, depth))
        }
        Value::String(text) if text.trim_start().starts_with('{') => {
            find_in_errors(&serde_json::from_str(text).ok()?, read, depth)
        }
        _ => None,
    };
    let nested = ["error", "response", "detail", "details", "errors", "metadata", "message"];
    read(error).or_else(|| nested.into_iter().find_map(|key| within(error.get(key)?)))
}

/// Reads the members that state a wait or its end, in whatever spelling of their names: a wait before its end.
fn wait_from_members(error: &Map<String, Value>, clock: f64) -> Option<Duration> {
    let plain_name = |name: &str| name.to_ascii_lowercase().replace(['_', '-'], "");
    let find = |names: &[&str], read: &dyn Fn(&Value) -> Option<Duration>| {
        let mut members = names.iter().flat_map(|name| error.iter().filter(|(key, _)| plain_name(key) == *name));
        members.find_map(|(_, value)| read(value))
    };
    let period = |value: &Value| parse_number(Some(value)).or_else(|| parse_period(value.as_str()?.trim()));
    find(WAIT_MEMBERS, &|value| period(value).and_then(valid_wait))
        .or_else(|| find(MILLIS_MEMBERS, &|value| valid_wait(parse_number(Some(value))? / 1000.0)))
        .or_else(|| find(END_MEMBERS, &|value| wait_until_time(value, clock)))
}

/// Reads the sentence of an error, such as "Please try again in 1m30s."
fn wait_from_message(error: &Map<String, Value>, clock: f64) -> Option<Duration> {
    let texts = ["message", "detail", "error", "msg"].into_iter().filter_map(|key| error.get(key)?.as_str());
    texts.into_iter().find_map(|text| wait_from_sentence(text, clock).or_else(|| wait_from_chinese(text)))
}

/// Reads the period after the word "in", "after" or "wait", as numbers with units such as `43 seconds` or `2h 5m`, or the
/// date after "at" or "until". A time of day is no date, because its time zone is not known.
fn wait_from_sentence(text: &str, clock: f64) -> Option<Duration> {
    let lowercase = text.to_lowercase();
    let is_edge = |character: char| matches!(character, '.' | ',' | ';' | ':' | '!' | '(' | ')');
    let words: Vec<&str> = lowercase.split_whitespace().map(|word| word.trim_matches(is_edge)).collect();
    let after = |markers: &[&str], read: &dyn Fn(&[&str]) -> Option<Duration>| {
        let starts = words.iter().enumerate().filter(|(_, word)| markers.contains(*word));
        starts.into_iter().find_map(|(index, _)| read(&words[index + 1..]))
    };
    let period = after(&["in", "after", "wait"], &|words| {
        let fillers = words.iter().take_while(|word| FILLERS.contains(*word)).count();
        leading_period(&words[fillers..]).and_then(valid_wait)
    });
    period.or_else(|| after(&["at", "until", "after", "on"], &|words| valid_wait(parse_date(words.first()?)? - clock)))
}

/// Reads a Chinese sentence, such as "请在 30 秒后重试": a period before "后" or after a word for waiting.
fn wait_from_chinese(text: &str) -> Option<Duration> {
    let units = [("小时", "h"), ("小時", "h"), ("分钟", "m"), ("分鐘", "m"), ("分", "m"), ("秒", "s"), ("天", "d")];
    let text = units
        .into_iter()
        .fold(text.replace("秒钟", "秒").replace("秒鐘", "秒"), |text, (word, unit)| text.replace(word, unit));
    let is_period = |letter: char| letter.is_ascii_digit() || matches!(letter, '.' | ' ' | 'd' | 'h' | 'm' | 's');
    let starts = text.char_indices().filter(|(_, letter)| letter.is_ascii_digit()).map(|(start, _)| start);
    starts.into_iter().find_map(|start| {
        let (before, rest) = text.split_at(start);
        let length = rest.find(|letter: char| !is_period(letter)).unwrap_or(rest.len());
        let (period, after) = rest.split_at(length);
        let is_wait = ["后", "後", "之后", "之後", "以后", "以後"].iter().any(|mark| after.starts_with(mark))
            || ["等待", "需等", "剩余", "剩餘"].iter().any(|mark| before.trim_end().ends_with(mark));
        let seconds = parse_period(&period.replace(' ', "")).filter(|_| is_wait)?;
        valid_wait(seconds)
    })
}

/// Returns the seconds of the period with which these words begin.
fn leading_period(mut words: &[&str]) -> Option<f64> {
    let mut total = None;
    loop {
        let (seconds, length) = match words {
            [number, unit, ..] if parse_count(number).is_some() => {
                (parse_count(number).and_then(|count| parse_period(&format!("{count}{unit}"))), 2)
            }
            ["and", ..] if total.is_some() => (Some(0.0), 1),
            [period, ..] => (parse_period(period), 1),
            [] => return total,
        };
        let Some(seconds) = seconds else { return total };
        total = Some(total.unwrap_or(0.0) + seconds);
        words = &words[length..];
    }
}

/// Returns a number in digits, or the number one in words.
fn parse_count(word: &str) -> Option<f64> {
    if matches!(word, "a" | "an" | "one") { Some(1.0) } else { word.parse().ok() }
}

/// Returns the short form of a unit that is a word, such as `s` for `seconds`.
fn short_unit(unit: &str) -> &str {
    match unit {
        "day" | "days" => "d",
        "hour" | "hours" | "hr" | "hrs" => "h",
        "minute" | "minutes" | "mins" | "min" => "m",
        "second" | "seconds" | "secs" | "sec" => "s",
        other => other,
    }
}

fn parse_number(value: Option<&Value>) -> Option<f64> {
    let value = value?;
    value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())
}

/// Reads a point in time that is a number or text.
fn wait_until_time(value: &Value, clock: f64) -> Option<Duration> {
    let at = parse_number(Some(value)).map(whole_seconds).or_else(|| parse_date(value.as_str()?))?;
    valid_wait(at - clock)
}

fn whole_seconds(at: f64) -> f64 {
    if at > MIN_TIMESTAMP_MILLIS { at / 1000.0 } else { at }
}

/// Reads `retry-after-ms`, or `Retry-After` in seconds or as a date.
fn wait_from_retry_after(headers: &HeaderMap, clock: f64) -> Option<Duration> {
    let milliseconds =
        header_text(headers, &HeaderName::from_static("retry-after-ms")).and_then(|text| text.parse::<f64>().ok());
    let seconds = || {
        let stated = header_text(headers, &RETRY_AFTER)?;
        let seconds = stated.parse::<f64>().ok().or_else(|| parse_period(stated));
        seconds.or_else(|| parse_date(stated).map(|at| at - clock))
    };
    milliseconds.and_then(|milliseconds| valid_wait(milliseconds / 1000.0)).or_else(|| seconds().and_then(valid_wait))
}

/// Reads the end of the usage windows that are used up: all of them must be open.
fn wait_from_used_windows(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: String| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let waits = USAGE_WINDOWS.into_iter().filter_map(|window| {
        number(format!("{window}-used-percent")).filter(|percent| *percent >= 100.0)?;
        number(format!("{window}-reset-after-seconds")).and_then(valid_wait)
    });
    waits.max()
}

/// Reads `x-ratelimit-reset-*`. If limits are used up, returns the latest of their resets, because all limits must
/// allow a request. Otherwise returns the earliest reset.
fn wait_from_rate_limits(headers: &HeaderMap, clock: f64) -> Option<Duration> {
    let resets = headers.iter().filter_map(|(name, value)| {
        let (prefix, suffix) = name.as_str().split_once(RESET_HEADER)?;
        if !matches!(prefix, "" | "x-") {
            return None;
        }
        let wait = parse_reset(value.to_str().ok()?.trim(), clock)?;
        let remaining =
            headers.get(format!("{prefix}{REMAINING_HEADER}{suffix}")).and_then(|value| value.to_str().ok());
        Some((remaining.and_then(|text| text.trim().parse::<f64>().ok()) == Some(0.0), wait))
    });
    let (used_up, available): (Vec<_>, Vec<_>) = resets.partition(|(is_used_up, _)| *is_used_up);
    let waits = |limits: Vec<(bool, Duration)>| limits.into_iter().map(|(_, wait)| wait);
    waits(used_up).max().or_else(|| waits(available).min())
}

/// Reads `6m0s`, `120ms`, `17`, a point in time in seconds, or a date.
fn parse_reset(stated: &str, clock: f64) -> Option<Duration> {
    let seconds = match stated.parse::<f64>() {
        Ok(at) if at > MIN_TIMESTAMP_SECONDS => Some(whole_seconds(at) - clock),
        Ok(seconds) => Some(seconds),
        Err(_) => parse_period(stated).or_else(|| parse_date(stated).map(|at| at - clock)),
    };
    seconds.and_then(valid_wait)
}

/// Reads a period of numbers with units, such as `1h2m3.5s`, and returns its seconds.
fn parse_period(stated: &str) -> Option<f64> {
    let mut unparsed = stated;
    let mut total = 0.0;
    while !unparsed.is_empty() {
        let number_length = unparsed.find(|character: char| !character.is_ascii_digit() && character != '.')?;
        let number: f64 = unparsed[..number_length].parse().ok()?;
        unparsed = &unparsed[number_length..];
        let unit_length = unparsed.find(|character: char| character.is_ascii_digit()).unwrap_or(unparsed.len());
        total += number
            * match short_unit(&unparsed[..unit_length]) {
                "d" => 86_400.0,
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 1e-3,
                "us" | "µs" => 1e-6,
                "ns" => 1e-9,
                _ => return None,
            };
        unparsed = &unparsed[unit_length..];
    }
    (!stated.is_empty()).then_some(total)
}

/// Reads a date as in headers, in any of the three forms of HTTP, or as in JSON, and returns seconds since 1970.
fn parse_date(stated: &str) -> Option<f64> {
    let parsed = chrono::DateTime::parse_from_rfc2822(stated).or_else(|_| chrono::DateTime::parse_from_rfc3339(stated));
    let date = parsed.ok().map(|date| seconds_as_float(date.timestamp()));
    date.or_else(|| {
        let date = httpdate::parse_http_date(stated).ok()?;
        date.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs_f64())
    })
}

fn header_text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim)
}

#[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are far below 2^52")]
const fn seconds_as_float(timestamp: i64) -> f64 {
    timestamp as f64
}
