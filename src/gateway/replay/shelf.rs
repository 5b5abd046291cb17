//! The folder of kept answers: its size, the order of eviction, and the files that an earlier process has left.
//!
//! The name of a file contains the API key of the answer, its extension shows whether the answer is complete, and its
//! time is the age of the answer. Therefore a start reads the folder and not the database, which may have a row for
//! every request of a day.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use chrono::{DateTime, Utc};

use super::FOLDER;
use super::fingerprint::ReplayDigest;
use super::frames::{FileKey, SealedFile, remove};
use super::room::{DiskBudget, DiskReservation, EvictableStorage, in_time, reserve_written};
use crate::gateway::spool::{FreeSpace, waits};
use crate::gateway::store::{KeyId, Timestamp};

/// The extension of a file that is being written.
pub(super) const PART: &str = "part";
/// The extension of an empty file for an answer that was being delivered when the process died.
const LOST: &str = "lost";

/// The kinds of answers that a file can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerFileKind {
    /// The answer for an idempotency key.
    Answer,
    /// The answer of a plain job, which its caller may ask for again.
    Orphan,
}

/// The times for which answers are kept if only their files are known.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetentionWindows {
    pub(super) answers: Duration,
    pub(super) orphans: Duration,
}

/// Finished answers on disk.
pub(super) struct AnswerFolder {
    folder: PathBuf,
    budget: Arc<DiskBudget>,
    free: FreeSpace,
    windows: RetentionWindows,
    finished: Mutex<AnswerFolderState>,
}

#[derive(Default)]
struct AnswerFolderState {
    next: u64,
    /// The answers of each API key, by its id.
    owners: HashMap<String, KeyAnswers>,
    /// The fingerprints of answers that an earlier process was delivering when it died, and the time until which they
    /// matter.
    lost: HashMap<String, Timestamp>,
}

/// The answers of one API key.
#[derive(Default)]
struct KeyAnswers {
    bytes: u64,
    /// The answers, the oldest first.
    answers: BTreeMap<u64, AnswerFile>,
}

struct AnswerFile {
    file: String,
    expires_at: Timestamp,
    /// `None` for an answer without a byte.
    reserved: Option<DiskReservation>,
}

/// A file that an earlier process has left.
struct LeftoverFile {
    written: SystemTime,
    file: String,
    found: StoredFile,
    length: u64,
}

/// The meaning of a file's name.
enum StoredFile {
    /// The file holds a complete answer.
    Whole(AnswerFileKind),
    /// An answer with this fingerprint was being delivered.
    Lost(String),
}

// === impl AnswerFolder ===

impl AnswerFolder {
    /// Opens the folder in the data directory, with access for its owner only.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be created.
    pub(super) fn open(free: FreeSpace, max_bytes: u64, windows: RetentionWindows) -> io::Result<Arc<Self>> {
        let folder = free.folder().join(FOLDER);
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&folder)?;
        #[cfg(unix)]
        fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
        Ok(Arc::new(Self { folder, budget: DiskBudget::new(max_bytes), free, windows, finished: Mutex::default() }))
    }

    /// Takes over the files that an earlier process has left, and removes all others.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be read.
    pub(super) fn settle(&self, now: Timestamp) -> io::Result<()> {
        let mut left = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if !metadata.is_file() {
                continue;
            }
            let file = entry.file_name().into_string().unwrap_or_default();
            match StoredFile::of(&file) {
                Some(found) => {
                    let written = metadata.modified()?;
                    left.push(LeftoverFile { written, file, found, length: metadata.len() });
                }
                None => remove(&entry.path()),
            }
        }
        left.sort_unstable_by_key(|left| left.written);
        left.into_iter().for_each(|left| self.take_over(left, now));
        Ok(())
    }

    fn take_over(&self, left: LeftoverFile, now: Timestamp) {
        let LeftoverFile { written, file, found, length } = left;
        let kept = match found {
            StoredFile::Whole(AnswerFileKind::Answer) => self.windows.answers,
            StoredFile::Whole(AnswerFileKind::Orphan) | StoredFile::Lost(_) => self.windows.orphans,
        };
        let expires_at = Timestamp::from(DateTime::<Utc>::from(written)) + kept;
        let path = self.folder.join(&file);
        if expires_at <= now {
            return remove(&path);
        }
        match found {
            // The row has the details of the answer. A file without a row is never requested, and expires.
            StoredFile::Whole(_) => match reserve_written(self, length) {
                Ok(reserved) => self.put(file, expires_at, Some(reserved)),
                Err(_) => remove(&path),
            },
            StoredFile::Lost(fingerprint) => {
                // The file itself is the record of the loss, so that it also survives another kill.
                let lost = path.with_extension(LOST);
                let emptied =
                    fs::rename(&path, &lost).and_then(|()| File::options().write(true).open(&lost)?.set_len(0));
                if let Err(error) = emptied {
                    tracing::warn!(%error, "the file of an interrupted answer could not be emptied");
                }
                self.finished().lost.insert(fingerprint, expires_at);
            }
        }
    }

    /// True if an earlier process was delivering the answer with this fingerprint when it died.
    pub(super) fn has_lost(&self, fingerprint: &ReplayDigest, now: Timestamp) -> bool {
        self.finished().lost.get(&hex(fingerprint)).is_some_and(|until| *until > now)
    }

    fn finished(&self) -> MutexGuard<'_, AnswerFolderState> {
        self.finished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a file like [`AnswerFolder::create`], on a thread that may block.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`AnswerFolder::create`], and one if the disk is too slow.
    pub(super) async fn begin(
        self: &Arc<Self>,
        owner: &KeyId,
        fingerprint: Option<ReplayDigest>,
    ) -> io::Result<(String, SealedFile, FileKey)> {
        let (shelf, owner) = (Arc::clone(self), owner.clone());
        let create = move || shelf.create(&owner, fingerprint.as_ref());
        in_time(&self.free, create).await
    }

    /// Creates a file without a name, for an answer that no retry could find after a restart.
    ///
    /// # Errors
    ///
    /// Returns an error if the disk has no space for the file, or takes too long.
    pub(super) async fn nameless(&self) -> io::Result<SealedFile> {
        let folder = self.folder.clone();
        in_time(&self.free, move || SealedFile::nameless(&folder)).await
    }

    /// Creates a file for an answer of this API key, and returns its final name, the file and its key. The name for an
    /// orphan contains the fingerprint of its request. Blocks: not for async code.
    ///
    /// # Errors
    ///
    /// Returns an error if the disk has no space for the file.
    pub(super) fn create(
        &self,
        owner: &KeyId,
        fingerprint: Option<&ReplayDigest>,
    ) -> io::Result<(String, SealedFile, FileKey)> {
        let random = uuid::Uuid::new_v4().simple();
        let file = match fingerprint {
            None => format!("{owner}-{random}.{}", AnswerFileKind::Answer.as_str()),
            Some(fingerprint) => format!("{owner}-{}-{random}.{}", hex(fingerprint), AnswerFileKind::Orphan.as_str()),
        };
        let (frames, key) = SealedFile::create(self.path(&file)?)?;
        Ok((file, frames, key))
    }

    /// Removes a finished file, even if it is not counted here.
    pub(super) fn remove(&self, file: &str) {
        {
            let mut finished = self.finished();
            if let Some(owned) = finished.owners.get_mut(owner(file)) {
                owned.answers.retain(|_, answer| answer.file != file);
                owned.count();
            }
        }
        let path = self.folder.join(file);
        waits::detach(move || remove(&path));
    }

    /// Opens a finished file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is missing or damaged.
    pub(super) async fn reopen(&self, file: &str, key: FileKey, size: u64) -> io::Result<SealedFile> {
        let path = self.path(file)?;
        self.free.off_worker(move || SealedFile::open(path, &key, size)).await
    }

    /// Returns the path of a file; the name from the database must not contain a folder.
    fn path(&self, file: &str) -> io::Result<PathBuf> {
        let plain = Path::new(file).file_name().is_some_and(|name| name == file);
        plain.then(|| self.folder.join(file)).ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }

    /// Adds a finished answer, which is the newest.
    pub(super) fn put(&self, file: String, expires_at: Timestamp, reserved: Option<DiskReservation>) {
        let mut finished = self.finished();
        finished.next += 1;
        let number = finished.next;
        let owned = finished.owners.entry(owner(&file).to_owned()).or_default();
        owned.bytes += reserved.as_ref().map_or(0, DiskReservation::bytes);
        owned.answers.insert(number, AnswerFile { file, expires_at, reserved });
    }

    /// Removes files that are too old. Blocks: not for async code.
    pub(super) fn expire(&self, now: Timestamp) {
        let mut old = Vec::new();
        {
            let mut finished = self.finished();
            for owned in finished.owners.values_mut() {
                old.extend(owned.answers.extract_if(.., |_, answer| answer.expires_at <= now).map(|(_, old)| old));
                owned.count();
            }
            finished.owners.retain(|_, owned| !owned.answers.is_empty());
            finished.lost.retain(|_, until| *until > now);
        }
        old.iter().for_each(|old| remove(&self.folder.join(&old.file)));
    }
}

// === impl AnswerFileKind ===

impl AnswerFileKind {
    const ALL: [Self; 2] = [Self::Answer, Self::Orphan];

    /// Returns the extension of the names of these files.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Answer => "answer",
            Self::Orphan => "orphan",
        }
    }
}

// === impl StoredFile ===

impl StoredFile {
    /// Returns the meaning of a file of this name; `None` if the file is of no use.
    fn of(file: &str) -> Option<Self> {
        let (name, end) = file.rsplit_once('.')?;
        if let Some(kind) = AnswerFileKind::ALL.into_iter().find(|kind| kind.as_str() == end) {
            return Some(Self::Whole(kind));
        }
        let name = if end == PART { name.strip_suffix(".orphan")? } else { name };
        let fingerprint = name.split('-').nth(1)?;
        [PART, LOST].contains(&end).then(|| Self::Lost(fingerprint.to_owned()))
    }
}

// === impl KeyAnswers ===

impl KeyAnswers {
    fn count(&mut self) {
        self.bytes =
            self.answers.values().filter_map(|answer| answer.reserved.as_ref()).map(DiskReservation::bytes).sum();
    }
}

impl EvictableStorage for AnswerFolder {
    fn budget(&self) -> &Arc<DiskBudget> {
        &self.budget
    }

    fn free(&self) -> &FreeSpace {
        &self.free
    }

    /// Drops the oldest answer of the API key that holds the most bytes.
    fn evict(&self) -> bool {
        let evicted = self.finished().evict();
        if let Some(answer) = &evicted {
            remove(&self.folder.join(&answer.file));
        }
        evicted.is_some()
    }
}

// === impl AnswerFolderState ===

impl AnswerFolderState {
    fn evict(&mut self) -> Option<AnswerFile> {
        let oldest = |owned: &KeyAnswers| owned.answers.keys().next().copied();
        let most = self.owners.iter().max_by_key(|(_, owned)| (owned.bytes, Reverse(oldest(owned))));
        let owner = most.map(|(owner, _)| owner.clone())?;
        let owned = self.owners.get_mut(&owner)?;
        let (_, answer) = owned.answers.pop_first()?;
        owned.bytes -= answer.reserved.as_ref().map_or(0, DiskReservation::bytes);
        if owned.answers.is_empty() {
            self.owners.remove(&owner);
        }
        Some(answer)
    }
}

/// Returns the id of the API key in a file name. Older versions wrote no id; their files count as those of one owner.
fn owner(file: &str) -> &str {
    file.split_once('-').map_or("", |(owner, _)| owner)
}

fn hex(digest: &ReplayDigest) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
