//! Reads JSON in pieces cut anywhere. [`JsonTokenizer`] knows the grammar; on it, [`JsonReader`] names each value of an
//! object by its path, and a [`JsonVisitor`] decides on each value: skip it, capture it, or receive its text as slices
//! of the pieces.
//!
//! Captured values are small: they are kept whole, up to bounds, and parsed by `serde_json`. A long text costs one
//! search for its end. The reader checks the grammar only as far as it has to follow it. Not checked are:
//! - numbers, words and texts that are skipped,
//! - the characters of texts that the visitor receives, except escapes,
//! - everything deeper than [`PATH_DEPTH`] that is not captured, except the number of brackets.

#[cfg(feature = "gateway")]
mod capture;
#[cfg(feature = "gateway")]
mod reader;
mod scalar;
mod syntax_error;
#[cfg(feature = "gateway")]
#[cfg(test)]
mod tests;
mod text_decoder;
mod tokenizer;
#[cfg(feature = "gateway")]
mod value_counter;
#[cfg(feature = "gateway")]
mod visitor;

#[cfg(feature = "gateway")]
pub(crate) use reader::{JsonReader, PATH_DEPTH};
pub(crate) use syntax_error::JsonSyntaxError;
#[cfg(feature = "gateway")]
pub(crate) use text_decoder::TextDecoder;
#[cfg(feature = "gateway")]
pub(crate) use tokenizer::is_blank;
pub(crate) use tokenizer::{JsonToken, JsonTokenizer};
#[cfg(feature = "gateway")]
pub(crate) use value_counter::JsonValueCounter;
#[cfg(feature = "gateway")]
pub(crate) use visitor::{CaptureLimits, JsonPosition, JsonVisitor, ValueInterest};
