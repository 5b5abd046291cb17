//! The parameters in the path of an operation. Their errors wait until the API key is checked.

use async_trait::async_trait;
use dropshot::{
    ApiEndpointBodyContentType, ExtractorMetadata, HttpError, RequestContext, ServerContext, SharedExtractor,
};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::de::value::{Error as ValueError, MapDeserializer};

use super::route::PathVariables;
use crate::error::{Error, Rejection, RejectionReason};

/// The parameters `T` in the path of a request, or the message of the error.
pub(crate) struct PathParameters<T>(Result<T, String>);

// === impl PathParameters ===

impl<T> PathParameters<T> {
    /// Returns the parameters.
    ///
    /// # Errors
    ///
    /// Returns 400 if a parameter has no valid value.
    pub(crate) fn into_value(self) -> Result<T, Error> {
        self.0.map_err(|message| Rejection::for_body(RejectionReason::InvalidValue, message).into())
    }
}

impl<T: DeserializeOwned> PathParameters<T> {
    pub(super) fn from_variables(variables: PathVariables) -> Self {
        let parameters = T::deserialize(MapDeserializer::new(variables.into_iter()));
        Self(parameters.map_err(|error: ValueError| format!("bad parameter in URL path: {error}")))
    }
}

#[async_trait]
impl<T: DeserializeOwned + JsonSchema + Send + Sync + 'static> SharedExtractor for PathParameters<T> {
    async fn from_request<C: ServerContext>(context: &RequestContext<C>) -> Result<Self, HttpError> {
        let parameters = dropshot::Path::from_request(context).await;
        Ok(Self(parameters.map(dropshot::Path::into_inner).map_err(|error| error.external_message)))
    }

    fn metadata(content_type: ApiEndpointBodyContentType) -> ExtractorMetadata {
        <dropshot::Path<T> as SharedExtractor>::metadata(content_type)
    }
}
