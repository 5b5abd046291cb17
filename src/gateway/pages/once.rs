//! A form that makes something is good once: whoever loads its answer again does not make a second one.
//!
//! The browser brings the same form again when a page is loaded anew that was the answer to a form. The answer holds a
//! secret that is shown once, so it cannot be given again; what was made can be named. Which forms have been used is
//! kept in memory, and forms of an earlier process are not good at all.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::guard::{Seal, random};

/// The field that holds the mark of the form.
pub(super) const ONCE_FIELD: &str = "once";

/// So long a form may wait in a browser (ours): as long as a session does.
const GOOD_SECONDS: i64 = 12 * 60 * 60;
/// So many used forms are remembered (ours). Beyond it, forms wait until the oldest are past.
const USED_MAX: usize = 100_000;
const PURPOSE: &str = "once";

/// The forms that have been used.
#[derive(Default)]
pub(super) struct Once(Mutex<HashMap<String, Used>>);

struct Used {
    until: i64,
    made: Option<String>,
}

/// What becomes of a form.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It is the first time; the mark is needed again when the thing is made, or is not.
    First(String),
    /// It was used already, for this.
    Again(Option<String>),
    /// It is too old, or not ours.
    Stale,
}

// === impl Once ===

impl Once {
    /// A new mark, bound to a session.
    ///
    /// # Errors
    ///
    /// Where the machine has no randomness.
    pub(super) fn issue(seal: &Seal, session: &str, now: i64) -> Result<String, getrandom::Error> {
        let head = format!("{now}.{}", random()?);
        Ok(format!("{head}.{}", seal.mark(PURPOSE, &format!("{head}.{session}"))))
    }

    /// Takes the turn of a form.
    pub(super) fn begin(&self, seal: &Seal, session: &str, mark: &str, now: i64) -> Turn {
        let Some((head, proof)) = mark.rsplit_once('.') else { return Turn::Stale };
        let issued = head.split('.').next().and_then(|text| text.parse::<i64>().ok());
        let Some(until) = issued.map(|at| at.saturating_add(GOOD_SECONDS)).filter(|until| *until > now) else {
            return Turn::Stale;
        };
        if !seal.holds(PURPOSE, &format!("{head}.{session}"), proof) {
            return Turn::Stale;
        }
        let mut used = self.used();
        if let Some(earlier) = used.get(head) {
            return Turn::Again(earlier.made.clone());
        }
        if used.len() >= USED_MAX {
            used.retain(|_, used| used.until > now);
        }
        if used.len() >= USED_MAX {
            return Turn::Stale;
        }
        used.insert(head.to_owned(), Used { until, made: None });
        Turn::First(head.to_owned())
    }

    /// Says what was made.
    pub(super) fn made(&self, head: &str, what: &str) {
        if let Some(used) = self.used().get_mut(head) {
            used.made = Some(what.to_owned());
        }
    }

    /// Nothing was made: the form may come again.
    pub(super) fn undo(&self, head: &str) {
        self.used().remove(head);
    }

    fn used(&self) -> MutexGuard<'_, HashMap<String, Used>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;

    #[test]
    fn a_form_is_good_once_and_says_later_what_it_has_made() {
        let (once, seal) = (Once::default(), Seal::new().unwrap());
        let mark = Once::issue(&seal, "session", NOW).unwrap();
        let Turn::First(head) = once.begin(&seal, "session", &mark, NOW + 1) else { panic!("refused") };
        assert_eq!(once.begin(&seal, "session", &mark, NOW + 1), Turn::Again(None), "while it is being made");
        once.made(&head, "key_1");
        assert_eq!(once.begin(&seal, "session", &mark, NOW + 2), Turn::Again(Some("key_1".to_owned())));
    }

    #[test]
    fn a_form_that_made_nothing_may_come_again() {
        let (once, seal) = (Once::default(), Seal::new().unwrap());
        let mark = Once::issue(&seal, "session", NOW).unwrap();
        let Turn::First(head) = once.begin(&seal, "session", &mark, NOW) else { panic!("refused") };
        once.undo(&head);
        assert!(matches!(once.begin(&seal, "session", &mark, NOW), Turn::First(_)));
    }

    #[test]
    fn a_form_of_another_session_or_process_or_day_is_stale() {
        let (once, seal) = (Once::default(), Seal::new().unwrap());
        let mark = Once::issue(&seal, "session", NOW).unwrap();
        assert_eq!(once.begin(&seal, "another", &mark, NOW), Turn::Stale);
        assert_eq!(once.begin(&Seal::new().unwrap(), "session", &mark, NOW), Turn::Stale);
        assert_eq!(once.begin(&seal, "session", &mark, NOW + GOOD_SECONDS), Turn::Stale);
        let later = mark.replacen(&NOW.to_string(), &(NOW + 1000).to_string(), 1);
        for forged in ["", ".", "a.b.c", "9999999999.x.y", &later, &mark[1..]] {
            assert_eq!(once.begin(&seal, "session", forged, NOW), Turn::Stale, "{forged}");
        }
    }
}
