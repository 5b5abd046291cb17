//! The key under which the playground sends a form.
//!
//! A user without a key gets one, whose secret nobody has seen. The module decides that a user gets one such key, however
//! many forms are sent at once and on however many nodes: the forms take turns, and each looks for the key first.

use std::sync::Arc;

use serde_json::json;

use super::page_context::PageContext;
use super::page_error::PageError;
use super::playground::{self, NEW_KEY, own_keys_query};
use crate::error::Error;
use crate::gateway::console::Console;
use crate::gateway::people::Actor;
use crate::wire::admin::server::ListKeysQuery;
use crate::wire::admin::types;

/// The name of the key that the playground creates for a user without one.
const KEY_NAME: &str = "Playground";
/// The group in which that key is created, if the user may use it.
const DEFAULT_GROUP: &str = "default";
/// The context of the hash that identifies the turns of a user.
const TURN: &str = "turn to create the key of the playground";

/// Returns the key that the form names, or the one that the playground has created or creates now.
pub(super) async fn chosen_key(context: &PageContext<'_>) -> Result<Result<types::Key, Error>, PageError> {
    let chosen = context.request.form_field("key");
    let keys = playground::own_keys(context).await?;
    if chosen != NEW_KEY {
        return Ok(keys.into_iter().find(|key| key.id == chosen).ok_or(Error::InvalidKey));
    }
    if let Some(key) = keys.into_iter().find(|key| key.name == KEY_NAME) {
        return Ok(Ok(key));
    }
    let Some(owner) = context.own_user_id() else { return Ok(Err(Error::InvalidKey)) };
    let scope = context.vault().keyed_hash(TURN, owner.to_string().as_bytes());
    let (console, actor, query) =
        (Arc::clone(&context.gateway.console), context.actor()?.clone(), own_keys_query(context));
    let work = async move { find_or_create_key(&console, &actor, &query).await };
    let created = context.gateway.images.replay.run_alone(scope, work).await;
    Ok(created.unwrap_or_else(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "the key of the playground could not be created");
        Err(Error::Unavailable)
    }))
}

/// Returns the key that the playground has created for the user, if there is one that can be used now.
pub(super) async fn created_key(context: &PageContext<'_>) -> Result<Option<types::Key>, PageError> {
    Ok(playground::own_keys(context).await?.into_iter().find(|key| key.name == KEY_NAME))
}

/// Returns the key that an earlier form has created, or creates it. Must be called in the turn of the user.
async fn find_or_create_key(console: &Console, actor: &Actor, own: &ListKeysQuery) -> Result<types::Key, Error> {
    let keys = console.list_keys(actor, own).await?.data;
    if let Some(key) = keys.into_iter().find(|key| key.name == KEY_NAME) {
        return Ok(key);
    }
    let groups = console.list_groups(actor).await?.data;
    let default = groups.iter().find(|group| group.name == DEFAULT_GROUP).or(groups.first());
    let body = json!({ "name": KEY_NAME, "group": default.map_or(DEFAULT_GROUP, |group| &group.name) }).to_string();
    console.create_key(actor, body.as_bytes()).await.map(|created| created.key)
}
