//! The failure of a request that may have been adapted before.

use crate::error::Error;

/// An error, with the changes that were made to its request before. Nothing is adapted silently, so the caller learns of
/// them also if the request fails.
#[derive(Debug)]
pub(crate) struct RequestFailure {
    /// The reason why the request failed.
    pub(crate) error: Error,
    /// The changes, separated by commas, if there are any.
    pub(crate) adapted: Option<String>,
}

// === impl RequestFailure ===

impl RequestFailure {
    pub(super) const fn new(error: Error, adapted: Option<String>) -> Self {
        Self { error, adapted }
    }
}

impl From<Error> for RequestFailure {
    /// The failure of a request that was not adapted.
    fn from(error: Error) -> Self {
        Self { error, adapted: None }
    }
}

impl From<RequestFailure> for Error {
    fn from(failure: RequestFailure) -> Self {
        failure.error
    }
}

/// Returns the error for a request whose body could not be read back from disk: the request itself is not at fault.
pub(super) fn unreadable_body_error(error: &std::io::Error) -> Error {
    tracing::error!(%error, "a request body could not be read back from the spool");
    Error::Unavailable
}
