//! Parses WebP: a RIFF of chunks; the first is the image itself (VP8 or VP8L), or VP8X, which announces the other
//! chunks.
//!
//! The module derives alpha from the data that is present, and decides whether every inner size agrees with the outer
//! one.

use super::file_reader::ImageFileReader;
use super::{ImageFileError, ImageHeader, ImageProperties, checked_properties};
use crate::image::Format;

/// The offset of the first chunk, after `RIFF`, its size, and `WEBP`.
const FIRST_CHUNK: u64 = 12;

/// The flags of VP8X.
const ANIMATION: u8 = 0x02;
const ALPHA: u8 = 0x10;

/// One chunk; its body begins at offset `body`.
struct WebpChunk {
    kind: [u8; 4],
    length: u32,
    body: u64,
}

/// The header VP8X, which announces the chunks after it.
struct Vp8xHeader {
    canvas: ImageProperties,
    flags: u8,
}

/// Returns format and size from the first chunk; the length of the file is not checked.
pub(super) fn properties(reader: &ImageFileReader<'_>) -> Result<ImageProperties, ImageFileError> {
    let chunk = read_chunk(reader, FIRST_CHUNK)?;
    match &chunk.kind {
        b"VP8X" => read_vp8x_header(reader, &chunk).map(|header| header.canvas),
        _ => image_header(reader, &chunk).map(|header| header.properties),
    }
}

/// Reads up to the image chunk.
pub(super) fn inspect(reader: &mut ImageFileReader<'_>) -> Result<ImageHeader, ImageFileError> {
    let end = 8 + u64::from(u32::from_le_bytes(reader.bytes(4)?));
    reader.require_length(end)?;
    let first = next_chunk(reader, FIRST_CHUNK, end)?;
    match &first.kind {
        b"VP8X" => inspect_extended(reader, &first, end),
        _ => image_header(reader, &first),
    }
}

/// Reads the chunks after VP8X, up to the image.
fn inspect_extended(
    reader: &mut ImageFileReader<'_>,
    first: &WebpChunk,
    end: u64,
) -> Result<ImageHeader, ImageFileError> {
    let header = read_vp8x_header(reader, first)?;
    if header.flags & ANIMATION != 0 {
        return Err(ImageFileError::Animated(Format::Webp));
    }
    let (mut offset, mut has_alpha_chunk) = (first.end(), false);
    loop {
        let chunk = next_chunk(reader, offset, end)?;
        offset = chunk.end();
        match &chunk.kind {
            b"ANIM" | b"ANMF" => return Err(ImageFileError::Animated(Format::Webp)),
            b"VP8X" => return Err(reader.damaged("it has a second header")),
            // The first byte states the compression of the rest.
            b"ALPH" if chunk.length < 2 => return Err(reader.damaged("its alpha channel is empty")),
            b"ALPH" => has_alpha_chunk = true,
            b"VP8L" if has_alpha_chunk => return Err(reader.damaged("it has two alpha channels")),
            b"VP8L" => return header.check_canvas(reader, image_header(reader, &chunk)?),
            b"VP8 " => {
                let alpha = has_alpha_chunk && header.flags & ALPHA != 0;
                return header.check_canvas(reader, ImageHeader { has_alpha: alpha, ..image_header(reader, &chunk)? });
            }
            _ => {}
        }
    }
}

/// Returns the next chunk, which must lie within the RIFF.
fn next_chunk(reader: &mut ImageFileReader<'_>, offset: u64, end: u64) -> Result<WebpChunk, ImageFileError> {
    reader.count_part()?;
    if offset + 8 > end {
        return Err(reader.damaged("it has no image data"));
    }
    let chunk = read_chunk(reader, offset)?;
    if chunk.body + u64::from(chunk.length) > end {
        return Err(reader.damaged("a chunk reaches beyond the stated end of the file"));
    }
    Ok(chunk)
}

fn read_chunk(reader: &ImageFileReader<'_>, offset: u64) -> Result<WebpChunk, ImageFileError> {
    let [k0, k1, k2, k3, length @ ..] = reader.bytes::<8>(offset)?;
    Ok(WebpChunk { kind: [k0, k1, k2, k3], length: u32::from_le_bytes(length), body: offset + 8 })
}

fn read_vp8x_header(reader: &ImageFileReader<'_>, chunk: &WebpChunk) -> Result<Vp8xHeader, ImageFileError> {
    if chunk.length != 10 {
        return Err(reader.damaged("its header has a wrong length"));
    }
    let [flags, _, _, _, w0, w1, w2, h0, h1, h2] = reader.bytes(chunk.body)?;
    let [width, height] = [[w0, w1, w2, 0], [h0, h1, h2, 0]].map(|side| u32::from_le_bytes(side) + 1);
    Ok(Vp8xHeader { canvas: checked_properties(Format::Webp, width, height)?, flags })
}

/// Parses the head of an image chunk.
fn image_header(reader: &ImageFileReader<'_>, chunk: &WebpChunk) -> Result<ImageHeader, ImageFileError> {
    match &chunk.kind {
        b"VP8 " => lossy_header(reader, chunk),
        b"VP8L" => lossless_header(reader, chunk),
        _ => Err(reader.damaged("it does not begin with an image or a header")),
    }
}

fn lossy_header(reader: &ImageFileReader<'_>, chunk: &WebpChunk) -> Result<ImageHeader, ImageFileError> {
    let invalid_header = || reader.damaged("its image data does not begin with a key frame");
    if chunk.length < 10 {
        return Err(invalid_header());
    }
    let [t0, t1, t2, 0x9d, 0x01, 0x2a, w0, w1, h0, h1] = reader.bytes(chunk.body)? else {
        return Err(invalid_header());
    };
    let tag = u32::from_le_bytes([t0, t1, t2, 0]);
    let (inter, version, is_shown, partition) = (tag & 1, (tag >> 1) & 7, (tag >> 4) & 1, tag >> 5);
    if inter != 0 || version > 3 || is_shown == 0 || partition >= chunk.length {
        return Err(invalid_header());
    }
    // The two bits above each side request scaling; no reader implements it.
    let [width, height] = [[w0, w1], [h0, h1]].map(|side| u16::from_le_bytes(side) & 0x3fff);
    Ok(ImageHeader { properties: checked_properties(Format::Webp, width.into(), height.into())?, has_alpha: false })
}

fn lossless_header(reader: &ImageFileReader<'_>, chunk: &WebpChunk) -> Result<ImageHeader, ImageFileError> {
    let invalid_header = || reader.damaged("its lossless image data has an invalid header");
    if chunk.length < 5 {
        return Err(invalid_header());
    }
    let [0x2f, bits @ ..] = reader.bytes::<5>(chunk.body)? else {
        return Err(invalid_header());
    };
    let bits = u32::from_le_bytes(bits);
    if bits >> 29 != 0 {
        return Err(invalid_header());
    }
    let properties = checked_properties(Format::Webp, (bits & 0x3fff) + 1, ((bits >> 14) & 0x3fff) + 1)?;
    Ok(ImageHeader { properties, has_alpha: (bits >> 28) & 1 == 1 })
}

// === impl Vp8xHeader ===

impl Vp8xHeader {
    /// Returns the header if the frame is as large as the canvas.
    fn check_canvas(&self, reader: &ImageFileReader<'_>, header: ImageHeader) -> Result<ImageHeader, ImageFileError> {
        if header.properties == self.canvas {
            Ok(header)
        } else {
            Err(reader.damaged("its canvas and its image differ in size"))
        }
    }
}

// === impl WebpChunk ===

impl WebpChunk {
    /// Returns the offset of the next chunk; a body of odd length is padded.
    fn end(&self) -> u64 {
        self.body + u64::from(self.length) + u64::from(self.length & 1)
    }
}
