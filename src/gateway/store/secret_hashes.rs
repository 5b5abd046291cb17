//! Hashes of secrets, as they are stored. `Debug` does not show them.

use std::fmt;

/// The slow hash of a password, as a text that includes the parameters of the hash.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PasswordHash(pub(crate) String);

/// The keyed hash of a long random text: a link, a session, an admin token.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SecretHash(pub(crate) [u8; 32]);

impl fmt::Debug for PasswordHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[redacted]")
    }
}

impl fmt::Debug for SecretHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[redacted]")
    }
}
