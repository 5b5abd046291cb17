//! A body that may be small or large: a small one is held in memory, a larger one in a file.

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::{Spool, SpoolWriter, SpooledFile};
use crate::gateway::admission::{Admission, ByteShare};
use crate::image::ByteSource;

/// The most bytes that are held in memory before they are written to the file (our choice). The first request of a
/// coding agent is usually smaller, so it needs no file.
const MEMORY_BYTES_MAX: usize = 64 * 1024;

/// A body that is still arriving.
#[derive(Debug)]
pub(crate) struct SpooledBytesWriter {
    spool: Spool,
    buffer: BytesMut,
    memory_share: ByteShare,
    file_writer: Option<SpoolWriter>,
}

/// A complete body, or a part of one. Clones share the bytes.
#[derive(Clone, Debug)]
pub(crate) enum SpooledBytes {
    /// The bytes are in memory.
    Memory(Bytes),
    /// The bytes are a range of a file on disk.
    Disk {
        /// The file.
        file: Arc<SpooledFile>,
        /// The offset of the first byte.
        from: u64,
        /// The offset after the last byte.
        to: u64,
    },
}

// === impl SpooledBytesWriter ===

impl SpooledBytesWriter {
    pub(super) fn new(spool: Spool, admission: &Admission) -> Self {
        let memory_share = admission.memory();
        Self { spool, buffer: BytesMut::new(), memory_share, file_writer: None }
    }

    /// Appends the bytes: to the buffer in memory or, if there is no room for them, to the file.
    ///
    /// # Errors
    ///
    /// Returns an error if the disk does not accept the bytes, or a budget does not allow them.
    pub(crate) async fn write(&mut self, bytes: Bytes) -> io::Result<()> {
        let length = self.buffer.len() + bytes.len();
        if length <= MEMORY_BYTES_MAX && self.memory_share.try_set_bytes(length as u64).is_ok() {
            self.buffer.extend_from_slice(&bytes);
            return Ok(());
        }
        let writer = match self.file_writer.take() {
            Some(writer) => writer,
            None => self.spool.create_writer().await?,
        };
        let writer = self.append_buffer(writer).await?;
        self.file_writer = Some(writer.append(bytes).await?);
        Ok(())
    }

    async fn append_buffer(&mut self, writer: SpoolWriter) -> io::Result<SpoolWriter> {
        let buffer = std::mem::take(&mut self.buffer);
        let writer = if buffer.is_empty() { writer } else { writer.append(buffer.freeze()).await? };
        self.memory_share.set_bytes(0)?;
        Ok(writer)
    }

    /// Ends the body, which is now complete.
    ///
    /// # Errors
    ///
    /// Returns an error if the disk does not accept the rest of the body.
    pub(crate) async fn finish(mut self) -> io::Result<SpooledBytes> {
        let Some(writer) = self.file_writer.take() else {
            return Ok(SpooledBytes::Memory(self.memory_share.attach_to(self.buffer.freeze())));
        };
        let file = self.append_buffer(writer).await?.finish();
        let to = file.len();
        Ok(SpooledBytes::Disk { file, from: 0, to })
    }
}

// === impl SpooledBytes ===

impl SpooledBytes {
    /// Runs `work`, which reads the body: on this thread if the body is in memory, otherwise on a thread that may
    /// block.
    ///
    /// # Errors
    ///
    /// Returns an error if the work panics.
    pub(crate) async fn read_with<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let Self::Disk { file, .. } = self else { return Ok(work()) };
        // The span of the request is entered on the other thread, so that its log lines name the request.
        let span = tracing::Span::current();
        let pool = Arc::clone(&file.pooled_file.pool);
        pool.run_blocking(move || Ok(span.in_scope(work))).await
    }

    /// Returns the bytes from offset `from` up to, but not including, `to`. Both offsets are clamped to the length.
    pub(crate) fn slice(&self, from: u64, to: u64) -> Self {
        let (from, to) = (from.min(self.len()), to.min(self.len()).max(from.min(self.len())));
        match self {
            // Bytes in memory have no offsets beyond `usize`.
            Self::Memory(bytes) => {
                let index = |offset| usize::try_from(offset).unwrap_or(bytes.len());
                Self::Memory(bytes.slice(index(from)..index(to)))
            }
            Self::Disk { file, from: start, .. } => {
                Self::Disk { file: Arc::clone(file), from: start + from, to: start + to }
            }
        }
    }
}

#[cfg(test)]
impl SpooledBytes {
    /// Returns these bytes on disk, however few they are.
    pub(crate) fn on_disk(bytes: &[u8]) -> Self {
        let folder = tempfile::TempDir::new().expect("a temporary folder can be created");
        let writer = Spool::new(folder.path()).and_then(|spool| spool.create_writer_blocking());
        let mut writer = writer.expect("a spool file can be created");
        writer.write(bytes).expect("the bytes can be written");
        Self::Disk { file: writer.finish(), from: 0, to: bytes.len() as u64 }
    }
}

impl From<Bytes> for SpooledBytes {
    fn from(bytes: Bytes) -> Self {
        Self::Memory(bytes)
    }
}

impl ByteSource for SpooledBytes {
    fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::Disk { from, to, .. } => to - from,
        }
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let remaining = self.len().saturating_sub(offset);
        let count = usize::try_from(remaining).unwrap_or(usize::MAX).min(buffer.len());
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
