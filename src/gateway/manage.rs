//! What commands do with upstream accounts and groups, beside a running server or without one.
//!
//! Decides which account a name or an id means, which accounts there are beside those of the file, what is sealed of one
//! that is added, and which settings a group of the store can have. Refuses to know how anything is printed, and never serves a request.
//!
//! Carries: accounts of the file are read-only here except for their state; credentials are sealed before they are
//! stored, and nothing but the settings stands beside them in the open.

mod ask;
mod change;
mod first_key;
mod groups;
mod state;

pub(crate) use super::accounts::{Availability, Explained};
pub(crate) use ask::{Probed, explain, probe};
pub(crate) use change::{Wanted, add, change, delete, rotate};
pub(crate) use first_key::{first_key_end, is_real, remember_first_key, retire_first_key, was_welcomed};
pub(crate) use groups::{PolicyUser, check_policy, policy_in_force, policy_of, with_groups_of_store};
pub(crate) use state::State;

use super::accounts::account_of_row;
use super::config::{self, Config, Problem};
use super::store::{AccountRow, SqliteStore, Store as _, StoreError};
use super::upstream::{CallFailed, TransportError};

/// What `source` says of an account that the store has, and not the file.
const KEPT: &str = "store";

/// An account, of the file or of the store.
#[derive(Debug)]
pub(crate) struct Known {
    /// Unique.
    pub(crate) name: String,
    /// Where it is written.
    pub(crate) source: Source,
    /// The settings, or why they cannot be used.
    pub(crate) account: Result<config::Account, String>,
    /// What the store knows of it; nothing before the first start with an account of the file.
    pub(crate) row: Option<AccountRow>,
}

/// Where an account is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// In the configuration file, which alone can change it.
    File,
    /// In the store.
    Store,
}

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ManageError {
    /// There is no such account.
    #[error("there is no account {0}")]
    Unknown(String),
    /// The file has it: here only its state can be changed.
    #[error("the account {0} stands in the configuration file, which alone can change it")]
    OfFile(String),
    /// There is one of that name.
    #[error("there is an account {0} already")]
    Taken(String),
    /// The settings cannot be used.
    #[error("the settings of the account cannot be used")]
    Settings(Vec<Problem>),
    /// It cannot be used as it is kept.
    #[error("the account {0} cannot be used: {1}")]
    Unusable(String, String),
    /// It may not be asked now, where that is known because of this.
    #[error("the account {0} cannot be asked now")]
    NotNow(String, Option<Availability>),
    /// It was asked, and gave no answer.
    #[error("the account {0} cannot be used: {1}")]
    Silent(String, CallFailed),
    /// Nothing can be sent from here.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The store has trouble.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Every account: those of the file in its order, then those of the store by name.
///
/// # Errors
///
/// Where the store has trouble.
pub(crate) async fn accounts(config: &Config, store: &SqliteStore) -> Result<Vec<Known>, StoreError> {
    let mut rows = store.list_accounts().await?;
    let kept: Vec<AccountRow> = rows.extract_if(.., |row| row.source == KEPT).collect();
    // The simulator that nobody configured is there because nothing else is.
    let alone = kept.is_empty();
    let of_file = config.accounts.iter().filter(|account| !account.implicit || alone);
    let of_file = of_file.map(|account| Known {
        name: account.name.clone(),
        source: Source::File,
        account: Ok(account.clone()),
        row: rows.iter().find(|row| row.name == account.name).cloned(),
    });
    let kept = kept.into_iter().map(|row| Known {
        name: row.name.clone(),
        source: Source::Store,
        account: account_of_row(&row, store.vault()),
        row: Some(row),
    });
    Ok(of_file.chain(kept).collect())
}

/// The names of the accounts that were added to the store and are not in the file.
///
/// # Errors
///
/// Returns an error if the store cannot be read.
pub(crate) async fn names_in_store(store: &SqliteStore) -> Result<Vec<String>, StoreError> {
    let rows = store.list_accounts().await?;
    Ok(rows.into_iter().filter(|row| row.source == KEPT).map(|row| row.name).collect())
}

/// True if the store has an account whose calls can cost something.
///
/// # Errors
///
/// Returns an error if the store cannot be read.
pub(crate) async fn has_real_in_store(store: &SqliteStore) -> Result<bool, StoreError> {
    let simulator = config::Upstream::Simulator.kind();
    Ok(store.list_accounts().await?.iter().any(|row| row.source == KEPT && row.kind != simulator))
}

/// Takes the simulator that nobody configured out of the settings where the store has accounts: it is there because
/// nothing else is, and beside accounts that are paid for its pictures would be taken for theirs.
///
/// # Errors
///
/// Where the store has trouble.
pub(crate) async fn without_stand_in(config: &mut Config, store: &SqliteStore) -> Result<(), StoreError> {
    if store.list_accounts().await?.iter().any(|row| row.source == KEPT) {
        config.accounts.retain(|account| !account.implicit);
    }
    Ok(())
}

/// The account of that name or id.
///
/// # Errors
///
/// There is none.
pub(crate) async fn find(config: &Config, store: &SqliteStore, handle: &str) -> Result<Known, ManageError> {
    let is_it = |known: &Known| known.name == handle || known.row.as_ref().is_some_and(|row| row.id.as_str() == handle);
    let found = accounts(config, store).await?.into_iter().find(is_it);
    found.ok_or_else(|| ManageError::Unknown(handle.to_owned()))
}

// === impl Source ===

impl Source {
    /// The word for it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Store => KEPT,
        }
    }
}
