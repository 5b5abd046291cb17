//! What can go wrong for a caller, and the one mapping to status, code, headers and retry advice.
//!
//! This room knows nothing of HTTP libraries and nothing of accounts: an [`Error`] holds only what a caller may read.
//! What the log should know beside it is logged where it is known.
//! It carries the error table of the specification and the retry advice of the money rules: clients try again by
//! themselves, so every error says whether that can help and whether it can cost a second image.

mod code;
mod fault;
mod rejection;

pub(crate) use code::Code;
pub(crate) use fault::Fault;
pub(crate) use rejection::{Reason, Rejection};

use serde_json::{Map, Value, json};

/// Why a request got no image. `Display` is what the caller reads.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Error {
    /// The key is absent, unknown, disabled, deleted or expired: the caller is not told which.
    InvalidKey,
    /// Somebody was let in who may not do this.
    Denied,
    /// The owner of a key may not undo an admin's decision about it.
    AdminDecision(AdminDecision),
    /// A parameter, or a combination of them, is not acceptable.
    Invalid(Rejection),
    /// The body, or one part of it, is over its limit.
    TooLarge(Rejection),
    /// A content type that is not read here.
    UnsupportedMedia(String),
    /// A content encoding that is not read here.
    UnsupportedCoding,
    /// There is no such thing at this address.
    NotFound(Missing),
    /// What an operator asks for does not go together with what there is.
    Conflict(Conflict),
    /// The usage window of every account is exhausted.
    UsageLimit(Reset),
    /// Too many requests right now; waiting a little helps.
    RateLimited {
        /// Whole seconds to wait.
        retry_after: u32,
    },
    /// The work goes on, and the same request sent again waits for the same result.
    InProgress,
    /// The unfinished requests of one key leave no room for this one; the text names the exceeded budget.
    HoldsTooMuch(String),
    /// No account may serve this request.
    NoAccounts,
    /// The upstream gave no image.
    Upstream(Fault),
    /// The store does not answer.
    Unavailable,
    /// A fault of the gateway itself.
    Internal,
}

/// What was not found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// A model id.
    Model(String),
    /// A name or id of an upstream account, which only operators ask for, as for the rest down to the records.
    Account(String),
    /// A key, by its id or public id.
    Key(String),
    /// A user, by id or name.
    User(String),
    /// A user whom a parameter names.
    Named {
        /// The parameter.
        param: &'static str,
        /// The id or name in it.
        user: String,
    },
    /// An admin token, by its id or public id.
    Token(String),
    /// A group, by its name.
    Group(String),
    /// A record, by its request id.
    Record(String),
    /// Nothing stands at this address.
    Url {
        /// As sent.
        method: String,
        /// As sent.
        path: String,
    },
    /// The address is known, the method is not.
    Method {
        /// As sent.
        method: String,
        /// As sent.
        path: String,
    },
}

/// An admin's decision about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AdminDecision {
    /// The key is disabled.
    Disabled,
    /// The user is no longer in the key's group.
    LeftGroup,
    /// The key ends at this moment at the latest.
    LatestEnd(String),
}

/// Why an operator cannot have what was asked for. The name is that of what stands in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Conflict {
    /// There is an account of that name.
    Exists(String),
    /// The settings file has the account, and only a change of the file can do this.
    ReadOnly(String),
    /// There is a user of that name.
    UserExists(String),
    /// There is a group of that name.
    GroupExists(String),
    /// Keys belong to the group, or every installation has it.
    GroupInUse(String),
    /// The settings file has the group.
    GroupReadOnly(String),
    /// No other admin could sign in.
    LastAdmin,
    /// A member already has the most keys that a member can have.
    KeyLimit(u32),
}

/// When the earliest account has room again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reset {
    /// Unix seconds, where known.
    pub(crate) at: Option<i64>,
    /// Seconds from now, where known.
    pub(crate) seconds: Option<u64>,
}

/// `Retry-After` is never above this: two well-known clients sleep for whatever it says.
const RETRY_AFTER_MAX: u64 = crate::tables::RETRY_AFTER_MAX_SECONDS;

/// The codings in which a request body is read.
const CODINGS: &str = "zstd, gzip, identity";

// === impl Error ===

impl Error {
    /// The row of the error table.
    pub(crate) fn code(&self) -> Code {
        match self {
            Self::InvalidKey => Code::InvalidApiKey,
            Self::Denied | Self::AdminDecision(_) => Code::PermissionDenied,
            Self::Invalid(_) => Code::InvalidRequest,
            Self::TooLarge(_) => Code::RequestTooLarge,
            Self::UnsupportedMedia(_) | Self::UnsupportedCoding => Code::UnsupportedMediaType,
            Self::NotFound(missing) => missing.code(),
            Self::Conflict(conflict) => conflict.code(),
            Self::UsageLimit(_) => Code::UsageLimitReached,
            Self::RateLimited { .. } | Self::HoldsTooMuch(_) => Code::RateLimitExceeded,
            Self::InProgress => Code::ImageInProgress,
            Self::NoAccounts => Code::NoAvailableAccounts,
            Self::Upstream(_) => Code::UpstreamError,
            Self::Unavailable => Code::ServiceUnavailable,
            Self::Internal => Code::InternalError,
        }
    }

    /// The parameter at fault, where one is.
    pub(crate) fn param(&self) -> Option<&str> {
        match self {
            Self::Invalid(rejection) | Self::TooLarge(rejection) => rejection.param.as_deref(),
            Self::NotFound(Missing::Model(_)) => Some("model"),
            Self::NotFound(Missing::Named { param, .. }) => Some(param),
            Self::AdminDecision(AdminDecision::LatestEnd(_)) => Some("expires_at"),
            Self::Conflict(Conflict::Exists(_) | Conflict::UserExists(_) | Conflict::GroupExists(_)) => Some("name"),
            _ => None,
        }
    }

    /// Whether the same request, sent again by itself, can succeed without paying for an image twice.
    pub(crate) fn should_retry(&self) -> bool {
        match self {
            Self::RateLimited { .. } | Self::InProgress | Self::HoldsTooMuch(_) | Self::Unavailable => true,
            Self::Upstream(fault) => *fault == Fault::Unreachable,
            Self::InvalidKey
            | Self::Denied
            | Self::AdminDecision(_)
            | Self::Invalid(_)
            | Self::TooLarge(_)
            | Self::UnsupportedMedia(_)
            | Self::UnsupportedCoding
            | Self::NotFound(_)
            | Self::Conflict(_)
            | Self::UsageLimit(_)
            | Self::NoAccounts
            | Self::Internal => false,
        }
    }

    /// Whole seconds for `Retry-After`; nothing where the wait is long, because that stands in the body.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        let seconds = match self {
            Self::RateLimited { retry_after } => Some(u64::from(*retry_after)),
            Self::InProgress | Self::HoldsTooMuch(_) => Some(1),
            Self::UsageLimit(reset) => reset.seconds,
            _ => None,
        };
        seconds.filter(|seconds| *seconds <= RETRY_AFTER_MAX)
    }

    /// What `Accept-Encoding` says beside the error, where the coding of the request is what was wrong.
    pub(crate) fn accept_encoding(&self) -> Option<&'static str> {
        (*self == Self::UnsupportedCoding).then_some(CODINGS)
    }

    /// The error body of the contract: always the same nesting, always all four keys.
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
        json!({ "error": detail })
    }

    /// The data of the event for this error.
    pub(crate) fn event(&self) -> String {
        event_of(&self.body()["error"])
    }

    /// The finer word beside the code.
    fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Invalid(rejection) | Self::TooLarge(rejection) => rejection.reason.map(Reason::as_str),
            Self::Upstream(fault) => Some(fault.as_str()),
            _ => None,
        }
    }
}

/// The data of an error event, from the `error` member of an error body: nested for the official SDKs, flat for the
/// others, in the order of the contract.
pub(crate) fn event_of(detail: &Value) -> String {
    let [kind, code, message, param] = ["type", "code", "message", "param"].map(|name| &detail[name]);
    one_line(format!(
        r#"{{"type":"error","code":{code},"message":{message},"param":{param},"error":{{"message":{message},"type":{kind},"param":{param},"code":{code}}}}}"#
    ))
}

/// JSON without the characters that Unicode takes for line ends: clients that split events by them would lose the rest.
/// In JSON they stand in strings only.
pub(crate) fn one_line(json: String) -> String {
    const LINE_ENDS: [char; 3] = ['\u{85}', '\u{2028}', '\u{2029}'];
    if !json.contains(LINE_ENDS) {
        return json;
    }
    json.replace('\u{85}', "\\u0085").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Invalid(rejection) | Self::TooLarge(rejection) => f.write_str(&rejection.message),
            Self::UnsupportedMedia(message) | Self::HoldsTooMuch(message) => f.write_str(message),
            Self::UnsupportedCoding => {
                write!(f, "The header 'Content-Encoding' may name one of these, and only once: {CODINGS}.")
            }
            Self::NotFound(missing) => missing.fmt(f),
            Self::Conflict(conflict) => conflict.fmt(f),
            Self::AdminDecision(decided) => decided.fmt(f),
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

// === impl Missing ===

impl Missing {
    const fn code(&self) -> Code {
        match self {
            Self::Model(_) => Code::ModelNotFound,
            Self::Account(_) => Code::AccountNotFound,
            Self::Key(_) => Code::KeyNotFound,
            Self::User(_) | Self::Named { .. } => Code::UserNotFound,
            Self::Token(_) => Code::TokenNotFound,
            Self::Group(_) => Code::GroupNotFound,
            Self::Record(_) => Code::RecordNotFound,
            Self::Url { .. } => Code::UnknownUrl,
            Self::Method { .. } => Code::MethodNotAllowed,
        }
    }
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Model(id) => write!(f, "The model '{id}' does not exist."),
            Self::Account(name) => write!(f, "There is no account '{name}'."),
            Self::Key(key) => write!(f, "There is no key '{key}'."),
            Self::User(user) | Self::Named { user, .. } => write!(f, "There is no user '{user}'."),
            Self::Token(token) => write!(f, "There is no admin token '{token}'."),
            Self::Group(name) => write!(f, "There is no group '{name}'."),
            Self::Record(id) => write!(f, "There is no record '{id}'."),
            Self::Url { method, path } => write!(f, "Invalid URL ({method} {path})"),
            Self::Method { method, path } => write!(f, "Not allowed to {method} on {path}"),
        }
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
                write!(f, "An admin has set the end of this key: it cannot be later than {end}.")
            }
        }
    }
}

// === impl Conflict ===

impl Conflict {
    const fn code(&self) -> Code {
        match self {
            Self::Exists(_) => Code::AccountExists,
            Self::ReadOnly(_) => Code::AccountReadOnly,
            Self::UserExists(_) => Code::UserExists,
            Self::GroupExists(_) => Code::GroupExists,
            Self::GroupInUse(_) => Code::GroupInUse,
            Self::GroupReadOnly(_) => Code::GroupReadOnly,
            Self::LastAdmin => Code::LastAdmin,
            Self::KeyLimit(_) => Code::KeyLimitReached,
        }
    }
}

impl std::fmt::Display for Conflict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exists(name) => {
                write!(f, "There is an account '{name}' already, in the store or in the settings file.")
            }
            Self::ReadOnly(name) => {
                write!(f, "The account '{name}' stands in the settings file: take it out there, or disable it.")
            }
            Self::UserExists(name) => write!(f, "There is a user '{name}' already, perhaps one that is disabled."),
            Self::GroupExists(name) => {
                write!(f, "There is a group '{name}' already, in the store or in the settings file.")
            }
            Self::GroupInUse(name) => {
                write!(f, "The group '{name}' is in use: every installation has it, or keys belong to it.")
            }
            Self::GroupReadOnly(name) => {
                write!(f, "The group '{name}' stands in the settings file: take it out there.")
            }
            Self::LastAdmin => write!(f, "No other admin could sign in: make another one first."),
            Self::KeyLimit(limit) => {
                let a_day = limit.saturating_mul(10);
                write!(
                    f,
                    "A member can have {limit} keys and delete {a_day} a day: delete one, or ask an admin for another."
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
    fn every_code_has_a_message_of_its_own() {
        let messages: std::collections::BTreeSet<_> = Code::ALL.iter().map(|code| code.message()).collect();
        assert_eq!(messages.len(), Code::ALL.len());
    }

    #[test]
    fn a_refusal_and_an_ambiguous_failure_are_never_to_be_sent_again() {
        let paid = [Fault::Refused, Fault::NoImage, Fault::Broken, Fault::Timeout, Fault::Mismatch, Fault::Unknown];
        for fault in paid.into_iter().chain([Fault::Quota, Fault::Credentials]) {
            assert!(!Error::Upstream(fault).should_retry(), "{fault:?}");
        }
        assert!(Error::Upstream(Fault::Unreachable).should_retry());
    }

    #[test]
    fn a_long_wait_stands_in_the_body_and_not_in_the_header() {
        let far = Error::UsageLimit(Reset { at: Some(1_795_228_664), seconds: Some(3600) });
        assert_eq!(far.retry_after(), None);
        assert_eq!(far.body()["error"]["resets_in_seconds"], 3600);
        assert_eq!(Error::UsageLimit(Reset { at: None, seconds: Some(60) }).retry_after(), Some(60));
    }
}
