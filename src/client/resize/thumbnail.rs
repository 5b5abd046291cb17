//! A small copy of an image, for the preview in a terminal or in the answer to an agent.

use bytes::Bytes;

use super::{Fit, PixelBuffer, ResizeFailure, check_image, decode, encode, resample, with_alpha};
use crate::client::{Error, Output};

/// A small copy of an image.
pub(crate) struct Thumbnail(PixelBuffer);

// === impl Thumbnail ===

impl Thumbnail {
    /// Makes a copy that fits into `max_width` times `max_height` pixels, with the proportions of the image. A smaller
    /// image stays as it is. The color profile is not kept: a preview does not need exact colors.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is not a whole still image, or is larger than the largest image of the API.
    pub(crate) fn new(file: impl Into<Bytes>, max_width: u32, max_height: u32) -> Result<Self, Error> {
        Self::try_new(&file.into(), max_width, max_height).map_err(|failure| shown(&failure))
    }

    fn try_new(file: &Bytes, max_width: u32, max_height: u32) -> Result<Self, ResizeFailure> {
        let format = check_image(file)?.format;
        let mut pixels = PixelBuffer { profile: None, ..decode::decode_file(file, format)? };
        let (width, height) = fitted((pixels.width, pixels.height), (max_width, max_height));
        if (width, height) != (pixels.width, pixels.height) {
            pixels = resample(pixels, width, height, Fit::Stretch)?;
        }
        Ok(Self(pixels))
    }

    /// Makes the copy smaller, so that it fits into `max_width` times `max_height` pixels.
    ///
    /// # Errors
    ///
    /// Returns an error if the pixels cannot be resampled.
    pub(crate) fn shrink(self, max_width: u32, max_height: u32) -> Result<Self, Error> {
        let (width, height) = fitted((self.0.width, self.0.height), (max_width, max_height));
        if (width, height) == (self.0.width, self.0.height) {
            return Ok(self);
        }
        resample(self.0, width, height, Fit::Stretch).map(Self).map_err(|failure| shown(&failure))
    }

    /// Returns the width in pixels.
    #[cfg(feature = "cli")]
    pub(crate) const fn width(&self) -> u32 {
        self.0.width
    }

    /// Returns the height in pixels.
    #[cfg(feature = "cli")]
    pub(crate) const fn height(&self) -> u32 {
        self.0.height
    }

    /// Returns red, green, blue and alpha of each pixel, row by row.
    #[cfg(feature = "cli")]
    pub(crate) fn into_rgba(self) -> Vec<u8> {
        if self.0.has_alpha { self.0.bytes } else { with_alpha(&self.0.bytes) }
    }

    /// Returns the copy as a png file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be encoded.
    #[cfg(feature = "cli")]
    pub(crate) fn to_png(&self) -> Result<Vec<u8>, Error> {
        encode::encode_file(&self.0, Output::Png).map_err(|failure| shown(&failure))
    }

    /// Returns the copy as a jpeg file, with transparent parts on white. `quality` is a percentage.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be encoded.
    pub(crate) fn to_jpeg(&self, quality: u8) -> Result<Vec<u8>, Error> {
        encode::encode_on_white(&self.0, quality).map_err(|failure| shown(&failure))
    }
}

fn shown(failure: &ResizeFailure) -> Error {
    Error::image(&format!("the image cannot be shown: {failure}"))
}

/// Returns the largest size within the maximum that has the proportions of the size, and is not larger than it.
fn fitted((width, height): (u32, u32), (max_width, max_height): (u32, u32)) -> (u32, u32) {
    if width <= max_width && height <= max_height {
        return (width, height);
    }
    let scaled = |side: u32, max: u32, other: u32| {
        let scaled = u64::from(side) * u64::from(max) / u64::from(other.max(1));
        u32::try_from(scaled).unwrap_or(u32::MAX).max(1)
    };
    let for_width = scaled(height, max_width, width);
    if for_width <= max_height { (max_width, for_width) } else { (scaled(width, max_height, height), max_height) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thumbnail_keeps_the_proportions_and_is_never_larger_than_the_image() {
        for (size, expected) in [
            ((3840, 2160), (640, 360)),
            ((1024, 1536), (320, 480)),
            ((100, 50), (100, 50)),
            ((3000, 1), (640, 1)),
            ((640, 480), (640, 480)),
        ] {
            assert_eq!(fitted(size, (640, 480)), expected, "{size:?}");
        }
    }
}
