//! The colors of results: the heading of a table, and words that say whether something works.

use std::io;

use anstream::{AutoStream, ColorChoice};
use clap::builder::styling::{AnsiColor, Style};

/// The style of headings.
pub(super) const HEADING: Style = Style::new().bold();
/// The style of values that are unknown.
pub(super) const FAINT: Style = Style::new().dimmed();

const GOOD: Style = AnsiColor::Green.on_default();
const NOTABLE: Style = AnsiColor::Yellow.on_default();
const BAD: Style = AnsiColor::Red.on_default();

/// Returns true if results on standard output have colors.
pub(in crate::cli) fn has_color() -> bool {
    AutoStream::choice(&io::stdout()) != ColorChoice::Never
}

/// Returns the text of a state in the color of its first word; a word without a color is returned as it is. The words
/// are those of the columns with states, and of the verdicts of `imagate doctor`.
pub(in crate::cli) fn paint_state(text: &str) -> String {
    let style = match text.split([' ', ':']).next().unwrap_or_default() {
        "active" | "enabled" | "succeeded" | "ok" | "free" => GOOD,
        "cooling_down" | "expired" | "near" | "warning" | "running" | "no" => NOTABLE,
        "disabled" | "failed" | "failing" | "unusable" | "reached" | "problem" | "error" | "lost" | "interrupted" => {
            BAD
        }
        "-" => FAINT,
        _ => return text.to_owned(),
    };
    paint(text, style)
}

/// Returns the text in the style.
pub(super) fn paint(text: &str, style: Style) -> String {
    format!("{style}{text}{style:#}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_has_the_color_of_its_first_word() {
        assert_eq!(paint_state("disabled: invoice open"), "\u{1b}[31mdisabled: invoice open\u{1b}[0m");
        assert_eq!(paint_state("active"), "\u{1b}[32mactive\u{1b}[0m");
        assert_eq!(paint_state("something else"), "something else");
    }
}
