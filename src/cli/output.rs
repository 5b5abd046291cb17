//! Prints results (lines, JSON and tables) to standard output, and messages to standard error.
//!
//! A result on a terminal is for a person: it fits the width, its times are relative, and its states have colors. A
//! result in a pipe or a file is for a program: it is complete, its times are absolute, and it has no colors unless
//! they are forced.

mod messages;
mod picture;
mod relative_time;
mod style;
mod table;
mod terminal;
mod text;

use std::io::{self, Write as _};

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::gateway::names;
use crate::gateway::store::Timestamp;

pub(super) use messages::{ProgressArg, has_events, print_argument_error, print_event, print_failure, print_message};
pub(super) use picture::{PictureProtocol, ShowArg};
pub(super) use style::{has_color, paint_state};
pub(super) use table::{Column, table};
pub(super) use terminal::ColorArg;
use terminal::stdout_width;

/// Prints a result.
pub(super) fn print(text: &str) -> io::Result<()> {
    print_bytes(text.as_bytes())
}

/// Prints a result that is not text.
pub(super) fn print_bytes(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    let printed = stdout.write_all(bytes).and_then(|()| stdout.flush());
    // The error kind is kept, because a command does not fail if the reader of standard output has closed it.
    printed.map_err(|error| io::Error::new(error.kind(), format!("standard output cannot be written: {error}")))
}

/// Prints a result as one line of JSON.
pub(super) fn print_json(value: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_string(value)?;
    text.push('\n');
    print(&text)
}

/// Returns one line of JSON for each value.
pub(super) fn json_lines<T: Serialize>(values: impl IntoIterator<Item = T>) -> serde_json::Result<String> {
    let lines: Result<Vec<String>, _> = values.into_iter().map(|value| serde_json::to_string(&value)).collect();
    Ok(lines?.iter().map(|line| format!("{line}\n")).collect())
}

/// Breaks the lines of a result between words, if standard output is a terminal. The first line has room for a label as
/// long as the indentation.
pub(super) fn wrap(text: &str, indentation: usize) -> String {
    text::wrap(text, stdout_width(), indentation, indentation)
}

/// Wraps a text after this number of columns.
pub(super) fn wrap_to(text: &str, width: usize) -> String {
    text::wrap(text, Some(width), 0, 0)
}

/// Escapes invisible characters, except line breaks and tabs, in texts from other sources, so that a terminal shows
/// them and neither executes them nor reverses the text.
pub(super) fn escape_controls(text: &str) -> String {
    names::escape_hidden_except(text, |character| matches!(character, '\n' | '\t')).into_owned()
}

/// Formats a time in RFC 3339, for a cell or a message.
pub(super) fn moment(at: DateTime<Utc>) -> String {
    Timestamp::from(at).to_string()
}

/// Formats the content of a cell; an unknown value is shown as a dash.
pub(super) fn cell<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escape_controls("\u{1b}[2J\u{9b}m\r\u{202e}x"), "\\u{1b}[2J\\u{9b}m\\u{d}\\u{202e}x");
        assert_eq!(escape_controls("two\nlines\tof größe, \\ and \u{1f3a8}"), "two\nlines\tof größe, \\ and \u{1f3a8}");
    }
}
