//! Reads gzip: exactly one complete member, with nothing after it.

use super::crc::Crc32;
use super::inflate::{InflateError, Inflater};
use super::validator::ArchiveValidator;
use super::{ArchiveFaultKind, WalkAbort};

const FIXED: usize = 10;
const CRC_OF_HEADER: u8 = 0b0_0010;
const EXTRA: u8 = 0b0_0100;
const NAME: u8 = 0b0_1000;
const COMMENT: u8 = 0b1_0000;
const RESERVED: u8 = 0b1110_0000;

/// Unpacks the member in `bytes`, and verifies its checksum.
pub(super) fn unpack<E>(
    bytes: &[u8],
    guard: &mut ArchiveValidator<'_>,
    mut receive: impl FnMut(&[u8], &mut ArchiveValidator<'_>) -> Result<(), WalkAbort<E>>,
) -> Result<(), WalkAbort<E>> {
    let Some(body) = header(bytes).and_then(|length| bytes.get(length..)) else {
        return refuse(guard, ArchiveFaultKind::Unreadable, "does not begin with a valid gzip header");
    };
    let mut crc = Crc32::new();
    let mut length: u32 = 0;
    let consumed = Inflater::new().run(body, |piece| {
        if !guard.count_streamed(piece.len()) {
            return Err(WalkAbort::Refused);
        }
        crc.update(piece);
        length = length.wrapping_add(u32::try_from(piece.len()).unwrap_or_default());
        receive(piece, guard)
    });
    let consumed = match consumed {
        Ok(consumed) => consumed,
        Err(InflateError::Stopped(halt)) => return Err(halt),
        Err(InflateError::Broken) => return refuse(guard, ArchiveFaultKind::Unreadable, "is truncated or damaged"),
    };
    let stated = [crc.value().to_le_bytes(), length.to_le_bytes()].concat();
    match body.get(consumed..).unwrap_or_default() {
        trailer if trailer == stated.as_slice() => Ok(()),
        trailer if trailer.len() > stated.len() => {
            refuse(guard, ArchiveFaultKind::Ambiguous, "has bytes after its end, which programs interpret differently")
        }
        _ => refuse(guard, ArchiveFaultKind::Unreadable, "does not have the checksum that it states"),
    }
}

fn refuse<E>(guard: &mut ArchiveValidator<'_>, kind: ArchiveFaultKind, message: &str) -> Result<(), WalkAbort<E>> {
    guard.add_fault(kind, None, message);
    Err(WalkAbort::Refused)
}

/// Returns the length of the header, or `None` if there is no valid header.
fn header(bytes: &[u8]) -> Option<usize> {
    let [0x1f, 0x8b, 8, flags, ..] = *bytes else { return None };
    if flags & RESERVED != 0 || bytes.len() < FIXED {
        return None;
    }
    let mut length = FIXED;
    if flags & EXTRA != 0 {
        let extra = bytes.get(length..length + 2)?;
        length += 2 + usize::from(u16::from_le_bytes(extra.try_into().ok()?));
    }
    for text in [NAME, COMMENT] {
        if flags & text != 0 {
            length += bytes.get(length..)?.iter().position(|byte| *byte == 0)? + 1;
        }
    }
    if flags & CRC_OF_HEADER != 0 {
        let [low, high, ..] = Crc32::checksum(bytes.get(..length)?).to_le_bytes();
        if bytes.get(length..length + 2)? != [low, high] {
            return None;
        }
        length += 2;
    }
    Some(length)
}
