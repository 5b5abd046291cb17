//! Keys as they are printed: those of the store and those of the admin API alike.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cli::failure::CommandFailure;
use crate::cli::output::{Column, cell, print, print_json, print_message, table};
use crate::cli::remote::{limits_view, with_plain_numbers};
use crate::gateway::keys::{IssuedKey, KeyRow};
use crate::gateway::store::{KeyLock, Timestamp};

/// The text that is shown as the owner of a key without a user.
const NO_OWNER: &str = "no user yet (the first admin will own it)";

/// A new key. Scripts rely on the fields and their order.
#[derive(Serialize, Deserialize)]
pub(super) struct NewKeyView {
    id: String,
    name: String,
    user: String,
    #[serde(skip_serializing)]
    user_name: Option<String>,
    pub(super) group: String,
    #[serde(default)]
    secret: String,
    created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    previous_until: Option<Timestamp>,
}

/// An existing key.
#[derive(Serialize, Deserialize)]
pub(super) struct KeyView {
    pub(super) id: String,
    name: String,
    user: String,
    user_name: Option<String>,
    group: String,
    public_id: String,
    state: String,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
    last_used_at: Option<Timestamp>,
    disabled_at: Option<Timestamp>,
    locked: Option<String>,
    latest_end: Option<Timestamp>,
    previous_until: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "limits_view")]
    limits: Option<Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    dialects: Vec<String>,
}

// === impl NewKeyView ===

impl NewKeyView {
    /// Adds the secret, which the admin API sends beside the key.
    pub(super) fn with_secret(self, secret: &str) -> Self {
        Self { secret: secret.to_owned(), ..self }
    }

    pub(super) fn print(&self, json: bool) -> Result<(), CommandFailure> {
        if json {
            // The fields match the usage records: a user by id, a group by name.
            return Ok(print_json(self)?);
        }
        // The secret is alone on its line, so that a script can read the line unchanged.
        print(&format!("{}\n", self.secret))?;
        let owner = self.user_name.as_ref().map_or_else(|| NO_OWNER.to_owned(), |name| format!("user {name}"));
        print_message(&format!("key {} of {owner} in group {}; its secret is shown only once", self.id, self.group));
        if let Some(until) = self.previous_until {
            print_message(&format!("the previous secret is valid until {until}"));
        }
        Ok(())
    }
}

impl From<IssuedKey> for NewKeyView {
    fn from(key: IssuedKey) -> Self {
        Self {
            id: key.id.to_string(),
            name: key.name,
            user: key.user.to_string(),
            user_name: key.user_name,
            group: key.group_name,
            secret: key.secret.expose().to_owned(),
            created_at: key.created_at,
            expires_at: key.expires_at,
            previous_until: key.previous_until,
        }
    }
}

// === impl KeyView ===

impl KeyView {
    /// Prints the key after a change.
    pub(super) fn print_change(&self, outcome: &str, json: bool) -> Result<(), CommandFailure> {
        if json {
            print_json(self)?;
        } else {
            print(&format!("{} {outcome}\n", self.id))?;
        }
        Ok(())
    }

    fn table_row(&self) -> [String; 9] {
        let state = self.locked.as_ref().map_or_else(|| self.state.clone(), |lock| format!("{} ({lock})", self.state));
        [
            self.id.clone(),
            self.name.clone(),
            cell(self.user_name.as_ref()),
            self.group.clone(),
            self.public_id.clone(),
            state,
            self.created_at.to_string(),
            cell(self.expires_at),
            cell(self.last_used_at),
        ]
    }
}

impl From<KeyRow> for KeyView {
    fn from(key: KeyRow) -> Self {
        let now = Timestamp::now();
        Self {
            id: key.id.to_string(),
            state: key.state(now).as_str().to_owned(),
            name: key.name,
            user: key.user.to_string(),
            user_name: key.user_name,
            group: key.group_name,
            public_id: key.public_id.to_string(),
            created_at: key.created_at,
            expires_at: key.expires_at,
            last_used_at: key.last_used_at,
            disabled_at: key.disabled_at,
            locked: key.locked.map(|lock: KeyLock| lock.as_str().to_owned()),
            latest_end: key.latest_end,
            previous_until: key.previous_until.filter(|until| *until > now),
            dialects: key.dialects.iter().map(|dialect| dialect.as_str().to_owned()).collect(),
            limits: key.limits.as_deref().and_then(|limits| serde_json::from_str(limits).ok()).map(with_plain_numbers),
        }
    }
}

pub(super) fn print_list(keys: &[KeyView], json: bool) -> Result<(), CommandFailure> {
    if json {
        return Ok(print_json(&keys)?);
    }
    let rows: Vec<[String; 9]> = keys.iter().map(KeyView::table_row).collect();
    let [name, user, group] = ["NAME", "USER", "GROUP"].map(Column::name);
    let state = Column::state("STATE");
    let [created, expires, used] = ["CREATED", "EXPIRES", "LAST USED"].map(Column::moment);
    Ok(print(&table(["ID".into(), name, user, group, "PUBLIC ID".into(), state, created, expires, used], &rows))?)
}
