//! Parses WebP: a RIFF of chunks; the first is the image itself (VP8 or VP8L), or VP8X, which announces the other
//! chunks.
//!
//! Decides: alpha from the data that is present, and whether every inner size agrees with the outer one.

use super::walk::ImageFileReader;
use super::{ImageFileError, ImageHeader, ImageProperties, facts as sized};
use crate::image::Format;

/// The offset of the first chunk, after `RIFF`, its size, and `WEBP`.
const FIRST: u64 = 12;

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
pub(super) fn facts(walk: &ImageFileReader<'_>) -> Result<ImageProperties, ImageFileError> {
    let chunk = chunk(walk, FIRST)?;
    match &chunk.kind {
        b"VP8X" => promise(walk, &chunk).map(|promise| promise.canvas),
        _ => frame(walk, &chunk).map(|header| header.facts),
    }
}

/// Reads up to the image chunk.
pub(super) fn inspect(walk: &mut ImageFileReader<'_>) -> Result<ImageHeader, ImageFileError> {
    let end = 8 + u64::from(u32::from_le_bytes(walk.bytes(4)?));
    walk.reaches(end)?;
    let first = inside(walk, FIRST, end)?;
    match &first.kind {
        b"VP8X" => extended(walk, &first, end),
        _ => frame(walk, &first),
    }
}

/// Reads the chunks after VP8X, up to the image.
fn extended(walk: &mut ImageFileReader<'_>, first: &WebpChunk, end: u64) -> Result<ImageHeader, ImageFileError> {
    let promise = promise(walk, first)?;
    if promise.flags & ANIMATION != 0 {
        return Err(ImageFileError::Animated(Format::Webp));
    }
    let (mut place, mut mask) = (first.end(), false);
    loop {
        let chunk = inside(walk, place, end)?;
        place = chunk.end();
        match &chunk.kind {
            b"ANIM" | b"ANMF" => return Err(ImageFileError::Animated(Format::Webp)),
            b"VP8X" => return Err(walk.damaged("it has a second header")),
            // The first byte states the compression of the rest.
            b"ALPH" if chunk.length < 2 => return Err(walk.damaged("its alpha channel is empty")),
            b"ALPH" => mask = true,
            b"VP8L" if mask => return Err(walk.damaged("it has two alpha channels")),
            b"VP8L" => return promise.kept_by(walk, frame(walk, &chunk)?),
            b"VP8 " => {
                let alpha = mask && promise.flags & ALPHA != 0;
                return promise.kept_by(walk, ImageHeader { alpha, ..frame(walk, &chunk)? });
            }
            _ => {}
        }
    }
}

/// Returns the next chunk, which must lie within the RIFF.
fn inside(walk: &mut ImageFileReader<'_>, place: u64, end: u64) -> Result<WebpChunk, ImageFileError> {
    walk.step()?;
    if place + 8 > end {
        return Err(walk.damaged("it has no image data"));
    }
    let chunk = chunk(walk, place)?;
    if chunk.body + u64::from(chunk.length) > end {
        return Err(walk.damaged("a chunk is larger than the file says it is itself"));
    }
    Ok(chunk)
}

fn chunk(walk: &ImageFileReader<'_>, place: u64) -> Result<WebpChunk, ImageFileError> {
    let [k0, k1, k2, k3, length @ ..] = walk.bytes::<8>(place)?;
    Ok(WebpChunk { kind: [k0, k1, k2, k3], length: u32::from_le_bytes(length), body: place + 8 })
}

fn promise(walk: &ImageFileReader<'_>, chunk: &WebpChunk) -> Result<Vp8xHeader, ImageFileError> {
    if chunk.length != 10 {
        return Err(walk.damaged("its header is of a wrong length"));
    }
    let [flags, _, _, _, w0, w1, w2, h0, h1, h2] = walk.bytes(chunk.body)?;
    let [width, height] = [[w0, w1, w2, 0], [h0, h1, h2, 0]].map(|side| u32::from_le_bytes(side) + 1);
    Ok(Vp8xHeader { canvas: sized(Format::Webp, width, height)?, flags })
}

/// Parses the head of an image chunk.
fn frame(walk: &ImageFileReader<'_>, chunk: &WebpChunk) -> Result<ImageHeader, ImageFileError> {
    match &chunk.kind {
        b"VP8 " => lossy(walk, chunk),
        b"VP8L" => lossless(walk, chunk),
        _ => Err(walk.damaged("it does not begin with an image or a header")),
    }
}

fn lossy(walk: &ImageFileReader<'_>, chunk: &WebpChunk) -> Result<ImageHeader, ImageFileError> {
    let broken = || walk.damaged("its image data does not begin with a key frame");
    if chunk.length < 10 {
        return Err(broken());
    }
    let [t0, t1, t2, 0x9d, 0x01, 0x2a, w0, w1, h0, h1] = walk.bytes(chunk.body)? else {
        return Err(broken());
    };
    let tag = u32::from_le_bytes([t0, t1, t2, 0]);
    let (inter, version, shown, partition) = (tag & 1, (tag >> 1) & 7, (tag >> 4) & 1, tag >> 5);
    if inter != 0 || version > 3 || shown == 0 || partition >= chunk.length {
        return Err(broken());
    }
    // The two bits above each side request scaling; no reader implements it.
    let [width, height] = [[w0, w1], [h0, h1]].map(|side| u16::from_le_bytes(side) & 0x3fff);
    Ok(ImageHeader { facts: sized(Format::Webp, width.into(), height.into())?, alpha: false })
}

fn lossless(walk: &ImageFileReader<'_>, chunk: &WebpChunk) -> Result<ImageHeader, ImageFileError> {
    let broken = || walk.damaged("its image data does not begin as lossless data does");
    if chunk.length < 5 {
        return Err(broken());
    }
    let [0x2f, bits @ ..] = walk.bytes::<5>(chunk.body)? else {
        return Err(broken());
    };
    let bits = u32::from_le_bytes(bits);
    if bits >> 29 != 0 {
        return Err(broken());
    }
    let facts = sized(Format::Webp, (bits & 0x3fff) + 1, ((bits >> 14) & 0x3fff) + 1)?;
    Ok(ImageHeader { facts, alpha: (bits >> 28) & 1 == 1 })
}

// === impl Vp8xHeader ===

impl Vp8xHeader {
    /// Returns the header if the frame is as large as the canvas.
    fn kept_by(&self, walk: &ImageFileReader<'_>, header: ImageHeader) -> Result<ImageHeader, ImageFileError> {
        if header.facts == self.canvas {
            Ok(header)
        } else {
            Err(walk.damaged("its canvas and its image differ in size"))
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
