//! Parses PNG: a signature, followed by chunks of length, type, body and checksum.
//!
//! Decides: alpha from the colour type and tRNS, and whether the chunks lead from IHDR over IDAT to IEND without a gap.

use super::walk::ImageFileReader;
use super::{ImageFileError, ImageHeader, ImageProperties, facts as sized};
use crate::image::Format;

/// The offset of the first chunk, after the signature of 8 bytes.
const FIRST: u64 = 8;

/// The number of bytes of length, type and checksum of a chunk.
const FRAME: u64 = 12;

/// Deflate expands 2 bits to at most 258 bytes.
const MAX_INFLATION: u64 = 1032;

/// The fields of IHDR that matter here.
struct PngHeader {
    facts: ImageProperties,
    depth: u8,
    color: u8,
}

/// One chunk; its body begins at offset `body`.
struct PngChunk {
    kind: [u8; 4],
    length: u32,
    body: u64,
}

/// The state of the parser between IHDR and IEND.
#[derive(Default)]
struct PngParseState {
    /// The number of palette entries; 0 without a palette.
    palette: u32,
    transparent: bool,
    /// The number of bytes of all IDAT chunks.
    data: u64,
    image: IdatPosition,
}

/// The position relative to the IDAT chunks: before, in or after them.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum IdatPosition {
    #[default]
    Ahead,
    Here,
    Behind,
}

/// Returns format and size from the first chunk, whose checksum may be missing.
pub(super) fn facts(walk: &ImageFileReader<'_>) -> Result<ImageProperties, ImageFileError> {
    ihdr(walk, &walk.bytes(FIRST)?).map(|ihdr| ihdr.facts)
}

/// Reads from IHDR to IEND.
pub(super) fn inspect(walk: &mut ImageFileReader<'_>) -> Result<ImageHeader, ImageFileError> {
    let first = walk.bytes::<21>(FIRST)?;
    let ihdr = ihdr(walk, &first)?;
    if walk.bytes(FIRST + 21)? != checksum(&first[4..]) {
        return Err(walk.damaged("the checksum of its header is wrong"));
    }
    let mut seen = PngParseState::default();
    let mut place = FIRST + FRAME + 13;
    loop {
        walk.step()?;
        let chunk = chunk(walk, place)?;
        place = chunk.body + u64::from(chunk.length) + 4;
        walk.reaches(place)?;
        if &chunk.kind == b"IEND" {
            break;
        }
        seen.add(walk, &ihdr, &chunk)?;
    }
    seen.conclude(walk, &ihdr)
}

fn ihdr(walk: &ImageFileReader<'_>, chunk: &[u8; 21]) -> Result<PngHeader, ImageFileError> {
    let [0, 0, 0, 13, b'I', b'H', b'D', b'R', body @ ..] = chunk else {
        return Err(walk.damaged("it does not begin with a header"));
    };
    let [w0, w1, w2, w3, h0, h1, h2, h3, depth, color, compression, filter, interlace] = *body;
    let facts = sized(Format::Png, u32::from_be_bytes([w0, w1, w2, w3]), u32::from_be_bytes([h0, h1, h2, h3]))?;
    let legal = match color {
        0 => matches!(depth, 1 | 2 | 4 | 8 | 16),
        3 => matches!(depth, 1 | 2 | 4 | 8),
        2 | 4 | 6 => matches!(depth, 8 | 16),
        _ => false,
    };
    if !legal {
        return Err(walk.damaged("its header has a colour type and bit depth that do not exist"));
    }
    if compression != 0 || filter != 0 || interlace > 1 {
        return Err(walk.damaged("its header has a compression, filter or interlace method that does not exist"));
    }
    Ok(PngHeader { facts, depth, color })
}

fn chunk(walk: &ImageFileReader<'_>, place: u64) -> Result<PngChunk, ImageFileError> {
    let [l0, l1, l2, l3, kind @ ..] = walk.bytes::<8>(place)?;
    let length = u32::from_be_bytes([l0, l1, l2, l3]);
    if length > i32::MAX.unsigned_abs() || !kind.iter().all(u8::is_ascii_alphabetic) {
        return Err(walk.damaged("there is no chunk where one must begin"));
    }
    Ok(PngChunk { kind, length, body: place + 8 })
}

/// Calculates the checksum of a chunk over type and body. It works bit by bit, which is fast enough for 30 to 260 bytes
/// per file.
pub(super) fn checksum(covered: &[u8]) -> [u8; 4] {
    let crc = covered.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    });
    (!crc).to_be_bytes()
}

// === impl PngHeader ===

impl PngHeader {
    /// Returns the minimum number of bytes of all pixels before compression: interlacing and filters only add to it.
    fn pixel_bytes(&self) -> u64 {
        let samples: u64 = match self.color {
            2 => 3,
            4 => 2,
            6 => 4,
            _ => 1,
        };
        let pixels = u64::from(self.facts.width) * u64::from(self.facts.height);
        (pixels * samples * u64::from(self.depth)).div_ceil(8)
    }
}

// === impl PngParseState ===

impl PngParseState {
    fn add(&mut self, walk: &ImageFileReader<'_>, ihdr: &PngHeader, chunk: &PngChunk) -> Result<(), ImageFileError> {
        if &chunk.kind == b"IDAT" {
            return self.data(walk, ihdr, chunk);
        }
        if self.image == IdatPosition::Here {
            self.image = IdatPosition::Behind;
        }
        match (&chunk.kind, self.image) {
            (b"IHDR", _) => Err(walk.damaged("it has a second header")),
            (b"acTL", IdatPosition::Ahead) => Err(ImageFileError::Animated(Format::Png)),
            (b"PLTE", IdatPosition::Ahead) if ihdr.color == 3 => self.palette(walk, chunk),
            (b"tRNS", IdatPosition::Ahead) => self.transparency(walk, ihdr, chunk),
            (b"PLTE", _) => Ok(()),
            // A lower-case first letter marks a type that readers may skip if they do not know it.
            ([first, ..], _) if first.is_ascii_lowercase() => Ok(()),
            _ => Err(walk.damaged("it has a chunk that no reader knows and none may skip")),
        }
    }

    fn data(&mut self, walk: &ImageFileReader<'_>, ihdr: &PngHeader, chunk: &PngChunk) -> Result<(), ImageFileError> {
        if self.image == IdatPosition::Behind {
            return Err(walk.damaged("its image data is split by another chunk"));
        }
        if ihdr.color == 3 && self.palette == 0 {
            return Err(walk.damaged("its palette is missing"));
        }
        self.image = IdatPosition::Here;
        self.data += u64::from(chunk.length);
        Ok(())
    }

    fn palette(&mut self, walk: &ImageFileReader<'_>, chunk: &PngChunk) -> Result<(), ImageFileError> {
        let entries = chunk.length / 3;
        let legal = chunk.length.is_multiple_of(3) && (1..=256).contains(&entries);
        if !legal || self.palette != 0 || self.transparent {
            return Err(walk.damaged("its palette is of a wrong length or in a wrong place"));
        }
        self.palette = entries;
        Ok(())
    }

    fn transparency(
        &mut self,
        walk: &ImageFileReader<'_>,
        ihdr: &PngHeader,
        chunk: &PngChunk,
    ) -> Result<(), ImageFileError> {
        let legal = match ihdr.color {
            0 => chunk.length == 2,
            2 => chunk.length == 6,
            3 => (1..=self.palette).contains(&chunk.length),
            _ => false,
        };
        if !legal || self.transparent {
            return Err(walk.damaged("its tRNS chunk does not go with its colour type"));
        }
        // Readers ignore a tRNS with a wrong checksum, and with it the alpha channel.
        let mut covered = [0; 4 + 256];
        let used = covered.get_mut(..4 + chunk.length as usize).unwrap_or_default();
        walk.read(chunk.body - 4, used)?;
        if walk.bytes(chunk.body + u64::from(chunk.length))? != checksum(used) {
            return Err(walk.damaged("the checksum of its tRNS chunk is wrong"));
        }
        self.transparent = true;
        Ok(())
    }

    fn conclude(self, walk: &ImageFileReader<'_>, ihdr: &PngHeader) -> Result<ImageHeader, ImageFileError> {
        let ImageProperties { width, height, .. } = ihdr.facts;
        if self.image == IdatPosition::Ahead {
            return Err(walk.damaged("it has no image data"));
        }
        if ihdr.pixel_bytes() > self.data * MAX_INFLATION {
            return Err(ImageFileError::Hollow { width, height });
        }
        Ok(ImageHeader { facts: ihdr.facts, alpha: matches!(ihdr.color, 4 | 6) || self.transparent })
    }
}
