//! Operations that change accounts: adding one, changing its state or its secrets, deleting it.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{AccountOrigin, ManageError, ManagedAccount, disable_first_key, find, is_billable};
use crate::gateway::accounts::{credentials_context, secrets_of_row};
use crate::gateway::config::{self, Config};
use crate::gateway::store::{AccountChange, AuditContext, NewAccount, SqliteStore, Store as _, StoreError, Vault};

/// An account to be added.
pub(crate) struct AccountDraft {
    /// The name of the account.
    pub(crate) name: String,
    /// The settings, named as in `[[accounts]]`.
    pub(crate) settings: Map<String, Value>,
    /// The secrets, named as in `[[accounts]]`.
    pub(crate) secrets: BTreeMap<String, String>,
}

/// An account that was added.
pub(crate) struct AddedAccount {
    pub(crate) account: ManagedAccount,
    /// True if the key that the first start printed was disabled for this account.
    pub(crate) first_key_disabled: bool,
}

/// Adds an account to the store. If its calls can cost something, the key that the first start printed is disabled
/// first.
///
/// # Errors
///
/// Returns all problems with the settings, or an error if the name is taken, also if the file has it.
pub(crate) async fn add(
    config: &Config,
    store: &SqliteStore,
    audit: &AuditContext,
    draft: AccountDraft,
) -> Result<AddedAccount, ManageError> {
    let AccountDraft { name, settings, secrets } = draft;
    let name = name.as_str();
    let settings = Value::Object(settings).to_string();
    let account = config::account_from_json(name, &settings, secrets.clone()).map_err(ManageError::InvalidSettings)?;
    let in_file = config.accounts.iter().any(|account| account.name == name && !account.implicit);
    if in_file {
        return Err(ManageError::NameTaken(name.to_owned()));
    }
    let (upstream, tier) = (&account.upstream, account.tier.as_str().to_owned());
    let new = NewAccount {
        name: name.to_owned(),
        kind: upstream.kind().to_owned(),
        protocol: upstream.protocol().unwrap_or(config::UpstreamProtocol::Images).as_str().to_owned(),
        tier,
        settings,
        sealed_credentials: if secrets.is_empty() { None } else { Some(seal(name, &secrets, store.vault())?) },
    };
    let first_key_disabled = is_billable(&account) && disable_first_key(config, store, audit).await?;
    let row = store.insert_account(audit, &new).await.map_err(|error| match error {
        StoreError::Conflict => ManageError::NameTaken(name.to_owned()),
        error => error.into(),
    })?;
    let known =
        ManagedAccount { name: row.name.clone(), source: AccountOrigin::Store, account: Ok(account), row: Some(row) };
    Ok(AddedAccount { account: known, first_key_disabled })
}

/// Changes the state of an account. A running server follows within a second.
///
/// # Errors
///
/// Returns an error if there is no such account.
pub(crate) async fn change(
    config: &Config,
    store: &SqliteStore,
    audit: &AuditContext,
    handle: &str,
    change: AccountChange,
) -> Result<ManagedAccount, ManageError> {
    let mut known = find(config, store, handle).await?;
    if known.row.is_none()
        && let Ok(account) = &known.account
    {
        // The account is in the file, but no server has started with it yet: this change of its state must not be lost.
        store.sync_account(super::account_spec(account)).await?;
    }
    let row = store.change_account(audit, &known.name, change).await?;
    // The account may have been deleted at this moment.
    known.row = Some(row.ok_or_else(|| ManageError::Unknown(handle.to_owned()))?);
    Ok(known)
}

/// Deletes an account of the store, with its credentials and its token. Its records stay.
///
/// # Errors
///
/// Returns an error if there is no such account, or if it is one of the file.
pub(crate) async fn delete(
    config: &Config,
    store: &SqliteStore,
    audit: &AuditContext,
    handle: &str,
) -> Result<ManagedAccount, ManageError> {
    let known = find(config, store, handle).await?;
    if known.source == AccountOrigin::File {
        return Err(ManageError::DefinedInFile(known.name));
    }
    if !store.delete_account(audit, &known.name).await? {
        return Err(ManageError::Unknown(handle.to_owned()));
    }
    Ok(known)
}

/// Replaces secrets of an account of the store; those that are not named stay. A running server follows within a
/// second.
///
/// # Errors
///
/// Returns an error if there is no such account, if it is one of the file, or if the settings do not fit these secrets.
/// Nothing has changed then.
pub(crate) async fn rotate(
    config: &Config,
    store: &SqliteStore,
    audit: &AuditContext,
    handle: &str,
    secrets: BTreeMap<String, String>,
) -> Result<ManagedAccount, ManageError> {
    let known = find(config, store, handle).await?;
    let Some(row) = known.row.filter(|_| known.source == AccountOrigin::Store) else {
        return Err(ManageError::DefinedInFile(known.name));
    };
    // Secrets that can no longer be opened must be given anew; the check reports those that are missing.
    let mut all = secrets_of_row(&row, store.vault()).unwrap_or_default();
    all.extend(secrets);
    let settings = row.settings.as_deref().unwrap_or("{}");
    let account = config::account_from_json(&row.name, settings, all.clone()).map_err(ManageError::InvalidSettings)?;
    let change = AccountChange::ReplaceCredentials(seal(&row.name, &all, store.vault())?);
    let row = store.change_account(audit, &row.name, change).await?;
    let row = row.ok_or_else(|| ManageError::Unknown(handle.to_owned()))?;
    Ok(ManagedAccount { name: row.name.clone(), source: AccountOrigin::Store, account: Ok(account), row: Some(row) })
}

fn seal(name: &str, secrets: &BTreeMap<String, String>, vault: &Vault) -> Result<Vec<u8>, StoreError> {
    let plain = serde_json::to_vec(secrets).map_err(|error| StoreError::Refused(error.into()))?;
    vault.seal(&credentials_context(name), &plain)
}
