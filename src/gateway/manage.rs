//! Operations on upstream accounts and groups, for commands and for the server. A command may run at the same time as a
//! server.
//!
//! This module finds accounts by name or id, merges the accounts of the store with those of the settings file, seals
//! the credentials of added accounts, and checks the settings of groups of the store. It does not know how results are
//! printed, and never serves a request.
//!
//! Rules: of an account of the file, only the state can be changed here. Credentials are sealed before they are stored;
//! the settings are stored unencrypted.

mod account_changes;
mod account_status;
mod first_key;
mod group_policy;
mod inspection;
mod model_probe;
mod service_gaps;

pub(crate) use account_changes::{AccountDraft, AccountRevision, add, change_state, delete, revise};
pub(crate) use account_status::AccountStatus;
pub(crate) use first_key::{disable_first_key, first_key_expiry, is_billable, is_first_key_active};
pub(crate) use group_policy::{PolicyEnvironment, check_policy, configured_policy, policy_in_force, with_store_groups};
pub(crate) use inspection::{OpenAccounts, ProbeOutcome, ensure_row, open_accounts, probe, probe_model};
pub(crate) use model_probe::ProbeStop;
pub(crate) use service_gaps::{ServiceGap, service_gaps};

use super::accounts::account_of_row;
use super::config::{self, Config, ConfigProblem};
use super::store::{AccountRow, AccountSpec, AuditContext, Store, StoreError, Timestamp};
use super::upstream::{ServiceCallError, TransportError};
pub(crate) use crate::wire::admin::types::AccountSource;

/// The value of `source` for an account that is defined in the store and not in the file.
const STORE_SOURCE: &str = "store";

/// An account of the file or of the store, as operators see it.
#[derive(Debug)]
pub(crate) struct ManagedAccount {
    /// The unique name.
    pub(crate) name: String,
    /// The place where the account is defined.
    pub(crate) origin: AccountSource,
    /// The settings, or the reason why they cannot be used.
    pub(crate) account: Result<config::AccountConfig, String>,
    /// The account's row in the store; `None` for an account of the file with which no server has started yet.
    pub(crate) row: Option<AccountRow>,
}

/// Writes the groups and accounts of the settings file to the store.
///
/// # Errors
///
/// Returns an error if the store fails, or if the store has an account of its own with the name of one in the file.
pub(crate) async fn sync_configured_rows(config: &Config, store: &dyn Store) -> Result<(), StoreError> {
    for group in &config.groups {
        store.ensure_group(&AuditContext::system(), &group.name).await?;
    }
    for account in &config.accounts {
        store.sync_account(account_spec(account)).await?;
    }
    let configured_names: Vec<&str> = config.accounts.iter().map(|account| account.name.as_str()).collect();
    store.mark_others_absent(&configured_names, Timestamp::now()).await.map(drop)
}

/// The properties of an account that the store needs for its row; they include no credentials.
pub(super) fn account_spec(account: &config::AccountConfig) -> AccountSpec<'_> {
    let (kind, protocol) = (account.upstream.kind(), account.upstream.protocol());
    AccountSpec {
        name: &account.name,
        kind,
        protocol: protocol.unwrap_or(config::AccountProtocol::Images).as_str(),
        tier: account.tier.as_str(),
    }
}

/// The reason why an operation failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ManageError {
    /// There is no such account.
    #[error("the account {0} does not exist")]
    Unknown(String),
    /// The account is defined in the file, so only its state can be changed here.
    #[error("the account {0} is defined in the settings file and can only be changed there")]
    DefinedInFile(String),
    /// An account with this name already exists.
    #[error("the account {0} already exists")]
    NameTaken(String),
    /// The settings cannot be used.
    #[error("the settings of the account cannot be used")]
    InvalidSettings(Vec<ConfigProblem>),
    /// An address changes, so this stored secret must be given again.
    #[error(
        "the address changes, and stored secrets are only sent to the address for which they were given: give `{0}` again"
    )]
    SecretNeeded(String),
    /// The account cannot be used with its stored settings or secrets.
    #[error("the account {0} cannot be used: {1}")]
    Unusable(String, String),
    /// The account cannot be used now.
    #[error("the account {0} cannot be used now")]
    Unavailable(String),
    /// The upstream was called and gave no answer.
    #[error("the account {0} cannot be used: {1}")]
    NoAnswer(String, ServiceCallError),
    /// The probe of a model ended early.
    #[error("{0}: {1}")]
    ModelProbe(String, ProbeStop<ServiceCallError>),
    /// The account has no image endpoints, of which the probe of a model asks.
    #[error("the account {0} has no image endpoints; only those state the rules of a model")]
    NoImageEndpoints(String),
    /// No call can be sent from this machine.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Returns all accounts: those of the file in its order, then those of the store by name.
///
/// # Errors
///
/// Returns an error if the store fails.
pub(crate) async fn list(config: &Config, store: &dyn Store) -> Result<Vec<ManagedAccount>, StoreError> {
    let mut rows = store.list_accounts().await?;
    let store_rows: Vec<AccountRow> = rows.extract_if(.., |row| row.source == STORE_SOURCE).collect();
    // The implicit simulator is present only if there is no other account.
    let has_no_store_accounts = store_rows.is_empty();
    let file_accounts = config.accounts.iter().filter(|account| !account.implicit || has_no_store_accounts);
    let file_accounts = file_accounts.map(|account| ManagedAccount {
        name: account.name.clone(),
        origin: AccountSource::File,
        account: Ok(account.clone()),
        row: rows.iter().find(|row| row.name == account.name).cloned(),
    });
    let store_accounts = store_rows.into_iter().map(|row| ManagedAccount {
        name: row.name.clone(),
        origin: AccountSource::Store,
        account: account_of_row(&row, store.vault()),
        row: Some(row),
    });
    Ok(file_accounts.chain(store_accounts).collect())
}

/// Returns the names of the accounts that are defined in the store.
///
/// # Errors
///
/// Returns an error if the store cannot be read.
pub(crate) async fn store_account_names(store: &dyn Store) -> Result<Vec<String>, StoreError> {
    let rows = store.list_accounts().await?;
    Ok(rows.into_iter().filter(|row| row.source == STORE_SOURCE).map(|row| row.name).collect())
}

/// True if the store has an account whose calls can cost something.
///
/// # Errors
///
/// Returns an error if the store cannot be read.
pub(crate) async fn has_billable_store_account(store: &dyn Store) -> Result<bool, StoreError> {
    let simulator = config::UpstreamConfig::Simulator.kind();
    Ok(store.list_accounts().await?.iter().any(|row| row.source == STORE_SOURCE && row.kind != simulator))
}

/// Removes the implicit simulator from the settings if the store has accounts. The simulator is present only if there
/// is no other account, because its images could be mistaken for those of real accounts.
///
/// # Errors
///
/// Returns an error if the store fails.
pub(crate) async fn remove_implicit_simulator(config: &mut Config, store: &dyn Store) -> Result<(), StoreError> {
    if store.list_accounts().await?.iter().any(|row| row.source == STORE_SOURCE) {
        config.accounts.retain(|account| !account.implicit);
    }
    Ok(())
}

/// Finds the account with this name or id.
///
/// # Errors
///
/// Returns an error if there is no such account, or if the store fails.
pub(crate) async fn find(config: &Config, store: &dyn Store, handle: &str) -> Result<ManagedAccount, ManageError> {
    let matches_handle = |account: &ManagedAccount| {
        account.name == handle || account.row.as_ref().is_some_and(|row| row.id.as_str() == handle)
    };
    let found = list(config, store).await?.into_iter().find(matches_handle);
    found.ok_or_else(|| ManageError::Unknown(handle.to_owned()))
}
