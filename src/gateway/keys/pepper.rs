//! Hashes secrets for storage: HMAC-SHA-256 under a key that is not in the database.
//!
//! Secrets are long and random, so a slow hash would add nothing. Without the pepper, the hashes of a stolen database
//! cannot be used to test guessed secrets.

use std::fmt;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;

use super::BearerSecret;
use crate::gateway::store::{KeyHash, PepperKey, SecretHash};

/// The key of the HMAC.
pub(crate) struct Pepper(hmac::Key);

impl Pepper {
    /// Creates the pepper of an installation.
    pub(crate) fn new(key: &PepperKey) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key.expose()))
    }

    /// Returns the hash of a secret, as it is stored.
    pub(super) fn hash(&self, secret: &BearerSecret) -> KeyHash {
        let tag = hmac::sign(&self.0, secret.expose().as_bytes());
        let mut hash = [0; 32];
        hash.copy_from_slice(tag.as_ref());
        KeyHash(hash)
    }

    /// Returns the hash of a long random text that is not an API key. The purpose is part of the hash, so that a text
    /// for one purpose is not accepted for another.
    pub(crate) fn hash_for_purpose(&self, purpose: &str, text: &[u8]) -> SecretHash {
        let mut context = hmac::Context::with_key(&self.0);
        for part in [b"imagate ".as_slice(), purpose.as_bytes(), b"\0", text] {
            context.update(part);
        }
        let mut hash = [0; 32];
        hash.copy_from_slice(context.sign().as_ref());
        SecretHash(hash)
    }
}

/// Returns true if the hashes are equal. Takes the same time in each case.
pub(super) fn are_equal(first: &KeyHash, second: &KeyHash) -> bool {
    verify_slices_are_equal(&first.0, &second.0).is_ok()
}

impl fmt::Debug for Pepper {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Pepper([redacted])")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::keys::BearerSecretKind;

    #[test]
    fn the_hash_of_a_secret_differs_between_installations() {
        let secret = BearerSecret::generate(BearerSecretKind::Key).unwrap();
        let first = Pepper::new(&PepperKey::for_test(1));
        let second = Pepper::new(&PepperKey::for_test(2));
        assert!(are_equal(&first.hash(&secret), &first.hash(&secret)));
        assert!(!are_equal(&second.hash(&secret), &first.hash(&secret)));
    }

    /// The form of a hash is part of the stored data: a change would invalidate every key.
    #[test]
    fn the_hash_of_a_secret_is_its_hmac_under_the_pepper() {
        let text = b"sk-img-abcdefghijkl-abcdefghijklmnopqrstuvwxyz0123452OVSXj";
        let secret = BearerSecret::parse(BearerSecretKind::Key, text).unwrap();
        let hash = Pepper::new(&PepperKey::for_test(7)).hash(&secret);
        assert_eq!(hex::encode(hash.0), "2e4fa7b6f6b82a1d7d7a6a3ec19a0c7b061454fb12c1b59692996adf5825ec57");
    }
}
