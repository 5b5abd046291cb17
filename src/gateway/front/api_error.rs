//! The error type of handlers for dropshot, with the error body of the API.
//!
//! Handlers send their errors as responses, because the errors of dropshot cannot carry headers. This type exists so
//! that the generated API description contains the error body, and for requests that dropshot itself refuses.

use std::marker::PhantomData;

use dropshot::{ErrorStatusCode, HttpError, HttpResponseError};
use schemars::JsonSchema;
use schemars::r#gen::SchemaGenerator;
use schemars::schema::Schema;
use serde::{Serialize, Serializer};

use crate::error::{Error, Rejection, RejectionReason};
use crate::wire::types;

/// An error that dropshot sends. `T` is the schema of the error body, because each API document has its own.
pub(crate) struct ApiError<T = types::ErrorResponse> {
    error: Error,
    described: PhantomData<fn() -> T>,
}

// === impl ApiError ===

impl<T> From<HttpError> for ApiError<T> {
    fn from(error: HttpError) -> Self {
        let error = if error.status_code.is_client_error() {
            Rejection::for_body(RejectionReason::InvalidValue, error.external_message).into()
        } else {
            tracing::error!(message = error.internal_message, "the HTTP server failed");
            Error::Internal
        };
        Self { error, described: PhantomData }
    }
}

impl<T: JsonSchema + 'static> HttpResponseError for ApiError<T> {
    fn status_code(&self) -> ErrorStatusCode {
        ErrorStatusCode::from_u16(self.error.code().status()).unwrap_or(ErrorStatusCode::INTERNAL_SERVER_ERROR)
    }
}

impl<T> std::fmt::Display for ApiError<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl<T> Serialize for ApiError<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.error.body().serialize(serializer)
    }
}

impl<T: JsonSchema> JsonSchema for ApiError<T> {
    fn schema_name() -> String {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}
