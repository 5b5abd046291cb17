//! One-time nonces for forms that create something, so that a reload of the answer does not create a second object.
//!
//! A browser sends a form again if the user reloads the answer. The answer may have a secret that is shown only once,
//! so the same answer cannot be given again; instead, a page links to the created object.
//!
//! A nonce is signed with a key of the installation: every node accepts it, also after a restart. Its use is a claim in
//! the store, so it is used once on all nodes.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, TimeDelta, Utc};

use super::csrf::random_token;
use crate::gateway::store::Vault;

/// The name of the form field with the nonce.
pub(super) const NONCE_FIELD: &str = "nonce";

/// The time for which a nonce is valid (our choice): a session that is not used ends after the same time.
const LIFETIME: TimeDelta = TimeDelta::hours(12);
/// The time for which the claim of a nonce is kept after the end of the nonce (our choice), because the clocks of nodes
/// differ.
const CLOCK_MARGIN: TimeDelta = TimeDelta::hours(1);
/// The contexts of the hashes that sign a nonce, and that identify its claim.
const SIGNATURE: &str = "signature of a form nonce";
const CLAIM: &str = "claim of a form nonce";

/// Issues and checks nonces.
pub(super) struct FormNonces(Vault);

/// A valid nonce.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FormNonce {
    /// The scope of the claim of its use.
    pub(super) scope: [u8; 32],
    /// The time until which the claim must be kept.
    pub(super) claimed_until: DateTime<Utc>,
}

// === impl FormNonces ===

impl FormNonces {
    pub(super) const fn new(vault: Vault) -> Self {
        Self(vault)
    }

    /// Issues a nonce for one session. `session` is the token against forged forms, which differs for each session; or a
    /// text that no session has, for a form that stays valid in every session of its user.
    ///
    /// # Errors
    ///
    /// Returns an error if the system provides no random bytes.
    pub(super) fn issue(&self, session: &str, now: DateTime<Utc>) -> Result<String, getrandom::Error> {
        let head = format!("{}.{}", now.timestamp(), random_token()?);
        Ok(format!("{head}.{}", self.sign(&head, session)))
    }

    /// Checks the nonce of a form; `None` if it has expired or is not valid.
    pub(super) fn verify(&self, session: &str, nonce: &str, now: DateTime<Utc>) -> Option<FormNonce> {
        let (head, _) = nonce.rsplit_once('.')?;
        let issued = DateTime::from_timestamp(head.split('.').next()?.parse().ok()?, 0)?;
        let expires_at = issued.checked_add_signed(LIFETIME)?;
        let claimed_until = expires_at.checked_add_signed(CLOCK_MARGIN)?;
        let scope = self.0.keyed_hash(CLAIM, head.as_bytes());
        (self.is_issued(session, nonce) && expires_at > now).then_some(FormNonce { scope, claimed_until })
    }

    /// True if the nonce was issued for this session, at any time.
    pub(super) fn is_issued(&self, session: &str, nonce: &str) -> bool {
        nonce.rsplit_once('.').is_some_and(|(head, signature)| {
            verify_slices_are_equal(self.sign(head, session).as_bytes(), signature.as_bytes()).is_ok()
        })
    }

    fn sign(&self, head: &str, session: &str) -> String {
        URL_SAFE_NO_PAD.encode(self.0.keyed_hash(SIGNATURE, format!("{head}.{session}").as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> DateTime<Utc> {
        DateTime::from_timestamp(1_800_000_000, 0).unwrap()
    }

    fn nonces(key: u8) -> FormNonces {
        FormNonces::new(Vault::for_test(key))
    }

    #[test]
    fn a_nonce_is_valid_for_twelve_hours_on_each_node_of_the_installation() {
        let nonce = nonces(1).issue("session", now()).unwrap();
        let on_another_node = nonces(1);
        let first = on_another_node.verify("session", &nonce, now()).unwrap();
        assert_eq!(first.claimed_until, now() + LIFETIME + CLOCK_MARGIN);
        let last_moment = now() + LIFETIME - TimeDelta::seconds(1);
        assert_eq!(on_another_node.verify("session", &nonce, last_moment), Some(first));
        assert_eq!(on_another_node.verify("session", &nonce, now() + LIFETIME), None);
    }

    #[test]
    fn each_nonce_has_a_claim_of_its_own() {
        let scope = || {
            let nonces = nonces(1);
            nonces.verify("session", &nonces.issue("session", now()).unwrap(), now()).unwrap().scope
        };
        assert_ne!(scope(), scope());
    }

    #[test]
    fn a_nonce_of_another_session_or_installation_is_not_valid() {
        let nonce = nonces(1).issue("session", now()).unwrap();
        assert_eq!(nonces(1).verify("another", &nonce, now()), None);
        assert!(nonces(1).is_issued("session", &nonce) && !nonces(1).is_issued("another", &nonce));
        assert_eq!(nonces(2).verify("session", &nonce, now()), None);
        let postdated = nonce.replacen("1800000000", "1800001000", 1);
        let overflow = format!("{}.x.y", i64::MAX);
        for forged in ["", ".", "a.b.c", "9999999999.x.y", &overflow, &postdated, &nonce[1..]] {
            assert_eq!(nonces(1).verify("session", forged, now()), None, "{forged}");
            assert!(forged == overflow || !nonces(1).is_issued("session", forged), "{forged}");
        }
    }
}
