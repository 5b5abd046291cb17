//! Counts the content of an archive, and checks it against the limits and the entries before it.
//!
//! The module decides whether an entry is accepted. It must not know the format of the archive.

use std::collections::HashMap;

use super::{ArchiveEntry, ArchiveFault, ArchiveFaultKind, PathFault, WalkError, fold, path_fault};
use crate::manifest::package::PackageLimits;
use crate::manifest::package::auto_loaded::auto_loader;

/// The maximum number of recorded faults (our choice); a hostile archive can have any number.
const MAX_FAULTS: usize = 20;

/// The overhead allowed for one tar entry: its header, its records and the padding of the last block.
const MAX_TAR_OVERHEAD: u64 = 4096;
/// The overhead allowed for the end of a tar, and for the records before its first entry.
const MIN_TAR_OVERHEAD: u64 = 256 * 1024;

/// The header fields of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArchiveEntryHeader<'a> {
    pub(super) name: &'a [u8],
    pub(super) folder: bool,
    /// The permission bits, including the set-user-id, set-group-id and sticky bits.
    pub(super) mode: u32,
}

#[derive(Debug)]
struct ArchivePathNode {
    /// The name as it was written first.
    name: String,
    folder: bool,
    /// True if the path has an entry of its own, false if it is only the parent of other paths.
    is_listed: bool,
}

#[derive(Debug)]
pub(super) struct ArchiveValidator<'l> {
    limits: &'l PackageLimits,
    archive_bytes: u64,
    faults: Vec<ArchiveFault>,
    entries: u64,
    unpacked: u64,
    streamed: u64,
    /// All files and folders, by the number of their parent and their folded name. The number of the root is 0.
    tree: HashMap<(usize, String), usize>,
    nodes: Vec<ArchivePathNode>,
}

impl<'l> ArchiveValidator<'l> {
    pub(super) fn new(limits: &'l PackageLimits, archive_bytes: usize) -> Self {
        let archive_bytes = archive_bytes as u64;
        let root = ArchivePathNode { name: String::new(), folder: true, is_listed: false };
        let mut validator = Self {
            limits,
            archive_bytes,
            faults: Vec::new(),
            entries: 0,
            unpacked: 0,
            streamed: 0,
            tree: HashMap::new(),
            nodes: vec![root],
        };
        if archive_bytes > limits.archive_bytes {
            let message = format!("has {archive_bytes} bytes; the limit is {}", limits.archive_bytes);
            validator.add_fault(ArchiveFaultKind::Limit, None, message);
        }
        validator
    }

    pub(super) fn limits(&self) -> &'l PackageLimits {
        self.limits
    }

    pub(super) fn add_fault(&mut self, kind: ArchiveFaultKind, entry: Option<&str>, message: impl Into<String>) {
        if self.faults.len() < MAX_FAULTS {
            self.faults.push(ArchiveFault { kind, entry: entry.map(str::to_owned), message: message.into() });
        }
    }

    /// Returns true if at least one fault is recorded.
    pub(super) fn has_faults(&self) -> bool {
        !self.faults.is_empty()
    }

    pub(super) fn finish<E>(mut self) -> Result<(), WalkError<E>> {
        if self.has_bare_repository() {
            let message = "has a bare git repository (`HEAD`, `objects` and `refs`), whose configuration git reads \
                           on its own and can name commands that every look at the folder runs";
            self.add_fault(ArchiveFaultKind::AutoLoaded, None, message);
        }
        if self.faults.is_empty() { Ok(()) } else { Err(WalkError::Unsafe(self.faults)) }
    }

    /// Returns true if git would take a folder for a bare repository (`is_git_directory` in its source: `HEAD`, with
    /// `objects` and `refs` beside it or in the folder that `commondir` names).
    fn has_bare_repository(&self) -> bool {
        let heads = self.tree.keys().filter(|(_, name)| name == "head");
        let mut folders = heads.map(|(folder, _)| *folder);
        folders.any(|folder| {
            let has = |name: &str| self.tree.contains_key(&(folder, name.to_owned()));
            has("commondir") || (has("objects") && has("refs"))
        })
    }

    /// Counts one more entry of any kind. Returns false if there are too many; then nothing more may be read.
    pub(super) fn count_entry(&mut self) -> bool {
        self.entries += 1;
        let is_within_limit = self.entries <= self.limits.entries;
        if !is_within_limit {
            let message = format!("has more than {} entries", self.limits.entries);
            self.add_fault(ArchiveFaultKind::Limit, None, message);
        }
        is_within_limit
    }

    /// Accepts an entry, or records the reason why it is refused.
    pub(super) fn admit(&mut self, header: ArchiveEntryHeader<'_>) -> Option<ArchiveEntry> {
        let shown = String::from_utf8_lossy(header.name);
        let Ok(path) = std::str::from_utf8(header.name) else {
            self.add_fault(ArchiveFaultKind::Name, Some(&shown), "is not UTF-8");
            return None;
        };
        match path_fault(path, self.limits) {
            None => {}
            Some(PathFault::Unsafe(why)) => {
                self.add_fault(ArchiveFaultKind::Name, Some(path), why);
                return None;
            }
            Some(PathFault::TooLarge(why)) => {
                self.add_fault(ArchiveFaultKind::Limit, Some(path), why);
                return None;
            }
        }
        if let Some(loader) = auto_loader(path) {
            self.add_fault(ArchiveFaultKind::AutoLoaded, Some(path), loader.to_string());
            return None;
        }
        if header.mode & 0o7000 != 0 {
            self.add_fault(ArchiveFaultKind::Kind, Some(path), "has a set-user-id, set-group-id or sticky bit");
            return None;
        }
        if let Err(why) = self.add_path(path, header.folder) {
            self.add_fault(ArchiveFaultKind::Collision, Some(path), why);
            return None;
        }
        let executable = !header.folder && header.mode & 0o100 != 0;
        Some(ArchiveEntry { path: path.to_owned(), folder: header.folder, executable })
    }

    fn add_path(&mut self, path: &str, folder: bool) -> Result<(), String> {
        let mut parent = 0;
        let mut segments = path.split('/').peekable();
        while let Some(segment) = segments.next() {
            let is_last = segments.peek().is_none();
            parent = self.add_segment(parent, segment, is_last, !is_last || folder)?;
        }
        Ok(())
    }

    fn add_segment(&mut self, parent: usize, segment: &str, is_last: bool, folder: bool) -> Result<usize, String> {
        let next = self.nodes.len();
        let number = *self.tree.entry((parent, fold(segment))).or_insert(next);
        if number == next {
            self.nodes.push(ArchivePathNode { name: segment.to_owned(), folder, is_listed: is_last });
            return Ok(number);
        }
        let Some(node) = self.nodes.get_mut(number) else { return Err("is missing in the table of paths".to_owned()) };
        if node.name != segment {
            return Err(format!("is the same as `{}` on systems that ignore case or composition", node.name));
        }
        if node.folder != folder {
            return Err(format!("needs `{segment}` to be both a file and a folder"));
        }
        if is_last && node.is_listed {
            return Err("occurs twice".to_owned());
        }
        node.is_listed |= is_last;
        Ok(number)
    }

    /// Counts bytes of a tar, of any kind. Returns false if there are too many; then nothing more may be read.
    pub(super) fn count_streamed(&mut self, added_bytes: usize) -> bool {
        self.streamed = self.streamed.saturating_add(added_bytes as u64);
        let files = self.archive_bytes.saturating_mul(self.limits.ratio).min(self.limits.unpacked_bytes);
        let headers = self.entries.saturating_mul(MAX_TAR_OVERHEAD).saturating_add(MIN_TAR_OVERHEAD);
        let is_within_limit = self.streamed <= files.saturating_add(headers);
        if !is_within_limit {
            self.add_fault(ArchiveFaultKind::Limit, None, "unpacks to far more bytes than the limits allow");
        }
        is_within_limit
    }

    /// Counts bytes of a file that already has `before` bytes. Returns false if there are too many; then nothing more
    /// may be read.
    pub(super) fn count_file_bytes(&mut self, path: &str, before: u64, added_bytes: usize) -> bool {
        let added_bytes = added_bytes as u64;
        self.unpacked = self.unpacked.saturating_add(added_bytes);
        let message = if before.saturating_add(added_bytes) > self.limits.file_bytes {
            format!("has more than {} bytes", self.limits.file_bytes)
        } else if self.unpacked > self.limits.unpacked_bytes {
            format!("makes the files larger than {} bytes together", self.limits.unpacked_bytes)
        } else if self.unpacked > self.archive_bytes.saturating_mul(self.limits.ratio) {
            format!("makes the files more than {} times larger than the archive", self.limits.ratio)
        } else {
            return true;
        };
        self.add_fault(ArchiveFaultKind::Limit, Some(path), message);
        false
    }
}
