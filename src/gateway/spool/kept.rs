//! A body that may be small or large: a little is held in memory, more lies in a file.

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::{Memory, Spool, Spooled, Writer};
use crate::image::Source;

/// So much is held in memory, and so much is written at once: an agent begins its conversation with less.
const HELD_MAX: usize = 64 * 1024;

/// A body that is still coming.
#[derive(Debug)]
pub(crate) struct Keeper {
    spool: Spool,
    held: BytesMut,
    memory: Memory,
    writer: Option<Writer>,
}

/// A body that has come, or a part of one. A clone is the same bytes again.
#[derive(Clone, Debug)]
pub(crate) enum Kept {
    /// In memory.
    Memory(Bytes),
    /// On disk, from one place to another.
    Disk {
        /// The file.
        file: Arc<Spooled>,
        /// Its first byte.
        from: u64,
        /// Behind its last byte.
        to: u64,
    },
}

// === impl Keeper ===

impl Keeper {
    pub(super) fn new(spool: Spool) -> Self {
        let memory = spool.memory();
        Self { spool, held: BytesMut::new(), memory, writer: None }
    }

    /// Appends.
    ///
    /// # Errors
    ///
    /// Returns an error if the disk does not take the bytes, or a budget does not allow them.
    pub(crate) async fn write(&mut self, bytes: Bytes) -> io::Result<()> {
        let length = self.held.len() + bytes.len();
        if length <= HELD_MAX {
            self.memory.hold(length as u64)?;
            self.held.extend_from_slice(&bytes);
            return Ok(());
        }
        let writer = match self.writer.take() {
            Some(writer) => writer,
            None => self.spool.open().await?,
        };
        let writer = self.append_held(writer).await?;
        self.writer = Some(writer.append(bytes).await?);
        Ok(())
    }

    async fn append_held(&mut self, writer: Writer) -> io::Result<Writer> {
        let held = std::mem::take(&mut self.held);
        let writer = if held.is_empty() { writer } else { writer.append(held.freeze()).await? };
        self.memory.hold(0)?;
        Ok(writer)
    }

    /// The body is whole.
    ///
    /// # Errors
    ///
    /// Where the disk does not take the rest of it.
    pub(crate) async fn finish(mut self) -> io::Result<Kept> {
        let Some(writer) = self.writer.take() else { return Ok(Kept::Memory(self.held.freeze())) };
        let file = self.append_held(writer).await?.finish();
        let to = file.len();
        Ok(Kept::Disk { file, from: 0, to })
    }
}

// === impl Kept ===

impl Kept {
    /// Runs work that reads it: at once where it lies in memory, otherwise on a thread that may wait.
    ///
    /// # Errors
    ///
    /// Returns an error if the work panics.
    pub(crate) async fn reading<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        let Self::Disk { file, .. } = self else { return Ok(work()) };
        // Its log lines belong to the same request.
        let span = tracing::Span::current();
        let pool = Arc::clone(&file.place.pool);
        pool.off_worker(move || Ok(span.in_scope(work))).await
    }

    /// The part of it from one place to another; what lies behind its end is not there.
    pub(crate) fn part(&self, from: u64, to: u64) -> Self {
        let (from, to) = (from.min(self.len()), to.min(self.len()).max(from.min(self.len())));
        match self {
            // Memory has no places that its numbers cannot count.
            Self::Memory(bytes) => {
                let place = |offset| usize::try_from(offset).unwrap_or(bytes.len());
                Self::Memory(bytes.slice(place(from)..place(to)))
            }
            Self::Disk { file, from: start, .. } => {
                Self::Disk { file: Arc::clone(file), from: start + from, to: start + to }
            }
        }
    }
}

#[cfg(test)]
impl Kept {
    /// The same bytes on disk, however few they are.
    pub(crate) fn on_disk(bytes: &[u8]) -> Self {
        let folder = tempfile::TempDir::new().expect("a folder");
        let mut writer = Spool::new(folder.path()).and_then(|spool| spool.begin()).expect("a file");
        writer.write(bytes).expect("written");
        Self::Disk { file: writer.finish(), from: 0, to: bytes.len() as u64 }
    }
}

impl From<Bytes> for Kept {
    fn from(bytes: Bytes) -> Self {
        Self::Memory(bytes)
    }
}

impl Source for Kept {
    fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::Disk { from, to, .. } => to - from,
        }
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.len().saturating_sub(offset);
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        match self {
            Self::Memory(bytes) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                buffer[..count].copy_from_slice(&bytes[start..start + count]);
                Ok(count)
            }
            Self::Disk { file, from, .. } => file.read_at(from + offset, &mut buffer[..count]),
        }
    }
}
