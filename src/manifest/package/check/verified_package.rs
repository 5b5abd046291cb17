//! A package that passed the check: the only form in which a package is unpacked.

use crate::manifest::package::archive::{ArchiveEntry, ArchiveSink, WalkError, walk};
use crate::manifest::package::{PackageContents, PackageFile, PackageLimits};

/// The bytes of a package that nothing forbids to install. Only the check of packages creates it.
#[derive(Clone, Debug)]
pub struct VerifiedPackage {
    pub(super) bytes: Vec<u8>,
    pub(super) contents: PackageContents,
    /// The prefix of the paths of all files: the folder of the skill, or nothing.
    pub(super) root: String,
}

// === impl VerifiedPackage ===

impl VerifiedPackage {
    /// Returns the size of the package in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Returns the files of the skill by their paths in its folder.
    pub fn files(&self) -> impl Iterator<Item = (&str, &PackageFile)> {
        self.contents.files.iter().filter_map(|(path, file)| Some((path.strip_prefix(&self.root)?, file)))
    }

    /// Passes the files and folders of the skill to the sink, with their paths in the folder of the skill.
    ///
    /// # Errors
    ///
    /// Returns the error of the sink.
    pub fn unpack<S: ArchiveSink>(&self, sink: &mut S) -> Result<(), WalkError<S::Error>> {
        let mut sink = SkillSink { sink, root: &self.root, is_inside: false };
        walk(&self.bytes, &PackageLimits::default(), &mut sink)
    }
}

/// A sink that receives only the entries below the folder of the skill.
struct SkillSink<'a, S> {
    sink: &'a mut S,
    root: &'a str,
    is_inside: bool,
}

impl<S: ArchiveSink> ArchiveSink for SkillSink<'_, S> {
    type Error = S::Error;

    fn entry(&mut self, entry: &ArchiveEntry) -> Result<(), S::Error> {
        let path = entry.path.strip_prefix(self.root);
        self.is_inside = path.is_some();
        path.map_or(Ok(()), |path| self.sink.entry(&ArchiveEntry { path: path.to_owned(), ..entry.clone() }))
    }

    fn data(&mut self, piece: &[u8]) -> Result<(), S::Error> {
        if self.is_inside { self.sink.data(piece) } else { Ok(()) }
    }
}
