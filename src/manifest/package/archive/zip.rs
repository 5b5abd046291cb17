//! A zip, read strictly: the directory and the headers before the files say the same, and the parts of the file lie end to
//! end from the first byte to the last.
//!
//! That leaves no room for bytes in front, between, behind, for entries that overlap, or for entries that only one way of
//! reading finds. Encryption, disks, zip64 and methods other than stored and deflated are refused.

mod directory;
mod local;

use directory::Record;

use super::crc::Crc32;
use super::guard::{Guard, Header};
use super::inflate::{InflateError, Inflater};
use super::{Entry, FaultKind, Halt, Sink, WalkError};

pub(super) fn walk<S: Sink>(bytes: &[u8], guard: &mut Guard<'_>, sink: &mut S) -> Result<(), WalkError<S::Error>> {
    let records = match directory::read(bytes, guard.limits().entries) {
        Ok(records) => records,
        Err(fault) => {
            guard.fault(fault.kind, fault.entry.as_deref(), fault.message);
            return Ok(());
        }
    };
    let bodies = match local::bodies(bytes, &records) {
        Ok(bodies) => bodies,
        Err(fault) => {
            guard.fault(fault.kind, fault.entry.as_deref(), fault.message);
            return Ok(());
        }
    };
    let entries: Vec<Option<Entry>> = records.list.iter().map(|record| admit(record, guard)).collect();
    if guard.is_full() {
        return Ok(());
    }
    let mut inflater = Inflater::new();
    for ((record, body), entry) in records.list.iter().zip(bodies).zip(entries) {
        let Some(entry) = entry else { continue };
        sink.entry(&entry).map_err(WalkError::Sink)?;
        match file((record, body), &entry, &mut inflater, guard, sink) {
            Ok(()) => {}
            Err(Halt::Refused) => return Ok(()),
            Err(Halt::Sink(error)) => return Err(WalkError::Sink(error)),
        }
    }
    Ok(())
}

/// Everything about an entry that its headers decide.
fn admit(record: &Record<'_>, guard: &mut Guard<'_>) -> Option<Entry> {
    const KIND: u32 = 0o170_000;
    const FOLDER: u32 = 0o040_000;
    const FILE: u32 = 0o100_000;
    guard.count();
    let shown = record.shown();
    let slash = record.name.ends_with(b"/");
    let kind = record.mode & KIND;
    if !matches!(kind, 0 | FOLDER | FILE) || record.attributes & 0x08 != 0 {
        let message = if kind == 0o120_000 { "is a symbolic link" } else { "is neither a file nor a folder" };
        guard.fault(FaultKind::Kind, Some(&shown), format!("{message}; only files and folders are let in"));
        return None;
    }
    let folder = kind == FOLDER || record.attributes & 0x10 != 0;
    if folder != slash && (folder || kind == FILE) {
        guard.fault(FaultKind::Ambiguous, Some(&shown), "is a file for some programs and a folder for others");
        return None;
    }
    if slash && (record.size != 0 || record.packed > 2) {
        guard.fault(FaultKind::Ambiguous, Some(&shown), "is a folder with contents of its own");
        return None;
    }
    if !record.utf8 && !record.name.is_ascii() {
        guard.fault(FaultKind::Name, Some(&shown), "is not marked as UTF-8");
        return None;
    }
    let name = if slash { record.name.strip_suffix(b"/").unwrap_or(record.name) } else { record.name };
    guard.admit(Header { name, folder: slash, mode: record.mode & 0o7777 })
}

fn file<S: Sink>(
    (record, body): (&Record<'_>, &[u8]),
    entry: &Entry,
    inflater: &mut Inflater,
    guard: &mut Guard<'_>,
    sink: &mut S,
) -> Result<(), Halt<S::Error>> {
    let mut crc = Crc32::new();
    let mut size: u64 = 0;
    let mut receive = |piece: &[u8], guard: &mut Guard<'_>| {
        if !guard.grow(&entry.path, size, piece.len()) {
            return Err(Halt::Refused);
        }
        size += u64::try_from(piece.len()).unwrap_or(u64::MAX);
        crc.update(piece);
        if entry.folder || piece.is_empty() { Ok(()) } else { sink.data(piece).map_err(Halt::Sink) }
    };
    let consumed = if record.deflated {
        match inflater.run(body, |piece| receive(piece, guard)) {
            Ok(consumed) => consumed,
            Err(InflateError::Stopped(halt)) => return Err(halt),
            Err(InflateError::Broken) => {
                guard.fault(FaultKind::Unreadable, Some(&entry.path), "is cut off or damaged");
                return Err(Halt::Refused);
            }
        }
    } else {
        receive(body, guard)?;
        body.len()
    };
    if consumed != body.len() || size != record.size {
        guard.fault(FaultKind::Ambiguous, Some(&entry.path), "does not have the size that the directory states");
        return Err(Halt::Refused);
    }
    if crc.value() != record.crc {
        guard.fault(FaultKind::Unreadable, Some(&entry.path), "does not have the checksum that it states");
        return Err(Halt::Refused);
    }
    Ok(())
}
