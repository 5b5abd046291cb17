//! Relays a `Reply` to the caller: proof of an image, rewritten answer, missing fields, failures; constant memory.
//!
//! [`UnprovenAnswer`] reads the upstream's answer until an image has really begun; until then any failure can still get
//! a status of its own. The proven answer becomes a [`RelayBody`], which the caller's connection drives: the base64
//! passes as the very bytes that came in. If an upstream body breaks after that, the caller's breaks too. An answer of
//! images is written anew around its images ([`tap`]), also if they come out of a response ([`drawn`]) or of several
//! answers ([`gathered`]); a response passes as it is ([`pass`]). This module does not know accounts or records: a
//! callback receives the outcome of an answer ([`body::EndCallback`]).

mod body;
mod caller_pace;
mod course;
mod drawn;
mod events;
mod fill;
mod frames;
mod gathered;
mod intake;
mod item;
mod lexer;
mod paced;
mod pass;
mod prove;
mod rewrite;
mod scan;
mod sse;
mod tap;
mod unlisted;

pub(crate) use body::{ClosingFuture, RelayBody, RelayOutcome};
pub(crate) use events::HEARTBEAT;
pub(crate) use fill::{AnswerUsage, RequestedAnswer, TokenCounts, sum};
pub(crate) use gathered::{SpooledImage, SpooledImageError, gather, keep};
pub(crate) use paced::PacedBody;
pub(crate) use pass::RequestedResponse;
#[cfg(test)]
use prove::testing::{prove, prove_drawn, prove_response};
pub(crate) use prove::{ProofError, ProvenAnswer, UnprovenAnswer};
pub(crate) use rewrite::{AnswerSummary, DeliveredImage};
pub(crate) use tap::{AnswerTimeouts, RelayError};

#[cfg(test)]
mod tests;
