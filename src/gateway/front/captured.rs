//! A wrapper for the extractors of path and query parameters that delays their errors, so that the API key is checked
//! before any error is returned.

use async_trait::async_trait;
use dropshot::{
    ApiEndpointBodyContentType, ExtractorMetadata, HttpError, RequestContext, ServerContext, SharedExtractor,
};

use crate::error::{Error, Rejection, RejectionReason};

/// The result of the extractor `E`. The extraction itself never fails; the handler reads the result when it wants to.
pub(crate) struct ExtractorResult<E>(Result<E, HttpError>);

// === impl ExtractorResult ===

impl<E> ExtractorResult<E> {
    /// Returns the extracted value.
    ///
    /// # Errors
    ///
    /// Returns 400 if the path or the query of the request has no valid value.
    pub(crate) fn into_value(self) -> Result<E, Error> {
        self.0.map_err(|error| Rejection::for_body(RejectionReason::InvalidValue, error.external_message).into())
    }
}

#[async_trait]
impl<E: SharedExtractor> SharedExtractor for ExtractorResult<E> {
    async fn from_request<Context: ServerContext>(context: &RequestContext<Context>) -> Result<Self, HttpError> {
        Ok(Self(E::from_request(context).await))
    }

    fn metadata(content_type: ApiEndpointBodyContentType) -> ExtractorMetadata {
        E::metadata(content_type)
    }
}
