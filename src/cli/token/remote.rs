//! The command `imagate token` on a gateway that is managed through its admin API.

use anyhow::anyhow;

use super::TokenAction;
use super::view::{TokenView, print_list};
use crate::cli::failure::CommandFailure;
use crate::cli::remote::{RemoteGateway, view};
use crate::client::admin::Error;
use crate::client::admin::types::{KeyName, NewToken};

pub(super) async fn run(gateway: &RemoteGateway, action: TokenAction, json: bool) -> Result<(), CommandFailure> {
    let admin = &gateway.admin;
    match action {
        TokenAction::Create { name, user, expires } => {
            let new = NewToken::builder()
                .name(KeyName::try_from(name).map_err(Error::from)?)
                .user(Some(user))
                .expires_at(expires.map(chrono::DateTime::from));
            let created = admin.create_token().body(new).send().await?;
            let token: TokenView = view(&created.token)?;
            let role = admin.retrieve_user().id(token.user()).send().await?.role.to_string();
            token.with_secret(created.secret.expose()).print_new(&role, json)
        }
        TokenAction::List => print_list(&list(gateway).await?, json),
        TokenAction::Delete { id, .. } => {
            let tokens = list(gateway).await?;
            let token = tokens.into_iter().find(|token| token.id == id || token.public_id == id);
            let token = token.ok_or_else(|| anyhow!("the token {id} does not exist"))?;
            admin.delete_token().id(&token.id).send().await?;
            token.print_deleted(json)
        }
    }
}

/// Returns all tokens, oldest first, as on the store.
async fn list(gateway: &RemoteGateway) -> Result<Vec<TokenView>, CommandFailure> {
    let tokens = gateway.admin.list_tokens().send().await?;
    tokens.data.iter().rev().map(view).collect()
}
