//! The state between a right password and the code of the second factor.
//!
//! It is a signed text in a cookie of the browser. It is valid for a few minutes, in that browser only, and until the
//! password changes; it gives access to nothing but the question for the code.

use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;

use super::{IdentityError, IdentityService, IssuedSession, SecretText, SignInOrigin};
use crate::gateway::store::{PasswordHash, SignInProof, UserRow};

/// The time in which the code must be entered (our choice).
pub(crate) const PENDING_LIFETIME: Duration = Duration::from_secs(5 * 60);
/// The longest accepted cookie (our choice); those of the gateway are shorter.
const PENDING_MAX: usize = 256;

/// A user whose password was right, and who must enter a code.
struct PendingSignIn {
    user: UserRow,
    password: Option<PasswordHash>,
}

// === impl IdentityService ===

impl IdentityService {
    /// Returns the cookie for a browser whose user has entered the right password.
    pub(super) fn pending_sign_in(
        &self,
        user: &UserRow,
        password: Option<&PasswordHash>,
        origin: &SignInOrigin,
    ) -> SecretText {
        let expires_at = self.unix_seconds().saturating_add_unsigned(PENDING_LIFETIME.as_secs());
        let signed = format!("{expires_at}.{}", user.id);
        let signature = self.pending_signature(&signed, password, origin);
        SecretText::new(format!("{signed}.{signature}"))
    }

    /// True if the cookie is that of a sign-in in this browser that waits for a code.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read.
    pub(crate) async fn is_pending(&self, cookie: &str, origin: &SignInOrigin) -> Result<bool, IdentityError> {
        Ok(self.find_pending(cookie, origin).await?.is_some())
    }

    /// Opens a session for a sign-in that waits for a code.
    ///
    /// # Errors
    ///
    /// [`IdentityError::InvalidLink`] if no sign-in waits, or it waits for too long; [`IdentityError::WrongCredentials`]
    /// if the code is wrong; [`IdentityError::TooManyAttempts`] after too many attempts.
    pub(crate) async fn complete_sign_in(
        &self,
        cookie: &str,
        code: &str,
        origin: &SignInOrigin,
    ) -> Result<IssuedSession, IdentityError> {
        let pending = self.find_pending(cookie, origin).await?.ok_or(IdentityError::InvalidLink)?;
        let PendingSignIn { user, password } = pending;
        let audit = self.audit_context(Some(&user), origin);
        let (factor, permit) = self.check_code(&user, code, (origin.address, &audit)).await?;
        let (session, session_cookie) = self.new_session(origin, audit.at)?;
        let proof = SignInProof { password, factor: Some(factor), identity: None };
        if !self.store.open_session(&audit, &user.id, &proof, &session).await? {
            return Err(self.refuse_code(&user, &audit).await);
        }
        self.undo_attempt(permit).await;
        Ok(self.issued_session(user, &session, session_cookie))
    }

    async fn find_pending(&self, cookie: &str, origin: &SignInOrigin) -> Result<Option<PendingSignIn>, IdentityError> {
        let Some((signed, signature)) = cookie.rsplit_once('.').filter(|_| cookie.len() <= PENDING_MAX) else {
            return Ok(None);
        };
        let Some((expires_at, id)) = signed.split_once('.') else { return Ok(None) };
        if !expires_at.parse::<i64>().is_ok_and(|end| self.unix_seconds() < end) {
            return Ok(None);
        }
        let user = self.store.find_user(id).await?.filter(|user| user.id.as_str() == id);
        let Some(user) = user.filter(|user| user.disabled_at.is_none() && user.has_second_factor) else {
            return Ok(None);
        };
        let password = self.store.password_hash(&user.id).await?;
        let expected = self.pending_signature(signed, password.as_ref(), origin);
        let is_genuine = verify_slices_are_equal(expected.as_bytes(), signature.as_bytes()).is_ok();
        Ok(is_genuine.then_some(PendingSignIn { user, password }))
    }

    fn pending_signature(&self, signed: &str, password: Option<&PasswordHash>, origin: &SignInOrigin) -> String {
        let password = password.map_or("", |hash| hash.0.as_str());
        let text = format!("{signed} {} {password}", origin.browser);
        let hash = self.pepper.hash_for_purpose("pending sign-in", text.as_bytes());
        hash.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
