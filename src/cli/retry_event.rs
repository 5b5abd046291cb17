//! The event `retry` of `--progress jsonl`: a request is going to be sent again.

use serde_json::json;

use super::output::print_event;
use crate::client::RetryNotice;

tokio::task_local! {
    /// The line of a batch whose request is running.
    static LINE: usize;
}

/// Prints the event, with the line if the request is one of a batch.
pub(super) fn print_retry(notice: &RetryNotice) {
    let RetryNotice { attempt, pause, reason, .. } = notice;
    let mut fields = json!({ "attempt": attempt, "reason": reason.to_string(), "wait_seconds": pause.as_secs_f64() });
    // An error means that there is no batch.
    if let Ok(line) = LINE.try_with(|line| *line) {
        fields["line"] = line.into();
    }
    print_event("retry", fields);
}

/// Does the work of a line of a batch, whose events then have its number.
pub(super) async fn for_line<T>(line: usize, work: impl Future<Output = T>) -> T {
    LINE.scope(line, work).await
}
