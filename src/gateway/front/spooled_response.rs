//! An answer that is stored in a file until it is complete.
//!
//! In HTTP/1.0, the end of the connection marks the end of an answer without a length, so an answer that breaks off
//! looks complete. An HTTP/1.0 caller therefore gets a complete answer from a file, with its length, or an error if the
//! answer breaks off.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::error::{Error, UpstreamFault};
use crate::gateway::spool::{Spool, SpooledFile};
use crate::image::ByteSource as _;

/// The maximum number of bytes that are read at once (our choice).
const READ_BYTES: usize = 256 * 1024;

/// The body of a complete answer, which is sent from a file.
pub(crate) struct SpooledResponseBody {
    file: Arc<SpooledFile>,
    offset: u64,
    /// The read of the next chunk, on a blocking thread.
    pending_read: Option<JoinHandle<io::Result<Vec<u8>>>>,
}

/// Reads a body to its end and stores it in a file.
///
/// # Errors
///
/// Returns 502 if the body breaks off or cannot be written to disk. The error tells the caller not to retry, because
/// the answer was paid for.
pub(crate) async fn spool_response<B>(mut body: B, spool: &Spool) -> Result<SpooledResponseBody, Error>
where
    B: Body<Data = Bytes> + Unpin,
{
    let spool_error = |error: io::Error| {
        tracing::error!(%error, "an answer could not be stored on disk");
        Error::Upstream(UpstreamFault::Unknown)
    };
    let mut writer = spool.create_writer().await.map_err(spool_error)?;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Error::Upstream(UpstreamFault::Broken))?;
        if let Ok(data) = frame.into_data() {
            writer = writer.append(data).await.map_err(spool_error)?;
        }
    }
    Ok(SpooledResponseBody { file: writer.finish(), offset: 0, pending_read: None })
}

// === impl SpooledResponseBody ===

impl SpooledResponseBody {
    /// The number of bytes of the answer.
    pub(crate) fn length(&self) -> u64 {
        self.file.len()
    }
}

impl Body for SpooledResponseBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.offset >= self.file.len() {
            return Poll::Ready(None);
        }
        let (file, offset) = (Arc::clone(&self.file), self.offset);
        let pending_read = self
            .pending_read
            .get_or_insert_with(|| Handle::current().spawn_blocking(move || read_chunk(&file, offset)));
        let result = ready!(Pin::new(pending_read).poll(cx));
        self.pending_read = None;
        let chunk = result.unwrap_or_else(|panic| Err(io::Error::other(panic)));
        self.offset += chunk.as_ref().map_or(0, Vec::len) as u64;
        Poll::Ready(Some(chunk.map(|chunk| Frame::data(chunk.into()))))
    }
}

fn read_chunk(file: &SpooledFile, offset: u64) -> io::Result<Vec<u8>> {
    let mut chunk = vec![0; READ_BYTES];
    match file.read_at(offset, &mut chunk)? {
        // Without this error, a file that is shorter than its stated length would be read in an endless loop.
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        read => {
            chunk.truncate(read);
            Ok(chunk)
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;
    use tempfile::TempDir;

    use super::*;

    #[tokio::test]
    async fn a_paid_answer_is_stored_in_reserved_disk_space() {
        let folder = TempDir::new().unwrap();
        let spool = Spool::without_free_space(folder.path()).unwrap();
        assert!(spool_response(Full::new(Bytes::from_static(b"an image")), &spool).await.is_ok());
    }

    #[tokio::test]
    async fn a_paid_answer_that_cannot_be_stored_must_not_be_retried() {
        let folder = TempDir::new().unwrap();
        let spool = Spool::new(folder.path()).unwrap();
        // The spool has one file open; without it, the next writer needs a new file.
        let _idle_file = spool.create_writer_blocking().unwrap();
        drop(folder);
        let result = spool_response(Full::new(Bytes::from_static(b"an image")), &spool).await;
        let error = result.err().expect("the folder is gone");
        assert_eq!((&error, error.should_retry()), (&Error::Upstream(UpstreamFault::Unknown), false));
    }
}
