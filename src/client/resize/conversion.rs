//! An image in another file format, for a caller who has asked for that one.

use bytes::Bytes;

use super::{PixelBuffer, ResizeFailure, check_image, decode, encode};
use crate::client::{Compression, Error, Output};
use crate::image::Format;

/// Returns the image in another file format, with the same pixels as far as the format can hold them. In jpeg,
/// transparent parts are white. All metadata but the color profile is left out, also what states the origin of the image.
/// Blocks the thread.
///
/// # Errors
///
/// Returns an error if the file is not a whole still image, is larger than the largest image of the API, or cannot be
/// written in the format: no `gif` can be, and no `webp` with a color profile.
pub(crate) fn convert_image(file: &Bytes, format: Format, compression: u8) -> Result<Vec<u8>, Error> {
    convert(file, format, compression)
        .map_err(|failure| Error::image(&format!("the image cannot be converted: {failure}")))
}

fn convert(file: &Bytes, format: Format, compression: u8) -> Result<Vec<u8>, ResizeFailure> {
    let pixels: PixelBuffer = decode::decode_file(file, check_image(file)?.format)?;
    let quality = || Compression::new(compression.into()).unwrap_or(Compression::MAX);
    match format {
        Format::Png => encode::encode_file(&pixels, Output::Png),
        Format::Jpeg => encode::encode_on_white(&pixels, compression),
        Format::Webp => encode::encode_file(&pixels, Output::Webp { compression: quality() }),
        Format::Gif => encode::encode_file(&pixels, Output::Gif),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::probe;

    /// A red PNG file with transparency.
    fn png() -> Bytes {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, 32, 16);
        encoder.set_color(png::ColorType::Rgba);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.add_text_chunk("Software".to_owned(), "a maker".to_owned()).unwrap();
        let pixels: Vec<u8> = std::iter::repeat_n([255, 0, 0, 200], 32 * 16).flatten().collect();
        encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
        file.into()
    }

    #[test]
    fn an_image_keeps_its_size_in_each_format_and_loses_its_metadata() {
        for format in [Format::Png, Format::Jpeg, Format::Webp] {
            let converted = convert_image(&png(), format, 90).unwrap();
            let properties = probe(&converted).unwrap();
            assert_eq!((properties.format, properties.width, properties.height), (format, 32, 16));
            assert!(!converted.windows(7).any(|bytes| bytes == b"a maker"), "{format}");
        }
        assert!(convert_image(&png(), Format::Gif, 90).is_err());
        assert!(convert_image(&png().slice(..60), Format::Jpeg, 90).is_err());
    }
}
