//! An archive, read as if its maker meant harm.
//!
//! Decides what an archive may hold and how much of it; refuses to know where files go, and never writes one.
//! An archive that two programs could unpack differently is refused, not interpreted: local headers and directory of a zip
//! must say the same and lie end to end, and a tar must be plain files and folders.
//! Memory is the table of names and one window: contents pass through a [`Sink`] in pieces.

mod crc;
mod guard;
mod gzip;
mod inflate;
mod name;
mod pax;
mod tar;
#[cfg(test)]
mod tests;
mod zip;

pub(super) use crc::Crc32;
pub use name::{NameFault, fold, path_fault};

use guard::Guard;

use super::Limits;

/// What is wrong with an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kind, which decides the rule.
    pub kind: FaultKind,
    /// The path inside the archive, as far as it can be shown.
    pub entry: Option<String>,
    /// What is wrong, as a sentence without an end.
    pub message: String,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.entry {
            Some(entry) => write!(formatter, "`{entry}`: {}", self.message),
            None => formatter.write_str(&self.message),
        }
    }
}

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// It is not a whole archive of a known format.
    Unreadable,
    /// It is larger than a limit.
    Limit,
    /// A path leads out, or does not exist everywhere.
    Name,
    /// Two paths are one, here or on other systems.
    Collision,
    /// An entry is neither a plain file nor a folder.
    Kind,
    /// Programs would disagree about what it holds.
    Ambiguous,
}

/// A file or a folder of an archive. Its path is safe: relative, with `/`, below the limits, good on every system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// From the root of the archive, without a slash at the end.
    pub path: String,
    /// Whether it is a folder.
    pub folder: bool,
    /// Whether its owner may run it.
    pub executable: bool,
}

/// Where the contents of an archive go.
pub trait Sink {
    /// What can go wrong there.
    type Error;

    /// The next entry begins.
    ///
    /// # Errors
    ///
    /// Whatever ends the walk.
    fn entry(&mut self, entry: &Entry) -> Result<(), Self::Error>;

    /// A piece of the file that began last.
    ///
    /// # Errors
    ///
    /// Whatever ends the walk.
    fn data(&mut self, piece: &[u8]) -> Result<(), Self::Error>;
}

/// Why a walk did not reach the end.
#[derive(Debug)]
pub enum WalkError<E> {
    /// The archive is not safe; whatever the sink has taken is to be thrown away.
    Unsafe(Vec<Fault>),
    /// The sink did not take it.
    Sink(E),
}

/// Why reading ended early, inside: what is wrong is with the guard already, or the sink did not take it.
enum Halt<E> {
    Refused,
    Sink(E),
}

/// The formats that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `.zip`
    Zip,
    /// `.tar.gz`, `.tgz`
    TarGz,
}

impl Format {
    /// Tells the format by the first bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [b'P', b'K', 3, 4, ..] | [b'P', b'K', 5, 6, ..] => Some(Self::Zip),
            [0x1f, 0x8b, ..] => Some(Self::TarGz),
            _ => None,
        }
    }

    /// Tells the format by the end of a file name.
    #[must_use]
    pub fn named(path: &str) -> Option<Self> {
        let path = path.to_ascii_lowercase();
        if path.ends_with(".zip") {
            Some(Self::Zip)
        } else if path.ends_with(".tar.gz") || path.ends_with(".tgz") {
            Some(Self::TarGz)
        } else {
            None
        }
    }
}

/// Reads a whole archive under the limits, and hands each entry to the sink.
/// Nothing that a rule refuses reaches the sink; but a fault may come behind entries that were good, and then it is of all.
///
/// # Errors
///
/// With the faults, or with the error of the sink.
pub fn walk<S: Sink>(bytes: &[u8], limits: &Limits, sink: &mut S) -> Result<(), WalkError<S::Error>> {
    let mut guard = Guard::new(limits, bytes.len());
    if guard.is_full() {
        return guard.finish();
    }
    match Format::of(bytes) {
        Some(Format::Zip) => zip::walk(bytes, &mut guard, sink)?,
        Some(Format::TarGz) => tar::walk(bytes, &mut guard, sink)?,
        None => guard.fault(FaultKind::Unreadable, None, "is neither a zip nor a gzipped tar"),
    }
    guard.finish()
}
