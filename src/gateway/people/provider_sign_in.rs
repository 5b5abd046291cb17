//! Signs users in whom a provider of OpenID Connect has identified, and connects users with their identities.
//!
//! Only issuer and subject identify a person. A name at the provider identifies nobody: it may change hands, and a user
//! of that name may be somebody else.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};

use super::pending_sign_in::FirstFactor;
use super::sessions::SESSION_LIFETIME_MAX;
use super::{IdentityError, IdentityService, SignInOrigin, SignInStep, UserSession, users};
use crate::gateway::names;
use crate::gateway::store::{AuditContext, IdentityRow, NewIdentity, SignInProof, Timestamp, UserId, UserRow};

/// The time in which the code must follow the proof of the provider (our choice).
const PROOF_LIFETIME: Duration = Duration::from_secs(5 * 60);

/// A person, as the provider identifies them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProviderIdentity {
    /// The issuer.
    pub(crate) issuer: String,
    /// The id of the person at the issuer, which never changes.
    pub(crate) subject: String,
    /// The name in the configured claim, if there is one. It may change, so it identifies nobody.
    pub(crate) name: Option<String>,
    /// The time at which the person entered their credentials, in seconds since 1970, if the provider states it.
    pub(crate) authenticated_at: Option<i64>,
}

// === impl IdentityService ===

impl IdentityService {
    /// Opens a session for the user with this identity, if the user has no second factor. If there is no such user and
    /// `creates_users` is true, the person becomes a member.
    ///
    /// # Errors
    ///
    /// [`IdentityError::Unknown`] if there is no such user and none is created, [`IdentityError::NameTaken`] and
    /// [`IdentityError::InvalidField`] if none can be created with the name at the provider, and
    /// [`IdentityError::WrongCredentials`] if the user is disabled.
    pub(crate) async fn sign_in_with_provider(
        &self,
        identity: &ProviderIdentity,
        creates_users: bool,
        origin: &SignInOrigin,
    ) -> Result<SignInStep, IdentityError> {
        let user = match self.store.find_user_of_identity(&identity.issuer, &identity.subject).await? {
            Some(user) => user,
            // Until there is an admin, nobody can be a user: the first admin may want the same name.
            None if creates_users && self.store.is_set_up().await? => self.create_user(identity, origin).await?,
            None => {
                self.refuse_identity(origin).await?;
                return Err(IdentityError::Unknown);
            }
        };
        let audit = self.audit_context(Some(&user), origin);
        let first = FirstFactor {
            password: self.store.password_hash(&user.id).await?,
            identity: Some((identity.issuer.clone(), identity.subject.clone())),
            proved_at: proof_time(identity, audit.at),
        };
        if user.disabled_at.is_none() && user.has_second_factor {
            return Ok(SignInStep::NeedsCode(self.pending_sign_in(&user, &first, origin)));
        }
        let (mut session, cookie) = self.new_session(origin, audit.at)?;
        session.proved_at = first.proved_at;
        let proof = SignInProof { password: first.password, identity: first.identity, factor: None };
        if self.store.open_session(&audit, &user.id, &proof, &session).await? {
            return Ok(SignInStep::Complete(Box::new(self.issued_session(user, &session, cookie))));
        }
        self.store.record_refused_sign_in(&audit, Some(&user)).await?;
        Err(IdentityError::WrongCredentials)
    }

    async fn create_user(&self, identity: &ProviderIdentity, origin: &SignInOrigin) -> Result<UserRow, IdentityError> {
        let name = identity.name.as_deref().ok_or_else(|| IdentityError::field("name", "the provider states none"))?;
        let name = users::check_name(name)?;
        let audit = AuditContext { name: name.clone(), ..self.audit_context(None, origin) };
        if let Some(user) = self.store.create_user_with_identity(&audit, &name, &new_identity(identity)).await? {
            return Ok(user);
        }
        // Another sign-in of the same person may have created the user at this moment.
        let user = self.store.find_user_of_identity(&identity.issuer, &identity.subject).await?;
        user.ok_or(IdentityError::NameTaken)
    }

    /// Records in the audit trail that somebody whom the provider has identified may not sign in.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be written.
    pub(crate) async fn refuse_identity(&self, origin: &SignInOrigin) -> Result<(), IdentityError> {
        Ok(self.store.record_refused_sign_in(&self.audit_context(None, origin), None).await?)
    }

    /// Connects the session's user with an identity.
    ///
    /// # Errors
    ///
    /// [`IdentityError::InUse`] if the user has another identity of this issuer, if this one is that of another user, or if
    /// the session has ended meanwhile.
    pub(crate) async fn connect_provider(
        &self,
        session: &UserSession,
        identity: &ProviderIdentity,
    ) -> Result<(), IdentityError> {
        let user = session.actor.user().ok_or(IdentityError::Unknown)?;
        let audit = AuditContext { at: self.clock.now(), ..session.actor.audit_context() };
        let connected = self.store.connect_identity(&audit, (&user.id, &session.id), &new_identity(identity)).await?;
        if connected { Ok(()) } else { Err(IdentityError::InUse) }
    }

    /// Returns the identity of a user, if there is one.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read.
    pub(crate) async fn identity_of(&self, user: &UserId) -> Result<Option<IdentityRow>, IdentityError> {
        Ok(self.store.find_identity(user).await?)
    }

    /// Removes the identity of the session's user, and ends the other sessions of the user.
    ///
    /// # Errors
    ///
    /// [`IdentityError::InUse`] if the user has no password, and could not sign in again.
    pub(crate) async fn disconnect_own_provider(&self, session: &UserSession) -> Result<(), IdentityError> {
        let user = session.actor.user().ok_or(IdentityError::Unknown)?;
        if !user.has_password {
            return Err(IdentityError::InUse);
        }
        let audit = AuditContext { at: self.clock.now(), ..session.actor.audit_context() };
        self.store.disconnect_identity(&audit, &user.id, Some(&session.id)).await?;
        Ok(())
    }

    /// Removes the identity of a user, and ends all sessions of the user.
    ///
    /// # Errors
    ///
    /// [`IdentityError::Unknown`] if there is no such user, [`IdentityError::InvalidField`] if the user has no identity.
    pub(crate) async fn disconnect_provider(
        &self,
        audit: &AuditContext,
        handle: &str,
    ) -> Result<UserRow, IdentityError> {
        let user = self.find_user(handle).await?;
        if !self.store.disconnect_identity(audit, &user.id, None).await? {
            return Err(IdentityError::field("user", "the user is not connected with a provider"));
        }
        Ok(UserRow { has_identity: false, ..user })
    }

    /// Returns true if this is the identity of the session's user.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read.
    pub(crate) async fn is_identity_of(
        &self,
        session: &UserSession,
        identity: &ProviderIdentity,
    ) -> Result<bool, IdentityError> {
        let user = self.store.find_user_of_identity(&identity.issuer, &identity.subject).await?;
        Ok(user.is_some_and(|user| session.actor.user().is_some_and(|own| own.id == user.id)))
    }

    /// Stores that the provider has identified the session's user again. A user with a second factor must add a code to
    /// [`Self::seal_provider_proof`].
    ///
    /// # Errors
    ///
    /// [`IdentityError::WrongCredentials`] if the code is wrong or was used, [`IdentityError::TooManyAttempts`] after too
    /// many codes, [`IdentityError::Unknown`] if the session has ended meanwhile.
    pub(crate) async fn prove_with_provider(
        &self,
        session: &UserSession,
        code: Option<&str>,
    ) -> Result<(), IdentityError> {
        let user = session.actor.user().ok_or(IdentityError::Unknown)?;
        let audit = AuditContext { at: self.clock.now(), ..session.actor.audit_context() };
        let Some(code) = code else {
            let recorded = self.store.record_session_proof(&audit, &session.id, None).await?;
            return if recorded { Ok(()) } else { Err(IdentityError::Unknown) };
        };
        self.prove_with_code(session, user, code, &audit).await
    }

    /// Seals the statement that the provider has just identified the user of this session, for a field of the form that
    /// asks for the code.
    ///
    /// # Errors
    ///
    /// Returns an error if the system has no random bytes.
    pub(crate) fn seal_provider_proof(&self, session: &UserSession) -> Result<String, IdentityError> {
        let expires_at = self.unix_seconds().saturating_add_unsigned(PROOF_LIFETIME.as_secs());
        let sealed = self.vault.seal(&proof_context(session), &expires_at.to_be_bytes())?;
        Ok(URL_SAFE_NO_PAD.encode(sealed))
    }

    /// True if this is the sealed statement of this session, and not too old.
    pub(crate) fn is_provider_proof(&self, session: &UserSession, sealed: &str) -> bool {
        let Ok(bytes) = URL_SAFE_NO_PAD.decode(sealed) else { return false };
        let Ok(plain) = self.vault.open(&proof_context(session), &bytes) else { return false };
        plain.try_into().is_ok_and(|bytes| self.unix_seconds() < i64::from_be_bytes(bytes))
    }
}

/// Returns the time at which the person has entered their credentials. A provider may identify a browser without any
/// question, so the sign-in alone is no fresh proof.
fn proof_time(identity: &ProviderIdentity, now: Timestamp) -> Timestamp {
    let stated = identity.authenticated_at.and_then(|seconds| DateTime::<Utc>::from_timestamp(seconds, 0));
    stated.map_or_else(|| now - SESSION_LIFETIME_MAX, |time| Timestamp::from(time).min(now))
}

/// The context for which the statement of the provider is sealed: one session.
fn proof_context(session: &UserSession) -> String {
    format!("proof of the provider {} {}", session.id, session.csrf)
}

/// Returns an identity as it is stored: the name has a limited length, and only visible characters.
fn new_identity(identity: &ProviderIdentity) -> NewIdentity {
    let name = identity.name.as_deref().unwrap_or(&identity.subject);
    let name = name.chars().filter(|character| !character.is_control()).take(names::MAX_NAME_CHARS).collect();
    NewIdentity { issuer: identity.issuer.clone(), subject: identity.subject.clone(), name }
}
