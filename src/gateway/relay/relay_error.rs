//! The reasons why an answer breaks off.

use crate::stream::json::JsonSyntaxError;

/// The reason why an answer broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RelayError {
    #[error("the upstream's answer is malformed: {0}")]
    Malformed(#[from] MalformedAnswer),
    #[error("the upstream's connection broke during its answer")]
    Connection,
    #[error("the upstream stopped sending during its answer")]
    Timeout,
    #[error("the upstream reported an error during its answer")]
    UpstreamFailed,
    #[error("the upstream's answer is too large to be an image")]
    TooLarge,
    #[error("the upstream's events ended before the final image")]
    Incomplete,
    #[error("the caller reads the answer too slowly")]
    CallerTooSlow,
    #[error("a stored image cannot be read back")]
    SpoolUnreadable,
    #[error("the gateway stopped before the upstream's answer was complete")]
    Cutoff,
}

/// The body is not the promised JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MalformedAnswer {
    #[error(transparent)]
    Json(#[from] JsonSyntaxError),
    #[error("the data of an image is not base64")]
    Base64,
    #[error("the answer cannot be decoded")]
    Coding,
}

impl From<JsonSyntaxError> for RelayError {
    fn from(error: JsonSyntaxError) -> Self {
        Self::Malformed(error.into())
    }
}
