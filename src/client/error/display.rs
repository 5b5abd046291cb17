//! The texts of errors: one line of bounded length, because a message may be that of any service.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use super::Error;

/// The maximum number of characters of a message that `Display` shows (our choice): some services repeat whole events.
const DISPLAY_MAX_CHARS: usize = 2000;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&one_line(&self.0.message, DISPLAY_MAX_CHARS))?;
        let status = self.status().map(|status| format!("status {status}"));
        let labelled = |label: &str, value: Option<&str>| value.map(|value| format!("{label} {value}"));
        let details = [
            status,
            labelled("code", self.code()),
            labelled("reason", self.reason()),
            labelled("parameter", self.param()),
            labelled("request", self.request_id()),
        ];
        let details: Vec<String> = details.into_iter().flatten().collect();
        if details.is_empty() { Ok(()) } else { write!(f, " ({})", details.join(", ")) }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Error");
        debug.field("kind", &self.0.kind).field("message", &self.to_string());
        if let Some(source) = &self.0.source {
            debug.field("source", source);
        }
        debug.finish_non_exhaustive()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|source| &**source as _)
    }
}

/// Returns a limit in seconds, or in milliseconds if it is no whole number of seconds.
pub(super) fn limit_text(limit: Duration) -> String {
    if limit.subsec_millis() == 0 && !limit.is_zero() {
        format!("{} s", limit.as_secs())
    } else {
        format!("{} ms", limit.as_millis())
    }
}

/// Returns a text on one line, and at most this number of its characters.
fn one_line(text: &str, max_chars: usize) -> Cow<'_, str> {
    let end = text.char_indices().nth(max_chars).map(|(end, _)| end);
    if end.is_none() && !text.contains(is_line_break) {
        return Cow::Borrowed(text);
    }
    let shown = text[..end.unwrap_or(text.len())].replace(is_line_break, " ");
    Cow::Owned(if end.is_some() { format!("{shown}… ({} bytes)", text.len()) } else { shown })
}

const fn is_line_break(character: char) -> bool {
    matches!(character, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}
