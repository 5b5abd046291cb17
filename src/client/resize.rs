//! Resizes images, for a service that delivers smaller images than requested.
//!
//! This module decides how other proportions and other file formats are treated. It sends nothing.
//!
//! The size limit of an uploaded image applies to a file, and it may have at most as many pixels as the largest image of
//! the API, so that no file takes more memory than that image does. Pixels are resampled as they are, in the color space of the
//! file; colors behind transparent parts do not bleed into the others.

#[cfg(feature = "gateway")]
mod conversion;
mod decode;
mod encode;
#[cfg(test)]
mod tests;
#[cfg(feature = "gateway")]
mod thumbnail;

use std::fmt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use fast_image_resize::images::{Image as Canvas, TypedImageRef};
use fast_image_resize::pixels::U8x4;
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeError, ResizeOptions, Resizer};

use super::save::{self, EncodedImage, FileNaming, ImageByteSink};
use super::{Error, Image, Output, ResponseImage};
use crate::image::{Format, ImageFileError, ImageProperties, Size, inspect};
use crate::tables::{MAX_PIXELS, MAX_UPLOAD_IMAGE_BYTES};
#[cfg(feature = "gateway")]
pub(crate) use conversion::convert_image;
#[cfg(feature = "gateway")]
pub(crate) use thumbnail::Thumbnail;

/// The size, proportions and file format that an image is resized to.
///
/// ```
/// use imagate::client::{Fit, Resize};
/// use imagate::image::Format;
/// use imagate::size;
///
/// let resize = Resize::to(size!("3840x2160")).fit(Fit::Stretch).format(Format::Webp);
/// assert!(resize.apply("no image").is_err());
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "it does nothing until it is applied to an image"]
pub struct Resize {
    size: Size,
    fit: Fit,
    output: Option<Output>,
}

/// The treatment of an image whose proportions are not those of the new size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fit {
    /// Cut off the excess width or height, on both sides alike.
    #[default]
    Crop,
    /// Keep the whole image, distorted.
    Stretch,
}

/// An image that was resized. Cloning is cheap.
#[derive(Clone)]
pub struct ResizedImage {
    file: Bytes,
    format: Format,
    size: Size,
    original: (u32, u32),
}

/// Colors of eight bits per channel, row by row.
struct PixelBuffer {
    width: u32,
    height: u32,
    /// True if a pixel has four bytes instead of three.
    has_alpha: bool,
    bytes: Vec<u8>,
    /// The color profile of the file, if it has one.
    profile: Option<Vec<u8>>,
}

/// The reason why an image was not resized.
#[derive(Debug, thiserror::Error)]
enum ResizeFailure {
    #[error("{0}")]
    InvalidFile(ImageFileError),
    #[error("it is an animation")]
    Animated,
    #[error("the file has {0} bytes; it must have fewer than {MAX_UPLOAD_IMAGE_BYTES}")]
    TooLarge(usize),
    #[error("it has {0}x{1} px; the limit is {MAX_PIXELS} px")]
    TooManyPixels(u32, u32),
    #[error("the {0} file cannot be read: {1}")]
    Unreadable(Format, String),
    #[error("the {0} file cannot be encoded: {1}")]
    Unwritable(Format, String),
    #[error("it has transparency, which jpeg does not support; use png or webp")]
    Transparent,
    #[error("it has a color profile, which is only kept in png and jpeg; use one of these")]
    Profile,
    #[error("{0}")]
    Resampling(#[from] ResizeError),
}

// === impl Resize ===

impl Resize {
    /// Creates a resize to this size, cropped if the proportions differ, in the format of the file.
    pub const fn to(size: Size) -> Self {
        Self { size, fit: Fit::Crop, output: None }
    }

    /// Sets the treatment of an image whose proportions are not those of the new size.
    pub const fn fit(mut self, fit: Fit) -> Self {
        self.fit = fit;
        self
    }

    /// Sets the file format, instead of that of the file; a [`Format`] alone stands for its best quality.
    pub fn format(mut self, output: impl Into<Output>) -> Self {
        self.output = Some(output.into());
        self
    }

    /// Resizes an image file in png, jpeg or webp. An image that already has the size and the format stays as it is,
    /// byte for byte.
    ///
    /// Resizing a large image blocks the thread for a while, so do not call this in an async task. The color profile of
    /// the file is kept; its other metadata does not apply to the new image and is left out.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is not a whole still image, is larger than the largest image of the API, or cannot
    /// be written in the format.
    pub fn apply(&self, file: impl Into<Bytes>) -> Result<ResizedImage, Error> {
        let file = file.into();
        self.try_apply(&file).map_err(|failure| Error::image(&format!("the image cannot be resized: {failure}")))
    }

    fn try_apply(&self, file: &Bytes) -> Result<ResizedImage, ResizeFailure> {
        let properties = check_image(file)?;
        let output = self.output.unwrap_or_else(|| properties.format.into());
        let original = (properties.width, properties.height);
        let is_same = original == (self.size.width(), self.size.height());
        let file = if is_same && output.format() == properties.format {
            file.clone()
        } else {
            let pixels = decode::decode_file(file, properties.format)?;
            let pixels =
                if is_same { pixels } else { resample(pixels, self.size.width(), self.size.height(), self.fit)? };
            encode::encode_file(&pixels, output)?.into()
        };
        Ok(ResizedImage { file, format: output.format(), size: self.size, original })
    }
}

impl From<Size> for Resize {
    fn from(size: Size) -> Self {
        Self::to(size)
    }
}

/// Returns the pixels in this width and height.
fn resample(pixels: PixelBuffer, width: u32, height: u32, fit: Fit) -> Result<PixelBuffer, ResizeFailure> {
    let options =
        ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Lanczos3)).use_alpha(pixels.has_alpha);
    let options = match fit {
        Fit::Crop => options.fit_into_destination(None),
        Fit::Stretch => options,
    };
    let four_bytes = if pixels.has_alpha { pixels.bytes } else { with_alpha(&pixels.bytes) };
    let to_failure = |error| ResizeFailure::Unreadable(Format::default(), format!("{error}"));
    let source = TypedImageRef::<U8x4>::from_buffer(pixels.width, pixels.height, &four_bytes).map_err(to_failure)?;
    let mut canvas = Canvas::new(width, height, PixelType::U8x4);
    let target = canvas.typed_image_mut::<U8x4>();
    // `resize` would compile the code of thirteen types of pixels.
    Resizer::new().resize_typed(&source, &mut target.ok_or(ResizeError::PixelTypesAreDifferent)?, &options)?;
    let bytes = if pixels.has_alpha { canvas.into_vec() } else { without_alpha(canvas.buffer()) };
    Ok(PixelBuffer { width, height, bytes, ..pixels })
}

/// Makes opaque pixels of four bytes from pixels of three, so that the resampling of one type is compiled, not of two.
fn with_alpha(bytes: &[u8]) -> Vec<u8> {
    let mut opaque = Vec::with_capacity(bytes.len() / 3 * 4);
    for [red, green, blue] in bytes.as_chunks::<3>().0 {
        opaque.extend([*red, *green, *blue, u8::MAX]);
    }
    opaque
}

fn without_alpha(bytes: &[u8]) -> Vec<u8> {
    let mut colors = Vec::with_capacity(bytes.len() / 4 * 3);
    for [red, green, blue, _] in bytes.as_chunks::<4>().0 {
        colors.extend([*red, *green, *blue]);
    }
    colors
}

/// Returns format and pixel size of a whole still image within the limits.
fn check_image(file: &Bytes) -> Result<ImageProperties, ResizeFailure> {
    if file.len() as u64 >= MAX_UPLOAD_IMAGE_BYTES {
        return Err(ResizeFailure::TooLarge(file.len()));
    }
    let properties = match inspect(&&file[..]) {
        Ok(header) => header.properties,
        Err(ImageFileError::Animated(_)) => return Err(ResizeFailure::Animated),
        Err(error) => return Err(ResizeFailure::InvalidFile(error)),
    };
    if u64::from(properties.width) * u64::from(properties.height) > u64::from(MAX_PIXELS) {
        return Err(ResizeFailure::TooManyPixels(properties.width, properties.height));
    }
    Ok(properties)
}

// === impl ResizedImage ===

impl ResizedImage {
    /// Returns the bytes of the image file.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.file
    }

    /// Returns the file format.
    #[must_use]
    pub const fn format(&self) -> Format {
        self.format
    }

    /// Returns width and height.
    #[must_use]
    pub const fn size(&self) -> Size {
        self.size
    }

    /// Returns width and height in pixels before the resize.
    #[must_use]
    pub const fn original_dimensions(&self) -> (u32, u32) {
        self.original
    }

    /// Writes the image file and returns its path, like [`Image::write_to`].
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written.
    pub async fn write_to(&self, path: impl AsRef<Path>) -> Result<PathBuf, Error> {
        save::save_image(self, path.as_ref(), FileNaming::Free).await
    }

    /// Like [`ResizedImage::write_to`], but replaces an existing file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written; an existing one then stays as it was.
    pub async fn overwrite(&self, path: impl AsRef<Path>) -> Result<PathBuf, Error> {
        save::save_image(self, path.as_ref(), FileNaming::Replacing).await
    }
}

impl EncodedImage for ResizedImage {
    fn format(&self) -> Option<Format> {
        Some(self.format)
    }

    fn write(&self, sink: ImageByteSink<'_>) -> Result<(), Error> {
        sink(&self.file)
    }
}

impl fmt::Debug for ResizedImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResizedImage")
            .field("format", &self.format)
            .field("size", &self.size)
            .field("original", &self.original)
            .finish_non_exhaustive()
    }
}

// === impl Image ===

impl Image {
    /// Resizes the image, for example to the requested size if a smaller image was delivered. The image is resampled
    /// here, without a call to any service, and cropped if the proportions differ; [`Resize`] has further options.
    ///
    /// # Errors
    ///
    /// The errors of [`Resize::apply`]; also an error if the service sent something that is not base64, or only the
    /// address of the image.
    pub async fn resize_to(&self, resize: impl Into<Resize>) -> Result<ResizedImage, Error> {
        resize_on_blocking_thread(self.bytes()?, resize.into()).await
    }
}

// === impl ResponseImage ===

impl ResponseImage {
    /// Resizes the image, like [`Image::resize_to`].
    ///
    /// # Errors
    ///
    /// The errors of [`Resize::apply`]; also an error if the service sent something that is not base64.
    pub async fn resize_to(&self, resize: impl Into<Resize>) -> Result<ResizedImage, Error> {
        resize_on_blocking_thread(self.bytes()?, resize.into()).await
    }
}

/// Resizes on a blocking thread, because it takes a while.
async fn resize_on_blocking_thread(file: Vec<u8>, resize: Resize) -> Result<ResizedImage, Error> {
    let resized = tokio::task::spawn_blocking(move || resize.apply(file)).await;
    resized.unwrap_or_else(|error| Err(Error::image("resizing was cancelled").with_source(error)))
}
