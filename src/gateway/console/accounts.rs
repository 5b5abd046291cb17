//! The operations on upstream accounts.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::account_view::to_wire_account;
use super::error_conversion::from_store_error;
use super::{Console, list_object, require_admin};
use crate::error::{Error, MissingResource, Rejection, RejectionReason, ResourceConflict};
use crate::gateway::config::ConfigProblem;
use crate::gateway::manage::{self, AccountDraft, ManageError, ManagedAccount};
use crate::gateway::people::Actor;
use crate::gateway::rules::{check_fields, read_object};
use crate::gateway::store::AccountChange;
use crate::tables::{ACCOUNT_CHANGE_FIELDS, NEW_ACCOUNT_FIELDS};
use crate::wire::admin::types;

/// The fields that hold a secret.
const SECRET_FIELDS: [&str; 3] = ["api_key", "client_secret", "refresh_token"];
const HEADERS: &str = "headers";
const SECRET_HEADERS: &str = "secret_headers";

/// The reason that is recorded if the request gives none.
const DEFAULT_REASON: &str = "disabled by an operator";

/// An account to be added: its settings and its secrets, both by the names of the settings file.
pub(super) struct NewAccountRequest {
    pub(super) name: String,
    pub(super) settings: Map<String, Value>,
    pub(super) secrets: BTreeMap<String, String>,
}

// === impl Console ===

impl Console {
    /// Returns every account. All operations of this file are for admins.
    ///
    /// # Errors
    ///
    /// 403 for members.
    pub(crate) async fn list_accounts(&self, actor: &Actor) -> Result<types::AccountList, Error> {
        require_admin(actor)?;
        let accounts = manage::list(&self.config, &*self.store).await.map_err(from_store_error)?;
        let data: Result<Vec<_>, _> = accounts.iter().map(to_wire_account).collect();
        Ok(types::AccountList { object: list_object(), data: data?, extra: Map::new() })
    }

    /// Returns the account with this name or id.
    ///
    /// # Errors
    ///
    /// 404 if there is no such account.
    pub(crate) async fn retrieve_account(&self, actor: &Actor, handle: &str) -> Result<types::Account, Error> {
        require_admin(actor)?;
        to_wire_account(&manage::find(&self.config, &*self.store, handle).await.map_err(from_manage_error)?)
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
        let added = added.map_err(|error| match error {
            ManageError::InvalidSettings(problems) => account_rejection(&problems, &secret_settings).into(),
            other => from_manage_error(other),
        })?;
        let account = added.account;
        log_change(&account, "an account was added through the console");
        to_wire_account(&account)
    }

    /// Disables an account, or enables it again.
    ///
    /// # Errors
    ///
    /// 400 for a field that cannot be used, 404 if there is no such account.
    pub(crate) async fn update_account(
        &self,
        actor: &Actor,
        handle: &str,
        body: &[u8],
    ) -> Result<types::Account, Error> {
        require_admin(actor)?;
        let (change, event) = match parse_account_change(body)? {
            change @ AccountChange::Enable => (change, "an account was enabled through the console"),
            change => (change, "an account was disabled through the console"),
        };
        let account = manage::change(&self.config, &*self.store, &actor.audit_context(), handle, change)
            .await
            .map_err(from_manage_error)?;
        log_change(&account, event);
        to_wire_account(&account)
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
        let account = to_wire_account(&deleted)?;
        Ok(types::DeletedAccount { id: account.id, name: account.name, deleted: true, extra: Map::new() })
    }
}

/// Parses the body of a request that enables or disables an account.
pub(super) fn parse_account_change(body: &[u8]) -> Result<AccountChange, Rejection> {
    let mut fields = read_object(body)?;
    check_fields("", ACCOUNT_CHANGE_FIELDS, &mut fields)?;
    let reason = fields.get("reason").and_then(Value::as_str);
    match (fields.get("enabled") == Some(&Value::Bool(true)), reason) {
        (true, None) => Ok(AccountChange::Enable),
        (true, Some(_)) => Err(Rejection::new(
            "reason",
            RejectionReason::InvalidValue,
            "Invalid 'reason': it is only allowed if 'enabled' is false.",
        )),
        (false, reason) => Ok(AccountChange::Disable { reason: reason.unwrap_or(DEFAULT_REASON).to_owned() }),
    }
}

fn log_change(account: &ManagedAccount, event: &str) {
    tracing::info!(account = account.name, "{event}");
}

fn from_manage_error(error: ManageError) -> Error {
    match error {
        ManageError::Unknown(handle) => Error::NotFound(MissingResource::Account(handle)),
        ManageError::DefinedInFile(name) => Error::Conflict(ResourceConflict::ReadOnly(name)),
        ManageError::NameTaken(name) => Error::Conflict(ResourceConflict::Exists(name)),
        ManageError::InvalidSettings(problems) => account_rejection(&problems, &[]).into(),
        ManageError::Store(error) => from_store_error(error),
        // Only a call to the upstream returns these errors, and the operations of this module make no such call.
        other @ (ManageError::Unusable(..)
        | ManageError::Unavailable(..)
        | ManageError::NoAnswer(..)
        | ManageError::Transport(_)) => {
            tracing::error!(error = &other as &dyn std::error::Error, "an operation on an account failed");
            Error::Internal
        }
    }
}

/// Returns the rejection for the first problem, with the name of the field in the request.
pub(super) fn account_rejection(problems: &[ConfigProblem], secret_settings: &[String]) -> Rejection {
    let Some(problem) = problems.first() else {
        return Rejection::for_body(RejectionReason::InvalidValue, "The account cannot be used.");
    };
    let param = problem.setting().map(|setting| match setting.strip_prefix("headers.") {
        Some(header) if secret_settings.iter().any(|name| name == setting) => format!("{SECRET_HEADERS}.{header}"),
        _ => setting.to_owned(),
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
        let mut take_field = |field: &str| settings.remove(field);
        let Some(Value::String(name)) = take_field("name") else {
            return Err(Rejection::new(
                "name",
                RejectionReason::MissingParameter,
                "Missing required parameter: 'name'.",
            ));
        };
        let mut secrets = BTreeMap::new();
        for field in SECRET_FIELDS {
            if let Some(Value::String(secret)) = take_field(field) {
                secrets.insert(field.to_owned(), secret);
            }
        }
        let Some(Value::Object(secret_headers)) = take_field(SECRET_HEADERS) else {
            return Ok(Self { name, settings, secrets });
        };
        for (header, secret) in secret_headers {
            let is_also_plain = settings.get(HEADERS).and_then(|headers| headers.get(&header)).is_some();
            let Some(secret) = secret.as_str().filter(|_| !is_also_plain) else {
                let message = format!("Invalid '{SECRET_HEADERS}.{header}': the header is also given in '{HEADERS}'.");
                return Err(Rejection::new(
                    format!("{SECRET_HEADERS}.{header}"),
                    RejectionReason::InvalidValue,
                    message,
                ));
            };
            secrets.insert(format!("{HEADERS}.{header}"), secret.to_owned());
        }
        Ok(Self { name, settings, secrets })
    }
}
