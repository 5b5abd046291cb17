//! Reads the structure of an image file: format, pixel size, and the presence of an alpha channel.
//!
//! The module decides which uploads are complete still images ([`inspect`]), and which properties the head of a
//! delivered image states ([`probe`]). It must not know pixels (nothing is decoded or inflated), file names, declared
//! types, or the purpose of the file: the caller checks that a mask has alpha, and the format and size of the first
//! image.
//!
//! Each difficult case and its verdict:
//!
//! | Case | Verdict |
//! |---|---|
//! | name or declared type differs, SVG, GIF, HEIC, an image after other bytes | only the first bytes count |
//! | PNG types 4 and 6 in 8 and 16 bits, interlaced or not | alpha |
//! | PNG types 0, 2 and 3 with tRNS | alpha: the image can have transparent regions, which masks need |
//! | a mask that is opaque, or transparent, everywhere | the channel counts; no pixel is decoded |
//! | PNG: tRNS in types 4 and 6, of a wrong length or before its palette; depth 3, type 5 | damaged: readers disagree |
//! | PNG: IHDR not first, twice, not 13 bytes; no palette in type 3; IDAT missing or not contiguous | damaged |
//! | PNG: checksum | checked for IHDR and tRNS, on which a verdict depends |
//! | PNG: zTXt, iTXt, iCCP and all else that is optional | skipped by length |
//! | PNG: acTL before IDAT, even with one frame | animated; after IDAT, readers ignore it, and so does this module |
//! | PNG: more pixels than its IDAT chunks can inflate to | refused: the stated size is false |
//! | a side of 0, or above [`MAX_SIDE`] | refused: JPEG cannot store a longer side, and WebP allows even less |
//! | bytes after the end of the image | not read |
//! | cut off before IEND (PNG), the first scan byte (JPEG), the size in the RIFF header (WebP) | ends too early |
//! | JPEG | never alpha; EXIF rotation ignored: the pixel size is the one stored; each SOF marker begins a frame |
//! | JPEG: cut off within the scan | accepted: only reading all of it would reveal that |
//! | WebP: VP8 | alpha needs both the flag of VP8X and an ALPH chunk: readers differ in which of the two they use |
//! | WebP: VP8L | its own alpha bit, whatever the flag of VP8X says; damaged if ALPH precedes it |
//! | WebP: the flag, ANIM or ANMF of an animation | animated |
//! | WebP: canvas and frame differ, a chunk larger than the RIFF, no image chunk, VP8 without a key frame | damaged |
//! | WebP: padding missing after the last chunk, reserved bits set | tolerated, as in other readers |
//!
//! The parsers are written by hand: `imagesize` accepts every size and needs a seeking reader, `png` allocates memory
//! for pixels and stops at the image data, and no crate checks the flag of VP8X against the chunks. The tests compare
//! the results with these crates instead.

mod file_error;
mod file_reader;
mod jpeg;
mod png;
mod webp;

#[cfg(test)]
#[cfg(feature = "gateway")]
mod tests;

use std::io;

use super::Format;
use file_reader::ImageFileReader;

pub(crate) use file_error::ImageFileError;

/// The longest side that a file may state, in pixels.
const MAX_SIDE: u32 = 65_535;

/// The maximum number of chunks or segments that are visited (our choice): 50 MiB of PNG in chunks of 8 KiB, the usual
/// size, are 6,400.
const MAX_PARTS: u32 = 16_384;

/// Bytes that can be read at any offset: a file on disk, or bytes in memory.
pub(crate) trait ByteSource {
    /// Returns the number of bytes.
    fn len(&self) -> u64;

    /// Reads at an offset and returns the number of bytes read; 0 means that there are no bytes at or after the offset.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
}

/// The format and size that an image file states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ImageProperties {
    /// The file format, from its magic bytes.
    pub(crate) format: Format,
    /// Width in pixels, as the file states it.
    pub(crate) width: u32,
    /// Height in pixels, as the file states it.
    pub(crate) height: u32,
}

/// The properties of a complete still image, as its structure states them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ImageHeader {
    /// Format and pixel size.
    pub(crate) properties: ImageProperties,
    /// True if the image has an alpha channel, in the sense of the table above.
    pub(crate) has_alpha: bool,
}

/// Reads the structure of an image file from its first byte, as far as the verdict requires.
pub(crate) fn inspect(source: &dyn ByteSource) -> Result<ImageHeader, ImageFileError> {
    if source.len() == 0 {
        return Err(ImageFileError::Empty);
    }
    let format = sniff(source)?.ok_or(ImageFileError::Unknown)?;
    let mut reader = ImageFileReader::new(source, format);
    match format {
        Format::Png => png::inspect(&mut reader),
        Format::Jpeg => jpeg::inspect(&mut reader),
        Format::Webp => webp::inspect(&mut reader),
        // No edit takes a GIF.
        Format::Gif => Err(ImageFileError::Unknown),
    }
}

/// Reads the head of an image file, which may end anywhere; returns `None` if the bytes do not contain format and size.
pub(crate) fn probe(head: &[u8]) -> Option<ImageProperties> {
    let format = sniff(&head).ok()??;
    let mut reader = ImageFileReader::new(&head, format);
    let properties = match format {
        Format::Png => png::properties(&reader),
        Format::Jpeg => jpeg::properties(&mut reader),
        Format::Webp => webp::properties(&reader),
        Format::Gif => gif_properties(head),
    };
    properties.ok()
}

/// The content of a file that is in none of the formats that a request can name.
#[cfg(feature = "gateway")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OtherContent {
    /// An image in the format with this name.
    Image(&'static str),
    /// A page or JSON in place of an image.
    Text,
}

/// Returns the content of a file by its first bytes, if it is in none of the formats that a request can name; `None` if
/// it is in one of these, or if the bytes do not show it.
#[cfg(feature = "gateway")]
pub(crate) fn other_content(head: &[u8]) -> Option<OtherContent> {
    let is_text = |beginning: &[u8]| {
        let text = head.trim_ascii_start();
        text.get(..beginning.len()).is_some_and(|text| text.eq_ignore_ascii_case(beginning))
    };
    Some(match head {
        [_, _, _, _, b'f', b't', b'y', b'p', b'a', b'v', b'i', b'f' | b's', ..] => OtherContent::Image("avif"),
        [_, _, _, _, b'f', b't', b'y', b'p', b'h', b'e', b'i' | b'v', ..]
        | [_, _, _, _, b'f', b't', b'y', b'p', b'm', b'i', b'f', b'1', ..] => OtherContent::Image("heic"),
        [0xff, 0x0a, ..] | [0, 0, 0, 0x0c, b'J', b'X', b'L', b' ', ..] => OtherContent::Image("jxl"),
        [b'I', b'I', 42, 0, ..] | [b'M', b'M', 0, 42, ..] => OtherContent::Image("tiff"),
        [b'B', b'M', _, _, _, _, 0, 0, 0, 0, ..] => OtherContent::Image("bmp"),
        _ if is_text(b"<svg") => OtherContent::Image("svg"),
        _ if [&b"<!doctype html"[..], b"<html", b"{\""].into_iter().any(is_text) => OtherContent::Text,
        _ => return None,
    })
}

/// The number of bytes of a file that show its format.
#[cfg(feature = "gateway")]
pub(crate) const FORMAT_BYTES: usize = 12;

/// True if the head of a file, of at least [`FORMAT_BYTES`], begins like one of the formats.
#[cfg(feature = "gateway")]
pub(crate) fn has_known_format(head: &[u8]) -> bool {
    sniff(&head).is_ok_and(|format| format.is_some())
}

/// Returns the format that the first bytes name.
fn sniff(source: &dyn ByteSource) -> Result<Option<Format>, ImageFileError> {
    let mut magic = [0; 12];
    let known = file_reader::read_full(source, 0, &mut magic)?;
    Ok(match magic.get(..known) {
        Some([0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..]) => Some(Format::Png),
        Some([0xff, 0xd8, 0xff, ..]) => Some(Format::Jpeg),
        Some([b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P']) => Some(Format::Webp),
        Some([b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..]) => Some(Format::Gif),
        _ => None,
    })
}

/// Reads the size of a GIF: that of its logical screen, which each frame is drawn on.
fn gif_properties(head: &[u8]) -> Result<ImageProperties, ImageFileError> {
    let Some(&[a, b, c, d]) = head.get(6..10) else { return Err(ImageFileError::Unknown) };
    let [width, height] = [[a, b], [c, d]].map(u16::from_le_bytes);
    checked_properties(Format::Gif, width.into(), height.into())
}

/// Creates the properties, or returns an error if no image can have this size.
fn checked_properties(format: Format, width: u32, height: u32) -> Result<ImageProperties, ImageFileError> {
    let possible = 1..=MAX_SIDE;
    if possible.contains(&width) && possible.contains(&height) {
        Ok(ImageProperties { format, width, height })
    } else {
        Err(ImageFileError::InvalidSide { width, height })
    }
}

// === impl ByteSource ===

impl ByteSource for [u8] {
    fn len(&self) -> u64 {
        // The conversion cannot fail: no supported platform has a `usize` of more than 64 bits.
        <[u8]>::len(self) as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let remaining = usize::try_from(offset).ok().and_then(|offset| self.get(offset..)).unwrap_or_default();
        let count = remaining.len().min(buffer.len());
        buffer[..count].copy_from_slice(&remaining[..count]);
        Ok(count)
    }
}

impl<S: ByteSource + ?Sized> ByteSource for &S {
    fn len(&self) -> u64 {
        (**self).len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        (**self).read_at(offset, buffer)
    }
}
