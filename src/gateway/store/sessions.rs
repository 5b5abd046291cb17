//! The sessions of people who are signed in, as they are stored.

use async_trait::async_trait;

use super::{AuditContext, FactorUse, PasswordHash, SecretHash, SessionId, StoreError, Timestamp, UserId, UserRow};

/// The database operations on sessions. Every change writes its row of the audit trail with it.
#[async_trait]
pub(crate) trait SessionStore: Send + Sync {
    /// Opens a session for a user with this proof. Returns `false` and changes nothing if the password has changed since,
    /// the code was used before, the user has a second factor and the proof has none, or the user is disabled.
    async fn open_session(
        &self,
        audit: &AuditContext,
        user: &UserId,
        proof: &SignInProof,
        session: &NewSession,
    ) -> Result<bool, StoreError>;

    /// Records a refused sign-in in the audit trail, unless it has the maximum number of such rows of the last 24 hours.
    /// The user is `None` if no user has the name that was entered: that text may be a password and is not stored.
    async fn record_refused_sign_in(&self, audit: &AuditContext, user: Option<&UserRow>) -> Result<(), StoreError>;

    /// Returns the session with that hash, and its user. The caller must check whether it is still valid.
    async fn find_session(&self, hash: &SecretHash) -> Result<Option<(SessionRow, UserRow)>, StoreError>;

    /// Stores the time of the last use of a session.
    async fn record_session_use(&self, session: &SessionId, at: Timestamp) -> Result<(), StoreError>;

    /// Returns the sessions of a user, newest first.
    async fn list_sessions(&self, user: &UserId) -> Result<Vec<SessionRow>, StoreError>;

    /// Stores that the user of a session has proved who they are, with this use of the second factor if there is one.
    /// Returns `false` and changes nothing if the session has ended, the code was used before, or the user has a second
    /// factor that was not used.
    async fn record_session_proof(
        &self,
        audit: &AuditContext,
        session: &SessionId,
        factor: Option<&FactorUse>,
    ) -> Result<bool, StoreError>;

    /// Ends one session of this user. Returns `false` if the user has no such session.
    async fn end_session(&self, audit: &AuditContext, user: &UserId, session: &SessionId) -> Result<bool, StoreError>;

    /// Ends every session of a user, except `kept_session` if it is given, and returns their number.
    async fn end_sessions(
        &self,
        audit: &AuditContext,
        user: &UserId,
        kept_session: Option<&SessionId>,
    ) -> Result<u64, StoreError>;

    /// Returns true if this network is among the latest ones from which this user has signed in.
    async fn has_signed_in_from(&self, user: &UserId, network: &str) -> Result<bool, StoreError>;
}

/// The proof with which a session is opened.
#[derive(Debug, Clone, Default)]
pub(crate) struct SignInProof {
    /// The hash against which the password was checked; `None` if the user has none.
    pub(crate) password: Option<PasswordHash>,
    /// The use of the second factor, if the user has one.
    pub(crate) factor: Option<FactorUse>,
    /// The issuer and the subject, if a provider has identified the user.
    pub(crate) identity: Option<(String, String)>,
}

/// A session to be opened.
#[derive(Debug, Clone)]
pub(crate) struct NewSession {
    /// The id of the session.
    pub(crate) id: SessionId,
    /// The hash of the cookie's secret.
    pub(crate) hash: SecretHash,
    /// The network address of the sign-in.
    pub(crate) address: String,
    /// The network of that address. Opening the session adds it to the networks from which the user has signed in.
    pub(crate) network: String,
    /// The user agent of the browser.
    pub(crate) agent: String,
    /// The time at which the user has entered their credentials.
    pub(crate) proved_at: Timestamp,
    /// Sessions that were last used before this time have expired. Opening this session deletes them.
    pub(crate) last_use_cutoff: Timestamp,
    /// Sessions that were opened before this time have expired. Opening this session deletes them.
    pub(crate) opening_cutoff: Timestamp,
}

/// A session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionRow {
    /// The id of the session. It gives no access.
    pub(crate) id: SessionId,
    /// The user of the session.
    pub(crate) user: UserId,
    /// The time of the sign-in.
    pub(crate) created_at: Timestamp,
    /// The time of the last use, to about a minute.
    pub(crate) last_seen_at: Timestamp,
    /// The last time at which the user has proved who they are: at the sign-in, or later.
    pub(crate) proved_at: Timestamp,
    /// The network address of the sign-in.
    pub(crate) address: String,
    /// The user agent of the browser.
    pub(crate) agent: String,
}
