//! The accounts of people at a provider of OpenID Connect, as they are stored.

use async_trait::async_trait;

use super::{AuditContext, SessionId, StoreError, Timestamp, UserId, UserRow};

/// The database operations on the identities of people. Every change writes its row of the audit trail with it.
#[async_trait]
pub(crate) trait IdentityStore: Send + Sync {
    /// Returns the user with this identity.
    async fn find_user_of_identity(&self, issuer: &str, subject: &str) -> Result<Option<UserRow>, StoreError>;

    /// Returns the identity of a user, if there is one.
    async fn find_identity(&self, user: &UserId) -> Result<Option<IdentityRow>, StoreError>;

    /// Connects the user of a session with an identity, in place of one of another issuer. Returns `false` and changes
    /// nothing if the user has another one of this issuer, if it is that of another user, or if the session has ended.
    async fn connect_identity(
        &self,
        audit: &AuditContext,
        of: (&UserId, &SessionId),
        identity: &NewIdentity,
    ) -> Result<bool, StoreError>;

    /// Creates a member of this name with an identity and without a password. Returns `None` and changes nothing if the
    /// name is taken, or if the identity is that of another user.
    async fn create_user_with_identity(
        &self,
        audit: &AuditContext,
        name: &str,
        identity: &NewIdentity,
    ) -> Result<Option<UserRow>, StoreError>;

    /// Removes the identity of a user, and ends all sessions of the user except `kept_session`. Returns `false` if there
    /// was none.
    async fn disconnect_identity(
        &self,
        audit: &AuditContext,
        user: &UserId,
        kept_session: Option<&SessionId>,
    ) -> Result<bool, StoreError>;
}

/// The identity of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IdentityRow {
    /// The issuer.
    pub(crate) issuer: String,
    /// The id of the person at the issuer.
    pub(crate) subject: String,
    /// The name of the person at the issuer when it was connected.
    pub(crate) name: String,
    /// The time at which it was connected.
    pub(crate) created_at: Timestamp,
}

/// An identity to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewIdentity {
    /// The issuer.
    pub(crate) issuer: String,
    /// The id of the person at the issuer.
    pub(crate) subject: String,
    /// The name of the person at the issuer.
    pub(crate) name: String,
}
