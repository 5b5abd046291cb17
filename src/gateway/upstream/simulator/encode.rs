//! From pixels to a file.
//!
//! Decides how each format spends its bytes and where it says who drew it.
//! Refuses to know what is in the picture.

use jpeg_encoder::{ColorType, Encoder as JpegEncoder};

use super::DrawError;
use super::canvas::Canvas;
use crate::image::Format;

/// Written into the file where the format has a place for it.
pub(super) const MARK: &str = "imagate simulator";

/// The file's bytes. `compression` from 0 (smallest) to 100 (best); `png` has no use for it.
pub(super) fn encode(canvas: &Canvas, format: Format, compression: u8) -> Result<Vec<u8>, DrawError> {
    let quality = compression.min(100);
    match format {
        Format::Png => png(canvas),
        Format::Jpeg => jpeg(canvas, quality),
        Format::Webp => webp(canvas, quality),
    }
}

fn png(canvas: &Canvas) -> Result<Vec<u8>, DrawError> {
    let mut file = Vec::with_capacity(canvas.bytes().len() / 3);
    let mut encoder = png::Encoder::new(&mut file, canvas.width.unsigned_abs(), canvas.height.unsigned_abs());
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::Fast);
    encoder.add_text_chunk("Software".to_owned(), MARK.to_owned()).map_err(DrawError::encode)?;
    let mut writer = encoder.write_header().map_err(DrawError::encode)?;
    writer.write_image_data(canvas.bytes()).map_err(DrawError::encode)?;
    writer.finish().map_err(DrawError::encode)?;
    Ok(file)
}

fn jpeg(canvas: &Canvas, quality: u8) -> Result<Vec<u8>, DrawError> {
    let (width, height) = (u16::try_from(canvas.width), u16::try_from(canvas.height));
    let (Ok(width), Ok(height)) = (width, height) else {
        return Err(DrawError::Size);
    };
    let mut file = Vec::with_capacity(canvas.bytes().len() / 8);
    // The encoder knows 1 to 100 only.
    let encoder = JpegEncoder::new(&mut file, quality.max(1));
    encoder.encode(canvas.bytes(), width, height, ColorType::Rgb).map_err(DrawError::encode)?;
    Ok(with_comment(file))
}

/// Puts a comment segment behind the first one, which has to stay first (JFIF).
fn with_comment(mut file: Vec<u8>) -> Vec<u8> {
    let Some(&[high, low]) = file.get(4..6) else { return file };
    let place = 4 + usize::from(u16::from_be_bytes([high, low]));
    let Ok(length) = u16::try_from(MARK.len() + 2) else { return file };
    if place <= file.len() {
        let [high, low] = length.to_be_bytes();
        let segment = [0xff, 0xfe, high, low].into_iter().chain(MARK.bytes());
        file.splice(place..place, segment);
    }
    file
}

fn webp(canvas: &Canvas, quality: u8) -> Result<Vec<u8>, DrawError> {
    let (width, height) = (canvas.width.unsigned_abs(), canvas.height.unsigned_abs());
    // The encoder panics on a buffer that is too small; the canvas is exactly this large.
    let encoder = webp::Encoder::from_rgb(canvas.bytes(), width, height);
    let file =
        encoder.encode_simple(false, f32::from(quality)).map_err(|error| DrawError::Encode(format!("{error:?}")))?;
    Ok(file.to_vec())
}
