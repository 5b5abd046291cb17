//! Accounts and their tokens as they are stored, and the database operations on them. The rows are plain data; other
//! modules decide their effect.

use async_trait::async_trait;

use super::{AccountBinding, AccountId, AuditContext, SharedSlots, StoreError, Timestamp};

/// The database operations on accounts.
#[async_trait]
pub(crate) trait AccountStore: Send + Sync {
    /// Inserts or updates the row of an account of the configuration file.
    ///
    /// Returns [`StoreError::Conflict`] if an account that was added to the store has that name: neither may
    /// silently replace the other.
    async fn sync_account(&self, account: AccountSpec<'_>) -> Result<AccountRow, StoreError>;

    /// Returns every account, ordered by name.
    async fn list_accounts(&self) -> Result<Vec<AccountRow>, StoreError>;

    /// Adds an account to the store. Returns [`StoreError::Conflict`] if any account has the name.
    async fn insert_account(&self, audit: &AuditContext, account: &NewAccount) -> Result<AccountRow, StoreError>;

    /// Changes an account. Returns `None` if no account has that name, whatever the change.
    async fn change_account(
        &self,
        audit: &AuditContext,
        name: &str,
        change: AccountChange,
    ) -> Result<Option<AccountRow>, StoreError>;

    /// Deletes an account and its token, and returns `true` if it has done so. An account that is in the configuration
    /// file is not deleted: the next start would add it again, without its state.
    async fn delete_account(&self, audit: &AuditContext, name: &str) -> Result<bool, StoreError>;

    /// Marks as absent the accounts of the configuration file whose names are not in `in_file`, and returns the number
    /// of newly marked accounts.
    ///
    /// Must be called after [`AccountStore::sync_account`] for each of the names, which removes the mark.
    async fn mark_others_absent(&self, in_file: &[&str], at: Timestamp) -> Result<u64, StoreError>;

    /// Returns the bindings of these digests, whoever their owners are.
    async fn find_bindings(&self, digests: &[&str]) -> Result<Vec<AccountBinding>, StoreError>;

    /// Returns the slots of accounts, if several nodes share them; otherwise counters in memory are enough.
    fn shared_slots(&self) -> Option<&dyn SharedSlots> {
        None
    }
}

/// The database operations on the tokens of accounts, and on the claims to fetch them.
#[async_trait]
pub(crate) trait TokenStore: AccountStore {
    /// Returns the token of an account, if one is stored.
    async fn load_token(&self, account: &str) -> Result<Option<TokenRow>, StoreError>;

    /// Claims the exclusive right to fetch a token for this account until the given time at most. Returns `false` if
    /// another holder has the right at the time `now`.
    ///
    /// A holder that claims again gets the right again, so that a node does not wait for its own claim after a restart.
    async fn claim_refresh(
        &self,
        account: &str,
        holder: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<bool, StoreError>;

    /// Stores a token and releases the claim. Returns `false` and changes nothing if another holder has claimed the
    /// right in the meantime, or if the account got other credentials or was deleted. The same holder may store the
    /// token even after its claim has expired.
    async fn store_token(&self, account: &str, holder: &str, sealed: &[u8]) -> Result<bool, StoreError>;

    /// Releases the claim without a token. Does nothing if another holder has it.
    async fn release_refresh(&self, account: &str, holder: &str) -> Result<(), StoreError>;

    /// Deletes the token of an account and the claim to fetch another.
    #[cfg_attr(not(test), expect(dead_code, reason = "reserved for signing an account in again"))]
    async fn delete_token(&self, account: &str) -> Result<(), StoreError>;
}

/// An upstream account, with the state that the gateway keeps of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AccountRow {
    /// The id of the account.
    pub(crate) id: AccountId,
    /// The unique name of the account.
    pub(crate) name: String,
    /// `api_key`, `oauth` or `simulator`.
    pub(crate) kind: String,
    /// `images` or `responses`.
    pub(crate) protocol: String,
    /// `paid` or `free`.
    pub(crate) tier: String,
    /// `file` if the configuration file has the account, otherwise `store`.
    pub(crate) source: String,
    /// The time at which the account was disabled.
    pub(crate) disabled_at: Option<Timestamp>,
    /// The reason why the account was disabled, for admins and operators.
    pub(crate) disabled_reason: Option<String>,
    /// The settings of an account of the store, as JSON. They contain no secret.
    pub(crate) settings: Option<String>,
    /// The credentials of an account of the store, sealed by the vault.
    pub(crate) sealed_credentials: Option<Vec<u8>>,
    /// The end of the cooldown. It may be in the past if the cooldown was not removed yet.
    pub(crate) cooldown_until: Option<Timestamp>,
    /// The cause of the cooldown, for admins and operators.
    pub(crate) cooldown_cause: Option<String>,
    /// The time until which the running gateway uses the account only if no other is left. It has no effect after that.
    pub(crate) ejected_until: Option<Timestamp>,
    /// The time at which the last ejection began; `None` if the account was enabled since. It stays when the ejection
    /// ends, so that nodes that share the row can tell the two events apart: each node ejects for itself.
    pub(crate) ejected_since: Option<Timestamp>,
    /// The reason for the ejection, for admins and operators.
    pub(crate) ejection_reason: Option<String>,
    /// The time since which the configuration file no longer has this account. The row stays, because records name it.
    pub(crate) absent_since: Option<Timestamp>,
    /// The time at which the account was first seen.
    pub(crate) created_at: Timestamp,
}

/// An account as the configuration file describes it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AccountSpec<'a> {
    /// The name of the account.
    pub(crate) name: &'a str,
    /// `api_key`, `oauth` or `simulator`.
    pub(crate) kind: &'a str,
    /// `images` or `responses`.
    pub(crate) protocol: &'a str,
    /// `paid` or `free`.
    pub(crate) tier: &'a str,
}

/// An account that is added to the store, rather than read from the configuration file.
#[derive(Debug, Clone)]
pub(crate) struct NewAccount {
    /// The name of the account.
    pub(crate) name: String,
    /// `api_key`, `oauth` or `simulator`.
    pub(crate) kind: String,
    /// `images` or `responses`.
    pub(crate) protocol: String,
    /// `paid` or `free`.
    pub(crate) tier: String,
    /// The settings as JSON, without any secret.
    pub(crate) settings: String,
    /// The credentials, sealed by the vault.
    pub(crate) sealed_credentials: Option<Vec<u8>>,
}

/// A change of an existing account. Only [`AccountChange::Enable`] enables a disabled account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AccountChange {
    /// The account is not used until it is enabled again. If it is already disabled, its time and reason stay.
    Disable {
        /// The reason, for admins and operators.
        reason: String,
    },
    /// The account is enabled, and its cooldown and ejection end.
    Enable,
    /// The account cools down. Of two cooldowns, the later end applies, so that no process shortens another's.
    StartCooldown {
        /// The end of the cooldown.
        until: Timestamp,
        /// The cause, for admins and operators.
        cause: String,
    },
    /// Removes the cooldown only if it has ended at the time of the change: a late success must not end a cooldown that
    /// has begun since.
    EndCooldown,
    /// The running gateway ejects the account, or ends its own ejection.
    SetEjection(Option<StoredEjection>),
    /// Replaces the credentials.
    ReplaceCredentials(NewCredentials),
    /// Replaces the settings of an account of the store.
    ReplaceSettings(Box<StoredAccountSettings>),
}

/// The settings of an account of the store, without its name and kind, which never change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredAccountSettings {
    /// `images` or `responses`.
    pub(crate) protocol: String,
    /// `paid` or `free`.
    pub(crate) tier: String,
    /// The settings as JSON, without any secret.
    pub(crate) settings: String,
    /// The credentials that replace the stored ones; `None` if those stay.
    pub(crate) credentials: Option<NewCredentials>,
}

/// The credentials that replace the stored ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewCredentials {
    /// The credentials, sealed by the vault.
    pub(crate) sealed: Vec<u8>,
    /// The change of the stored token.
    pub(crate) token: TokenChange,
}

/// The change of the stored token of an account that gets new credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TokenChange {
    /// The token is deleted, because it was fetched with other credentials. A token that is being fetched with them is not
    /// stored.
    Delete,
    /// The token stays, and a token that is being fetched is stored.
    Keep,
    /// Like [`TokenChange::Keep`], but the token is replaced, unless a newer one has been stored in the meantime.
    Replace {
        /// The token that was stored, sealed by the vault.
        before: Vec<u8>,
        /// The token that replaces it, sealed by the vault.
        after: Vec<u8>,
    },
}

/// The ejection of an account: the running gateway uses it only if no other is left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredEjection {
    /// The time at which the ejection began.
    pub(crate) since: Timestamp,
    /// The time at which the ejection ends, unless it is changed earlier.
    pub(crate) until: Timestamp,
    /// The reason for the ejection, for admins and operators.
    pub(crate) reason: String,
}

/// The token of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TokenRow {
    /// The token, sealed by the vault.
    pub(crate) sealed_token: Vec<u8>,
    /// The time at which the token was stored.
    pub(crate) updated_at: Timestamp,
}
