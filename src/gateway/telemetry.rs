//! Logs and metrics.
//!
//! The log has one line for each request and for each failure, and goes to standard error. This module must not know
//! prompts, keys or credentials: the module that logs chooses the content of a line, and the metrics are taken from
//! answers and records.

mod connections;
mod error_capture;
mod log;
mod log_throttle;
mod metrics;

pub(crate) use connections::ConnectionMetrics;
pub(crate) use error_capture::ErrorCapture;
pub(crate) use log::LogGuard;
pub(crate) use log_throttle::LogThrottle;
pub(crate) use metrics::{AccountSnapshot, Metrics, MetricsSnapshot};

use std::io::{self, IsTerminal as _};

use tracing_subscriber::EnvFilter;

use crate::gateway::config::LogFormat;
use log::{LogQueue, dropped_lines};

/// The log filter if none is given.
const DEFAULT_FILTER: &str = "imagate=info,warn";

/// The level of the library for MCP in every filter: below it, the library logs whole messages, with prompts and links.
const MESSAGE_LIBRARY_FILTER: &str = "rmcp=warn";

/// Starts the log. `filter` has the syntax of `IMAGATE_LOG`: levels, by module if necessary.
///
/// A filter that cannot be parsed is replaced by the default, and a warning is logged. Panics are logged too.
///
/// # Errors
///
/// Returns an error if the system cannot start the thread that writes.
pub(crate) fn init(filter: Option<&str>, format: LogFormat) -> io::Result<LogGuard> {
    let parsed = filter.map(EnvFilter::try_new);
    let is_invalid = matches!(parsed, Some(Err(_)));
    let mut filter = parsed.and_then(Result::ok).unwrap_or_else(|| EnvFilter::new(DEFAULT_FILTER));
    if let Ok(directive) = MESSAGE_LIBRARY_FILTER.parse() {
        filter = filter.add_directive(directive);
    }
    let report_dropped =
        |lines| tracing::warn!(lines, "{lines} lines of the log were dropped: standard error was not read fast enough");
    let queue = LogQueue::start(io::stderr(), dropped_lines(), report_dropped)?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(queue.clone())
        .with_ansi(io::stderr().is_terminal())
        // The subscriber would print internal errors to standard error, which may block.
        .log_internal_errors(false);
    // Only tests call this twice. The second call keeps the log of the first one.
    let _ = match format {
        LogFormat::Text => log.try_init(),
        LogFormat::Json => log.json().try_init(),
    };
    // The hook of the standard library prints to standard error, which may block.
    std::panic::set_hook(Box::new(|panic| tracing::error!(%panic, "a thread panicked")));
    if is_invalid {
        tracing::warn!("IMAGATE_LOG is not a valid filter and is ignored");
    }
    Ok(queue.guard())
}
