//! Logs and metrics.
//!
//! Logs are one line for each request and for each thing that went wrong, to standard error.
//! Nothing here knows prompts, keys or credentials; what is logged is chosen where it happens, and what is counted is
//! taken from answers and records.

mod connections;
mod log;
mod metrics;
mod throttle;

pub(crate) use connections::ConnectionMetrics;
pub(crate) use log::LogGuard;
pub(crate) use metrics::{AccountNow, Metrics, Now};
pub(crate) use throttle::LogThrottle;

use std::io::{self, IsTerminal as _};

use tracing_subscriber::EnvFilter;

use crate::gateway::config::LogFormat;
use log::{LogQueue, dropped_lines};

/// What is logged where nobody says.
const DEFAULT_FILTER: &str = "imagate=info,warn";

/// Begins to log. `filter` is as for `IMAGATE_LOG`: levels, by module if need be.
///
/// A filter that cannot be parsed is replaced by the default, which is logged. Panics are logged too.
///
/// # Errors
///
/// Returns an error if the system cannot start the thread that writes.
pub(crate) fn init(filter: Option<&str>, format: LogFormat) -> io::Result<LogGuard> {
    let parsed = filter.map(EnvFilter::try_new);
    let bad = matches!(parsed, Some(Err(_)));
    let filter = parsed.and_then(Result::ok).unwrap_or_else(|| EnvFilter::new(DEFAULT_FILTER));
    let say = |lines| tracing::warn!(lines, "{lines} lines were dropped: nobody read the log");
    let queue = LogQueue::start(io::stderr(), dropped_lines(), say)?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(queue.clone())
        .with_ansi(io::stderr().is_terminal())
        // Internal errors would be printed to standard error, which may block.
        .log_internal_errors(false);
    // A second call is one in a test; the first one's log serves it too.
    let _ = match format {
        LogFormat::Text => log.try_init(),
        LogFormat::Json => log.json().try_init(),
    };
    // The hook of the standard library prints to standard error, which may block.
    std::panic::set_hook(Box::new(|panic| tracing::error!(%panic, "a thread panicked")));
    if bad {
        tracing::warn!("IMAGATE_LOG means nothing; logging as if it were not set");
    }
    Ok(queue.guard())
}
