//! What the store says of the accounts, made into members of the pool.
//!
//! Accounts of the file come with the configuration, and the store only adds their state; accounts of the store come
//! and go while the server runs.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use chrono::Utc;
use tokio::time::Instant;

use super::account::Account;
use super::member::{Member, Origin};
use super::pool::{Inner, Pool};
use crate::gateway::config;
use crate::gateway::store::{AccountRow, Timestamp, Vault};

/// What `source` says of an account that the store has.
const KEPT: &str = "store";

/// What others can change of any account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    pub(super) disabled: Option<String>,
    pub(super) cooling_until: Option<Timestamp>,
    pub(super) cooling_cause: Option<String>,
}

/// The rows of the store, with those accounts built that are new or have changed.
pub(super) struct Rows {
    rows: Vec<AccountRow>,
    built: HashMap<String, Arc<Account>>,
    wrong: HashMap<String, Origin>,
}

/// The pool before a look at the store: what has changed since is newer than what the look finds.
pub(super) struct Before {
    marks: Vec<(u64, u64)>,
    origins: HashMap<String, Option<Origin>>,
}

/// Where the credentials of an account of the store are sealed for: another account's do not open here.
pub(crate) fn sealed_for(account: &str) -> String {
    format!("credentials of account {account}")
}

// === impl Before ===

impl Before {
    pub(super) fn of(pool: &Pool) -> Self {
        let inner = pool.lock();
        let known = inner.members.iter().map(|member| (member.account.name().to_owned(), member.origin.clone()));
        let broken = inner.broken.iter().map(|(name, origin)| (name.clone(), Some(origin.clone())));
        Self { marks: inner.members.iter().filter_map(Member::mark).collect(), origins: known.chain(broken).collect() }
    }
}

// === impl Rows ===

impl Rows {
    /// Builds what is new or has changed. What cannot be built is logged once, and stays as it was.
    pub(super) fn read(rows: Vec<AccountRow>, before: &Before, vault: &Vault) -> Self {
        let mut read = Self { rows: Vec::new(), built: HashMap::new(), wrong: HashMap::new() };
        for row in rows {
            read.add(row, before, vault);
        }
        read
    }

    fn add(&mut self, row: AccountRow, before: &Before, vault: &Vault) {
        let origin = Origin::of(&row);
        let known = before.origins.get(&row.name);
        // The file has it, or it is as it was.
        let is_known = known.is_some_and(|known| known.as_ref().is_none_or(|known| *known == origin));
        if row.source == KEPT && !is_known {
            match build(&row, vault) {
                Ok(account) => drop(self.built.insert(row.name.clone(), Arc::new(Account::new(&account)))),
                Err(wrong) => {
                    tracing::error!(account = row.name, wrong, "an account of the store cannot be used");
                    self.wrong.insert(row.name.clone(), origin);
                }
            }
        }
        self.rows.push(row);
    }

    /// Brings the pool up to date.
    pub(super) fn apply(self, pool: &Arc<Pool>, before: &Before) {
        let (now, wall) = (Instant::now(), Utc::now());
        let mut inner = pool.lock();
        let kept = |name: &str| self.rows.iter().any(|row| row.source == KEPT && row.name == name);
        inner.members.retain(|member| member.origin.is_none() || kept(member.account.name()));
        // The simulator that nobody configured goes with the first account of the store, and for good: also where that
        // one is deleted again, no caller must get a drawing who has got pictures.
        if self.rows.iter().any(|row| row.source == KEPT) {
            inner.members.retain(|member| !member.account.is_stand_in());
        }
        for row in &self.rows {
            let built = self.built.get(&row.name);
            let is_new = built.is_some_and(|account| put(&mut inner, account, Origin::of(row)));
            let Some(member) = inner.members.iter_mut().find(|member| member.account.name() == row.name) else {
                continue;
            };
            // Learnt here since the look, or not yet stored: newer than the row.
            if is_new || member.mark().is_some_and(|mark| before.marks.contains(&mark)) {
                member.adopt(&State::of(row), now, wall);
            }
        }
        inner.broken.retain(|name, origin| self.rows.iter().any(|row| row.name == *name && Origin::of(row) == *origin));
        inner.broken.extend(self.wrong);
        inner.settle(pool, now);
    }
}

/// An account that goes on has its calls still out and its rest still to run. Whether it is new.
fn put(inner: &mut Inner, account: &Arc<Account>, origin: Origin) -> bool {
    let found = inner.members.iter_mut().find(|member| member.account.name() == account.name());
    if let Some(member) = found {
        member.replace(Arc::clone(account));
        member.origin = Some(origin);
        return false;
    }
    let id = inner.next_id();
    inner.members.push(Member::new(id, Arc::clone(account), Some(origin)));
    true
}

/// The account of a row, or what is wrong with it. Nothing that is sealed is in the answer.
pub(crate) fn build(row: &AccountRow, vault: &Vault) -> Result<config::Account, String> {
    let secrets = secrets(row, vault)?;
    let settings = row.settings.as_deref().unwrap_or("{}");
    config::account_from_json(&row.name, settings, secrets).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        problems.join("; ")
    })
}

/// The secrets of a row by the settings they belong to, or why they cannot be read.
pub(crate) fn secrets(row: &AccountRow, vault: &Vault) -> Result<BTreeMap<String, String>, String> {
    let Some(sealed) = &row.sealed else { return Ok(BTreeMap::new()) };
    let plain = vault.open(&sealed_for(&row.name), sealed).map_err(|error| error.to_string())?;
    serde_json::from_slice(&plain).map_err(|_| "its credentials are not what imagate writes".to_owned())
}

// === impl Origin ===

impl Origin {
    fn of(row: &AccountRow) -> Self {
        Self { settings: row.settings.clone(), sealed: row.sealed.clone() }
    }
}

// === impl State ===

impl State {
    fn of(row: &AccountRow) -> Self {
        Self {
            disabled: row.disabled_at.map(|_| row.disabled_reason.clone().unwrap_or_default()),
            cooling_until: row.cooling_until,
            cooling_cause: row.cooling_cause.clone(),
        }
    }
}
