//! What changes an account: adding one, its state, its secrets, deleting it.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Known, ManageError, Source, find, is_real, retire_first_key};
use crate::gateway::accounts::{sealed_for, secrets_of_row};
use crate::gateway::config::{self, Config};
use crate::gateway::store::{AccountChange, Act, NewAccount, SqliteStore, Store as _, StoreError, Vault};

/// An account to be added.
pub(crate) struct Wanted {
    /// Its name.
    pub(crate) name: String,
    /// Its settings, by the names of `[[accounts]]`.
    pub(crate) settings: Map<String, Value>,
    /// Its secrets, by theirs.
    pub(crate) secrets: BTreeMap<String, String>,
}

/// An account that was added.
pub(crate) struct AddedAccount {
    pub(crate) known: Known,
    /// True if the key that the first start printed was disabled for this account.
    pub(crate) first_key_disabled: bool,
}

/// Adds an account to the store. If its calls can cost something, the key that the first start printed is disabled
/// before.
///
/// # Errors
///
/// Everything that is wrong with the settings; or the name is taken, also by the file.
pub(crate) async fn add(
    config: &Config,
    store: &SqliteStore,
    act: &Act,
    wanted: Wanted,
) -> Result<AddedAccount, ManageError> {
    let Wanted { name, settings, secrets } = wanted;
    let name = name.as_str();
    let settings = Value::Object(settings).to_string();
    let account = config::account_from_json(name, &settings, secrets.clone()).map_err(ManageError::Settings)?;
    let in_file = config.accounts.iter().any(|account| account.name == name && !account.implicit);
    if in_file {
        return Err(ManageError::Taken(name.to_owned()));
    }
    let (upstream, tier) = (&account.upstream, account.tier.as_str().to_owned());
    let new = NewAccount {
        name: name.to_owned(),
        kind: upstream.kind().to_owned(),
        protocol: upstream.protocol().unwrap_or(config::Protocol::Images).as_str().to_owned(),
        tier,
        settings,
        sealed: if secrets.is_empty() { None } else { Some(seal(name, &secrets, store.vault())?) },
    };
    let first_key_disabled = is_real(&account) && retire_first_key(config, store, act).await?;
    let row = store.insert_account(act, &new).await.map_err(|error| match error {
        StoreError::Conflict => ManageError::Taken(name.to_owned()),
        error => error.into(),
    })?;
    let known = Known { name: row.name.clone(), source: Source::Store, account: Ok(account), row: Some(row) };
    Ok(AddedAccount { known, first_key_disabled })
}

/// Changes the state of an account. A running server follows within a second.
///
/// # Errors
///
/// There is no such account.
pub(crate) async fn change(
    config: &Config,
    store: &SqliteStore,
    act: &Act,
    handle: &str,
    change: AccountChange,
) -> Result<Known, ManageError> {
    let mut known = find(config, store, handle).await?;
    if known.row.is_none()
        && let Ok(account) = &known.account
    {
        // The file has it, and no server has started with it yet: what is said of it now must not be lost.
        store.sync_account(crate::gateway::spec(account)).await?;
    }
    let row = store.change_account(act, &known.name, change).await?;
    // Somebody deleted it this moment.
    known.row = Some(row.ok_or_else(|| ManageError::Unknown(handle.to_owned()))?);
    Ok(known)
}

/// Deletes an account of the store, with its credentials and its token. Its records stay.
///
/// # Errors
///
/// There is no such account, or it is one of the file.
pub(crate) async fn delete(
    config: &Config,
    store: &SqliteStore,
    act: &Act,
    handle: &str,
) -> Result<Known, ManageError> {
    let known = find(config, store, handle).await?;
    if known.source == Source::File {
        return Err(ManageError::OfFile(known.name));
    }
    if !store.delete_account(act, &known.name).await? {
        return Err(ManageError::Unknown(handle.to_owned()));
    }
    Ok(known)
}

/// Gives an account of the store other secrets; those that are not named stay. A running server follows within a second.
///
/// # Errors
///
/// There is no such account, it is one of the file, or the settings do not go with these secrets. Nothing has changed
/// then.
pub(crate) async fn rotate(
    config: &Config,
    store: &SqliteStore,
    act: &Act,
    handle: &str,
    secrets: BTreeMap<String, String>,
) -> Result<Known, ManageError> {
    let known = find(config, store, handle).await?;
    let Some(row) = known.row.filter(|_| known.source == Source::Store) else {
        return Err(ManageError::OfFile(known.name));
    };
    // What does not open any more has to be given anew; the check says what is then missing.
    let mut all = secrets_of_row(&row, store.vault()).unwrap_or_default();
    all.extend(secrets);
    let settings = row.settings.as_deref().unwrap_or("{}");
    let account = config::account_from_json(&row.name, settings, all.clone()).map_err(ManageError::Settings)?;
    let change = AccountChange::Reseal(seal(&row.name, &all, store.vault())?);
    let row = store.change_account(act, &row.name, change).await?;
    let row = row.ok_or_else(|| ManageError::Unknown(handle.to_owned()))?;
    Ok(Known { name: row.name.clone(), source: Source::Store, account: Ok(account), row: Some(row) })
}

fn seal(name: &str, secrets: &BTreeMap<String, String>, vault: &Vault) -> Result<Vec<u8>, StoreError> {
    let plain = serde_json::to_vec(secrets).map_err(|error| StoreError::Refused(error.into()))?;
    vault.seal(&sealed_for(name), &plain)
}
