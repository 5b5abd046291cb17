//! Encodes pixels to a file.

use std::borrow::Cow;

use jpeg_encoder::ColorType as JpegColor;
use png::{BitDepth, ColorType, Info};

use super::{PixelBuffer, ResizeFailure};
use crate::client::{Compression, Output};
use crate::image::Format;

/// Returns the file in this format.
pub(super) fn encode_file(pixels: &PixelBuffer, output: Output) -> Result<Vec<u8>, ResizeFailure> {
    match output {
        Output::Png => png(pixels).map_err(|error| ResizeFailure::Unwritable(Format::Png, error.to_string())),
        Output::Jpeg { compression } => jpeg(pixels, quality(compression)),
        Output::Webp { compression } => webp(pixels, quality(compression)),
        Output::Gif => Err(ResizeFailure::Unwritable(Format::Gif, "only an upstream makes such files".to_owned())),
    }
}

fn png(pixels: &PixelBuffer) -> Result<Vec<u8>, png::EncodingError> {
    let mut info = Info::with_size(pixels.width, pixels.height);
    info.color_type = if pixels.has_alpha { ColorType::Rgba } else { ColorType::Rgb };
    info.bit_depth = BitDepth::Eight;
    info.icc_profile = pixels.profile.as_deref().map(Cow::Borrowed);
    let mut file = Vec::with_capacity(pixels.bytes.len() / 2);
    let mut writer = png::Encoder::with_info(&mut file, info)?.write_header()?;
    writer.write_image_data(&pixels.bytes)?;
    writer.finish()?;
    Ok(file)
}

/// Returns a jpeg file, in which transparent parts are white.
#[cfg(feature = "gateway")]
pub(super) fn encode_on_white(pixels: &PixelBuffer, quality: u8) -> Result<Vec<u8>, ResizeFailure> {
    if !pixels.has_alpha {
        return jpeg_colors(pixels, &pixels.bytes, quality);
    }
    let on_white = |color: u8, alpha: u8| {
        let (color, alpha, white) = (u16::from(color), u16::from(alpha), u16::from(u8::MAX));
        // A weighted mean of two bytes is a byte.
        u8::try_from((color * alpha + white * (white - alpha)) / white).unwrap_or(u8::MAX)
    };
    let (rgba, _) = pixels.bytes.as_chunks();
    let colors =
        rgba.iter().flat_map(|&[red, green, blue, alpha]| [red, green, blue].map(|color| on_white(color, alpha)));
    jpeg_colors(pixels, &colors.collect::<Vec<_>>(), quality)
}

fn jpeg(pixels: &PixelBuffer, quality: u8) -> Result<Vec<u8>, ResizeFailure> {
    jpeg_colors(pixels, &opaque(pixels).ok_or(ResizeFailure::Transparent)?, quality)
}

/// Returns a jpeg file with the size and profile of `pixels`, and these colors.
fn jpeg_colors(pixels: &PixelBuffer, colors: &[u8], quality: u8) -> Result<Vec<u8>, ResizeFailure> {
    let unwritable = |reason: String| ResizeFailure::Unwritable(Format::Jpeg, reason);
    let (Ok(width), Ok(height)) = (u16::try_from(pixels.width), u16::try_from(pixels.height)) else {
        return Err(unwritable("it is too large".to_owned()));
    };
    let mut file = Vec::with_capacity(pixels.bytes.len() / 8);
    // The encoder accepts 1 to 100 only.
    let mut encoder = jpeg_encoder::Encoder::new(&mut file, quality.max(1));
    if let Some(profile) = &pixels.profile {
        encoder.add_icc_profile(profile).map_err(|error| unwritable(error.to_string()))?;
    }
    encoder.encode(colors, width, height, JpegColor::Rgb).map_err(|error| unwritable(error.to_string()))?;
    Ok(file)
}

fn webp(pixels: &PixelBuffer, quality: u8) -> Result<Vec<u8>, ResizeFailure> {
    if pixels.profile.is_some() {
        return Err(ResizeFailure::Profile);
    }
    // The encoder panics on a buffer that is too small; this one is exactly as large as the image.
    let encoder = if pixels.has_alpha {
        webp::Encoder::from_rgba(&pixels.bytes, pixels.width, pixels.height)
    } else {
        webp::Encoder::from_rgb(&pixels.bytes, pixels.width, pixels.height)
    };
    let file = encoder.encode_simple(false, f32::from(quality));
    Ok(file.map_err(|error| ResizeFailure::Unwritable(Format::Webp, format!("{error:?}")))?.to_vec())
}

/// Returns the colors without the alpha channel; `None` if a pixel is not opaque.
fn opaque(pixels: &PixelBuffer) -> Option<Cow<'_, [u8]>> {
    if !pixels.has_alpha {
        return Some(Cow::Borrowed(&pixels.bytes));
    }
    let (pixels, _) = pixels.bytes.as_chunks();
    let is_opaque = pixels.iter().all(|&[.., alpha]: &[u8; 4]| alpha == u8::MAX);
    is_opaque.then(|| pixels.iter().flat_map(|&[red, green, blue, _]| [red, green, blue]).collect())
}

fn quality(compression: Compression) -> u8 {
    u8::try_from(compression.get()).unwrap_or(u8::MAX)
}
