//! People, what lets them in, and the trail of what they do, as they are stored.

use std::fmt;
use std::str::FromStr;

use async_trait::async_trait;

use super::acts::UnknownWord;
use super::{
    Act, AuditFilter, AuditRow, GroupId, KeyRow, Page, PublicId, SessionId, StoreError, Timestamp, TokenId, UserId,
};

/// What the rooms ask of a database about people. Every change writes its row of the audit trail with it.
#[async_trait]
pub(crate) trait PeopleStore: Send + Sync {
    /// The user of that name, made as a member without a password if there is none.
    async fn ensure_user(&self, act: &Act, name: &str) -> Result<UserRow, StoreError>;

    /// The group of that name, made if there is none.
    async fn ensure_group(&self, act: &Act, name: &str) -> Result<GroupRow, StoreError>;

    /// The user with that id or name.
    async fn find_user(&self, handle: &str) -> Result<Option<UserRow>, StoreError>;

    /// The hash of a user's password, if they have one.
    async fn password_of(&self, user: &UserId) -> Result<Option<PasswordHash>, StoreError>;

    /// A part of the users, newest first.
    async fn page_users(&self, filter: &UserFilter) -> Result<Page<UserRow>, StoreError>;

    /// Adds a user, and the link that lets them choose a password. [`StoreError::Conflict`] where the name is taken.
    async fn invite_user(&self, act: &Act, user: &NewUser, link: &NewLink) -> Result<UserChanged, StoreError>;

    /// Makes these changes to a user, all of them or none.
    async fn change_user(&self, act: &Act, handle: &str, changes: &[UserChange]) -> Result<UserChanged, StoreError>;

    /// Gives a user another password, and ends every session of theirs but this one.
    async fn set_password(
        &self,
        act: &Act,
        user: &UserId,
        password: &PasswordHash,
        keep: &SessionId,
    ) -> Result<(), StoreError>;

    /// Whether an admin has ever had a password.
    async fn is_set_up(&self) -> Result<bool, StoreError>;

    /// Makes the link that makes the first admin, in place of any former one. False where there is an admin.
    async fn make_setup_link(&self, act: &Act, link: &NewLink) -> Result<bool, StoreError>;

    /// Makes a link for a new password, in place of any former one of that user. False where there is no such user, or
    /// they are disabled.
    async fn make_reset_link(&self, act: &Act, user: &UserId, link: &NewLink) -> Result<bool, StoreError>;

    /// The link with that hash, where it is good at that moment.
    async fn find_link(&self, hash: &SecretHash, now: Timestamp) -> Result<Option<LinkRow>, StoreError>;

    /// Uses a link up: sets the password, ends every former session, opens this one. `None`, and nothing changed, where the
    /// link is not good at the moment of the act.
    async fn redeem(&self, act: &Act, redeemed: &Redeemed) -> Result<Option<UserRow>, StoreError>;

    /// Opens a session for somebody who has shown the password that has this hash. False, and nothing changed, where it is
    /// another one by now, or they are disabled.
    async fn open_session(
        &self,
        act: &Act,
        user: &UserId,
        password: &PasswordHash,
        session: &NewSession,
    ) -> Result<bool, StoreError>;

    /// Notes that somebody was not let in. The user is `None` where nobody has that name: what was typed in its place may
    /// be a password, and is not kept.
    async fn note_refusal(&self, act: &Act, user: Option<&UserRow>) -> Result<(), StoreError>;

    /// The session with that hash, and whose it is. Whether it is still good is not for the store to say.
    async fn find_session(&self, hash: &SecretHash) -> Result<Option<(SessionRow, UserRow)>, StoreError>;

    /// Notes that a session was used.
    async fn touch_session(&self, session: &SessionId, at: Timestamp) -> Result<(), StoreError>;

    /// The sessions of a user, newest first.
    async fn list_sessions(&self, user: &UserId) -> Result<Vec<SessionRow>, StoreError>;

    /// Ends one session.
    async fn end_session(&self, act: &Act, session: &SessionId) -> Result<(), StoreError>;

    /// Ends every session of a user, and says how many there were.
    async fn end_sessions(&self, act: &Act, user: &UserId) -> Result<u64, StoreError>;

    /// Whether this user has signed in from there before.
    async fn knows_address(&self, user: &UserId, address: &str) -> Result<bool, StoreError>;

    /// Adds an admin token.
    async fn insert_admin_token(&self, act: &Act, token: &AdminTokenRow, hash: &SecretHash) -> Result<(), StoreError>;

    /// The admin token with that public id, its hash, and whose it is.
    async fn find_admin_token(
        &self,
        public_id: &PublicId,
    ) -> Result<Option<(AdminTokenRow, SecretHash, UserRow)>, StoreError>;

    /// Notes that an admin token was used.
    async fn touch_admin_token(&self, token: &TokenId, at: Timestamp) -> Result<(), StoreError>;

    /// The admin tokens of a user or of everybody, newest first.
    async fn list_admin_tokens(&self, owner: Option<&UserId>) -> Result<Vec<AdminTokenRow>, StoreError>;

    /// Deletes the admin token with that id or public id; `None` where there is none or it is somebody else's.
    async fn delete_admin_token(
        &self,
        act: &Act,
        handle: &str,
        owner: Option<&UserId>,
    ) -> Result<Option<AdminTokenRow>, StoreError>;

    /// Makes a group with these settings; `None` where there is one of that name.
    async fn create_group(&self, act: &Act, name: &str, policy: Option<&str>) -> Result<Option<GroupRow>, StoreError>;

    /// Gives the group with that id or name these settings in place of its former ones; `None` where there is none.
    async fn change_group(&self, act: &Act, handle: &str, policy: &str) -> Result<Option<GroupRow>, StoreError>;

    /// Every group, by name, each with its settings: `{}` if it has none.
    async fn group_policies(&self) -> Result<Vec<(String, String)>, StoreError>;

    /// Every group, by name.
    async fn list_groups(&self) -> Result<Vec<GroupRow>, StoreError>;

    /// Deletes the group with that id or name.
    async fn delete_group(&self, act: &Act, handle: &str) -> Result<GroupDeleted, StoreError>;

    /// A part of the trail, newest first.
    async fn page_audit(&self, filter: &AuditFilter) -> Result<Page<AuditRow>, StoreError>;
}

/// A person or a program that keys belong to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UserRow {
    /// Its id.
    pub(crate) id: UserId,
    /// Its name, unique.
    pub(crate) name: String,
    /// What they may do.
    pub(crate) role: Role,
    /// The names of the groups in which they may make keys.
    pub(crate) groups: Vec<String>,
    /// Whether they can sign in.
    pub(crate) has_password: bool,
    /// When it was made.
    pub(crate) created_at: Timestamp,
    /// Since when it has been disabled.
    pub(crate) disabled_at: Option<Timestamp>,
    /// When they last signed in.
    pub(crate) last_sign_in_at: Option<Timestamp>,
}

/// What somebody may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Everything.
    Admin,
    /// What is their own.
    Member,
}

/// Keys that are served alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupRow {
    /// Its id.
    pub(crate) id: GroupId,
    /// Its name, unique.
    pub(crate) name: String,
    /// Its settings, as a JSON object with the names of `[[groups]]`; `None` where nobody has set any here.
    pub(crate) policy: Option<String>,
    /// When it was made.
    pub(crate) created_at: Timestamp,
    /// How many keys are in it.
    pub(crate) keys: u64,
}

/// The slow hash of a password, in the form that names its parameters.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PasswordHash(pub(crate) String);

/// The keyed hash of a long random text: a link, a session, an admin token.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SecretHash(pub(crate) [u8; 32]);

/// A user to be added.
#[derive(Debug, Clone)]
pub(crate) struct NewUser {
    /// The name.
    pub(crate) name: String,
    /// What they may do.
    pub(crate) role: Role,
    /// The names of the groups in which they may make keys. Each must exist.
    pub(crate) groups: Vec<String>,
}

/// What can be done to a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UserChange {
    /// Another role.
    Role(Role),
    /// All groups in which the user may make keys. The user's keys in other groups are locked.
    Groups(Vec<String>),
    /// They cannot sign in, their sessions end, and their keys are refused.
    Disable,
    /// They can again.
    Enable,
}

/// What became of a change of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UserChanged {
    /// The change was made, and has disabled these keys.
    Done(UserRow, Vec<KeyRow>),
    /// There is no such user.
    Unknown,
    /// Nobody would be left who can do it again. Nothing was changed.
    LastAdmin,
    /// There is no group of that name. Nothing was changed.
    NoGroup(String),
}

/// What became of a group that was to be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GroupDeleted {
    /// It is gone.
    Done(GroupRow),
    /// There is none.
    Unknown,
    /// Keys are in it. Nothing was changed.
    InUse(GroupRow),
}

/// Which users are wanted, newest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct UserFilter {
    /// A part of the name.
    pub(crate) search: Option<String>,
    /// What they may do.
    pub(crate) role: Option<Role>,
    /// Only users older than this one.
    pub(crate) before: Option<UserId>,
    /// How many at most.
    pub(crate) limit: u32,
}

/// What a one-time link is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Making the first admin.
    Setup,
    /// The first password of somebody who was invited.
    Invitation,
    /// Another password.
    Reset,
}

/// A link to be stored.
#[derive(Debug, Clone)]
pub(crate) struct NewLink {
    /// The hash of its token.
    pub(crate) hash: SecretHash,
    /// From when on it is no longer good.
    pub(crate) expires_at: Timestamp,
}

/// A link that is good.
#[derive(Debug, Clone)]
pub(crate) struct LinkRow {
    /// What it is for.
    pub(crate) purpose: Purpose,
    /// For whom; nobody yet where it makes the first admin.
    pub(crate) user: Option<UserRow>,
}

/// A link that is used now.
#[derive(Debug, Clone)]
pub(crate) struct Redeemed {
    /// The hash of its token.
    pub(crate) link: SecretHash,
    /// The name of the first admin; it must be there for a link that makes one, and for no other.
    pub(crate) name: Option<String>,
    /// The new password.
    pub(crate) password: PasswordHash,
    /// The session that begins with it.
    pub(crate) session: NewSession,
}

/// A session to be opened.
#[derive(Debug, Clone)]
pub(crate) struct NewSession {
    /// Its id.
    pub(crate) id: SessionId,
    /// The hash of what the cookie holds.
    pub(crate) hash: SecretHash,
    /// From where.
    pub(crate) address: String,
    /// What the browser calls itself.
    pub(crate) agent: String,
    /// Sessions that were last used before this moment are over.
    pub(crate) idle_since: Timestamp,
    /// Sessions that were opened before this moment are over.
    pub(crate) oldest: Timestamp,
}

/// A session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionRow {
    /// Its id, which opens nothing.
    pub(crate) id: SessionId,
    /// Whose it is.
    pub(crate) user: UserId,
    /// When they signed in.
    pub(crate) created_at: Timestamp,
    /// When it was last used, to about a minute.
    pub(crate) last_seen_at: Timestamp,
    /// From where they signed in.
    pub(crate) address: String,
    /// What the browser calls itself.
    pub(crate) agent: String,
}

/// An admin token. The secret itself is nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AdminTokenRow {
    /// Its id.
    pub(crate) id: TokenId,
    /// The visible part of the secret, unique.
    pub(crate) public_id: PublicId,
    /// What its owner calls it.
    pub(crate) name: String,
    /// Whose it is.
    pub(crate) user: UserId,
    /// The name of the user.
    pub(crate) user_name: String,
    /// When it was made.
    pub(crate) created_at: Timestamp,
    /// From when on it is no longer good.
    pub(crate) expires_at: Option<Timestamp>,
    /// When it was last used, to about a minute.
    pub(crate) last_used_at: Option<Timestamp>,
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[redacted]")
    }
}

impl fmt::Debug for SecretHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[redacted]")
    }
}

// === impl UserRow ===

impl UserRow {
    /// The row of [`UserId::NOBODY`], the owner of keys that belong to no person yet.
    pub(crate) fn nobody() -> Self {
        Self {
            id: UserId::from(UserId::NOBODY),
            name: String::new(),
            role: Role::Member,
            groups: Vec::new(),
            has_password: false,
            created_at: Timestamp::now(),
            disabled_at: None,
            last_sign_in_at: None,
        }
    }

    /// The name, if it is a person's.
    pub(crate) fn shown_name(&self) -> Option<String> {
        (!self.id.is_nobody()).then(|| self.name.clone())
    }
}

// === impl Role ===

impl Role {
    /// The word for it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Member => "member",
        }
    }
}

impl FromStr for Role {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        [Self::Admin, Self::Member].into_iter().find(|role| role.as_str() == text).ok_or(UnknownWord)
    }
}

// === impl Purpose ===

impl Purpose {
    /// The word for it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Setup => "setup",
            Self::Invitation => "invitation",
            Self::Reset => "reset",
        }
    }
}

impl FromStr for Purpose {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        let all = [Self::Setup, Self::Invitation, Self::Reset];
        all.into_iter().find(|purpose| purpose.as_str() == text).ok_or(UnknownWord)
    }
}
