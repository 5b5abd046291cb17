//! The operations on upstream accounts. Those with an actor are for admins: members get 403.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::account_view::{AccountsActivity, stored_settings, to_wire_account};
use super::error_conversion::{ErrorSubject, field_rejection, from_identity_error, from_store_error};
use super::request_fields::empty_change_rejection;
use super::{Console, list_object, require_admin};
use crate::error::{Error, MissingResource, Rejection, RejectionReason, ResourceConflict};
use crate::gateway::config::{self, ConfigProblem};
use crate::gateway::manage::{
    self, AccountDraft, AccountRevision, ManageError, ManagedAccount, OpenAccounts, ServiceGap,
};
use crate::gateway::people::Actor;
use crate::gateway::rules::{check_fields, read_object};
use crate::gateway::store::{AccountChange, Timestamp};
use crate::image::Size;
use crate::tables::{ACCOUNT_CHANGE_FIELDS, ACCOUNT_SETTINGS_FIELDS, NEW_ACCOUNT_FIELDS};
use crate::wire::admin::server::ExplainAccountsQuery;
use crate::wire::admin::types;

/// The fields that hold a secret.
const SECRET_FIELDS: [&str; 3] = ["api_key", "client_secret", "refresh_token"];
const HEADERS: &str = "headers";
const SECRET_HEADERS: &str = "secret_headers";
const SETTINGS: &str = "settings";
/// The prefix of the stored name of a secret header.
const HEADER_PREFIX: &str = "headers.";

/// The reason for a disabled account that is recorded if the request gives none.
pub(crate) const DEFAULT_DISABLED_REASON: &str = "disabled by an operator";

/// An account to be added: its settings and its secrets, both by the names of the settings file.
pub(super) struct NewAccountRequest {
    pub(super) name: String,
    pub(super) settings: Map<String, Value>,
    pub(super) secrets: BTreeMap<String, String>,
}

/// A request that changes an account: at least one of both.
pub(super) struct AccountChangeRequest {
    /// The change of the state.
    pub(super) state: Option<AccountChange>,
    /// The new settings and secrets.
    pub(super) revision: Option<AccountRevision>,
}

// === impl Console ===

impl Console {
    /// Returns every account.
    ///
    /// # Errors
    ///
    /// 403 for members.
    pub(crate) async fn list_accounts(&self, actor: &Actor) -> Result<types::AccountList, Error> {
        require_admin(actor)?;
        let accounts = manage::list(&self.config, &*self.store).await.map_err(from_store_error)?;
        let activity = self.account_activity();
        let data = accounts.iter().map(|account| to_wire_account(account, activity.as_ref()));
        let data = data.collect::<Result<_, _>>()?;
        Ok(types::AccountList { object: list_object(), data })
    }

    /// Returns the account with this name or id.
    ///
    /// # Errors
    ///
    /// 404 if there is no such account.
    pub(crate) async fn retrieve_account(&self, actor: &Actor, handle: &str) -> Result<types::Account, Error> {
        require_admin(actor)?;
        self.account_with_activity(&self.find_account(handle).await?)
    }

    /// Returns all accounts in the order in which a request would ask them now. A command does not know the running calls
    /// of a server.
    ///
    /// # Errors
    ///
    /// 400 for a size that no image can have.
    pub(crate) async fn explain_accounts(
        &self,
        actor: &Actor,
        query: &ExplainAccountsQuery,
    ) -> Result<types::AccountExplanationList, Error> {
        require_admin(actor)?;
        let size = query.size.as_deref().map(str::parse::<Size>).transpose();
        let size = size.map_err(|error| field_rejection("size", &error.to_string()))?;
        let group = query.group.as_deref().unwrap_or(config::DEFAULT_GROUP);
        let accounts = self.accounts_in_use().await?.accounts;
        let data = accounts.explain(group, size.is_some_and(Size::is_large), query.session.as_deref());
        Ok(types::AccountExplanationList { object: list_object(), data })
    }

    /// Returns the account with its settings exactly as they are stored; `None` for an account of the settings file.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::retrieve_account`].
    pub(crate) async fn retrieve_stored_account(
        &self,
        actor: &Actor,
        handle: &str,
    ) -> Result<(types::Account, Option<Map<String, Value>>), Error> {
        require_admin(actor)?;
        let managed = self.find_account(handle).await?;
        Ok((self.account_with_activity(&managed)?, stored_settings(&managed)))
    }

    /// Returns the values that a setting of accounts can have, such as those of `tier`.
    pub(crate) fn account_setting_values(setting: &str) -> Vec<String> {
        config::allowed_words(&format!("accounts.{setting}"))
    }

    /// True if other nodes use the accounts, too. Their calls are not part of the activity of an account.
    pub(crate) fn shares_accounts(&self) -> bool {
        self.server.as_ref().is_some_and(|server| server.accounts.is_shared())
    }

    /// The path of the settings file, if there is one.
    pub(crate) fn settings_file(&self) -> Option<String> {
        self.config.file().map(|path| path.display().to_string())
    }

    /// Returns the groups that no enabled account could serve without this one.
    ///
    /// # Errors
    ///
    /// 404 if there is no such account.
    pub(crate) async fn service_gaps(&self, actor: &Actor, handle: &str) -> Result<Vec<ServiceGap>, Error> {
        require_admin(actor)?;
        let name = self.find_account(handle).await?.name;
        let accounts = manage::list(&self.config, &*self.store).await.map_err(from_store_error)?;
        let groups = self.people.groups().await.map_err(from_identity_error(ErrorSubject::Group, ""))?;
        let groups: Vec<(String, u64)> =
            groups.into_iter().map(|group| (group.row.name, group.row.key_count)).collect();
        Ok(manage::service_gaps(&accounts, &groups, &name, Timestamp::now()))
    }

    /// Adds an account to the store.
    ///
    /// # Errors
    ///
    /// 400 for the first field that cannot be used, 409 if the name is taken.
    pub(crate) async fn create_account(&self, actor: &Actor, body: &[u8]) -> Result<types::Account, Error> {
        require_admin(actor)?;
        let NewAccountRequest { name, settings, secrets } = NewAccountRequest::parse(body)?;
        let secret_settings: Vec<String> = secrets.keys().cloned().collect();
        let added =
            manage::add(&self.config, &*self.store, &actor.audit_context(), AccountDraft { name, settings, secrets })
                .await;
        let account = added.map_err(|error| match error {
            ManageError::InvalidSettings(problems) => account_rejection("", &problems, &secret_settings).into(),
            other => from_manage_error(other),
        })?;
        log_change(&account, "an account was added through the console");
        self.apply_account_changes().await;
        self.account_with_activity(&account)
    }

    /// Changes the settings or the secrets of an account, disables it, or enables it again.
    ///
    /// # Errors
    ///
    /// 400 for a field that cannot be used, 404 if there is no such account, 409 for the settings of an account of the
    /// settings file.
    pub(crate) async fn update_account(
        &self,
        actor: &Actor,
        handle: &str,
        body: &[u8],
    ) -> Result<types::Account, Error> {
        require_admin(actor)?;
        let AccountChangeRequest { state, revision } = parse_account_change(body)?;
        let audit = actor.audit_context();
        let mut account = None;
        if let Some(revision) = revision {
            let secret_settings: Vec<String> = revision.secrets.keys().cloned().collect();
            let revised = manage::revise(&self.config, &*self.store, &audit, handle, revision).await;
            let revised = revised.map_err(|error| match error {
                ManageError::InvalidSettings(problems) => {
                    account_rejection("settings.", &problems, &secret_settings).into()
                }
                other => from_manage_error(other),
            })?;
            log_change(&revised, "an account was changed through the console");
            account = Some(revised);
        }
        if let Some(change) = state {
            let event = match change {
                AccountChange::Enable => "an account was enabled through the console",
                _ => "an account was disabled through the console",
            };
            let changed = manage::change_state(&self.config, &*self.store, &audit, handle, change).await;
            let changed = changed.map_err(from_manage_error)?;
            log_change(&changed, event);
            account = Some(changed);
        }
        self.apply_account_changes().await;
        // A parsed request has a state or a revision, so there is an account.
        self.account_with_activity(&account.ok_or(Error::Internal)?)
    }

    /// Deletes an account of the store.
    ///
    /// # Errors
    ///
    /// 404 if there is no such account, 409 if it is an account of the settings file.
    pub(crate) async fn delete_account(&self, actor: &Actor, handle: &str) -> Result<types::DeletedAccount, Error> {
        require_admin(actor)?;
        let deleted = manage::delete(&self.config, &*self.store, &actor.audit_context(), handle)
            .await
            .map_err(from_manage_error)?;
        log_change(&deleted, "an account was deleted through the console");
        self.apply_account_changes().await;
        let account = self.account_with_activity(&deleted)?;
        Ok(types::DeletedAccount { id: account.id, name: account.name, deleted: true })
    }

    pub(super) async fn find_account(&self, handle: &str) -> Result<ManagedAccount, Error> {
        manage::find(&self.config, &*self.store, handle).await.map_err(from_manage_error)
    }

    /// Returns the accounts as this process uses them. A command opens them for one operation.
    pub(super) async fn accounts_in_use(&self) -> Result<OpenAccounts, Error> {
        let Some(server) = &self.server else {
            return manage::open_accounts(&self.config, &self.store).await.map_err(from_manage_error);
        };
        // Another process may have changed them a moment ago.
        server.accounts.apply_stored_changes().await;
        Ok(OpenAccounts { accounts: Arc::clone(&server.accounts), upstream: Arc::clone(&server.upstream) })
    }

    fn account_with_activity(&self, managed: &ManagedAccount) -> Result<types::Account, Error> {
        to_wire_account(managed, self.account_activity().as_ref())
    }

    /// Returns the calls of the accounts in this server; `None` in a command.
    fn account_activity(&self) -> Option<AccountsActivity> {
        let accounts = &self.server.as_ref()?.accounts;
        Some(AccountsActivity { accounts: accounts.live_accounts(), counted_since: accounts.counted_since() })
    }

    /// Brings changes of accounts into force in this process.
    async fn apply_account_changes(&self) {
        if let Some(server) = &self.server {
            server.accounts.apply_stored_changes().await;
        }
    }
}

/// Parses the body of a request that changes an account.
pub(super) fn parse_account_change(body: &[u8]) -> Result<AccountChangeRequest, Rejection> {
    let mut fields = read_object(body)?;
    let settings = take_settings(&mut fields)?;
    check_fields("", ACCOUNT_CHANGE_FIELDS, &mut fields)?;
    let plain_headers = settings.as_ref().and_then(|settings| settings.get(HEADERS)).cloned();
    let secrets = take_secrets(&mut fields, plain_headers.as_ref())?;
    let has_revision = settings.is_some() || !secrets.is_empty();
    let state = parse_state_change(&fields)?;
    if state.is_none() && !has_revision {
        return Err(empty_change_rejection(ACCOUNT_CHANGE_FIELDS));
    }
    Ok(AccountChangeRequest { state, revision: has_revision.then_some(AccountRevision { settings, secrets }) })
}

fn parse_state_change(fields: &Map<String, Value>) -> Result<Option<AccountChange>, Rejection> {
    let reason = fields.get("reason").and_then(Value::as_str);
    match (fields.get("enabled").and_then(Value::as_bool), reason) {
        (Some(true), None) => Ok(Some(AccountChange::Enable)),
        (None, None) => Ok(None),
        (Some(false), reason) => {
            Ok(Some(AccountChange::Disable { reason: reason.unwrap_or(DEFAULT_DISABLED_REASON).to_owned() }))
        }
        (Some(true) | None, Some(_)) => Err(Rejection::new(
            "reason",
            RejectionReason::InvalidValue,
            "Invalid 'reason': it is only allowed if 'enabled' is false.",
        )),
    }
}

/// Takes the settings out of the fields of a body, and checks each of them by itself.
fn take_settings(fields: &mut Map<String, Value>) -> Result<Option<Map<String, Value>>, Rejection> {
    match fields.remove(SETTINGS) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(mut settings)) => {
            check_fields("settings.", ACCOUNT_SETTINGS_FIELDS, &mut settings)?;
            Ok(Some(settings))
        }
        Some(_) => {
            let message = "Invalid type for 'settings': expected an object.";
            Err(Rejection::new(SETTINGS, RejectionReason::InvalidType, message))
        }
    }
}

/// Takes the secrets out of the fields of a body, under the names of their settings. A secret header must not be among
/// the plain headers, too.
fn take_secrets(
    fields: &mut Map<String, Value>,
    plain_headers: Option<&Value>,
) -> Result<BTreeMap<String, String>, Rejection> {
    let mut secrets = BTreeMap::new();
    for field in SECRET_FIELDS {
        if let Some(Value::String(secret)) = fields.remove(field) {
            secrets.insert(field.to_owned(), secret);
        }
    }
    let Some(Value::Object(secret_headers)) = fields.remove(SECRET_HEADERS) else { return Ok(secrets) };
    for (header, secret) in secret_headers {
        if plain_headers.is_some_and(|headers| headers.get(&header).is_some()) {
            let message = format!("Invalid '{SECRET_HEADERS}.{header}': the header is also given in '{HEADERS}'.");
            let param = format!("{SECRET_HEADERS}.{header}");
            return Err(Rejection::new(param, RejectionReason::InvalidValue, message));
        }
        // The table has refused values that are no texts.
        if let Value::String(secret) = secret {
            secrets.insert(format!("{HEADER_PREFIX}{header}"), secret);
        }
    }
    Ok(secrets)
}

fn log_change(account: &ManagedAccount, event: &str) {
    tracing::info!(account = account.name, "{event}");
}

fn from_manage_error(error: ManageError) -> Error {
    match error {
        ManageError::Unknown(handle) => Error::NotFound(MissingResource::Account(handle)),
        ManageError::DefinedInFile(name) => Error::Conflict(ResourceConflict::ReadOnly(name)),
        ManageError::NameTaken(name) => Error::Conflict(ResourceConflict::Exists(name)),
        ManageError::InvalidSettings(problems) => account_rejection("", &problems, &[]).into(),
        ManageError::SecretNeeded(secret) => secret_rejection(&secret).into(),
        ManageError::Store(error) => from_store_error(error),
        // Only a command that opens accounts returns these errors.
        other @ (ManageError::Unusable(..)
        | ManageError::Unavailable(..)
        | ManageError::NoAnswer(..)
        | ManageError::ModelProbe(..)
        | ManageError::NoImageEndpoints(..)
        | ManageError::Transport(_)) => {
            tracing::error!(error = &other as &dyn std::error::Error, "an operation on an account failed");
            Error::Internal
        }
    }
}

/// Returns the rejection of a change of an address without this stored secret.
fn secret_rejection(secret: &str) -> Rejection {
    let param = field_of_secret(secret);
    let message = format!(
        "Missing required parameter: '{param}'. The address of the account changes, and stored secrets are only sent to \
         the address for which they were given."
    );
    Rejection::new(param, RejectionReason::MissingParameter, message)
}

/// The field of a request for a secret with this stored name.
fn field_of_secret(secret: &str) -> String {
    let header = secret.strip_prefix(HEADER_PREFIX);
    header.map_or_else(|| secret.to_owned(), |header| format!("{SECRET_HEADERS}.{header}"))
}

/// Returns the rejection for the first problem, with the name of the field in the request: settings have this prefix,
/// secrets have none.
pub(super) fn account_rejection(prefix: &str, problems: &[ConfigProblem], secret_settings: &[String]) -> Rejection {
    let Some(problem) = problems.first() else {
        return Rejection::for_body(RejectionReason::InvalidValue, "The account cannot be used.");
    };
    let param = problem.setting().map(|setting| {
        if SECRET_FIELDS.contains(&setting) || secret_settings.iter().any(|name| name == setting) {
            field_of_secret(setting)
        } else {
            format!("{prefix}{setting}")
        }
    });
    Rejection {
        param,
        reason: Some(RejectionReason::InvalidValue),
        message: format!("Invalid account: {}.", problem.message()),
    }
}

// === impl NewAccountRequest ===

impl NewAccountRequest {
    /// Checks each field by itself, and separates the secrets from the settings.
    pub(super) fn parse(body: &[u8]) -> Result<Self, Rejection> {
        let mut settings = read_object(body)?;
        check_fields("", NEW_ACCOUNT_FIELDS, &mut settings)?;
        let Some(Value::String(name)) = settings.remove("name") else {
            return Err(Rejection::new(
                "name",
                RejectionReason::MissingParameter,
                "Missing required parameter: 'name'.",
            ));
        };
        let plain_headers = settings.get(HEADERS).cloned();
        let secrets = take_secrets(&mut settings, plain_headers.as_ref())?;
        Ok(Self { name, settings, secrets })
    }
}
