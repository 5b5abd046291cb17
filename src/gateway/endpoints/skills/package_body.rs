//! The body of a package, sent in pieces: a caller may be slow, and many callers may download at once.

use std::fs::File;
use std::io::{Error, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead as _, ReadBuf};

/// The size of the piece that is in memory for each caller (our choice).
const CHUNK_SIZE: usize = 64 << 10;

/// The rest of a file.
pub(super) struct PackageBody {
    file: tokio::fs::File,
    remaining: u64,
}

// === impl PackageBody ===

impl PackageBody {
    /// The body of a file of this length.
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
        let mut piece = vec![0; usize::try_from(self.remaining).unwrap_or(CHUNK_SIZE).min(CHUNK_SIZE)];
        let mut into = ReadBuf::new(&mut piece);
        ready!(Pin::new(&mut self.file).poll_read(cx, &mut into))?;
        let read = into.filled().len();
        if read == 0 {
            // The length was announced, so the caller must notice that bytes are missing.
            return Poll::Ready(Some(Err(ErrorKind::UnexpectedEof.into())));
        }
        piece.truncate(read);
        self.remaining -= read as u64;
        Poll::Ready(Some(Ok(Frame::data(piece.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.remaining == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining)
    }
}
