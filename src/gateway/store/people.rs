//! People, their credentials, and the audit trail of their actions, as they are stored.

use async_trait::async_trait;

use super::{
    AuditContext, AuditFilter, AuditRow, GroupId, IdentityStore, KeyRow, ListPage, NewSession, PasswordHash, PublicId,
    SecondFactorStore, SecretHash, SessionId, SessionStore, SharedAttempts, StoreError, Timestamp, TokenId, UserId,
    UserRole, UserSort,
};
use crate::words::word_enum;

/// The database operations on users.
#[async_trait]
pub(crate) trait UserStore: Send + Sync {
    /// Returns the user of that name. If there is none, creates it as a member without a password.
    async fn ensure_user(&self, audit: &AuditContext, name: &str) -> Result<UserRow, StoreError>;

    /// Returns the user with that id or name.
    async fn find_user(&self, handle: &str) -> Result<Option<UserRow>, StoreError>;

    /// Returns the hash of a user's password, if the user has one.
    async fn password_hash(&self, user: &UserId) -> Result<Option<PasswordHash>, StoreError>;

    /// Returns a page of the users, newest first.
    async fn list_users_page(&self, filter: &UserFilter) -> Result<ListPage<UserRow>, StoreError>;

    /// Adds a user, and the link to choose a password. Returns [`StoreError::Conflict`] if the name is taken.
    async fn invite_user(
        &self,
        audit: &AuditContext,
        user: &NewUser,
        link: &NewLink,
    ) -> Result<UserChangeOutcome, StoreError>;

    /// Makes these changes to a user, all of them or none.
    async fn change_user(
        &self,
        audit: &AuditContext,
        handle: &str,
        changes: &[UserChange],
    ) -> Result<UserChangeOutcome, StoreError>;

    /// Replaces the password of a user, deletes the user's links, and ends all of the user's sessions except
    /// `kept_session`.
    async fn set_password(
        &self,
        audit: &AuditContext,
        user: &UserId,
        password: &PasswordHash,
        kept_session: &SessionId,
    ) -> Result<(), StoreError>;
}

/// The database operations on groups.
#[async_trait]
pub(crate) trait GroupStore: Send + Sync {
    /// Returns the group of that name. If there is none, creates it.
    async fn ensure_group(&self, audit: &AuditContext, name: &str) -> Result<GroupRow, StoreError>;

    /// Makes a group with these settings. Returns `None` if the name is taken.
    async fn create_group(
        &self,
        audit: &AuditContext,
        name: &str,
        policy: Option<&str>,
    ) -> Result<Option<GroupRow>, StoreError>;

    /// Replaces the settings of the group with that id or name. Returns `None` if there is none.
    async fn change_group(
        &self,
        audit: &AuditContext,
        handle: &str,
        policy: &str,
    ) -> Result<Option<GroupRow>, StoreError>;

    /// Returns the name and the settings of every group, ordered by name. The settings are `{}` if none were set.
    async fn group_policies(&self) -> Result<Vec<(String, String)>, StoreError>;

    /// Returns every group, ordered by name.
    async fn list_groups(&self) -> Result<Vec<GroupRow>, StoreError>;

    /// Deletes the group with that id or name.
    async fn delete_group(&self, audit: &AuditContext, handle: &str) -> Result<GroupDeletionOutcome, StoreError>;
}

/// The database operations on one-time links.
#[async_trait]
pub(crate) trait LinkStore: Send + Sync {
    /// Returns true if an admin has ever had a password.
    async fn is_set_up(&self) -> Result<bool, StoreError>;

    /// Creates the link for the first admin, in place of any former one. Returns `false` if an admin has ever had a
    /// password.
    async fn make_setup_link(&self, audit: &AuditContext, link: &NewLink) -> Result<bool, StoreError>;

    /// Creates a link for a new password, in place of any former link of that user. Returns `false` if there is no such
    /// user, or the user is disabled.
    async fn make_reset_link(&self, audit: &AuditContext, user: &UserId, link: &NewLink) -> Result<bool, StoreError>;

    /// Returns the link with that hash, if it is valid at that time.
    async fn find_link(&self, hash: &SecretHash, now: Timestamp) -> Result<Option<LinkRow>, StoreError>;

    /// Consumes a link: sets the password, ends every session of the user, and opens the given session, unless the user
    /// has a second factor. Returns `None` and changes nothing if the link is no longer valid, or a name is given or missing contrary to its purpose.
    async fn redeem_link(
        &self,
        audit: &AuditContext,
        redemption: &LinkRedemption,
    ) -> Result<Option<UserRow>, StoreError>;
}

/// The database operations on admin tokens.
#[async_trait]
pub(crate) trait AdminTokenStore: Send + Sync {
    /// Adds an admin token, unless its user has this number of tokens already. Tokens that have ended are removed first.
    /// Returns `false` if the token was not added.
    async fn insert_admin_token(
        &self,
        audit: &AuditContext,
        token: &AdminTokenRow,
        hash: &SecretHash,
        max_tokens: u32,
    ) -> Result<bool, StoreError>;

    /// Returns the admin token with that public id, its hash, and its user. The token of a user whom an admin has disabled
    /// since ends those that were made with it: they are not found.
    async fn find_admin_token(
        &self,
        public_id: &PublicId,
    ) -> Result<Option<(AdminTokenRow, SecretHash, UserRow)>, StoreError>;

    /// Stores the time of the last use of an admin token.
    async fn record_admin_token_use(&self, token: &TokenId, at: Timestamp) -> Result<(), StoreError>;

    /// Returns the admin tokens of one user or of all users, newest first.
    async fn list_admin_tokens(&self, owner: Option<&UserId>) -> Result<Vec<AdminTokenRow>, StoreError>;

    /// Deletes the admin token with that id or public id, and the tokens that were made with it. Returns `None` if there
    /// is none or it belongs to another user.
    async fn delete_admin_token(
        &self,
        audit: &AuditContext,
        handle: &str,
        owner: Option<&UserId>,
    ) -> Result<Option<AdminTokenRow>, StoreError>;
}

/// The database operations on people. Every change writes its row of the audit trail with it.
#[async_trait]
pub(crate) trait PeopleStore:
    AdminTokenStore + GroupStore + IdentityStore + LinkStore + SecondFactorStore + SessionStore + UserStore
{
    /// Returns the password attempts on all nodes, if several nodes share them.
    fn shared_attempts(&self) -> Option<&dyn SharedAttempts>;

    /// Returns a page of the audit trail, newest first.
    async fn list_audit_page(&self, filter: &AuditFilter) -> Result<ListPage<AuditRow>, StoreError>;
}

/// A user. A user whom a command has created as the owner of keys has no password and cannot sign in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UserRow {
    /// The id of the user.
    pub(crate) id: UserId,
    /// The unique name of the user.
    pub(crate) name: String,
    /// The role of the user.
    pub(crate) role: UserRole,
    /// The names of the groups in which the user may make keys.
    pub(crate) groups: Vec<String>,
    /// True if the user has a password.
    pub(crate) has_password: bool,
    /// True if the user must enter a code after the password.
    pub(crate) has_second_factor: bool,
    /// True if the user can sign in with a provider of OpenID Connect.
    pub(crate) has_identity: bool,
    /// The time at which the user was made.
    pub(crate) created_at: Timestamp,
    /// The time at which the user was disabled.
    pub(crate) disabled_at: Option<Timestamp>,
    /// The time of the last sign-in.
    pub(crate) last_sign_in_at: Option<Timestamp>,
    /// The limits of all keys of the user together, as a JSON object; `None` if the user has none.
    pub(crate) limits: Option<String>,
}

/// A group of keys with the same accounts, models and policies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupRow {
    /// The id of the group.
    pub(crate) id: GroupId,
    /// The unique name of the group.
    pub(crate) name: String,
    /// The settings of the group, as a JSON object with the names of `[[groups]]`; `None` if the store has none.
    pub(crate) policy: Option<String>,
    /// The time at which the group was made.
    pub(crate) created_at: Timestamp,
    /// The number of keys in the group.
    pub(crate) key_count: u64,
}

/// The data of a user to be added.
#[derive(Debug, Clone)]
pub(crate) struct NewUser {
    /// The name of the user.
    pub(crate) name: String,
    /// The role of the user.
    pub(crate) role: UserRole,
    /// The names of the groups in which the user may make keys. Each must exist.
    pub(crate) groups: Vec<String>,
    /// The limits of the user, as a JSON object that was checked.
    pub(crate) limits: Option<String>,
}

/// A change of an existing user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UserChange {
    /// Sets the role.
    Role(UserRole),
    /// Sets all groups in which the user may make keys. The user's keys in the groups that the user leaves
    /// are locked.
    Groups(Vec<String>),
    /// The user cannot sign in, all sessions end, and the keys are refused.
    Disable,
    /// The user can sign in again, and the keys are no longer refused for this reason.
    Enable,
    /// The user gets these limits, as a JSON object that was checked; with `None`, the user has none.
    Limit(Option<String>),
}

/// The result of a change of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UserChangeOutcome {
    /// The changes were made, and have locked these keys.
    Done(UserRow, Vec<KeyRow>),
    /// There is no such user.
    Unknown,
    /// Nothing was changed: no admin who can sign in would be left.
    LastAdmin,
    /// Nothing was changed: there is no group of that name.
    UnknownGroup(String),
}

/// The result of the deletion of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GroupDeletionOutcome {
    /// The group was deleted.
    Done(GroupRow),
    /// There is no such group.
    Unknown,
    /// Nothing was changed: the group still has keys.
    InUse(GroupRow),
}

/// A filter for users, and their order.
#[derive(Debug, Clone, Default)]
pub(crate) struct UserFilter {
    /// A part of the name.
    pub(crate) search: Option<String>,
    /// The name of a group in which the users may have keys.
    pub(crate) group: Option<String>,
    /// The role of the users.
    pub(crate) role: Option<UserRole>,
    /// The order of the users.
    pub(crate) sort: Option<UserSort>,
    /// Only users after the user with this id, in this order.
    pub(crate) before: Option<UserId>,
    /// The most users to return.
    pub(crate) limit: u32,
}

word_enum! {
    /// The purpose of a one-time link.
    pub(crate) enum OneTimeLinkPurpose {
        /// To create the first admin.
        Setup = "setup",
        /// To choose the first password of an invited user.
        Invitation = "invitation",
        /// To choose a new password.
        Reset = "reset",
    }
}

/// A link to be stored.
#[derive(Debug, Clone)]
pub(crate) struct NewLink {
    /// The hash of the link's token.
    pub(crate) hash: SecretHash,
    /// The time from which the link is no longer valid.
    pub(crate) expires_at: Timestamp,
}

/// A valid link.
#[derive(Debug, Clone)]
pub(crate) struct LinkRow {
    /// The purpose of the link.
    pub(crate) purpose: OneTimeLinkPurpose,
    /// The user of the link; `None` if the link creates the first admin.
    pub(crate) user: Option<UserRow>,
}

/// The use of a link.
#[derive(Debug, Clone)]
pub(crate) struct LinkRedemption {
    /// The hash of the link's token.
    pub(crate) link: SecretHash,
    /// The name of the first admin. It must be given for a link of that purpose, and for no other.
    pub(crate) name: Option<String>,
    /// The new password.
    pub(crate) password: PasswordHash,
    /// The session that the use of the link opens.
    pub(crate) session: NewSession,
}

/// An admin token. The secret itself is stored nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AdminTokenRow {
    /// The id of the token.
    pub(crate) id: TokenId,
    /// The visible part of the secret, unique.
    pub(crate) public_id: PublicId,
    /// The name that the owner gave the token.
    pub(crate) name: String,
    /// The owner of the token.
    pub(crate) user: UserId,
    /// The name of the user.
    pub(crate) user_name: String,
    /// The time at which the token was made.
    pub(crate) created_at: Timestamp,
    /// The time from which the token is no longer valid.
    pub(crate) expires_at: Option<Timestamp>,
    /// The time of the last use, to about a minute.
    pub(crate) last_used_at: Option<Timestamp>,
    /// The admin token with which this one was made.
    pub(crate) parent: Option<TokenId>,
}

// === impl UserRow ===

impl UserRow {
    /// The row of [`UserId::NOBODY`], the owner of keys that belong to no person yet.
    pub(crate) fn nobody() -> Self {
        Self {
            id: UserId::from(UserId::NOBODY),
            name: String::new(),
            role: UserRole::Member,
            groups: Vec::new(),
            has_password: false,
            has_second_factor: false,
            has_identity: false,
            created_at: Timestamp::now(),
            disabled_at: None,
            last_sign_in_at: None,
            limits: None,
        }
    }

    /// Returns the name, if it belongs to a person.
    pub(crate) fn display_name(&self) -> Option<String> {
        (!self.id.is_nobody()).then(|| self.name.clone())
    }
}
