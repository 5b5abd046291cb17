//! What an image file says of itself in its structure: format, pixel size, whether it has an alpha channel.
//!
//! Decides: which uploads are whole still images ([`inspect`]), and what the head of a delivered image tells ([`probe`]).
//! Refuses to know: pixels (nothing is decoded or inflated), file names, declared types, and what the file is for; that
//! a mask needs alpha and the first image's format and size is a rule of the room that asks.
//! Bounds: at most [`MAX_PARTS`] chunks or segments, at most two reads of 260 bytes for each, no allocation at all.
//!
//! Each trap, and the verdict:
//!
//! | Trap | Verdict |
//! |---|---|
//! | name or declared type says otherwise, SVG, GIF, HEIC, an image behind other bytes | only the first bytes count |
//! | PNG types 4 and 6 in 8 and 16 bits, interlaced or not | alpha |
//! | PNG types 0, 2 and 3 with tRNS | alpha: a transparent region is what a mask is for |
//! | a mask that is opaque, or transparent, everywhere | the channel counts; no pixel is looked at |
//! | PNG: tRNS in types 4 and 6, of a wrong length or before its palette; depth 3, type 5 | damaged: readers disagree |
//! | PNG: IHDR not first, twice, not 13 bytes; no palette in type 3; IDAT missing or split | damaged |
//! | PNG: checksum | that of IHDR and tRNS, the chunks a verdict rests on |
//! | PNG: zTXt, iTXt, iCCP and all else that is optional | skipped by length |
//! | PNG: acTL before IDAT, even with one frame | animated; behind IDAT readers ignore it, and so does this |
//! | PNG: more pixels than its IDAT chunks can inflate to | hollow; this catches most lies about the size |
//! | a side of 0, or above [`MAX_SIDE`] | refused: JPEG has no larger number, and WebP only smaller ones |
//! | bytes behind the end of the image | not looked at |
//! | cut off before IEND (PNG), the first byte of the scan (JPEG), the size in the RIFF header (WebP) | ends too early |
//! | JPEG | never alpha; EXIF rotation ignored: the pixel size is the one stored; every SOF from 0 to 15 is a frame |
//! | JPEG: cut off within the scan | accepted: only reading all of it would tell |
//! | WebP: VP8 | alpha needs both the flag of VP8X and an ALPH chunk: some readers go by one, some by the other |
//! | WebP: VP8L | its own alpha bit, whatever the flag of VP8X says; ALPH beside it is damage |
//! | WebP: the flag, ANIM or ANMF of an animation | animated |
//! | WebP: canvas and frame differ, a chunk larger than the RIFF, no image chunk, a VP8 that is no key frame | damaged |
//! | WebP: padding missing behind the last chunk, reserved bits set | tolerated, as readers do |
//!
//! The walkers are written by hand: `imagesize` believes every number and needs a seeking reader, `png` allocates for
//! pixels and stops at the image data, and no crate tells what the flag of VP8X is worth. They serve as judges in the
//! tests instead.

mod flaw;
mod jpeg;
mod png;
mod walk;
mod webp;

#[cfg(test)]
#[cfg(feature = "gateway")]
mod tests;

use std::io;

use super::Format;
use walk::Walk;

pub(crate) use flaw::Flaw;

/// The longest side a file may claim, in pixels.
const MAX_SIDE: u32 = 65_535;

/// How many chunks or segments of a file are walked; 50 MiB of PNG in chunks of 8 KiB, the usual size, are 6,400.
const MAX_PARTS: u32 = 16_384;

/// Bytes that can be read at any place: a file on disk, or bytes in memory.
pub(crate) trait Source {
    /// How many bytes there are.
    fn len(&self) -> u64;

    /// Reads at a place and says how many bytes it was; none means there is nothing at or behind it.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
}

/// What an image file says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The file format, from its magic bytes.
    pub(crate) format: Format,
    /// Width in pixels as the file claims it.
    pub(crate) width: u32,
    /// Height in pixels as the file claims it.
    pub(crate) height: u32,
}

/// What the structure of a whole still image says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Format and pixel size.
    pub(crate) facts: Facts,
    /// Whether it has an alpha channel, in the sense of the table above.
    pub(crate) alpha: bool,
}

/// Walks the structure of an image file from its first byte as far as a verdict needs.
pub(crate) fn inspect(source: &dyn Source) -> Result<Header, Flaw> {
    if source.len() == 0 {
        return Err(Flaw::Empty);
    }
    let format = sniff(source)?.ok_or(Flaw::Unknown)?;
    let mut walk = Walk::new(source, format);
    match format {
        Format::Png => png::inspect(&mut walk),
        Format::Jpeg => jpeg::inspect(&mut walk),
        Format::Webp => webp::inspect(&mut walk),
    }
}

/// Reads the head of an image file, which may end anywhere; `None` when these bytes do not tell.
pub(crate) fn probe(head: &[u8]) -> Option<Facts> {
    let format = sniff(&head).ok()??;
    let mut walk = Walk::new(&head, format);
    let facts = match format {
        Format::Png => png::facts(&walk),
        Format::Jpeg => jpeg::facts(&mut walk),
        Format::Webp => webp::facts(&walk),
    };
    facts.ok()
}

/// The format that the first bytes name.
fn sniff(source: &dyn Source) -> Result<Option<Format>, Flaw> {
    let mut magic = [0; 12];
    let known = walk::fill(source, 0, &mut magic)?;
    Ok(match magic.get(..known) {
        Some([0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..]) => Some(Format::Png),
        Some([0xff, 0xd8, 0xff, ..]) => Some(Format::Jpeg),
        Some([b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P']) => Some(Format::Webp),
        _ => None,
    })
}

/// Facts with a size that an image can have.
fn facts(format: Format, width: u32, height: u32) -> Result<Facts, Flaw> {
    let possible = 1..=MAX_SIDE;
    if possible.contains(&width) && possible.contains(&height) {
        Ok(Facts { format, width, height })
    } else {
        Err(Flaw::Side { width, height })
    }
}

// === impl Source ===

impl Source for [u8] {
    fn len(&self) -> u64 {
        // A slice is never larger than half the address space.
        u64::try_from(<[u8]>::len(self)).unwrap_or(u64::MAX)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.get(offset..)).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

impl<S: Source + ?Sized> Source for &S {
    fn len(&self) -> u64 {
        (**self).len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        (**self).read_at(offset, buffer)
    }
}
