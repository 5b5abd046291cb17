//! A request that breaks a rule: the parameter, the kind of fault, and the allowed values.

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

/// The kinds of fault. A kind that the OpenAI API has as well is spelled as it is there, because programs recognise the
/// spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RejectionReason {
    /// The parameter does not exist.
    UnknownParameter,
    /// A required parameter is absent.
    MissingParameter,
    /// The JSON type is wrong.
    InvalidType,
    /// The type is right, but the value is not allowed.
    InvalidValue,
    /// The number is below the minimum.
    IntegerBelowMin,
    /// The number is above the maximum.
    IntegerAboveMax,
    /// The text has too few characters.
    StringBelowMin,
    /// The text has too many characters.
    StringAboveMax,
    /// The body is not a JSON object.
    InvalidJson,
    /// The upstream refused a parameter.
    UpstreamRejected,
    /// The idempotency key belongs to another request.
    IdempotencyKeyReused,
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

// === impl RejectionReason ===

impl RejectionReason {
    /// Returns `error.reason` as it is sent.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::UnknownParameter => "unknown_parameter",
            Self::MissingParameter => "missing_required_parameter",
            Self::InvalidType => "invalid_type",
            Self::InvalidValue => "invalid_value",
            Self::IntegerBelowMin => "integer_below_min_value",
            Self::IntegerAboveMax => "integer_above_max_value",
            Self::StringBelowMin => "string_below_min_length",
            Self::StringAboveMax => "string_above_max_length",
            Self::InvalidJson => "invalid_json",
            Self::UpstreamRejected => "upstream_rejected",
            Self::IdempotencyKeyReused => "idempotency_key_reused",
        }
    }
}
