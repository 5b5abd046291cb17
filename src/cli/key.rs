//! The command `imagate key create|limit|list|rotate|disable|enable|delete`.

use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::Value;

use super::failure::CommandFailure;
use super::installation::InstallationArgs;
use super::limit_arg::{LimitArg, stored_limits};
use super::output::{cell, print, print_json, print_message, table};
use super::time_span::{parse_duration, parse_end};
use crate::gateway;
use crate::gateway::config::{Config, DEFAULT_GROUP};
use crate::gateway::keys::{ApiKeys, IssuedKey, KeyError, KeyId, KeyRow, NewKey, PublicId, UserId};
use crate::gateway::store::{AuditContext, KeyChange, KeyLock, Timestamp};

/// The text that is shown as the owner of a key without a user.
const NO_OWNER: &str = "no user yet (the first admin will own it)";

/// Arguments of `key`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(super) struct KeyCommand {
    #[command(flatten)]
    installation: InstallationArgs,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: KeyAction,
}

#[derive(Debug, Subcommand)]
enum KeyAction {
    /// Create a key. Its secret is printed only once.
    Create {
        /// The name of the key.
        #[arg(long, value_name = "NAME")]
        name: String,
        /// The owner of the key. A user that does not exist is added [default: the only admin; if there is no admin
        /// yet, the first admin will own the key]
        #[arg(long, value_name = "USER")]
        user: Option<String>,
        /// The group that the key belongs to.
        #[arg(long, value_name = "GROUP", default_value = DEFAULT_GROUP)]
        group: String,
        /// The expiry: a duration from now such as 30d, a date, or a date and time [default: never]
        #[arg(long, value_name = "T", value_parser = parse_end)]
        expires: Option<Timestamp>,
        /// A limit of the key, such as `images_per_day=50` or `budget_usd=5`; may be repeated.
        #[arg(long = "limit", value_name = "NAME=VALUE")]
        limits: Vec<LimitArg>,
    },
    /// Replace all limits of a key. Without --limit, it has none.
    Limit {
        /// The id of the key, or the visible part of its secret.
        id: String,
        /// A limit, such as `images_per_day=50` or `budget_usd=5`; may be repeated.
        #[arg(long = "limit", value_name = "NAME=VALUE")]
        limits: Vec<LimitArg>,
    },
    /// List the keys, without their secrets.
    List,
    /// Replace the secret of a key. The new secret is printed only once; the former one stays valid for a while.
    Rotate {
        /// The id of the key, or the visible part of its secret.
        id: String,
        /// The time for which the previous secret stays valid: a duration such as 24h, at most 30d, or 0 to end it at
        /// once.
        #[arg(long, value_name = "T", default_value = "24h", value_parser = parse_duration)]
        grace: Duration,
    },
    /// Disable a key until an admin or a command enables it. Its owner cannot enable it.
    Disable {
        /// The id of the key, or the visible part of its secret.
        id: String,
    },
    /// Enable a disabled key.
    Enable {
        /// The id of the key, or the visible part of its secret.
        id: String,
    },
    /// Delete a key. This cannot be undone.
    Delete {
        /// The id of the key, or the visible part of its secret.
        id: String,
    },
}

/// A new key in JSON. Scripts rely on the fields and their order.
#[derive(Serialize)]
struct NewKeyJson<'a> {
    id: &'a KeyId,
    name: &'a str,
    user: &'a UserId,
    group: &'a str,
    secret: &'a str,
    created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    previous_until: Option<Timestamp>,
}

/// An existing key in JSON.
#[derive(Serialize)]
struct KeyJson<'a> {
    id: &'a KeyId,
    name: &'a str,
    user: &'a UserId,
    user_name: Option<&'a str>,
    group: &'a str,
    public_id: &'a PublicId,
    state: &'static str,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
    last_used_at: Option<Timestamp>,
    disabled_at: Option<Timestamp>,
    locked: Option<&'static str>,
    latest_end: Option<Timestamp>,
    previous_until: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<Value>,
}

// === impl KeyCommand ===

impl KeyCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let Self { installation, json, action } = self;
        installation.with_store(async |config, store| {
            let keys = gateway::open_keys(store);
            match action {
                KeyAction::Create { name, user, group, expires, limits } => {
                    let (audit, limits) = (AuditContext::command(), stored_limits(limits)?);
                    let people = gateway::open_people(config, store);
                    let user = match user {
                        Some(user) => people.find_or_create_user(&audit, &user).await?,
                        None => people.default_owner().await?,
                    };
                    let new =
                        NewKey { name: &name, user: &user, group: &group, expires_at: expires, limits, max_keys: None };
                    let key = keys.create(&audit, new).await?;
                    print_new_key(&key, json)?;
                    warn_if_group_has_no_account(&key, config);
                    Ok(())
                }
                KeyAction::Rotate { id, grace } => {
                    let key = keys.rotate(&AuditContext::command(), &id, None, grace).await;
                    print_new_key(&key.map_err(|error| key_failure(error, &id))?, json)
                }
                KeyAction::Limit { id, limits } => {
                    let limits = KeyChange::Limit(stored_limits(limits)?);
                    change(&keys, &id, limits, "limited", json).await
                }
                KeyAction::List => list(&keys, json).await,
                KeyAction::Disable { id } => change(&keys, &id, KeyChange::Disable, "disabled", json).await,
                KeyAction::Enable { id } => change(&keys, &id, KeyChange::Enable, "enabled", json).await,
                KeyAction::Delete { id } => change(&keys, &id, KeyChange::Delete, "deleted", json).await,
            }
        })
    }
}

fn print_new_key(key: &IssuedKey, json: bool) -> Result<(), CommandFailure> {
    if json {
        // The fields match the usage records: a user by id, a group by name.
        return Ok(print_json(&NewKeyJson {
            id: &key.id,
            name: &key.name,
            user: &key.user,
            group: &key.group_name,
            secret: key.secret.expose(),
            created_at: key.created_at,
            expires_at: key.expires_at,
            previous_until: key.previous_until,
        })?);
    }
    // The secret is alone on its line, so that a script can read the line unchanged.
    print(&format!("{}\n", key.secret.expose()))?;
    let owner = key.user_name.as_ref().map_or_else(|| NO_OWNER.to_owned(), |name| format!("user {name}"));
    print_message(&format!("key {} of {owner} in group {}; its secret is shown only once", key.id, key.group_name));
    if let Some(until) = key.previous_until {
        print_message(&format!("the previous secret is valid until {until}"));
    }
    Ok(())
}

/// Warns if no account of the settings serves the group of the key. Accounts of the store are not considered.
fn warn_if_group_has_no_account(key: &IssuedKey, config: &Config) {
    if !config.accounts.iter().any(|account| account.groups.contains(&key.group_name)) {
        print_message(&format!("no upstream account serves the group {} yet", key.group_name));
    }
}

async fn list(keys: &ApiKeys, json: bool) -> Result<(), CommandFailure> {
    let keys = keys.list().await?;
    if json {
        return Ok(print_json(&keys.iter().map(to_json).collect::<Vec<_>>())?);
    }
    let rows: Vec<[String; 8]> = keys.into_iter().map(table_row).collect();
    let headings = ["ID", "NAME", "USER", "GROUP", "PUBLIC ID", "STATE", "CREATED", "LAST USED"];
    Ok(print(&table(headings, &rows))?)
}

async fn change(keys: &ApiKeys, id: &str, change: KeyChange, outcome: &str, json: bool) -> Result<(), CommandFailure> {
    let key = keys.change(&AuditContext::command(), id, None, change).await.map_err(|error| key_failure(error, id))?;
    if json {
        print_json(&to_json(&key))?;
    } else {
        print(&format!("{} {outcome}\n", key.id))?;
    }
    Ok(())
}

fn key_failure(error: KeyError, id: &str) -> CommandFailure {
    CommandFailure::Failed(match error {
        KeyError::Unknown => anyhow::anyhow!("the key {id} does not exist or is deleted"),
        error => error.into(),
    })
}

fn to_json(key: &KeyRow) -> KeyJson<'_> {
    KeyJson {
        id: &key.id,
        name: &key.name,
        user: &key.user,
        user_name: key.user_name.as_deref(),
        group: &key.group_name,
        public_id: &key.public_id,
        state: key.state(Timestamp::now()).as_str(),
        created_at: key.created_at,
        expires_at: key.expires_at,
        last_used_at: key.last_used_at,
        disabled_at: key.disabled_at,
        locked: key.locked.map(KeyLock::as_str),
        latest_end: key.latest_end,
        previous_until: key.previous_until,
        limits: key.limits.as_deref().and_then(|limits| serde_json::from_str(limits).ok()),
    }
}

fn table_row(key: KeyRow) -> [String; 8] {
    let state = key.state(Timestamp::now()).as_str();
    let state = key.locked.map_or_else(|| state.to_owned(), |lock| format!("{state} ({})", lock.as_str()));
    let [id, public_id] = [key.id.to_string(), key.public_id.to_string()];
    let [created, used] = [key.created_at.to_string(), cell(key.last_used_at)];
    [id, key.name, cell(key.user_name), key.group_name, public_id, state, created, used]
}
