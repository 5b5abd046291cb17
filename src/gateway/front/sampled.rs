//! One answer for each kind of error, as a caller would get it: for the drift test.
//!
//! Decides nothing. A new kind of error does not compile before it has a sample here.

use http::HeaderMap;
use serde_json::{Map, Value, json};

use super::answer::refusal;
use crate::error::{AdminDecision, Conflict, Error, Fault, Missing, Reason, Rejection, Reset};

/// The samples of a type: a pattern for each kind, so that none can be left out.
macro_rules! samples {
    ($type:ty: $($pattern:pat => $sample:expr,)+) => {{
        const _: fn(&$type) = |sample| match sample { $($pattern => (),)+ };
        vec![$($sample),+]
    }};
}

/// Status, headers and body of one answer for each kind of error.
#[must_use]
pub fn served_errors() -> Vec<Value> {
    samples().iter().map(served).collect()
}

fn served(error: &Error) -> Value {
    let response = refusal(error);
    json!({
        "status": response.status().as_u16(),
        "headers": named(response.headers()),
        "body": serde_json::from_slice::<Value>(response.body()).unwrap_or_default(),
    })
}

fn named(headers: &HeaderMap) -> Map<String, Value> {
    headers.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap_or_default().into())).collect()
}

fn samples() -> Vec<Error> {
    let mut errors = samples![Error:
        Error::InvalidKey => Error::InvalidKey,
        Error::Denied => Error::Denied,
        Error::AdminDecision(_) => Error::AdminDecision(AdminDecision::Disabled),
        Error::Invalid(_) => rejection(Reason::InvalidValue).into(),
        Error::TooLarge(_) => Error::TooLarge(Rejection { reason: None, ..rejection(Reason::InvalidValue) }),
        Error::UnsupportedMedia(_) => Error::UnsupportedMedia(text()),
        Error::UnsupportedCoding => Error::UnsupportedCoding,
        Error::NotFound(_) => Error::NotFound(Missing::Model(text())),
        Error::Conflict(_) => Error::Conflict(Conflict::LastAdmin),
        Error::UsageLimit(_) => Error::UsageLimit(Reset { at: Some(1_795_228_664), seconds: Some(3600) }),
        Error::RateLimited { .. } => Error::RateLimited { retry_after: 5 },
        Error::InProgress => Error::InProgress,
        Error::HoldsTooMuch(_) => Error::HoldsTooMuch(text()),
        Error::NoAccounts => Error::NoAccounts,
        Error::Upstream(_) => Error::Upstream(Fault::Timeout),
        Error::Unavailable => Error::Unavailable,
        Error::Internal => Error::Internal,
    ];
    errors.extend(reasons().into_iter().map(|reason| rejection(reason).into()));
    errors.extend(faults().into_iter().map(Error::Upstream));
    errors.extend(missing().into_iter().map(Error::NotFound));
    errors.extend(conflicts().into_iter().map(Error::Conflict));
    // The longest waits: one that the header may name, and one that it may not.
    for seconds in [60, 61] {
        errors.push(Error::UsageLimit(Reset { at: None, seconds: Some(seconds) }));
    }
    errors
}

fn reasons() -> Vec<Reason> {
    samples![Reason:
        Reason::UnknownParameter => Reason::UnknownParameter,
        Reason::MissingParameter => Reason::MissingParameter,
        Reason::InvalidType => Reason::InvalidType,
        Reason::InvalidValue => Reason::InvalidValue,
        Reason::IntegerBelowMin => Reason::IntegerBelowMin,
        Reason::IntegerAboveMax => Reason::IntegerAboveMax,
        Reason::StringBelowMin => Reason::StringBelowMin,
        Reason::StringAboveMax => Reason::StringAboveMax,
        Reason::InvalidJson => Reason::InvalidJson,
        Reason::UpstreamRejected => Reason::UpstreamRejected,
        Reason::IdempotencyKeyReused => Reason::IdempotencyKeyReused,
    ]
}

fn faults() -> Vec<Fault> {
    samples![Fault:
        Fault::Refused => Fault::Refused,
        Fault::NoImage => Fault::NoImage,
        Fault::Broken => Fault::Broken,
        Fault::Timeout => Fault::Timeout,
        Fault::Mismatch => Fault::Mismatch,
        Fault::Unknown => Fault::Unknown,
        Fault::Rejected => Fault::Rejected,
        Fault::Quota => Fault::Quota,
        Fault::Credentials => Fault::Credentials,
        Fault::Unreachable => Fault::Unreachable,
    ]
}

fn missing() -> Vec<Missing> {
    samples![Missing:
        Missing::Model(_) => Missing::Model(text()),
        Missing::Account(_) => Missing::Account(text()),
        Missing::Key(_) => Missing::Key(text()),
        Missing::User(_) => Missing::User(text()),
        Missing::Named { .. } => Missing::Named { param: "user", user: text() },
        Missing::Token(_) => Missing::Token(text()),
        Missing::Group(_) => Missing::Group(text()),
        Missing::Record(_) => Missing::Record(text()),
        Missing::Url { .. } => Missing::Url { method: text(), path: text() },
        Missing::Method { .. } => Missing::Method { method: text(), path: text() },
    ]
}

fn conflicts() -> Vec<Conflict> {
    samples![Conflict:
        Conflict::Exists(_) => Conflict::Exists(text()),
        Conflict::ReadOnly(_) => Conflict::ReadOnly(text()),
        Conflict::UserExists(_) => Conflict::UserExists(text()),
        Conflict::GroupExists(_) => Conflict::GroupExists(text()),
        Conflict::GroupInUse(_) => Conflict::GroupInUse(text()),
        Conflict::GroupReadOnly(_) => Conflict::GroupReadOnly(text()),
        Conflict::LastAdmin => Conflict::LastAdmin,
        Conflict::KeyLimit(_) => Conflict::KeyLimit(1),
    ]
}

fn rejection(reason: Reason) -> Rejection {
    Rejection::new("size", reason, text())
}

fn text() -> String {
    "sample".to_owned()
}
