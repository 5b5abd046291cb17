//! Operations that change accounts: add, change the state, replace secrets, delete.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{AccountOrigin, ManageError, ManagedAccount, disable_first_key, find, is_billable};
use crate::gateway::accounts::{credentials_context, secrets_of_row};
use crate::gateway::config::{self, Config};
use crate::gateway::store::{AccountChange, AuditContext, NewAccount, Store, StoreError, Vault};

/// The properties of an account that is to be added.
pub(crate) struct AccountDraft {
    /// The name of the account.
    pub(crate) name: String,
    /// The settings, named as in `[[accounts]]`.
    pub(crate) settings: Map<String, Value>,
    /// The secrets, named as in `[[accounts]]`.
    pub(crate) secrets: BTreeMap<String, String>,
}

/// The result of adding an account.
pub(crate) struct AddedAccount {
    pub(crate) account: ManagedAccount,
    /// True if the key that the first start printed was disabled because of this account.
    pub(crate) first_key_disabled: bool,
}

/// Adds an account to the store. If its calls can cost something, the key that the first start printed is disabled
/// first.
///
/// # Errors
///
/// Returns all problems with the settings, or an error if an account of the store or of the file has the name, or if
/// the store fails.
pub(crate) async fn add(
    config: &Config,
    store: &dyn Store,
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
    let new_account = NewAccount {
        name: name.to_owned(),
        kind: upstream.kind().to_owned(),
        protocol: upstream.protocol().unwrap_or(config::UpstreamProtocol::Images).as_str().to_owned(),
        tier,
        settings,
        sealed_credentials: if secrets.is_empty() { None } else { Some(seal(name, &secrets, store.vault())?) },
    };
    let first_key_disabled = is_billable(&account) && disable_first_key(config, store, audit).await?;
    let row = store.insert_account(audit, &new_account).await.map_err(|error| match error {
        StoreError::Conflict => ManageError::NameTaken(name.to_owned()),
        error => error.into(),
    })?;
    let account =
        ManagedAccount { name: row.name.clone(), origin: AccountOrigin::Store, account: Ok(account), row: Some(row) };
    Ok(AddedAccount { account, first_key_disabled })
}

/// Changes the state of an account. A running server applies the change within a second.
///
/// # Errors
///
/// Returns an error if there is no such account, or if the store fails.
pub(crate) async fn change(
    config: &Config,
    store: &dyn Store,
    audit: &AuditContext,
    handle: &str,
    change: AccountChange,
) -> Result<ManagedAccount, ManageError> {
    let mut managed = find(config, store, handle).await?;
    if managed.row.is_none()
        && let Ok(account) = &managed.account
    {
        // The account is in the file, but no server has started with it yet, so it has no row for the changed state.
        store.sync_account(super::account_spec(account)).await?;
    }
    let row = store.change_account(audit, &managed.name, change).await?;
    // Another process may have deleted the account in the meantime.
    managed.row = Some(row.ok_or_else(|| ManageError::Unknown(handle.to_owned()))?);
    Ok(managed)
}

/// Deletes an account of the store, with its credentials and its token. Its records remain.
///
/// # Errors
///
/// Returns an error if there is no such account, if it is an account of the file, or if the store fails.
pub(crate) async fn delete(
    config: &Config,
    store: &dyn Store,
    audit: &AuditContext,
    handle: &str,
) -> Result<ManagedAccount, ManageError> {
    let account = find(config, store, handle).await?;
    if account.origin == AccountOrigin::File {
        return Err(ManageError::DefinedInFile(account.name));
    }
    if !store.delete_account(audit, &account.name).await? {
        return Err(ManageError::Unknown(handle.to_owned()));
    }
    Ok(account)
}

/// Replaces the given secrets of an account of the store; other secrets stay as they are. A running server applies the
/// change within a second.
///
/// # Errors
///
/// Returns an error if there is no such account, if it is an account of the file, if the settings do not fit these
/// secrets, or if the store fails. The account is unchanged then.
pub(crate) async fn rotate(
    config: &Config,
    store: &dyn Store,
    audit: &AuditContext,
    handle: &str,
    secrets: BTreeMap<String, String>,
) -> Result<ManagedAccount, ManageError> {
    let managed = find(config, store, handle).await?;
    let Some(row) = managed.row.filter(|_| managed.origin == AccountOrigin::Store) else {
        return Err(ManageError::DefinedInFile(managed.name));
    };
    // Secrets that can no longer be decrypted must be given again; the check below reports missing ones.
    let mut all_secrets = secrets_of_row(&row, store.vault()).unwrap_or_default();
    all_secrets.extend(secrets);
    let settings = row.settings.as_deref().unwrap_or("{}");
    let account =
        config::account_from_json(&row.name, settings, all_secrets.clone()).map_err(ManageError::InvalidSettings)?;
    let change = AccountChange::ReplaceCredentials(seal(&row.name, &all_secrets, store.vault())?);
    let row = store.change_account(audit, &row.name, change).await?;
    let row = row.ok_or_else(|| ManageError::Unknown(handle.to_owned()))?;
    Ok(ManagedAccount { name: row.name.clone(), origin: AccountOrigin::Store, account: Ok(account), row: Some(row) })
}

/// Encrypts the secrets of an account for the store.
fn seal(name: &str, secrets: &BTreeMap<String, String>, vault: &Vault) -> Result<Vec<u8>, StoreError> {
    let plaintext = serde_json::to_vec(secrets).map_err(|error| StoreError::Refused(error.into()))?;
    vault.seal(&credentials_context(name), &plaintext)
}
