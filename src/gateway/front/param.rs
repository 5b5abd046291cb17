//! Path and query parameters that never fail by themselves, so that the key is checked before anything is said.

use async_trait::async_trait;
use dropshot::{
    ApiEndpointBodyContentType, ExtractorMetadata, HttpError, RequestContext, ServerContext, SharedExtractor,
};

use crate::error::{Error, Reason, Rejection};

/// What a shared extractor gave, good or bad.
pub(crate) struct Captured<E>(Result<E, HttpError>);

// === impl Captured ===

impl<E> Captured<E> {
    /// The value.
    ///
    /// # Errors
    ///
    /// 400 where the address does not hold one.
    pub(crate) fn get(self) -> Result<E, Error> {
        self.0.map_err(|error| Rejection::whole(Reason::InvalidValue, error.external_message).into())
    }
}

#[async_trait]
impl<E: SharedExtractor> SharedExtractor for Captured<E> {
    async fn from_request<Context: ServerContext>(context: &RequestContext<Context>) -> Result<Self, HttpError> {
        Ok(Self(E::from_request(context).await))
    }

    fn metadata(content_type: ApiEndpointBodyContentType) -> ExtractorMetadata {
        E::metadata(content_type)
    }
}
