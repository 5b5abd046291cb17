//! A plain answer that is spooled to disk as a whole, so that its images can be exchanged before its caller gets any of it.
//!
//! The memory use does not depend on the size of the images. The summary still has the images that the upstream made.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::answer_relay::{AnswerSource, RelayStep};
use super::combined_answer::{CombinedAnswer, SpooledImageError, spool_source};
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

/// Reads a plain answer to its end and spools it to disk. The answer is read to its end even if the disk fails.
///
/// # Errors
///
/// Returns an answer that only tells its record why it broke off, and the tokens that were charged.
pub(crate) async fn spool_answer(proven: ProvenAnswer, writer: SpoolWriter) -> Result<SpooledAnswer, ProvenAnswer> {
    match spool_source(proven, writer).await {
        Ok((file, summary)) => Ok(SpooledAnswer { file, summary }),
        Err(SpooledImageError::Broken(error, usage)) => {
            Err(broken_answer(error, AnswerSummary { usage, ..AnswerSummary::default() }))
        }
        Err(SpooledImageError::Disk(kind, usage)) => {
            tracing::error!(%kind, "an answer cannot be stored on disk");
            Err(broken_answer(RelayError::SpoolUnreadable, AnswerSummary { usage, ..AnswerSummary::default() }))
        }
    }
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
