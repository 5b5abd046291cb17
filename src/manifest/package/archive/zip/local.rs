//! Reads the local headers of a zip, which must agree with the directory.

use super::super::{ArchiveFault, ArchiveFaultKind};
use super::directory::{CentralDirectory, CentralDirectoryEntry, archive_fault, extra_fault, read_number};

const LOCAL_SIGNATURE: [u8; 4] = [b'P', b'K', 3, 4];
const LOCAL_HEADER_BYTES: usize = 30;
const DESCRIPTOR_SIGNATURE: [u8; 4] = [b'P', b'K', 7, 8];
/// The flag for sizes and checksum that follow the file instead of preceding it.
const STREAMED: u16 = 0x0008;

/// Returns the packed bytes of each entry, in the order of the directory.
pub(super) fn bodies<'a>(bytes: &'a [u8], records: &CentralDirectory<'_>) -> Result<Vec<&'a [u8]>, ArchiveFault> {
    let mut order: Vec<usize> = (0..records.entries.len()).collect();
    order.sort_by_key(|index| records.entries.get(*index).map(|record| record.header_offset));
    let mut bodies = vec![Default::default(); records.entries.len()];
    let mut offset = 0;
    for (position, index) in order.iter().enumerate() {
        let Some(record) = records.entries.get(*index) else { continue };
        let next = order.get(position + 1).and_then(|next| records.entries.get(*next));
        let end = next.and_then(|next| usize::try_from(next.header_offset).ok()).unwrap_or(records.start);
        if usize::try_from(record.header_offset).ok() != Some(offset) || end > records.start {
            let message = "does not begin where the previous entry ends: there are bytes before it, or both overlap";
            return Err(archive_fault(ArchiveFaultKind::Ambiguous, Some(record.name), message));
        }
        let part = bytes.get(offset..end).unwrap_or_default();
        let body =
            body(part, record).map_err(|why| archive_fault(ArchiveFaultKind::Ambiguous, Some(record.name), why))?;
        if let Some(slot) = bodies.get_mut(*index) {
            *slot = body;
        }
        offset = end;
    }
    if offset == records.start {
        Ok(bodies)
    } else {
        Err(archive_fault(ArchiveFaultKind::Ambiguous, None, "has bytes between its files and its directory"))
    }
}

/// Returns the packed bytes in the part of one entry, which reaches from its header to the next one.
fn body<'a>(part: &'a [u8], record: &CentralDirectoryEntry<'_>) -> Result<&'a [u8], &'static str> {
    const DIFFERS: &str = "has a local header that differs from the directory";
    let read_u16 = |offset: usize| read_number::<2>(part, offset).ok_or(DIFFERS);
    let read_u32 = |offset: usize| read_number::<4>(part, offset).ok_or(DIFFERS);
    let name_end = LOCAL_HEADER_BYTES + usize::try_from(read_u16(26)?).unwrap_or_default();
    let extra_end = name_end + usize::try_from(read_u16(28)?).unwrap_or_default();
    let method = if record.is_deflated { 8 } else { 0 };
    let is_same = part.get(..4) == Some(&LOCAL_SIGNATURE)
        && read_u16(6)? == u64::from(record.flags)
        && read_u16(8)? == method
        && part.get(LOCAL_HEADER_BYTES..name_end) == Some(record.name);
    let stated = (read_u32(14)?, read_u32(18)?, read_u32(22)?);
    let expected = (u64::from(record.crc), record.compressed_size, record.size);
    let streamed = record.flags & STREAMED != 0;
    if !is_same || !(stated == expected || (streamed && stated == (0, 0, 0))) {
        return Err(DIFFERS);
    }
    let extra = part.get(name_end..extra_end).ok_or(DIFFERS)?;
    if let Some(message) = extra_fault(extra, record.name) {
        return Err(message);
    }
    if !record.is_deflated && record.compressed_size != record.size {
        return Err("is stored, but states two sizes");
    }
    let body_end =
        usize::try_from(record.compressed_size).ok().and_then(|packed| extra_end.checked_add(packed)).ok_or(DIFFERS)?;
    let body = part.get(extra_end..body_end).ok_or("overlaps with the data after it")?;
    let after_body = part.get(body_end..).unwrap_or_default();
    let descriptor = match after_body {
        [] if !streamed => return Ok(body),
        [mark @ .., _, _, _, _, _, _, _, _, _, _, _, _]
            if streamed && (mark.is_empty() || mark == DESCRIPTOR_SIGNATURE) =>
        {
            after_body.get(mark.len()..).unwrap_or_default()
        }
        _ => return Err("is followed by bytes that do not belong to it"),
    };
    let value = |offset: usize| read_number::<4>(descriptor, offset);
    if (value(0), value(4), value(8)) == (Some(expected.0), Some(expected.1), Some(expected.2)) {
        Ok(body)
    } else {
        Err("has a data descriptor that differs from the directory")
    }
}
