//! Combines several answers of one image each. Each image is spooled to disk until all calls of the fan-out have ended.
//!
//! An account is therefore free again as soon as its image is complete, however slowly the caller reads, and the number
//! of images is known before the answer begins. The memory use does not depend on the size of the images.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use super::answer_members::{self, RequestedAnswer};
use super::answer_relay::{AnswerSource, RelayStep};
use super::answer_usage::{self, AnswerUsage, sum_usage};
use super::event::AnswerSummary;
use super::image_encoder::{ANSWER_PREFIX, write_end};
use super::proof::ProvenAnswer;
use super::relay_error::RelayError;
use crate::gateway::spool::{BodyPart, BodyPartReader, SpoolWriter, SpooledFile};
use crate::image::{ImageProperties, OtherContent};

/// One image of an answer, spooled to disk.
#[derive(Debug)]
pub(crate) struct SpooledImage {
    /// The element of `data`, exactly as the caller receives it.
    element: Arc<SpooledFile>,
    summary: AnswerSummary,
}

/// The reason why an image was not spooled, and the tokens that were charged nevertheless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SpooledImageError {
    /// Its answer broke off.
    Broken(RelayError, Option<AnswerUsage>),
    /// Writing to the gateway's disk failed.
    Disk(io::ErrorKind, Option<AnswerUsage>),
}

/// An answer of spooled images, all of them complete, on its way to the caller.
#[derive(Debug)]
pub(super) struct CombinedAnswer {
    /// The text before the first image, the images, and the text between them.
    pub(super) parts: BodyPartReader,
    /// The text after the last image.
    pub(super) suffix: Bytes,
    pub(super) first_image: Option<ImageProperties>,
    pub(super) summary: AnswerSummary,
}

/// Reads an answer of one image to its end and spools it to disk. The answer is read to its end even if the disk fails:
/// the token counts come last, and the tokens are charged.
pub(crate) async fn spool_image(proven: ProvenAnswer, writer: SpoolWriter) -> Result<SpooledImage, SpooledImageError> {
    let mut relay = proven.source;
    let mut writer = Ok(writer);
    loop {
        let step = match std::future::poll_fn(|cx| relay.poll_step(cx)).await {
            Ok(step) => step,
            Err(relay_error) => {
                let usage = relay.summary().usage;
                return Err(match writer {
                    Ok(_) => SpooledImageError::Broken(relay_error, usage),
                    Err(kind) => SpooledImageError::Disk(kind, usage),
                });
            }
        };
        let (piece, summary) = match step {
            RelayStep::Piece(piece) => (piece, None),
            RelayStep::End(tail, summary) => (tail, Some(*summary)),
        };
        writer = match writer {
            Ok(open) => open.append(piece).await.map_err(|error| error.kind()),
            Err(kind) => Err(kind),
        };
        let Some(summary) = summary else { continue };
        return match writer {
            Ok(open) => Ok(SpooledImage { element: open.finish(), summary }),
            Err(kind) => Err(SpooledImageError::Disk(kind, summary.usage)),
        };
    }
}

/// Combines these images, at least one, into one answer. `undelivered_usage` has the tokens of calls without an image.
pub(crate) fn combine_images(
    images: Vec<SpooledImage>,
    requested: RequestedAnswer,
    undelivered_usage: Option<AnswerUsage>,
) -> ProvenAnswer {
    let mut usage = images.iter().map(|image| image.summary.usage.clone()).fold(undelivered_usage, sum_usage);
    if let Some(tokens) = usage.as_mut().and_then(|usage| usage.image.as_mut()) {
        tokens.uncounted_calls = uncounted_calls(&images);
    }
    let first_name =
        |get_name: fn(&AnswerSummary) -> Option<String>| images.iter().find_map(|image| get_name(&image.summary));
    let summary = AnswerSummary {
        delivered: images.iter().flat_map(|image| image.summary.delivered.iter().cloned()).collect(),
        other_content: images.first().and_then(|image| image.summary.other_content),
        usage,
        image_model: first_name(|summary| summary.image_model.clone()),
        host_model: first_name(|summary| summary.host_model.clone()),
        ..AnswerSummary::default()
    };
    let separators = std::iter::once(ANSWER_PREFIX).chain(std::iter::repeat(&b","[..]));
    let parts = separators.zip(&images).flat_map(|(separator, image)| {
        [BodyPart::Bytes(Bytes::from_static(separator)), BodyPart::File(Arc::clone(&image.element))]
    });
    let parts = BodyPartReader::new(parts.collect());
    let first_image = images.first().and_then(SpooledImage::properties);
    let answer = CombinedAnswer { parts, suffix: suffix(&images, &requested), first_image, summary };
    ProvenAnswer { source: Box::new(answer) }
}

/// Returns the number of images that the sum of the tokens lacks: the upstream did not count the tokens of the image, or
/// not those of its text model although it counted them for other images.
fn uncounted_calls(images: &[SpooledImage]) -> u32 {
    let usages = || images.iter().map(|image| image.summary.usage.clone().unwrap_or_default());
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
        Poll::Ready(match ready!(self.parts.poll_next(cx)) {
            Ok(Some(piece)) => Ok(RelayStep::Piece(piece)),
            Ok(None) => Ok(RelayStep::End(self.suffix.clone(), Box::new(self.summary.clone()))),
            Err(error) => {
                tracing::error!(%error, "a stored image cannot be read back");
                Err(RelayError::SpoolUnreadable)
            }
        })
    }

    fn summary(&self) -> AnswerSummary {
        self.summary.clone()
    }

    fn first_image(&self) -> Option<ImageProperties> {
        self.first_image
    }

    fn other_content(&self) -> Option<OtherContent> {
        self.summary.other_content
    }
}

/// Returns the text after the last image: the members of the first image, and the sum of all token counts.
fn suffix(images: &[SpooledImage], requested: &RequestedAnswer) -> Bytes {
    let members_of = |image: &SpooledImage| image.summary.element_members.clone();
    let mut members = images.first().map(members_of).unwrap_or_default();
    let usage_of =
        |image: &SpooledImage| image.summary.element_members.get("usage").and_then(answer_usage::normalized_usage);
    members.remove("usage");
    let usage = images.iter().filter_map(usage_of).reduce(answer_members::add_usage);
    members.extend(usage.map(|usage| ("usage".to_owned(), usage)));
    let first_image = images.first().and_then(SpooledImage::properties);
    let mut end = Vec::new();
    let mut stated = answer_members::answer_members(requested, &members, first_image);
    answer_members::state_other_format(
        &mut stated,
        &members,
        images.first().and_then(|image| image.summary.other_content),
    );
    write_end(&mut end, &stated);
    Bytes::from(end)
}
