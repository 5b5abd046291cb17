//! JSON as it was written: each value with its location, in its order, with numbers in their spelling.
//!
//! The module decides what is JSON and where its parts are. It must not know their meaning. Findings need lines and
//! columns, and a manifest is written again without loss, so it is read into this tree. `serde_json` would lose
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
