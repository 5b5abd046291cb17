//! The digest by which a command recognizes a request that it has sent before.

use std::hash::Hasher;

use sha2::{Digest as _, Sha256};

/// The number of hexadecimal digits of a digest in an idempotency key (our choice): 160 bits.
const DIGITS: usize = 40;

/// A digest of the parts of a request, as a hasher, because the client hashes requests.
#[derive(Default)]
pub(super) struct RequestDigest(Sha256);

// === impl RequestDigest ===

impl RequestDigest {
    /// Returns the digest as text.
    pub(super) fn into_text(self) -> String {
        let digest = self.0.finalize();
        let mut text: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        text.truncate(DIGITS);
        text
    }
}

impl Hasher for RequestDigest {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the first bytes of the digest.
    fn finish(&self) -> u64 {
        let digest = self.0.clone().finalize();
        digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}
