//! The reasons why a file is not a usable image, in words for the caller who sent it.
//!
//! The module decides the sentences, which follow the words `Invalid image: ` and repeat nothing of the file except
//! numbers.

use std::io::ErrorKind;

use super::{MAX_PARTS, MAX_SIDE};
use crate::image::Format;

/// The reason why a file is not a usable image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ImageFileError {
    /// The file has no bytes.
    #[error("The file is empty.")]
    Empty,
    /// The first bytes belong to another kind of file.
    #[error("The file is not a PNG, JPEG or WebP image.")]
    Unknown,
    /// The file ends before its structure is complete.
    #[error("The {} file ends too early; part of it is missing.", name(*.0))]
    Truncated(Format),
    /// The structure contradicts itself or its format; the text names the contradiction.
    #[error("The {} file is damaged: {}.", name(*.0), .1)]
    Damaged(Format, &'static str),
    /// The file is marked as an animation, even if it has only one frame.
    #[error("The {} file is an animation; only still images can be edited.", name(*.0))]
    Animated(Format),
    /// The file states a side that no image can have.
    #[error("The image claims to be {width}x{height} px; each side must be between 1 and {MAX_SIDE} px.")]
    InvalidSide {
        /// The width that the file states.
        width: u32,
        /// The height that the file states.
        height: u32,
    },
    /// The file is smaller than so many pixels can be, even with the best compression.
    #[error("The image claims to be {width}x{height} px, but the file is too small to hold so many pixels.")]
    TooFewBytes {
        /// The width that the file states.
        width: u32,
        /// The height that the file states.
        height: u32,
    },
    /// The file has too many chunks or segments.
    #[error("The {} file consists of more than {MAX_PARTS} parts; save it again with larger ones.", name(*.0))]
    TooManyParts(Format),
    /// Reading the source failed. Neither the file nor the caller is at fault.
    #[error("The file could not be read back.")]
    Unreadable(ErrorKind),
}

/// Returns the official spelling of the format.
const fn name(format: Format) -> &'static str {
    match format {
        Format::Png => "PNG",
        Format::Jpeg => "JPEG",
        Format::Webp => "WebP",
        Format::Gif => "GIF",
    }
}
