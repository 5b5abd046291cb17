//! The admin token of the settings, and the check of a presented token.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};

use crate::gateway::config::ConfigSecret;
use crate::gateway::keys::{self, BearerSecretKind};

/// The SHA-256 hash of the admin token. The token is long and random, so a fast hash suffices.
#[derive(Clone)]
pub(crate) struct ConfigAdminToken([u8; 32]);

/// The error for an admin token that has the form of an API key or of a user's admin token, and could be mistaken for
/// it.
#[derive(Debug, thiserror::Error)]
#[error("`admin_token` has the form of {form} ({secret_source}); generate a new one, as `openssl rand -hex 32` does")]
pub(crate) struct AdminTokenError {
    form: &'static str,
    secret_source: String,
}

// === impl ConfigAdminToken ===

impl ConfigAdminToken {
    /// Takes the token of the settings.
    ///
    /// # Errors
    ///
    /// Returns an error if it has the form of a key or of a user's admin token.
    pub(crate) fn new(secret: &ConfigSecret) -> Result<Self, AdminTokenError> {
        for (kind, form) in
            [(BearerSecretKind::Key, "a caller's key"), (BearerSecretKind::AdminToken, "a user's admin token")]
        {
            if keys::BearerSecret::parse(kind, secret.expose().as_bytes()).is_some() {
                return Err(AdminTokenError { form, secret_source: secret.source().to_owned() });
            }
        }
        Ok(Self(sha256(secret.expose().as_bytes())))
    }

    /// Returns true if the presented text is the token. The time of the check does not depend on which byte differs.
    pub(crate) fn matches(&self, presented: &[u8]) -> bool {
        verify_slices_are_equal(&self.0, &sha256(presented)).is_ok()
    }
}

fn sha256(text: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, text).as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    fn token(text: &str) -> Result<ConfigAdminToken, AdminTokenError> {
        ConfigAdminToken::new(&ConfigSecret::new(text.to_owned(), "environment variable `ADMIN`"))
    }

    #[test]
    fn only_the_exact_token_matches() {
        let token = token(TOKEN).unwrap();
        assert!(token.matches(TOKEN.as_bytes()));
        let other = TOKEN.replace('f', "e");
        for invalid in ["", &TOKEN[1..], &TOKEN.to_uppercase(), &format!("{TOKEN} "), &other] {
            assert!(!token.matches(invalid.as_bytes()), "{invalid}");
        }
    }

    #[test]
    fn an_api_key_is_refused_and_the_message_does_not_show_it() {
        let key = "sk-img-abcdefghijkl-abcdefghijklmnopqrstuvwxyz0123452OVSXj";
        let refused = token(key).map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains("`ADMIN`") && !refused.contains("abcdefghijkl"), "{refused}");
        assert!(token("sk-img-but-not-the-form-of-one-of-our-keys").is_ok());
    }
}
