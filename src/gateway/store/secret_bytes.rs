//! 32 bytes that nobody may see: they show nothing in `Debug` and are wiped when they go.

use std::fmt;

use super::StoreError;

pub(crate) const LENGTH: usize = 32;

/// A key of 256 bits.
pub(crate) struct SecretBytes([u8; LENGTH]);

impl SecretBytes {
    pub(crate) fn new(bytes: [u8; LENGTH]) -> Self {
        Self(bytes)
    }

    /// Bytes that nobody can guess.
    pub(super) fn random() -> Result<Self, StoreError> {
        super::random_bytes().map(Self)
    }

    /// The bytes, for the one place that computes with them. They belong in no log and in no row.
    pub(crate) fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for SecretBytes {
    fn drop(&mut self) {
        self.0.fill(0);
        // Without somebody looking at it the compiler may leave the write out.
        std::hint::black_box(&self.0);
    }
}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[redacted]")
    }
}
