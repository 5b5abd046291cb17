//! JSON as it was written: each value with its location, in its order, with numbers in their spelling.
//!
//! Decides what is JSON and where its parts are. This module must not know their meaning. People see a manifest with
//! line and column, and it is written again without loss, so it is read into this tree. `serde_json` would lose
//! locations and spellings, and keep only the last member of a repeated key.

mod node;
mod pointer;
mod reader;
mod source;
#[cfg(test)]
mod tests;
mod writer;

pub use node::{JsonMember, JsonNode, JsonValue};
pub use reader::{JsonLimits, SyntaxError, read};
pub use source::{SourceFile, TextPosition};
pub use writer::write;

pub(crate) use pointer::{child, element};
