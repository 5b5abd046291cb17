//! Checks that a form comes from a page that the gateway has sent to the same browser.
//!
//! There are two independent checks: the browser states that the form comes from the gateway's own origin, and the form
//! has a token that other sites cannot read.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::http_messages::PageRequest;
use super::site_origin::SiteOrigin;

/// The name of the form field with the token.
pub(super) const TOKEN_FIELD: &str = "csrf";

/// True if the browser states that the form comes from the gateway's own origin. `Sec-Fetch-Site` counts only if there
/// is no `Origin`.
pub(super) fn is_same_origin(request: &PageRequest, site: &SiteOrigin) -> bool {
    match &request.origin {
        Some(origin) => origin == site.origin(),
        None => request.fetch_site.as_deref() == Some("same-origin"),
    }
}

/// True if the form has this token; false if `token` is empty. Compares in constant time.
pub(super) fn has_token(request: &PageRequest, token: &str) -> bool {
    let sent = request.raw_form_field(TOKEN_FIELD);
    !token.is_empty() && verify_slices_are_equal(sent.as_bytes(), token.as_bytes()).is_ok()
}

/// Returns 128 random bits as text.
///
/// # Errors
///
/// Returns an error if the system provides no random bytes.
pub(super) fn random_token() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}
