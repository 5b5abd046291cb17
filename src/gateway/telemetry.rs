//! Logs and metrics.
//!
//! Logs are one line for each request and for each thing that went wrong, to standard error.
//! Nothing here knows prompts, keys or credentials; what is logged is chosen where it happens, and what is counted is
//! taken from answers and records.

mod metrics;

pub(crate) use metrics::{AccountNow, Metrics, Now};

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

/// What is logged where nobody says.
const DEFAULT_FILTER: &str = "imagate=info,warn";

/// Begins to log. `filter` is as for `IMAGATE_LOG`: levels, by module if need be.
///
/// A filter that means nothing is answered with the default, and said.
pub(crate) fn init(filter: Option<&str>) {
    let parsed = filter.map(EnvFilter::try_new);
    let bad = matches!(parsed, Some(Err(_)));
    let filter = parsed.and_then(Result::ok).unwrap_or_else(|| EnvFilter::new(DEFAULT_FILTER));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    // A second call is one in a test; the first one's log serves it too.
    let _ = log.try_init();
    if bad {
        tracing::warn!("IMAGATE_LOG means nothing; logging as if it were not set");
    }
}
