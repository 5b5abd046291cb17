//! The command `imagate token create|list|delete`.

use anyhow::anyhow;
use clap::{Args, Subcommand};
use serde::Serialize;

use super::confirmation::DeletionConfirmation;
use super::failure::CommandFailure;
use super::managed_gateway::{GatewayArgs, ManagedGateway};
use super::output::{Column, cell, moment, print, print_json, print_message, table};
use super::time_span::parse_end;
use crate::client::admin::Error;
use crate::client::admin::types::{CreatedToken, KeyName, NewToken, Token};
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

/// A new token with its secret, as it is printed.
#[derive(Serialize)]
struct NewTokenLine<'a> {
    #[serde(flatten)]
    token: &'a Token,
    secret: &'a str,
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
                let role = admin.retrieve_user().id(&created.token.user).send().await?.role.to_string();
                print_new(&created, &role, json)
            }
            Self::List => print_list(&list(gateway).await?, json),
            Self::Delete { id, .. } => {
                let tokens = list(gateway).await?;
                let token = tokens.into_iter().find(|token| token.id == id || token.public_id == id);
                let token = token.ok_or_else(|| anyhow!("the token {id} does not exist"))?;
                admin.delete_token().id(&token.id).send().await?;
                Ok(if json { print_json(&token) } else { print(&format!("{} deleted\n", token.id)) }?)
            }
        }
    }
}

/// Returns all tokens, oldest first.
async fn list(gateway: &ManagedGateway) -> Result<Vec<Token>, Error> {
    let mut tokens = gateway.admin.list_tokens().send().await?.data;
    tokens.reverse();
    Ok(tokens)
}

/// Prints a new token.
fn print_new(created: &CreatedToken, role: &str, json: bool) -> Result<(), CommandFailure> {
    let (token, secret) = (&created.token, created.secret.expose());
    if json {
        return Ok(print_json(&NewTokenLine { token, secret })?);
    }
    // The secret is alone on its line, so that a script can read the line unchanged.
    print(&format!("{secret}\n"))?;
    print_message(&format!("token {} of {role} {}; it is shown only once", token.id, token.user_name));
    Ok(())
}

fn table_row(token: &Token) -> [String; 7] {
    let [id, name, user, public_id] = [&token.id, &token.name, &token.user_name, &token.public_id].map(Clone::clone);
    let [expires, used] = [token.expires_at, token.last_used_at].map(|at| cell(at.map(moment)));
    [id, name, user, public_id, moment(token.created_at), expires, used]
}

fn print_list(tokens: &[Token], json: bool) -> Result<(), CommandFailure> {
    if json {
        return Ok(print_json(&tokens)?);
    }
    let rows: Vec<[String; 7]> = tokens.iter().map(table_row).collect();
    let [name, user] = ["NAME", "USER"].map(Column::name);
    let [created, expires, used] = ["CREATED", "EXPIRES", "LAST USED"].map(Column::moment);
    Ok(print(&table(["ID".into(), name, user, "PUBLIC ID".into(), created, expires, used], &rows))?)
}
