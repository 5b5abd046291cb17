//! Whether a form came from a page of ours, in the browser of whoever is signed in.
//!
//! Two locks, each of which is enough by itself: the browser says that the form stands on our own address, and the
//! form holds a token that only our own page could have been given.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::host::Home;
use super::visit::Visit;

/// The field of every form that holds its token.
pub(super) const TOKEN_FIELD: &str = "csrf";

/// What binds forms to this process. It dies with it, and the forms that wait in browsers with it.
pub(super) struct Seal(hmac::Key);

/// Whether the browser says that the form stands on our own address.
pub(super) fn is_from_home(visit: &Visit, home: &Home) -> bool {
    match &visit.origin {
        Some(origin) => origin == home.origin(),
        None => visit.fetch_site.as_deref() == Some("same-origin"),
    }
}

/// Whether the form holds the token.
pub(super) fn has_token(visit: &Visit, token: &str) -> bool {
    let sent = visit.sent_as_is(TOKEN_FIELD);
    !token.is_empty() && verify_slices_are_equal(sent.as_bytes(), token.as_bytes()).is_ok()
}

/// 128 random bits as text.
///
/// # Errors
///
/// Where the machine has no randomness.
pub(super) fn random() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

// === impl Seal ===

impl Seal {
    /// A new one.
    ///
    /// # Errors
    ///
    /// Where the machine has no randomness.
    pub(super) fn new() -> Result<Self, getrandom::Error> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)?;
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &key)))
    }

    /// The mark of a text for one purpose.
    pub(super) fn mark(&self, purpose: &str, text: &str) -> String {
        let mark = hmac::sign(&self.0, format!("{purpose}\0{text}").as_bytes());
        URL_SAFE_NO_PAD.encode(mark.as_ref())
    }

    /// Whether it is the mark.
    pub(super) fn holds(&self, purpose: &str, text: &str, mark: &str) -> bool {
        verify_slices_are_equal(self.mark(purpose, text).as_bytes(), mark.as_bytes()).is_ok()
    }
}
