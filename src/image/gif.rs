//! Converts the first image of a GIF file to PNG.
//!
//! Memory is bounded by [`PIXELS_MAX`]: the colors of the image take one byte for each pixel, and the PNG file is written
//! row by row.

use std::io::{self, Read, Write};

use gif::{ColorOutput, DecodeOptions, DecodingError, Frame, MemoryLimit};
use png::{BitDepth, ColorType, Compression, Encoder, EncodingError};

use super::ByteSource;

/// The most pixels of a file or of its first image (our choice): as many as the largest image of the API has.
const PIXELS_MAX: u32 = 3840 * 2160;
/// The first bytes of a file.
const SIGNATURES: [&[u8; 6]; 2] = [b"GIF87a", b"GIF89a"];

/// The reason why a file cannot be converted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GifError {
    /// The file has no image, or a damaged one.
    #[error("the GIF file cannot be decoded")]
    Malformed,
    /// The image has too many pixels.
    #[error("the GIF file has too many pixels; at most {PIXELS_MAX} are converted")]
    TooLarge,
    /// The file cannot be read, or the result cannot be written.
    #[error("{0}")]
    Io(io::Error),
}

/// The bytes of a source, in their order.
struct SourceReader<'a> {
    source: &'a dyn ByteSource,
    offset: u64,
}

/// The first image of a file, whose canvas may be larger or smaller.
struct FirstImage {
    width: u16,
    height: u16,
    frame: Frame<'static>,
    /// The index of the color of each pixel of the frame.
    pixels: Vec<u8>,
    /// Three bytes for each color.
    palette: Vec<u8>,
}

/// True if the file begins like a GIF file.
///
/// # Errors
///
/// Returns an error if the file cannot be read.
pub(crate) fn is_gif(source: &dyn ByteSource) -> io::Result<bool> {
    let mut head = [0; 6];
    let mut reader = SourceReader { source, offset: 0 };
    match reader.read_exact(&mut head) {
        Ok(()) => Ok(SIGNATURES.contains(&&head)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Writes the first image of a GIF file as a PNG file with an alpha channel. Pixels that the image does not have are
/// transparent.
///
/// # Errors
///
/// Returns an error if the file is damaged or too large, cannot be read, or if the result cannot be written.
pub(crate) fn write_first_image(source: &dyn ByteSource, output: impl Write) -> Result<(), GifError> {
    let image = FirstImage::read(source)?;
    image.write_png(output).map_err(|error| match error {
        EncodingError::IoError(error) => GifError::Io(error),
        _ => GifError::Malformed,
    })
}

// === impl FirstImage ===

impl FirstImage {
    fn read(source: &dyn ByteSource) -> Result<Self, GifError> {
        let mut options = DecodeOptions::new();
        options.set_color_output(ColorOutput::Indexed);
        let limit = u64::from(PIXELS_MAX).try_into().map_err(|_| GifError::TooLarge)?;
        options.set_memory_limit(MemoryLimit::Bytes(limit));
        let mut decoder = options.read_info(SourceReader { source, offset: 0 })?;
        let (width, height) = (decoder.width(), decoder.height());
        check_pixels(width, height)?;
        let frame = decoder.next_frame_info()?.ok_or(GifError::Malformed)?.clone();
        check_pixels(frame.width, frame.height)?;
        let mut pixels = vec![0; decoder.buffer_size()];
        decoder.read_into_buffer(&mut pixels)?;
        let palette = decoder.palette()?.to_vec();
        Ok(Self { width, height, frame, pixels, palette })
    }

    fn write_png(&self, output: impl Write) -> Result<(), EncodingError> {
        let mut encoder = Encoder::new(output, self.width.into(), self.height.into());
        encoder.set_color(ColorType::Rgba);
        encoder.set_depth(BitDepth::Eight);
        encoder.set_compression(Compression::Fast);
        let mut writer = encoder.write_header()?;
        let mut rows = writer.stream_writer()?;
        for y in 0..self.height {
            let row: Vec<u8> = (0..self.width).flat_map(|x| self.color_at(x, y)).collect();
            rows.write_all(&row)?;
        }
        rows.finish()?;
        writer.finish()
    }

    /// Returns red, green, blue and alpha of a pixel of the canvas.
    fn color_at(&self, x: u16, y: u16) -> [u8; 4] {
        let inside = |position: u16, start: u16, length: u16| {
            position.checked_sub(start).filter(|offset| *offset < length).map(usize::from)
        };
        let column = inside(x, self.frame.left, self.frame.width);
        let row = inside(y, self.frame.top, self.frame.height);
        let index = column
            .zip(row)
            .and_then(|(column, row)| self.pixels.get(row * usize::from(self.frame.width) + column).copied());
        let index = index.filter(|index| Some(*index) != self.frame.transparent).map(usize::from);
        match index.and_then(|index| self.palette.get(3 * index..3 * index + 3)) {
            Some([red, green, blue]) => [*red, *green, *blue, u8::MAX],
            _ => [0; 4],
        }
    }
}

fn check_pixels(width: u16, height: u16) -> Result<(), GifError> {
    match u32::from(width) * u32::from(height) {
        0 => Err(GifError::Malformed),
        pixels if pixels > PIXELS_MAX => Err(GifError::TooLarge),
        _ => Ok(()),
    }
}

impl From<DecodingError> for GifError {
    fn from(error: DecodingError) -> Self {
        match error {
            DecodingError::MemoryLimit | DecodingError::OutOfMemory => Self::TooLarge,
            DecodingError::Io(error) if error.kind() != io::ErrorKind::UnexpectedEof => Self::Io(error),
            _ => Self::Malformed,
        }
    }
}

impl Read for SourceReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read_at(self.offset, buffer)?;
        self.offset += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use gif::{Encoder as GifEncoder, Repeat};

    use super::*;

    /// Red, green, blue and black.
    const PALETTE: [u8; 12] = [255, 0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0];

    fn frame(left: u16, width: u16, pixels: &[u8]) -> Frame<'_> {
        let height = u16::try_from(pixels.len()).expect("small") / width;
        Frame { left, width, height, buffer: pixels.into(), ..Frame::default() }
    }

    fn file(width: u16, height: u16, frames: &[Frame<'_>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = GifEncoder::new(&mut bytes, width, height, &PALETTE).expect("a header");
        encoder.set_repeat(Repeat::Infinite).expect("an extension");
        for frame in frames {
            encoder.write_frame(frame).expect("a frame");
        }
        drop(encoder);
        bytes
    }

    fn convert(bytes: &[u8]) -> Result<Vec<u8>, GifError> {
        let mut output = Vec::new();
        write_first_image(&bytes, &mut output).map(|()| output)
    }

    /// The pixels of a PNG file, and its width.
    fn pixels(png: &[u8]) -> (u32, Vec<u8>) {
        let mut reader = png::Decoder::new(io::Cursor::new(png)).read_info().expect("a header");
        let mut pixels = vec![0; reader.output_buffer_size().expect("a size")];
        let info = reader.next_frame(&mut pixels).expect("an image");
        assert_eq!(info.color_type, ColorType::Rgba);
        (info.width, pixels)
    }

    #[test]
    fn the_first_image_is_converted_with_its_transparency_and_its_position() {
        let first = Frame { transparent: Some(3), ..frame(1, 2, &[0, 3, 2, 1]) };
        let bytes = file(3, 2, &[first, frame(0, 3, &[1; 6])]);
        assert!(is_gif(&&bytes[..]).expect("readable") && !is_gif(&&b"GIF8"[..]).expect("readable"));
        let (red, green, blue, none) = ([255, 0, 0, 255], [0, 255, 0, 255], [0, 0, 255, 255], [0; 4]);
        let expected = [none, red, none, none, blue, green].concat();
        assert_eq!(pixels(&convert(&bytes).expect("a file")), (3, expected));
        // An image may reach beyond the canvas.
        let bytes = file(2, 1, &[frame(1, 3, &[0, 1, 2, 0, 1, 2])]);
        assert_eq!(pixels(&convert(&bytes).expect("a file")), (2, [none, red].concat()));
    }

    #[test]
    fn damaged_and_huge_files_are_refused() {
        let whole = file(40, 40, &[frame(0, 40, &[1; 1600])]);
        for end in [6, 12, 30, whole.len() - 8] {
            assert!(matches!(convert(&whole[..end]), Err(GifError::Malformed)), "{end}");
        }
        assert!(matches!(convert(&file(4, 4, &[])), Err(GifError::Malformed)));
        assert!(matches!(convert(&file(0, 4, &[frame(0, 1, &[0])])), Err(GifError::Malformed)));
        // A header with this canvas, and then one whose image is as large.
        assert!(matches!(convert(&file(u16::MAX, 200, &[frame(0, 1, &[0])])), Err(GifError::TooLarge)));
        let mut huge = file(4, 4, &[frame(0, 1, &[0])]);
        let at = huge.iter().rposition(|byte| *byte == b',').expect("an image descriptor");
        huge[at + 5..at + 9].fill(0xff);
        assert!(matches!(convert(&huge), Err(GifError::TooLarge)));
    }

    #[test]
    fn a_file_that_cannot_be_read_or_written_is_not_called_damaged() {
        struct UnreadableSource;
        impl ByteSource for UnreadableSource {
            fn len(&self) -> u64 {
                100
            }
            fn read_at(&self, _offset: u64, _buffer: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::PermissionDenied.into())
            }
        }
        assert!(matches!(write_first_image(&UnreadableSource, Vec::new()), Err(GifError::Io(_))));
        assert!(is_gif(&UnreadableSource).is_err());
        let bytes = file(40, 40, &[frame(0, 40, &[1; 1600])]);
        let no_room: &mut [u8] = &mut [0; 20];
        assert!(matches!(write_first_image(&&bytes[..], no_room), Err(GifError::Io(_))));
    }
}
