//! One-time nonces for forms that create something, so that a reload of the answer does not create a second object.
//!
//! A browser sends a form again if the user reloads the answer. The answer may have a secret that is shown only once,
//! so the same answer cannot be given again; instead, a page links to the created object. Used nonces are kept in
//! memory. Nonces of an earlier process are not valid.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::csrf::{NonceSigningKey, random_token};

/// The name of the form field with the nonce.
pub(super) const NONCE_FIELD: &str = "nonce";

/// The time for which a nonce is valid (our choice): a session that is not used ends after the same time.
const LIFETIME_SECONDS: i64 = 12 * 60 * 60;
/// The maximum number of used nonces in memory (our choice). If it is reached, forms with a
/// nonce are refused until used nonces expire.
const USED_MAX: usize = 100_000;
/// The purpose for [`NonceSigningKey::sign`].
const PURPOSE: &str = "form nonce";

/// The used nonces.
#[derive(Default)]
pub(super) struct FormNonceStore(Mutex<HashMap<String, FormNonceEntry>>);

/// A used nonce.
struct FormNonceEntry {
    expires_at: i64,
    created_id: Option<String>,
}

/// The result of checking the nonce of a form.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FormNonceStatus {
    /// The form is used for the first time. The text identifies the nonce for [`FormNonceStore::record_created`] and
    /// [`FormNonceStore::release`].
    FirstUse(String),
    /// The form was already used. The value is the id of the created object, if it is known.
    AlreadyUsed(Option<String>),
    /// The nonce has expired or is not valid, or there are too many used nonces.
    Expired,
}

// === impl FormNonceStore ===

impl FormNonceStore {
    /// Issues a nonce for one session. `session` is the token against forged forms, which differs for each session.
    ///
    /// # Errors
    ///
    /// Returns an error if the system provides no random bytes.
    pub(super) fn issue(signing_key: &NonceSigningKey, session: &str, now: i64) -> Result<String, getrandom::Error> {
        let head = format!("{now}.{}", random_token()?);
        Ok(format!("{head}.{}", signing_key.sign(PURPOSE, &format!("{head}.{session}"))))
    }

    /// Checks the nonce of a form, and marks it as used if it is valid.
    pub(super) fn consume(
        &self,
        signing_key: &NonceSigningKey,
        session: &str,
        nonce: &str,
        now: i64,
    ) -> FormNonceStatus {
        let Some((head, signature)) = nonce.rsplit_once('.') else { return FormNonceStatus::Expired };
        let issued = head.split('.').next().and_then(|text| text.parse::<i64>().ok());
        let Some(expires_at) = issued.map(|time| time.saturating_add(LIFETIME_SECONDS)).filter(|end| *end > now) else {
            return FormNonceStatus::Expired;
        };
        if !signing_key.verify(PURPOSE, &format!("{head}.{session}"), signature) {
            return FormNonceStatus::Expired;
        }
        let mut used = self.lock();
        if let Some(entry) = used.get(head) {
            return FormNonceStatus::AlreadyUsed(entry.created_id.clone());
        }
        if used.len() >= USED_MAX {
            used.retain(|_, entry| entry.expires_at > now);
        }
        if used.len() >= USED_MAX {
            return FormNonceStatus::Expired;
        }
        used.insert(head.to_owned(), FormNonceEntry { expires_at, created_id: None });
        FormNonceStatus::FirstUse(head.to_owned())
    }

    /// Records the id of the object that the form has created.
    pub(super) fn record_created(&self, head: &str, created_id: &str) {
        if let Some(entry) = self.lock().get_mut(head) {
            entry.created_id = Some(created_id.to_owned());
        }
    }

    /// Makes the nonce valid again, because nothing was created.
    pub(super) fn release(&self, head: &str) {
        self.lock().remove(head);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, FormNonceEntry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;

    #[test]
    fn a_used_nonce_returns_the_id_of_the_created_object() {
        let (store, key) = (FormNonceStore::default(), NonceSigningKey::new().unwrap());
        let nonce = FormNonceStore::issue(&key, "session", NOW).unwrap();
        let FormNonceStatus::FirstUse(head) = store.consume(&key, "session", &nonce, NOW + 1) else {
            panic!("refused")
        };
        assert_eq!(
            store.consume(&key, "session", &nonce, NOW + 1),
            FormNonceStatus::AlreadyUsed(None),
            "the object is still being created"
        );
        store.record_created(&head, "key_1");
        assert_eq!(
            store.consume(&key, "session", &nonce, NOW + 2),
            FormNonceStatus::AlreadyUsed(Some("key_1".to_owned()))
        );
    }

    #[test]
    fn a_released_nonce_can_be_used_again() {
        let (store, key) = (FormNonceStore::default(), NonceSigningKey::new().unwrap());
        let nonce = FormNonceStore::issue(&key, "session", NOW).unwrap();
        let FormNonceStatus::FirstUse(head) = store.consume(&key, "session", &nonce, NOW) else { panic!("refused") };
        store.release(&head);
        assert!(matches!(store.consume(&key, "session", &nonce, NOW), FormNonceStatus::FirstUse(_)));
    }

    #[test]
    fn a_nonce_of_another_session_process_or_day_is_expired() {
        let (store, key) = (FormNonceStore::default(), NonceSigningKey::new().unwrap());
        let nonce = FormNonceStore::issue(&key, "session", NOW).unwrap();
        assert_eq!(store.consume(&key, "another", &nonce, NOW), FormNonceStatus::Expired);
        assert_eq!(store.consume(&NonceSigningKey::new().unwrap(), "session", &nonce, NOW), FormNonceStatus::Expired);
        assert_eq!(store.consume(&key, "session", &nonce, NOW + LIFETIME_SECONDS), FormNonceStatus::Expired);
        let postdated = nonce.replacen(&NOW.to_string(), &(NOW + 1000).to_string(), 1);
        for forged in ["", ".", "a.b.c", "9999999999.x.y", &postdated, &nonce[1..]] {
            assert_eq!(store.consume(&key, "session", forged, NOW), FormNonceStatus::Expired, "{forged}");
        }
    }
}
