//! Turns the account rows of the store into members of the pool.
//!
//! Accounts of the configuration file come with the configuration, and the store adds only their state. Accounts of the
//! store are added and removed while the server runs.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use chrono::Utc;
use tokio::time::Instant;

use super::account::UpstreamAccount;
use super::pool::{AccountPool, AccountPoolState};
use super::pool_member::{AccountRowContent, PoolMember};
use crate::gateway::config;
use crate::gateway::store::{AccountRow, Timestamp, Vault};

/// The value of `source` for an account of the store.
const STORE_SOURCE: &str = "store";

/// The state of an account that other processes can change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StoredAccountState {
    pub(super) disabled_reason: Option<String>,
    pub(super) cooling_until: Option<Timestamp>,
    pub(super) cooling_cause: Option<String>,
    /// The start of the last ejection by any node; `None` if the account was enabled since.
    pub(super) ejected_since: Option<Timestamp>,
}

/// The account rows of the store, and the accounts that were built from the new and changed rows.
pub(super) struct AccountRows {
    rows: Vec<AccountRow>,
    built: HashMap<String, Arc<UpstreamAccount>>,
    unusable: HashMap<String, AccountRowContent>,
}

/// The state of the pool before a read of the store. A change that this process makes after the snapshot is newer than
/// the result of the read.
pub(super) struct PoolSnapshot {
    /// The id and version of each account that had no unsaved change.
    versions: Vec<(u64, u64)>,
    stored_rows: HashMap<String, Option<AccountRowContent>>,
}

/// Returns the context that the credentials of an account of the store are sealed with. The credentials of another
/// account cannot be opened with it.
pub(crate) fn credentials_context(account: &str) -> String {
    format!("credentials of account {account}")
}

// === impl PoolSnapshot ===

impl PoolSnapshot {
    pub(super) fn from_pool(pool: &AccountPool) -> Self {
        let state = pool.lock();
        let known = state.members.iter().map(|member| (member.account.name().to_owned(), member.stored_row.clone()));
        let unusable = state.unusable_rows.iter().map(|(name, row)| (name.clone(), Some(row.clone())));
        Self {
            versions: state.members.iter().filter_map(PoolMember::saved_version).collect(),
            stored_rows: known.chain(unusable).collect(),
        }
    }
}

// === impl AccountRows ===

impl AccountRows {
    /// Builds the accounts of new and changed rows. A row that cannot be used is logged once, and the account that is
    /// in use stays unchanged.
    pub(super) fn build(rows: Vec<AccountRow>, before: &PoolSnapshot, vault: &Vault) -> Self {
        let mut result = Self { rows: Vec::new(), built: HashMap::new(), unusable: HashMap::new() };
        for row in rows {
            result.add(row, before, vault);
        }
        result
    }

    fn add(&mut self, row: AccountRow, before: &PoolSnapshot, vault: &Vault) {
        let content = AccountRowContent::from_row(&row);
        let known = before.stored_rows.get(&row.name);
        // The account is in the configuration file, or has not changed.
        let is_known = known.is_some_and(|known| known.as_ref().is_none_or(|known| *known == content));
        if row.source == STORE_SOURCE && !is_known {
            match account_from_row(&row, vault) {
                Ok(account) => drop(self.built.insert(row.name.clone(), Arc::new(UpstreamAccount::new(&account)))),
                Err(reason) => {
                    tracing::error!(account = row.name, reason, "an account of the store cannot be used");
                    self.unusable.insert(row.name.clone(), content);
                }
            }
        }
        self.rows.push(row);
    }

    /// Adds, changes and removes accounts of the pool according to the rows.
    pub(super) fn apply(self, pool: &Arc<AccountPool>, before: &PoolSnapshot) {
        let (now, utc_now) = (Instant::now(), Utc::now());
        let mut state = pool.lock();
        let is_stored = |name: &str| self.rows.iter().any(|row| row.source == STORE_SOURCE && row.name == name);
        state.members.retain(|member| member.stored_row.is_none() || is_stored(member.account.name()));
        // The default simulator is removed for good with the first account of the store. Even if that account is
        // deleted again, a caller who has received images must not get a test image.
        if self.rows.iter().any(|row| row.source == STORE_SOURCE) {
            state.members.retain(|member| !member.account.is_implicit());
        }
        for row in &self.rows {
            let built = self.built.get(&row.name);
            let is_new =
                built.is_some_and(|account| insert_or_replace(&mut state, account, AccountRowContent::from_row(row)));
            let Some(member) = state.members.iter_mut().find(|member| member.account.name() == row.name) else {
                continue;
            };
            // If this process has changed the state since the snapshot, or has not stored it yet, the state is newer
            // than the row and stays.
            if is_new || member.saved_version().is_some_and(|mark| before.versions.contains(&mark)) {
                member.apply_stored_state(&StoredAccountState::from_row(row), now, utc_now);
            }
        }
        state.unusable_rows.retain(|name, unusable| {
            self.rows.iter().any(|row| row.name == *name && AccountRowContent::from_row(row) == *unusable)
        });
        state.unusable_rows.extend(self.unusable);
        state.update_queue(pool, now);
    }
}

/// Inserts an account. An existing one keeps its calls in flight and its cooldown. Returns true if it is new.
fn insert_or_replace(state: &mut AccountPoolState, account: &Arc<UpstreamAccount>, row: AccountRowContent) -> bool {
    let found = state.members.iter_mut().find(|member| member.account.name() == account.name());
    if let Some(member) = found {
        member.replace_account(Arc::clone(account));
        member.stored_row = Some(row);
        return false;
    }
    state.add_member(Arc::clone(account), Some(row));
    true
}

/// Builds the account of a row, or returns the reason why it cannot be built. The result contains no sealed value.
pub(crate) fn account_from_row(row: &AccountRow, vault: &Vault) -> Result<config::AccountConfig, String> {
    let secrets = secrets_from_row(row, vault)?;
    let settings = row.settings.as_deref().unwrap_or("{}");
    // The addresses were checked when they were entered, and the transport checks those that it connects to.
    config::account_from_json(&row.name, settings, secrets, true).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        problems.join("; ")
    })
}

/// Returns the secrets of a row by setting, or the reason why they cannot be read.
pub(crate) fn secrets_from_row(row: &AccountRow, vault: &Vault) -> Result<BTreeMap<String, String>, String> {
    let Some(sealed) = &row.sealed_credentials else { return Ok(BTreeMap::new()) };
    let plain = vault.open(&credentials_context(&row.name), sealed).map_err(|error| error.to_string())?;
    serde_json::from_slice(&plain).map_err(|_| "its stored credentials do not have the format of imagate".to_owned())
}

// === impl AccountRowContent ===

impl AccountRowContent {
    fn from_row(row: &AccountRow) -> Self {
        Self { settings: row.settings.clone(), sealed: row.sealed_credentials.clone() }
    }
}

// === impl StoredAccountState ===

impl StoredAccountState {
    fn from_row(row: &AccountRow) -> Self {
        Self {
            disabled_reason: row.disabled_at.map(|_| row.disabled_reason.clone().unwrap_or_default()),
            cooling_until: row.cooldown_until,
            cooling_cause: row.cooldown_cause.clone(),
            ejected_since: row.ejected_since,
        }
    }
}
