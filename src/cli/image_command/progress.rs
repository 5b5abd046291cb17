//! Shows progress during a wait: a moving line on a terminal, plain lines elsewhere.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::output::{has_events, print_message};

/// The time between two updates of the line (our choice).
const TICK: Duration = Duration::from_millis(120);

/// The progress display of one wait.
pub(in crate::cli) struct ProgressDisplay {
    spinner: ProgressBar,
    started_at: Instant,
}

// === impl ProgressDisplay ===

impl ProgressDisplay {
    pub(in crate::cli) fn start(message: &str) -> Self {
        // The spinner draws on standard error, and draws nothing if standard error is not a terminal.
        let spinner = if has_events() { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        if has_events() {
            // The command prints events of its own.
        } else if spinner.is_hidden() {
            print_message(message);
        } else if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}  {elapsed}") {
            spinner.set_style(style);
            spinner.set_message(message.to_owned());
            spinner.enable_steady_tick(TICK);
        }
        Self { spinner, started_at: Instant::now() }
    }

    /// Removes the line during the action, which prints something itself.
    pub(in crate::cli) fn suspend<T>(&self, action: impl FnOnce() -> T) -> T {
        self.spinner.suspend(action)
    }

    /// Shows the current progress.
    pub(in crate::cli) fn update(&self, message: &str) {
        if self.spinner.is_hidden() && !has_events() {
            print_message(message);
        } else {
            self.spinner.set_message(message.to_owned());
        }
    }

    /// Shows the current progress on a terminal only.
    pub(in crate::cli) fn draw(&self, message: &str) {
        self.spinner.set_message(message.to_owned());
    }

    /// Removes the line, and returns the time since the start.
    pub(in crate::cli) fn end(self) -> Duration {
        self.spinner.finish_and_clear();
        self.started_at.elapsed()
    }
}
