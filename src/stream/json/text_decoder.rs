//! Decodes texts and keys that come in pieces: checks that they are UTF-8 without control characters, and joins escaped
//! surrogates.

use std::str;

use super::JsonSyntaxError;

/// The decoder of one text after the other.
#[derive(Debug, Default)]
pub(crate) struct TextDecoder {
    /// The bytes of a character of which the rest has not come.
    cut_character: Vec<u8>,
    /// The first half of an escaped surrogate pair, if the second half has not come.
    high_surrogate: Option<u16>,
}

// === impl TextDecoder ===

impl TextDecoder {
    /// Reads the next bytes, at least one, which are not escaped. The decoded text goes to `visit`.
    pub(crate) fn push(&mut self, mut bytes: &[u8], mut visit: impl FnMut(&str)) -> Result<(), JsonSyntaxError> {
        if self.high_surrogate.is_some() {
            return Err(JsonSyntaxError::Surrogate);
        }
        while let (false, [first, rest @ ..]) = (self.cut_character.is_empty(), bytes) {
            self.cut_character.push(*first);
            bytes = rest;
            let character = whole_characters(&self.cut_character)?;
            if !character.is_empty() {
                visit(character);
                self.cut_character.clear();
            }
        }
        let text = whole_characters(bytes)?;
        self.cut_character.extend_from_slice(&bytes[text.len()..]);
        if has_control(text.as_bytes()) {
            return Err(JsonSyntaxError::Control);
        }
        if !text.is_empty() {
            visit(text);
        }
        Ok(())
    }

    /// Reads a UTF-16 code unit that is written as an escape.
    pub(crate) fn push_escaped(&mut self, unit: u16, mut visit: impl FnMut(&str)) -> Result<(), JsonSyntaxError> {
        if !self.cut_character.is_empty() {
            return Err(JsonSyntaxError::Utf8);
        }
        let character = match (self.high_surrogate.take(), unit) {
            (None, 0xd800..0xdc00) => {
                self.high_surrogate = Some(unit);
                return Ok(());
            }
            (None, _) => char::from_u32(unit.into()),
            (Some(high), _) => char::decode_utf16([high, unit]).next().and_then(Result::ok),
        };
        visit(character.ok_or(JsonSyntaxError::Surrogate)?.encode_utf8(&mut [0; 4]));
        Ok(())
    }

    /// Ends the text.
    pub(crate) fn finish(&self) -> Result<(), JsonSyntaxError> {
        match (self.cut_character.is_empty(), self.high_surrogate) {
            (false, _) => Err(JsonSyntaxError::Utf8),
            (true, Some(_)) => Err(JsonSyntaxError::Surrogate),
            (true, None) => Ok(()),
        }
    }
}

/// Returns the bytes as a text, without the last character if it is cut.
fn whole_characters(bytes: &[u8]) -> Result<&str, JsonSyntaxError> {
    match str::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(error) if error.error_len().is_none() => {
            Ok(str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default())
        }
        Err(_) => Err(JsonSyntaxError::Utf8),
    }
}

/// True if one of the bytes is below 0x20. Checks sixteen bytes at a time, because texts may be megabytes long.
fn has_control(bytes: &[u8]) -> bool {
    const ONES: u128 = u128::MAX / 0xff;
    let (chunks, remainder) = bytes.as_chunks::<16>();
    let chunk_has_control = |chunk: &[u8; 16]| {
        let word = u128::from_ne_bytes(*chunk);
        word.wrapping_sub(ONES * 0x20) & !word & (ONES * 0x80) != 0
    };
    chunks.iter().any(chunk_has_control) || remainder.iter().any(|byte| *byte < 0x20)
}
