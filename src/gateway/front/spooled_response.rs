//! An answer that is held until it is complete.
//!
//! In HTTP/1.0 the end of an answer without a length is the end of the connection, so an answer that breaks off looks
//! complete. Such a caller gets its answer from a file, with a length, once it is complete; if it breaks off, the
//! caller gets an error.

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

/// The number of bytes that are read at once.
const READ_BYTES: usize = 256 * 1024;

/// A complete answer that is sent from its file.
pub(crate) struct SpooledResponseBody {
    file: Arc<SpooledFile>,
    offset: u64,
    /// The next piece, read on a thread that may block.
    pending_read: Option<JoinHandle<io::Result<Vec<u8>>>>,
}

/// Reads a body to its end, into a file.
///
/// # Errors
///
/// Returns 502 if the body breaks off or the disk does not take it. Neither may be retried: the answer was paid for.
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
        let (file, at) = (Arc::clone(&self.file), self.offset);
        let pending_read =
            self.pending_read.get_or_insert_with(|| Handle::current().spawn_blocking(move || read_piece(&file, at)));
        let result = ready!(Pin::new(pending_read).poll(cx));
        self.pending_read = None;
        let piece = result.unwrap_or_else(|panic| Err(io::Error::other(panic)));
        self.offset += piece.as_ref().map_or(0, Vec::len) as u64;
        Poll::Ready(Some(piece.map(|piece| Frame::data(piece.into()))))
    }
}

fn read_piece(file: &SpooledFile, offset: u64) -> io::Result<Vec<u8>> {
    let mut piece = vec![0; READ_BYTES];
    match file.read_at(offset, &mut piece)? {
        // A file shorter than its stated size would otherwise be read at its end for ever.
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        read => {
            piece.truncate(read);
            Ok(piece)
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;
    use tempfile::TempDir;

    use super::*;

    #[tokio::test]
    async fn what_was_paid_for_is_given_although_the_rest_of_the_disk_is_reserved() {
        let folder = TempDir::new().unwrap();
        let spool = Spool::on_short_disk(folder.path()).unwrap();
        assert!(spool_response(Full::new(Bytes::from_static(b"an image")), &spool).await.is_ok());
    }

    #[tokio::test]
    async fn what_was_paid_for_and_has_no_place_is_not_to_be_asked_for_again() {
        let folder = TempDir::new().unwrap();
        let spool = Spool::new(folder.path()).unwrap();
        let _only = spool.create_writer_blocking().unwrap();
        drop(folder);
        let held = spool_response(Full::new(Bytes::from_static(b"an image")), &spool).await;
        let error = held.err().expect("there is no folder for it");
        assert_eq!((&error, error.should_retry()), (&Error::Upstream(UpstreamFault::Unknown), false));
    }
}
