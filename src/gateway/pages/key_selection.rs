//! The form below the list of keys, which changes the selected keys.

use std::collections::BTreeSet;

use askama::Template;
use http::StatusCode;
use serde_json::json;

use super::http_messages::{PageResponse, UrlEncodedFields};
use super::page_context::PageContext;
use super::page_error::{PageError, render};
use super::page_layout::PageLayout;
use crate::error::Error;
use crate::gateway::people::Actor;

/// The field with the id of a selected key; it is repeated.
const KEY_FIELD: &str = "key";
/// The field with the query of the list, to which the browser returns.
const QUERY_FIELD: &str = "query";

/// The most keys of one form: a page of the list has no more.
const SELECTED_MAX: usize = 50;

/// A change of all selected keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SelectionChange {
    Disable,
    Enable,
    Delete,
}

/// A key of the selection, and the key of the text that says why it was not changed.
struct SelectedKey {
    id: String,
    name: String,
    refusal: Option<&'static str>,
}

/// The page that asks for confirmation before keys are deleted, or that names the keys that were not changed.
#[derive(Template)]
#[template(path = "key_selection.html", config = "src/gateway/pages/askama.toml")]
struct SelectionPage {
    page: PageLayout,
    title: &'static str,
    lead: &'static str,
    keys: Vec<SelectedKey>,
    /// True if the page asks for confirmation.
    is_question: bool,
    query: String,
    back: String,
}

/// Changes the selected keys, or asks for confirmation before they are deleted. A key that cannot be changed does not
/// keep the others from the change.
pub(super) async fn submit(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let keys = selected_keys(context).await?;
    let change = SelectionChange::from_word(context.request.form_field("action"));
    if keys.is_empty() {
        return Ok(show(context, "selection.none", "selection.none_lead", keys));
    }
    match change {
        None => Err(PageError::NotFound),
        Some(SelectionChange::Delete) if context.request.form_field("confirmed") != "yes" => {
            Ok(show(context, "selection.delete", "delete.key_consequence", keys))
        }
        Some(change) => change_keys(context, keys, change).await,
    }
}

/// Returns the selected keys that exist and that the user may see.
async fn selected_keys(context: &PageContext<'_>) -> Result<Vec<SelectedKey>, PageError> {
    let form = context.request.form.as_ref().ok();
    let ids: BTreeSet<&str> = form.into_iter().flat_map(|form| form.get_all(KEY_FIELD)).take(SELECTED_MAX).collect();
    let mut keys = Vec::new();
    for id in ids {
        match context.console().retrieve_key(context.actor()?, id).await {
            Ok(key) => keys.push(SelectedKey { id: key.id, name: key.name, refusal: None }),
            // It was deleted meanwhile.
            Err(Error::NotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(keys)
}

async fn change_keys(
    context: &PageContext<'_>,
    mut keys: Vec<SelectedKey>,
    change: SelectionChange,
) -> Result<PageResponse, PageError> {
    let actor = context.actor()?;
    for key in &mut keys {
        key.refusal = match change_key(context, actor, &key.id, change).await {
            Ok(()) | Err(Error::NotFound(_)) => None,
            Err(Error::AdminDecision(_)) => Some("error.key_locked"),
            Err(error) => return Err(error.into()),
        };
    }
    keys.retain(|key| key.refusal.is_some());
    if keys.is_empty() {
        let back = list_path(context, Some(change.notice()));
        return Ok(PageResponse::redirect(&back));
    }
    Ok(show(context, "selection.refused", "selection.refused_lead", keys))
}

async fn change_key(context: &PageContext<'_>, actor: &Actor, id: &str, change: SelectionChange) -> Result<(), Error> {
    let console = context.console();
    if change == SelectionChange::Delete {
        return console.delete_key(actor, id).await.map(drop);
    }
    let body = json!({ "enabled": change == SelectionChange::Enable }).to_string();
    console.update_key(actor, id, body.as_bytes()).await.map(drop)
}

fn show(context: &PageContext<'_>, title: &'static str, lead: &'static str, keys: Vec<SelectedKey>) -> PageResponse {
    let is_question = title == "selection.delete";
    let template = SelectionPage {
        page: context.layout("keys"),
        title,
        lead,
        keys,
        is_question,
        query: list_query(context),
        back: list_path(context, None),
    };
    render(if is_question { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY }, &template)
}

/// The query of the list from which the form was sent.
fn list_query(context: &PageContext<'_>) -> String {
    UrlEncodedFields::parse(context.request.form_field(QUERY_FIELD).as_bytes()).to_query_without(&["done"])
}

/// The address of the list from which the form was sent, with a notice if one is given.
fn list_path(context: &PageContext<'_>, notice: Option<&str>) -> String {
    let query = list_query(context);
    match notice {
        Some(notice) if query.is_empty() => format!("/keys?done={notice}"),
        Some(notice) => format!("/keys?done={notice}&{query}"),
        None if query.is_empty() => "/keys".to_owned(),
        None => format!("/keys?{query}"),
    }
}

// === impl SelectionChange ===

impl SelectionChange {
    fn from_word(word: &str) -> Option<Self> {
        Some(match word {
            "disable" => Self::Disable,
            "enable" => Self::Enable,
            "delete" => Self::Delete,
            _ => return None,
        })
    }

    /// The word of the notice about this change.
    const fn notice(self) -> &'static str {
        match self {
            Self::Disable => "keys-disabled",
            Self::Enable => "keys-enabled",
            Self::Delete => "keys-deleted",
        }
    }
}
