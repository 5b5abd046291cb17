//! Uploads on disk, for as long as one request needs them.
//!
//! Decides: where the bytes of an upload wait, and how the files are reused.
//! Refuses to know: what the bytes are, who sent them, and what is done with them.
//! Rules: memory does not grow with an upload, every attempt can read it again, and no file has a name, so none
//! survives its request or a kill of the process.
//!
//! Overwriting the pages of an existing file was measured to cost a third of creating a new one, so files are reused.
//! They are written on threads that may block: a stalled disk must not hold up tasks that need no disk.

pub(crate) mod at;
mod budget;
mod free;
mod kept;
mod upload;
pub(crate) mod waits;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use budget::BudgetShare;
use budget::Budgets;
pub(crate) use budget::{BudgetExceeded, Usage};
pub(crate) use free::FreeSpace;
pub(crate) use kept::{Keeper, Kept};
pub(crate) use upload::{EditForm, Upload};

use crate::gateway::config::Uploads;
use crate::image::Source;

/// Files that wait for their next upload; more are let go.
const IDLE_MAX: usize = 32;
/// A file that waits keeps at most so much of the disk.
const KEPT_BYTES: u64 = 32 * 1024 * 1024;

/// Makes places for uploads; clones share the files.
#[derive(Clone, Debug)]
pub(crate) struct Spool {
    pool: Arc<Pool>,
    /// The API key that the written bytes count for.
    owner: Option<Arc<str>>,
}

/// An upload that is still coming.
#[derive(Debug)]
pub(crate) struct Writer {
    place: Place,
    length: u64,
    /// True for an upload of a caller. Otherwise the bytes belong to an answer that was paid for: neither a budget nor
    /// the part of the disk that belongs to the database is a reason to refuse them.
    owned: bool,
}

/// A whole upload. Its file goes back when the last copy of it is dropped.
#[derive(Debug)]
pub(crate) struct Spooled {
    place: Place,
    length: u64,
}

#[derive(Debug)]
struct Pool {
    folder: PathBuf,
    idle: Mutex<Vec<Nameless>>,
    budgets: Budgets,
    free: FreeSpace,
    /// The result of the last look at the free space.
    out_of_space: AtomicBool,
    #[cfg(test)]
    writes: std::sync::atomic::AtomicUsize,
}

/// Memory for a body that is still arriving; it counts until this is dropped.
#[derive(Debug)]
pub(crate) struct Memory {
    share: BudgetShare,
    pool: Arc<Pool>,
}

/// A file without a name.
#[derive(Debug)]
struct Nameless {
    file: File,
    /// How far it was ever written: what of the disk it holds.
    extent: u64,
}

/// A file on loan from the pool.
#[derive(Debug)]
struct Place {
    /// Nothing only while it is being dropped.
    nameless: Option<Nameless>,
    pool: Arc<Pool>,
    share: BudgetShare,
}

// === impl Spool ===

impl Spool {
    /// Takes the folder `spool` of the data directory. What lies there is ours and left over.
    ///
    /// # Errors
    ///
    /// Where no file can be made there: better now than at the first upload.
    pub(crate) fn open_in(data_dir: &Path, limits: &Uploads) -> io::Result<Self> {
        let folder = data_dir.join("spool");
        prepare(&folder)?;
        let first = Nameless::new(&folder)?;
        let free = FreeSpace::new(folder.clone(), limits.min_free);
        let (idle, budgets, out_of_space) = (Mutex::new(vec![first]), Budgets::new(limits), AtomicBool::new(false));
        let pool = Arc::new(Pool {
            folder,
            idle,
            budgets,
            free,
            out_of_space,
            #[cfg(test)]
            writes: std::sync::atomic::AtomicUsize::new(0),
        });
        Ok(Self { pool, owner: None })
    }

    /// The same spool for uploads of this API key, which count against its share.
    pub(crate) fn owned_by(&self, key: Option<&str>) -> Self {
        Self { pool: Arc::clone(&self.pool), owner: key.map(Arc::from) }
    }

    /// The free space for another folder of the same disk, whose work shares the threads of this spool.
    pub(crate) fn free_space(&self, folder: PathBuf) -> FreeSpace {
        self.pool.free.of(folder)
    }

    /// A share of the memory for bodies that are still arriving.
    pub(crate) fn memory(&self) -> Memory {
        Memory { share: self.pool.budgets.memory.share(self.owner.clone()), pool: Arc::clone(&self.pool) }
    }

    /// The bytes held at this moment.
    pub(crate) fn usage(&self) -> Usage {
        self.pool.budgets.usage()
    }

    /// Like [`Spool::begin`], on a thread that may block.
    ///
    /// # Errors
    ///
    /// Like [`Spool::begin`].
    pub(crate) async fn open(&self) -> io::Result<Writer> {
        let spool = self.clone();
        self.pool.off_worker(move || spool.begin()).await
    }

    /// Runs work with files on a thread that may block.
    ///
    /// # Errors
    ///
    /// Returns an error if the work panics.
    pub(crate) async fn off_worker<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        self.pool.off_worker(move || Ok(work())).await
    }

    /// Like [`Spool::open`], for bytes that will be paid for only if there is a place for them: it is refused like an
    /// upload if the rest of the disk is reserved for the database.
    ///
    /// # Errors
    ///
    /// Like [`Spool::open`], and if the rest of the disk is reserved.
    pub(crate) async fn open_before_paying(&self) -> io::Result<Writer> {
        let spool = self.clone();
        let open = move || {
            spool.check_floor()?;
            spool.begin()
        };
        self.pool.off_worker(open).await
    }

    /// A place for one upload, or for an answer.
    ///
    /// # Errors
    ///
    /// Returns an error if no more files can be created. An upload is also refused if the rest of the disk is reserved
    /// for the database.
    pub(crate) fn begin(&self) -> io::Result<Writer> {
        if self.owner.is_some() {
            self.check_floor()?;
        }
        let idle = self.pool.idle().pop();
        let nameless = match idle {
            Some(nameless) => nameless,
            None => Nameless::new(&self.pool.folder)?,
        };
        Ok(self.writer(nameless))
    }

    fn check_floor(&self) -> io::Result<()> {
        if self.pool.leaves_free(0) { Ok(()) } else { Err(self.pool.budgets.refuse(BudgetExceeded::Free)) }
    }

    fn writer(&self, nameless: Nameless) -> Writer {
        let share = self.pool.budgets.disk.share(self.owner.clone());
        let place = Place { nameless: Some(nameless), pool: Arc::clone(&self.pool), share };
        Writer { place, length: 0, owned: self.owner.is_some() }
    }

    /// A place for a body that may be small: only a large one takes a file.
    pub(crate) fn keeper(&self) -> Keeper {
        Keeper::new(self.clone())
    }
}

/// Makes the folder, closed to other users. A process that was killed between making a file and taking its name away
/// has left the name, never a byte.
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

// === impl Writer ===

impl Writer {
    /// The bytes written so far.
    pub(crate) const fn len(&self) -> u64 {
        self.length
    }

    /// Appends, with one write.
    ///
    /// # Errors
    ///
    /// Returns an error if the disk does not take the bytes or a budget does not allow them. If the disk is full, idle
    /// files are dropped and the write is tried again.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let end = self.length + bytes.len() as u64;
        let pool = &self.place.pool;
        #[cfg(test)]
        pool.writes.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.place.share.set(end).map_err(|exceeded| pool.budgets.refuse(exceeded))?;
        if self.owned && !pool.leaves_free(bytes.len() as u64) {
            return Err(pool.budgets.refuse(BudgetExceeded::Free));
        }
        let nameless = self.place.nameless()?;
        // Before the write, for one that fails has still taken room.
        nameless.extent = nameless.extent.max(end);
        match at::write_all(&nameless.file, bytes, self.length) {
            Err(error) if is_full(&error) => {
                self.place.pool.drop_idle();
                at::write_all(&self.place.nameless()?.file, bytes, self.length)?;
            }
            written => written?,
        }
        self.length = end;
        Ok(())
    }

    /// Like [`Writer::write`], on a thread that may block.
    ///
    /// # Errors
    ///
    /// Like [`Writer::write`]; the writer is dropped then.
    pub(crate) async fn append(mut self, bytes: Bytes) -> io::Result<Self> {
        let pool = Arc::clone(&self.place.pool);
        pool.off_worker(move || self.write(&bytes).map(|()| self)).await
    }

    /// The upload is whole.
    pub(crate) fn finish(self) -> Arc<Spooled> {
        Arc::new(Spooled { place: self.place, length: self.length })
    }
}

#[cfg(test)]
impl Spool {
    /// A spool with the default limits.
    pub(crate) fn new(data_dir: &Path) -> io::Result<Self> {
        Self::open_in(data_dir, &Uploads::DEFAULT)
    }

    /// A spool that lets the bodies of one key hold so many bytes of memory.
    pub(crate) fn with_memory_per_key(data_dir: &Path, memory_per_key: u64) -> io::Result<Self> {
        Self::open_in(data_dir, &Uploads { memory_per_key, ..Uploads::DEFAULT })
    }

    /// The number of writes.
    pub(crate) fn writes(&self) -> usize {
        self.pool.writes.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// A spool on a disk whose whole rest is reserved for the database.
    pub(crate) fn on_short_disk(data_dir: &Path) -> io::Result<Self> {
        Self::open_in(data_dir, &Uploads { min_free: u64::MAX, ..Uploads::DEFAULT })
    }

    /// A place that takes nothing.
    pub(crate) fn begin_full(&self) -> io::Result<Writer> {
        let named = tempfile::NamedTempFile::new_in(&self.pool.folder)?;
        Ok(self.writer(Nameless { file: File::open(named.path())?, extent: 0 }))
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

// === impl Spooled ===

impl Source for Spooled {
    fn len(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        // What lies behind the end is of another upload, which had the file before.
        let left = self.length.saturating_sub(offset);
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        match &self.place.nameless {
            // The system knows no place beyond what a file can have, and calls it an error.
            Some(nameless) if count > 0 => at::read(&nameless.file, &mut buffer[..count], offset),
            _ => Ok(0),
        }
    }
}

// === impl Memory ===

impl Memory {
    /// Sets the number of bytes that the body holds.
    ///
    /// # Errors
    ///
    /// Returns an error if the budget does not allow it.
    pub(crate) fn hold(&mut self, bytes: u64) -> io::Result<()> {
        self.share.set(bytes).map_err(|exceeded| self.pool.budgets.refuse(exceeded))
    }
}

// === impl Place ===

impl Place {
    fn nameless(&mut self) -> io::Result<&mut Nameless> {
        self.nameless.as_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(nameless) = self.nameless.take() else { return };
        if nameless.extent <= KEPT_BYTES && self.pool.idle().len() < IDLE_MAX {
            return self.pool.give_back(nameless);
        }
        // A large file is truncated, and a surplus one is closed: either may take long.
        let pool = Arc::clone(&self.pool);
        waits::detach(move || pool.give_back(nameless));
    }
}

// === impl Pool ===

impl Pool {
    fn idle(&self) -> MutexGuard<'_, Vec<Nameless>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the idle files. The lock is free again by then: closing a file frees its blocks, which may take long.
    fn drop_idle(&self) {
        let idle = std::mem::take(&mut *self.idle());
        drop(idle);
    }

    /// True if writing `bytes` more leaves the database its part of the disk; idle files are dropped if necessary.
    fn leaves_free(&self, bytes: u64) -> bool {
        self.free.leaves(bytes) || {
            self.drop_idle();
            self.free.leaves(bytes)
        }
    }

    /// True if the database may soon have no room, even without the idle files.
    fn is_short_of_space(&self) -> bool {
        self.free.is_short() && {
            self.drop_idle();
            self.free.is_short()
        }
    }

    async fn off_worker<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        self.free.off_worker(work).await
    }

    fn give_back(&self, mut nameless: Nameless) {
        if self.idle().len() >= IDLE_MAX {
            return;
        }
        if nameless.extent > KEPT_BYTES {
            waits::note();
            if let Err(error) = nameless.file.set_len(0) {
                tracing::warn!(%error, "a spool file could not be made small again and is let go");
                return;
            }
            nameless.extent = 0;
        }
        let mut idle = self.idle();
        if idle.len() < IDLE_MAX {
            idle.push(nameless);
        }
    }
}

// === impl Nameless ===

impl Nameless {
    fn new(folder: &Path) -> io::Result<Self> {
        waits::note();
        Ok(Self { file: tempfile::tempfile_in(folder)?, extent: 0 })
    }
}
