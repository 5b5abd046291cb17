//! The command `imagate token create|list|delete`.

use anyhow::anyhow;
use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};

use super::confirmation::DeletionConfirmation;
use super::failure::CommandFailure;
use super::managed_gateway::{GatewayArgs, ManagedGateway, view};
use super::output::{Column, cell, print, print_json, print_message, table};
use super::time_span::parse_end;
use crate::client::admin::Error;
use crate::client::admin::types::{KeyName, NewToken};
use crate::gateway::store::Timestamp;

/// Arguments of `token`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(super) struct TokenCommand {
    #[command(flatten)]
    gateway: GatewayArgs,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: TokenAction,
}

#[derive(Debug, Subcommand)]
enum TokenAction {
    /// Create a token for the admin API, with the rights of its user. It is printed only once.
    Create {
        /// The name of the token.
        #[arg(long, value_name = "NAME")]
        name: String,
        /// The user that the token belongs to.
        #[arg(long, value_name = "USER")]
        user: String,
        /// The expiry: a duration from now such as 30d, a date, or a date and time [default: never]
        #[arg(long, value_name = "T", value_parser = parse_end)]
        expires: Option<Timestamp>,
    },
    /// List the tokens, without their secrets.
    List,
    /// Delete a token. This cannot be undone.
    Delete {
        /// The id of the token, or the visible part of its secret.
        id: String,
        #[command(flatten)]
        confirmation: DeletionConfirmation,
    },
}

/// A token, as it is printed; the secret is present only if the token is new. Scripts rely on the fields and their order.
#[derive(Serialize, Deserialize)]
struct TokenView {
    id: String,
    name: String,
    user: String,
    user_name: String,
    public_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
    last_used_at: Option<Timestamp>,
}

// === impl TokenCommand ===

impl TokenCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let Self { gateway, json, action } = self;
        // The question comes after the name of another gateway.
        let gateway = gateway.find()?;
        if let TokenAction::Delete { id, confirmation } = &action {
            confirmation.ask(&format!("the token {id}"))?;
        }
        gateway.run(async |gateway| action.run(gateway, json).await)
    }
}

// === impl TokenAction ===

impl TokenAction {
    async fn run(self, gateway: &ManagedGateway, json: bool) -> Result<(), CommandFailure> {
        let admin = &gateway.admin;
        match self {
            Self::Create { name, user, expires } => {
                let new = NewToken::builder()
                    .name(KeyName::try_from(name).map_err(Error::from)?)
                    .user(Some(user))
                    .expires_at(expires.map(chrono::DateTime::from));
                let created = admin.create_token().body(new).send().await?;
                let token: TokenView = view(&created.token)?;
                let role = admin.retrieve_user().id(&token.user).send().await?.role.to_string();
                token.with_secret(created.secret.expose()).print_new(&role, json)
            }
            Self::List => print_list(&list(gateway).await?, json),
            Self::Delete { id, .. } => {
                let tokens = list(gateway).await?;
                let token = tokens.into_iter().find(|token| token.id == id || token.public_id == id);
                let token = token.ok_or_else(|| anyhow!("the token {id} does not exist"))?;
                admin.delete_token().id(&token.id).send().await?;
                token.print_deleted(json)
            }
        }
    }
}

/// Returns all tokens, oldest first.
async fn list(gateway: &ManagedGateway) -> Result<Vec<TokenView>, CommandFailure> {
    let tokens = gateway.admin.list_tokens().send().await?;
    tokens.data.iter().rev().map(view).collect()
}

// === impl TokenView ===

impl TokenView {
    /// Adds the secret of a new token.
    fn with_secret(self, secret: &str) -> Self {
        Self { secret: Some(secret.to_owned()), ..self }
    }

    /// Prints a new token. `role` is that of its user.
    fn print_new(&self, role: &str, json: bool) -> Result<(), CommandFailure> {
        if json {
            return Ok(print_json(self)?);
        }
        // The secret is alone on its line, so that a script can read the line unchanged.
        print(&format!("{}\n", self.secret.as_deref().unwrap_or_default()))?;
        print_message(&format!("token {} of {role} {}; it is shown only once", self.id, self.user_name));
        Ok(())
    }

    fn print_deleted(&self, json: bool) -> Result<(), CommandFailure> {
        if json {
            print_json(self)?;
        } else {
            print(&format!("{} deleted\n", self.id))?;
        }
        Ok(())
    }

    fn table_row(&self) -> [String; 7] {
        let [id, name, user, public_id] = [&self.id, &self.name, &self.user_name, &self.public_id].map(Clone::clone);
        [id, name, user, public_id, self.created_at.to_string(), cell(self.expires_at), cell(self.last_used_at)]
    }
}

fn print_list(tokens: &[TokenView], json: bool) -> Result<(), CommandFailure> {
    if json {
        return Ok(print_json(&tokens)?);
    }
    let rows: Vec<[String; 7]> = tokens.iter().map(TokenView::table_row).collect();
    let [name, user] = ["NAME", "USER"].map(Column::name);
    let [created, expires, used] = ["CREATED", "EXPIRES", "LAST USED"].map(Column::moment);
    Ok(print(&table(["ID".into(), name, user, "PUBLIC ID".into(), created, expires, used], &rows))?)
}
