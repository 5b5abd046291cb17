//! Parses JPEG: segments of marker, length and body up to the frame (SOF), and further to the scan (SOS).
//!
//! The module decides whether exactly one frame precedes the first scan, and whether the scan has data.

use super::file_reader::ImageFileReader;
use super::{ImageFileError, ImageHeader, ImageProperties, checked_properties};
use crate::image::Format;

/// The offset after the marker SOI.
const FIRST_SEGMENT: u64 = 2;

/// One segment of the file.
struct JpegSegment {
    kind: JpegSegmentKind,
    /// The offset of the body.
    body: u64,
    /// The number of bytes of the body.
    length: u16,
}

/// The kinds of segments that the parser distinguishes.
#[derive(PartialEq, Eq)]
enum JpegSegmentKind {
    Frame,
    Scan,
    Other,
}

/// Returns the format, and the size that the frame header states. Nothing after that header is read.
pub(super) fn properties(reader: &mut ImageFileReader<'_>) -> Result<ImageProperties, ImageFileError> {
    read_frame(reader).map(|(properties, _)| properties)
}

/// Checks the structure of the file up to the first byte of image data, which must exist.
pub(super) fn inspect(reader: &mut ImageFileReader<'_>) -> Result<ImageHeader, ImageFileError> {
    let (properties, mut offset) = read_frame(reader)?;
    loop {
        let segment = next_segment(reader, offset)?;
        offset = segment.end();
        match segment.kind {
            JpegSegmentKind::Frame => return Err(reader.damaged("it has a second frame header")),
            JpegSegmentKind::Scan => break,
            JpegSegmentKind::Other => {}
        }
    }
    let [_] = reader.bytes(offset)?;
    Ok(ImageHeader { properties, has_alpha: false })
}

/// Returns the image properties in the frame header, and the offset after the header.
fn read_frame(reader: &mut ImageFileReader<'_>) -> Result<(ImageProperties, u64), ImageFileError> {
    let mut offset = FIRST_SEGMENT;
    loop {
        let segment = next_segment(reader, offset)?;
        offset = segment.end();
        match segment.kind {
            JpegSegmentKind::Frame => return Ok((frame_properties(reader, &segment)?, offset)),
            JpegSegmentKind::Scan => return Err(reader.damaged("its image data comes before its frame header")),
            JpegSegmentKind::Other => {}
        }
    }
}

fn frame_properties(reader: &ImageFileReader<'_>, frame: &JpegSegment) -> Result<ImageProperties, ImageFileError> {
    let [depth, h0, h1, w0, w1, components] = reader.bytes(frame.body)?;
    let is_valid = (2..=16).contains(&depth) && (1..=4).contains(&components);
    if !is_valid || frame.length != 6 + 3 * u16::from(components) {
        return Err(reader.damaged("its frame header contradicts itself"));
    }
    checked_properties(Format::Jpeg, u16::from_be_bytes([w0, w1]).into(), u16::from_be_bytes([h0, h1]).into())
}

/// Returns the first segment at or after this offset. Fill bytes and TEM markers may precede it; each of them counts as
/// a visited part, and the number of parts is limited.
fn next_segment(reader: &mut ImageFileReader<'_>, mut offset: u64) -> Result<JpegSegment, ImageFileError> {
    let kind = loop {
        reader.count_part()?;
        match reader.bytes(offset)? {
            [0xff, 0xff] => offset += 1,
            // The marker TEM has no body, and is skipped.
            [0xff, 0x01] => offset += 2,
            [0xff, marker] => break segment_kind(reader, marker)?,
            _ => return Err(reader.damaged("a marker is missing")),
        }
    };
    let length = u16::from_be_bytes(reader.bytes(offset + 2)?);
    let length = length.checked_sub(2).ok_or_else(|| reader.damaged("a segment is shorter than its own length"))?;
    Ok(JpegSegment { kind, body: offset + 4, length })
}

fn segment_kind(reader: &ImageFileReader<'_>, marker: u8) -> Result<JpegSegmentKind, ImageFileError> {
    match marker {
        // DHT and DAC are tables. Their marker codes lie within the range of the frame markers.
        0xc4 | 0xcc => Ok(JpegSegmentKind::Other),
        0xc8 => Err(reader.damaged("it has a frame of a kind that does not exist")),
        0xc0..=0xcf => Ok(JpegSegmentKind::Frame),
        0xda => Ok(JpegSegmentKind::Scan),
        0x00 | 0xd0..=0xd8 => Err(reader.damaged("it has a marker that is not allowed before the image data")),
        0xd9 => Err(reader.damaged("it ends before its image begins")),
        _ => Ok(JpegSegmentKind::Other),
    }
}

// === impl JpegSegment ===

impl JpegSegment {
    /// Returns the offset of the next segment.
    fn end(&self) -> u64 {
        self.body + u64::from(self.length)
    }
}
