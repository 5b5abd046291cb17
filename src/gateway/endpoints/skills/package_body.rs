//! The body of a package, read from disk in chunks: clients may be slow, and many clients may download at once.

use std::fs::File;
use std::io::{Error, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead as _, ReadBuf};

/// The size of the chunk that is in memory for each download, in bytes (our choice).
const CHUNK_SIZE: usize = 64 << 10;

/// The part of a file that was not sent yet.
pub(super) struct PackageBody {
    file: tokio::fs::File,
    remaining: u64,
}

// === impl PackageBody ===

impl PackageBody {
    /// Creates the body of a file of this length in bytes.
    pub(super) fn new(file: File, length: u64) -> Self {
        Self { file: file.into(), remaining: length }
    }
}

impl Body for PackageBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if self.remaining == 0 {
            return Poll::Ready(None);
        }
        let mut chunk = vec![0; usize::try_from(self.remaining).unwrap_or(CHUNK_SIZE).min(CHUNK_SIZE)];
        let mut buffer = ReadBuf::new(&mut chunk);
        ready!(Pin::new(&mut self.file).poll_read(cx, &mut buffer))?;
        let read = buffer.filled().len();
        if read == 0 {
            // The length was announced in the header, so the client must notice that bytes are missing.
            return Poll::Ready(Some(Err(ErrorKind::UnexpectedEof.into())));
        }
        chunk.truncate(read);
        self.remaining -= read as u64;
        Poll::Ready(Some(Ok(Frame::data(chunk.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.remaining == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining)
    }
}
