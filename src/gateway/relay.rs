//! Relays a `Reply` to the caller: proof of an image, rewritten answer, missing fields, failures; constant memory.
//!
//! [`UnprovenAnswer`] reads the upstream's answer until an image has really begun; until then any failure can still get
//! a status of its own. The proven answer becomes a [`RelayBody`], which the caller's connection drives: the base64
//! passes as the very bytes that came in. If an upstream body breaks after that, the caller's breaks too. An answer of
//! images is written anew around its images ([`image_relay`]), also if they come out of a response ([`image_tool_response`]) or of several
//! answers ([`combined_answer`]); a response passes as it is ([`response_passthrough`]). This module does not know accounts or records: a
//! callback receives the outcome of an answer ([`body::EndCallback`]).

mod answer_members;
mod answer_relay;
mod body;
mod caller_pace;
mod combined_answer;
mod image_item;
mod image_relay;
mod image_tool_response;
mod json_scanner;
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
