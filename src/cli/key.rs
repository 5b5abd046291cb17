//! The command `imagate key create|dialects|limit|list|rotate|disable|enable|delete`.

use std::time::Duration;

use anyhow::anyhow;
use clap::{Args, Subcommand};
use serde::Serialize;

use super::confirmation::DeletionConfirmation;
use super::failure::CommandFailure;
use super::limit_arg::{LimitArg, all_request_limits, request_limits};
use super::managed_gateway::{GatewayArgs, ManagedGateway, page_size};
use super::output::{Column, cell, moment, print, print_json, print_message, table};
use super::time_span::{parse_duration, parse_end};
use crate::client::admin::types::{CreatedKey, GraceSeconds, Key, KeyName, KeyRotation, KeyUpdate, NewKey, builder};
use crate::client::admin::{Error, types};
use crate::gateway::config::{DEFAULT_GROUP, Dialect};
use crate::gateway::store::Timestamp;

/// The text that is shown as the owner of a key without a user.
const NO_OWNER: &str = "no user yet (the first admin will own it)";

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

/// A new key with its secret, as it is printed.
#[derive(Serialize)]
struct NewKeyLine<'a> {
    #[serde(flatten)]
    key: &'a Key,
    secret: &'a str,
}

// === impl KeyCommand ===

impl KeyCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let Self { gateway, json, action } = self;
        // The question comes after the name of another gateway.
        let gateway = gateway.find()?;
        if let KeyAction::Delete { id, confirmation } = &action {
            confirmation.ask(&format!("the key {id}"))?;
        }
        gateway.run(async |gateway| action.run(gateway, json).await)
    }
}

// === impl KeyAction ===

impl KeyAction {
    async fn run(self, gateway: &ManagedGateway, json: bool) -> Result<(), CommandFailure> {
        let admin = &gateway.admin;
        match self {
            Self::Create { name, user, group, expires, limits, dialects } => {
                let new = NewKey::builder()
                    .name(KeyName::try_from(name).map_err(Error::from)?)
                    .user(user)
                    .group(group)
                    .expires_at(expires.map(chrono::DateTime::from))
                    .limits(request_limits(limits)?)
                    .dialects(Some(words(&dialects)?).filter(|dialects| !dialects.is_empty()));
                let created = admin.create_key().body(new).send().await?;
                print_new(&created, json)?;
                warn_if_group_has_no_account(&created.key, gateway);
                Ok(())
            }
            Self::Rotate { id, grace } => {
                let grace = i64::try_from(grace.as_secs()).ok().and_then(|seconds| GraceSeconds::new(seconds).ok());
                let grace = grace.ok_or_else(|| anyhow!("the former secret can stay valid for at most 30 days"))?;
                let rotation = KeyRotation::builder().grace_seconds(Some(grace));
                print_new(&admin.rotate_key().id(id).body(rotation).send().await?, json)
            }
            Self::Limit { id, limits } => {
                let limits = all_request_limits(limits)?;
                update(gateway, &id, KeyUpdate::builder().limits(Some(limits)), "limited", json).await
            }
            Self::Dialects { id, dialects } => {
                update(gateway, &id, KeyUpdate::builder().dialects(Some(words(&dialects)?)), "changed", json).await
            }
            Self::List => print_list(&list(gateway).await?, json),
            Self::Disable { id } => {
                update(gateway, &id, KeyUpdate::builder().enabled(Some(false)), "disabled", json).await
            }
            Self::Enable { id } => {
                update(gateway, &id, KeyUpdate::builder().enabled(Some(true)), "enabled", json).await
            }
            Self::Delete { id, .. } => {
                let key = admin.retrieve_key().id(id).send().await?;
                admin.delete_key().id(&key.id).send().await?;
                print_change(&key, "deleted", json)
            }
        }
    }
}

/// Warns if no account of the settings on this machine serves the group of the key. Accounts of the store are not
/// considered.
fn warn_if_group_has_no_account(key: &Key, gateway: &ManagedGateway) {
    let Some(local) = &gateway.local else { return };
    if !local.config.accounts.iter().any(|account| account.groups.contains(&key.group)) {
        print_message(&format!("no upstream account serves the group {} yet", key.group));
    }
}

/// The words, as the types of the client have them. Both come from the same document.
fn words(dialects: &[Dialect]) -> Result<Vec<types::Dialect>, Error> {
    dialects.iter().map(|dialect| dialect.as_str().parse().map_err(Error::from)).collect()
}

async fn update(
    gateway: &ManagedGateway,
    id: &str,
    change: builder::KeyUpdate,
    outcome: &str,
    json: bool,
) -> Result<(), CommandFailure> {
    print_change(&gateway.admin.update_key().id(id).body(change).send().await?, outcome, json)
}

/// Returns all keys, oldest first.
async fn list(gateway: &ManagedGateway) -> Result<Vec<Key>, CommandFailure> {
    let mut keys: Vec<Key> = Vec::new();
    loop {
        let mut request = gateway.admin.list_keys().limit(page_size()?);
        if let Some(last) = keys.last() {
            request = request.before(&last.id);
        }
        let page = request.send().await?;
        let has_more = page.has_more && !page.data.is_empty();
        keys.extend(page.data);
        if !has_more {
            break;
        }
    }
    keys.reverse();
    Ok(keys)
}

fn print_new(created: &CreatedKey, json: bool) -> Result<(), CommandFailure> {
    let (key, secret) = (&created.key, created.secret.expose());
    if json {
        return Ok(print_json(&NewKeyLine { key, secret })?);
    }
    // The secret is alone on its line, so that a script can read the line unchanged.
    print(&format!("{secret}\n"))?;
    let owner = key.user_name.as_ref().map_or_else(|| NO_OWNER.to_owned(), |name| format!("user {name}"));
    print_message(&format!("key {} of {owner} in group {}; its secret is shown only once", key.id, key.group));
    if let Some(until) = key.previous_until {
        print_message(&format!("the previous secret is valid until {}", moment(until)));
    }
    Ok(())
}

/// Prints a key after a change.
fn print_change(key: &Key, outcome: &str, json: bool) -> Result<(), CommandFailure> {
    Ok(if json { print_json(key) } else { print(&format!("{} {outcome}\n", key.id)) }?)
}

fn table_row(key: &Key) -> [String; 9] {
    let lock = key.locked.as_ref().map(|lock| format!(" ({lock})")).unwrap_or_default();
    [
        key.id.clone(),
        key.name.clone(),
        cell(key.user_name.as_ref()),
        key.group.clone(),
        key.public_id.clone(),
        format!("{}{lock}", key.state),
        moment(key.created_at),
        cell(key.expires_at.map(moment)),
        cell(key.last_used_at.map(moment)),
    ]
}

fn print_list(keys: &[Key], json: bool) -> Result<(), CommandFailure> {
    if json {
        return Ok(print_json(&keys)?);
    }
    let rows: Vec<[String; 9]> = keys.iter().map(table_row).collect();
    let [name, user, group] = ["NAME", "USER", "GROUP"].map(Column::name);
    let state = Column::state("STATE");
    let [created, expires, used] = ["CREATED", "EXPIRES", "LAST USED"].map(Column::moment);
    Ok(print(&table(["ID".into(), name, user, group, "PUBLIC ID".into(), state, created, expires, used], &rows))?)
}
