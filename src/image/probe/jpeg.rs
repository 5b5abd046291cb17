//! Parses JPEG: segments of marker, length and body up to the frame (SOF), and further to the scan (SOS).
//!
//! Decides: exactly one frame precedes the first scan, and the scan has data.

use super::walk::ImageFileReader;
use super::{ImageFileError, ImageHeader, ImageProperties, facts as sized};
use crate::image::Format;

/// The offset after the marker SOI.
const FIRST: u64 = 2;

/// One segment that matters here.
struct JpegSegment {
    kind: JpegSegmentKind,
    /// The offset of the body.
    body: u64,
    /// The number of bytes of the body.
    length: u16,
}

/// The kind of a segment.
#[derive(PartialEq, Eq)]
enum JpegSegmentKind {
    Frame,
    Scan,
    Other,
}

/// Returns format and size from the frame; nothing after it is read.
pub(super) fn facts(walk: &mut ImageFileReader<'_>) -> Result<ImageProperties, ImageFileError> {
    frame(walk).map(|(facts, _)| facts)
}

/// Reads up to the first byte of the scan.
pub(super) fn inspect(walk: &mut ImageFileReader<'_>) -> Result<ImageHeader, ImageFileError> {
    let (facts, mut place) = frame(walk)?;
    loop {
        let segment = segment(walk, place)?;
        place = segment.end();
        match segment.kind {
            JpegSegmentKind::Frame => return Err(walk.damaged("it has a second frame header")),
            JpegSegmentKind::Scan => break,
            JpegSegmentKind::Other => {}
        }
    }
    let [_] = walk.bytes(place)?;
    Ok(ImageHeader { facts, alpha: false })
}

/// Returns the facts from the frame header and the offset after it.
fn frame(walk: &mut ImageFileReader<'_>) -> Result<(ImageProperties, u64), ImageFileError> {
    let mut place = FIRST;
    loop {
        let segment = segment(walk, place)?;
        place = segment.end();
        match segment.kind {
            JpegSegmentKind::Frame => return Ok((size(walk, &segment)?, place)),
            JpegSegmentKind::Scan => return Err(walk.damaged("its image data comes before its frame header")),
            JpegSegmentKind::Other => {}
        }
    }
}

fn size(walk: &ImageFileReader<'_>, frame: &JpegSegment) -> Result<ImageProperties, ImageFileError> {
    let [depth, h0, h1, w0, w1, components] = walk.bytes(frame.body)?;
    let legal = (2..=16).contains(&depth) && (1..=4).contains(&components);
    if !legal || frame.length != 6 + 3 * u16::from(components) {
        return Err(walk.damaged("its frame header contradicts itself"));
    }
    sized(Format::Jpeg, u16::from_be_bytes([w0, w1]).into(), u16::from_be_bytes([h0, h1]).into())
}

/// Returns the segment at this offset. Any number of fill bytes may precede a marker; each of them costs a step.
fn segment(walk: &mut ImageFileReader<'_>, mut place: u64) -> Result<JpegSegment, ImageFileError> {
    let kind = loop {
        walk.step()?;
        match walk.bytes(place)? {
            [0xff, 0xff] => place += 1,
            // TEM has no body and no meaning here.
            [0xff, 0x01] => place += 2,
            [0xff, marker] => break kind(walk, marker)?,
            _ => return Err(walk.damaged("there is no marker where one must stand")),
        }
    };
    let length = u16::from_be_bytes(walk.bytes(place + 2)?);
    let length = length.checked_sub(2).ok_or_else(|| walk.damaged("a segment is shorter than its own length"))?;
    Ok(JpegSegment { kind, body: place + 4, length })
}

fn kind(walk: &ImageFileReader<'_>, marker: u8) -> Result<JpegSegmentKind, ImageFileError> {
    match marker {
        // DHT and DAC are tables whose numbers lie among those of the frames.
        0xc4 | 0xcc => Ok(JpegSegmentKind::Other),
        0xc8 => Err(walk.damaged("it has a frame of a kind that does not exist")),
        0xc0..=0xcf => Ok(JpegSegmentKind::Frame),
        0xda => Ok(JpegSegmentKind::Scan),
        0x00 | 0xd0..=0xd8 => Err(walk.damaged("it has a marker that cannot stand before the image data")),
        0xd9 => Err(walk.damaged("it ends before its image begins")),
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
