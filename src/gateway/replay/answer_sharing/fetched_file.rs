//! A file of this node's folder that is filled with the bytes of another node's answer.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::gateway::replay::answer_folder::AnswerFolder;
use crate::gateway::replay::disk_budget::{DiskReservation, EvictableStorage as _, reserve, run_with_timeout};
use crate::gateway::replay::sealed_file::remove;
use crate::gateway::spool::{blocking_io, positioned_io};
use crate::gateway::store::Timestamp;

/// The extension of the file until it is complete. A start removes files with an extension that it does not know.
const EXTENSION: &str = "fetch";

/// An incomplete file. It is removed if it is dropped before [`FetchedFile::finish`].
pub(super) struct FetchedFile {
    folder: Arc<AnswerFolder>,
    /// The final name.
    name: String,
    path: PathBuf,
    file: Arc<File>,
    /// The disk space; `None` after [`FetchedFile::finish`].
    reservation: Option<DiskReservation>,
}

impl FetchedFile {
    /// Creates the file for an answer of this name, and reserves the space for it. An incomplete file of the same name
    /// is replaced.
    ///
    /// # Errors
    ///
    /// Returns an error if there is not enough space, or if the disk fails or is too slow.
    pub(super) async fn create(folder: &Arc<AnswerFolder>, name: &str, length: u64) -> io::Result<Self> {
        let (folder, name) = (Arc::clone(folder), name.to_owned());
        let path = folder.path(&format!("{name}.{EXTENSION}"))?;
        let create = {
            let (folder, path) = (Arc::clone(&folder), path.clone());
            move || {
                let reservation = reserve(&*folder, length)?;
                let mut options = OpenOptions::new();
                options.write(true).create(true).truncate(true);
                #[cfg(unix)]
                std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
                blocking_io::note_disk_access();
                Ok((options.open(&path)?, reservation))
            }
        };
        let (file, reservation) = run_with_timeout(folder.free(), create).await?;
        Ok(Self { name, path, file: Arc::new(file), reservation: Some(reservation), folder: Arc::clone(&folder) })
    }

    /// Writes bytes at an offset.
    pub(super) async fn write(&mut self, bytes: Vec<u8>, offset: u64) -> io::Result<()> {
        let file = Arc::clone(&self.file);
        run_with_timeout(self.folder.free(), move || positioned_io::write_all(&file, &bytes, offset)).await
    }

    /// Gives the complete file its name, and adds it to the folder.
    pub(super) async fn finish(mut self, expires_at: Timestamp) -> io::Result<()> {
        let (file, from, to) = (Arc::clone(&self.file), self.path.clone(), self.folder.path(&self.name)?);
        let finish = move || {
            blocking_io::note_disk_access();
            // After a power failure, a file with the right name and length has the right bytes.
            file.sync_data()?;
            fs::rename(from, to)
        };
        run_with_timeout(self.folder.free(), finish).await?;
        self.folder.add_fetched(self.name.clone(), expires_at, self.reservation.take());
        Ok(())
    }
}

impl Drop for FetchedFile {
    fn drop(&mut self) {
        if self.reservation.is_none() {
            return;
        }
        let (path, finished) = (std::mem::take(&mut self.path), self.folder.path(&self.name));
        blocking_io::spawn_detached(move || {
            remove(&path);
            // If nobody waits for `finish` any more, the file may have its name already.
            if let Ok(path) = &finished {
                remove(path);
            }
        });
    }
}
