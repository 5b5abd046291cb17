//! Makes a form that creates something valid only once, so that reloading its answer does not create a second one.
//!
//! A browser sends the same form again if the answer to the form is reloaded. The answer holds a secret that is shown
//! once, so it cannot be given again; the created object can be named. Used forms are kept in memory, and forms of an
//! earlier process are not valid at all.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::guard::{FormSigningKey, random};

/// The field that holds the nonce of the form.
pub(super) const ONCE_FIELD: &str = "once";

/// The time for which a form may wait in a browser (ours): as long as a session lasts.
const GOOD_SECONDS: i64 = 12 * 60 * 60;
/// The maximum number of used forms that are remembered (ours). Beyond it, forms are refused until the oldest have
/// expired.
const USED_MAX: usize = 100_000;
const PURPOSE: &str = "once";

/// The forms that have been used.
#[derive(Default)]
pub(super) struct FormNonceStore(Mutex<HashMap<String, FormNonceEntry>>);

struct FormNonceEntry {
    until: i64,
    made: Option<String>,
}

/// The status of a form.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FormNonceStatus {
    /// The form is used for the first time; the text is needed again when the object is created, or is not.
    First(String),
    /// The form was already used, to create this.
    Again(Option<String>),
    /// The form is too old or not valid, or no further form can be remembered.
    Stale,
}

// === impl FormNonceStore ===

impl FormNonceStore {
    /// Issues a nonce that is bound to a session.
    ///
    /// # Errors
    ///
    /// Returns an error if the system provides no random bytes.
    pub(super) fn issue(seal: &FormSigningKey, session: &str, now: i64) -> Result<String, getrandom::Error> {
        let head = format!("{now}.{}", random()?);
        Ok(format!("{head}.{}", seal.mark(PURPOSE, &format!("{head}.{session}"))))
    }

    /// Checks the nonce of a form, and marks it as used.
    pub(super) fn begin(&self, seal: &FormSigningKey, session: &str, mark: &str, now: i64) -> FormNonceStatus {
        let Some((head, proof)) = mark.rsplit_once('.') else { return FormNonceStatus::Stale };
        let issued = head.split('.').next().and_then(|text| text.parse::<i64>().ok());
        let Some(until) = issued.map(|at| at.saturating_add(GOOD_SECONDS)).filter(|until| *until > now) else {
            return FormNonceStatus::Stale;
        };
        if !seal.holds(PURPOSE, &format!("{head}.{session}"), proof) {
            return FormNonceStatus::Stale;
        }
        let mut used = self.used();
        if let Some(earlier) = used.get(head) {
            return FormNonceStatus::Again(earlier.made.clone());
        }
        if used.len() >= USED_MAX {
            used.retain(|_, used| used.until > now);
        }
        if used.len() >= USED_MAX {
            return FormNonceStatus::Stale;
        }
        used.insert(head.to_owned(), FormNonceEntry { until, made: None });
        FormNonceStatus::First(head.to_owned())
    }

    /// Records the created object.
    pub(super) fn made(&self, head: &str, what: &str) {
        if let Some(used) = self.used().get_mut(head) {
            used.made = Some(what.to_owned());
        }
    }

    /// Releases the nonce: nothing was created, so the form may be sent again.
    pub(super) fn undo(&self, head: &str) {
        self.used().remove(head);
    }

    fn used(&self) -> MutexGuard<'_, HashMap<String, FormNonceEntry>> {
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
        let FormNonceStatus::First(head) = once.begin(&seal, "session", &mark, NOW + 1) else { panic!("refused") };
        assert_eq!(
            once.begin(&seal, "session", &mark, NOW + 1),
            FormNonceStatus::Again(None),
            "while it is being made"
        );
        once.made(&head, "key_1");
        assert_eq!(once.begin(&seal, "session", &mark, NOW + 2), FormNonceStatus::Again(Some("key_1".to_owned())));
    }

    #[test]
    fn a_form_that_made_nothing_may_come_again() {
        let (once, seal) = (FormNonceStore::default(), FormSigningKey::new().unwrap());
        let mark = FormNonceStore::issue(&seal, "session", NOW).unwrap();
        let FormNonceStatus::First(head) = once.begin(&seal, "session", &mark, NOW) else { panic!("refused") };
        once.undo(&head);
        assert!(matches!(once.begin(&seal, "session", &mark, NOW), FormNonceStatus::First(_)));
    }

    #[test]
    fn a_form_of_another_session_or_process_or_day_is_stale() {
        let (once, seal) = (FormNonceStore::default(), FormSigningKey::new().unwrap());
        let mark = FormNonceStore::issue(&seal, "session", NOW).unwrap();
        assert_eq!(once.begin(&seal, "another", &mark, NOW), FormNonceStatus::Stale);
        assert_eq!(once.begin(&FormSigningKey::new().unwrap(), "session", &mark, NOW), FormNonceStatus::Stale);
        assert_eq!(once.begin(&seal, "session", &mark, NOW + GOOD_SECONDS), FormNonceStatus::Stale);
        let later = mark.replacen(&NOW.to_string(), &(NOW + 1000).to_string(), 1);
        for forged in ["", ".", "a.b.c", "9999999999.x.y", &later, &mark[1..]] {
            assert_eq!(once.begin(&seal, "session", forged, NOW), FormNonceStatus::Stale, "{forged}");
        }
    }
}
