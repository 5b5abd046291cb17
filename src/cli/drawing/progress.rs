//! Shows that something is being waited for: a moving line on a terminal, a plain one elsewhere.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::output::remark;

/// Often enough to look alive, seldom enough for a slow line.
const TICK: Duration = Duration::from_millis(120);

/// A wait that is being shown.
pub(super) struct Progress {
    spinner: ProgressBar,
    begun: Instant,
}

// === impl Progress ===

impl Progress {
    pub(super) fn start(message: &str) -> Self {
        // It draws on standard error, and nothing at all where that is no terminal.
        let spinner = ProgressBar::new_spinner();
        if spinner.is_hidden() {
            remark(message);
        } else if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}  {elapsed}") {
            spinner.set_style(style);
            spinner.set_message(message.to_owned());
            spinner.enable_steady_tick(TICK);
        }
        Self { spinner, begun: Instant::now() }
    }

    /// Says how far it is.
    pub(super) fn say(&self, message: &str) {
        if self.spinner.is_hidden() {
            remark(message);
        } else {
            self.spinner.set_message(message.to_owned());
        }
    }

    /// Takes the line away, and says how long it stood.
    pub(super) fn end(self) -> Duration {
        self.spinner.finish_and_clear();
        self.begun.elapsed()
    }
}
