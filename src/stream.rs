//! The readers of JSON and of server-sent events that come in pieces cut anywhere, and are never held whole.

#[cfg(feature = "gateway")]
pub(crate) mod json;
pub(crate) mod sse;
