//! Combines several answers of one image each. Each image is spooled to disk until all calls of the fan-out have ended.
//!
//! An account is therefore free again as soon as its image is complete, however slowly the caller reads, and the number
//! of images is known before the answer begins. The memory use does not depend on the size of the images.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use serde_json::{Map, Value};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::answer_members::{self, AnswerUsage, RequestedAnswer, sum_usage};
use super::answer_relay::{AnswerSource, RelayStep};
use super::event::AnswerSummary;
use super::image_encoder::{ANSWER_PREFIX, write_end};
use super::proof::ProvenAnswer;
use super::relay_error::RelayError;
use crate::gateway::spool::{SpoolWriter, SpooledFile};
use crate::image::{ByteSource as _, ImageProperties};

/// The most bytes that are read from a file at once (our choice).
const READ_BYTES: usize = 64 * 1024;

/// One image of an answer, spooled to disk.
#[derive(Debug)]
pub(crate) struct SpooledImage {
    /// The element of `data`, exactly as the caller receives it.
    element: Arc<SpooledFile>,
    /// The members other than the image that the upstream sent.
    members: Map<String, Value>,
    summary: AnswerSummary,
}

/// The reason why an image was not spooled, and the tokens that were charged nevertheless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpooledImageError {
    /// Its answer broke off.
    Broken(RelayError, Option<AnswerUsage>),
    /// Writing to the gateway's disk failed.
    Disk(io::ErrorKind, Option<AnswerUsage>),
}

/// An answer of spooled images, all of them complete, on its way to the caller.
#[derive(Debug)]
struct CombinedAnswer {
    requested: RequestedAnswer,
    images: Vec<SpooledImage>,
    summary: AnswerSummary,
    /// The index of the image that is being read.
    image_index: usize,
    /// True if the text before that image was returned.
    is_separated: bool,
    /// The offset in the file of that image.
    offset: u64,
    /// The task on a blocking thread that reads the next piece.
    reading: Option<JoinHandle<io::Result<Bytes>>>,
}

/// Reads an answer of one image to its end and spools it to disk. The answer is read to its end even if the disk fails:
/// the token counts come last, and the tokens are charged.
pub(crate) async fn spool_image(proven: ProvenAnswer, writer: SpoolWriter) -> Result<SpooledImage, SpooledImageError> {
    let mut relay = proven.source;
    let mut disk_error = None;
    let mut writer = Some(writer);
    loop {
        let step = std::future::poll_fn(|cx| relay.poll_step(cx)).await;
        let step = step.map_err(|relay_error| match disk_error {
            None => SpooledImageError::Broken(relay_error, relay.summary().usage),
            Some(kind) => SpooledImageError::Disk(kind, relay.summary().usage),
        })?;
        let (piece, summary) = match step {
            RelayStep::Piece(piece) => (piece, None),
            RelayStep::End(tail, summary) => (tail, Some(*summary)),
        };
        if let Some(open) = writer.take() {
            match open.append(piece).await {
                Ok(open) => writer = Some(open),
                Err(error) => disk_error = Some(error.kind()),
            }
        }
        let Some(summary) = summary else { continue };
        let Some(writer) = writer.take() else {
            return Err(SpooledImageError::Disk(disk_error.unwrap_or(io::ErrorKind::Other), summary.usage));
        };
        return Ok(SpooledImage { element: writer.finish(), members: relay.take_members(), summary });
    }
}

/// Combines these images, at least one, into one answer. `undelivered_usage` has the tokens of calls without an image.
pub(crate) fn combine_images(
    images: Vec<SpooledImage>,
    requested: RequestedAnswer,
    undelivered_usage: Option<AnswerUsage>,
) -> ProvenAnswer {
    let mut usage = images.iter().map(|image| image.summary.usage).fold(undelivered_usage, sum_usage);
    if let Some(tokens) = usage.as_mut().and_then(|usage| usage.image.as_mut()) {
        tokens.uncounted_calls = uncounted_calls(&images);
    }
    let first_name =
        |get_name: fn(&AnswerSummary) -> Option<String>| images.iter().find_map(|image| get_name(&image.summary));
    let summary = AnswerSummary {
        delivered: images.iter().flat_map(|image| image.summary.delivered.iter().cloned()).collect(),
        usage,
        image_model: first_name(|summary| summary.image_model.clone()),
        host_model: first_name(|summary| summary.host_model.clone()),
        response_id: None,
    };
    let answer =
        CombinedAnswer { requested, images, summary, image_index: 0, is_separated: false, offset: 0, reading: None };
    ProvenAnswer { source: Box::new(answer) }
}

/// Returns the number of images whose tokens, or those of whose text model, the upstream did not count although it
/// counted those of others. The sum is too low then.
fn uncounted_calls(images: &[SpooledImage]) -> u32 {
    let usages = || images.iter().map(|image| image.summary.usage.unwrap_or_default());
    let has_host = usages().any(|usage| usage.host.is_some());
    let is_uncounted =
        |usage: &AnswerUsage| usage.image.is_none_or(|tokens| tokens.output == 0) || (has_host && usage.host.is_none());
    u32::try_from(usages().filter(is_uncounted).count()).unwrap_or(u32::MAX)
}

// === impl SpooledImage ===

impl SpooledImage {
    /// Returns the properties of the image, if its head stated them.
    pub(crate) fn properties(&self) -> Option<ImageProperties> {
        self.summary.delivered.first()?.properties
    }
}

// === impl CombinedAnswer ===

impl AnswerSource for CombinedAnswer {
    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Result<RelayStep, RelayError>> {
        let Some(image) = self.images.get(self.image_index) else {
            return Poll::Ready(Ok(RelayStep::End(self.answer_suffix(), Box::new(self.summary.clone()))));
        };
        if !std::mem::replace(&mut self.is_separated, true) {
            let separator = if self.image_index == 0 { ANSWER_PREFIX } else { b"," };
            return Poll::Ready(Ok(RelayStep::Piece(Bytes::from_static(separator))));
        }
        let (file, offset) = (&image.element, self.offset);
        let reading = self.reading.get_or_insert_with(|| {
            let file = Arc::clone(file);
            Handle::current().spawn_blocking(move || read_chunk(&file, offset))
        });
        let result = ready!(Pin::new(reading).poll(cx)).map_err(io::Error::other).flatten();
        self.reading = None;
        let piece = match result {
            Ok(piece) => piece,
            Err(error) => {
                tracing::error!(%error, "a stored image cannot be read back");
                return Poll::Ready(Err(RelayError::SpoolUnreadable));
            }
        };
        self.offset += piece.len() as u64;
        if self.offset == file.len() {
            (self.image_index, self.offset, self.is_separated) = (self.image_index + 1, 0, false);
        }
        Poll::Ready(Ok(RelayStep::Piece(piece)))
    }

    fn summary(&self) -> AnswerSummary {
        self.summary.clone()
    }

    fn first_image(&self) -> Option<ImageProperties> {
        self.images.first().and_then(SpooledImage::properties)
    }
}

impl CombinedAnswer {
    fn answer_suffix(&self) -> Bytes {
        let mut members = self.images.first().map(|image| image.members.clone()).unwrap_or_default();
        let usages = self
            .images
            .iter()
            .filter_map(|image| image.members.get("usage").and_then(answer_members::normalized_usage));
        members.remove("usage");
        members.extend(usages.reduce(answer_members::add_usage).map(|usage| ("usage".to_owned(), usage)));
        let mut end = Vec::new();
        write_end(&mut end, &answer_members::answer_members(&self.requested, &members, self.first_image()));
        Bytes::from(end)
    }
}

fn read_chunk(file: &SpooledFile, offset: u64) -> io::Result<Bytes> {
    let remaining = file.len() - offset;
    let mut buffer = vec![0; usize::try_from(remaining).map_or(READ_BYTES, |remaining| remaining.min(READ_BYTES))];
    let count = file.read_at(offset, &mut buffer)?;
    if count == 0 && remaining > 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    buffer.truncate(count);
    Ok(buffer.into())
}
