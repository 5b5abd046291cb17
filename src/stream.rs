//! The readers of bodies that come in pieces cut anywhere, and are never held whole: JSON, server-sent events, and
//! multipart forms.

pub(crate) mod json;
#[cfg(feature = "gateway")]
pub(crate) mod multipart;
pub(crate) mod sse;
