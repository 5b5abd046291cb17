//! 32 secret bytes: `Debug` does not show them, and they are overwritten when they are dropped.

use std::fmt;

use super::StoreError;

/// The length of a key in bytes.
pub(crate) const KEY_LENGTH: usize = 32;

/// A key of 256 bits.
pub(crate) struct SecretBytes([u8; KEY_LENGTH]);

impl SecretBytes {
    pub(crate) fn new(bytes: [u8; KEY_LENGTH]) -> Self {
        Self(bytes)
    }

    /// Makes bytes that cannot be guessed.
    pub(super) fn random() -> Result<Self, StoreError> {
        super::random_bytes().map(Self)
    }

    /// Returns the bytes for a computation. They must not appear in a log or in a row.
    pub(crate) fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for SecretBytes {
    fn drop(&mut self) {
        self.0.fill(0);
        // Without this use of the bytes, the compiler may remove the overwriting.
        std::hint::black_box(&self.0);
    }
}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[redacted]")
    }
}
