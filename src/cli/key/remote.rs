//! The command `imagate key` on a gateway that is managed through its admin API.

use super::KeyAction;
use super::view::{KeyView, NewKeyView, print_list};
use crate::cli::failure::CommandFailure;
use crate::cli::limit_arg::{all_request_limits, request_limits};
use crate::cli::remote::{RemoteGateway, page_size, view};
use crate::client::admin::types::{GraceSeconds, Key, KeyName, KeyRotation, KeyUpdate, NewKey};
use crate::client::admin::{Error, types};
use crate::gateway::config::Dialect;

pub(super) async fn run(gateway: &RemoteGateway, action: KeyAction, json: bool) -> Result<(), CommandFailure> {
    let admin = &gateway.admin;
    match action {
        KeyAction::Create { name, user, group, expires, limits, dialects } => {
            let new = NewKey::builder()
                .name(KeyName::try_from(name).map_err(Error::from)?)
                .user(user)
                .group(group)
                .expires_at(expires.map(chrono::DateTime::from))
                .limits(request_limits(limits)?)
                .dialects(Some(words(&dialects)?).filter(|dialects| !dialects.is_empty()));
            new_key(&admin.create_key().body(new).send().await?)?.print(json)
        }
        KeyAction::Rotate { id, grace } => {
            let grace = GraceSeconds::new(i64::try_from(grace.as_secs()).unwrap_or(i64::MAX))?;
            let rotation = KeyRotation::builder().grace_seconds(Some(grace));
            new_key(&admin.rotate_key().id(id).body(rotation).send().await?)?.print(json)
        }
        KeyAction::Limit { id, limits } => {
            let limits = all_request_limits(limits)?;
            update(gateway, &id, KeyUpdate::builder().limits(Some(limits)), "limited", json).await
        }
        KeyAction::Dialects { id, dialects } => {
            update(gateway, &id, KeyUpdate::builder().dialects(Some(words(&dialects)?)), "changed", json).await
        }
        KeyAction::List => print_list(&list(gateway).await?, json),
        KeyAction::Disable { id } => {
            update(gateway, &id, KeyUpdate::builder().enabled(Some(false)), "disabled", json).await
        }
        KeyAction::Enable { id } => {
            update(gateway, &id, KeyUpdate::builder().enabled(Some(true)), "enabled", json).await
        }
        KeyAction::Delete { id, .. } => {
            let key: KeyView = view(&admin.retrieve_key().id(id).send().await?)?;
            admin.delete_key().id(&key.id).send().await?;
            key.print_change("deleted", json)
        }
    }
}

/// The words, as the types of the client have them. Both come from the same document.
fn words(dialects: &[Dialect]) -> Result<Vec<types::Dialect>, Error> {
    dialects.iter().map(|dialect| dialect.as_str().parse().map_err(Error::from)).collect()
}

async fn update(
    gateway: &RemoteGateway,
    id: &str,
    change: types::builder::KeyUpdate,
    outcome: &str,
    json: bool,
) -> Result<(), CommandFailure> {
    view::<KeyView>(&gateway.admin.update_key().id(id).body(change).send().await?)?.print_change(outcome, json)
}

fn new_key(created: &types::CreatedKey) -> Result<NewKeyView, CommandFailure> {
    Ok(view::<NewKeyView>(&created.key)?.with_secret(created.secret.expose()))
}

/// Returns all keys, oldest first, as on the store.
async fn list(gateway: &RemoteGateway) -> Result<Vec<KeyView>, CommandFailure> {
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
    keys.iter().rev().map(view).collect()
}
