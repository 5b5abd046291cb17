//! What is true of images anywhere: pixel sizes and their four rules, file formats, and what the first bytes of a file
//! tell.
//!
//! This room is pure: the SDK, the server and the command line share it, and it reads nothing but what it is given.
//! It carries the size rules 1 to 4 of the specification; their numbers stand in `openapi/gateway.json`.

#[cfg(feature = "gateway")]
mod base64;
mod format;
#[cfg(any(feature = "client", feature = "gateway"))]
mod probe;
mod size;

#[cfg(feature = "gateway")]
pub(crate) use base64::{Base64, NoImage, starts_with};
pub use format::Format;
#[cfg(any(feature = "client", feature = "gateway"))]
pub(crate) use probe::{Facts, Flaw, Header, Source, inspect, probe};
pub use size::{Size, SizeError, SizeRequest};
