//! An image for output: as the service sent it, or resized to the requested size.

use std::path::{Path, PathBuf};

use crate::cli::output::print_message;
use crate::client::{Error, Image, ResizedImage};
use crate::image::{Format, Size};

/// An image that is about to be written.
pub(in crate::cli) enum OutputImage {
    Original(Image),
    Resized(ResizedImage),
}

// === impl OutputImage ===

impl OutputImage {
    /// Resizes an image to `requested_size` if its width or height is smaller than requested or is unknown. An image
    /// that cannot be resized has been paid for as well, so it is returned unchanged together with the error.
    pub(super) async fn resized_to_at_least(image: Image, requested_size: Option<Size>) -> (Self, Option<Error>) {
        let is_smaller = |size: Size| {
            image.dimensions().is_none_or(|(width, height)| width < size.width() || height < size.height())
        };
        let Some(size) = requested_size.filter(|size| is_smaller(*size)) else { return (Self::Original(image), None) };
        match image.resize_to(size).await {
            Ok(resized) => {
                let (width, height) = resized.original_dimensions();
                print_message(&format!("note: resized from {width}x{height} to {size} on this machine"));
                (Self::Resized(resized), None)
            }
            Err(error) => {
                print_message("note: the image is written as it was delivered");
                (Self::Original(image), Some(error))
            }
        }
    }

    /// Returns the size of the image before it was resized.
    pub(super) fn upscaled_from(&self) -> Option<String> {
        match self {
            Self::Original(_) => None,
            Self::Resized(resized) => {
                let (width, height) = resized.original_dimensions();
                Some(format!("{width}x{height}"))
            }
        }
    }

    pub(super) fn format(&self) -> Option<Format> {
        match self {
            Self::Original(image) => image.format(),
            Self::Resized(resized) => Some(resized.format()),
        }
    }

    pub(super) fn bytes(&self) -> Result<Vec<u8>, Error> {
        match self {
            Self::Original(image) => image.bytes(),
            Self::Resized(resized) => Ok(resized.bytes().to_vec()),
        }
    }

    /// Writes the image to the temporary folder of the system, because it is paid for and its own file cannot be
    /// written. Prints and returns its file.
    pub(in crate::cli) async fn keep_in_temporary_folder(&self, name: &str) -> Option<PathBuf> {
        match self.write(&std::env::temp_dir().join(name), false).await {
            Ok(path) => {
                print_message(&format!("note: the image is kept in {}", path.display()));
                Some(path)
            }
            Err(error) => {
                print_message(&format!("note: the image cannot be kept in the temporary folder either: {error}"));
                None
            }
        }
    }

    /// Writes the file; `replaces` allows an existing file to be replaced.
    pub(super) async fn write(&self, path: &Path, replaces: bool) -> Result<PathBuf, Error> {
        match (self, replaces) {
            (Self::Original(image), false) => image.write_to(path).await,
            (Self::Original(image), true) => image.overwrite(path).await,
            (Self::Resized(resized), false) => resized.write_to(path).await,
            (Self::Resized(resized), true) => resized.overwrite(path).await,
        }
    }
}
