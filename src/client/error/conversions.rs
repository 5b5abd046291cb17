//! The errors of values that are checked before a request exists, so that `?` works with each of them.

use super::{Error, ErrorKind};
use crate::image::{SizeError, UnknownFormat};
use crate::wire::OutOfBounds;
use crate::wire::types::error::ConversionError;

/// A number outside of its bounds.
impl From<OutOfBounds> for Error {
    fn from(source: OutOfBounds) -> Self {
        Self::new(ErrorKind::Request, source.to_string())
    }
}

/// A size that breaks one of the size rules.
impl From<SizeError> for Error {
    fn from(source: SizeError) -> Self {
        Self::request("size", source.to_string())
    }
}

/// A word that is no file format.
impl From<UnknownFormat> for Error {
    fn from(source: UnknownFormat) -> Self {
        Self::request("output_format", source.to_string())
    }
}

/// A text that is not of a type of the API document.
impl From<ConversionError> for Error {
    fn from(source: ConversionError) -> Self {
        Self::new(ErrorKind::Request, source.to_string())
    }
}
