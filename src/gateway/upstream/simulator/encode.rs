//! Encodes rows of pixels into a file.
//!
//! The module decides how each format is compressed, and where a PNG or JPEG file states that the simulator made it. It
//! must not know the content of the image. PNG and JPEG are encoded row by row, so that a large image costs little
//! memory. WebP needs all rows at once.

use std::io::Write as _;

use jpeg_encoder::{Encoder as JpegEncoder, ImageBuffer, JpegColorType, rgb_to_ycbcr};

use super::render::{BYTES_PER_PIXEL, RowRenderer};
use super::{DrawError, TestImage};
use crate::image::Format;

/// The text that PNG and JPEG files contain in addition to the pixels.
pub(super) const SIMULATOR_MARK: &str = "imagate simulator";

/// Returns the bytes of the file. Neither edge may be 0 or longer than the format allows.
pub(super) fn encode(image: &TestImage<'_>) -> Result<Vec<u8>, DrawError> {
    let (rows, quality, size) = (RowRenderer::new(image), image.compression.min(100), (image.width, image.height));
    match image.format {
        // The simulator has no encoder for GIF. The answer states the format that it delivers.
        Format::Png | Format::Gif => encode_png(&rows, size),
        Format::Jpeg => encode_jpeg(&rows, quality),
        Format::Webp => encode_webp(&rows, size, quality),
    }
}

/// Returns the pixels of all rows, from top to bottom.
pub(super) fn all_pixels(rows: &RowRenderer) -> Vec<u8> {
    let mut pixels = vec![0; rows.width * rows.height * BYTES_PER_PIXEL];
    pixels.chunks_exact_mut(rows.width * BYTES_PER_PIXEL).enumerate().for_each(|(y, row)| rows.render(y, row));
    pixels
}

fn encode_png(rows: &RowRenderer, (width, height): (u32, u32)) -> Result<Vec<u8>, DrawError> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::Fast);
    encoder.set_filter(png::Filter::Up);
    encoder.add_text_chunk("Software".to_owned(), SIMULATOR_MARK.to_owned()).map_err(DrawError::encode)?;
    let mut writer = encoder.write_header().map_err(DrawError::encode)?;
    let mut stream = writer.stream_writer_with_size(32 * 1024).map_err(DrawError::encode)?;
    let mut row = vec![0; rows.width * BYTES_PER_PIXEL];
    for y in 0..rows.height {
        rows.render(y, &mut row);
        stream.write_all(&row).map_err(DrawError::encode)?;
    }
    stream.finish().map_err(DrawError::encode)?;
    writer.finish().map_err(DrawError::encode)?;
    Ok(file)
}

/// Gives the rows to the JPEG encoder, converted to `YCbCr`.
struct JpegRows<'a>(&'a RowRenderer);

impl ImageBuffer for JpegRows<'_> {
    fn get_jpeg_color_type(&self) -> JpegColorType {
        JpegColorType::Ycbcr
    }

    fn width(&self) -> u16 {
        u16::try_from(self.0.width).unwrap_or(u16::MAX)
    }

    fn height(&self) -> u16 {
        u16::try_from(self.0.height).unwrap_or(u16::MAX)
    }

    fn fill_buffers(&self, y: u16, [luma, cb_values, cr_values, _]: &mut [Vec<u8>; 4]) {
        let mut row = vec![0; self.0.width * BYTES_PER_PIXEL];
        self.0.render(y.into(), &mut row);
        for pixel in row.chunks_exact(BYTES_PER_PIXEL) {
            let (y, cb, cr) = rgb_to_ycbcr(pixel[0], pixel[1], pixel[2]);
            luma.push(y);
            cb_values.push(cb);
            cr_values.push(cr);
        }
    }
}

fn encode_jpeg(rows: &RowRenderer, quality: u8) -> Result<Vec<u8>, DrawError> {
    let mut file = Vec::new();
    // The encoder accepts only qualities from 1 to 100.
    JpegEncoder::new(&mut file, quality.max(1)).encode_image(JpegRows(rows)).map_err(DrawError::encode)?;
    Ok(with_comment(file))
}

/// Inserts a comment segment after the JFIF segment, which must be the first of the file.
fn with_comment(mut file: Vec<u8>) -> Vec<u8> {
    let Some(&[high, low]) = file.get(4..6) else { return file };
    let offset = 4 + usize::from(u16::from_be_bytes([high, low]));
    let Ok(length) = u16::try_from(SIMULATOR_MARK.len() + 2) else { return file };
    if offset <= file.len() {
        let [high, low] = length.to_be_bytes();
        let segment = [0xff, 0xfe, high, low].into_iter().chain(SIMULATOR_MARK.bytes());
        file.splice(offset..offset, segment);
    }
    file
}

fn encode_webp(rows: &RowRenderer, (width, height): (u32, u32), quality: u8) -> Result<Vec<u8>, DrawError> {
    // The encoder panics if the buffer is too small; `all_pixels` returns exactly the required length.
    let pixels = all_pixels(rows);
    let encoder = webp::Encoder::from_rgb(&pixels, width, height);
    let file =
        encoder.encode_simple(false, f32::from(quality)).map_err(|error| DrawError::Encode(format!("{error:?}")))?;
    Ok(file.to_vec())
}
