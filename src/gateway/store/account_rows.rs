//! Rows of accounts. They are plain data; other modules decide their effect.

use super::{AccountId, Timestamp};

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
    /// The time at which the ejection began.
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
    /// The running gateway ejects the account, or ends its ejection.
    SetEjection(Option<StoredEjection>),
    /// Replaces the credentials. The token that was fetched with the old ones is deleted.
    ReplaceCredentials(Vec<u8>),
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
