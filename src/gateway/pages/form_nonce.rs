//! Makes a form that creates something valid only once, so that reloading its answer does not create a second one.
//!
//! A browser sends the same form again if the answer to the form is reloaded. The answer holds a secret that is shown
//! once, so it cannot be given again; the created object can be named. Used forms are kept in memory, and forms of an
//! earlier process are not valid at all.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::csrf::{FormSigningKey, random_token};

/// The field that holds the nonce of the form.
pub(super) const NONCE_FIELD: &str = "once";

/// The time for which a form may wait in a browser (our choice): as long as a session lasts.
const LIFETIME_SECONDS: i64 = 12 * 60 * 60;
/// The maximum number of used forms that are remembered (our choice). Beyond it, forms are refused until the oldest have
/// expired.
const USED_MAX: usize = 100_000;
const PURPOSE: &str = "once";

/// The forms that have been used.
#[derive(Default)]
pub(super) struct FormNonceStore(Mutex<HashMap<String, FormNonceEntry>>);

struct FormNonceEntry {
    expires_at: i64,
    created_id: Option<String>,
}

/// The status of a form.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FormNonceStatus {
    /// The form is used for the first time; the text is needed again when the object is created, or is not.
    FirstUse(String),
    /// The form was already used, to create this.
    AlreadyUsed(Option<String>),
    /// The form is too old or not valid, or no further form can be remembered.
    Expired,
}

// === impl FormNonceStore ===

impl FormNonceStore {
    /// Issues a nonce that is bound to a session.
    ///
    /// # Errors
    ///
    /// Returns an error if the system provides no random bytes.
    pub(super) fn issue(signing_key: &FormSigningKey, session: &str, now: i64) -> Result<String, getrandom::Error> {
        let head = format!("{now}.{}", random_token()?);
        Ok(format!("{head}.{}", signing_key.sign(PURPOSE, &format!("{head}.{session}"))))
    }

    /// Checks the nonce of a form, and marks it as used.
    pub(super) fn consume(
        &self,
        signing_key: &FormSigningKey,
        session: &str,
        nonce: &str,
        now: i64,
    ) -> FormNonceStatus {
        let Some((head, signature)) = nonce.rsplit_once('.') else { return FormNonceStatus::Expired };
        let issued = head.split('.').next().and_then(|text| text.parse::<i64>().ok());
        let Some(until) = issued.map(|at| at.saturating_add(LIFETIME_SECONDS)).filter(|until| *until > now) else {
            return FormNonceStatus::Expired;
        };
        if !signing_key.verify(PURPOSE, &format!("{head}.{session}"), signature) {
            return FormNonceStatus::Expired;
        }
        let mut used = self.lock();
        if let Some(earlier) = used.get(head) {
            return FormNonceStatus::AlreadyUsed(earlier.created_id.clone());
        }
        if used.len() >= USED_MAX {
            used.retain(|_, used| used.expires_at > now);
        }
        if used.len() >= USED_MAX {
            return FormNonceStatus::Expired;
        }
        used.insert(head.to_owned(), FormNonceEntry { expires_at: until, created_id: None });
        FormNonceStatus::FirstUse(head.to_owned())
    }

    /// Records the created object.
    pub(super) fn record_created(&self, head: &str, created_id: &str) {
        if let Some(used) = self.lock().get_mut(head) {
            used.created_id = Some(created_id.to_owned());
        }
    }

    /// Releases the nonce: nothing was created, so the form may be sent again.
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
    fn a_form_is_good_once_and_says_later_what_it_has_made() {
        let (once, seal) = (FormNonceStore::default(), FormSigningKey::new().unwrap());
        let mark = FormNonceStore::issue(&seal, "session", NOW).unwrap();
        let FormNonceStatus::FirstUse(head) = once.consume(&seal, "session", &mark, NOW + 1) else { panic!("refused") };
        assert_eq!(
            once.consume(&seal, "session", &mark, NOW + 1),
            FormNonceStatus::AlreadyUsed(None),
            "while it is being made"
        );
        once.record_created(&head, "key_1");
        assert_eq!(
            once.consume(&seal, "session", &mark, NOW + 2),
            FormNonceStatus::AlreadyUsed(Some("key_1".to_owned()))
        );
    }

    #[test]
    fn a_form_that_made_nothing_may_come_again() {
        let (once, seal) = (FormNonceStore::default(), FormSigningKey::new().unwrap());
        let mark = FormNonceStore::issue(&seal, "session", NOW).unwrap();
        let FormNonceStatus::FirstUse(head) = once.consume(&seal, "session", &mark, NOW) else { panic!("refused") };
        once.release(&head);
        assert!(matches!(once.consume(&seal, "session", &mark, NOW), FormNonceStatus::FirstUse(_)));
    }

    #[test]
    fn a_form_of_another_session_or_process_or_day_is_stale() {
        let (once, seal) = (FormNonceStore::default(), FormSigningKey::new().unwrap());
        let mark = FormNonceStore::issue(&seal, "session", NOW).unwrap();
        assert_eq!(once.consume(&seal, "another", &mark, NOW), FormNonceStatus::Expired);
        assert_eq!(once.consume(&FormSigningKey::new().unwrap(), "session", &mark, NOW), FormNonceStatus::Expired);
        assert_eq!(once.consume(&seal, "session", &mark, NOW + LIFETIME_SECONDS), FormNonceStatus::Expired);
        let later = mark.replacen(&NOW.to_string(), &(NOW + 1000).to_string(), 1);
        for forged in ["", ".", "a.b.c", "9999999999.x.y", &later, &mark[1..]] {
            assert_eq!(once.consume(&seal, "session", forged, NOW), FormNonceStatus::Expired, "{forged}");
        }
    }
}
