//! The buffers into which answers are read.
//!
//! A buffer is large from the first read, and it returns to its pool when the last frame in it was written: a new one
//! would cost a page fault for each 4 KiB. A few bytes are copied, so that they do not keep a whole buffer.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, ReadBuf};

/// The number of unused buffers that are kept (our choice).
const KEPT_BUFFERS: usize = 24;

/// The share of a buffer up to which its bytes are copied (our choice).
const COPIED_SHARE: usize = 4;

/// Buffers of one size.
pub(super) struct ReadBuffers {
    size: usize,
    unused: Mutex<Vec<Box<[u8]>>>,
}

/// A buffer that returns to its pool when it is dropped.
struct PooledBuffer {
    bytes: Box<[u8]>,
    filled: usize,
    pool: Arc<ReadBuffers>,
}

// === impl ReadBuffers ===

impl ReadBuffers {
    pub(super) fn new(size: usize) -> Arc<Self> {
        Arc::new(Self { size, unused: Mutex::default() })
    }

    /// Reads what has arrived, at most one buffer. Empty bytes are the end of the stream. While nothing has arrived, no
    /// buffer is in use.
    pub(super) fn poll_read(
        self: &Arc<Self>,
        stream: Pin<&mut impl AsyncRead>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Bytes>> {
        let mut buffer = self.take();
        let mut target = ReadBuf::new(&mut buffer.bytes);
        ready!(stream.poll_read(cx, &mut target))?;
        buffer.filled = target.filled().len();
        Poll::Ready(Ok(if buffer.filled <= self.size / COPIED_SHARE {
            Bytes::copy_from_slice(buffer.as_ref())
        } else {
            Bytes::from_owner(buffer)
        }))
    }

    fn take(self: &Arc<Self>) -> PooledBuffer {
        let unused = self.unused.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let bytes = unused.unwrap_or_else(|| vec![0; self.size].into_boxed_slice());
        PooledBuffer { bytes, filled: 0, pool: Arc::clone(self) }
    }
}

impl fmt::Debug for ReadBuffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadBuffers").field("size", &self.size).finish_non_exhaustive()
    }
}

// === impl PooledBuffer ===

impl AsRef<[u8]> for PooledBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let mut unused = self.pool.unused.lock().unwrap_or_else(PoisonError::into_inner);
        if unused.len() < KEPT_BUFFERS {
            unused.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pool: &Arc<ReadBuffers>, mut input: &[u8]) -> Bytes {
        let polled = pool.poll_read(Pin::new(&mut input), &mut Context::from_waker(std::task::Waker::noop()));
        let Poll::Ready(bytes) = polled else { panic!("the input is there") };
        bytes.unwrap()
    }

    fn unused(pool: &ReadBuffers) -> usize {
        pool.unused.lock().unwrap().len()
    }

    #[test]
    fn a_buffer_returns_when_its_last_slice_is_dropped() {
        let pool = ReadBuffers::new(8);
        let bytes = read(&pool, b"more than a quarter");
        assert_eq!((&bytes[..], unused(&pool)), (&b"more tha"[..], 0));
        let slice = bytes.slice(4..);
        drop(bytes);
        assert_eq!(unused(&pool), 0);
        drop(slice);
        assert_eq!(unused(&pool), 1);
        // It is used again, and a few bytes are copied out of it.
        let few = read(&pool, b"ab");
        assert_eq!((&few[..], unused(&pool)), (&b"ab"[..], 1));
        assert!(read(&pool, b"").is_empty());
    }

    #[test]
    fn unused_buffers_are_limited() {
        let pool = ReadBuffers::new(8);
        let held: Vec<_> = (0..KEPT_BUFFERS + 3).map(|_| read(&pool, b"12345678")).collect();
        drop(held);
        assert_eq!(unused(&pool), KEPT_BUFFERS);
    }
}
