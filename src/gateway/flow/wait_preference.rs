//! The preference `wait` of the header `Prefer` (RFC 7240): the seconds that a client waits for its answer. Pure.
//!
//! A server may ignore every preference, so one that cannot be read is no error.

use std::time::Duration;

use http::HeaderMap;

use crate::tables::PREFER_HEADER;

const WAIT: &str = "wait";

/// Reads the preference. Of several, the first counts, as the RFC says. `None` if there is none, or if the first is not a
/// whole number of seconds from 1.
pub(super) fn read_wait(headers: &HeaderMap) -> Option<Duration> {
    let texts = headers.get_all(PREFER_HEADER).iter().filter_map(|value| value.to_str().ok());
    let value = texts.flat_map(split_preferences).find_map(wait_value)?;
    // `parse` accepts a plus sign, which the preference must not have.
    value.parse().ok().filter(|seconds| *seconds > 0 && !value.starts_with('+')).map(Duration::from_secs)
}

/// Splits a list at its commas, except for those in quoted texts.
fn split_preferences(list: &str) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    list.split(move |character: char| {
        is_quoted ^= character == '"' && !is_escaped;
        is_escaped = character == '\\' && is_quoted && !is_escaped;
        character == ',' && !is_quoted
    })
}

/// Returns the value of a preference if it is `wait`, without its quotes and the parameters after it.
fn wait_value(preference: &str) -> Option<&str> {
    let (name, value) = preference.split(';').next()?.split_once('=')?;
    let value = value.trim();
    let unquoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
    name.trim().eq_ignore_ascii_case(WAIT).then_some(unquoted.unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn wait_of(values: &[&'static str]) -> Option<u64> {
        let mut map = HeaderMap::new();
        for value in values {
            map.append(PREFER_HEADER, HeaderValue::from_static(value));
        }
        read_wait(&map).map(|wait| wait.as_secs())
    }

    #[test]
    fn the_first_wait_of_a_list_counts() {
        for values in [
            &["wait=7"][..],
            &["WAIT = \"7\" ; exact"],
            &["respond-async, wait=7, wait=9"],
            &["return=minimal", "wait=7", "wait=9"],
            &["note=\"x, wait=9\", wait=7"],
            &[r#"note="a \", wait=9", wait=7"#],
        ] {
            assert_eq!(wait_of(values), Some(7), "{values:?}");
        }
    }

    #[test]
    fn a_wait_that_cannot_be_read_is_ignored() {
        for value in
            ["", "wait", "wait=", "wait=0", "wait=-7", "wait=+7", "wait=7s", "wait=7.5", "waits=7", "wait=x, wait=7"]
        {
            assert_eq!(wait_of(&[value]), None, "{value}");
        }
        assert_eq!(wait_of(&["wait=99999999999999999999999"]), None);
        assert_eq!(wait_of(&[]), None);
    }
}
