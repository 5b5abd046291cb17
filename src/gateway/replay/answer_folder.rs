//! The folder of stored answers: its size, the order of eviction, and the files of an earlier process.
//!
//! The name of a file contains the id of the answer's API key, its extension shows whether the answer is complete, and
//! its modification time is the time of the answer. Therefore a start reads only the folder, and not the database,
//! which may have a row for every request of a day.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use chrono::{DateTime, Utc};

use super::answer_store::KeepWindows;
use super::disk_budget::{DiskBudget, DiskReservation, EvictableStorage, reserve_in_budget, run_with_timeout};
use super::fingerprint::ReplayDigest;
use super::sealed_file::{FileKey, SealedFile, remove};
use super::{FOLDER, RUN_WINDOW};
use crate::gateway::spool::{FreeSpace, blocking_io};
use crate::gateway::store::{KeyId, Timestamp};

/// The extension of a complete file.
const COMPLETE_EXTENSION: &str = "answer";
/// The extension of a file that is being written.
pub(super) const PARTIAL_EXTENSION: &str = "part";
/// The extension of an emptied file, whose answer was being delivered when the process died.
const LOST_EXTENSION: &str = "lost";

/// The shortest time for which the file of an earlier process is kept: as long as pages show its images. Its row
/// may end before.
const LEFTOVER_WINDOW_MIN: Duration = RUN_WINDOW;
/// The age up to which an answer is spared by [`SparingFolder`] (our choice): pages and agents fetch an image at once.
const SPARED_FOR: Duration = Duration::from_secs(60);

/// Finished answers on disk.
pub(super) struct AnswerFolder {
    folder: PathBuf,
    budget: Arc<DiskBudget>,
    pub(super) free: FreeSpace,
    state: Mutex<AnswerFolderState>,
}

#[derive(Default)]
struct AnswerFolderState {
    next_number: u64,
    /// The answers of each API key, by its id.
    owners: HashMap<String, KeyAnswers>,
    /// The fingerprints of answers that an earlier process was delivering when it died, and when these entries expire.
    interrupted_answers: HashMap<String, Timestamp>,
}

/// The answers of one API key.
#[derive(Default)]
struct KeyAnswers {
    bytes: u64,
    /// The answers, the oldest first.
    answers: BTreeMap<u64, AnswerFile>,
}

/// The folder for an answer that outgrows its reserved space and can be kept in memory too: it takes the place of no young
/// answer of its own key, whose caller may be about to fetch it.
pub(super) struct SparingFolder<'a> {
    folder: &'a AnswerFolder,
    file_name: &'a str,
}

struct AnswerFile {
    file_name: String,
    finished_at: Instant,
    expires_at: Timestamp,
    /// `None` for an empty answer.
    reservation: Option<DiskReservation>,
}

/// A file of an earlier process.
struct LeftoverFile {
    modified_at: SystemTime,
    file_name: String,
    contents: StoredFile,
    length: u64,
}

/// The content of a file, as its name states it.
enum StoredFile {
    /// The file holds a complete answer.
    Complete,
    /// An answer with this fingerprint was being delivered.
    Interrupted(String),
}

// === impl AnswerFolder ===

impl AnswerFolder {
    /// Opens the folder in the data directory, with access for its owner only.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be created.
    pub(super) fn open(free: FreeSpace, max_bytes: u64) -> io::Result<Arc<Self>> {
        let folder = free.folder().join(FOLDER);
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&folder)?;
        #[cfg(unix)]
        fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
        Ok(Arc::new(Self { folder, budget: DiskBudget::new(max_bytes), free, state: Mutex::default() }))
    }

    /// Takes over the files of an earlier process, and removes all others.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be read.
    pub(super) fn take_over_leftovers(&self, now: Timestamp, windows: KeepWindows) -> io::Result<()> {
        let mut leftovers = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if !metadata.is_file() {
                continue;
            }
            let file = entry.file_name().into_string().unwrap_or_default();
            match StoredFile::from_file_name(&file) {
                Some(contents) => {
                    let modified_at = metadata.modified()?;
                    leftovers.push(LeftoverFile { modified_at, file_name: file, contents, length: metadata.len() });
                }
                None => remove(&entry.path()),
            }
        }
        leftovers.sort_unstable_by_key(|leftover| leftover.modified_at);
        for leftover in leftovers {
            self.take_over_leftover(leftover, now, windows);
        }
        Ok(())
    }

    fn take_over_leftover(&self, leftover: LeftoverFile, now: Timestamp, windows: KeepWindows) {
        let LeftoverFile { modified_at, file_name: file, contents, length } = leftover;
        let retention = match contents {
            StoredFile::Complete => windows.replay.max(windows.retry).max(LEFTOVER_WINDOW_MIN),
            StoredFile::Interrupted(_) => windows.retry,
        };
        let expires_at = Timestamp::from(DateTime::<Utc>::from(modified_at)) + retention;
        let path = self.folder.join(&file);
        if expires_at <= now {
            return remove(&path);
        }
        match contents {
            // The row in the store has the key of the file. A file without a row is never read, and expires.
            StoredFile::Complete => match reserve_in_budget(self, length) {
                Ok(reservation) => self.add_finished(file, expires_at, Some(reservation)),
                Err(_) => remove(&path),
            },
            StoredFile::Interrupted(fingerprint) => {
                // The emptied file shows the loss to later processes too.
                let lost_path = path.with_extension(LOST_EXTENSION);
                let result = fs::rename(&path, &lost_path)
                    .and_then(|()| File::options().write(true).open(&lost_path)?.set_len(0));
                if let Err(error) = result {
                    tracing::warn!(%error, "the file of an interrupted answer could not be emptied");
                }
                self.state().interrupted_answers.insert(fingerprint, expires_at);
            }
        }
    }

    /// True if an earlier process was delivering the answer with this fingerprint when it died.
    pub(super) fn has_lost_answer(&self, fingerprint: &ReplayDigest, now: Timestamp) -> bool {
        self.state().interrupted_answers.get(&hex::encode(fingerprint)).is_some_and(|expires_at| *expires_at > now)
    }

    fn state(&self) -> MutexGuard<'_, AnswerFolderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a file like [`AnswerFolder::create_file_blocking`], on a thread that may block.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`AnswerFolder::create_file_blocking`], and one if the disk is too slow.
    pub(super) async fn create_file(
        self: &Arc<Self>,
        owner: &KeyId,
        fingerprint: Option<ReplayDigest>,
    ) -> io::Result<(String, SealedFile, FileKey)> {
        let (folder, owner) = (Arc::clone(self), owner.clone());
        let create = move || folder.create_file_blocking(&owner, fingerprint.as_ref());
        run_with_timeout(&self.free, create).await
    }

    /// Creates a file for an answer of this API key, and returns its final name, the file and its encryption key. The
    /// name for a plain job contains the fingerprint of its request. Blocks, so async code must not call it.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be created.
    pub(super) fn create_file_blocking(
        &self,
        owner: &KeyId,
        fingerprint: Option<&ReplayDigest>,
    ) -> io::Result<(String, SealedFile, FileKey)> {
        let random = uuid::Uuid::new_v4().simple();
        let file = match fingerprint {
            None => format!("{owner}-{random}.{COMPLETE_EXTENSION}"),
            Some(fingerprint) => format!("{owner}-{}-{random}.{COMPLETE_EXTENSION}", hex::encode(fingerprint)),
        };
        let (frames, key) = SealedFile::create(self.path(&file)?)?;
        Ok((file, frames, key))
    }

    /// Removes a finished file, even one that [`AnswerFolder::add_finished`] has not added.
    pub(super) fn remove(&self, file: &str) {
        self.state().forget(file);
        let path = self.folder.join(file);
        blocking_io::spawn_detached(move || remove(&path));
    }

    /// Opens a finished file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is missing or damaged.
    pub(super) async fn reopen(&self, file: &str, key: FileKey, size: u64) -> io::Result<SealedFile> {
        let path = self.path(file)?;
        self.free.run_blocking(move || SealedFile::open(path, &key, size)).await
    }

    /// Opens the encrypted bytes of a finished file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is missing.
    pub(super) async fn open_for_sharing(&self, file: &str) -> io::Result<File> {
        let path = self.path(file)?;
        self.free.run_blocking(move || File::open(path)).await
    }

    /// True if the folder has a finished file of this name and length.
    ///
    /// # Errors
    ///
    /// Returns an error if the disk fails.
    pub(super) async fn has_file(&self, file: &str, length: u64) -> io::Result<bool> {
        let path = self.path(file)?;
        self.free.run_blocking(move || Ok(fs::metadata(path).is_ok_and(|metadata| metadata.len() == length))).await
    }

    /// Returns the path of a file; the name from the database must not contain a folder.
    pub(super) fn path(&self, file: &str) -> io::Result<PathBuf> {
        let is_plain_name = Path::new(file).file_name().is_some_and(|name| name == file);
        is_plain_name.then(|| self.folder.join(file)).ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }

    /// Adds an answer of another node, in place of a damaged file of the same name.
    pub(super) fn add_fetched(&self, file: String, expires_at: Timestamp, reservation: Option<DiskReservation>) {
        self.state().forget(&file);
        self.add_finished(file, expires_at, reservation);
    }

    /// Adds a finished answer as the newest.
    pub(super) fn add_finished(&self, file: String, expires_at: Timestamp, reservation: Option<DiskReservation>) {
        let mut state = self.state();
        state.next_number += 1;
        let number = state.next_number;
        let key_answers = state.owners.entry(key_id_from_file_name(&file).to_owned()).or_default();
        key_answers.bytes += reservation.as_ref().map_or(0, DiskReservation::bytes);
        key_answers
            .answers
            .insert(number, AnswerFile { file_name: file, finished_at: Instant::now(), expires_at, reservation });
    }

    /// Returns the folder for the answer in this file, which can be kept in memory too.
    pub(super) const fn sparing<'a>(&'a self, file_name: &'a str) -> SparingFolder<'a> {
        SparingFolder { folder: self, file_name }
    }

    /// Evicts the oldest answer of the API key with the most bytes, unless it is to be spared. Returns false if none is
    /// evicted.
    fn evict_unless(&self, is_spared: impl FnOnce(&str, &AnswerFile) -> bool) -> bool {
        let evicted = self.state().evict_unless(is_spared);
        if let Some(answer) = &evicted {
            remove(&self.folder.join(&answer.file_name));
        }
        evicted.is_some()
    }

    /// Returns the ids of the API keys that have answers here.
    pub(super) fn owners(&self) -> Vec<String> {
        self.state().owners.keys().cloned().collect()
    }

    /// Removes the answers of these API keys, and returns the names of their files. Blocks, so async code must not call it.
    pub(super) fn remove_of_owners(&self, owners: &[String]) -> Vec<String> {
        let removed: Vec<KeyAnswers> = owners.iter().filter_map(|owner| self.state().owners.remove(owner)).collect();
        let files = removed.into_iter().flat_map(|owner| owner.answers.into_values());
        files.inspect(|answer| remove(&self.folder.join(&answer.file_name))).map(|answer| answer.file_name).collect()
    }

    /// Removes expired files. Blocks, so async code must not call it.
    pub(super) fn remove_expired(&self, now: Timestamp) {
        let mut expired = Vec::new();
        {
            let mut state = self.state();
            for key_answers in state.owners.values_mut() {
                expired.extend(
                    key_answers.answers.extract_if(.., |_, answer| answer.expires_at <= now).map(|(_, answer)| answer),
                );
                key_answers.recount_bytes();
            }
            state.owners.retain(|_, key_answers| !key_answers.answers.is_empty());
            state.interrupted_answers.retain(|_, expires_at| *expires_at > now);
        }
        for answer in &expired {
            remove(&self.folder.join(&answer.file_name));
        }
    }
}

// === impl StoredFile ===

impl StoredFile {
    /// Returns the content of a file of this name; `None` if the file is useless and must be removed.
    fn from_file_name(file: &str) -> Option<Self> {
        let (name, extension) = file.rsplit_once('.')?;
        if extension == COMPLETE_EXTENSION {
            return name.contains('-').then_some(Self::Complete);
        }
        if ![PARTIAL_EXTENSION, LOST_EXTENSION].contains(&extension) {
            return None;
        }
        // Only a plain job has a fingerprint between the owner and the random part.
        let [_, fingerprint, _] = name.split('-').collect::<Vec<_>>().try_into().ok()?;
        Some(Self::Interrupted(fingerprint.to_owned()))
    }
}

// === impl KeyAnswers ===

impl KeyAnswers {
    fn recount_bytes(&mut self) {
        self.bytes =
            self.answers.values().filter_map(|answer| answer.reservation.as_ref()).map(DiskReservation::bytes).sum();
    }
}

impl EvictableStorage for AnswerFolder {
    fn budget(&self) -> &Arc<DiskBudget> {
        &self.budget
    }

    fn free(&self) -> &FreeSpace {
        &self.free
    }

    /// Evicts the oldest answer of the API key with the most bytes.
    fn evict(&self) -> bool {
        self.evict_unless(|_, _| false)
    }
}

// === impl SparingFolder ===

impl EvictableStorage for SparingFolder<'_> {
    fn budget(&self) -> &Arc<DiskBudget> {
        self.folder.budget()
    }

    fn free(&self) -> &FreeSpace {
        self.folder.free()
    }

    fn evict(&self) -> bool {
        let newcomer = key_id_from_file_name(self.file_name);
        self.folder.evict_unless(|owner, answer| owner == newcomer && answer.finished_at.elapsed() < SPARED_FOR)
    }
}

// === impl AnswerFolderState ===

impl AnswerFolderState {
    fn forget(&mut self, file: &str) {
        if let Some(key_answers) = self.owners.get_mut(key_id_from_file_name(file)) {
            key_answers.answers.retain(|_, answer| answer.file_name != file);
            key_answers.recount_bytes();
        }
    }

    fn evict_unless(&mut self, is_spared: impl FnOnce(&str, &AnswerFile) -> bool) -> Option<AnswerFile> {
        let oldest = |key_answers: &KeyAnswers| key_answers.answers.keys().next().copied();
        let largest = self.owners.iter().max_by_key(|(_, answers)| (answers.bytes, Reverse(oldest(answers))));
        let owner = largest.map(|(owner, _)| owner.clone())?;
        let key_answers = self.owners.get_mut(&owner)?;
        if is_spared(&owner, key_answers.answers.first_key_value()?.1) {
            return None;
        }
        let (_, answer) = key_answers.answers.pop_first()?;
        key_answers.bytes -= answer.reservation.as_ref().map_or(0, DiskReservation::bytes);
        if key_answers.answers.is_empty() {
            self.owners.remove(&owner);
        }
        Some(answer)
    }
}

/// Returns the id of the API key in the name of a stored file.
fn key_id_from_file_name(file: &str) -> &str {
    file.split_once('-').map_or(file, |(owner, _)| owner)
}
