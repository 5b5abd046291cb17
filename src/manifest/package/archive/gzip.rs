//! Reads gzip: exactly one complete member, with nothing after it.

use super::crc::Crc32;
use super::inflate::{InflateError, Inflater};
use super::validator::ArchiveValidator;
use super::{ArchiveFaultKind, WalkAbort};

/// The length of the fixed part of the header, in bytes (RFC 1952).
const FIXED_HEADER_BYTES: usize = 10;
// The flags of the header.
const HEADER_CRC: u8 = 0b0_0010;
const EXTRA: u8 = 0b0_0100;
const NAME: u8 = 0b0_1000;
const COMMENT: u8 = 0b1_0000;
const RESERVED: u8 = 0b1110_0000;

/// Unpacks the member in `bytes`, and verifies its checksum.
pub(super) fn unpack<E>(
    bytes: &[u8],
    validator: &mut ArchiveValidator<'_>,
    mut receive: impl FnMut(&[u8], &mut ArchiveValidator<'_>) -> Result<(), WalkAbort<E>>,
) -> Result<(), WalkAbort<E>> {
    let Some(body) = header(bytes).and_then(|length| bytes.get(length..)) else {
        return refuse(validator, ArchiveFaultKind::Unreadable, "does not begin with a valid gzip header");
    };
    let mut crc = Crc32::new();
    let mut length: u32 = 0;
    let consumed = Inflater::new().run(body, |piece| {
        if !validator.count_streamed(piece.len()) {
            return Err(WalkAbort::Refused);
        }
        crc.update(piece);
        length = length.wrapping_add(u32::try_from(piece.len()).unwrap_or_default());
        receive(piece, validator)
    });
    let consumed = match consumed {
        Ok(consumed) => consumed,
        Err(InflateError::Stopped(abort)) => return Err(abort),
        Err(InflateError::Broken) => return refuse(validator, ArchiveFaultKind::Unreadable, "is truncated or damaged"),
    };
    let stated = [crc.value().to_le_bytes(), length.to_le_bytes()].concat();
    match body.get(consumed..).unwrap_or_default() {
        trailer if trailer == stated.as_slice() => Ok(()),
        trailer if trailer.len() > stated.len() => refuse(
            validator,
            ArchiveFaultKind::Ambiguous,
            "has bytes after its end, which programs interpret differently",
        ),
        _ => refuse(validator, ArchiveFaultKind::Unreadable, "does not have the checksum that it states"),
    }
}

fn refuse<E>(validator: &mut ArchiveValidator<'_>, kind: ArchiveFaultKind, message: &str) -> Result<(), WalkAbort<E>> {
    validator.add_fault(kind, None, message);
    Err(WalkAbort::Refused)
}

/// Returns the length of the header, or `None` if there is no valid header.
fn header(bytes: &[u8]) -> Option<usize> {
    let [0x1f, 0x8b, 8, flags, ..] = *bytes else { return None };
    if flags & RESERVED != 0 || bytes.len() < FIXED_HEADER_BYTES {
        return None;
    }
    let mut length = FIXED_HEADER_BYTES;
    if flags & EXTRA != 0 {
        let extra = bytes.get(length..length + 2)?;
        length += 2 + usize::from(u16::from_le_bytes(extra.try_into().ok()?));
    }
    for flag in [NAME, COMMENT] {
        if flags & flag != 0 {
            length += bytes.get(length..)?.iter().position(|byte| *byte == 0)? + 1;
        }
    }
    if flags & HEADER_CRC != 0 {
        let [low, high, ..] = Crc32::checksum(bytes.get(..length)?).to_le_bytes();
        if bytes.get(length..length + 2)? != [low, high] {
            return None;
        }
        length += 2;
    }
    Some(length)
}
