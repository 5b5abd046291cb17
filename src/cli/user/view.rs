//! Users and one-time links as they are printed: those of the store and those of the admin API alike.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cli::failure::CommandFailure;
use crate::cli::output::{Column, cell, print, print_json, print_message, table};
use crate::cli::remote::{limits_view, with_plain_numbers};
use crate::gateway::names;
use crate::gateway::store::{Timestamp, UserRow};

/// A user. Scripts rely on the fields and their order.
#[derive(Serialize, Deserialize)]
pub(super) struct UserView {
    pub(super) id: String,
    pub(super) name: String,
    role: String,
    pub(super) groups: Vec<String>,
    has_password: bool,
    #[serde(default)]
    has_second_factor: bool,
    #[serde(default)]
    has_identity: bool,
    created_at: Timestamp,
    disabled_at: Option<Timestamp>,
    last_sign_in_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "limits_view")]
    limits: Option<Value>,
}

/// A one-time link; one for the first admin has no user.
#[derive(Serialize)]
pub(super) struct LinkView<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<&'a str>,
    pub(super) link: &'a str,
    pub(super) expires_at: Timestamp,
}

// === impl UserView ===

impl UserView {
    /// Prints the user after a change.
    pub(super) fn print_change(&self, outcome: &str, json: bool) -> Result<(), CommandFailure> {
        if json {
            print_json(self)?;
        } else {
            print(&format!("{} {outcome}\n", names::escape_hidden(&self.name)))?;
        }
        Ok(())
    }

    /// The outcome of a change of the groups.
    pub(super) fn groups_outcome(&self) -> String {
        format!("is in {}", if self.groups.is_empty() { "no group".to_owned() } else { self.groups.join(", ") })
    }

    fn table_row(&self) -> [String; 6] {
        let state = match (self.disabled_at, self.has_password || self.has_identity) {
            (Some(_), _) => "disabled",
            (None, true) => "active",
            (None, false) => "no password",
        };
        let groups = cell(Some(self.groups.join(",")).filter(|groups| !groups.is_empty()));
        let [id, name, role] = [&self.id, &self.name, &self.role].map(Clone::clone);
        [id, name, role, groups, state.to_owned(), cell(self.last_sign_in_at)]
    }
}

impl From<UserRow> for UserView {
    fn from(user: UserRow) -> Self {
        let limits = user.limits.as_deref().and_then(|limits| serde_json::from_str(limits).ok());
        Self {
            id: user.id.to_string(),
            name: user.name,
            role: user.role.as_str().to_owned(),
            groups: user.groups,
            has_password: user.has_password,
            has_second_factor: user.has_second_factor,
            has_identity: user.has_identity,
            created_at: user.created_at,
            disabled_at: user.disabled_at,
            last_sign_in_at: user.last_sign_in_at,
            limits: limits.map(with_plain_numbers),
        }
    }
}

// === impl LinkView ===

impl LinkView<'_> {
    /// Prints the link alone on its line, so that a script can read the line unchanged.
    pub(super) fn print(&self, json: bool) -> Result<(), CommandFailure> {
        if json {
            return Ok(print_json(self)?);
        }
        print(&format!("{}\n", self.link))?;
        let name = self.name.unwrap_or("the first admin");
        print_message(&format!("one-time link for {name}, valid until {}", self.expires_at));
        Ok(())
    }
}

pub(super) fn print_list(users: &[UserView], json: bool) -> Result<(), CommandFailure> {
    if json {
        return Ok(print_json(&users)?);
    }
    let rows: Vec<[String; 6]> = users.iter().map(UserView::table_row).collect();
    let (name, groups) = (Column::from("NAME"), Column::name("GROUPS"));
    let (state, signed_in) = (Column::state("STATE"), Column::moment("LAST SIGN-IN"));
    Ok(print(&table(["ID".into(), name, "ROLE".into(), groups, state, signed_in], &rows))?)
}

/// Prints which key is disabled because its user left its group.
pub(super) fn print_stopped_key(id: &str, key: &str, group: &str, user: &str) {
    print_message(&format!("key {id} ({key}) in group {group} is disabled: {user} left the group"));
}
