//! Relays a `Reply` to the caller in constant memory: decode → [`RelayEvent`](event::RelayEvent) → encode.
//!
//! A [`decoder`] finds the content of the upstream's answer, whatever its form: one JSON object or events, of the image
//! endpoints or of a response. It reports the content as the same few events: an item or an image begins or ends, bytes
//! of an image, a member, the end of a frame. If a response was requested for one image, [`image_tool`] translates its
//! events into those of an answer of images. An encoder writes the answer to the caller: [`image_encoder`] a JSON
//! answer or events, written anew around the images, whose base64 is passed on as slices of the upstream's buffers; and
//! [`response_passthrough`] the bytes of a response as they are. Neither knows the other: [`answer_relay`] connects
//! them, and reads the upstream under the time limits of [`upstream_body`].
//!
//! [`UpstreamRelay`] reads until the answer is proven: until an image, or other output of a response, has begun. A
//! failure before that point can still be answered with an error status. The proven answer becomes a [`RelayBody`], which
//! the caller's connection polls. If the upstream's body breaks off after that point, the caller's body ends with an
//! error event, or breaks off too if the caller did not ask for events. [`combined_answer`] is a second source of such a
//! body: images of several calls; and [`converted_answer`] a third: images that were exchanged. This module does not
//! know accounts or records: a callback receives the outcome of each
//! answer ([`body::EndCallback`]).

mod answer_charges;
mod answer_members;
mod answer_relay;
mod answer_usage;
mod body;
mod combined_answer;
mod converted_answer;
mod decoder;
mod event;
mod image_encoder;
mod image_item;
mod image_tool;
mod pace;
mod paced_body;
mod proof;
mod relay_error;
mod response_passthrough;
mod stored_image;
mod stored_members;
mod undocumented_members;
mod upstream_body;

pub(crate) use answer_members::RequestedAnswer;
pub(crate) use answer_relay::UpstreamRelay;
pub(crate) use answer_usage::{AnswerUsage, TokenCounts, sum_usage};
pub(crate) use body::{ClosingFuture, RelayBody, RelayOutcome};
pub(crate) use combined_answer::{SpooledImage, SpooledImageError, combine_images, spool_image};
pub(crate) use converted_answer::{SpooledAnswer, UnspooledAnswer, cut_off_answer, spool_answer};
pub(crate) use event::{AnswerSummary, AnswerWithoutImage, DeliveredImage};
pub(crate) use image_encoder::HEARTBEAT;
pub(crate) use paced_body::PacedBody;
pub(crate) use proof::{ProofError, ProvenAnswer};
pub(crate) use relay_error::RelayError;
pub(crate) use response_passthrough::RequestedResponse;
pub(crate) use stored_image::StoredImage;
pub(crate) use stored_members::{AnswerMembers, read_answer_members};
pub(crate) use upstream_body::AnswerTimeouts;

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod tests;
