//! The reader of JSON that comes in pieces cut anywhere, and is never held whole.

pub(crate) mod json;
