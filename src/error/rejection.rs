//! A request that breaks a rule: which parameter, which kind of fault, and what is allowed instead.

/// Why a request was refused before anything was spent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    /// The parameter at fault, spelled as the caller spelled it: `size`, `tools[0].quality`.
    pub(crate) param: Option<String>,
    /// The finer word beside the code.
    pub(crate) reason: Option<Reason>,
    /// Says what is wrong and what is allowed.
    pub(crate) message: String,
}

/// The kinds of fault, in the words that programs know from the field's best-known API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// There is no such parameter.
    UnknownParameter,
    /// A required parameter is absent.
    MissingParameter,
    /// The JSON type is wrong.
    InvalidType,
    /// The type is right, the value is not.
    InvalidValue,
    /// Below the minimum.
    IntegerBelowMin,
    /// Above the maximum.
    IntegerAboveMax,
    /// Too few characters.
    StringBelowMin,
    /// Too many characters.
    StringAboveMax,
    /// The body is no JSON object.
    InvalidJson,
    /// The upstream refused a parameter.
    UpstreamRejected,
    /// The idempotency key belongs to another request.
    IdempotencyKeyReused,
}

// === impl Rejection ===

impl Rejection {
    /// A rejection that names a parameter.
    pub(crate) fn new(param: impl Into<String>, reason: Reason, message: impl Into<String>) -> Self {
        Self { param: Some(param.into()), reason: Some(reason), message: message.into() }
    }

    /// A rejection of the body as a whole.
    pub(crate) fn whole(reason: Reason, message: impl Into<String>) -> Self {
        Self { param: None, reason: Some(reason), message: message.into() }
    }
}

// === impl Reason ===

impl Reason {
    /// `error.reason` on the wire.
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
