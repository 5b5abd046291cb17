//! Prints results (lines, JSON and tables) to standard output, and messages to standard error.

use std::io::{self, Write as _};

use serde::Serialize;

use crate::gateway::names;

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

/// Prints a message for the user to standard error.
pub(super) fn print_message(text: &str) {
    // The command must not fail because a message cannot be written.
    let _ = writeln!(anstream::stderr().lock(), "{}", escape_controls(text));
}

/// Escapes invisible characters, except line breaks and tabs, in texts from other sources, so that a terminal shows
/// them and neither executes them nor reverses the text.
pub(super) fn escape_controls(text: &str) -> String {
    names::escape_hidden_except(text, |character| matches!(character, '\n' | '\t')).into_owned()
}

/// Formats columns under their headings, each as wide as its widest cell. Invisible characters in cells are escaped.
pub(super) fn table<const N: usize>(headings: [&str; N], rows: &[[String; N]]) -> String {
    let rows: Vec<[String; N]> =
        rows.iter().map(|row| row.each_ref().map(|cell| names::escape_hidden(cell).into_owned())).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([headings[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    let headings = headings.map(str::to_owned);
    for row in [&headings].into_iter().chain(&rows) {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
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

    #[test]
    fn invisible_characters_in_cells_are_escaped() {
        let rows = [["\u{202e}nimda".to_owned(), "a\nb\u{200b}".to_owned()]];
        assert_eq!(table(["ID", "N"], &rows), "ID             N\n\\u{202e}nimda  a\\u{a}b\\u{200b}\n");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["ä".to_owned(), cell(Some(7))], ["long".to_owned(), cell(None::<u8>)]];
        assert_eq!(table(["ID", "N"], &rows), "ID    N\nä     7\nlong  -\n");
    }
}
