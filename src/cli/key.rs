//! The command `imagate key create|dialects|limit|list|rotate|disable|enable|delete`.

mod remote;
mod view;

use std::time::Duration;

use clap::{Args, Subcommand};

use super::confirmation::DeletionConfirmation;
use super::failure::CommandFailure;
use super::limit_arg::{LimitArg, stored_limits};
use super::output::print_message;
use super::remote::GatewayArgs;
use super::time_span::{parse_duration, parse_end};
use crate::gateway;
use crate::gateway::config::{Config, DEFAULT_GROUP, Dialect};
use crate::gateway::keys::{ApiKeys, KeyError, NewKey};
use crate::gateway::store::{AuditContext, KeyChange, Timestamp};
use view::{KeyView, NewKeyView, print_list};

/// Arguments of `key`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(super) struct KeyCommand {
    #[command(flatten)]
    gateway: GatewayArgs,
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
        /// A dialect of the key, in addition to those of its group; may be repeated.
        #[arg(long = "dialect", value_name = "DIALECT", value_parser = Dialect::from_word)]
        dialects: Vec<Dialect>,
    },
    /// Replace all dialects of a key. Without --dialect, it has only those of its group.
    Dialects {
        /// The id of the key, or the visible part of its secret.
        id: String,
        /// A dialect, such as `sizes` or `legacy-fields`; may be repeated.
        #[arg(long = "dialect", value_name = "DIALECT", value_parser = Dialect::from_word)]
        dialects: Vec<Dialect>,
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
        #[command(flatten)]
        confirmation: DeletionConfirmation,
    },
}

// === impl KeyCommand ===

impl KeyCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let Self { gateway, json, action } = self;
        // The question comes after the name of another gateway.
        let remote = gateway.remote()?;
        if let KeyAction::Delete { id, confirmation } = &action {
            confirmation.ask(&format!("the key {id}"))?;
        }
        if let Some(gateway) = remote {
            return gateway.run(async |gateway| remote::run(gateway, action, json).await);
        }
        gateway.installation.with_store(async |config, store| {
            let keys = gateway::open_keys(store);
            match action {
                KeyAction::Create { name, user, group, expires, limits, dialects } => {
                    let (audit, limits) = (AuditContext::command(), stored_limits(limits)?);
                    let people = gateway::open_people(config, store);
                    let user = match user {
                        Some(user) => people.find_or_create_user(&audit, &user).await?,
                        None => people.default_owner().await?,
                    };
                    let dialects = dialects.into_iter().collect();
                    let (name, group) = (name.as_str(), group.as_str());
                    let new =
                        NewKey { name, user: &user, group, expires_at: expires, limits, dialects, max_keys: None };
                    let key = keys.create(&audit, new).await?;
                    let key = NewKeyView::from(key);
                    key.print(json)?;
                    warn_if_group_has_no_account(&key, config);
                    Ok(())
                }
                KeyAction::Rotate { id, grace } => {
                    let key = keys.rotate(&AuditContext::command(), &id, None, grace).await;
                    NewKeyView::from(key.map_err(|error| key_failure(error, &id))?).print(json)
                }
                KeyAction::Limit { id, limits } => {
                    let limits = KeyChange::Limit(stored_limits(limits)?);
                    change(&keys, &id, limits, "limited", json).await
                }
                KeyAction::Dialects { id, dialects } => {
                    let dialects = KeyChange::SetDialects(dialects.into_iter().collect());
                    change(&keys, &id, dialects, "changed", json).await
                }
                KeyAction::List => list(&keys, json).await,
                KeyAction::Disable { id } => change(&keys, &id, KeyChange::Disable, "disabled", json).await,
                KeyAction::Enable { id } => change(&keys, &id, KeyChange::Enable, "enabled", json).await,
                KeyAction::Delete { id, .. } => change(&keys, &id, KeyChange::Delete, "deleted", json).await,
            }
        })
    }
}

/// Warns if no account of the settings serves the group of the key. Accounts of the store are not considered.
fn warn_if_group_has_no_account(key: &NewKeyView, config: &Config) {
    if !config.accounts.iter().any(|account| account.groups.contains(&key.group)) {
        print_message(&format!("no upstream account serves the group {} yet", key.group));
    }
}

async fn list(keys: &ApiKeys, json: bool) -> Result<(), CommandFailure> {
    let keys: Vec<KeyView> = keys.list().await?.into_iter().map(KeyView::from).collect();
    print_list(&keys, json)
}

async fn change(keys: &ApiKeys, id: &str, change: KeyChange, outcome: &str, json: bool) -> Result<(), CommandFailure> {
    let key = keys.change(&AuditContext::command(), id, None, change).await.map_err(|error| key_failure(error, id))?;
    KeyView::from(key).print_change(outcome, json)
}

fn key_failure(error: KeyError, id: &str) -> CommandFailure {
    CommandFailure::Failed(match error {
        KeyError::Unknown => anyhow::anyhow!("the key {id} does not exist or is deleted"),
        error => error.into(),
    })
}
