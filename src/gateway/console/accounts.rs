//! What operators do with upstream accounts.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::shown::shown;
use super::trouble::of_store;
use super::{Console, admins_only, list};
use crate::error::{Conflict, Error, Missing, Reason, Rejection};
use crate::gateway::config::Problem;
use crate::gateway::manage::{self, Known, ManageError, Wanted};
use crate::gateway::people::Actor;
use crate::gateway::rules::{check_fields, read_object};
use crate::gateway::store::AccountChange;
use crate::tables::{ACCOUNT_CHANGE_FIELDS, NEW_ACCOUNT_FIELDS};
use crate::wire::admin::types;

/// The fields that hold a secret each.
const SECRETS: [&str; 3] = ["api_key", "client_secret", "refresh_token"];
const HEADERS: &str = "headers";
const SECRET_HEADERS: &str = "secret_headers";

/// What is noted where nobody says why.
const NO_REASON: &str = "disabled by an operator";

/// An account to be added: its settings by the names of the file, and its secrets by theirs.
pub(super) struct Draft {
    pub(super) name: String,
    pub(super) settings: Map<String, Value>,
    pub(super) secrets: BTreeMap<String, String>,
}

// === impl Console ===

impl Console {
    /// Every account. For admins, as the rest here.
    ///
    /// # Errors
    ///
    /// 403 for members.
    pub(crate) async fn list_accounts(&self, actor: &Actor) -> Result<types::AccountList, Error> {
        admins_only(actor)?;
        let known = manage::accounts(&self.config, &self.store).await.map_err(of_store)?;
        let data: Result<Vec<_>, _> = known.iter().map(shown).collect();
        Ok(types::AccountList { object: list(), data: data?, extra: Map::new() })
    }

    /// One account, by its name or id.
    ///
    /// # Errors
    ///
    /// 404 where there is none.
    pub(crate) async fn retrieve_account(&self, actor: &Actor, handle: &str) -> Result<types::Account, Error> {
        admins_only(actor)?;
        shown(&manage::find(&self.config, &self.store, handle).await.map_err(refused)?)
    }

    /// Adds an account to the store.
    ///
    /// # Errors
    ///
    /// 400 for the first field that cannot be used, 409 where the name is taken.
    pub(crate) async fn create_account(&self, actor: &Actor, body: &[u8]) -> Result<types::Account, Error> {
        admins_only(actor)?;
        let Draft { name, settings, secrets } = Draft::read(body)?;
        let hidden: Vec<String> = secrets.keys().cloned().collect();
        let added = manage::add(&self.config, &self.store, &actor.act(), Wanted { name, settings, secrets }).await;
        let added = added.map_err(|error| match error {
            ManageError::Settings(problems) => unusable(&problems, &hidden).into(),
            other => refused(other),
        })?;
        let known = added.known;
        noted(&known, "an operator has added an account");
        shown(&known)
    }

    /// Disables an account, or enables it again.
    ///
    /// # Errors
    ///
    /// 400 for a field that cannot be used, 404 where there is no such account.
    pub(crate) async fn update_account(
        &self,
        actor: &Actor,
        handle: &str,
        body: &[u8],
    ) -> Result<types::Account, Error> {
        admins_only(actor)?;
        let (change, done) = match change(body)? {
            change @ AccountChange::Enable => (change, "an operator has enabled an account"),
            change => (change, "an operator has disabled an account"),
        };
        let known = manage::change(&self.config, &self.store, &actor.act(), handle, change).await.map_err(refused)?;
        noted(&known, done);
        shown(&known)
    }

    /// Deletes an account of the store.
    ///
    /// # Errors
    ///
    /// 404 where there is no such account, 409 where it is one of the file.
    pub(crate) async fn delete_account(&self, actor: &Actor, handle: &str) -> Result<types::DeletedAccount, Error> {
        admins_only(actor)?;
        let known = manage::delete(&self.config, &self.store, &actor.act(), handle).await.map_err(refused)?;
        noted(&known, "an operator has deleted an account");
        let account = shown(&known)?;
        Ok(types::DeletedAccount { id: account.id, name: account.name, deleted: true, extra: Map::new() })
    }
}

pub(super) fn change(body: &[u8]) -> Result<AccountChange, Rejection> {
    let mut fields = read_object(body)?;
    check_fields("", ACCOUNT_CHANGE_FIELDS, &mut fields)?;
    let reason = fields.get("reason").and_then(Value::as_str);
    match (fields.get("enabled") == Some(&Value::Bool(true)), reason) {
        (true, None) => Ok(AccountChange::Enable),
        (true, Some(_)) => Err(Rejection::new(
            "reason",
            Reason::InvalidValue,
            "Invalid 'reason': an account is disabled for a reason, and enabled without one.",
        )),
        (false, reason) => Ok(AccountChange::Disable { reason: reason.unwrap_or(NO_REASON).to_owned() }),
    }
}

fn noted(known: &Known, what: &str) {
    tracing::info!(account = known.name, "{what}");
}

fn refused(error: ManageError) -> Error {
    match error {
        ManageError::Unknown(handle) => Error::NotFound(Missing::Account(handle)),
        ManageError::OfFile(name) => Error::Conflict(Conflict::ReadOnly(name)),
        ManageError::Taken(name) => Error::Conflict(Conflict::Exists(name)),
        ManageError::Settings(problems) => unusable(&problems, &[]).into(),
        ManageError::Store(error) => of_store(error),
        // Only a call to the upstream ends so, and none is made here.
        other @ (ManageError::Unusable(..)
        | ManageError::NotNow(..)
        | ManageError::Silent(..)
        | ManageError::Transport(_)) => {
            tracing::error!(error = &other as &dyn std::error::Error, "an account could not be looked after");
            Error::Internal
        }
    }
}

/// The first thing that is wrong, with the field as the operator has spelled it.
pub(super) fn unusable(problems: &[Problem], hidden: &[String]) -> Rejection {
    let Some(problem) = problems.first() else {
        return Rejection::whole(Reason::InvalidValue, "The account cannot be used.");
    };
    let param = problem.setting().map(|setting| match setting.strip_prefix("headers.") {
        Some(header) if hidden.iter().any(|name| name == setting) => format!("{SECRET_HEADERS}.{header}"),
        _ => setting.to_owned(),
    });
    Rejection { param, reason: Some(Reason::InvalidValue), message: format!("Invalid account: {}.", problem.message()) }
}

// === impl Draft ===

impl Draft {
    /// Checks each field by itself, and parts the secrets from the settings.
    pub(super) fn read(body: &[u8]) -> Result<Self, Rejection> {
        let mut settings = read_object(body)?;
        check_fields("", NEW_ACCOUNT_FIELDS, &mut settings)?;
        let mut take = |field: &str| settings.remove(field);
        let Some(Value::String(name)) = take("name") else {
            return Err(Rejection::new("name", Reason::MissingParameter, "Missing required parameter: 'name'."));
        };
        let mut secrets = BTreeMap::new();
        for field in SECRETS {
            if let Some(Value::String(secret)) = take(field) {
                secrets.insert(field.to_owned(), secret);
            }
        }
        let Some(Value::Object(hidden)) = take(SECRET_HEADERS) else { return Ok(Self { name, settings, secrets }) };
        for (header, secret) in hidden {
            let in_the_open = settings.get(HEADERS).and_then(|headers| headers.get(&header)).is_some();
            let Some(secret) = secret.as_str().filter(|_| !in_the_open) else {
                let message = format!("Invalid '{SECRET_HEADERS}.{header}': the header stands in '{HEADERS}' too.");
                return Err(Rejection::new(format!("{SECRET_HEADERS}.{header}"), Reason::InvalidValue, message));
            };
            secrets.insert(format!("{HEADERS}.{header}"), secret.to_owned());
        }
        Ok(Self { name, settings, secrets })
    }
}
