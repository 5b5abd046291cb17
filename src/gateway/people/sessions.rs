//! Sessions: their cookies, and their lifetime.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use super::links::{is_random_text, random_text};
use super::rate_limit::network;
use super::sign_in::counted_name;
use super::{Actor, IdentityError, IdentityService, SecretText, SignInOrigin, passwords};
use crate::gateway::store::{
    AuditContext, NewSession, SecretHash, SessionId, SessionRow, StoreError, Timestamp, UserId, UserRow,
};
use crate::gateway::work::RequestWork;

/// The time without use after which a session ends (our choice).
const IDLE_TIMEOUT: Duration = Duration::from_secs(12 * 3600);
/// The maximum lifetime of a session (our choice).
pub(super) const SESSION_LIFETIME_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// The precision of the stored time of the last use (our choice).
const LAST_USED_PRECISION: Duration = Duration::from_secs(60);
/// The time for which a proof of the user's identity permits what needs a fresh one (our choice).
const PROOF_LIFETIME: Duration = Duration::from_secs(10 * 60);
/// The maximum number of characters of a user agent that are stored (our choice).
const AGENT_CHARS: usize = 200;

/// A new session. The value of its cookie cannot be read again later.
#[derive(Debug)]
pub(crate) struct IssuedSession {
    /// The value of the cookie.
    pub(crate) cookie: SecretText,
    /// The session.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "the pages redirect the browser, and find the session by its cookie")
    )]
    pub(crate) session: UserSession,
}

/// A session of a user who is signed in.
#[derive(Clone)]
pub(crate) struct UserSession {
    /// The id of the session, which gives no access.
    pub(crate) id: SessionId,
    /// The user of the session, as an actor.
    pub(crate) actor: Actor,
    /// The last time at which the user has proved who they are.
    proved_at: Timestamp,
    /// The CSRF token that every form of this session must have.
    pub(crate) csrf: String,
}

// === impl IdentityService ===

impl IdentityService {
    /// Returns the session of a cookie; `None` if the session has ended or never existed.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read.
    pub(crate) async fn find_session(&self, cookie: &str) -> Result<Option<UserSession>, IdentityError> {
        if !is_random_text(cookie) {
            return Ok(None);
        }
        let now = self.clock.now();
        let found = self.store.find_session(&self.cookie_hash(cookie)).await?;
        let Some((row, user)) = found.filter(|(row, user)| is_live(row, user, now)) else { return Ok(None) };
        // If the store cannot be written, the pages can still be read.
        if row.last_seen_at + LAST_USED_PRECISION <= now
            && let Err(error) = self.store.record_session_use(&row.id, now).await
        {
            tracing::debug!(%error, "the last use of a session could not be stored");
        }
        Ok(Some(self.user_session(row.id, user, row.proved_at, cookie)))
    }

    /// Ends this session.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be written.
    pub(crate) async fn sign_out(&self, session: &UserSession) -> Result<(), IdentityError> {
        let user = session.actor.user().ok_or(IdentityError::Unknown)?;
        self.store.end_session(&session.actor.audit_context(), &user.id, &session.id).await?;
        Ok(())
    }

    /// Ends another session of the session's user.
    ///
    /// # Errors
    ///
    /// [`IdentityError::Unknown`] if the user has no session with this id.
    pub(crate) async fn end_own_session(&self, session: &UserSession, id: &str) -> Result<(), IdentityError> {
        let user = session.actor.user().ok_or(IdentityError::Unknown)?;
        let ended = self.store.end_session(&session.actor.audit_context(), &user.id, &SessionId::from(id)).await?;
        if ended { Ok(()) } else { Err(IdentityError::Unknown) }
    }

    /// Ends all sessions of the session's user except this one, and returns their number.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be written.
    pub(crate) async fn end_other_sessions(&self, session: &UserSession) -> Result<u64, IdentityError> {
        let user = session.actor.user().ok_or(IdentityError::Unknown)?;
        Ok(self.store.end_sessions(&session.actor.audit_context(), &user.id, Some(&session.id)).await?)
    }

    /// Ends all sessions of a user, and returns their number. A member can end only their own sessions.
    ///
    /// # Errors
    ///
    /// [`IdentityError::Unknown`] if there is no such user, or if the actor is a member and the user another one.
    pub(crate) async fn sign_out_everywhere(&self, actor: &Actor, user: &str) -> Result<u64, IdentityError> {
        let user = self.find_visible_user(actor, user).await?;
        Ok(self.store.end_sessions(&actor.audit_context(), &user.id, None).await?)
    }

    /// Returns the sessions of a user that have not ended, newest first.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read.
    pub(crate) async fn sessions(&self, user: &UserId) -> Result<Vec<SessionRow>, IdentityError> {
        let now = self.clock.now();
        let mut sessions = self.store.list_sessions(user).await?;
        sessions.retain(|row| is_unexpired(row, now));
        Ok(sessions)
    }

    /// Changes the password of the session's user, and ends all other sessions of the user.
    ///
    /// # Errors
    ///
    /// [`IdentityError::WrongCredentials`] if the old password is wrong, [`IdentityError::TooManyAttempts`] after too
    /// many attempts, [`IdentityError::InvalidField`] for an invalid new password.
    pub(crate) async fn change_password(
        &self,
        session: &UserSession,
        old_password: &str,
        new_password: &str,
    ) -> Result<(), IdentityError> {
        let user = session.actor.user().ok_or(IdentityError::Unknown)?;
        passwords::check_password(new_password, &user.name)?;
        self.check_own_password(session, old_password).await?;
        let audit = AuditContext { at: self.clock.now(), ..session.actor.audit_context() };
        let hash = self.passwords.hash(new_password).await?;
        Ok(self.store.set_password(&audit, &user.id, &hash, &session.id).await?)
    }

    /// Checks the password of the session's user; a wrong one counts like a refused sign-in.
    async fn check_own_password(&self, session: &UserSession, password: &str) -> Result<(), IdentityError> {
        let user = session.actor.user().ok_or(IdentityError::Unknown)?;
        let address = session.actor.address().ok_or(IdentityError::WrongCredentials)?;
        let account = &counted_name(&user.name);
        let permit = self.count_attempt(account, address).await?;
        let permit = self.count_for_account(permit, account, Some(user), address).await?;
        if !self.passwords.verify(password, self.store.password_hash(&user.id).await?).await? {
            let audit = AuditContext { at: self.clock.now(), ..session.actor.audit_context() };
            self.store.record_refused_sign_in(&audit, Some(user)).await?;
            return Err(IdentityError::WrongCredentials);
        }
        self.undo_attempt(permit).await;
        Ok(())
    }

    /// True if the user of this session has proved who they are a short time ago. Actions that outlast the session, such
    /// as the creation of an admin token, need this.
    pub(crate) fn has_fresh_proof(&self, session: &UserSession) -> bool {
        self.clock.now() < session.proved_at + PROOF_LIFETIME
    }

    /// Proves the identity of the session's user with their password, and with a code if they have a second factor.
    ///
    /// # Errors
    ///
    /// [`IdentityError::WrongCredentials`] if the password or the code is wrong, [`IdentityError::TooManyAttempts`] after too many
    /// attempts, [`IdentityError::Unknown`] if the session has ended meanwhile.
    pub(crate) async fn prove_identity(
        &self,
        session: &UserSession,
        password: &str,
        code: &str,
    ) -> Result<(), IdentityError> {
        let user = session.actor.user().ok_or(IdentityError::Unknown)?;
        self.check_own_password(session, password).await?;
        let audit = AuditContext { at: self.clock.now(), ..session.actor.audit_context() };
        if !user.has_second_factor {
            let recorded = self.store.record_session_proof(&audit, &session.id, None).await?;
            return if recorded { Ok(()) } else { Err(IdentityError::Unknown) };
        }
        self.prove_with_code(session, user, code, &audit).await
    }

    /// Stores the proof of a user whose code is right. The first factor must have been checked.
    pub(super) async fn prove_with_code(
        &self,
        session: &UserSession,
        user: &UserRow,
        code: &str,
        audit: &AuditContext,
    ) -> Result<(), IdentityError> {
        let address = session.actor.address().ok_or(IdentityError::WrongCredentials)?;
        let (factor, permit) = self.check_code(user, code, address, audit).await?;
        if !self.store.record_session_proof(audit, &session.id, Some(&factor)).await? {
            return Err(self.refuse_code(user, audit).await);
        }
        self.undo_attempt(permit).await;
        Ok(())
    }

    /// Returns the value of a new cookie for forms of visitors who are not signed in.
    ///
    /// # Errors
    ///
    /// Returns an error if the system has no random bytes.
    #[expect(clippy::unused_self, reason = "callers need not know how the value is made")]
    pub(crate) fn new_visitor_cookie(&self) -> Result<SecretText, IdentityError> {
        Ok(random_text()?)
    }

    /// Returns the CSRF token for the forms of a browser with this cookie.
    pub(crate) fn form_token(&self, cookie: &str) -> String {
        let hash = self.pepper.hash_for_purpose("form", cookie.as_bytes());
        hex::encode(hash.0)
    }

    pub(super) fn new_session(
        &self,
        origin: &SignInOrigin,
        now: Timestamp,
    ) -> Result<(NewSession, SecretText), StoreError> {
        let cookie = random_text()?;
        let session = NewSession {
            id: SessionId::random()?,
            hash: self.cookie_hash(cookie.expose()),
            address: origin.address.to_string(),
            network: network(origin.address).to_string(),
            agent: origin.agent.chars().filter(|character| !character.is_control()).take(AGENT_CHARS).collect(),
            proved_at: now,
            last_use_cutoff: now - IDLE_TIMEOUT,
            opening_cutoff: now - SESSION_LIFETIME_MAX,
        };
        Ok((session, cookie))
    }

    pub(super) fn issued_session(&self, user: UserRow, new_session: &NewSession, cookie: SecretText) -> IssuedSession {
        let session = self.user_session(new_session.id.clone(), user, new_session.proved_at, cookie.expose());
        IssuedSession { session, cookie }
    }

    fn user_session(&self, id: SessionId, user: UserRow, proved_at: Timestamp, cookie: &str) -> UserSession {
        let actor = Actor::from_session(user);
        UserSession { id, actor, proved_at, csrf: self.form_token(cookie) }
    }

    fn cookie_hash(&self, cookie: &str) -> SecretHash {
        self.pepper.hash_for_purpose("session", cookie.as_bytes())
    }
}

/// True if the session has not ended and its user may sign in.
fn is_live(row: &SessionRow, user: &UserRow, now: Timestamp) -> bool {
    user.disabled_at.is_none() && is_unexpired(row, now)
}

/// True if the session has not reached its time limits.
fn is_unexpired(row: &SessionRow, now: Timestamp) -> bool {
    now < row.last_seen_at + IDLE_TIMEOUT && now < row.created_at + SESSION_LIFETIME_MAX
}

// === impl UserSession ===

impl UserSession {
    /// Sets the IP address from which the request comes.
    pub(crate) fn with_address(self, address: IpAddr) -> Self {
        Self { actor: self.actor.with_address(address), ..self }
    }

    /// Names the work of the request.
    pub(crate) fn with_work(self, work: RequestWork) -> Self {
        Self { actor: self.actor.with_work(work), ..self }
    }
}

impl fmt::Debug for UserSession {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("UserSession").field("id", &self.id).field("actor", &self.actor).finish_non_exhaustive()
    }
}
