//! Reads the central directory at the end of a zip file.

use std::borrow::Cow;

use super::super::{ArchiveFault, ArchiveFaultKind};

const END_SIGNATURE: [u8; 4] = [b'P', b'K', 5, 6];
const END_RECORD_BYTES: usize = 22;
const ZIP64_LOCATOR_SIGNATURE: [u8; 4] = [b'P', b'K', 6, 7];
const ENTRY_SIGNATURE: [u8; 4] = [b'P', b'K', 1, 2];
const ENTRY_HEADER_BYTES: usize = 46;

/// The fields of one entry in the directory.
#[derive(Debug)]
pub(super) struct CentralDirectoryEntry<'a> {
    pub(super) name: &'a [u8],
    pub(super) flags: u16,
    pub(super) has_utf8_name: bool,
    pub(super) is_deflated: bool,
    pub(super) crc: u32,
    pub(super) compressed_size: u64,
    pub(super) size: u64,
    /// The Unix mode including the file type, or 0 if the archive does not state it.
    pub(super) unix_mode: u32,
    /// The DOS attributes.
    pub(super) dos_attributes: u32,
    pub(super) header_offset: u64,
}

impl CentralDirectoryEntry<'_> {
    pub(super) fn display_name(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.name)
    }
}

#[derive(Debug)]
pub(super) struct CentralDirectory<'a> {
    pub(super) entries: Vec<CentralDirectoryEntry<'a>>,
    /// The offset at which the directory begins and the files end.
    pub(super) start: usize,
}

/// Returns the little-endian number in the `N` bytes at an offset.
pub(super) fn read_number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let field = bytes.get(at..at.checked_add(N)?)?;
    let mut padded = [0; 8];
    padded.get_mut(..N)?.copy_from_slice(field);
    Some(u64::from_le_bytes(padded))
}

pub(super) fn archive_fault(kind: ArchiveFaultKind, entry: Option<&[u8]>, message: &str) -> ArchiveFault {
    let entry = entry.map(|name| String::from_utf8_lossy(name).into_owned());
    ArchiveFault { kind, entry, message: message.to_owned() }
}

pub(super) fn read(bytes: &[u8], max_entries: u64) -> Result<CentralDirectory<'_>, ArchiveFault> {
    let end = find_end(bytes)?;
    let unreadable = || archive_fault(ArchiveFaultKind::Unreadable, None, "is truncated: its directory is incomplete");
    let read_u16 = |at: usize| read_number::<2>(bytes, end + at).ok_or_else(unreadable);
    let read_u32 = |at: usize| read_number::<4>(bytes, end + at).ok_or_else(unreadable);
    let (disk, first_disk, count_on_disk, count) = (read_u16(4)?, read_u16(6)?, read_u16(8)?, read_u16(10)?);
    let (size, start) = (read_u32(12)?, read_u32(16)?);
    if disk != 0 || first_disk != 0 || count_on_disk != count {
        return Err(archive_fault(ArchiveFaultKind::Ambiguous, None, "is part of a split archive"));
    }
    let locator = end.checked_sub(20).and_then(|at| bytes.get(at..at + 4));
    if count == 0xffff || size == 0xffff_ffff || start == 0xffff_ffff || locator == Some(&ZIP64_LOCATOR_SIGNATURE) {
        return Err(archive_fault(
            ArchiveFaultKind::Ambiguous,
            None,
            "is a zip64, which no package of this size needs",
        ));
    }
    if count > max_entries {
        let message = format!("has {count} entries; the limit is {max_entries}");
        return Err(archive_fault(ArchiveFaultKind::Limit, None, &message));
    }
    if start + size != end as u64 {
        return Err(archive_fault(
            ArchiveFaultKind::Ambiguous,
            None,
            "has bytes around its directory, which programs interpret differently",
        ));
    }
    let start = usize::try_from(start).map_err(|_| unreadable())?;
    let mut directory = bytes.get(start..end).ok_or_else(unreadable)?;
    let mut entries = Vec::new();
    for _ in 0..count {
        let (record, remaining) = read_record(directory)?;
        entries.push(record);
        directory = remaining;
    }
    if directory.is_empty() {
        Ok(CentralDirectory { entries, start })
    } else {
        Err(archive_fault(ArchiveFaultKind::Ambiguous, None, "has more directory entries than its end record states"))
    }
}

/// Returns the offset of the end record, which begins at the last occurrence of its signature. The record and its
/// comment must end exactly at the end of the file: otherwise two programs could find different directories.
fn find_end(bytes: &[u8]) -> Result<usize, ArchiveFault> {
    let tail = bytes.len().saturating_sub(END_RECORD_BYTES + usize::from(u16::MAX));
    let window = bytes.get(tail..).unwrap_or_default();
    let Some(at) = window.windows(END_SIGNATURE.len()).rposition(|mark| mark == END_SIGNATURE) else {
        return Err(archive_fault(ArchiveFaultKind::Unreadable, None, "is truncated: it has no directory"));
    };
    let end = tail + at;
    let comment_length = read_number::<2>(bytes, end + 20);
    let bytes_to_end = (bytes.len() - end) as u64;
    match comment_length {
        Some(comment) if bytes_to_end == comment + 22 => Ok(end),
        Some(comment) if bytes_to_end > comment + 22 => Err(archive_fault(
            ArchiveFaultKind::Ambiguous,
            None,
            "has bytes after its end, which programs interpret differently",
        )),
        _ => Err(archive_fault(ArchiveFaultKind::Unreadable, None, "is truncated: its directory is incomplete")),
    }
}

fn read_record(bytes: &[u8]) -> Result<(CentralDirectoryEntry<'_>, &[u8]), ArchiveFault> {
    let broken = || archive_fault(ArchiveFaultKind::Unreadable, None, "has a directory that cannot be read");
    if bytes.get(..4) != Some(&ENTRY_SIGNATURE) {
        return Err(broken());
    }
    let read_u16 =
        |at: usize| read_number::<2>(bytes, at).and_then(|value| u16::try_from(value).ok()).ok_or_else(broken);
    let read_u32 =
        |at: usize| read_number::<4>(bytes, at).and_then(|value| u32::try_from(value).ok()).ok_or_else(broken);
    let (flags, method) = (read_u16(8)?, read_u16(10)?);
    let name_end = ENTRY_HEADER_BYTES + usize::from(read_u16(28)?);
    let extra_end = name_end + usize::from(read_u16(30)?);
    let record_end = extra_end + usize::from(read_u16(32)?);
    let name = bytes.get(ENTRY_HEADER_BYTES..name_end).ok_or_else(broken)?;
    let extra = bytes.get(name_end..extra_end).ok_or_else(broken)?;
    let remaining = bytes.get(record_end..).ok_or_else(broken)?;
    let external = read_u32(38)?;
    let record = CentralDirectoryEntry {
        name,
        flags,
        has_utf8_name: flags & 0x0800 != 0,
        is_deflated: method == 8,
        crc: read_u32(16)?,
        compressed_size: read_u32(20)?.into(),
        size: read_u32(24)?.into(),
        unix_mode: external >> 16,
        dos_attributes: external & 0xff,
        header_offset: read_u32(42)?.into(),
    };
    let refuse = |kind, message| Err(archive_fault(kind, Some(name), message));
    if flags & 0x2041 != 0 {
        return refuse(ArchiveFaultKind::Unreadable, "is encrypted");
    }
    if !matches!(method, 0 | 8) {
        return refuse(
            ArchiveFaultKind::Unreadable,
            "is compressed with a method other than deflate, which few programs support",
        );
    }
    if read_u16(34)? != 0 || [record.compressed_size, record.size, record.header_offset].contains(&0xffff_ffff) {
        return refuse(
            ArchiveFaultKind::Ambiguous,
            "is on another disk of a split archive, or needs zip64, which no package of this size needs",
        );
    }
    if let Some(message) = extra_fault(extra, name) {
        return refuse(ArchiveFaultKind::Ambiguous, message);
    }
    Ok((record, remaining))
}

/// Returns a fault of the extra fields, if there is one: they may contain times and owners, but no zip64 sizes, no
/// different name, and no encryption.
pub(super) fn extra_fault(mut extra: &[u8], name: &[u8]) -> Option<&'static str> {
    while !extra.is_empty() {
        let field = read_number::<2>(extra, 0).zip(read_number::<2>(extra, 2));
        let Some((id, length)) = field else { return Some("has an extra field that cannot be read") };
        let end = 4 + usize::try_from(length).unwrap_or(usize::MAX - 4);
        let Some(value) = extra.get(4..end) else { return Some("has an extra field that cannot be read") };
        match id {
            0x0001 => return Some("has sizes of zip64, which no package of this size needs"),
            // One byte of version and four of checksum, then a name, which programs with Unicode support use instead of
            // the name of the entry.
            0x7075 if value.get(5..) != Some(name) => return Some("has two names"),
            0x9901 => return Some("is encrypted"),
            _ => {}
        }
        extra = extra.get(end..).unwrap_or_default();
    }
    None
}
