//! The master key of an installation, which wraps all of its data keys.
//!
//! It is stored beside the database or in the configuration, and never in the database: a stolen copy of the database
//! alone reveals no secret.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

use super::secret_bytes::{KEY_LENGTH, SecretBytes};
use super::{StoreError, Vault};

/// The purpose of the derived key that wraps data keys. No other derived key has the same purpose.
const WRAPPING_PURPOSE: &[u8] = b"imagate data key wrapping v1";

/// The master key: 32 bytes, which leave the process only for the file that holds them.
#[derive(Debug)]
pub(crate) struct MasterKey(SecretBytes);

impl MasterKey {
    /// Reads a key as text: 64 hex digits, or 32 bytes in base64.
    ///
    /// # Errors
    /// Returns [`StoreError::MasterKey`] if the text is neither. The error contains nothing of the text.
    pub(crate) fn from_text(text: &str) -> Result<Self, StoreError> {
        let text = text.trim();
        let bytes = hex::FromHex::from_hex(text).ok().or_else(|| from_base64(text));
        bytes.map(|bytes| Self(SecretBytes::new(bytes))).ok_or(StoreError::MasterKey {
            detail: "it must be 64 hexadecimal digits or 32 bytes in base64, as `openssl rand -hex 32` makes it",
        })
    }

    pub(super) fn from_bytes(bytes: [u8; KEY_LENGTH]) -> Self {
        Self(SecretBytes::new(bytes))
    }

    pub(super) fn random() -> Result<Self, StoreError> {
        SecretBytes::random().map(Self)
    }

    /// Returns the bytes, for writing the key file only.
    pub(super) fn expose(&self) -> &[u8] {
        self.0.expose()
    }

    /// Returns the vault that wraps data keys.
    pub(super) fn wrapping_vault(&self) -> Result<Vault, StoreError> {
        Vault::new(&self.derive(WRAPPING_PURPOSE))
    }

    /// Derives a key for one purpose. The master key cannot be computed from it.
    pub(super) fn derive(&self, purpose: &[u8]) -> SecretBytes {
        let master = hmac::Key::new(hmac::HMAC_SHA256, self.0.expose());
        let mut bytes = [0; KEY_LENGTH];
        bytes.copy_from_slice(hmac::sign(&master, purpose).as_ref());
        SecretBytes::new(bytes)
    }

    #[cfg(test)]
    pub(crate) fn for_test(byte: u8) -> Self {
        Self(SecretBytes::new([byte; KEY_LENGTH]))
    }
}

fn from_base64(text: &str) -> Option<[u8; KEY_LENGTH]> {
    let bytes = STANDARD.decode(text).or_else(|_| STANDARD_NO_PAD.decode(text)).ok()?;
    bytes.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, byte: Option<u8>) {
        match (MasterKey::from_text(text), byte) {
            (Ok(key), Some(byte)) => assert!(key.expose() == [byte; KEY_LENGTH]),
            (Err(error), None) => assert!(text.is_empty() || !format!("{error} {error:?}").contains(text)),
            (key, _) => panic!("{text} {key:?}"),
        }
    }

    #[test]
    fn a_key_is_hex_or_base64_of_32_bytes() {
        check(&"ab".repeat(32), Some(0xab));
        check(&"AB".repeat(32), Some(0xab));
        check(&format!(" {}\n", "00".repeat(32)), Some(0));
        let base64 = STANDARD.encode([0xab; KEY_LENGTH]);
        check(&base64, Some(0xab));
        check(base64.trim_end_matches('='), Some(0xab));
    }

    #[test]
    fn any_other_text_is_rejected() {
        for text in [String::new(), "ab".repeat(31), "ab".repeat(33), "xy".repeat(32), "é".repeat(32), "+f".repeat(32)]
        {
            check(&text, None);
        }
        check(&STANDARD.encode([0xab; KEY_LENGTH - 1]), None);
        check(&STANDARD.encode([0xab; KEY_LENGTH + 1]), None);
        // A password is not a key, even if it is long.
        check("correct horse battery staple correct horse", None);
    }

    #[test]
    fn each_purpose_has_its_own_key() {
        let master = MasterKey::for_test(1);
        assert!(master.derive(b"one").expose() != master.derive(b"two").expose());
        assert!(master.derive(b"one").expose() != MasterKey::for_test(2).derive(b"one").expose());
        assert_eq!(format!("{master:?}"), "MasterKey([redacted])");
    }
}
