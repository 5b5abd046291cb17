//! JPEG: segments of marker, length and body up to the frame (SOF), and on to the scan (SOS).
//!
//! Decides: that there is exactly one frame before the first scan, and that the scan begins.

use super::walk::Walk;
use super::{Facts, Flaw, Header, facts as sized};
use crate::image::Format;

/// Behind the marker SOI.
const FIRST: u64 = 2;

/// One segment that means something here, and where the next begins.
struct Segment {
    kind: Kind,
    /// Where the body begins.
    body: u64,
    /// Bytes of the body.
    length: u16,
}

/// What a segment is.
#[derive(PartialEq, Eq)]
enum Kind {
    Frame,
    Scan,
    Other,
}

/// Format and size from the frame; nothing behind it is read.
pub(super) fn facts(walk: &mut Walk<'_>) -> Result<Facts, Flaw> {
    frame(walk).map(|(facts, _)| facts)
}

/// Walks to the first byte of the scan.
pub(super) fn inspect(walk: &mut Walk<'_>) -> Result<Header, Flaw> {
    let (facts, mut place) = frame(walk)?;
    loop {
        let segment = segment(walk, place)?;
        place = segment.end();
        match segment.kind {
            Kind::Frame => return Err(walk.damaged("it has a second frame header")),
            Kind::Scan => break,
            Kind::Other => {}
        }
    }
    let [_] = walk.bytes(place)?;
    Ok(Header { facts, alpha: false })
}

/// The frame header, and the place behind it.
fn frame(walk: &mut Walk<'_>) -> Result<(Facts, u64), Flaw> {
    let mut place = FIRST;
    loop {
        let segment = segment(walk, place)?;
        place = segment.end();
        match segment.kind {
            Kind::Frame => return Ok((size(walk, &segment)?, place)),
            Kind::Scan => return Err(walk.damaged("its image data comes before its frame header")),
            Kind::Other => {}
        }
    }
}

fn size(walk: &Walk<'_>, frame: &Segment) -> Result<Facts, Flaw> {
    let [depth, h0, h1, w0, w1, components] = walk.bytes(frame.body)?;
    let legal = (2..=16).contains(&depth) && (1..=4).contains(&components);
    if !legal || frame.length != 6 + 3 * u16::from(components) {
        return Err(walk.damaged("its frame header contradicts itself"));
    }
    sized(Format::Jpeg, u16::from_be_bytes([w0, w1]).into(), u16::from_be_bytes([h0, h1]).into())
}

/// The segment at this place. A marker may be preceded by any number of fill bytes; each costs a step.
fn segment(walk: &mut Walk<'_>, mut place: u64) -> Result<Segment, Flaw> {
    let kind = loop {
        walk.step()?;
        match walk.bytes(place)? {
            [0xff, 0xff] => place += 1,
            // TEM stands alone and means nothing.
            [0xff, 0x01] => place += 2,
            [0xff, marker] => break kind(walk, marker)?,
            _ => return Err(walk.damaged("there is no marker where one must stand")),
        }
    };
    let length = u16::from_be_bytes(walk.bytes(place + 2)?);
    let length = length.checked_sub(2).ok_or_else(|| walk.damaged("a segment is shorter than its own length"))?;
    Ok(Segment { kind, body: place + 4, length })
}

fn kind(walk: &Walk<'_>, marker: u8) -> Result<Kind, Flaw> {
    match marker {
        // DHT and DAC are tables among the numbers of the frames.
        0xc4 | 0xcc => Ok(Kind::Other),
        0xc8 => Err(walk.damaged("it has a frame of a kind that does not exist")),
        0xc0..=0xcf => Ok(Kind::Frame),
        0xda => Ok(Kind::Scan),
        0x00 | 0xd0..=0xd8 => Err(walk.damaged("it has a marker that cannot stand before the image data")),
        0xd9 => Err(walk.damaged("it ends before its image begins")),
        _ => Ok(Kind::Other),
    }
}

// === impl Segment ===

impl Segment {
    /// Where the next segment begins.
    fn end(&self) -> u64 {
        self.body + u64::from(self.length)
    }
}
