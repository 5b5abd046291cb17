//! Reads a zip strictly: the directory and the local headers must agree, and the parts of the file must be contiguous
//! from the first byte to the last.
//!
//! This excludes bytes before, between and after the parts, overlapping entries, and entries that only some readers
//! find. Encryption, split archives, zip64 and methods other than stored and deflated are refused.

mod directory;
mod local;

use directory::CentralDirectoryEntry;

use super::crc::Crc32;
use super::inflate::{InflateError, Inflater};
use super::validator::{ArchiveEntryHeader, ArchiveValidator};
use super::{ArchiveEntry, ArchiveFaultKind, ArchiveSink, WalkAbort, WalkError};

pub(super) fn walk<S: ArchiveSink>(
    bytes: &[u8],
    validator: &mut ArchiveValidator<'_>,
    sink: &mut S,
) -> Result<(), WalkError<S::Error>> {
    let records = match directory::read(bytes, validator.limits().entries) {
        Ok(records) => records,
        Err(fault) => {
            validator.add_fault(fault.kind, fault.entry.as_deref(), fault.message);
            return Ok(());
        }
    };
    let bodies = match local::bodies(bytes, &records) {
        Ok(bodies) => bodies,
        Err(fault) => {
            validator.add_fault(fault.kind, fault.entry.as_deref(), fault.message);
            return Ok(());
        }
    };
    let entries: Vec<Option<ArchiveEntry>> =
        records.entries.iter().map(|record| admit_entry(record, validator)).collect();
    if validator.has_faults() {
        return Ok(());
    }
    let mut inflater = Inflater::new();
    for ((record, body), entry) in records.entries.iter().zip(bodies).zip(entries) {
        let Some(entry) = entry else { continue };
        sink.entry(&entry).map_err(WalkError::Sink)?;
        match read_file((record, body), &entry, &mut inflater, validator, sink) {
            Ok(()) => {}
            Err(WalkAbort::Refused) => return Ok(()),
            Err(WalkAbort::Sink(error)) => return Err(WalkError::Sink(error)),
        }
    }
    Ok(())
}

/// Checks an entry by its headers, and accepts it if they are valid.
fn admit_entry(record: &CentralDirectoryEntry<'_>, validator: &mut ArchiveValidator<'_>) -> Option<ArchiveEntry> {
    const KIND: u32 = 0o170_000;
    const FOLDER: u32 = 0o040_000;
    const FILE: u32 = 0o100_000;
    validator.count_entry();
    let shown = record.display_name();
    let has_folder_name = record.name.ends_with(b"/");
    let kind = record.unix_mode & KIND;
    if !matches!(kind, 0 | FOLDER | FILE) || record.dos_attributes & 0x08 != 0 {
        let message = if kind == 0o120_000 { "is a symbolic link" } else { "is neither a file nor a folder" };
        validator.add_fault(
            ArchiveFaultKind::Kind,
            Some(&shown),
            format!("{message}; only files and folders are allowed"),
        );
        return None;
    }
    let folder = kind == FOLDER || record.dos_attributes & 0x10 != 0;
    if folder != has_folder_name && (folder || kind == FILE) {
        validator.add_fault(
            ArchiveFaultKind::Ambiguous,
            Some(&shown),
            "is a file for some programs and a folder for others",
        );
        return None;
    }
    if has_folder_name && (record.size != 0 || record.compressed_size > 2) {
        validator.add_fault(ArchiveFaultKind::Ambiguous, Some(&shown), "is a folder with contents of its own");
        return None;
    }
    if !record.has_utf8_name && !record.name.is_ascii() {
        validator.add_fault(ArchiveFaultKind::Name, Some(&shown), "is not marked as UTF-8");
        return None;
    }
    let name = if has_folder_name { record.name.strip_suffix(b"/").unwrap_or(record.name) } else { record.name };
    validator.admit(ArchiveEntryHeader { name, folder: has_folder_name, mode: record.unix_mode & 0o7777 })
}

fn read_file<S: ArchiveSink>(
    (record, body): (&CentralDirectoryEntry<'_>, &[u8]),
    entry: &ArchiveEntry,
    inflater: &mut Inflater,
    validator: &mut ArchiveValidator<'_>,
    sink: &mut S,
) -> Result<(), WalkAbort<S::Error>> {
    let mut crc = Crc32::new();
    let mut size: u64 = 0;
    let mut receive = |piece: &[u8], validator: &mut ArchiveValidator<'_>| {
        if !validator.count_file_bytes(&entry.path, size, piece.len()) {
            return Err(WalkAbort::Refused);
        }
        size += piece.len() as u64;
        crc.update(piece);
        if entry.folder || piece.is_empty() { Ok(()) } else { sink.data(piece).map_err(WalkAbort::Sink) }
    };
    let consumed = if record.is_deflated {
        match inflater.run(body, |piece| receive(piece, validator)) {
            Ok(consumed) => consumed,
            Err(InflateError::Stopped(abort)) => return Err(abort),
            Err(InflateError::Broken) => {
                validator.add_fault(ArchiveFaultKind::Unreadable, Some(&entry.path), "is truncated or damaged");
                return Err(WalkAbort::Refused);
            }
        }
    } else {
        receive(body, validator)?;
        body.len()
    };
    if consumed != body.len() || size != record.size {
        validator.add_fault(
            ArchiveFaultKind::Ambiguous,
            Some(&entry.path),
            "does not have the size that the directory states",
        );
        return Err(WalkAbort::Refused);
    }
    if crc.value() != record.crc {
        validator.add_fault(
            ArchiveFaultKind::Unreadable,
            Some(&entry.path),
            "does not have the checksum that it states",
        );
        return Err(WalkAbort::Refused);
    }
    Ok(())
}
