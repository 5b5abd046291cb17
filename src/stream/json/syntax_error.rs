//! The errors of reading JSON.

/// The reason why an input is not complete JSON, or not one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JsonSyntaxError {
    #[cfg(feature = "gateway")]
    #[error("it is not a JSON object")]
    NotAnObject,
    #[error("unexpected byte 0x{0:02x} between values")]
    Unexpected(u8),
    #[cfg(feature = "gateway")]
    #[error("a value is not JSON")]
    Value,
    #[error("a number or word is invalid")]
    Literal,
    #[error("an escape sequence is invalid")]
    Escape,
    #[error("a surrogate is escaped without its pair")]
    Surrogate,
    #[error("a string is not UTF-8")]
    Utf8,
    #[error("a string contains a control character")]
    Control,
    #[error("it is nested too deep")]
    TooDeep,
    #[cfg(feature = "gateway")]
    #[error("it has data after its end")]
    Surplus,
    #[cfg(feature = "gateway")]
    #[error("it ends too early")]
    Truncated,
}
