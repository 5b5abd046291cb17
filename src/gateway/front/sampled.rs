//! One answer for each kind of error, as a caller gets it: for the drift test.
//!
//! Decides nothing. A new kind of error does not compile before it has a sample here.

use http::HeaderMap;
use serde_json::{Map, Value, json};

use super::answer::refusal;
use crate::error::{
    AdminDecision, Error, MissingResource, Rejection, RejectionReason, ResourceConflict, UpstreamFault, UsageReset,
};

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
        Error::Invalid(_) => rejection(RejectionReason::InvalidValue).into(),
        Error::TooLarge(_) => Error::TooLarge(Rejection { reason: None, ..rejection(RejectionReason::InvalidValue) }),
        Error::UnsupportedMedia(_) => Error::UnsupportedMedia(text()),
        Error::UnsupportedCoding => Error::UnsupportedCoding,
        Error::NotFound(_) => Error::NotFound(MissingResource::Model(text())),
        Error::Conflict(_) => Error::Conflict(ResourceConflict::LastAdmin),
        Error::UsageLimit(_) => Error::UsageLimit(UsageReset { at: Some(1_795_228_664), seconds: Some(3600) }),
        Error::RateLimited { .. } => Error::RateLimited { retry_after: 5 },
        Error::InProgress => Error::InProgress,
        Error::HoldsTooMuch(_) => Error::HoldsTooMuch(text()),
        Error::NoAccounts => Error::NoAccounts,
        Error::Upstream(_) => Error::Upstream(UpstreamFault::Timeout),
        Error::Unavailable => Error::Unavailable,
        Error::Internal => Error::Internal,
    ];
    errors.extend(reasons().into_iter().map(|reason| rejection(reason).into()));
    errors.extend(faults().into_iter().map(Error::Upstream));
    errors.extend(missing().into_iter().map(Error::NotFound));
    errors.extend(conflicts().into_iter().map(Error::Conflict));
    // The longest waits: one that the header may name, and one that it may not.
    for seconds in [60, 61] {
        errors.push(Error::UsageLimit(UsageReset { at: None, seconds: Some(seconds) }));
    }
    errors
}

fn reasons() -> Vec<RejectionReason> {
    samples![RejectionReason:
        RejectionReason::UnknownParameter => RejectionReason::UnknownParameter,
        RejectionReason::MissingParameter => RejectionReason::MissingParameter,
        RejectionReason::InvalidType => RejectionReason::InvalidType,
        RejectionReason::InvalidValue => RejectionReason::InvalidValue,
        RejectionReason::IntegerBelowMin => RejectionReason::IntegerBelowMin,
        RejectionReason::IntegerAboveMax => RejectionReason::IntegerAboveMax,
        RejectionReason::StringBelowMin => RejectionReason::StringBelowMin,
        RejectionReason::StringAboveMax => RejectionReason::StringAboveMax,
        RejectionReason::InvalidJson => RejectionReason::InvalidJson,
        RejectionReason::UpstreamRejected => RejectionReason::UpstreamRejected,
        RejectionReason::IdempotencyKeyReused => RejectionReason::IdempotencyKeyReused,
    ]
}

fn faults() -> Vec<UpstreamFault> {
    samples![UpstreamFault:
        UpstreamFault::Refused => UpstreamFault::Refused,
        UpstreamFault::NoImage => UpstreamFault::NoImage,
        UpstreamFault::Broken => UpstreamFault::Broken,
        UpstreamFault::Timeout => UpstreamFault::Timeout,
        UpstreamFault::Mismatch => UpstreamFault::Mismatch,
        UpstreamFault::Unknown => UpstreamFault::Unknown,
        UpstreamFault::Rejected => UpstreamFault::Rejected,
        UpstreamFault::Quota => UpstreamFault::Quota,
        UpstreamFault::Credentials => UpstreamFault::Credentials,
        UpstreamFault::Unreachable => UpstreamFault::Unreachable,
    ]
}

fn missing() -> Vec<MissingResource> {
    samples![MissingResource:
        MissingResource::Model(_) => MissingResource::Model(text()),
        MissingResource::Account(_) => MissingResource::Account(text()),
        MissingResource::Key(_) => MissingResource::Key(text()),
        MissingResource::User(_) => MissingResource::User(text()),
        MissingResource::Named { .. } => MissingResource::Named { param: "user", user: text() },
        MissingResource::Token(_) => MissingResource::Token(text()),
        MissingResource::Group(_) => MissingResource::Group(text()),
        MissingResource::Record(_) => MissingResource::Record(text()),
        MissingResource::Url { .. } => MissingResource::Url { method: text(), path: text() },
        MissingResource::Method { .. } => MissingResource::Method { method: text(), path: text() },
    ]
}

fn conflicts() -> Vec<ResourceConflict> {
    samples![ResourceConflict:
        ResourceConflict::Exists(_) => ResourceConflict::Exists(text()),
        ResourceConflict::ReadOnly(_) => ResourceConflict::ReadOnly(text()),
        ResourceConflict::UserExists(_) => ResourceConflict::UserExists(text()),
        ResourceConflict::GroupExists(_) => ResourceConflict::GroupExists(text()),
        ResourceConflict::GroupInUse(_) => ResourceConflict::GroupInUse(text()),
        ResourceConflict::GroupReadOnly(_) => ResourceConflict::GroupReadOnly(text()),
        ResourceConflict::LastAdmin => ResourceConflict::LastAdmin,
        ResourceConflict::KeyLimit(_) => ResourceConflict::KeyLimit(1),
    ]
}

fn rejection(reason: RejectionReason) -> Rejection {
    Rejection::new("size", reason, text())
}

fn text() -> String {
    "sample".to_owned()
}
