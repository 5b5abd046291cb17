//! Captured values: their bytes are collected until they are complete, and then parsed.

use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::{JsonSyntaxError, ValueInterest};

/// A value that is captured, as far as it has been read.
#[derive(Debug)]
pub(super) struct Capture {
    pub(super) interest: ValueInterest,
    pub(super) bytes: Vec<u8>,
    /// True if the value exceeds a limit and is not kept.
    pub(super) is_dropped: bool,
}

// === impl Capture ===

impl Capture {
    pub(super) fn parse(self) -> Result<Option<Value>, JsonSyntaxError> {
        if self.is_dropped {
            return Ok(None);
        }
        match (self.interest, self.bytes.first()) {
            (ValueInterest::Scalar, Some(b'{')) => check_syntax(&self.bytes).map(|()| Some(Map::new().into())),
            (ValueInterest::Scalar, Some(b'[')) => check_syntax(&self.bytes).map(|()| Some(Value::Array(Vec::new()))),
            (ValueInterest::Optional, _) => Ok(parse_captured(&self.bytes).unwrap_or_default()),
            _ => parse_captured(&self.bytes),
        }
    }
}

/// Reads a captured value. `None` if it is JSON that [`Value`] cannot hold, such as a number out of range or too many
/// levels, or one of the words that some upstreams write in place of a number. Neither is an error, because the object
/// may also contain an image, which is paid for.
fn parse_captured(json: &[u8]) -> Result<Option<Value>, JsonSyntaxError> {
    const NO_NUMBERS: [&[u8]; 3] = [b"NaN", b"Infinity", b"-Infinity"];
    match serde_json::from_slice(json) {
        Ok(value) => Ok(Some(value)),
        Err(_) if NO_NUMBERS.contains(&json) => Ok(None),
        Err(_) => check_syntax(json).map(|()| None),
    }
}

fn check_syntax(json: &[u8]) -> Result<(), JsonSyntaxError> {
    serde_json::from_slice::<IgnoredAny>(json).map(drop).map_err(|_| JsonSyntaxError::Value)
}
