//! Relays a `Reply` to the caller in constant memory.
//!
//! [`UnprovenAnswer`] reads the upstream's answer until it is proven: until an image, or other output of a response,
//! has begun. A failure before that point can still be answered with an error status. The proven answer becomes a
//! [`RelayBody`], which the caller's connection polls. If the upstream's body breaks off after that point, the caller's
//! body ends with an error event, or breaks off too if the caller did not ask for events.
//!
//! An answer of images is written anew around the images, whose base64 is passed on unchanged ([`image_relay`]). The
//! images may also come from a response ([`image_tool_response`]) or from several answers ([`combined_answer`]). A
//! response is passed on as it is ([`response_passthrough`]). This module does not know accounts or records: a callback
//! receives the outcome of each answer ([`body::EndCallback`]).

mod answer_members;
mod answer_relay;
mod body;
mod caller_pace;
mod combined_answer;
mod event_data;
mod image_item;
mod image_relay;
mod image_tool_response;
mod json_writer;
mod lexer;
mod paced_body;
mod proof;
mod response_passthrough;
mod sse_frames;
mod sse_reader;
mod sse_writer;
mod undocumented_members;
mod upstream_body;

pub(crate) use answer_members::{AnswerUsage, RequestedAnswer, TokenCounts, sum_usage};
pub(crate) use body::{ClosingFuture, RelayBody, RelayOutcome};
pub(crate) use combined_answer::{SpooledImage, SpooledImageError, combine_images, spool_image};
pub(crate) use image_relay::{AnswerTimeouts, RelayError};
pub(crate) use json_writer::{AnswerSummary, DeliveredImage};
pub(crate) use paced_body::PacedBody;
#[cfg(test)]
use proof::testing::{prove, prove_image_tool, prove_response};
pub(crate) use proof::{ProofError, ProvenAnswer, UnprovenAnswer};
pub(crate) use response_passthrough::RequestedResponse;
pub(crate) use sse_writer::HEARTBEAT;

#[cfg(test)]
mod tests;
