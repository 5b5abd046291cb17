//! A sample answer for each kind of error, as a caller gets it. The drift test compares the samples with the API
//! documents.
//!
//! A new variant of an error type does not compile until it has a sample here.

use http::HeaderMap;
use serde_json::{Map, Value, json};

use super::response::error_response;
use crate::error::{
    AdminDecision, Error, LimitRefusal, MissingResource, Rejection, RejectionReason, ResourceConflict, UpstreamFault,
    UsageReset,
};

/// The samples of an enum: a pattern and a sample for each variant, so that the compiler reports a missing one.
macro_rules! samples {
    ($type:ty: $($pattern:pat => $sample:expr,)+) => {{
        const _: fn(&$type) = |sample| match sample { $($pattern => (),)+ };
        vec![$($sample),+]
    }};
}

/// Status, headers and body of one answer for each kind of error.
#[must_use]
pub fn served_errors() -> Vec<Value> {
    samples().iter().map(sample_response).collect()
}

fn sample_response(error: &Error) -> Value {
    let response = error_response(error);
    json!({
        "status": response.status().as_u16(),
        "headers": headers_as_json(response.headers()),
        "body": serde_json::from_slice::<Value>(response.body()).unwrap_or_default(),
    })
}

fn headers_as_json(headers: &HeaderMap) -> Map<String, Value> {
    headers.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap_or_default().into())).collect()
}

fn samples() -> Vec<Error> {
    let mut errors = samples![Error:
        Error::InvalidKey => Error::InvalidKey,
        Error::UndeclaredKeyHeader => Error::UndeclaredKeyHeader,
        Error::Denied => Error::Denied,
        Error::ForeignOrigin(_) => Error::ForeignOrigin(sample_text()),
        Error::AdminDecision(_) => Error::AdminDecision(AdminDecision::Disabled),
        Error::Invalid(_) => rejection(RejectionReason::InvalidValue).into(),
        Error::UnreadableContext(_) => Error::UnreadableContext(Rejection { reason: None, ..rejection(RejectionReason::InvalidValue) }),
        Error::TooLarge(_) => Error::TooLarge(Rejection { reason: None, ..rejection(RejectionReason::InvalidValue) }),
        Error::UnsupportedMedia(_) => Error::UnsupportedMedia(sample_text()),
        Error::UnsupportedEncoding => Error::UnsupportedEncoding,
        Error::NotFound(_) => Error::NotFound(MissingResource::Model(sample_text())),
        Error::Conflict(_) => Error::Conflict(ResourceConflict::LastAdmin),
        Error::UsageLimit(_) => Error::UsageLimit(UsageReset { at: Some(1_795_228_664), seconds: Some(3600) }),
        Error::RateLimited { .. } => Error::RateLimited { retry_after: 5 },
        Error::InProgress => Error::InProgress,
        Error::BudgetExceeded(_) => Error::BudgetExceeded(sample_text()),
        Error::LimitReached(_) => Error::LimitReached(Box::new(limit_refusal(false))),
        Error::PriceUnknown(_) => Error::PriceUnknown(sample_text()),
        Error::NoAccounts => Error::NoAccounts,
        Error::Upstream(_) => Error::Upstream(UpstreamFault::Timeout),
        Error::ModelText(..) => Error::ModelText(UpstreamFault::TextInsteadOfImage, sample_text()),
        Error::Unavailable => Error::Unavailable,
        Error::StorageFull => Error::StorageFull,
        Error::Internal => Error::Internal,
    ];
    errors.extend(reasons().into_iter().map(|reason| rejection(reason).into()));
    errors.extend(faults().into_iter().map(Error::Upstream));
    errors.extend(missing().into_iter().map(Error::NotFound));
    errors.extend(conflicts().into_iter().map(Error::Conflict));
    errors.push(Error::LimitReached(Box::new(limit_refusal(true))));
    // 60 seconds is the maximum of `Retry-After`; a longer wait is stated in the body only.
    for seconds in [60, 61] {
        errors.push(Error::UsageLimit(UsageReset { at: None, seconds: Some(seconds) }));
    }
    errors
}

fn limit_refusal(is_quota: bool) -> LimitRefusal {
    let (resets_at, wait_seconds) = (Some(1_795_228_664), if is_quota { 3600 } else { 60 });
    LimitRefusal { scope: "key", limit: "images_per_day", value: sample_text(), resets_at, wait_seconds, is_quota }
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
        UpstreamFault::ContentRefused => UpstreamFault::ContentRefused,
        UpstreamFault::NoImage => UpstreamFault::NoImage,
        UpstreamFault::AsyncTask => UpstreamFault::AsyncTask,
        UpstreamFault::ImageByAddress => UpstreamFault::ImageByAddress,
        UpstreamFault::UnknownCoding => UpstreamFault::UnknownCoding,
        UpstreamFault::TextInsteadOfImage => UpstreamFault::TextInsteadOfImage,
        UpstreamFault::Failed => UpstreamFault::Failed,
        UpstreamFault::NotOffered => UpstreamFault::NotOffered,
        UpstreamFault::Broken => UpstreamFault::Broken,
        UpstreamFault::Timeout => UpstreamFault::Timeout,
        UpstreamFault::Mismatch => UpstreamFault::Mismatch,
        UpstreamFault::Unknown => UpstreamFault::Unknown,
        UpstreamFault::RequestRejected => UpstreamFault::RequestRejected,
        UpstreamFault::Quota => UpstreamFault::Quota,
        UpstreamFault::Credentials => UpstreamFault::Credentials,
        UpstreamFault::NothingDone => UpstreamFault::NothingDone,
    ]
}

fn missing() -> Vec<MissingResource> {
    samples![MissingResource:
        MissingResource::Model(_) => MissingResource::Model(sample_text()),
        MissingResource::Account(_) => MissingResource::Account(sample_text()),
        MissingResource::Key(_) => MissingResource::Key(sample_text()),
        MissingResource::User(_) => MissingResource::User(sample_text()),
        MissingResource::UserParam { .. } => MissingResource::UserParam { param: "user", user: sample_text() },
        MissingResource::Token(_) => MissingResource::Token(sample_text()),
        MissingResource::Group(_) => MissingResource::Group(sample_text()),
        MissingResource::Price(_) => MissingResource::Price(sample_text()),
        MissingResource::Record(_) => MissingResource::Record(sample_text()),
        MissingResource::Url { .. } => MissingResource::Url { method: sample_text(), path: sample_text() },
        MissingResource::UndeclaredUrl { .. } => {
            MissingResource::UndeclaredUrl { method: sample_text(), path: sample_text() }
        },
        MissingResource::Method { .. } => MissingResource::Method { method: sample_text(), path: sample_text() },
    ]
}

fn conflicts() -> Vec<ResourceConflict> {
    samples![ResourceConflict:
        ResourceConflict::Exists(_) => ResourceConflict::Exists(sample_text()),
        ResourceConflict::ReadOnly(_) => ResourceConflict::ReadOnly(sample_text()),
        ResourceConflict::UserExists(_) => ResourceConflict::UserExists(sample_text()),
        ResourceConflict::GroupExists(_) => ResourceConflict::GroupExists(sample_text()),
        ResourceConflict::GroupInUse(_) => ResourceConflict::GroupInUse(sample_text()),
        ResourceConflict::GroupReadOnly(_) => ResourceConflict::GroupReadOnly(sample_text()),
        ResourceConflict::PriceReadOnly(_) => ResourceConflict::PriceReadOnly(sample_text()),
        ResourceConflict::LastAdmin => ResourceConflict::LastAdmin,
        ResourceConflict::KeyLimit(_) => ResourceConflict::KeyLimit(1),
        ResourceConflict::TokenLimit(_) => ResourceConflict::TokenLimit(1),
    ]
}

fn rejection(reason: RejectionReason) -> Rejection {
    Rejection::new("size", reason, sample_text())
}

fn sample_text() -> String {
    "sample".to_owned()
}
