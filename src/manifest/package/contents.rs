//! What is in a package: each file by size and checksum, and its `SKILL.md`.

use std::collections::BTreeMap;
use std::convert::Infallible;

use sha2::{Digest as _, Sha256};

use super::archive::{Entry, Fault, Sink, WalkError, walk};
use super::{Limits, SKILL_BYTES, SKILL_FILE};

/// A SHA-256 checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sha256Sum([u8; 32]);

impl Sha256Sum {
    /// Of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl std::fmt::Display for Sha256Sum {
    /// 64 small hexadecimal digits.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

/// A checksum of bytes that come in pieces.
#[derive(Clone, Debug, Default)]
pub struct Summing(Sha256);

impl Summing {
    /// Goes on with the next piece.
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// Of all pieces.
    #[must_use]
    pub fn finish(self) -> Sha256Sum {
        Sha256Sum(self.0.finalize().into())
    }
}

/// A file of a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// Bytes.
    pub size: u64,
    /// Of the contents.
    pub sum: Sha256Sum,
    /// Whether its owner may run it.
    pub executable: bool,
}

/// A package that is safe to unpack.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// Its files, by path.
    pub files: BTreeMap<String, Content>,
    /// Each `SKILL.md`, by path; longer ones than are read are cut off.
    pub skills: BTreeMap<String, Vec<u8>>,
}

impl Contents {
    /// Reads a package.
    ///
    /// # Errors
    ///
    /// With everything that makes it unsafe.
    pub fn read(bytes: &[u8], limits: &Limits) -> Result<Self, Vec<Fault>> {
        let mut reader = Reader::default();
        match walk(bytes, limits, &mut reader) {
            Ok(()) => {}
            Err(WalkError::Unsafe(faults)) => return Err(faults),
        }
        reader.close();
        Ok(reader.contents)
    }

    /// What stands before every path: nothing where `SKILL.md` is at the root, or the one folder that holds everything.
    /// There is none where there is no `SKILL.md` at either place, or more than one.
    #[must_use]
    pub fn root(&self) -> Option<&str> {
        if self.skills.contains_key(SKILL_FILE) {
            return Some("");
        }
        let (path, rest) = self.skills.iter().next().map(|(path, _)| path.split_at(path.len() - SKILL_FILE.len()))?;
        let whole = rest == SKILL_FILE
            && path.matches('/').count() == 1
            && self.files.keys().all(|file| file.starts_with(path));
        whole.then_some(path)
    }
}

/// Takes the files as they come.
#[derive(Default)]
struct Reader {
    contents: Contents,
    open: Option<Open>,
}

struct Open {
    path: String,
    executable: bool,
    size: u64,
    hash: Sha256,
    kept: Option<Vec<u8>>,
}

impl Reader {
    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        let content =
            Content { size: open.size, sum: Sha256Sum(open.hash.finalize().into()), executable: open.executable };
        if let Some(kept) = open.kept {
            self.contents.skills.insert(open.path.clone(), kept);
        }
        self.contents.files.insert(open.path, content);
    }
}

impl Sink for Reader {
    type Error = Infallible;

    fn entry(&mut self, entry: &Entry) -> Result<(), Infallible> {
        self.close();
        if !entry.folder {
            let is_inner = entry.path.split_once('/').is_some_and(|(_, rest)| rest == SKILL_FILE);
            // Of those in folders two are enough to see that there is more than one; the one at the root is the skill.
            let is_kept = entry.path == SKILL_FILE || (is_inner && self.contents.skills.len() < 2);
            let kept = is_kept.then(Vec::new);
            let (path, executable) = (entry.path.clone(), entry.executable);
            self.open = Some(Open { path, executable, size: 0, hash: Sha256::new(), kept });
        }
        Ok(())
    }

    fn data(&mut self, piece: &[u8]) -> Result<(), Infallible> {
        if let Some(open) = &mut self.open {
            open.size += u64::try_from(piece.len()).unwrap_or(u64::MAX);
            open.hash.update(piece);
            if let Some(kept) = &mut open.kept {
                let room = SKILL_BYTES.saturating_sub(kept.len());
                kept.extend(piece.iter().take(room));
            }
        }
        Ok(())
    }
}
