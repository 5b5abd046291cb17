//! The head of an answer, and the errors that are final answers.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::error::{Error, UpstreamFault};

const JSON: &str = "application/json";

/// The status and headers of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AnswerHead {
    /// The HTTP status.
    pub(crate) status: u16,
    /// The media type of the body.
    pub(crate) content_type: String,
    /// The headers of the answer, without those of its connection. The names are in lower case.
    pub(crate) headers: BTreeMap<String, String>,
}

/// An answer of the request flow that can be stored.
pub(crate) trait RecordableAnswer: Send + 'static {
    /// The body, which may still be incomplete.
    type Body: http_body::Body<Data = Bytes, Error: std::fmt::Display + Send> + Send + Unpin + 'static;

    /// Splits the answer into its head and its body.
    fn into_parts(self) -> (AnswerHead, Self::Body);
}

/// True if a repeat must get this error again: the job may have been charged, or the refusal is permanent. Any other
/// error cost nothing, so a repeat runs a new job.
pub(super) fn is_final(error: &Error) -> bool {
    match error {
        Error::ModelText(fault, _) => is_final(&Error::Upstream(*fault)),
        Error::Upstream(
            UpstreamFault::NothingDone
            | UpstreamFault::Failed
            | UpstreamFault::NotOffered
            | UpstreamFault::RequestRejected
            | UpstreamFault::Quota
            | UpstreamFault::Credentials,
        ) => false,
        Error::Upstream(
            UpstreamFault::ContentRefused
            | UpstreamFault::NoImage
            | UpstreamFault::AsyncTask
            | UpstreamFault::ImageByAddress
            | UpstreamFault::UnknownCoding
            | UpstreamFault::TextInsteadOfImage
            | UpstreamFault::Broken
            | UpstreamFault::Timeout
            | UpstreamFault::Mismatch
            | UpstreamFault::Unknown,
        ) => true,
        // An internal error may have happened at any point.
        Error::Internal => true,
        Error::InvalidKey
        | Error::UndeclaredKeyHeader
        | Error::Denied
        | Error::ForeignOrigin(_)
        | Error::AdminDecision(_)
        | Error::Invalid(_)
        | Error::UnreadableContext(_)
        | Error::TooLarge(_)
        | Error::UnsupportedMedia(_)
        | Error::UnsupportedEncoding
        | Error::NotFound(_)
        | Error::Conflict(_)
        | Error::UsageLimit(_)
        | Error::RateLimited { .. }
        | Error::InProgress
        | Error::BudgetExceeded(_)
        | Error::LimitReached(_)
        | Error::PriceUnknown(_)
        | Error::NoAccounts
        | Error::Unavailable
        | Error::StorageFull => false,
    }
}

/// Returns an error as the answer that its caller gets.
pub(super) fn error_answer(error: &Error) -> (AnswerHead, Bytes) {
    let mut headers = BTreeMap::from([("x-should-retry".to_owned(), error.should_retry().to_string())]);
    if let Some(seconds) = error.retry_after() {
        headers.insert("retry-after".to_owned(), seconds.to_string());
    }
    let head = AnswerHead { status: error.code().status(), content_type: JSON.to_owned(), headers };
    (head, Bytes::from(error.body().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::UsageReset;

    #[test]
    fn an_error_that_may_be_retried_is_not_final() {
        for fault in [
            UpstreamFault::ContentRefused,
            UpstreamFault::NoImage,
            UpstreamFault::Broken,
            UpstreamFault::Timeout,
            UpstreamFault::Mismatch,
        ] {
            assert!(is_final(&Error::Upstream(fault)), "{fault:?}");
        }
        for error in
            [Error::Upstream(UpstreamFault::NothingDone), Error::Unavailable, Error::RateLimited { retry_after: 1 }]
        {
            assert!(error.should_retry() && !is_final(&error), "{error:?}");
        }
        assert!(!is_final(&Error::UsageLimit(UsageReset::default())), "the usage limit is reset");
        assert!(is_final(&Error::Internal));
    }

    #[test]
    fn a_stored_error_keeps_its_retry_headers() {
        let (head, body) = error_answer(&Error::RateLimited { retry_after: 7 });
        assert_eq!((head.status, head.headers["retry-after"].as_str()), (429, "7"));
        assert_eq!(head.headers["x-should-retry"], "true");
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["error"]["code"], "rate_limit_exceeded");
        assert_eq!(error_answer(&Error::Upstream(UpstreamFault::Timeout)).0.headers["x-should-retry"], "false");
    }
}
