//! JSON as it was written: each value with its location, members in their order, and numbers in their spelling.
//!
//! The module decides what is JSON and where its parts are. It must not know their meaning. A manifest is read into
//! this tree, because findings need lines and columns, and because nothing of it may be lost when it is written again.
//! `serde_json` would lose locations and spellings, and of several members with the same key keep only the last.

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
