//! dropshot's error type in our shape.
//!
//! Errors of handlers go out as answers, because dropshot's errors cannot carry headers; this type exists so that the
//! served description names the error body, and for what dropshot itself refuses.

use dropshot::{ErrorStatusCode, HttpError, HttpResponseError};
use schemars::JsonSchema;
use schemars::r#gen::SchemaGenerator;
use schemars::schema::Schema;
use serde::{Serialize, Serializer};

use crate::error::{Error, Reason, Rejection};
use crate::wire::types;

/// An error that dropshot renders.
#[derive(Debug)]
pub(crate) struct ApiError(Error);

// === impl ApiError ===

impl From<HttpError> for ApiError {
    fn from(error: HttpError) -> Self {
        if error.status_code.is_client_error() {
            Self(Rejection::whole(Reason::InvalidValue, error.external_message).into())
        } else {
            tracing::error!(message = error.internal_message, "the HTTP front failed");
            Self(Error::Internal)
        }
    }
}

impl HttpResponseError for ApiError {
    fn status_code(&self) -> ErrorStatusCode {
        ErrorStatusCode::from_u16(self.0.code().status()).unwrap_or(ErrorStatusCode::INTERNAL_SERVER_ERROR)
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for ApiError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.body().serialize(serializer)
    }
}

impl JsonSchema for ApiError {
    fn schema_name() -> String {
        <types::ErrorResponse as JsonSchema>::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        <types::ErrorResponse as JsonSchema>::json_schema(generator)
    }
}
