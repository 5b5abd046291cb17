//! Admin tokens as they are printed: those of the store and those of the admin API alike.

use serde::{Deserialize, Serialize};

use crate::cli::failure::CommandFailure;
use crate::cli::output::{Column, cell, print, print_json, print_message, table};
use crate::gateway::store::{AdminTokenRow, Timestamp};

/// A token; the secret is present only if the token is new. Scripts rely on the fields and their order.
#[derive(Serialize, Deserialize)]
pub(super) struct TokenView {
    pub(super) id: String,
    name: String,
    user: String,
    user_name: String,
    pub(super) public_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
    last_used_at: Option<Timestamp>,
}

// === impl TokenView ===

impl TokenView {
    /// Adds the secret of a new token.
    pub(super) fn with_secret(self, secret: &str) -> Self {
        Self { secret: Some(secret.to_owned()), ..self }
    }

    /// Prints a new token. `role` is that of its user.
    pub(super) fn print_new(&self, role: &str, json: bool) -> Result<(), CommandFailure> {
        if json {
            return Ok(print_json(self)?);
        }
        // The secret is alone on its line, so that a script can read the line unchanged.
        print(&format!("{}\n", self.secret.as_deref().unwrap_or_default()))?;
        print_message(&format!("token {} of {role} {}; it is shown only once", self.id, self.user_name));
        Ok(())
    }

    pub(super) fn print_deleted(&self, json: bool) -> Result<(), CommandFailure> {
        if json {
            print_json(self)?;
        } else {
            print(&format!("{} deleted\n", self.id))?;
        }
        Ok(())
    }

    pub(super) fn user(&self) -> &str {
        &self.user
    }

    fn table_row(&self) -> [String; 7] {
        let [id, name, user, public_id] = [&self.id, &self.name, &self.user_name, &self.public_id].map(Clone::clone);
        [id, name, user, public_id, self.created_at.to_string(), cell(self.expires_at), cell(self.last_used_at)]
    }
}

impl From<AdminTokenRow> for TokenView {
    fn from(token: AdminTokenRow) -> Self {
        Self {
            id: token.id.to_string(),
            name: token.name,
            user: token.user.to_string(),
            user_name: token.user_name,
            public_id: token.public_id.to_string(),
            secret: None,
            created_at: token.created_at,
            expires_at: token.expires_at,
            last_used_at: token.last_used_at,
        }
    }
}

pub(super) fn print_list(tokens: &[TokenView], json: bool) -> Result<(), CommandFailure> {
    if json {
        return Ok(print_json(&tokens)?);
    }
    let rows: Vec<[String; 7]> = tokens.iter().map(TokenView::table_row).collect();
    let [name, user] = ["NAME", "USER"].map(Column::name);
    let [created, expires, used] = ["CREATED", "EXPIRES", "LAST USED"].map(Column::moment);
    Ok(print(&table(["ID".into(), name, user, "PUBLIC ID".into(), created, expires, used], &rows))?)
}
