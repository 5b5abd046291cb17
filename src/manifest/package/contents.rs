//! The contents of a package: each file with size and checksum, and its `SKILL.md`.

use std::collections::BTreeMap;
use std::convert::Infallible;

use sha2::{Digest as _, Sha256};

use super::archive::{ArchiveEntry, ArchiveFault, ArchiveSink, WalkError, walk};
use super::{PackageLimits, SKILL_BYTES, SKILL_FILE};

/// A SHA-256 checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sha256Sum([u8; 32]);

impl Sha256Sum {
    /// Returns the checksum of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl std::fmt::Display for Sha256Sum {
    /// Writes 64 lower-case hexadecimal digits.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

/// A checksum of bytes that arrive in pieces.
#[derive(Clone, Debug, Default)]
pub struct Sha256Hasher(Sha256);

impl Sha256Hasher {
    /// Adds the next piece.
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// Returns the checksum of all pieces.
    #[must_use]
    pub fn finish(self) -> Sha256Sum {
        Sha256Sum(self.0.finalize().into())
    }
}

/// A file of a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackageFile {
    /// The size in bytes.
    pub size: u64,
    /// The checksum of the contents.
    pub sum: Sha256Sum,
    /// True if the owner may execute the file.
    pub executable: bool,
}

/// A package that is safe to unpack.
#[derive(Clone, Debug, Default)]
pub struct PackageContents {
    /// The files, by path.
    pub files: BTreeMap<String, PackageFile>,
    /// The `SKILL.md` at the root, and at most two of those in folders at the root, by path. Each is cut off at 1 MiB.
    pub skills: BTreeMap<String, Vec<u8>>,
}

impl PackageContents {
    /// Reads a package.
    ///
    /// # Errors
    ///
    /// Returns the faults that make the package unsafe, as far as it was read.
    pub fn read(bytes: &[u8], limits: &PackageLimits) -> Result<Self, Vec<ArchiveFault>> {
        let mut reader = PackageReader::default();
        match walk(bytes, limits, &mut reader) {
            Ok(()) => {}
            Err(WalkError::Unsafe(faults)) => return Err(faults),
        }
        reader.close();
        Ok(reader.contents)
    }

    /// Returns the prefix of all paths: empty if `SKILL.md` is at the root, else the one folder that contains
    /// everything. Returns `None` if neither place has a `SKILL.md`, if several folders have one, or if files are
    /// outside of the folder.
    #[must_use]
    pub fn root(&self) -> Option<&str> {
        if self.skills.contains_key(SKILL_FILE) {
            return Some("");
        }
        let (path, name) = self.skills.iter().next().map(|(path, _)| path.split_at(path.len() - SKILL_FILE.len()))?;
        let is_only_folder = name == SKILL_FILE
            && path.matches('/').count() == 1
            && self.files.keys().all(|file| file.starts_with(path));
        is_only_folder.then_some(path)
    }
}

/// A sink that collects the files of a package.
#[derive(Default)]
struct PackageReader {
    contents: PackageContents,
    open: Option<OpenPackageFile>,
}

struct OpenPackageFile {
    path: String,
    executable: bool,
    size: u64,
    hash: Sha256,
    skill_text: Option<Vec<u8>>,
}

impl PackageReader {
    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        let content =
            PackageFile { size: open.size, sum: Sha256Sum(open.hash.finalize().into()), executable: open.executable };
        if let Some(kept) = open.skill_text {
            self.contents.skills.insert(open.path.clone(), kept);
        }
        self.contents.files.insert(open.path, content);
    }
}

impl ArchiveSink for PackageReader {
    type Error = Infallible;

    fn entry(&mut self, entry: &ArchiveEntry) -> Result<(), Infallible> {
        self.close();
        if !entry.folder {
            let is_inner = entry.path.split_once('/').is_some_and(|(_, rest)| rest == SKILL_FILE);
            // The `SKILL.md` at the root is the skill. Of those in folders, two are enough to detect a conflict.
            let is_kept = entry.path == SKILL_FILE || (is_inner && self.contents.skills.len() < 2);
            let kept = is_kept.then(Vec::new);
            let (path, executable) = (entry.path.clone(), entry.executable);
            self.open = Some(OpenPackageFile { path, executable, size: 0, hash: Sha256::new(), skill_text: kept });
        }
        Ok(())
    }

    fn data(&mut self, piece: &[u8]) -> Result<(), Infallible> {
        if let Some(open) = &mut self.open {
            open.size += piece.len() as u64;
            open.hash.update(piece);
            if let Some(kept) = &mut open.skill_text {
                let capacity = SKILL_BYTES.saturating_sub(kept.len());
                kept.extend(piece.iter().take(capacity));
            }
        }
        Ok(())
    }
}
