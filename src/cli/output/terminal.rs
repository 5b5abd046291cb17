//! The terminals that standard output and standard error are connected to: their width, and the option `--color`.

use std::io::{self, IsTerminal as _};

use anstream::ColorChoice;
use clap::ValueEnum;
use terminal_size::{Height, Width, terminal_size_of};

use crate::gateway::config::{HostEnvironment as _, SystemEnvironment};

/// The smallest width that is used, in columns (our choice): texts are not fitted to a smaller one.
const MIN_WIDTH: usize = 40;
/// The width of a terminal that does not report its width, in columns (our choice).
const DEFAULT_WIDTH: usize = 80;

/// The value of `--color`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum ColorArg {
    /// Colors on a terminal, unless `NO_COLOR` is set or `TERM` is `dumb`; elsewhere if `CLICOLOR_FORCE` is set.
    #[default]
    Auto,
    /// Colors also in a pipe or a file.
    Always,
    /// No colors.
    Never,
}

// === impl ColorArg ===

impl ColorArg {
    /// Applies the choice to everything that the process prints from now on.
    pub(in crate::cli) fn apply(self) {
        let choice = match self {
            Self::Auto => ColorChoice::Auto,
            Self::Always => ColorChoice::Always,
            Self::Never => ColorChoice::Never,
        };
        choice.write_global();
    }
}

/// Returns the number of columns of standard output, or `None` if it is not a terminal.
pub(super) fn stdout_width() -> Option<usize> {
    let stdout = io::stdout();
    stdout.is_terminal().then(|| width_of(terminal_size_of(&stdout)))
}

/// Returns the number of columns of standard error, or `None` if it is not a terminal.
pub(super) fn stderr_width() -> Option<usize> {
    let stderr = io::stderr();
    stderr.is_terminal().then(|| width_of(terminal_size_of(&stderr)))
}

/// Returns `COLUMNS` if it is a number, and otherwise the width that the terminal reports.
/// `COLUMNS` comes first, because users set it for terminals that report a wrong width.
fn width_of(size: Option<(Width, Height)>) -> usize {
    let variable = SystemEnvironment.variable("COLUMNS").and_then(|value| value.to_str()?.parse().ok());
    let reported = size.map(|(Width(width), _)| usize::from(width));
    let width = [variable, reported].into_iter().flatten().find(|width| *width > 0);
    width.unwrap_or(DEFAULT_WIDTH).max(MIN_WIDTH)
}
