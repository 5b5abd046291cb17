//! WebP: a RIFF of chunks; the first is the image itself (VP8 or VP8L), or VP8X which says what follows.
//!
//! Decides: alpha from what is really there, and that every size inside agrees with the one outside.

use super::walk::Walk;
use super::{Facts, Flaw, Header, facts as sized};
use crate::image::Format;

/// Behind `RIFF`, its size, and `WEBP`: the first chunk.
const FIRST: u64 = 12;

/// Flags of VP8X.
const ANIMATION: u8 = 0x02;
const ALPHA: u8 = 0x10;

/// One chunk; its body begins at `body`.
struct Chunk {
    kind: [u8; 4],
    length: u32,
    body: u64,
}

/// VP8X: what it promises of the chunks behind it.
struct Promise {
    canvas: Facts,
    flags: u8,
}

/// Format and size from the first chunk; whether the file is as long as it says is not asked.
pub(super) fn facts(walk: &Walk<'_>) -> Result<Facts, Flaw> {
    let chunk = chunk(walk, FIRST)?;
    match &chunk.kind {
        b"VP8X" => promise(walk, &chunk).map(|promise| promise.canvas),
        _ => frame(walk, &chunk).map(|header| header.facts),
    }
}

/// Walks to the image chunk.
pub(super) fn inspect(walk: &mut Walk<'_>) -> Result<Header, Flaw> {
    let end = 8 + u64::from(u32::from_le_bytes(walk.bytes(4)?));
    walk.reaches(end)?;
    let first = inside(walk, FIRST, end)?;
    match &first.kind {
        b"VP8X" => extended(walk, &first, end),
        _ => frame(walk, &first),
    }
}

/// The chunks behind VP8X, up to the image.
fn extended(walk: &mut Walk<'_>, first: &Chunk, end: u64) -> Result<Header, Flaw> {
    let promise = promise(walk, first)?;
    if promise.flags & ANIMATION != 0 {
        return Err(Flaw::Animated(Format::Webp));
    }
    let (mut place, mut mask) = (first.end(), false);
    loop {
        let chunk = inside(walk, place, end)?;
        place = chunk.end();
        match &chunk.kind {
            b"ANIM" | b"ANMF" => return Err(Flaw::Animated(Format::Webp)),
            b"VP8X" => return Err(walk.damaged("it has a second header")),
            // One byte says how the rest is packed.
            b"ALPH" if chunk.length < 2 => return Err(walk.damaged("its alpha channel is empty")),
            b"ALPH" => mask = true,
            b"VP8L" if mask => return Err(walk.damaged("it has two alpha channels")),
            b"VP8L" => return promise.kept_by(walk, frame(walk, &chunk)?),
            b"VP8 " => {
                let alpha = mask && promise.flags & ALPHA != 0;
                return promise.kept_by(walk, Header { alpha, ..frame(walk, &chunk)? });
            }
            _ => {}
        }
    }
}

/// The next chunk, which must lie within the RIFF.
fn inside(walk: &mut Walk<'_>, place: u64, end: u64) -> Result<Chunk, Flaw> {
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

fn chunk(walk: &Walk<'_>, place: u64) -> Result<Chunk, Flaw> {
    let [k0, k1, k2, k3, length @ ..] = walk.bytes::<8>(place)?;
    Ok(Chunk { kind: [k0, k1, k2, k3], length: u32::from_le_bytes(length), body: place + 8 })
}

fn promise(walk: &Walk<'_>, chunk: &Chunk) -> Result<Promise, Flaw> {
    if chunk.length != 10 {
        return Err(walk.damaged("its header is of a wrong length"));
    }
    let [flags, _, _, _, w0, w1, w2, h0, h1, h2] = walk.bytes(chunk.body)?;
    let [width, height] = [[w0, w1, w2, 0], [h0, h1, h2, 0]].map(|side| u32::from_le_bytes(side) + 1);
    Ok(Promise { canvas: sized(Format::Webp, width, height)?, flags })
}

/// The head of an image chunk.
fn frame(walk: &Walk<'_>, chunk: &Chunk) -> Result<Header, Flaw> {
    match &chunk.kind {
        b"VP8 " => lossy(walk, chunk),
        b"VP8L" => lossless(walk, chunk),
        _ => Err(walk.damaged("it does not begin with an image or a header")),
    }
}

fn lossy(walk: &Walk<'_>, chunk: &Chunk) -> Result<Header, Flaw> {
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
    // The two bits above each side are a wish for scaling that no reader fulfils.
    let [width, height] = [[w0, w1], [h0, h1]].map(|side| u16::from_le_bytes(side) & 0x3fff);
    Ok(Header { facts: sized(Format::Webp, width.into(), height.into())?, alpha: false })
}

fn lossless(walk: &Walk<'_>, chunk: &Chunk) -> Result<Header, Flaw> {
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
    Ok(Header { facts, alpha: (bits >> 28) & 1 == 1 })
}

// === impl Promise ===

impl Promise {
    /// The header, if the frame is as large as the canvas.
    fn kept_by(&self, walk: &Walk<'_>, header: Header) -> Result<Header, Flaw> {
        if header.facts == self.canvas {
            Ok(header)
        } else {
            Err(walk.damaged("its canvas and its image differ in size"))
        }
    }
}

// === impl Chunk ===

impl Chunk {
    /// Where the next chunk begins; an odd body is padded.
    fn end(&self) -> u64 {
        self.body + u64::from(self.length) + u64::from(self.length & 1)
    }
}
