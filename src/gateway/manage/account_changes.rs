//! Operations that change accounts: add, change the state, replace settings and secrets, delete.

use std::collections::BTreeMap;
use std::mem::discriminant;

use serde_json::{Map, Value};

use super::{AccountSource, ManageError, ManagedAccount, disable_first_key, find, is_billable};
use crate::gateway::accounts::{credentials_context, secrets_of_row, token_change};
use crate::gateway::config::{self, AccountCredentials, Config, OauthConfig, UpstreamConfig};
use crate::gateway::store::{
    AccountChange, AuditContext, NewAccount, NewCredentials, Store, StoreError, StoredAccountSettings, TokenChange,
    Vault,
};

/// The properties of an account that is to be added.
pub(crate) struct AccountDraft {
    /// The name of the account.
    pub(crate) name: String,
    /// The settings, named as in `[[accounts]]`.
    pub(crate) settings: Map<String, Value>,
    /// The secrets, named as in `[[accounts]]`.
    pub(crate) secrets: BTreeMap<String, String>,
}

/// New settings and secrets of an account, named as in `[[accounts]]`.
pub(crate) struct AccountRevision {
    /// All settings apart from the name, the kind and the secrets; `None` if they stay as they are.
    pub(crate) settings: Option<Map<String, Value>>,
    /// The secrets that replace stored ones.
    pub(crate) secrets: BTreeMap<String, String>,
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
) -> Result<ManagedAccount, ManageError> {
    let AccountDraft { name, settings, secrets } = draft;
    let name = name.as_str();
    let settings = Value::Object(settings).to_string();
    let account = config::account_from_json(name, &settings, secrets.clone(), config.allow_link_local)
        .map_err(ManageError::InvalidSettings)?;
    let in_file = config.accounts.iter().any(|account| account.name == name && !account.implicit);
    if in_file {
        return Err(ManageError::NameTaken(name.to_owned()));
    }
    let (upstream, tier) = (&account.upstream, account.tier.as_str().to_owned());
    let new_account = NewAccount {
        name: name.to_owned(),
        kind: upstream.kind().to_owned(),
        protocol: protocol_word(&account).to_owned(),
        tier,
        settings,
        sealed_credentials: if secrets.is_empty() { None } else { Some(seal(name, &secrets, store.vault())?) },
    };
    if is_billable(&account) {
        disable_first_key(store, audit).await?;
    }
    let row = store.insert_account(audit, &new_account).await.map_err(|error| match error {
        StoreError::Conflict => ManageError::NameTaken(name.to_owned()),
        error => error.into(),
    })?;
    Ok(ManagedAccount { name: row.name.clone(), origin: AccountSource::Store, account: Ok(account), row: Some(row) })
}

/// Changes the state of an account. A running server applies the change within a second.
///
/// # Errors
///
/// Returns an error if there is no such account, or if the store fails.
pub(crate) async fn change_state(
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
    if account.origin == AccountSource::File {
        return Err(ManageError::DefinedInFile(account.name));
    }
    if !store.delete_account(audit, &account.name).await? {
        return Err(ManageError::Unknown(handle.to_owned()));
    }
    Ok(account)
}

/// Replaces settings and secrets of an account of the store. Its name and its kind stay.
///
/// Stored secrets are only sent to the addresses for which they were given. So if an address changes, every secret must
/// be given again.
///
/// # Errors
///
/// Returns an error if there is no such account, if it is an account of the file, if the settings and secrets cannot be
/// used, if a secret must be given again, or if the store fails. The account is unchanged then.
pub(crate) async fn revise(
    config: &Config,
    store: &dyn Store,
    audit: &AuditContext,
    handle: &str,
    revision: AccountRevision,
) -> Result<ManagedAccount, ManageError> {
    let managed = find(config, store, handle).await?;
    let Some(row) = managed.row.filter(|_| managed.origin == AccountSource::Store) else {
        return Err(ManageError::DefinedInFile(managed.name));
    };
    let AccountRevision { settings, secrets } = revision;
    let has_new_secrets = !secrets.is_empty();
    // Secrets that can no longer be decrypted must be given again; the check below reports missing ones.
    let mut all_secrets = secrets_of_row(&row, store.vault()).unwrap_or_default();
    let missing_secret = all_secrets.keys().find(|name| !secrets.contains_key(*name)).cloned();
    all_secrets.extend(secrets);
    let new_settings = settings.as_ref().map(|settings| settings_with_kind(settings, &row.kind));
    let text = new_settings.as_deref().or(row.settings.as_deref()).unwrap_or("{}");
    let account = config::account_from_json(&row.name, text, all_secrets.clone(), config.allow_link_local)
        .map_err(ManageError::InvalidSettings)?;
    let keeps_addresses = settings.is_none()
        || managed.account.as_ref().is_ok_and(|before| !sends_secrets_elsewhere(&before.upstream, &account.upstream));
    if let Some(secret) = missing_secret.filter(|_| !keeps_addresses) {
        return Err(ManageError::SecretNeeded(secret));
    }
    let credentials = if has_new_secrets {
        let sealed = seal(&row.name, &all_secrets, store.vault())?;
        let before = managed.account.as_ref().ok().filter(|_| keeps_addresses);
        Some(NewCredentials { sealed, token: load_token_change(store, before, &account).await? })
    } else {
        None
    };
    let change = match (new_settings, credentials) {
        (None, None) => return Ok(ManagedAccount { row: Some(row), ..managed }),
        (None, Some(credentials)) => AccountChange::ReplaceCredentials(credentials),
        (Some(settings), credentials) => AccountChange::ReplaceSettings(Box::new(StoredAccountSettings {
            protocol: protocol_word(&account).to_owned(),
            tier: account.tier.as_str().to_owned(),
            settings,
            credentials,
        })),
    };
    let row = store.change_account(audit, &row.name, change).await?;
    let row = row.ok_or_else(|| ManageError::Unknown(handle.to_owned()))?;
    Ok(ManagedAccount { name: row.name.clone(), origin: AccountSource::Store, account: Ok(account), row: Some(row) })
}

/// Loads the stored token of an account, and returns its change. `before` is `None` if a stored token must not be sent to
/// the addresses of the new settings, or if the earlier credentials are not known.
async fn load_token_change(
    store: &dyn Store,
    before: Option<&config::AccountConfig>,
    after: &config::AccountConfig,
) -> Result<TokenChange, StoreError> {
    let (Some(old), Some(new)) = (before.and_then(oauth_of), oauth_of(after)) else { return Ok(TokenChange::Delete) };
    let stored = store.load_token(&after.name).await?;
    token_change(&after.name, old, new, stored.as_ref(), store.vault())
}

fn oauth_of(account: &config::AccountConfig) -> Option<&OauthConfig> {
    let UpstreamConfig::Api(api) = &account.upstream else { return None };
    match &api.credentials {
        AccountCredentials::Oauth(oauth) => Some(oauth),
        AccountCredentials::ApiKey(_) => None,
    }
}

/// The settings as they are stored: with the kind, which a revision does not contain.
fn settings_with_kind(settings: &Map<String, Value>, kind: &str) -> String {
    let mut settings = settings.clone();
    settings.insert("kind".to_owned(), kind.into());
    Value::Object(settings).to_string()
}

/// True if the new upstream would get stored secrets at an address for which they were not given, or in another way.
fn sends_secrets_elsewhere(before: &UpstreamConfig, after: &UpstreamConfig) -> bool {
    let (UpstreamConfig::Api(before), UpstreamConfig::Api(after)) = (before, after) else { return true };
    let origin = |url: &http::Uri| (url.scheme().cloned(), url.authority().cloned());
    let changes_token_requests = match (&before.credentials, &after.credentials) {
        (AccountCredentials::Oauth(before), AccountCredentials::Oauth(after)) => {
            before.token_url != after.token_url
                || discriminant(&before.grant) != discriminant(&after.grant)
                || before.client_id != after.client_id
                || before.client_auth != after.client_auth
                || before.scope != after.scope
                || before.audience != after.audience
        }
        _ => false,
    };
    origin(&before.base_url) != origin(&after.base_url) || changes_token_requests
}

/// The word for the protocol of an account in its row; the simulator has that of the images.
fn protocol_word(account: &config::AccountConfig) -> &'static str {
    account.upstream.protocol().unwrap_or(config::AccountProtocol::Images).as_str()
}

/// Encrypts the secrets of an account for the store.
fn seal(name: &str, secrets: &BTreeMap<String, String>, vault: &Vault) -> Result<Vec<u8>, StoreError> {
    let plaintext = serde_json::to_vec(secrets).map_err(|error| StoreError::Refused(error.into()))?;
    vault.seal(&credentials_context(name), &plaintext)
}
