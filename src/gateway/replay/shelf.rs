//! The folder of kept answers: how much lies there, what goes first, what is left over from another life.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::frames::{FileKey, Frames, remove, stored};
use super::room::{Budget, Reserved, Room, reserve};
use crate::gateway::store::{ReplayDone, Timestamp};

/// Finished answers on disk, oldest first.
pub(super) struct Shelf {
    folder: PathBuf,
    budget: Arc<Budget>,
    finished: Mutex<(u64, BTreeMap<u64, Finished>)>,
}

struct Finished {
    file: String,
    expires_at: Timestamp,
    /// Nothing for an answer without a byte.
    _reserved: Option<Reserved>,
}

// === impl Shelf ===

impl Shelf {
    /// Takes the folder, closed to other users.
    ///
    /// # Errors
    ///
    /// Where it cannot be made.
    pub(super) fn open(folder: PathBuf, max_bytes: u64) -> io::Result<Arc<Self>> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&folder)?;
        #[cfg(unix)]
        fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
        Ok(Arc::new(Self { folder, budget: Budget::new(max_bytes), finished: Mutex::default() }))
    }

    /// Takes over what an earlier life has left, oldest first, and removes every file that is none of it.
    ///
    /// # Errors
    ///
    /// Where the folder cannot be read.
    pub(super) fn settle(&self, left: &[(ReplayDone, Timestamp)]) -> io::Result<()> {
        for (done, expires_at) in left {
            let whole = self.path(&done.file).and_then(|path| Ok(fs::metadata(path)?.len() == stored(done.size)));
            // Where it is gone or cut short, its row alone stays, and stands for an answer that is lost.
            if whole.is_ok_and(|whole| whole)
                && let Ok(reserved) = reserve(self, done.size)
            {
                self.put(done.file.clone(), *expires_at, Some(reserved));
            }
        }
        let kept: Vec<String> = self.finished().1.values().map(|finished| finished.file.clone()).collect();
        let kept: std::collections::HashSet<String> = kept.into_iter().collect();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            if entry.file_type()?.is_file() && !kept.contains(&*entry.file_name().to_string_lossy()) {
                remove(&entry.path());
            }
        }
        Ok(())
    }

    fn finished(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Finished>)> {
        self.finished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new file: its name, itself and its key.
    ///
    /// # Errors
    ///
    /// Where the disk has no room for it.
    pub(super) fn create(&self) -> io::Result<(String, Frames, FileKey)> {
        let file = format!("{}.answer", uuid::Uuid::new_v4().simple());
        let (frames, key) = Frames::create(self.folder.join(&file))?;
        Ok((file, frames, key))
    }

    /// A file that was finished before.
    ///
    /// # Errors
    ///
    /// Where it is gone or damaged.
    pub(super) fn reopen(&self, file: &str, key: &FileKey, size: u64) -> io::Result<Frames> {
        Frames::open(self.path(file)?, key, size)
    }

    /// A name from the database must be no more than a name.
    fn path(&self, file: &str) -> io::Result<PathBuf> {
        let plain = Path::new(file).file_name().is_some_and(|name| name == file);
        plain.then(|| self.folder.join(file)).ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }

    /// One more finished answer, the newest.
    pub(super) fn put(&self, file: String, expires_at: Timestamp, reserved: Option<Reserved>) {
        let mut finished = self.finished();
        finished.0 += 1;
        let number = finished.0;
        finished.1.insert(number, Finished { file, expires_at, _reserved: reserved });
    }

    /// Removes what is too old.
    pub(super) fn expire(&self, now: Timestamp) {
        let mut finished = self.finished();
        let old: Vec<Finished> =
            finished.1.extract_if(.., |_, finished| finished.expires_at <= now).map(|(_, old)| old).collect();
        drop(finished);
        old.iter().for_each(|old| remove(&self.folder.join(&old.file)));
    }

    /// Where orphans may have their files.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Room for Shelf {
    fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    fn evict(&self) -> bool {
        let oldest = self.finished().1.pop_first();
        if let Some((_, oldest)) = &oldest {
            remove(&self.folder.join(&oldest.file));
        }
        oldest.is_some()
    }
}
