//! The errors of values that are checked before a request exists, so that `?` works with each of them, and those of
//! files that are read while a request is sent.

#[cfg(not(target_arch = "wasm32"))]
use std::error::Error as _;

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

/// Returns the message for an input file that could not be read to its end, if that error stopped the request.
#[cfg(not(target_arch = "wasm32"))]
pub(super) fn file_error_message(error: &reqwest::Error) -> Option<String> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(file_error) = error.downcast_ref::<crate::client::input::InputFileError>() {
            return Some(file_error.to_string());
        }
        cause = error.source();
    }
    None
}

#[cfg(target_arch = "wasm32")]
pub(super) fn file_error_message(_: &reqwest::Error) -> Option<String> {
    None
}
