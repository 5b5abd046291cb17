//! The user and the account that an id, a ciphertext or a conversation belongs to, as rows. Other modules decide their
//! effect.
//!
//! A row is written in the transaction that closes the record of a request, and removed when it was not used for
//! [`BINDING_DAYS`]. Only a digest of the value is stored.

use sha2::{Digest as _, Sha256};

use super::{JobRecord, KeyId, UserId, UtcDay};

/// The number of days for which a binding stays after its last use (our choice). The upstream keeps stored responses for
/// as long.
pub(crate) const BINDING_DAYS: u32 = 30;

/// The number of bytes of a digest (our choice): enough that no two values have the same.
const DIGEST_BYTES: usize = 16;

/// The digest of a value that belongs to an account.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BindingDigest(String);

/// A value of one user, and the account that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AccountBinding {
    /// The digest of the value.
    pub(crate) digest: BindingDigest,
    /// The user, or the key if it has no user.
    pub(crate) owner: String,
    /// The name of the account.
    pub(crate) account: String,
    /// The day of the last use. A use on the same day is not written.
    pub(crate) used_on: UtcDay,
}

// === impl BindingDigest ===

impl BindingDigest {
    /// The digest of the id of something that an upstream stores, such as a response or an item.
    pub(crate) fn of_id(id: &str) -> Self {
        Self::of_parts(&[b"id", id.as_bytes()])
    }

    /// The digest of encrypted content, of which this is the SHA-256 hash in Base64 for URLs, without padding.
    pub(crate) fn of_ciphertext(hash: &str) -> Self {
        Self::of_parts(&[b"ciphertext", hash.as_bytes()])
    }

    /// The digest of a conversation of this owner.
    pub(crate) fn of_session(owner: &str, session: &[u8]) -> Self {
        Self::of_parts(&[b"session", owner.as_bytes(), session])
    }

    /// Each part but the last must not contain a zero byte, so that no two lists of parts are the same bytes.
    fn of_parts(parts: &[&[u8]]) -> Self {
        let hash = Sha256::digest(parts.join(&0));
        Self(hex::encode(&hash[..DIGEST_BYTES]))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for BindingDigest {
    fn from(text: String) -> Self {
        Self(text)
    }
}

/// Returns the owner of what is made for this user: the user, or the key if it has no user, because such keys share
/// nothing.
pub(crate) fn binding_owner<'a>(user: &'a UserId, key: &'a KeyId) -> &'a str {
    if user.is_nobody() { key.as_str() } else { user.as_str() }
}

// === impl JobRecord ===

impl JobRecord {
    /// Returns the rows that the record of an ended job adds, in the order of their digests, so that nodes that write the
    /// same rows do not wait for each other in a circle.
    pub(super) fn binding_rows(&self, used_on: UtcDay) -> Vec<AccountBinding> {
        let Some(account) = self.document.account.as_ref().filter(|_| !self.bindings.is_empty()) else {
            return Vec::new();
        };
        let mut digests: Vec<_> = self.bindings.iter().collect();
        digests.sort_unstable();
        digests.dedup();
        let (user, key) = (UserId::from(self.document.user.as_str()), KeyId::from(self.document.key.as_str()));
        let owner = binding_owner(&user, &key);
        let row = |digest: &BindingDigest| AccountBinding {
            digest: digest.clone(),
            owner: owner.to_owned(),
            account: account.clone(),
            used_on,
        };
        digests.into_iter().map(row).collect()
    }
}
