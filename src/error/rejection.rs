//! A request that breaks a rule: the parameter, the kind of fault, and the allowed values.

use crate::words::word_enum;

/// The refusal of a request before anything was spent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    /// The parameter at fault, spelled as in the request: `size`, `tools[0].quality`.
    pub(crate) param: Option<String>,
    /// The value of `error.reason`, if there is one.
    pub(crate) reason: Option<RejectionReason>,
    /// The problem and the allowed values, as a sentence.
    pub(crate) message: String,
}

word_enum! {
    /// The kinds of fault. A kind that the OpenAI API has as well is spelled as it is there, because programs recognise the
    /// spelling.
    pub(crate) enum RejectionReason {
        /// The parameter does not exist.
        UnknownParameter = "unknown_parameter",
        /// A required parameter is absent.
        MissingParameter = "missing_required_parameter",
        /// The JSON type is wrong.
        InvalidType = "invalid_type",
        /// The type is right, but the value is not allowed.
        InvalidValue = "invalid_value",
        /// The number is below the minimum.
        IntegerBelowMin = "integer_below_min_value",
        /// The number is above the maximum.
        IntegerAboveMax = "integer_above_max_value",
        /// The text has too few characters.
        StringBelowMin = "string_below_min_length",
        /// The text has too many characters.
        StringAboveMax = "string_above_max_length",
        /// The body is not a JSON object.
        InvalidJson = "invalid_json",
        /// The upstream refused a parameter.
        UpstreamRejected = "upstream_rejected",
        /// The idempotency key belongs to another request.
        IdempotencyKeyReused = "idempotency_key_reused",
    }
}

// === impl Rejection ===

impl Rejection {
    /// Creates a rejection that names a parameter.
    pub(crate) fn new(param: impl Into<String>, reason: RejectionReason, message: impl Into<String>) -> Self {
        Self { param: Some(param.into()), reason: Some(reason), message: message.into() }
    }

    /// Creates a rejection of the whole body.
    pub(crate) fn for_body(reason: RejectionReason, message: impl Into<String>) -> Self {
        Self { param: None, reason: Some(reason), message: message.into() }
    }
}
