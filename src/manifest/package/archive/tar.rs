//! A gzipped tar, read as it comes out of the gzip.
//!
//! Only plain files and folders with ustar or GNU headers; of the extensions only those that give a longer path.

use super::guard::{Guard, Header};
use super::gzip;
use super::pax::{self, Records};
use super::{Entry, FaultKind, Halt, Sink, WalkError};

const BLOCK: usize = 512;
/// Records and long names are kept until the entry that they are of.
const MAX_RECORDS: u64 = 64 * 1024;

pub(super) fn walk<S: Sink>(bytes: &[u8], guard: &mut Guard<'_>, sink: &mut S) -> Result<(), WalkError<S::Error>> {
    let mut tar = Tar { block: Vec::with_capacity(BLOCK), state: State::Header, next: Records::default() };
    let read = gzip::unpack(bytes, guard, |piece, guard| tar.feed(piece, guard, sink));
    match read {
        Ok(()) if !matches!(tar.state, State::End) => {
            guard.fault(FaultKind::Unreadable, None, "ends before the end of the tar in it");
            Ok(())
        }
        Ok(()) | Err(Halt::Refused) => Ok(()),
        Err(Halt::Sink(error)) => Err(WalkError::Sink(error)),
    }
}

#[derive(Debug)]
enum State {
    Header,
    /// The first of the two empty blocks of the end has come.
    Ending,
    End,
    /// Contents of a file: where they go, how many came and how many are to come, and what fills the last block.
    Data {
        entry: Option<Entry>,
        before: u64,
        left: u64,
        padding: usize,
    },
    /// Records, or a long name, for the next entry.
    Records {
        kind: u8,
        kept: Vec<u8>,
        left: u64,
        padding: usize,
    },
}

struct Tar {
    /// The header that is coming in.
    block: Vec<u8>,
    state: State,
    next: Records,
}

impl Tar {
    fn feed<S: Sink>(&mut self, mut bytes: &[u8], guard: &mut Guard<'_>, sink: &mut S) -> Result<(), Halt<S::Error>> {
        while !bytes.is_empty() {
            let taken = match &mut self.state {
                State::Header | State::Ending => self.header_bytes(bytes, guard, sink)?,
                State::End if bytes.iter().all(|byte| *byte == 0) => bytes.len(),
                State::End => return refuse(guard, None, "has bytes behind the end of the tar in it"),
                State::Data { entry, before, left, padding } => {
                    let take = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    let (piece, rest) = bytes.split_at(take);
                    contents(entry.as_ref(), *before, piece, guard, sink)?;
                    *before += as_u64(take);
                    *left -= as_u64(take);
                    take + fill(padding, rest, guard)?
                }
                State::Records { kept, left, padding, .. } => {
                    let take = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    let (piece, rest) = bytes.split_at(take);
                    kept.extend_from_slice(piece);
                    *left -= as_u64(take);
                    take + fill(padding, rest, guard)?
                }
            };
            bytes = bytes.get(taken..).unwrap_or_default();
            self.advance(guard)?;
        }
        Ok(())
    }

    /// Goes on to the next header where the contents of an entry are complete.
    fn advance<E>(&mut self, guard: &mut Guard<'_>) -> Result<(), Halt<E>> {
        match &mut self.state {
            State::Data { left: 0, padding: 0, .. } => self.state = State::Header,
            State::Records { kind, kept, left: 0, padding: 0 } => {
                let (kind, kept) = (*kind, std::mem::take(kept));
                self.state = State::Header;
                self.records(kind, &kept, guard)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn records<E>(&mut self, kind: u8, kept: &[u8], guard: &mut Guard<'_>) -> Result<(), Halt<E>> {
        let twice = self.next != Records::default();
        let read = match kind {
            b'L' => Ok(Records { path: Some(until_zero(kept).to_owned()), size: None }),
            _ => pax::records(kept),
        };
        match read {
            Err(message) => refuse_kind(guard, FaultKind::Kind, None, message),
            Ok(read) if kind == b'g' && read != Records::default() => {
                refuse(guard, None, "has a path or a size that is to hold for every file")
            }
            Ok(read) if twice && read != Records::default() => refuse(guard, None, "gives one file two long paths"),
            Ok(read) => {
                if kind != b'g' && !twice {
                    self.next = read;
                }
                Ok(())
            }
        }
    }

    fn header_bytes<S: Sink>(
        &mut self,
        bytes: &[u8],
        guard: &mut Guard<'_>,
        sink: &mut S,
    ) -> Result<usize, Halt<S::Error>> {
        let taken = bytes.len().min(BLOCK - self.block.len());
        self.block.extend(bytes.iter().take(taken));
        if self.block.len() < BLOCK {
            return Ok(taken);
        }
        let block = std::mem::take(&mut self.block);
        let empty = block.iter().all(|byte| *byte == 0);
        self.state = match (&self.state, empty) {
            (State::Ending, true) => State::End,
            (State::Ending, false) => return refuse(guard, None, "goes on behind the empty block that ends a tar"),
            (_, true) if self.next != Records::default() => {
                return refuse(guard, None, "ends where a file should begin");
            }
            (_, true) => State::Ending,
            (_, false) => self.header(&block, guard, sink)?,
        };
        self.block = block;
        self.block.clear();
        Ok(taken)
    }

    fn header<S: Sink>(&mut self, block: &[u8], guard: &mut Guard<'_>, sink: &mut S) -> Result<State, Halt<S::Error>> {
        let fields = match Fields::read(block) {
            Ok(fields) => fields,
            Err(message) => return refuse_kind(guard, FaultKind::Unreadable, None, message),
        };
        let padding = usize::try_from(fields.size.wrapping_neg() % as_u64(BLOCK)).unwrap_or_default();
        if matches!(fields.kind, b'x' | b'g' | b'L') {
            if fields.size > MAX_RECORDS {
                return refuse_kind(guard, FaultKind::Limit, None, "has a path or records of more than 64 KiB");
            }
            return Ok(State::Records { kind: fields.kind, kept: Vec::new(), left: fields.size, padding });
        }
        if !guard.count() {
            return Err(Halt::Refused);
        }
        let next = std::mem::take(&mut self.next);
        if next.size.is_some_and(|size| size != fields.size) {
            return refuse(guard, None, "states two sizes of one file");
        }
        let name = next.path.unwrap_or_else(|| fields.name.clone());
        let entry = entry(&fields, &name, guard).filter(|_| !guard.is_full());
        if let Some(entry) = &entry {
            sink.entry(entry).map_err(Halt::Sink)?;
        }
        if fields.size == 0 {
            return Ok(State::Header);
        }
        Ok(State::Data { entry, before: 0, left: fields.size, padding })
    }
}

/// Hands a piece of a file on, if the file is let in.
fn contents<S: Sink>(
    entry: Option<&Entry>,
    before: u64,
    piece: &[u8],
    guard: &mut Guard<'_>,
    sink: &mut S,
) -> Result<(), Halt<S::Error>> {
    let Some(entry) = entry else { return Ok(()) };
    if !guard.grow(&entry.path, before, piece.len()) {
        return Err(Halt::Refused);
    }
    if piece.is_empty() { Ok(()) } else { sink.data(piece).map_err(Halt::Sink) }
}

/// Passes over what fills the last block of an entry. It has to be empty: a size that is too small would hide bytes here.
fn fill<E>(padding: &mut usize, bytes: &[u8], guard: &mut Guard<'_>) -> Result<usize, Halt<E>> {
    let filling = (*padding).min(bytes.len());
    if bytes.iter().take(filling).any(|byte| *byte != 0) {
        return refuse(guard, None, "has bytes behind a file that are not of it");
    }
    *padding -= filling;
    Ok(filling)
}

fn entry(fields: &Fields, name: &[u8], guard: &mut Guard<'_>) -> Option<Entry> {
    let shown = String::from_utf8_lossy(name);
    let folder = match fields.kind {
        b'0' | 0 => false,
        b'5' => true,
        kind => {
            guard.fault(
                FaultKind::Kind,
                Some(&shown),
                format!("is {}; only files and folders are let in", kind_name(kind)),
            );
            return None;
        }
    };
    // An old file is a folder for those who decide that by the name in its header, whatever a record calls it.
    let slash = name.ends_with(b"/") || (fields.kind == 0 && fields.name.ends_with(b"/"));
    if slash && !folder {
        guard.fault(FaultKind::Ambiguous, Some(&shown), "is a file with the name of a folder");
        return None;
    }
    if folder && fields.size != 0 {
        guard.fault(FaultKind::Ambiguous, Some(&shown), "is a folder with contents of its own");
        return None;
    }
    // `tar -c .` writes `./` before every name, and the folder itself.
    let name = name.strip_prefix(b"./").unwrap_or(name);
    let name = if folder { name.strip_suffix(b"/").unwrap_or(name) } else { name };
    if folder && matches!(name, b"" | b".") && shown.starts_with('.') {
        return None;
    }
    guard.admit(Header { name, folder, mode: fields.mode })
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

/// A header as it stands in its block.
struct Fields {
    name: Vec<u8>,
    mode: u32,
    size: u64,
    kind: u8,
}

impl Fields {
    fn read(block: &[u8]) -> Result<Self, &'static str> {
        let field = |start: usize, length: usize| block.get(start..start + length).unwrap_or_default();
        let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
        let stored: u64 = field(148, 8).iter().map(|byte| u64::from(*byte)).sum();
        // The checksum is of the block with spaces where itself stands.
        if octal(field(148, 8)) != Some(sum - stored + 8 * u64::from(b' ')) {
            return Err("holds a damaged tar: a header does not have the checksum that it states");
        }
        let posix = field(257, 8) == b"ustar\x0000";
        if !posix && field(257, 8) != b"ustar  \0" {
            return Err("holds a tar of an old kind, which has no mark");
        }
        // Some read a prefix in every header, some only under this mark; and some know a third format by its last bytes.
        let unused = if posix { field(500, 12) } else { field(345, 167) };
        if unused.iter().any(|byte| *byte != 0) {
            return Err("holds a tar with bytes in a header that programs read in two ways");
        }
        let size = octal(field(124, 12)).ok_or("holds a tar with a size that cannot be read")?;
        let mode = octal(field(100, 8)).ok_or("holds a tar with permissions that cannot be read")?;
        let mut name = until_zero(field(0, 100)).to_owned();
        let prefix = until_zero(field(345, 155));
        if posix && !prefix.is_empty() {
            name = [prefix, b"/", &name].concat();
        }
        let kind = field(156, 1).first().copied().unwrap_or_default();
        // The type of the file stands in the kind; some programs write it here again.
        Ok(Self { name, mode: u32::try_from(mode & 0o7777).unwrap_or_default(), size, kind })
    }
}

fn until_zero(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// A number as every program reads it: blanks, digits, and an end. What stands behind a first zero byte is a number for some
/// and nothing for others.
fn octal(field: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(field).ok()?;
    let digits = text.trim_start_matches(' ').trim_end_matches(['\0', ' ']);
    // A sign is no digit, and nothing is no number.
    digits.starts_with(|digit: char| digit.is_ascii_digit()).then(|| u64::from_str_radix(digits, 8).ok())?
}

fn refuse<T, E>(guard: &mut Guard<'_>, entry: Option<&str>, message: &str) -> Result<T, Halt<E>> {
    refuse_kind(guard, FaultKind::Ambiguous, entry, message)
}

fn refuse_kind<T, E>(guard: &mut Guard<'_>, kind: FaultKind, entry: Option<&str>, message: &str) -> Result<T, Halt<E>> {
    guard.fault(kind, entry, message);
    Err(Halt::Refused)
}

fn as_u64(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
