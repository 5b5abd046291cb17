//! Counts unusable requests for their API keys, because they leave no record.

use crate::error::Error;
use crate::gateway::keys::{ApiKeys, Caller};

/// Returns the result of reading a request, and counts an unusable request for its API key.
///
/// # Errors
///
/// Returns the error of `result`.
pub(crate) fn count_if_refused<T, E: Into<Error>>(
    keys: &ApiKeys,
    caller: &Caller,
    result: Result<T, E>,
) -> Result<T, Error> {
    result.map_err(Into::into).inspect_err(|error| count_refusal(keys, caller, error))
}

/// Counts an unusable request for its API key, if this error states that it is one.
pub(super) fn count_refusal(keys: &ApiKeys, caller: &Caller, error: &Error) {
    // A request whose caller left is not counted as refused, and a request that exceeds a current limit may be accepted
    // later.
    if matches!(error.code().status(), 400 | 404 | 413 | 415) {
        keys.note_refusal(caller);
    }
}
