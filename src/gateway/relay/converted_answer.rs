//! A plain answer that is spooled to disk as a whole, so that its images can be exchanged before its caller gets any of it.
//!
//! The memory use does not depend on the size of the images. The summary still has the images that the upstream made.

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;

use super::answer_relay::{AnswerSource, RelayStep};
use super::combined_answer::CombinedAnswer;
use super::event::AnswerSummary;
use super::image_encoder::{ANSWER_PREFIX, write_end, write_members};
use super::proof::ProvenAnswer;
use super::relay_error::RelayError;
use super::stored_image::{StoredImage, StoredImageError};
use super::stored_members::{AnswerMembers, read_answer_members};
use crate::gateway::spool::{BodyPart, BodyPartReader, SpoolWriter, SpooledFile};
use crate::image::{Format, ImageProperties};

/// A complete answer with images, on disk.
#[derive(Debug)]
pub(crate) struct SpooledAnswer {
    file: Arc<SpooledFile>,
    summary: AnswerSummary,
}

/// An answer that broke off before its caller got any of it.
#[derive(Debug)]
struct BrokenAnswer {
    error: RelayError,
    summary: AnswerSummary,
}

/// An answer that is not on disk.
pub(crate) enum UnspooledAnswer {
    /// It broke off. The answer only tells its record why, and the tokens that were charged.
    Broken(ProvenAnswer),
    /// The disk has failed. The answer is whole: its beginning is read from the disk, and the rest from the upstream.
    Whole(ProvenAnswer),
}

/// The rest of an answer whose beginning was spooled.
#[derive(Debug)]
struct ResumedAnswer {
    beginning: BodyPartReader,
    rest: Box<dyn AnswerSource>,
}

/// Reads a plain answer to its end and spools it to disk.
///
/// # Errors
///
/// Returns what is left of the answer if it breaks off, or if the disk fails.
pub(crate) async fn spool_answer(
    proven: ProvenAnswer,
    mut writer: SpoolWriter,
) -> Result<SpooledAnswer, UnspooledAnswer> {
    let mut relay = proven.source;
    loop {
        let broken = |relay: &dyn AnswerSource, error| {
            let summary = AnswerSummary { usage: relay.summary().usage, ..AnswerSummary::default() };
            UnspooledAnswer::Broken(broken_answer(error, summary))
        };
        let step = std::future::poll_fn(|cx| relay.poll_step(cx)).await;
        let (piece, summary) = match step.map_err(|error| broken(&*relay, error))? {
            RelayStep::Piece(piece) => (piece, None),
            RelayStep::End(tail, summary) => (tail, Some(*summary)),
        };
        let appended = writer.try_append_all(vec![piece.clone()]).await;
        let (open, written) = appended.map_err(|_| broken(&*relay, RelayError::Cutoff))?;
        match (written, summary) {
            (Err(error), summary) => {
                tracing::error!(%error, "an answer that is to be converted cannot be stored on disk");
                let parts = vec![BodyPart::File(open.finish()), BodyPart::Bytes(piece)];
                return Err(UnspooledAnswer::Whole(resumed_answer(parts, relay, summary)));
            }
            (Ok(()), Some(summary)) => return Ok(SpooledAnswer { file: open.finish(), summary }),
            (Ok(()), None) => writer = open,
        }
    }
}

/// Returns an answer of these parts, and of what comes from the upstream after them, unless its summary says that it is
/// over.
fn resumed_answer(parts: Vec<BodyPart>, rest: Box<dyn AnswerSource>, summary: Option<AnswerSummary>) -> ProvenAnswer {
    let (parts, first_image) = (BodyPartReader::new(parts), rest.first_image());
    let source: Box<dyn AnswerSource> = match summary {
        Some(summary) => Box::new(CombinedAnswer { parts, suffix: Bytes::new(), first_image, summary }),
        None => Box::new(ResumedAnswer { beginning: parts, rest }),
    };
    ProvenAnswer { source }
}

/// Returns an answer that broke off because the gateway stops.
pub(crate) fn cut_off_answer() -> ProvenAnswer {
    broken_answer(RelayError::Cutoff, AnswerSummary::default())
}

fn broken_answer(error: RelayError, summary: AnswerSummary) -> ProvenAnswer {
    ProvenAnswer { source: Box::new(BrokenAnswer { error, summary }) }
}

// === impl SpooledAnswer ===

impl SpooledAnswer {
    /// The number of images.
    pub(crate) fn image_count(&self) -> usize {
        self.summary.delivered.len()
    }

    /// Begins to read the image with this index, from 0. Returns it with its format; `None` if its format is not known.
    ///
    /// # Errors
    ///
    /// Returns an error if the answer cannot be read or decoded.
    pub(crate) async fn open_image(
        &self,
        index: usize,
    ) -> Result<Option<(Format, StoredImage<BodyPartReader>)>, StoredImageError> {
        StoredImage::open(self.reader(), index).await
    }

    /// Returns the members of the answer, without the images.
    ///
    /// # Errors
    ///
    /// Returns an error if the answer cannot be read.
    pub(crate) async fn members(&self) -> Result<AnswerMembers, StoredImageError> {
        read_answer_members(self.reader()).await
    }

    /// Returns the answer as it came.
    pub(crate) fn into_proven(self) -> ProvenAnswer {
        let first_image = self.first_image();
        self.into_source(vec![], first_image)
    }

    /// Returns the answer with these files, all in the same format, in place of its images.
    pub(crate) fn with_images(
        self,
        members: AnswerMembers,
        files: Vec<Arc<SpooledFile>>,
        format: Format,
    ) -> ProvenAnswer {
        let AnswerMembers { mut members, images } = members;
        let mut parts = Vec::new();
        let mut text = ANSWER_PREFIX.to_vec();
        for (file, members) in files.into_iter().zip(images) {
            text.extend_from_slice(br#"{"b64_json":""#);
            parts.extend([BodyPart::Bytes(std::mem::take(&mut text).into()), BodyPart::Base64(file)]);
            text.push(b'"');
            write_members(&mut text, &members);
            text.extend_from_slice(b"},");
        }
        // The last image has no comma after it.
        text.pop();
        members.insert("output_format".to_owned(), format.as_str().into());
        write_end(&mut text, &members);
        parts.push(BodyPart::Bytes(text.into()));
        let first_image = self.first_image().map(|properties| ImageProperties { format, ..properties });
        self.into_source(parts, first_image)
    }

    fn first_image(&self) -> Option<ImageProperties> {
        self.summary.delivered.first()?.properties
    }

    fn reader(&self) -> BodyPartReader {
        BodyPartReader::new(vec![BodyPart::File(Arc::clone(&self.file))])
    }

    /// Returns an answer of these parts, or of the whole file if there are none.
    fn into_source(self, parts: Vec<BodyPart>, first_image: Option<ImageProperties>) -> ProvenAnswer {
        let parts = if parts.is_empty() { self.reader() } else { BodyPartReader::new(parts) };
        let answer = CombinedAnswer { parts, suffix: Bytes::new(), first_image, summary: self.summary };
        ProvenAnswer { source: Box::new(answer) }
    }
}

// === impl ResumedAnswer ===

impl AnswerSource for ResumedAnswer {
    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Result<RelayStep, RelayError>> {
        match ready!(self.beginning.poll_next(cx)) {
            Ok(Some(piece)) => Poll::Ready(Ok(RelayStep::Piece(piece))),
            Ok(None) => self.rest.poll_step(cx),
            Err(error) => {
                tracing::error!(%error, "the beginning of an answer cannot be read back");
                Poll::Ready(Err(RelayError::SpoolUnreadable))
            }
        }
    }

    fn extend_deadlines(&mut self, by: Duration) {
        self.rest.extend_deadlines(by);
    }

    fn summary(&self) -> AnswerSummary {
        self.rest.summary()
    }

    fn first_image(&self) -> Option<ImageProperties> {
        self.rest.first_image()
    }
}

// === impl BrokenAnswer ===

impl AnswerSource for BrokenAnswer {
    fn poll_step(&mut self, _cx: &mut Context<'_>) -> Poll<Result<RelayStep, RelayError>> {
        Poll::Ready(Err(self.error))
    }

    fn summary(&self) -> AnswerSummary {
        self.summary.clone()
    }

    fn first_image(&self) -> Option<ImageProperties> {
        None
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::gateway::relay::RelayOutcome;
    use crate::gateway::relay::UpstreamRelay;
    use crate::gateway::relay::fixtures::{PNG_HEAD, pieces, prove, read, requested_answer, timeouts};
    use crate::gateway::spool::Spool;

    /// Spools an answer on a disk that takes this number of bytes. Returns the text that its caller gets, and that without
    /// a disk.
    async fn texts(room: u64, cut: usize) -> (String, String) {
        let folder = TempDir::new().unwrap();
        let spool = Spool::new(folder.path()).unwrap();
        let image = format!("{PNG_HEAD}{}", "A".repeat(20_000));
        let upstream = format!(r#"{{"created":1,"data":[{{"b64_json":"{image}"}}]}}"#);
        let relay = || UpstreamRelay::for_images(pieces(&upstream, cut), requested_answer(), timeouts());
        let (expected, ..) = read(prove(relay()).await.unwrap(), String::new).await;
        let writer = spool.writer_with_room(room).unwrap();
        let passed = match spool_answer(prove(relay()).await.unwrap(), writer).await {
            Err(UnspooledAnswer::Whole(answer)) => answer,
            Err(UnspooledAnswer::Broken(_)) => panic!("the answer is lost"),
            Ok(answer) => answer.into_proven(),
        };
        let (text, outcome, summary) = read(passed, String::new).await;
        assert_eq!((outcome, summary.delivered.len()), (RelayOutcome::Complete, 1));
        (text.unwrap(), expected.unwrap())
    }

    #[tokio::test]
    async fn a_disk_that_fails_loses_no_answer() {
        for (room, cut) in [(0, 512), (1000, 512), (15_000, 512), (15_000, 100_000), (u64::MAX, 512)] {
            let (text, expected) = texts(room, cut).await;
            assert_eq!(text, expected, "{room} {cut}");
        }
    }
}
