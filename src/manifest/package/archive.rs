//! Reads an archive on the assumption that its author is hostile.
//!
//! The module decides what an archive may contain and how much. It must not know the destination of files, and never
//! writes an archive. An archive that two programs could unpack differently is refused, not interpreted: the local
//! headers and the directory of a zip must agree and be contiguous, and a tar must contain only regular files and
//! folders. Of the unpacked contents, memory holds only the table of names and one piece: each piece of a file is
//! passed to an [`ArchiveSink`].

mod crc;
mod gzip;
mod inflate;
mod name;
mod pax;
mod tar;
#[cfg(test)]
mod tests;
mod validator;
mod zip;

pub(super) use crc::Crc32;
pub use name::{PathFault, fold, path_fault};

use validator::ArchiveValidator;

use super::PackageLimits;

/// A fault of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveFault {
    /// The kind, which decides the rule.
    pub kind: ArchiveFaultKind,
    /// The path inside the archive, as far as it can be displayed.
    pub entry: Option<String>,
    /// The fault, in words that follow the name of the entry or of the archive.
    pub message: String,
}

impl std::fmt::Display for ArchiveFault {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.entry {
            Some(entry) => write!(formatter, "`{entry}`: {}", self.message),
            None => formatter.write_str(&self.message),
        }
    }
}

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArchiveFaultKind {
    /// The file is not a complete, intact and unencrypted archive of a known format.
    Unreadable,
    /// A limit is exceeded.
    Limit,
    /// A path leads out of the archive, or is not valid on all systems.
    Name,
    /// Two paths are equal, here or on other systems.
    Collision,
    /// An entry is neither a regular file nor a folder, or has a set-user-id, set-group-id or sticky bit.
    Kind,
    /// Programs could disagree about the content.
    Ambiguous,
    /// Other programs read an entry on their own.
    AutoLoaded,
}

/// A file or a folder of an archive. Its path is safe: relative, with `/`, within the limits, valid on all systems.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveEntry {
    /// The path from the root of the archive, without a trailing slash.
    pub path: String,
    /// True if the entry is a folder.
    pub folder: bool,
    /// True if the owner may execute the file.
    pub executable: bool,
}

/// The receiver of the contents of an archive.
pub trait ArchiveSink {
    /// The error of the receiver.
    type Error;

    /// Receives the start of the next entry.
    ///
    /// # Errors
    ///
    /// Returns an error to end the walk.
    fn entry(&mut self, entry: &ArchiveEntry) -> Result<(), Self::Error>;

    /// Receives a piece of the file that was started last.
    ///
    /// # Errors
    ///
    /// Returns an error to end the walk.
    fn data(&mut self, piece: &[u8]) -> Result<(), Self::Error>;
}

/// The reason why a walk did not complete.
#[derive(Debug)]
pub enum WalkError<E> {
    /// The archive is not safe; everything that the sink has received must be discarded.
    Unsafe(Vec<ArchiveFault>),
    /// The sink returned an error.
    Sink(E),
}

/// The internal reason for an early end: the validator has recorded the fault, or the sink returned an error.
enum WalkAbort<E> {
    Refused,
    Sink(E),
}

/// The supported formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveFormat {
    /// `.zip`
    Zip,
    /// `.tar.gz`, `.tgz`
    TarGz,
}

impl ArchiveFormat {
    /// Detects the format from the first bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [b'P', b'K', 3, 4, ..] | [b'P', b'K', 5, 6, ..] => Some(Self::Zip),
            [0x1f, 0x8b, ..] => Some(Self::TarGz),
            _ => None,
        }
    }

    /// Detects the format from the end of a file name.
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

/// Reads a whole archive within the limits, and passes each entry to the sink. Entries that a rule refuses never reach
/// the sink. A fault may follow valid entries; it then makes the whole archive unsafe.
///
/// # Errors
///
/// Returns the faults, or the error of the sink.
pub fn walk<S: ArchiveSink>(bytes: &[u8], limits: &PackageLimits, sink: &mut S) -> Result<(), WalkError<S::Error>> {
    let mut validator = ArchiveValidator::new(limits, bytes.len());
    if validator.has_faults() {
        return validator.finish();
    }
    match ArchiveFormat::of(bytes) {
        Some(ArchiveFormat::Zip) => zip::walk(bytes, &mut validator, sink)?,
        Some(ArchiveFormat::TarGz) => tar::walk(bytes, &mut validator, sink)?,
        None => validator.add_fault(ArchiveFaultKind::Unreadable, None, "is neither a zip nor a gzipped tar"),
    }
    validator.finish()
}
