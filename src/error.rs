//! The errors that a caller can receive, and the only mapping to status, code, headers and retry advice.
//!
//! This module must not depend on HTTP libraries or accounts: an [`Error`] holds only text for the caller. Details for
//! the log are logged at the place where they are known. The module implements the error table of the specification and
//! the retry advice of the money rules: clients retry automatically, so every error states whether a retry can help and
//! whether it can cost a second image.

mod code;
mod fault;
mod limit_refusal;
mod missing_resource;
mod rejection;
mod url_advice;

pub(crate) use code::ApiErrorCode;
pub(crate) use fault::UpstreamFault;
pub(crate) use limit_refusal::LimitRefusal;
pub(crate) use missing_resource::MissingResource;
pub(crate) use rejection::{Rejection, RejectionReason};

use serde_json::{Map, Value, json};

/// The reason why a request failed. `Display` writes the text for the caller.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Error {
    /// The key is absent, unknown, disabled, deleted or expired; the answer does not say which.
    InvalidKey,
    /// The key is valid, but it is in the header `api-key`, which needs the dialect `azure`.
    UndeclaredKeyHeader,
    /// The authenticated caller is not permitted to do this.
    Denied,
    /// A page of this origin, as the browser states it, may not call.
    ForeignOrigin(String),
    /// The owner of a key may not undo a decision of an admin about the key.
    AdminDecision(AdminDecision),
    /// A parameter, or a combination of parameters, is not acceptable.
    Invalid(Rejection),
    /// No account can read encrypted content of the request.
    UnreadableContext(Rejection),
    /// The body, or one part of it, exceeds its limit.
    TooLarge(Rejection),
    /// The content type is not supported here.
    UnsupportedMedia(String),
    /// The content encoding is not supported here.
    UnsupportedEncoding,
    /// The requested resource does not exist.
    NotFound(MissingResource),
    /// A change that a user or an operator requests conflicts with the current state.
    Conflict(ResourceConflict),
    /// The usage window of every account is exhausted.
    UsageLimit(UsageReset),
    /// There are too many requests at the moment; a short wait helps.
    RateLimited {
        /// The number of whole seconds to wait.
        retry_after: u32,
    },
    /// A limit of the key, its user or its group is reached.
    LimitReached(Box<LimitRefusal>),
    /// There is a budget, and this model has no price, so the cost cannot be limited.
    PriceUnknown(String),
    /// The job still runs; the same request, sent again, waits for the same result.
    InProgress,
    /// The unfinished requests of one key leave no budget for this one; the text names the exceeded budget.
    BudgetExceeded(String),
    /// No account may serve this request.
    NoAccounts,
    /// The upstream gave no image.
    Upstream(UpstreamFault),
    /// A model of the upstream has written a text in place of an image, which begins with these words.
    ModelText(UpstreamFault, String),
    /// The store does not answer.
    Unavailable,
    /// The disk has no space for the images of a request that are shown from the stored answer; nothing was spent.
    StorageFull,
    /// A fault of the gateway itself.
    Internal,
}

/// A decision of an admin about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AdminDecision {
    /// The key is disabled.
    Disabled,
    /// The user no longer belongs to the group of the key.
    LeftGroup,
    /// The key must end at this moment or earlier.
    LatestEnd(String),
}

/// The reason why a change is refused; each variant names the obstacle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ResourceConflict {
    /// An account has this name already.
    Exists(String),
    /// The account comes from the settings file, so the requested change can only be made in that file.
    ReadOnly(String),
    /// A user has this name already.
    UserExists(String),
    /// A group has this name already.
    GroupExists(String),
    /// Keys belong to the group, or it is the group that every installation has.
    GroupInUse(String),
    /// The group comes from the settings file.
    GroupReadOnly(String),
    /// The price comes from the settings file.
    PriceReadOnly(String),
    /// No other admin would be able to sign in.
    LastAdmin,
    /// The member already has this maximum number of keys, or has deleted too many keys within a day.
    KeyLimit(u32),
    /// The user has this number of admin tokens already.
    TokenLimit(u32),
}

/// The moment at which the first account has capacity again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UsageReset {
    /// The moment in Unix seconds, if it is known.
    pub(crate) at: Option<i64>,
    /// The number of seconds from now, if it is known.
    pub(crate) seconds: Option<u64>,
}

/// The maximum of `Retry-After`. Two well-known clients wait as long as the header says, however long that is.
const RETRY_AFTER_MAX: u64 = crate::tables::RETRY_AFTER_MAX_SECONDS;

/// The seconds after which a request whose answer has no disk space may be sent again (our choice): running answers give
/// their space back after some seconds.
const STORAGE_RETRY_AFTER: u64 = 5;

/// The content encodings that request bodies may have.
const CONTENT_ENCODINGS: &str = "zstd, gzip, identity";

// === impl Error ===

impl Error {
    /// Returns the row of the error table for this error.
    pub(crate) fn code(&self) -> ApiErrorCode {
        match self {
            Self::InvalidKey | Self::UndeclaredKeyHeader => ApiErrorCode::InvalidApiKey,
            Self::Denied | Self::ForeignOrigin(_) | Self::AdminDecision(_) => ApiErrorCode::PermissionDenied,
            Self::Invalid(_) => ApiErrorCode::InvalidRequestError,
            Self::UnreadableContext(_) => ApiErrorCode::InvalidEncryptedContent,
            Self::TooLarge(_) => ApiErrorCode::RequestTooLarge,
            Self::UnsupportedMedia(_) | Self::UnsupportedEncoding => ApiErrorCode::UnsupportedMediaType,
            Self::NotFound(missing) => missing.code(),
            Self::Conflict(conflict) => conflict.code(),
            Self::UsageLimit(_) => ApiErrorCode::UsageLimitReached,
            Self::RateLimited { .. } | Self::BudgetExceeded(_) => ApiErrorCode::RateLimitExceeded,
            Self::LimitReached(refusal) if refusal.is_quota => ApiErrorCode::InsufficientQuota,
            Self::LimitReached(_) => ApiErrorCode::RateLimitExceeded,
            Self::PriceUnknown(_) => ApiErrorCode::PriceUnknown,
            Self::InProgress => ApiErrorCode::ImageInProgress,
            Self::NoAccounts => ApiErrorCode::NoAvailableAccounts,
            Self::Upstream(_) | Self::ModelText(..) => ApiErrorCode::UpstreamError,
            Self::Unavailable | Self::StorageFull => ApiErrorCode::ServiceUnavailable,
            Self::Internal => ApiErrorCode::InternalError,
        }
    }

    /// Returns the parameter at fault, if there is one.
    pub(crate) fn param(&self) -> Option<&str> {
        match self {
            Self::Invalid(rejection) | Self::UnreadableContext(rejection) | Self::TooLarge(rejection) => {
                rejection.param.as_deref()
            }
            Self::NotFound(MissingResource::Model(_)) => Some("model"),
            Self::NotFound(MissingResource::UserParam { param, .. }) => Some(param),
            Self::AdminDecision(AdminDecision::LatestEnd(_)) => Some("expires_at"),
            Self::Conflict(
                ResourceConflict::Exists(_) | ResourceConflict::UserExists(_) | ResourceConflict::GroupExists(_),
            ) => Some("name"),
            _ => None,
        }
    }

    /// Returns true if the same request, sent again automatically, can succeed without paying for an image twice.
    pub(crate) fn should_retry(&self) -> bool {
        match self {
            Self::RateLimited { .. }
            | Self::InProgress
            | Self::BudgetExceeded(_)
            | Self::Unavailable
            | Self::StorageFull => true,
            Self::LimitReached(refusal) => !refusal.is_quota,
            Self::Upstream(fault) | Self::ModelText(fault, _) => {
                matches!(fault, UpstreamFault::NothingDone | UpstreamFault::Failed)
            }
            Self::InvalidKey
            | Self::UndeclaredKeyHeader
            | Self::Denied
            | Self::ForeignOrigin(_)
            | Self::AdminDecision(_)
            | Self::Invalid(_)
            | Self::UnreadableContext(_)
            | Self::TooLarge(_)
            | Self::UnsupportedMedia(_)
            | Self::UnsupportedEncoding
            | Self::NotFound(_)
            | Self::Conflict(_)
            | Self::UsageLimit(_)
            | Self::PriceUnknown(_)
            | Self::NoAccounts
            | Self::Internal => false,
        }
    }

    /// Returns the whole seconds for `Retry-After`; `None` if the error asks for no wait, or if the wait is unknown or
    /// longer than the maximum. Only the body states a longer wait.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        let seconds = match self {
            Self::RateLimited { retry_after } => Some(u64::from(*retry_after)),
            Self::InProgress | Self::BudgetExceeded(_) => Some(1),
            Self::StorageFull => Some(STORAGE_RETRY_AFTER),
            Self::UsageLimit(reset) => reset.seconds,
            Self::LimitReached(refusal) => Some(refusal.wait_seconds),
            _ => None,
        };
        seconds.filter(|seconds| *seconds <= RETRY_AFTER_MAX)
    }

    /// Returns the value of `Accept-Encoding` for the answer if the content encoding of the request caused the error.
    pub(crate) fn accept_encoding(&self) -> Option<&'static str> {
        (*self == Self::UnsupportedEncoding).then_some(CONTENT_ENCODINGS)
    }

    /// Builds the error body of the contract: the nesting is always the same, and all four keys are always present.
    pub(crate) fn body(&self) -> Value {
        let code = self.code();
        let mut detail = Map::new();
        detail.insert("message".to_owned(), Value::String(self.to_string()));
        detail.insert("type".to_owned(), code.kind().into());
        detail.insert("param".to_owned(), self.param().into());
        detail.insert("code".to_owned(), code.as_str().into());
        if let Some(reason) = self.reason() {
            detail.insert("reason".to_owned(), reason.into());
        }
        if let Self::UsageLimit(reset) = self {
            detail.extend(reset.at.map(|at| ("resets_at".to_owned(), at.into())));
            detail.extend(reset.seconds.map(|seconds| ("resets_in_seconds".to_owned(), seconds.into())));
        }
        if let Self::LimitReached(refusal) = self {
            detail.insert("limit".to_owned(), refusal.limit.into());
            detail.insert("limit_scope".to_owned(), refusal.scope.into());
            detail.insert("limit_value".to_owned(), refusal.value.as_str().into());
            detail.extend(refusal.resets_at.map(|at| ("resets_at".to_owned(), at.into())));
            detail.insert("resets_in_seconds".to_owned(), refusal.wait_seconds.into());
        }
        json!({ "error": detail })
    }

    /// Builds the data of the stream event for this error.
    pub(crate) fn event(&self) -> String {
        error_event(&self.body()["error"])
    }

    /// Returns `error.reason`, which is more specific than the code, if there is one.
    fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Invalid(rejection) | Self::TooLarge(rejection) => rejection.reason.map(RejectionReason::as_str),
            Self::Upstream(fault) | Self::ModelText(fault, _) => Some(fault.as_str()),
            _ => None,
        }
    }
}

/// Builds the data of an error event from the `error` member of an error body: nested for the official SDKs, flat for
/// other clients, in the order of the contract.
pub(crate) fn error_event(detail: &Value) -> String {
    let [kind, code, message, param] = ["type", "code", "message", "param"].map(|name| &detail[name]);
    crate::wire::escape_line_ends(format!(
        r#"{{"type":"error","code":{code},"message":{message},"param":{param},"error":{{"message":{message},"type":{kind},"param":{param},"code":{code}}}}}"#
    ))
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Invalid(rejection) | Self::UnreadableContext(rejection) | Self::TooLarge(rejection) => {
                f.write_str(&rejection.message)
            }
            Self::UnsupportedMedia(message) | Self::BudgetExceeded(message) => f.write_str(message),
            Self::UnsupportedEncoding => {
                write!(f, "The header 'Content-Encoding' must name exactly one of these: {CONTENT_ENCODINGS}.")
            }
            Self::LimitReached(refusal) => refusal.fmt(f),
            Self::ForeignOrigin(origin) => write!(
                f,
                "A page of the origin '{origin}' may not call this address. The setting 'cors_origins' lists the origins \
                 whose pages may."
            ),
            Self::UndeclaredKeyHeader => f.write_str(
                "The key must be in the header 'Authorization: Bearer'. The dialect 'azure' accepts the header 'api-key'; \
                 an administrator can declare it for the key or its group.",
            ),
            Self::PriceUnknown(model) => {
                write!(f, "There is a budget, but the model '{model}' has no price, so its cost cannot be limited.")
            }
            Self::StorageFull => f.write_str(
                "The gateway has no disk space for the images of this request at the moment. Nothing was spent; send the \
                 same request again later.",
            ),
            Self::ModelText(_, words) => write!(f, "{}: the model wrote \"{words}\"", self.code().message()),
            Self::NotFound(missing) => missing.fmt(f),
            Self::Conflict(conflict) => conflict.fmt(f),
            Self::AdminDecision(decision) => decision.fmt(f),
            Self::InvalidKey
            | Self::Denied
            | Self::UsageLimit(_)
            | Self::RateLimited { .. }
            | Self::InProgress
            | Self::NoAccounts
            | Self::Upstream(_)
            | Self::Unavailable
            | Self::Internal => f.write_str(self.code().message()),
        }
    }
}

impl std::error::Error for Error {}

impl From<Rejection> for Error {
    fn from(rejection: Rejection) -> Self {
        Self::Invalid(rejection)
    }
}

// === impl AdminDecision ===

impl std::fmt::Display for AdminDecision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Disabled => f.write_str("An admin has disabled this key: only an admin can enable or rotate it."),
            Self::LeftGroup => f.write_str(
                "This key was disabled when its user left its group: only an admin can enable or rotate it.",
            ),
            Self::LatestEnd(end) => {
                write!(f, "An admin has set the expiry of this key: it cannot be later than {end}.")
            }
        }
    }
}

// === impl ResourceConflict ===

impl ResourceConflict {
    const fn code(&self) -> ApiErrorCode {
        match self {
            Self::Exists(_) => ApiErrorCode::AccountExists,
            Self::ReadOnly(_) => ApiErrorCode::AccountReadOnly,
            Self::UserExists(_) => ApiErrorCode::UserExists,
            Self::GroupExists(_) => ApiErrorCode::GroupExists,
            Self::GroupInUse(_) => ApiErrorCode::GroupInUse,
            Self::GroupReadOnly(_) => ApiErrorCode::GroupReadOnly,
            Self::PriceReadOnly(_) => ApiErrorCode::PriceReadOnly,
            Self::LastAdmin => ApiErrorCode::LastAdmin,
            Self::KeyLimit(_) => ApiErrorCode::KeyLimitReached,
            Self::TokenLimit(_) => ApiErrorCode::TokenLimitReached,
        }
    }
}

impl std::fmt::Display for ResourceConflict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exists(name) => {
                write!(f, "The account '{name}' already exists in the store or in the settings file.")
            }
            Self::ReadOnly(name) => {
                write!(f, "The account '{name}' is defined in the settings file: remove it there, or disable it.")
            }
            Self::UserExists(name) => write!(f, "The user '{name}' already exists; it may be disabled."),
            Self::GroupExists(name) => {
                write!(f, "The group '{name}' already exists in the store or in the settings file.")
            }
            Self::GroupInUse(name) => {
                write!(f, "The group '{name}' cannot be deleted: it has keys, or it is the group 'default'.")
            }
            Self::GroupReadOnly(name) => {
                write!(f, "The group '{name}' is defined in the settings file: change or remove it there.")
            }
            Self::PriceReadOnly(price) => {
                write!(f, "The price of {price} is defined in the settings file: change or remove it there.")
            }
            Self::LastAdmin => write!(f, "No other admin could sign in: make another user an admin first."),
            Self::TokenLimit(limit) => {
                write!(f, "A user can have at most {limit} admin tokens: delete one that is no longer used.")
            }
            Self::KeyLimit(limit) => {
                let daily_limit = limit.saturating_mul(10);
                write!(
                    f,
                    "A member can have at most {limit} keys, and cannot create another after deleting {daily_limit} within a day: delete a key if there are {limit}, otherwise wait, or ask an admin to create one."
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_has_all_four_keys_and_the_nesting() {
        assert_eq!(
            Error::InvalidKey.body(),
            json!({"error": {"message": "Invalid API key", "type": "authentication_error", "param": null, "code": "INVALID_API_KEY"}})
        );
    }

    #[test]
    fn an_error_event_contains_no_unicode_line_separator() {
        let error = Error::NotFound(MissingResource::Model("a\u{2028}b".to_owned()));
        let event = error.event();
        assert!(!event.contains('\u{2028}'), "{event}");
        let parsed: Value = serde_json::from_str(&event).expect("JSON");
        assert_eq!(parsed["message"], error.to_string());
    }

    #[test]
    fn every_code_has_a_message_of_its_own() {
        let messages: std::collections::BTreeSet<_> = ApiErrorCode::ALL.iter().map(|code| code.message()).collect();
        assert_eq!(messages.len(), ApiErrorCode::ALL.len());
    }

    #[test]
    fn refusals_and_ambiguous_failures_advise_against_a_retry() {
        let refused_or_ambiguous = [
            UpstreamFault::ContentRefused,
            UpstreamFault::NoImage,
            UpstreamFault::Broken,
            UpstreamFault::Timeout,
            UpstreamFault::Mismatch,
            UpstreamFault::Unknown,
        ];
        for fault in refused_or_ambiguous.into_iter().chain([UpstreamFault::Quota, UpstreamFault::Credentials]) {
            assert!(!Error::Upstream(fault).should_retry(), "{fault:?}");
        }
        assert!(Error::Upstream(UpstreamFault::NothingDone).should_retry());
    }

    #[test]
    fn a_long_wait_is_in_the_body_and_not_in_the_header() {
        let long_wait = Error::UsageLimit(UsageReset { at: Some(1_795_228_664), seconds: Some(3600) });
        assert_eq!(long_wait.retry_after(), None);
        assert_eq!(long_wait.body()["error"]["resets_in_seconds"], 3600);
        assert_eq!(Error::UsageLimit(UsageReset { at: None, seconds: Some(60) }).retry_after(), Some(60));
    }
}
