//! The admin token of the settings: one secret, and whether somebody has it.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};

use crate::gateway::config::Secret;
use crate::gateway::keys::{self, SecretKind};

/// The admin token, of which only a hash is kept. The token is long and random, so that no slow hash is needed.
pub(super) struct Token([u8; 32]);

/// The admin token is what others have: then one of them might be taken for an operator, or the other way round.
#[derive(Debug, thiserror::Error)]
#[error("`admin_token` has the form of {what} ({found}); make another one, as `openssl rand -hex 32` does")]
pub(crate) struct KeyAsToken {
    what: &'static str,
    found: String,
}

// === impl Token ===

impl Token {
    pub(super) fn new(secret: &Secret) -> Result<Self, KeyAsToken> {
        for (kind, what) in [(SecretKind::Key, "a caller's key"), (SecretKind::AdminToken, "a user's admin token")] {
            if keys::Secret::parse(kind, secret.expose().as_bytes()).is_some() {
                return Err(KeyAsToken { what, found: secret.found().to_owned() });
            }
        }
        Ok(Self(hash(secret.expose().as_bytes())))
    }

    /// In the same time whichever byte differs, and however long the text is that was presented in its place.
    pub(super) fn is(&self, presented: &[u8]) -> bool {
        verify_slices_are_equal(&self.0, &hash(presented)).is_ok()
    }
}

fn hash(text: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, text).as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    fn token(text: &str) -> Result<Token, KeyAsToken> {
        Token::new(&Secret::new(text.to_owned(), "environment variable `ADMIN`"))
    }

    #[test]
    fn only_the_token_itself_lets_in() {
        let token = token(TOKEN).unwrap();
        assert!(token.is(TOKEN.as_bytes()));
        let other = TOKEN.replace('f', "e");
        for wrong in ["", &TOKEN[1..], &TOKEN.to_uppercase(), &format!("{TOKEN} "), &other] {
            assert!(!token.is(wrong.as_bytes()), "{wrong}");
        }
    }

    #[test]
    fn a_key_of_a_caller_is_no_admin_token_and_is_not_repeated() {
        let key = "sk-img-abcdefghijkl-abcdefghijklmnopqrstuvwxyz0123452OVSXj";
        let refused = token(key).map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains("`ADMIN`") && !refused.contains("abcdefghijkl"), "{refused}");
        assert!(token("sk-img-but-not-the-form-of-one-of-our-keys").is_ok());
    }
}
