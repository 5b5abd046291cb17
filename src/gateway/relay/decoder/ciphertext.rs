//! The hash of an encrypted content, which may be too large to hold, as the text is read.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

use crate::stream::json::JsonPosition;

/// The name of the member of an item that has its encrypted content.
pub(in crate::gateway::relay) const CIPHERTEXT: &str = "encrypted_content";
/// The paths of that member in an event, and in a response.
const PATHS: [&str; 2] = ["item.encrypted_content", "response.output[].encrypted_content"];

/// The hash of the text so far.
#[derive(Debug, Default)]
pub(super) struct CiphertextHash(Sha256);

// === impl CiphertextHash ===

impl CiphertextHash {
    /// True if the value at this position of a response is an encrypted content.
    pub(super) fn is_at(at: JsonPosition<'_>) -> bool {
        at.key == CIPHERTEXT && PATHS.contains(&at.path)
    }

    pub(super) fn add(&mut self, text: &[u8]) {
        self.0.update(text);
    }

    /// Adds a UTF-16 code unit that was written as an escape.
    pub(super) fn add_unit(&mut self, unit: u16) {
        let character = char::from_u32(unit.into()).unwrap_or(char::REPLACEMENT_CHARACTER);
        self.add(character.encode_utf8(&mut [0; 4]).as_bytes());
    }

    /// Ends the text, and returns its SHA-256 hash in Base64 for URLs, without padding.
    pub(super) fn finish(&mut self) -> String {
        URL_SAFE_NO_PAD.encode(self.0.finalize_reset())
    }
}
