//! An answer that is held until it is whole.
//!
//! In HTTP/1.0 the end of an answer without a length is the end of the connection, so one that breaks off looks whole.
//! Such a caller gets its answer when it is complete, from a file, with a length; and an error when it never is.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;

use super::answer::{Answer, Kind};
use crate::error::{Error, Fault};
use crate::gateway::spool::{Spool, Spooled};
use crate::image::Source as _;

/// So much is read at once.
const PIECE: usize = 256 * 1024;

/// A file on its way out.
struct FileBody {
    file: Arc<Spooled>,
    at: u64,
}

/// Reads a body to its end, into a file, and answers with that.
///
/// # Errors
///
/// 502 where the body breaks off, 503 where the disk does not take it.
pub(crate) async fn hold<B>(kind: Kind, mut body: B, spool: &Spool) -> Result<Answer, Error>
where
    B: Body<Data = Bytes> + Unpin,
{
    let full = |error: std::io::Error| {
        tracing::error!(%error, "an answer could not be held on disk");
        Error::Unavailable
    };
    let mut writer = spool.begin().map_err(full)?;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Error::Upstream(Fault::Broken))?;
        if let Ok(data) = frame.into_data() {
            writer.write(&data).map_err(full)?;
        }
    }
    let file = writer.finish();
    let length = file.len().to_string();
    Ok(Answer::coming(kind, FileBody { file, at: 0 }).with("content-length", Some(&length)))
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.at >= self.file.len() {
            return Poll::Ready(None);
        }
        let mut piece = vec![0; PIECE];
        match self.file.read_at(self.at, &mut piece) {
            // A file shorter than it says would otherwise be asked for its end for ever.
            Ok(0) => Poll::Ready(Some(Err(std::io::ErrorKind::UnexpectedEof.into()))),
            Ok(read) => {
                piece.truncate(read);
                self.at += read as u64;
                Poll::Ready(Some(Ok(Frame::data(piece.into()))))
            }
            Err(error) => Poll::Ready(Some(Err(error))),
        }
    }
}
