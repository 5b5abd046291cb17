//! Bodies that consist of parts, some of them files of the spool.
//!
//! Files are read on threads that may block, one chunk at a time.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::{SpooledBytes, SpooledFile, positioned_io};
use crate::image::ByteSource;

/// The most bytes of a file that are read at once. Larger reads were measured to be no faster.
const READ_SIZE: usize = 256 * 1024;
/// The number of bytes of a file whose base64 has [`READ_SIZE`] bytes.
const BASE64_READ_SIZE: usize = READ_SIZE / 4 * 3;

/// A part of a body.
#[derive(Clone, Debug)]
pub(crate) enum BodyPart {
    /// Bytes in memory.
    Bytes(Bytes),
    /// A whole file.
    File(Arc<SpooledFile>),
    /// A whole file, sent as base64.
    Base64(Arc<SpooledFile>),
    /// Bytes in memory or on disk.
    Spooled(SpooledBytes),
}

/// A read of a file in progress.
type PendingFileRead = JoinHandle<io::Result<Bytes>>;

/// The parts of a body, and the position up to which they have been read.
#[derive(Debug)]
pub(crate) struct BodyPartReader {
    parts: Arc<[BodyPart]>,
    /// The index of the current part.
    index: usize,
    /// The position in the current part; for base64, in its encoded form.
    offset: u64,
    /// The number of bytes that are left in all parts.
    remaining: u64,
    /// The last frame that was read from a file. Its memory is used again if all other copies have been dropped.
    last_frame: Bytes,
    /// The next bytes of a file, read on a thread that may block: a stalled disk must not delay other requests.
    pending_read: Option<PendingFileRead>,
}

// === impl BodyPart ===

impl BodyPart {
    fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(file) => file.len(),
            Self::Base64(file) => file.len().div_ceil(3) * 4,
            Self::Spooled(bytes) => bytes.len(),
        }
    }

    /// Returns the bytes at this offset: the next chunk of [`Self::Base64`], all of [`Self::Bytes`], and at most
    /// `max_bytes` of the other parts.
    fn read(&self, last_frame: Bytes, offset: u64, max_bytes: usize) -> io::Result<Bytes> {
        match self {
            Self::Bytes(bytes) => Ok(bytes.clone()),
            Self::File(file) => read_bytes(last_frame, &**file, offset, max_bytes),
            // Every chunk of base64 except the last is full, so each chunk begins at a multiple of four characters.
            Self::Base64(file) => read_base64(file, offset / 4 * 3),
            Self::Spooled(bytes) => read_bytes(last_frame, bytes, offset, max_bytes),
        }
    }
}

impl BodyPart {
    /// Returns the bytes at this offset if they are in the cache of the system, so that no thread has to wait for them.
    fn read_cached(&self, last_frame: &mut Bytes, offset: u64, max_bytes: usize) -> Option<Bytes> {
        let (file, offset) = match self {
            Self::File(file) => (file, offset),
            Self::Spooled(SpooledBytes::Disk { file, from, .. }) => (file, from + offset),
            Self::Bytes(_) | Self::Base64(_) | Self::Spooled(SpooledBytes::Memory(_)) => return None,
        };
        let file = &file.pooled_file.anonymous_file.as_ref()?.file;
        let mut buffer = std::mem::take(last_frame).try_into_mut().unwrap_or_default();
        buffer.resize(max_bytes, 0);
        let count = positioned_io::read_cached(file, &mut buffer, offset).filter(|count| *count > 0);
        let Some(count) = count else {
            *last_frame = buffer.freeze();
            return None;
        };
        buffer.truncate(count);
        Some(buffer.freeze())
    }
}

// === impl BodyPartReader ===

impl BodyPartReader {
    pub(crate) fn new(parts: Vec<BodyPart>) -> Self {
        let remaining = parts.iter().map(BodyPart::len).sum();
        let (last_frame, pending_read) = (Bytes::new(), None);
        Self { parts: parts.into(), index: 0, offset: 0, remaining, last_frame, pending_read }
    }

    /// The number of bytes that are left in all parts.
    pub(crate) const fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Returns the next bytes of a part that is a file.
    fn poll_file(&mut self, cx: &mut Context<'_>, part: BodyPart, max_bytes: usize) -> Poll<io::Result<Bytes>> {
        let (offset, last_frame) = (self.offset, &mut self.last_frame);
        if self.pending_read.is_none()
            && let Some(data) = part.read_cached(last_frame, offset, max_bytes)
        {
            self.last_frame = data.clone();
            return Poll::Ready(Ok(data));
        }
        let read = || spawn_read(part, std::mem::take(last_frame), offset, max_bytes);
        let result = ready!(Pin::new(self.pending_read.get_or_insert_with(read)).poll(cx));
        self.pending_read = None;
        let data = result.map_err(io::Error::other)??;
        self.last_frame = data.clone();
        Poll::Ready(Ok(data))
    }

    /// Returns the next bytes.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        while let Some(part) = self.parts.get(self.index) {
            let remaining = part.len() - self.offset;
            if remaining == 0 {
                (self.index, self.offset) = (self.index + 1, 0);
                continue;
            }
            let max_bytes = usize::try_from(remaining).map_or(READ_SIZE, |remaining| remaining.min(READ_SIZE));
            let data = match part {
                BodyPart::Bytes(bytes) | BodyPart::Spooled(SpooledBytes::Memory(bytes)) => bytes.clone(),
                BodyPart::File(_) | BodyPart::Base64(_) | BodyPart::Spooled(_) => {
                    let part = part.clone();
                    ready!(self.poll_file(cx, part, max_bytes))?
                }
            };
            self.offset += data.len() as u64;
            self.remaining -= data.len() as u64;
            return Poll::Ready(Ok(Some(data)));
        }
        Poll::Ready(Ok(None))
    }
}

impl Body for BodyPartReader {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.get_mut().poll_next(cx).map(|data| data.transpose().map(|data| data.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.remaining == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining)
    }
}

fn spawn_read(part: BodyPart, last_frame: Bytes, offset: u64, max_bytes: usize) -> PendingFileRead {
    Handle::current().spawn_blocking(move || part.read(last_frame, offset, max_bytes))
}

/// Reads the next bytes of a file, into the memory of the last frame if nobody else holds it: that memory need not be
/// filled with zeros again.
fn read_bytes(last_frame: Bytes, file: &impl ByteSource, offset: u64, max_bytes: usize) -> io::Result<Bytes> {
    let mut buffer = last_frame.try_into_mut().unwrap_or_default();
    buffer.resize(max_bytes, 0);
    let count = file.read_at(offset, &mut buffer)?;
    if count == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    buffer.truncate(count);
    Ok(buffer.freeze())
}

/// Returns the next chunk of a file as base64. Each chunk but the last is read in full, because the end of a shorter
/// one would be padded in the middle of the base64.
fn read_base64(file: &SpooledFile, offset: u64) -> io::Result<Bytes> {
    let remaining = usize::try_from(file.len() - offset).unwrap_or(BASE64_READ_SIZE);
    let mut plain = vec![0; remaining.min(BASE64_READ_SIZE)];
    let mut filled = 0;
    while filled < plain.len() {
        match file.read_at(offset + filled as u64, &mut plain[filled..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => filled += count,
        }
    }
    Ok(STANDARD.encode(plain).into())
}

impl Clone for BodyPartReader {
    fn clone(&self) -> Self {
        Self {
            parts: Arc::clone(&self.parts),
            index: self.index,
            offset: self.offset,
            remaining: self.remaining,
            last_frame: Bytes::new(),
            pending_read: None,
        }
    }
}
