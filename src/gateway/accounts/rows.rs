//! Turns the account rows of the store into members of the pool.
//!
//! Accounts of the configuration file come with the configuration, and the store adds only their state. Accounts of the
//! store are added and removed while the server runs.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use chrono::Utc;
use tokio::time::Instant;

use super::account::UpstreamAccount;
use super::member::{AccountRowContent, PoolMember};
use super::pool::{AccountPool, AccountPoolState};
use crate::gateway::config;
use crate::gateway::store::{AccountRow, Timestamp, Vault};

/// The value of `source` for an account of the store.
const KEPT: &str = "store";

/// The state of an account that other processes can change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StoredAccountState {
    pub(super) disabled: Option<String>,
    pub(super) cooling_until: Option<Timestamp>,
    pub(super) cooling_cause: Option<String>,
}

/// The rows of the store. Accounts that are new or changed have been built.
pub(super) struct AccountRows {
    rows: Vec<AccountRow>,
    built: HashMap<String, Arc<UpstreamAccount>>,
    wrong: HashMap<String, AccountRowContent>,
}

/// The state of the pool before a read of the store. Changes made since then are newer than the result of the read.
pub(super) struct PoolSnapshot {
    marks: Vec<(u64, u64)>,
    origins: HashMap<String, Option<AccountRowContent>>,
}

/// Returns the context to which the credentials of an account of the store are sealed. Those of another account cannot
/// be opened with it.
pub(crate) fn sealed_for(account: &str) -> String {
    format!("credentials of account {account}")
}

// === impl PoolSnapshot ===

impl PoolSnapshot {
    pub(super) fn of(pool: &AccountPool) -> Self {
        let inner = pool.lock();
        let known = inner.members.iter().map(|member| (member.account.name().to_owned(), member.origin.clone()));
        let broken = inner.broken.iter().map(|(name, origin)| (name.clone(), Some(origin.clone())));
        Self {
            marks: inner.members.iter().filter_map(PoolMember::mark).collect(),
            origins: known.chain(broken).collect(),
        }
    }
}

// === impl AccountRows ===

impl AccountRows {
    /// Builds new and changed accounts. An account that cannot be built is logged once and stays unchanged.
    pub(super) fn read(rows: Vec<AccountRow>, before: &PoolSnapshot, vault: &Vault) -> Self {
        let mut read = Self { rows: Vec::new(), built: HashMap::new(), wrong: HashMap::new() };
        for row in rows {
            read.add(row, before, vault);
        }
        read
    }

    fn add(&mut self, row: AccountRow, before: &PoolSnapshot, vault: &Vault) {
        let origin = AccountRowContent::of(&row);
        let known = before.origins.get(&row.name);
        // The account is in the configuration file, or has not changed.
        let is_known = known.is_some_and(|known| known.as_ref().is_none_or(|known| *known == origin));
        if row.source == KEPT && !is_known {
            match build(&row, vault) {
                Ok(account) => drop(self.built.insert(row.name.clone(), Arc::new(UpstreamAccount::new(&account)))),
                Err(wrong) => {
                    tracing::error!(account = row.name, wrong, "an account of the store cannot be used");
                    self.wrong.insert(row.name.clone(), origin);
                }
            }
        }
        self.rows.push(row);
    }

    /// Updates the pool.
    pub(super) fn apply(self, pool: &Arc<AccountPool>, before: &PoolSnapshot) {
        let (now, wall) = (Instant::now(), Utc::now());
        let mut inner = pool.lock();
        let kept = |name: &str| self.rows.iter().any(|row| row.source == KEPT && row.name == name);
        inner.members.retain(|member| member.origin.is_none() || kept(member.account.name()));
        // The default simulator is removed for good with the first account of the store. Even if that account is
        // deleted again, a caller who has received images must not get a test image.
        if self.rows.iter().any(|row| row.source == KEPT) {
            inner.members.retain(|member| !member.account.is_stand_in());
        }
        for row in &self.rows {
            let built = self.built.get(&row.name);
            let is_new = built.is_some_and(|account| put(&mut inner, account, AccountRowContent::of(row)));
            let Some(member) = inner.members.iter_mut().find(|member| member.account.name() == row.name) else {
                continue;
            };
            // A state that was changed here since the read, or is not stored yet, is newer than the row, and stays.
            if is_new || member.mark().is_some_and(|mark| before.marks.contains(&mark)) {
                member.adopt(&StoredAccountState::of(row), now, wall);
            }
        }
        inner.broken.retain(|name, origin| {
            self.rows.iter().any(|row| row.name == *name && AccountRowContent::of(row) == *origin)
        });
        inner.broken.extend(self.wrong);
        inner.settle(pool, now);
    }
}

/// Inserts an account. An existing one keeps its calls in flight and its cooldown. Returns true if it is new.
fn put(inner: &mut AccountPoolState, account: &Arc<UpstreamAccount>, origin: AccountRowContent) -> bool {
    let found = inner.members.iter_mut().find(|member| member.account.name() == account.name());
    if let Some(member) = found {
        member.replace(Arc::clone(account));
        member.origin = Some(origin);
        return false;
    }
    let id = inner.next_id();
    inner.members.push(PoolMember::new(id, Arc::clone(account), Some(origin)));
    true
}

/// Builds the account of a row, or returns the reason why it cannot be built. The result contains no sealed value.
pub(crate) fn build(row: &AccountRow, vault: &Vault) -> Result<config::AccountConfig, String> {
    let secrets = secrets(row, vault)?;
    let settings = row.settings.as_deref().unwrap_or("{}");
    config::account_from_json(&row.name, settings, secrets).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        problems.join("; ")
    })
}

/// Returns the secrets of a row by setting, or the reason why they cannot be read.
pub(crate) fn secrets(row: &AccountRow, vault: &Vault) -> Result<BTreeMap<String, String>, String> {
    let Some(sealed) = &row.sealed else { return Ok(BTreeMap::new()) };
    let plain = vault.open(&sealed_for(&row.name), sealed).map_err(|error| error.to_string())?;
    serde_json::from_slice(&plain).map_err(|_| "its stored credentials do not have the format of imagate".to_owned())
}

// === impl AccountRowContent ===

impl AccountRowContent {
    fn of(row: &AccountRow) -> Self {
        Self { settings: row.settings.clone(), sealed: row.sealed.clone() }
    }
}

// === impl StoredAccountState ===

impl StoredAccountState {
    fn of(row: &AccountRow) -> Self {
        Self {
            disabled: row.disabled_at.map(|_| row.disabled_reason.clone().unwrap_or_default()),
            cooling_until: row.cooling_until,
            cooling_cause: row.cooling_cause.clone(),
        }
    }
}
