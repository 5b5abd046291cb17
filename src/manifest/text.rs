//! JSON as it was written: every value with its place, in its order, numbers in their spelling.
//!
//! Decides what is JSON and where its parts lie. Refuses to know what they mean.
//! A manifest is shown to people with line and column, and is written again without losing anything, so it is read
//! into this tree; `serde_json` would forget places and spellings, and of a key that stands twice all but the last.

mod node;
mod pointer;
mod reader;
mod source;
#[cfg(test)]
mod tests;
mod writer;

pub use node::{Member, Node, Value};
pub use reader::{Limits, SyntaxError, read};
pub use source::{Position, Source};
pub use writer::write;

pub(crate) use pointer::{child, element};
