//! The errors of calls to the admin API.

use std::time::Duration;

use progenitor_client::Error as WireError;
use reqwest::Response;

use super::detail::ServiceErrorDetail;
use super::{Error, ErrorKind};
use crate::client::metadata::AnswerMetadata;
use crate::client::raw_json::lossy_text;
use crate::client::retry;
use crate::client::session::BearerCredentials;
use crate::tables::MAX_JSON_BODY_BYTES;
use crate::wire::admin::open::types::error::ConversionError;

/// A text that is not of a type of the API document.
impl From<ConversionError> for Error {
    fn from(source: ConversionError) -> Self {
        Self::new(ErrorKind::Request, source.to_string())
    }
}

// === impl Error ===

impl Error {
    /// Converts an error of the generated client. `limit` is the time limit of the call.
    pub(in crate::client) async fn from_admin_call(
        error: WireError<()>,
        credentials: &BearerCredentials,
        limit: Duration,
    ) -> Self {
        match error {
            WireError::InvalidRequest(message) | WireError::Custom(message) => Self::new(ErrorKind::Request, message),
            WireError::CommunicationError(source)
            | WireError::InvalidUpgrade(source)
            | WireError::ResponseBodyError(source) => Self::from_admin_transport(source, limit),
            WireError::InvalidResponsePayload(body, source) => {
                let error = Self::new(ErrorKind::Unintelligible, "this version does not understand the answer");
                error.with_source(source).with_body(lossy_text(&body), &credentials.secrets())
            }
            WireError::UnexpectedResponse(response) => Self::from_admin_answer(response, credentials).await,
            // The document for the client describes no answer of an error.
            WireError::ErrorResponse(_) => Self::new(ErrorKind::Unintelligible, "the answer gives no reason"),
        }
    }

    fn from_admin_transport(source: reqwest::Error, limit: Duration) -> Self {
        let error = if retry::was_never_sent(&source) {
            let address = source.url().map(|url| url.origin().ascii_serialization());
            let place = address.map(|address| format!(" at {address}")).unwrap_or_default();
            Self::new(ErrorKind::Connect, format!("the gateway{place} cannot be reached"))
        } else if source.is_timeout() {
            let seconds = limit.as_secs();
            let message = format!("no complete answer within {seconds} s; a change may still have been made");
            Self::new(ErrorKind::Timeout, message)
        } else {
            let message = "the connection broke before the answer was complete; a change may still have been made";
            Self::new(ErrorKind::Broken, message)
        };
        error.with_source(source)
    }

    /// Reads the reason from an answer with a status of an error.
    async fn from_admin_answer(mut response: Response, credentials: &BearerCredentials) -> Self {
        let head = AnswerMetadata::from_response(&response, 0);
        let mut body = Vec::new();
        // The reason is left out if the body breaks off or is too long.
        while let Ok(Some(piece)) = response.chunk().await {
            body.extend_from_slice(&piece);
            if body.len() as u64 > MAX_JSON_BODY_BYTES {
                break;
            }
        }
        let mut detail = ServiceErrorDetail::parse(&lossy_text(&body));
        if detail.message.as_ref().is_none_or(String::is_empty) {
            detail.message = Some(message_of_status(head.status()).to_owned());
        }
        let mut error = Self::from_detail(detail, &credentials.secrets());
        error.0.head = Some(head);
        error
    }
}

/// The message of an answer that gives no reason, because it comes from a proxy or another service.
const fn message_of_status(status: u16) -> &'static str {
    match status {
        200..=399 => "the answer is not that of a gateway, and redirects are not followed: check the address",
        400..=499 => "the answer is not that of a gateway: check the address",
        _ => "the answer gives no reason",
    }
}
