//! Readers of streams that come in pieces cut anywhere, and are never held whole.

pub(crate) mod json;
