//! The decisions about the values of an object.

use serde_json::Value;

use super::JsonSyntaxError;

/// The place of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JsonPosition<'a> {
    /// The keys and brackets that lead to the value, such as `response.output[].result`. A key with a dot or a bracket
    /// stands as `?`, so that no path has two meanings.
    pub(crate) path: &'a str,
    /// The key of the value, decoded; empty for an element of an array.
    pub(crate) key: &'a str,
    /// The number of objects and arrays around the value.
    pub(crate) depth: usize,
}

/// The part of a value that a visitor wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueInterest {
    /// Nothing. The values in it are visited by themselves.
    Skip,
    /// All of the value. The reader fails if it is neither JSON nor one of the words `NaN`, `Infinity` and `-Infinity`.
    Value,
    /// All of the value if it is JSON.
    Optional,
    /// Only the syntax of an object or array, which is handed on empty; all of any other value.
    Scalar,
    /// The text piece by piece, if the value is a string. Any other value is skipped.
    Text,
}

/// The maximum numbers of bytes that are captured. A value that exceeds one of them is not kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CaptureLimits {
    /// For one value.
    pub(crate) value: u64,
    /// For all values together.
    pub(crate) total: u64,
}

/// Decides on values and receives them, in their order. An error ends the reading.
pub(crate) trait JsonVisitor {
    type Error: From<JsonSyntaxError>;

    /// Begins the outermost object.
    fn begin(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Begins a value inside the outermost object, and returns the part of it that is wanted; `first` is its first
    /// byte. It is not called for values deeper than `PATH_DEPTH`, which are skipped, nor inside a captured value.
    fn start(&mut self, at: JsonPosition<'_>, first: u8) -> Result<ValueInterest, Self::Error>;

    /// Receives a captured value. `None` means that it exceeds a limit, that it cannot be held (such as a number out of
    /// range, or `NaN`), or that it is [`ValueInterest::Optional`] and not JSON.
    fn value(&mut self, at: JsonPosition<'_>, value: Option<Value>) -> Result<(), Self::Error>;

    /// Receives a piece of a wanted text as it is written: at least one byte, and a slice of the piece that was pushed.
    fn text(&mut self, at: JsonPosition<'_>, text: &[u8]) -> Result<(), Self::Error>;

    /// Receives a UTF-16 code unit of a wanted text that is written as an escape.
    fn escaped(&mut self, at: JsonPosition<'_>, unit: u16) -> Result<(), Self::Error>;

    /// Ends a wanted text.
    fn text_end(&mut self, at: JsonPosition<'_>) -> Result<(), Self::Error>;

    /// Ends the outermost object, or an object or array for which `start` was called and that was not captured. Its
    /// position has no key.
    fn end(&mut self, at: JsonPosition<'_>) -> Result<(), Self::Error> {
        let _ = at;
        Ok(())
    }

    /// Notes that a captured value was dropped because all of them together would exceed [`CaptureLimits::total`].
    fn exceeded(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }
}
