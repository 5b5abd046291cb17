//! An answer that is stored in a file until it is complete.
//!
//! In HTTP/1.0, the end of the connection marks the end of an answer without a length, so an answer that breaks off
//! looks complete. An HTTP/1.0 caller therefore gets a complete answer from a file, with its length, or an error if the
//! answer breaks off.

use std::io;

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt as _;

use crate::error::{Error, UpstreamFault};
use crate::gateway::spool::{BodyPart, BodyPartReader, Spool};

/// Reads a body to its end and stores it in a file, from which the returned body sends it.
///
/// # Errors
///
/// Returns 502 if the body breaks off or cannot be written to disk. The error tells the caller not to retry, because
/// the answer was paid for.
pub(crate) async fn spool_response<B>(mut body: B, spool: &Spool) -> Result<BodyPartReader, Error>
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
    Ok(BodyPartReader::new(vec![BodyPart::File(writer.finish())]))
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
        let error = result.expect_err("the folder is gone");
        assert_eq!((&error, error.should_retry()), (&Error::Upstream(UpstreamFault::Unknown), false));
    }
}
