//! `Reply` → body for the caller: proof of image, tap, missing fields, failure; constant memory.
//!
//! [`Proof`] reads the upstream's answer until an image has really begun; until then everything can still become an
//! error with its own status. What it returns becomes a [`RelayBody`], which the caller's connection drives: the
//! base64 passes as the very bytes that came in. An upstream body that breaks after that breaks the caller's too.
//! An answer of images is written anew around its images ([`tap`]), also where they come out of a response ([`drawn`]) or
//! out of several answers ([`gathered`]); a response passes as it is ([`pass`]).
//! This room does not know accounts or records: how an answer ended is told to whoever asked ([`body::OnEnd`]).

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

pub(crate) use body::{Closing, Ending, RelayBody};
pub(crate) use events::HEARTBEAT;
pub(crate) use fill::{Asked, TokenCounts, Usage, sum};
pub(crate) use gathered::{Kept, Unkept, gather, keep};
pub(crate) use paced::PacedBody;
pub(crate) use pass::Told;
#[cfg(test)]
use prove::testing::{prove, prove_drawn, prove_response};
pub(crate) use prove::{NoProof, Proof, Proven};
pub(crate) use rewrite::{DeliveredImage, Summary};
pub(crate) use tap::{Broken, Limits};

#[cfg(test)]
mod tests;
