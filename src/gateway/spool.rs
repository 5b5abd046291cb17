//! Uploads and long bodies on disk, for as long as one request needs them.
//!
//! This module decides where the bytes of an upload are stored, and how the files are reused. It must not know the
//! meaning of the bytes, their sender, or their use. Rules: memory does not grow with an upload; every attempt can read
//! the upload again; no file has a name, so none survives the end of the process.
//!
//! Files are reused: overwriting an existing file was measured to take a third of the time that a new file takes.
//! They are written on threads that may block: a stalled disk must not delay tasks that need no disk.

pub(crate) mod blocking_io;
mod body_parts;
mod free_space;
pub(crate) mod positioned_io;
mod spooled_bytes;
mod upload;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

pub(crate) use body_parts::{BodyPart, BodyPartReader};
pub(crate) use free_space::FreeSpace;
pub(crate) use spooled_bytes::{SpooledBytes, SpooledBytesWriter};
pub(crate) use upload::{EditForm, ImageUpload};

use crate::gateway::admission::{Admission, BudgetExceeded, ByteShare, RequestBudgets};
#[cfg(test)]
use crate::gateway::config::UploadLimits;
use crate::image::ByteSource;

/// The most idle files in the pool (our choice). Further files are closed.
const IDLE_MAX: usize = 32;
/// The most disk space that an idle file keeps (our choice). A larger file is truncated.
const IDLE_FILE_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// Creates spooled files. Clones share the pool of files.
#[derive(Clone, Debug)]
pub(crate) struct Spool {
    pool: Arc<SpoolFilePool>,
    /// The request whose budgets the written bytes count against; `None` for bytes of an answer.
    admission: Option<Admission>,
}

/// An upload or an answer that is still arriving.
#[derive(Debug)]
pub(crate) struct SpoolWriter {
    pooled_file: PooledFile,
    length: u64,
    /// True for an upload of a caller. Otherwise the bytes belong to an answer that was paid for: neither a budget nor
    /// the part of the disk that is reserved for the database is a reason to refuse them.
    is_upload: bool,
    /// The bytes that the disk takes.
    #[cfg(test)]
    disk_bytes: u64,
}

/// A complete upload or answer. Its file returns to the pool when the last reference to it is dropped.
#[derive(Debug)]
pub(crate) struct SpooledFile {
    pooled_file: PooledFile,
    length: u64,
}

#[derive(Debug)]
struct SpoolFilePool {
    folder: PathBuf,
    idle: Mutex<Vec<AnonymousFile>>,
    budgets: Arc<RequestBudgets>,
    free: FreeSpace,
    /// True if the last check found too little free space.
    out_of_space: AtomicBool,
    #[cfg(test)]
    writes: std::sync::atomic::AtomicUsize,
}

/// A file without a name.
#[derive(Debug)]
struct AnonymousFile {
    file: File,
    /// The greatest length of the file since it was created or truncated, and so the disk space that it holds.
    extent: u64,
}

/// A file of the pool that is in use.
#[derive(Debug)]
struct PooledFile {
    /// `None` only while the pooled file is being dropped.
    anonymous_file: Option<AnonymousFile>,
    pool: Arc<SpoolFilePool>,
    share: ByteShare,
}

// === impl Spool ===

impl Spool {
    /// Opens the folder `spool` of the data directory. Files in it are left over from an earlier run and are removed.
    ///
    /// # Errors
    ///
    /// Returns an error if no file can be created there, so that the start fails, rather than the first upload.
    pub(crate) fn open_in(data_dir: &Path, min_free: u64, budgets: Arc<RequestBudgets>) -> io::Result<Self> {
        let folder = data_dir.join("spool");
        prepare(&folder)?;
        let first = AnonymousFile::new(&folder)?;
        let free = FreeSpace::new(folder.clone(), min_free);
        let (idle, out_of_space) = (Mutex::new(vec![first]), AtomicBool::new(false));
        let pool = Arc::new(SpoolFilePool {
            folder,
            idle,
            budgets,
            free,
            out_of_space,
            #[cfg(test)]
            writes: std::sync::atomic::AtomicUsize::new(0),
        });
        Ok(Self { pool, admission: None })
    }

    /// Returns the same spool for the uploads of a request, which count against its budgets.
    pub(crate) fn for_request(&self, admission: &Admission) -> Self {
        Self { pool: Arc::clone(&self.pool), admission: Some(admission.clone()) }
    }

    /// Returns the free space as seen from another folder of the same disk. It shares the limit on blocking
    /// threads with this spool.
    pub(crate) fn free_space(&self, folder: PathBuf) -> FreeSpace {
        self.pool.free.for_folder(folder)
    }

    /// Like [`Spool::create_writer_blocking`], on a thread that may block.
    ///
    /// # Errors
    ///
    /// Like [`Spool::create_writer_blocking`].
    pub(crate) async fn create_writer(&self) -> io::Result<SpoolWriter> {
        let spool = self.clone();
        self.pool.run_blocking(move || spool.create_writer_blocking()).await
    }

    /// Runs work with files on a thread that may block.
    ///
    /// # Errors
    ///
    /// Returns an error if the work panics.
    pub(crate) async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        self.pool.run_blocking(move || Ok(work())).await
    }

    /// Like [`Spool::create_writer`], for bytes that are paid for only if there is room for them: like an upload, they
    /// are refused if the rest of the disk is reserved for the database.
    ///
    /// # Errors
    ///
    /// Like [`Spool::create_writer`], and if the rest of the disk is reserved.
    pub(crate) async fn create_writer_within_free_space(&self) -> io::Result<SpoolWriter> {
        let spool = self.clone();
        let open = move || {
            spool.check_reserved_space()?;
            spool.create_writer_blocking()
        };
        self.pool.run_blocking(open).await
    }

    /// Returns a writer for one upload, or for an answer if the spool belongs to no request.
    ///
    /// # Errors
    ///
    /// Returns an error if no more files can be created. An upload is also refused if the rest of the disk is reserved
    /// for the database.
    pub(crate) fn create_writer_blocking(&self) -> io::Result<SpoolWriter> {
        if self.admission.is_some() {
            self.check_reserved_space()?;
        }
        let idle = self.pool.idle().pop();
        let anonymous_file = match idle {
            Some(file) => file,
            None => AnonymousFile::new(&self.pool.folder)?,
        };
        Ok(self.writer(anonymous_file))
    }

    fn check_reserved_space(&self) -> io::Result<()> {
        if self.pool.has_room_for(0) { Ok(()) } else { Err(self.pool.budgets.refuse(BudgetExceeded::FreeSpace)) }
    }

    fn writer(&self, anonymous_file: AnonymousFile) -> SpoolWriter {
        let share = self.admission.as_ref().map_or_else(|| self.pool.budgets.answer_disk(), Admission::disk);
        let pooled_file = PooledFile { anonymous_file: Some(anonymous_file), pool: Arc::clone(&self.pool), share };
        SpoolWriter {
            pooled_file,
            length: 0,
            is_upload: self.admission.is_some(),
            #[cfg(test)]
            disk_bytes: u64::MAX,
        }
    }

    /// Returns a writer for the body of a request, which may be small: only a large body takes a file.
    pub(crate) fn bytes_writer(&self, admission: &Admission) -> SpooledBytesWriter {
        SpooledBytesWriter::new(self.for_request(admission), admission)
    }
}

/// Creates the folder, closed to other users, and removes old files. A process that was killed between the creation of
/// a file and the removal of its name has left the name, but no bytes.
fn prepare(folder: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)?;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

// === impl SpoolWriter ===

impl SpoolWriter {
    /// The number of bytes written so far.
    pub(crate) const fn len(&self) -> u64 {
        self.length
    }

    /// Appends the bytes with one write.
    ///
    /// # Errors
    ///
    /// Returns an error if the disk does not accept the bytes or a budget does not allow them. If the disk is full,
    /// idle files are dropped and the write is tried again.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let end = self.length + bytes.len() as u64;
        let pool = &self.pooled_file.pool;
        #[cfg(test)]
        pool.writes.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        #[cfg(test)]
        if end > self.disk_bytes {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.pooled_file.share.set_bytes(end)?;
        if self.is_upload && !pool.has_room_for(bytes.len() as u64) {
            return Err(pool.budgets.refuse(BudgetExceeded::FreeSpace));
        }
        let anonymous_file = self.pooled_file.anonymous_file()?;
        // This comes before the write, because a write that fails has still taken space.
        anonymous_file.extent = anonymous_file.extent.max(end);
        match positioned_io::write_all(&anonymous_file.file, bytes, self.length) {
            Err(error) if is_full(&error) => {
                self.pooled_file.pool.drop_idle();
                positioned_io::write_all(&self.pooled_file.anonymous_file()?.file, bytes, self.length)?;
            }
            written => written?,
        }
        self.length = end;
        Ok(())
    }

    /// Like [`SpoolWriter::write`], on a thread that may block.
    ///
    /// # Errors
    ///
    /// Like [`SpoolWriter::write`]. The writer is dropped then.
    pub(crate) async fn append(self, bytes: Bytes) -> io::Result<Self> {
        self.append_all(vec![bytes]).await
    }

    /// Like [`SpoolWriter::append`], for bytes that came in several chunks, with the same errors.
    pub(crate) async fn append_all(self, chunks: Vec<Bytes>) -> io::Result<Self> {
        let (writer, written) = self.try_append_all(chunks).await?;
        written.map(|()| writer)
    }

    /// Like [`SpoolWriter::append_all`], but returns the writer with the result of the write: what it has written before
    /// can still be read.
    ///
    /// # Errors
    ///
    /// Returns an error if the gateway stops.
    pub(crate) async fn try_append_all(mut self, chunks: Vec<Bytes>) -> io::Result<(Self, io::Result<()>)> {
        let pool = Arc::clone(&self.pooled_file.pool);
        let write_all = move || {
            let written = chunks.iter().try_for_each(|chunk| self.write(chunk));
            Ok((self, written))
        };
        pool.run_blocking(write_all).await
    }

    /// Ends the upload or answer, which is now complete.
    pub(crate) fn finish(self) -> Arc<SpooledFile> {
        Arc::new(SpooledFile { pooled_file: self.pooled_file, length: self.length })
    }
}

#[cfg(test)]
impl Spool {
    /// Creates a spool with the default limits.
    pub(crate) fn new(data_dir: &Path) -> io::Result<Self> {
        Self::with_budgets(data_dir, &RequestBudgets::default_for_test())
    }

    /// Creates a spool with these budgets.
    pub(crate) fn with_budgets(data_dir: &Path, budgets: &Arc<RequestBudgets>) -> io::Result<Self> {
        Self::open_in(data_dir, UploadLimits::DEFAULT.min_free, Arc::clone(budgets))
    }

    /// Returns the number of calls of [`SpoolWriter::write`].
    pub(crate) fn writes(&self) -> usize {
        self.pool.writes.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Creates a spool on a disk whose entire free space is reserved for the database.
    pub(crate) fn without_free_space(data_dir: &Path) -> io::Result<Self> {
        Self::open_in(data_dir, u64::MAX, RequestBudgets::default_for_test())
    }

    /// Returns a writer that accepts no more than this number of bytes.
    pub(crate) fn writer_with_room(&self, room: u64) -> io::Result<SpoolWriter> {
        Ok(SpoolWriter { disk_bytes: room, ..self.create_writer_blocking()? })
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

// === impl SpooledFile ===

impl ByteSource for SpooledFile {
    fn len(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        // The bytes beyond the end belong to an earlier upload that used the same file.
        let remaining = self.length.saturating_sub(offset);
        let count = usize::try_from(remaining).unwrap_or(usize::MAX).min(buffer.len());
        match &self.pooled_file.anonymous_file {
            // The system reports an error for an offset beyond the largest possible file, so a read of no bytes is not
            // passed to the system.
            Some(anonymous_file) if count > 0 => {
                positioned_io::read(&anonymous_file.file, &mut buffer[..count], offset)
            }
            _ => Ok(0),
        }
    }
}

// === impl PooledFile ===

impl PooledFile {
    fn anonymous_file(&mut self) -> io::Result<&mut AnonymousFile> {
        self.anonymous_file.as_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Drop for PooledFile {
    fn drop(&mut self) {
        let Some(anonymous_file) = self.anonymous_file.take() else { return };
        if anonymous_file.extent <= IDLE_FILE_BYTES_MAX && self.pool.idle().len() < IDLE_MAX {
            return self.pool.return_file(anonymous_file);
        }
        // A large file is truncated and a surplus one is closed; both may take long.
        let pool = Arc::clone(&self.pool);
        blocking_io::spawn_detached(move || pool.return_file(anonymous_file));
    }
}

// === impl SpoolFilePool ===

impl SpoolFilePool {
    fn idle(&self) -> MutexGuard<'_, Vec<AnonymousFile>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the idle files after the lock is released: closing a file frees its blocks, which may take long.
    fn drop_idle(&self) {
        let idle = std::mem::take(&mut *self.idle());
        drop(idle);
    }

    /// True if the space reserved for the database stays free after `bytes` more are written. Drops idle files if
    /// necessary.
    fn has_room_for(&self, bytes: u64) -> bool {
        self.free.has_room_for(bytes) || {
            self.drop_idle();
            self.free.has_room_for(bytes)
        }
    }

    /// True if the database may soon run out of space, even without the idle files.
    fn is_short_of_space(&self) -> bool {
        self.free.is_short() && {
            self.drop_idle();
            self.free.is_short()
        }
    }

    async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        self.free.run_blocking(work).await
    }

    fn return_file(&self, mut anonymous_file: AnonymousFile) {
        if self.idle().len() >= IDLE_MAX {
            return;
        }
        if anonymous_file.extent > IDLE_FILE_BYTES_MAX {
            blocking_io::note_disk_access();
            if let Err(error) = anonymous_file.file.set_len(0) {
                tracing::warn!(%error, "a spool file could not be truncated and is discarded");
                return;
            }
            anonymous_file.extent = 0;
        }
        let mut idle = self.idle();
        if idle.len() < IDLE_MAX {
            idle.push(anonymous_file);
        }
    }
}

// === impl AnonymousFile ===

impl AnonymousFile {
    fn new(folder: &Path) -> io::Result<Self> {
        blocking_io::note_disk_access();
        Ok(Self { file: tempfile::tempfile_in(folder)?, extent: 0 })
    }
}
