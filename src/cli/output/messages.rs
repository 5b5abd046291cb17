//! Messages on standard error: lines for people, or events in JSON for programs.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::ValueEnum;
use clap::builder::styling::{AnsiColor, Style};
use serde_json::{Value, json};

use super::escape_controls;
use super::terminal::stderr_width;
use super::text::wrap;

const ERROR_LABEL: &str = "error:";
const ERROR: Style = AnsiColor::Red.on_default().bold();
/// As far to the right as the text of an error.
const ADVICE_LABEL: &str = "       advice:";
const ADVICE: Style = AnsiColor::Cyan.on_default();

/// True if standard error gets events. Like the choice of colors, it holds for the whole process.
static HAS_EVENTS: AtomicBool = AtomicBool::new(false);

/// The value of `--progress`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum ProgressArg {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object per line, for programs.
    Jsonl,
}

// === impl ProgressArg ===

impl ProgressArg {
    /// Applies the choice to everything that the process prints to standard error from now on.
    pub(in crate::cli) fn apply(self) {
        HAS_EVENTS.store(self == Self::Jsonl, Ordering::Relaxed);
    }
}

/// Returns true if standard error gets events instead of lines for people.
pub(in crate::cli) fn has_events() -> bool {
    HAS_EVENTS.load(Ordering::Relaxed)
}

/// Prints a message for the user. Its lines fit the width of the terminal. A program gets it as the event `note`.
pub(in crate::cli) fn print_message(text: &str) {
    if has_events() {
        return print_event("note", json!({ "message": text }));
    }
    let text = wrap(&escape_controls(text), stderr_width(), 0, 0);
    // The command must not fail because a message cannot be written.
    let _ = writeln!(anstream::stderr().lock(), "{text}");
}

/// Prints the error of an invalid command line.
pub(in crate::cli) fn print_argument_error(error: &clap::Error) {
    let text = wrap(&error.render().ansi().to_string(), stderr_width(), 0, 0);
    let _ = write!(anstream::stderr().lock(), "{text}");
}

/// Prints an event if a program reads them. `fields` is an object; the name of the event is added as `event`.
pub(in crate::cli) fn print_event(name: &str, mut fields: Value) {
    if has_events() {
        fields["event"] = name.into();
        let _ = writeln!(std::io::stderr().lock(), "{fields}");
    }
}

/// Prints the problems that a command failed with, each on a line of its own, and the advice. A program gets them as the
/// event `failed`.
pub(in crate::cli) fn print_failure(problems: &[String], advice: Option<&str>, exit_code: u8) {
    if has_events() {
        return print_event("failed", json!({ "problems": problems, "advice": advice, "exit_code": exit_code }));
    }
    for problem in problems {
        print_labeled(ERROR_LABEL, ERROR, problem);
    }
    if let Some(advice) = advice {
        print_labeled(ADVICE_LABEL, ADVICE, advice);
    }
}

/// Prints a message with a label. The lines after the first are indented as far as the text.
fn print_labeled(label: &str, style: Style, text: &str) {
    let start = label.len() + 1;
    let text = wrap(&escape_controls(text), stderr_width(), start, start);
    let _ = writeln!(anstream::stderr().lock(), "{style}{label}{style:#} {text}");
}
