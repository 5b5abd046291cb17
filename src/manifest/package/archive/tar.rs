//! Reads a gzipped tar while it is unpacked.
//!
//! The module accepts only regular files and folders with ustar or GNU headers. Of the extensions, only those for longer
//! paths have an effect.

use super::gzip;
use super::pax::{self, PaxRecords};
use super::validator::{ArchiveEntryHeader, ArchiveValidator};
use super::{ArchiveEntry, ArchiveFaultKind, ArchiveSink, WalkAbort, WalkError};

const BLOCK: usize = 512;
/// The maximum size of records and long names, which stay in memory until their entry (our choice).
const MAX_RECORDS: u64 = 64 * 1024;

pub(super) fn walk<S: ArchiveSink>(
    bytes: &[u8],
    validator: &mut ArchiveValidator<'_>,
    sink: &mut S,
) -> Result<(), WalkError<S::Error>> {
    let mut tar =
        TarReader { block: Vec::with_capacity(BLOCK), state: TarReaderState::Header, next: PaxRecords::default() };
    let read = gzip::unpack(bytes, validator, |piece, validator| tar.feed(piece, validator, sink));
    match read {
        Ok(()) if !matches!(tar.state, TarReaderState::End) => {
            validator.add_fault(ArchiveFaultKind::Unreadable, None, "ends before the end of its tar");
            Ok(())
        }
        Ok(()) | Err(WalkAbort::Refused) => Ok(()),
        Err(WalkAbort::Sink(error)) => Err(WalkError::Sink(error)),
    }
}

#[derive(Debug)]
enum TarReaderState {
    Header,
    /// The first of the two empty blocks at the end was read.
    Ending,
    End,
    /// The contents of a file: its entry, the bytes read, the remaining bytes, and the padding of the last block.
    Data {
        entry: Option<ArchiveEntry>,
        before: u64,
        left: u64,
        padding: usize,
    },
    /// Records, or a long name, for the next entry.
    Records {
        kind: u8,
        content: Vec<u8>,
        left: u64,
        padding: usize,
    },
}

struct TarReader {
    /// The header that is being read.
    block: Vec<u8>,
    state: TarReaderState,
    next: PaxRecords,
}

impl TarReader {
    fn feed<S: ArchiveSink>(
        &mut self,
        mut bytes: &[u8],
        validator: &mut ArchiveValidator<'_>,
        sink: &mut S,
    ) -> Result<(), WalkAbort<S::Error>> {
        while !bytes.is_empty() {
            let consumed = match &mut self.state {
                TarReaderState::Header | TarReaderState::Ending => self.header_bytes(bytes, validator, sink)?,
                TarReaderState::End if bytes.iter().all(|byte| *byte == 0) => bytes.len(),
                TarReaderState::End => return refuse(validator, None, "has bytes after the end of its tar"),
                TarReaderState::Data { entry, before, left, padding } => {
                    let length = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    let (piece, after_piece) = bytes.split_at(length);
                    write_contents(entry.as_ref(), *before, piece, validator, sink)?;
                    *before += length as u64;
                    *left -= length as u64;
                    length + skip_padding(padding, after_piece, validator)?
                }
                TarReaderState::Records { content: kept, left, padding, .. } => {
                    let length = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    let (piece, after_piece) = bytes.split_at(length);
                    kept.extend_from_slice(piece);
                    *left -= length as u64;
                    length + skip_padding(padding, after_piece, validator)?
                }
            };
            bytes = bytes.get(consumed..).unwrap_or_default();
            self.advance(validator)?;
        }
        Ok(())
    }

    /// Continues with the next header if the contents of an entry are complete.
    fn advance<E>(&mut self, validator: &mut ArchiveValidator<'_>) -> Result<(), WalkAbort<E>> {
        match &mut self.state {
            TarReaderState::Data { left: 0, padding: 0, .. } => self.state = TarReaderState::Header,
            TarReaderState::Records { kind, content: kept, left: 0, padding: 0 } => {
                let (kind, kept) = (*kind, std::mem::take(kept));
                self.state = TarReaderState::Header;
                self.finish_records(kind, &kept, validator)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn finish_records<E>(
        &mut self,
        kind: u8,
        kept: &[u8],
        validator: &mut ArchiveValidator<'_>,
    ) -> Result<(), WalkAbort<E>> {
        let has_records = self.next != PaxRecords::default();
        let read = match kind {
            b'L' => Ok(PaxRecords { path: Some(until_zero(kept).to_owned()), size: None }),
            _ => pax::read_records(kept),
        };
        match read {
            Err(message) => refuse_kind(validator, ArchiveFaultKind::Kind, None, message),
            Ok(read) if kind == b'g' && read != PaxRecords::default() => {
                refuse(validator, None, "has a path or a size that applies to every file")
            }
            Ok(read) if has_records && read != PaxRecords::default() => {
                refuse(validator, None, "gives one file two long paths")
            }
            Ok(read) => {
                if kind != b'g' && !has_records {
                    self.next = read;
                }
                Ok(())
            }
        }
    }

    fn header_bytes<S: ArchiveSink>(
        &mut self,
        bytes: &[u8],
        validator: &mut ArchiveValidator<'_>,
        sink: &mut S,
    ) -> Result<usize, WalkAbort<S::Error>> {
        let consumed = bytes.len().min(BLOCK - self.block.len());
        self.block.extend(bytes.iter().take(consumed));
        if self.block.len() < BLOCK {
            return Ok(consumed);
        }
        let block = std::mem::take(&mut self.block);
        let empty = block.iter().all(|byte| *byte == 0);
        self.state = match (&self.state, empty) {
            (TarReaderState::Ending, true) => TarReaderState::End,
            (TarReaderState::Ending, false) => {
                return refuse(validator, None, "continues after the empty block that ends a tar");
            }
            (_, true) if self.next != PaxRecords::default() => {
                return refuse(validator, None, "ends where a file should begin");
            }
            (_, true) => TarReaderState::Ending,
            (_, false) => self.header(&block, validator, sink)?,
        };
        self.block = block;
        self.block.clear();
        Ok(consumed)
    }

    fn header<S: ArchiveSink>(
        &mut self,
        block: &[u8],
        validator: &mut ArchiveValidator<'_>,
        sink: &mut S,
    ) -> Result<TarReaderState, WalkAbort<S::Error>> {
        let fields = match TarHeader::read(block) {
            Ok(fields) => fields,
            Err(message) => return refuse_kind(validator, ArchiveFaultKind::Unreadable, None, message),
        };
        let padding = usize::try_from(fields.size.wrapping_neg() % BLOCK as u64).unwrap_or_default();
        if matches!(fields.kind, b'x' | b'g' | b'L') {
            if fields.size > MAX_RECORDS {
                return refuse_kind(
                    validator,
                    ArchiveFaultKind::Limit,
                    None,
                    "has a path or records of more than 64 KiB",
                );
            }
            return Ok(TarReaderState::Records { kind: fields.kind, content: Vec::new(), left: fields.size, padding });
        }
        if !validator.count_entry() {
            return Err(WalkAbort::Refused);
        }
        let next = std::mem::take(&mut self.next);
        if next.size.is_some_and(|size| size != fields.size) {
            return refuse(validator, None, "states two sizes of one file");
        }
        let name = next.path.unwrap_or_else(|| fields.name.clone());
        let entry = admit_entry(&fields, &name, validator).filter(|_| !validator.has_faults());
        if let Some(entry) = &entry {
            sink.entry(entry).map_err(WalkAbort::Sink)?;
        }
        if fields.size == 0 {
            return Ok(TarReaderState::Header);
        }
        Ok(TarReaderState::Data { entry, before: 0, left: fields.size, padding })
    }
}

/// Passes a piece of a file to the sink, if the file was accepted.
fn write_contents<S: ArchiveSink>(
    entry: Option<&ArchiveEntry>,
    before: u64,
    piece: &[u8],
    validator: &mut ArchiveValidator<'_>,
    sink: &mut S,
) -> Result<(), WalkAbort<S::Error>> {
    let Some(entry) = entry else { return Ok(()) };
    if !validator.count_file_bytes(&entry.path, before, piece.len()) {
        return Err(WalkAbort::Refused);
    }
    if piece.is_empty() { Ok(()) } else { sink.data(piece).map_err(WalkAbort::Sink) }
}

/// Skips the padding of the last block of an entry. It must be zero: a size that is too small could hide bytes here.
fn skip_padding<E>(
    padding: &mut usize,
    bytes: &[u8],
    validator: &mut ArchiveValidator<'_>,
) -> Result<usize, WalkAbort<E>> {
    let count = (*padding).min(bytes.len());
    if bytes.iter().take(count).any(|byte| *byte != 0) {
        return refuse(validator, None, "has bytes after a file that do not belong to it");
    }
    *padding -= count;
    Ok(count)
}

fn admit_entry(fields: &TarHeader, name: &[u8], validator: &mut ArchiveValidator<'_>) -> Option<ArchiveEntry> {
    let shown = String::from_utf8_lossy(name);
    let folder = match fields.kind {
        b'0' | 0 => false,
        b'5' => true,
        kind => {
            validator.add_fault(
                ArchiveFaultKind::Kind,
                Some(&shown),
                format!("is {}; only files and folders are allowed", kind_name(kind)),
            );
            return None;
        }
    };
    // Some programs treat an old-style file as a folder because of its name in the header, even if a record renames it.
    let has_folder_name = name.ends_with(b"/") || (fields.kind == 0 && fields.name.ends_with(b"/"));
    if has_folder_name && !folder {
        validator.add_fault(ArchiveFaultKind::Ambiguous, Some(&shown), "is a file with the name of a folder");
        return None;
    }
    if folder && fields.size != 0 {
        validator.add_fault(ArchiveFaultKind::Ambiguous, Some(&shown), "is a folder with contents of its own");
        return None;
    }
    // `tar -c .` writes `./` before each name, and an entry for the folder itself.
    let name = name.strip_prefix(b"./").unwrap_or(name);
    let name = if folder { name.strip_suffix(b"/").unwrap_or(name) } else { name };
    if folder && matches!(name, b"" | b".") && shown.starts_with('.') {
        return None;
    }
    validator.admit(ArchiveEntryHeader { name, folder, mode: fields.mode })
}

fn kind_name(kind: u8) -> &'static str {
    match kind {
        b'1' => "a hard link",
        b'2' | b'K' => "a symbolic link",
        b'3' | b'4' => "a device",
        b'6' => "a pipe",
        b'S' => "a sparse file",
        _ => "of a kind that only some programs know",
    }
}

/// A header, read from its block.
struct TarHeader {
    name: Vec<u8>,
    mode: u32,
    size: u64,
    kind: u8,
}

impl TarHeader {
    fn read(block: &[u8]) -> Result<Self, &'static str> {
        let field = |start: usize, length: usize| block.get(start..start + length).unwrap_or_default();
        let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
        let stored: u64 = field(148, 8).iter().map(|byte| u64::from(*byte)).sum();
        // The checksum covers the block with spaces in place of the checksum itself.
        if octal(field(148, 8)) != Some(sum - stored + 8 * u64::from(b' ')) {
            return Err("contains a damaged tar: a header does not have the checksum that it states");
        }
        let is_posix = field(257, 8) == b"ustar\x0000";
        if !is_posix && field(257, 8) != b"ustar  \0" {
            return Err("contains a tar of an old format without a magic value");
        }
        // Some programs read a prefix in every header, others only with the ustar magic value; some detect a third
        // format by its last bytes.
        let unused = if is_posix { field(500, 12) } else { field(345, 167) };
        if unused.iter().any(|byte| *byte != 0) {
            return Err("contains a tar with bytes in a header that programs read in two ways");
        }
        let size = octal(field(124, 12)).ok_or("contains a tar with a size that cannot be read")?;
        let mode = octal(field(100, 8)).ok_or("contains a tar with permissions that cannot be read")?;
        let mut name = until_zero(field(0, 100)).to_owned();
        let prefix = until_zero(field(345, 155));
        if is_posix && !prefix.is_empty() {
            name = [prefix, b"/", &name].concat();
        }
        let kind = field(156, 1).first().copied().unwrap_or_default();
        // The kind field states the file type; some programs repeat it in the mode.
        Ok(Self { name, mode: u32::try_from(mode & 0o7777).unwrap_or_default(), size, kind })
    }
}

fn until_zero(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Reads an octal number in the only form that all programs read alike: spaces, digits, and a terminator. Some programs
/// read bytes after the first zero byte as digits, and others ignore them.
fn octal(field: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(field).ok()?;
    let digits = text.trim_start_matches(' ').trim_end_matches(['\0', ' ']);
    // A sign is not a digit, and an empty field is not a number.
    digits.starts_with(|digit: char| digit.is_ascii_digit()).then(|| u64::from_str_radix(digits, 8).ok())?
}

fn refuse<T, E>(validator: &mut ArchiveValidator<'_>, entry: Option<&str>, message: &str) -> Result<T, WalkAbort<E>> {
    refuse_kind(validator, ArchiveFaultKind::Ambiguous, entry, message)
}

fn refuse_kind<T, E>(
    validator: &mut ArchiveValidator<'_>,
    kind: ArchiveFaultKind,
    entry: Option<&str>,
    message: &str,
) -> Result<T, WalkAbort<E>> {
    validator.add_fault(kind, entry, message);
    Err(WalkAbort::Refused)
}
