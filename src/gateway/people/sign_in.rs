//! Signs users in with a name and a password.

use std::net::IpAddr;

use super::pending_sign_in::FirstFactor;
use super::rate_limit::{RateLimitPermit, network};
use super::{IdentityError, IdentityService, IssuedSession, SecretText};
use crate::gateway::names;
use crate::gateway::store::{ActorKind, AuditContext, SignInProof, UserId, UserRow};

/// The address and browser of a sign-in.
#[derive(Debug, Clone)]
pub(crate) struct SignInOrigin {
    /// The IP address of the client.
    pub(crate) address: IpAddr,
    /// The user agent of the browser.
    pub(crate) agent: String,
    /// A text that only this browser knows. A sign-in that waits for a code can be completed only with it.
    pub(crate) browser: String,
}

/// The result of a right password.
#[derive(Debug)]
pub(crate) enum SignInStep {
    /// The user is signed in.
    Complete(Box<IssuedSession>),
    /// The user must enter a code of the second factor. The value is that of the cookie for this browser.
    NeedsCode(SecretText),
}

// === impl IdentityService ===

impl IdentityService {
    /// Opens a new session if the password is right and the user has no second factor. An existing session is never
    /// reused.
    ///
    /// # Errors
    ///
    /// [`IdentityError::WrongCredentials`] for a wrong name, a wrong password or a disabled user alike;
    /// [`IdentityError::TooManyAttempts`] after too many attempts, before a hash is computed.
    pub(crate) async fn sign_in(
        &self,
        name: &str,
        password: &str,
        origin: &SignInOrigin,
    ) -> Result<SignInStep, IdentityError> {
        let account = &counted_name(name);
        let permit = self.count_attempt(account, origin.address).await?;
        let user = self.user_named(name).await?;
        let permit = self.count_for_account(permit, account, user.as_ref(), origin.address).await?;
        let audit = self.audit_context(user.as_ref(), origin);
        let hash = match &user {
            Some(user) if user.disabled_at.is_none() => self.store.password_hash(&user.id).await?,
            _ => None,
        };
        let is_right = self.passwords.verify(password, hash.clone()).await?;
        if let (Some(user), Some(hash), true) = (&user, hash, is_right) {
            if user.has_second_factor {
                self.undo_attempt(permit).await;
                let first = FirstFactor { password: Some(hash), identity: None, proved_at: audit.at };
                return Ok(SignInStep::NeedsCode(self.pending_sign_in(user, &first, origin)));
            }
            let (session, cookie) = self.new_session(origin, audit.at)?;
            let proof = SignInProof { password: Some(hash), ..SignInProof::default() };
            if self.store.open_session(&audit, &user.id, &proof, &session).await? {
                self.undo_attempt(permit).await;
                return Ok(SignInStep::Complete(Box::new(self.issued_session(user.clone(), &session, cookie))));
            }
        }
        self.store.record_refused_sign_in(&audit, user.as_ref()).await?;
        Err(IdentityError::WrongCredentials)
    }

    /// Returns the user with this name, in any case of its letters; `find_user` also finds users by id.
    pub(super) async fn user_named(&self, name: &str) -> Result<Option<UserRow>, IdentityError> {
        let user = self.store.find_user(name).await?;
        Ok(user.filter(|user| user.name == name || names::fold(&user.name) == names::fold(name)))
    }

    /// Counts the attempt for the name from all addresses, unless the user has signed in from the network of this address
    /// before.
    pub(super) async fn count_for_account(
        &self,
        permit: RateLimitPermit,
        account: &str,
        user: Option<&UserRow>,
        address: IpAddr,
    ) -> Result<RateLimitPermit, IdentityError> {
        let is_known = match user {
            Some(user) => self.has_signed_in_from(&user.id, address).await?,
            None => false,
        };
        if is_known { Ok(permit) } else { self.count_attempt_for_account(permit, account).await }
    }

    /// True if the user has signed in from the network of this address before.
    pub(super) async fn has_signed_in_from(&self, user: &UserId, address: IpAddr) -> Result<bool, IdentityError> {
        Ok(self.store.has_signed_in_from(user, &network(address).to_string()).await?)
    }

    pub(super) fn audit_context(&self, user: Option<&UserRow>, origin: &SignInOrigin) -> AuditContext {
        AuditContext {
            kind: ActorKind::User,
            user: user.map(|user| user.id.clone()),
            // An unknown name is not recorded, because the text may be a password.
            name: user.map_or_else(|| "somebody".to_owned(), |user| user.name.clone()),
            address: Some(origin.address.to_string()),
            at: self.clock.now(),
        }
    }
}

/// Returns the form of the beginning of a name, for which attempts are counted: as many characters as a valid name may
/// have.
pub(super) fn counted_name(name: &str) -> String {
    names::fold(&name.chars().take(names::MAX_NAME_CHARS).collect::<String>())
}
