//! The command `imagate token create|list|delete`.

mod remote;
mod view;

use clap::{Args, Subcommand};

use super::confirmation::DeletionConfirmation;
use super::failure::CommandFailure;
use super::remote::GatewayArgs;
use super::time_span::parse_end;
use crate::gateway;
use crate::gateway::people::{IdentityError, IdentityService, NewToken};
use crate::gateway::store::{AuditContext, Timestamp};
use view::{TokenView, print_list};

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

// === impl TokenCommand ===

impl TokenCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let Self { gateway, json, action } = self;
        // The question comes after the name of another gateway.
        let remote = gateway.remote()?;
        if let TokenAction::Delete { id, confirmation } = &action {
            confirmation.ask(&format!("the token {id}"))?;
        }
        if let Some(gateway) = remote {
            return gateway.run(async |gateway| remote::run(gateway, action, json).await);
        }
        gateway.installation.with_store(async |config, store| {
            let people = gateway::open_people(config, store);
            match action {
                TokenAction::Create { name, user, expires } => {
                    let (expires_at, max_tokens) = (expires, config.max_tokens_per_user);
                    create(&people, &user, NewToken { name: &name, expires_at, maker: None, max_tokens }, json).await
                }
                TokenAction::List => list(&people, json).await,
                TokenAction::Delete { id, .. } => delete(&people, &id, json).await,
            }
        })
    }
}

async fn create(people: &IdentityService, user: &str, new: NewToken<'_>, json: bool) -> Result<(), CommandFailure> {
    let user = people.find_user(user).await.map_err(|error| token_failure(error, &format!("user {user}")))?;
    let (token, secret) = people.create_token(&AuditContext::command(), &user, new).await?;
    let role = user.role.as_str();
    TokenView::from(token).with_secret(secret.expose()).print_new(role, json)
}

async fn list(people: &IdentityService, json: bool) -> Result<(), CommandFailure> {
    let mut tokens = people.tokens(None).await?;
    tokens.reverse();
    let tokens: Vec<TokenView> = tokens.into_iter().map(TokenView::from).collect();
    print_list(&tokens, json)
}

async fn delete(people: &IdentityService, id: &str, json: bool) -> Result<(), CommandFailure> {
    let token = people.revoke_token(&AuditContext::command(), id, None).await;
    let token = token.map_err(|error| token_failure(error, &format!("token {id}")))?;
    TokenView::from(token).print_deleted(json)
}

fn token_failure(error: IdentityError, subject: &str) -> CommandFailure {
    CommandFailure::Failed(match error {
        IdentityError::Unknown => anyhow::anyhow!("the {subject} does not exist"),
        error => error.into(),
    })
}
