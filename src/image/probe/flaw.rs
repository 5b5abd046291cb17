//! Why a file is no usable image, in words for the caller who sent it.
//!
//! Decides: the sentences. They stand behind the words `Invalid image: ` and repeat nothing of the file but numbers.

use std::io::ErrorKind;

use super::{MAX_PARTS, MAX_SIDE};
use crate::image::Format;

/// Why a file is no usable image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Flaw {
    /// There are no bytes.
    #[error("The file is empty.")]
    Empty,
    /// The first bytes are of something else.
    #[error("The file is not a PNG, JPEG or WebP image.")]
    Unknown,
    /// The file ends before its structure does.
    #[error("The {} file ends too early; part of it is missing.", name(*.0))]
    Truncated(Format),
    /// The structure contradicts itself or its format; the text says where.
    #[error("The {} file is damaged: {}.", name(*.0), .1)]
    Damaged(Format, &'static str),
    /// There is more than one frame.
    #[error("The {} file is an animation; only still images can be edited.", name(*.0))]
    Animated(Format),
    /// No image has such sides.
    #[error("The image claims to be {width}x{height} px; each side must be between 1 and {MAX_SIDE} px.")]
    Side {
        /// As the file claims it.
        width: u32,
        /// As the file claims it.
        height: u32,
    },
    /// Fewer bytes than any compression could make of the pixels.
    #[error("The image claims to be {width}x{height} px, but the file is too small to hold so many pixels.")]
    Hollow {
        /// As the file claims it.
        width: u32,
        /// As the file claims it.
        height: u32,
    },
    /// The walk would not end.
    #[error("The {} file consists of more than {MAX_PARTS} parts; save it again with larger ones.", name(*.0))]
    Scattered(Format),
    /// The source failed. This is no fault of the file, nor of the caller.
    #[error("The file could not be read back.")]
    Unreadable(ErrorKind),
}

/// The format as its makers spell it.
const fn name(format: Format) -> &'static str {
    match format {
        Format::Png => "PNG",
        Format::Jpeg => "JPEG",
        Format::Webp => "WebP",
    }
}
