//! `imagate key create|list|disable|enable|delete`

use clap::{Args, Subcommand};
use serde::Serialize;

use super::failure::Failure;
use super::installation::Installation;
use super::output::{cell, print, print_json, remark, table};
use crate::gateway;
use crate::gateway::config::{Config, DEFAULT_GROUP};
use crate::gateway::keys::{KeyError, KeyId, KeyRow, Keys, PublicId, UserId};
use crate::gateway::store::Timestamp;

/// The user of whom nobody has said who it is.
const DEFAULT_USER: &str = "admin";

/// Arguments of `key`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(super) struct Key {
    #[command(flatten)]
    installation: Installation,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make a key. It is printed now and never again.
    Create {
        /// What to call the key.
        #[arg(long, value_name = "NAME")]
        name: String,
        /// Whose key it is; made where there is no such user.
        #[arg(long, value_name = "USER", default_value = DEFAULT_USER)]
        user: String,
        /// The group that the key belongs to.
        #[arg(long, value_name = "GROUP", default_value = DEFAULT_GROUP)]
        group: String,
    },
    /// List the keys, without their secrets.
    List,
    /// Refuse a key from now on, until it is enabled.
    Disable {
        /// The id of the key, or the visible part of its secret.
        id: String,
    },
    /// Take a disabling back.
    Enable {
        /// The id of the key, or the visible part of its secret.
        id: String,
    },
    /// Refuse a key for ever.
    Delete {
        /// The id of the key, or the visible part of its secret.
        id: String,
    },
}

/// A new key in JSON. The fields and their order are binding.
#[derive(Serialize)]
struct Made<'a> {
    id: &'a KeyId,
    name: &'a str,
    user: &'a UserId,
    group: &'a str,
    secret: &'a str,
    created_at: Timestamp,
}

/// A key that exists, in JSON.
#[derive(Serialize)]
struct Listed<'a> {
    id: &'a KeyId,
    name: &'a str,
    user: &'a UserId,
    user_name: &'a str,
    group: &'a str,
    public_id: &'a PublicId,
    state: &'static str,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
    last_used_at: Option<Timestamp>,
    disabled_at: Option<Timestamp>,
}

// === impl Key ===

impl Key {
    pub(super) fn run(self) -> Result<(), Failure> {
        let Self { installation, json, action } = self;
        installation.with_store(async |config, store| {
            let keys = gateway::open_keys(store);
            match action {
                Action::Create { name, user, group } => create(&keys, config, [&name, &user, &group], json).await,
                Action::List => list(&keys, json).await,
                Action::Disable { id } => changed(keys.disable(&id).await, &id, "disabled", json),
                Action::Enable { id } => changed(keys.enable(&id).await, &id, "enabled", json),
                Action::Delete { id } => changed(keys.delete(&id).await, &id, "deleted", json),
            }
        })
    }
}

async fn create(keys: &Keys, config: &Config, names: [&str; 3], json: bool) -> Result<(), Failure> {
    let [name, user, group] = names;
    let key = keys.create(name, user, group).await?;
    if json {
        // The words of the usage records: a user by its id, a group by its name.
        print_json(&Made {
            id: &key.id,
            name: &key.name,
            user: &key.user,
            group: &key.group_name,
            secret: key.secret.expose(),
            created_at: key.created_at,
        })?;
    } else {
        // Alone on its line, so that a script can take it as it is.
        print(&format!("{}\n", key.secret.expose()))?;
        remark(&format!(
            "key {} of user {} in group {}; its secret is shown only now",
            key.id, key.user_name, key.group_name
        ));
    }
    if !config.accounts.iter().any(|account| account.groups.contains(&key.group_name)) {
        remark(&format!("no upstream account serves the group {} yet", key.group_name));
    }
    Ok(())
}

async fn list(keys: &Keys, json: bool) -> Result<(), Failure> {
    let keys = keys.list().await?;
    if json {
        return Ok(print_json(&keys.iter().map(described).collect::<Vec<_>>())?);
    }
    let rows: Vec<[String; 8]> = keys.into_iter().map(row).collect();
    let headings = ["ID", "NAME", "USER", "GROUP", "PUBLIC ID", "STATE", "CREATED", "LAST USED"];
    Ok(print(&table(headings, &rows))?)
}

fn changed(change: Result<KeyRow, KeyError>, id: &str, done: &str, json: bool) -> Result<(), Failure> {
    let key = match change {
        Err(KeyError::Unknown) => {
            return Err(Failure::Failed(anyhow::anyhow!("there is no key {id}, or it is deleted")));
        }
        change => change?,
    };
    if json {
        print_json(&described(&key))?;
    } else {
        print(&format!("{} {done}\n", key.id))?;
    }
    Ok(())
}

fn described(key: &KeyRow) -> Listed<'_> {
    Listed {
        id: &key.id,
        name: &key.name,
        user: &key.user,
        user_name: &key.user_name,
        group: &key.group_name,
        public_id: &key.public_id,
        state: state(key),
        created_at: key.created_at,
        expires_at: key.expires_at,
        last_used_at: key.last_used_at,
        disabled_at: key.disabled_at,
    }
}

fn row(key: KeyRow) -> [String; 8] {
    let state = state(&key).to_owned();
    let [id, public_id] = [key.id.to_string(), key.public_id.to_string()];
    let [created, used] = [key.created_at.to_string(), cell(key.last_used_at)];
    [id, key.name, key.user_name, key.group_name, public_id, state, created, used]
}

fn state(key: &KeyRow) -> &'static str {
    if key.deleted_at.is_some() {
        "deleted"
    } else if key.disabled_at.is_some() {
        "disabled"
    } else if key.expires_at.is_some_and(|end| end <= Timestamp::now()) {
        "expired"
    } else {
        "active"
    }
}
