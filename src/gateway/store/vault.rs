//! Seals data that must not be stored in plain text in or beside the database: upstream credentials, tokens, keys of
//! files.
//!
//! It uses AES-256-GCM under a data key that only [`super::MasterKey`] unwraps. Each value is sealed for one context, a
//! text that is authenticated with it, so that a value moved to another row or column cannot be opened there.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hmac;

use super::StoreError;
use super::secret_bytes::SecretBytes;

/// The first byte of a sealed value. A new layout or algorithm must use another number.
const VERSION: u8 = 1;

/// Seals and opens values. Clones share one key.
#[derive(Clone)]
pub(crate) struct Vault(Arc<VaultKeys>);

struct VaultKeys {
    sealing_key: LessSafeKey,
    hashing_key: hmac::Key,
}

impl Vault {
    pub(super) fn new(key: &SecretBytes) -> Result<Self, StoreError> {
        let sealing_key = UnboundKey::new(&AES_256_GCM, key.expose()).map(LessSafeKey::new).map_err(cipher_error)?;
        // Hashes use a separate key, which is derived from the data key.
        let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key.expose()), b"imagate keyed hash v1");
        let hashing_key = hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref());
        Ok(Self(Arc::new(VaultKeys { sealing_key, hashing_key })))
    }

    #[cfg(test)]
    pub(crate) fn for_test(byte: u8) -> Self {
        Self::new(&SecretBytes::new([byte; 32])).unwrap()
    }

    /// Hashes a value that must be recognised but not read. Without the data key, a guess of the value cannot be
    /// checked against the hash.
    pub(crate) fn keyed_hash(&self, context: &str, plain: &[u8]) -> [u8; 32] {
        let mut hasher = hmac::Context::with_key(&self.0.hashing_key);
        hasher.update(&(context.len() as u64).to_be_bytes());
        hasher.update(context.as_bytes());
        hasher.update(plain);
        let mut hash = [0; 32];
        hash.copy_from_slice(hasher.sign().as_ref());
        hash
    }

    /// Seals a value for one context. Random nonces are safe for about 2^32 values under one key, far more than an
    /// installation seals.
    ///
    /// # Errors
    /// Returns [`StoreError::Unavailable`] if the system has no random bytes.
    pub(crate) fn seal(&self, context: &str, plain: &[u8]) -> Result<Vec<u8>, StoreError> {
        let nonce: [u8; NONCE_LEN] = super::random_bytes()?;
        let mut sealed = Vec::with_capacity(1 + NONCE_LEN + plain.len() + AES_256_GCM.tag_len());
        sealed.push(VERSION);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(plain);
        let (head, body) = sealed.split_at_mut(1 + NONCE_LEN);
        debug_assert_eq!(head[0], VERSION);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self
            .0
            .sealing_key
            .seal_in_place_separate_tag(nonce, associated_data(context), body)
            .map_err(cipher_error)?;
        sealed.extend_from_slice(tag.as_ref());
        Ok(sealed)
    }

    /// Opens a value that was sealed for the same context.
    ///
    /// # Errors
    /// Returns [`StoreError::Damaged`] if the value was not sealed for this context and under this data key, or was
    /// changed.
    pub(crate) fn open(&self, context: &str, sealed: &[u8]) -> Result<Vec<u8>, StoreError> {
        self.try_open(context, sealed).ok_or_else(|| {
            StoreError::damaged(
                "an encrypted value cannot be decrypted: restore imagate.db from a backup, or enter the value again",
            )
        })
    }

    /// Opens a value like [`Vault::open`]; returns `None` if that fails.
    pub(super) fn try_open(&self, context: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let (version, remaining) = sealed.split_first()?;
        let (nonce, body) = remaining.split_first_chunk::<NONCE_LEN>()?;
        if *version != VERSION {
            return None;
        }
        let mut body = body.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = self.0.sealing_key.open_in_place(nonce, associated_data(context), &mut body).ok()?.len();
        body.truncate(length);
        Some(body)
    }
}

impl fmt::Debug for Vault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Vault([redacted])")
    }
}

/// Returns the associated data of a value: the context after a fixed text, which separates these values from any other
/// use of the key.
fn associated_data(context: &str) -> Aad<Vec<u8>> {
    Aad::from([b"imagate vault v1\0", context.as_bytes()].concat())
}

fn cipher_error(_: Unspecified) -> StoreError {
    StoreError::Refused("the cipher refuses its key or the length of a value".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vault(byte: u8) -> Vault {
        Vault::for_test(byte)
    }

    #[test]
    fn a_keyed_hash_depends_on_key_context_and_value() {
        let (first, second) = (vault(1), vault(2));
        assert_eq!(first.keyed_hash("mine", b"a prompt"), vault(1).keyed_hash("mine", b"a prompt"));
        for different in [
            first.keyed_hash("yours", b"a prompt"),
            first.keyed_hash("mine", b"another"),
            second.keyed_hash("mine", b"a prompt"),
        ] {
            assert_ne!(first.keyed_hash("mine", b"a prompt"), different);
        }
    }

    #[test]
    fn a_sealed_value_opens_only_with_its_context_and_key() {
        let (vault, vault_with_other_key) = (vault(1), vault(2));
        for plain in [b"".as_slice(), b"secret", &[7; 100_000]] {
            let sealed = vault.seal("token mine", plain).unwrap();
            assert_eq!(vault.clone().open("token mine", &sealed).unwrap(), plain);
            assert!(matches!(vault.open("token other", &sealed), Err(StoreError::Damaged { .. })));
            assert!(vault.open("", &sealed).is_err());
            assert!(vault_with_other_key.open("token mine", &sealed).is_err());
        }
    }

    #[test]
    fn a_changed_or_truncated_value_does_not_open() {
        let vault = vault(1);
        let sealed = vault.seal("context", b"secret").unwrap();
        for index in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[index] ^= 1;
            assert!(vault.open("context", &changed).is_err(), "{index}");
            assert!(vault.open("context", &sealed[..index]).is_err(), "truncated at {index}");
        }
        assert!(vault.open("context", &[sealed.as_slice(), &[0]].concat()).is_err());
    }

    #[test]
    fn sealing_a_value_again_gives_another_result() {
        let vault = vault(1);
        let sealed = |_| vault.seal("context", b"secret").unwrap();
        let mut values: Vec<_> = (0..1000).map(sealed).collect();
        values.sort();
        values.dedup();
        assert_eq!(values.len(), 1000);
        assert!(values.iter().all(|sealed| sealed.len() == 1 + NONCE_LEN + 6 + 16));
    }

    /// Another implementation of the cipher computed [`SEALED`]. Stored values must stay readable.
    #[test]
    fn the_first_layout_stays_readable() {
        let sealed = SEALED.as_bytes().chunks(2);
        let sealed: Vec<_> =
            sealed.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect();
        assert_eq!(vault(1).open("place", &sealed).unwrap(), b"secret");
    }

    const SEALED: &str = "01000102030405060708090a0bc8c3f654458a6d3fcb5f66757a3e034066525c66eb9c";

    #[test]
    fn debug_shows_nothing() {
        assert_eq!(format!("{:?}", vault(1)), "Vault([redacted])");
    }
}
