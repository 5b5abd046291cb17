//! The admin token: one secret that the settings name, and the proof that somebody had it.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};

use crate::gateway::config::Secret;
use crate::gateway::keys;

/// The proof that the admin token was presented. Only [`Token::admit`] makes one.
#[derive(Debug)]
pub(crate) struct Operator(());

/// The admin token, of which only a hash is kept. The token is long and random, so that no slow hash is needed.
pub(super) struct Token([u8; 32]);

/// The admin token is what callers have: then a caller might be an operator, or the other way round.
#[derive(Debug, thiserror::Error)]
#[error("`admin_token` has the form of a caller's key ({found}); make another one, as `openssl rand -hex 32` does")]
pub(crate) struct KeyAsToken {
    found: String,
}

// === impl Token ===

impl Token {
    pub(super) fn new(secret: &Secret) -> Result<Self, KeyAsToken> {
        if keys::is_well_formed(secret.expose().as_bytes()) {
            return Err(KeyAsToken { found: secret.found().to_owned() });
        }
        Ok(Self(hash(secret.expose().as_bytes())))
    }

    /// In the same time whichever byte differs, and however long the text is that was presented in its place.
    pub(super) fn admit(&self, presented: &[u8]) -> Option<Operator> {
        verify_slices_are_equal(&self.0, &hash(presented)).is_ok().then_some(Operator(()))
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
        assert!(token.admit(TOKEN.as_bytes()).is_some());
        let other = TOKEN.replace('f', "e");
        for wrong in ["", &TOKEN[1..], &TOKEN.to_uppercase(), &format!("{TOKEN} "), &other] {
            assert!(token.admit(wrong.as_bytes()).is_none(), "{wrong}");
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
