//! The state between the first factor and the code of the second one.
//!
//! It is a signed text in a cookie of the browser. It is valid for a few minutes, in that browser only, and until the
//! password or the identity at the provider changes; it gives access to nothing but the question for the code.

use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use chrono::{DateTime, Utc};

use super::{IdentityError, IdentityService, IssuedSession, SecretText, SignInOrigin};
use crate::gateway::store::{PasswordHash, SignInProof, Timestamp, UserRow};

/// The time in which the code must be entered (our choice).
pub(crate) const PENDING_LIFETIME: Duration = Duration::from_secs(5 * 60);
/// The longest accepted cookie (our choice); those of the gateway are shorter.
const PENDING_MAX: usize = 256;
/// The words for the first factor in the cookie.
const PASSWORD: &str = "password";
const PROVIDER: &str = "provider";

/// The first factor of a sign-in that waits for a code.
pub(super) struct FirstFactor {
    /// The hash of the user's password, if there is one, whatever the factor was.
    pub(super) password: Option<PasswordHash>,
    /// The issuer and the subject, if a provider has identified the user.
    pub(super) identity: Option<(String, String)>,
    /// The time at which the user has entered their credentials.
    pub(super) proved_at: Timestamp,
}

/// A user whose first factor was right, and who must enter a code.
struct PendingSignIn {
    user: UserRow,
    factor: FirstFactor,
}

// === impl IdentityService ===

impl IdentityService {
    /// Returns the cookie for a browser whose user has passed the first factor.
    pub(super) fn pending_sign_in(&self, user: &UserRow, factor: &FirstFactor, origin: &SignInOrigin) -> SecretText {
        let expires_at = self.unix_seconds().saturating_add_unsigned(PENDING_LIFETIME.as_secs());
        let means = if factor.identity.is_some() { PROVIDER } else { PASSWORD };
        let signed = format!("{expires_at}.{}.{means}.{}", unix_seconds(factor.proved_at), user.id);
        let signature = self.pending_signature(&signed, factor, origin);
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
        let PendingSignIn { user, factor: first } = pending;
        let audit = self.audit_context(Some(&user), origin);
        let (factor, permit) = self.check_code(&user, code, origin.address, &audit).await?;
        let (mut session, session_cookie) = self.new_session(origin, audit.at)?;
        session.proved_at = first.proved_at;
        let proof = SignInProof { password: first.password, factor: Some(factor), identity: first.identity };
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
        let mut parts = signed.splitn(4, '.');
        let mut part = || parts.next().unwrap_or_default();
        let (expires_at, proved_at, means, id) = (part(), part(), part(), part());
        if !expires_at.parse::<i64>().is_ok_and(|end| self.unix_seconds() < end) {
            return Ok(None);
        }
        let proved_at = proved_at.parse().ok().and_then(|seconds| DateTime::<Utc>::from_timestamp(seconds, 0));
        let user = self.store.find_user(id).await?.filter(|user| user.id.as_str() == id);
        let user = user.filter(|user| user.disabled_at.is_none() && user.has_second_factor);
        let (Some(user), Some(proved_at)) = (user, proved_at) else { return Ok(None) };
        let identity = match means {
            PROVIDER => self.store.find_identity(&user.id).await?.map(|identity| (identity.issuer, identity.subject)),
            _ => None,
        };
        let password = self.store.password_hash(&user.id).await?;
        let factor = FirstFactor { password, identity, proved_at: proved_at.into() };
        let expected = self.pending_signature(signed, &factor, origin);
        let is_genuine = verify_slices_are_equal(expected.as_bytes(), signature.as_bytes()).is_ok();
        Ok(is_genuine.then_some(PendingSignIn { user, factor }))
    }

    fn pending_signature(&self, signed: &str, factor: &FirstFactor, origin: &SignInOrigin) -> String {
        let password = factor.password.as_ref().map_or("", |hash| hash.0.as_str());
        let (issuer, subject) = factor.identity.as_ref().map_or(("", ""), |(issuer, subject)| (issuer, subject));
        let text = format!("{signed} {} {password} {issuer} {subject}", origin.browser);
        let hash = self.pepper.hash_for_purpose("pending sign-in", text.as_bytes());
        hex::encode(hash.0)
    }
}

fn unix_seconds(time: Timestamp) -> i64 {
    DateTime::<Utc>::from(time).timestamp()
}
