//! Keeps the JSON of an event on one line, also for clients that split lines at Unicode line ends.

/// Escapes the Unicode line ends that JSON allows in strings, because clients that split events at them would lose a
/// part of the event. Valid JSON contains these characters nowhere else.
pub(crate) fn escape_line_ends(json: String) -> String {
    const LINE_ENDS: [char; 3] = ['\u{85}', '\u{2028}', '\u{2029}'];
    // Nearly all texts are ASCII, which is much faster to see.
    if json.is_ascii() || !json.contains(LINE_ENDS) {
        return json;
    }
    json.replace('\u{85}', "\\u0085").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unicode_line_ends_are_escaped_and_the_value_stays() {
        let value = serde_json::json!({"a\u{2028}": "b\u{2029}c\u{85}\u{e9}"});
        let line = escape_line_ends(value.to_string());
        assert_eq!(line, "{\"a\\u2028\":\"b\\u2029c\\u0085\u{e9}\"}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&line).unwrap(), value);
    }
}
