//! The command `imagate token create|list|delete`.

use clap::{Args, Subcommand};
use serde::Serialize;

use super::failure::CommandFailure;
use super::installation::InstallationArgs;
use super::output::{cell, print, print_json, print_message, table};
use super::time_span::parse_end;
use crate::gateway;
use crate::gateway::people::{IdentityError, IdentityService};
use crate::gateway::store::{AdminTokenRow, AuditContext, PublicId, Timestamp, TokenId, UserId};

/// Arguments of `token`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(super) struct TokenCommand {
    #[command(flatten)]
    installation: InstallationArgs,
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
    },
}

/// A token in JSON; the secret is present only if the token is new.
#[derive(Serialize)]
struct TokenJson<'a> {
    id: &'a TokenId,
    name: &'a str,
    user: &'a UserId,
    user_name: &'a str,
    public_id: &'a PublicId,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<&'a str>,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
    last_used_at: Option<Timestamp>,
}

// === impl TokenCommand ===

impl TokenCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let Self { installation, json, action } = self;
        installation.with_store(async |config, store| {
            let people = gateway::open_people(config, store);
            match action {
                TokenAction::Create { name, user, expires } => create(&people, &name, &user, expires, json).await,
                TokenAction::List => list(&people, json).await,
                TokenAction::Delete { id } => delete(&people, &id, json).await,
            }
        })
    }
}

async fn create(
    people: &IdentityService,
    name: &str,
    user: &str,
    expires: Option<Timestamp>,
    json: bool,
) -> Result<(), CommandFailure> {
    let user = people.find_user(user).await.map_err(|error| token_failure(error, &format!("user {user}")))?;
    let (token, secret) = people.create_token(&AuditContext::command(), &user, name, expires).await?;
    if json {
        return Ok(print_json(&TokenJson { secret: Some(secret.expose()), ..to_json(&token) })?);
    }
    // The secret is alone on its line, so that a script can read the line unchanged.
    print(&format!("{}\n", secret.expose()))?;
    print_message(&format!("token {} of {} {}; it is shown only once", token.id, user.role.as_str(), user.name));
    Ok(())
}

async fn list(people: &IdentityService, json: bool) -> Result<(), CommandFailure> {
    let mut tokens = people.tokens(None).await?;
    tokens.reverse();
    if json {
        return Ok(print_json(&tokens.iter().map(to_json).collect::<Vec<_>>())?);
    }
    let rows: Vec<[String; 7]> = tokens.into_iter().map(table_row).collect();
    Ok(print(&table(["ID", "NAME", "USER", "PUBLIC ID", "CREATED", "EXPIRES", "LAST USED"], &rows))?)
}

async fn delete(people: &IdentityService, id: &str, json: bool) -> Result<(), CommandFailure> {
    let token = people.revoke_token(&AuditContext::command(), id, None).await;
    let token = token.map_err(|error| token_failure(error, &format!("token {id}")))?;
    if json {
        print_json(&to_json(&token))?;
    } else {
        print(&format!("{} deleted\n", token.id))?;
    }
    Ok(())
}

fn token_failure(error: IdentityError, subject: &str) -> CommandFailure {
    CommandFailure::Failed(match error {
        IdentityError::Unknown => anyhow::anyhow!("the {subject} does not exist"),
        error => error.into(),
    })
}

fn to_json(token: &AdminTokenRow) -> TokenJson<'_> {
    TokenJson {
        id: &token.id,
        name: &token.name,
        user: &token.user,
        user_name: &token.user_name,
        public_id: &token.public_id,
        secret: None,
        created_at: token.created_at,
        expires_at: token.expires_at,
        last_used_at: token.last_used_at,
    }
}

fn table_row(token: AdminTokenRow) -> [String; 7] {
    let [id, public_id] = [token.id.to_string(), token.public_id.to_string()];
    let [created, expires] = [token.created_at.to_string(), cell(token.expires_at)];
    [id, token.name, token.user_name, public_id, created, expires, cell(token.last_used_at)]
}
