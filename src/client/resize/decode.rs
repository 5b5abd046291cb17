//! Decodes a file to pixels.

use std::io::Cursor;

use png::{ColorType, Transformations};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use super::{PixelBuffer, ResizeFailure};
use crate::image::Format;

/// The offset of the color profile of a webp file, if it has one: after `RIFF`, its length, `WEBP` and the chunk
/// `VP8X`.
const PROFILE_OFFSET: usize = 30;

/// Returns the pixels of a whole still image whose size is within the limits.
pub(super) fn decode_file(file: &[u8], format: Format) -> Result<PixelBuffer, ResizeFailure> {
    let unreadable = |reason: String| ResizeFailure::Unreadable(format, reason);
    match format {
        Format::Png => png(file).map_err(|error| unreadable(error.to_string())),
        Format::Jpeg => jpeg(file).map_err(unreadable),
        Format::Webp => webp(file).ok_or_else(|| unreadable("its data is damaged".to_owned())),
        Format::Gif => Err(unreadable("this format is not read".to_owned())),
    }
}

fn png(file: &[u8]) -> Result<PixelBuffer, png::DecodingError> {
    let mut decoder = png::Decoder::new(Cursor::new(file));
    decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
    let mut reader = decoder.read_info()?;
    let profile = reader.info().icc_profile.as_ref().map(|profile| profile.to_vec());
    let mut bytes = vec![0; reader.output_buffer_size().unwrap_or(0)];
    let frame = reader.next_frame(&mut bytes)?;
    bytes.truncate(frame.buffer_size());
    let (has_alpha, bytes) = match frame.color_type {
        ColorType::Rgba => (true, bytes),
        ColorType::GrayscaleAlpha => {
            (true, bytes.as_chunks().0.iter().flat_map(|&[gray, alpha]| [gray, gray, gray, alpha]).collect())
        }
        ColorType::Grayscale => (false, bytes.iter().flat_map(|&gray| [gray; 3]).collect()),
        ColorType::Rgb | ColorType::Indexed => (false, bytes),
    };
    Ok(PixelBuffer { width: frame.width, height: frame.height, has_alpha, bytes, profile })
}

fn jpeg(file: &[u8]) -> Result<PixelBuffer, String> {
    // Strict mode refuses a truncated file; otherwise its missing part would be gray.
    let options = DecoderOptions::default().set_strict_mode(true).jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(file), options);
    let bytes = decoder.decode().map_err(|error| error.to_string())?;
    let info = decoder.info().ok_or("it does not state its size")?;
    let profile = decoder.icc_profile();
    Ok(PixelBuffer { width: info.width.into(), height: info.height.into(), has_alpha: false, bytes, profile })
}

fn webp(file: &[u8]) -> Option<PixelBuffer> {
    let image = webp::Decoder::new(file).decode()?;
    let profile = webp_profile(file).map(<[u8]>::to_vec);
    Some(PixelBuffer {
        width: image.width(),
        height: image.height(),
        has_alpha: image.is_alpha(),
        bytes: image.to_vec(),
        profile,
    })
}

/// Returns the color profile of a webp file, or `None` if it has none.
pub(super) fn webp_profile(file: &[u8]) -> Option<&[u8]> {
    let after_name = file.get(PROFILE_OFFSET..)?.strip_prefix(b"ICCP")?;
    let (length, content) = after_name.split_first_chunk()?;
    content.get(..usize::try_from(u32::from_le_bytes(*length)).ok()?)
}
