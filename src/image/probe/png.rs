//! Parses PNG: a signature, followed by chunks of length, type, body and checksum.
//!
//! The module derives alpha from the colour type and tRNS, and decides whether the chunks lead from IHDR through
//! IDAT to IEND without a gap.

use super::file_reader::ImageFileReader;
use super::{ImageFileError, ImageHeader, ImageProperties, checked_properties};
use crate::image::Format;

/// The offset of the first chunk, after the signature of 8 bytes.
const FIRST_CHUNK: u64 = 8;

/// The number of bytes of length, type and checksum of a chunk.
const CHUNK_OVERHEAD: u64 = 12;

/// Deflate expands 2 bits to at most 258 bytes.
const MAX_INFLATION: u64 = 1032;

/// The fields of IHDR that the parser uses.
struct PngHeader {
    properties: ImageProperties,
    bit_depth: u8,
    color_type: u8,
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
    palette_entries: u32,
    has_transparency: bool,
    /// The number of bytes of all IDAT chunks.
    data_bytes: u64,
    idat_position: IdatPosition,
}

/// The position relative to the IDAT chunks: before, in or after them.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum IdatPosition {
    #[default]
    Before,
    Inside,
    After,
}

/// Returns format and size from the first chunk, whose checksum may be missing.
pub(super) fn properties(reader: &ImageFileReader<'_>) -> Result<ImageProperties, ImageFileError> {
    read_header(reader, &reader.bytes(FIRST_CHUNK)?).map(|ihdr| ihdr.properties)
}

/// Reads from IHDR to IEND.
pub(super) fn inspect(reader: &mut ImageFileReader<'_>) -> Result<ImageHeader, ImageFileError> {
    let first = reader.bytes::<21>(FIRST_CHUNK)?;
    let ihdr = read_header(reader, &first)?;
    if reader.bytes(FIRST_CHUNK + 21)? != checksum(&first[4..]) {
        return Err(reader.damaged("the checksum of its header is wrong"));
    }
    let mut state = PngParseState::default();
    let mut offset = FIRST_CHUNK + CHUNK_OVERHEAD + 13;
    loop {
        reader.count_part()?;
        let chunk = read_chunk(reader, offset)?;
        offset = chunk.body + u64::from(chunk.length) + 4;
        reader.require_length(offset)?;
        if &chunk.kind == b"IEND" {
            break;
        }
        state.add_chunk(reader, &ihdr, &chunk)?;
    }
    state.finish(reader, &ihdr)
}

fn read_header(reader: &ImageFileReader<'_>, chunk: &[u8; 21]) -> Result<PngHeader, ImageFileError> {
    let [0, 0, 0, 13, b'I', b'H', b'D', b'R', body @ ..] = chunk else {
        return Err(reader.damaged("it does not begin with a header"));
    };
    let [w0, w1, w2, w3, h0, h1, h2, h3, depth, color, compression, filter, interlace] = *body;
    let properties =
        checked_properties(Format::Png, u32::from_be_bytes([w0, w1, w2, w3]), u32::from_be_bytes([h0, h1, h2, h3]))?;
    let is_valid = match color {
        0 => matches!(depth, 1 | 2 | 4 | 8 | 16),
        3 => matches!(depth, 1 | 2 | 4 | 8),
        2 | 4 | 6 => matches!(depth, 8 | 16),
        _ => false,
    };
    if !is_valid {
        return Err(reader.damaged("its header has a colour type and bit depth that do not exist"));
    }
    if compression != 0 || filter != 0 || interlace > 1 {
        return Err(reader.damaged("its header has a compression, filter or interlace method that does not exist"));
    }
    Ok(PngHeader { properties, bit_depth: depth, color_type: color })
}

fn read_chunk(reader: &ImageFileReader<'_>, offset: u64) -> Result<PngChunk, ImageFileError> {
    let [l0, l1, l2, l3, kind @ ..] = reader.bytes::<8>(offset)?;
    let length = u32::from_be_bytes([l0, l1, l2, l3]);
    if length > i32::MAX.unsigned_abs() || !kind.iter().all(u8::is_ascii_alphabetic) {
        return Err(reader.damaged("a chunk is missing or its header is invalid"));
    }
    Ok(PngChunk { kind, length, body: offset + 8 })
}

/// Calculates the checksum of a chunk over type and body. It works bit by bit, which is fast enough for the few hundred
/// bytes per file.
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
        let samples: u64 = match self.color_type {
            2 => 3,
            4 => 2,
            6 => 4,
            _ => 1,
        };
        let pixels = u64::from(self.properties.width) * u64::from(self.properties.height);
        (pixels * samples * u64::from(self.bit_depth)).div_ceil(8)
    }
}

// === impl PngParseState ===

impl PngParseState {
    fn add_chunk(
        &mut self,
        reader: &ImageFileReader<'_>,
        ihdr: &PngHeader,
        chunk: &PngChunk,
    ) -> Result<(), ImageFileError> {
        if &chunk.kind == b"IDAT" {
            return self.add_image_data(reader, ihdr, chunk);
        }
        if self.idat_position == IdatPosition::Inside {
            self.idat_position = IdatPosition::After;
        }
        match (&chunk.kind, self.idat_position) {
            (b"IHDR", _) => Err(reader.damaged("it has a second header")),
            (b"acTL", IdatPosition::Before) => Err(ImageFileError::Animated(Format::Png)),
            (b"PLTE", IdatPosition::Before) if ihdr.color_type == 3 => self.add_palette(reader, chunk),
            (b"tRNS", IdatPosition::Before) => self.add_transparency(reader, ihdr, chunk),
            (b"PLTE", _) => Ok(()),
            // A lower-case first letter marks a type that readers may skip if they do not know it.
            ([first, ..], _) if first.is_ascii_lowercase() => Ok(()),
            _ => Err(reader.damaged("it has an unknown critical chunk")),
        }
    }

    fn add_image_data(
        &mut self,
        reader: &ImageFileReader<'_>,
        ihdr: &PngHeader,
        chunk: &PngChunk,
    ) -> Result<(), ImageFileError> {
        if self.idat_position == IdatPosition::After {
            return Err(reader.damaged("its image data is split by another chunk"));
        }
        if ihdr.color_type == 3 && self.palette_entries == 0 {
            return Err(reader.damaged("its palette is missing"));
        }
        self.idat_position = IdatPosition::Inside;
        self.data_bytes += u64::from(chunk.length);
        Ok(())
    }

    fn add_palette(&mut self, reader: &ImageFileReader<'_>, chunk: &PngChunk) -> Result<(), ImageFileError> {
        let entries = chunk.length / 3;
        let is_valid = chunk.length.is_multiple_of(3) && (1..=256).contains(&entries);
        if !is_valid || self.palette_entries != 0 || self.has_transparency {
            return Err(reader.damaged("its palette has a wrong length or position"));
        }
        self.palette_entries = entries;
        Ok(())
    }

    fn add_transparency(
        &mut self,
        reader: &ImageFileReader<'_>,
        ihdr: &PngHeader,
        chunk: &PngChunk,
    ) -> Result<(), ImageFileError> {
        let is_valid = match ihdr.color_type {
            0 => chunk.length == 2,
            2 => chunk.length == 6,
            3 => (1..=self.palette_entries).contains(&chunk.length),
            _ => false,
        };
        if !is_valid || self.has_transparency {
            return Err(reader.damaged("its tRNS chunk does not match its colour type"));
        }
        // Readers ignore a tRNS with a wrong checksum, and with it the alpha channel.
        let mut covered = [0; 4 + 256];
        let used = covered.get_mut(..4 + chunk.length as usize).unwrap_or_default();
        reader.read(chunk.body - 4, used)?;
        if reader.bytes(chunk.body + u64::from(chunk.length))? != checksum(used) {
            return Err(reader.damaged("the checksum of its tRNS chunk is wrong"));
        }
        self.has_transparency = true;
        Ok(())
    }

    fn finish(self, reader: &ImageFileReader<'_>, ihdr: &PngHeader) -> Result<ImageHeader, ImageFileError> {
        let ImageProperties { width, height, .. } = ihdr.properties;
        if self.idat_position == IdatPosition::Before {
            return Err(reader.damaged("it has no image data"));
        }
        if ihdr.pixel_bytes() > self.data_bytes * MAX_INFLATION {
            return Err(ImageFileError::TooFewBytes { width, height });
        }
        Ok(ImageHeader {
            properties: ihdr.properties,
            has_alpha: matches!(ihdr.color_type, 4 | 6) || self.has_transparency,
        })
    }
}
