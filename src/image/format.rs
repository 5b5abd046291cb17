//! The file formats in which an image can be delivered.

use std::fmt;
use std::str::FromStr;

/// The file format of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// Portable Network Graphics: lossless, the default.
    #[default]
    Png,
    /// JPEG: lossy, for photographs and drafts.
    Jpeg,
    /// WebP: lossy here, smaller than JPEG at the same quality.
    Webp,
    /// GIF: still or animated, at most 256 colors. Only models that an operator has added deliver it.
    Gif,
}

// === impl Format ===

impl Format {
    /// Returns the word for the format in requests and answers: `png`, `jpeg`, `webp` or `gif`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Png => "png",
            Self::Jpeg => "jpeg",
            Self::Webp => "webp",
            Self::Gif => "gif",
        }
    }

    /// Returns the usual extension of a file name, without the dot: `png`, `jpg`, `webp` or `gif`.
    #[must_use]
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Png => "png",
            Self::Jpeg => "jpg",
            Self::Webp => "webp",
            Self::Gif => "gif",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The error for a word that is not one of `png`, `jpeg`, `webp` and `gif`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected png, jpeg, webp or gif")]
pub struct UnknownFormat;

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(text: &str) -> Result<Self, UnknownFormat> {
        match text {
            "png" => Ok(Self::Png),
            "jpeg" => Ok(Self::Jpeg),
            "webp" => Ok(Self::Webp),
            "gif" => Ok(Self::Gif),
            _ => Err(UnknownFormat),
        }
    }
}
