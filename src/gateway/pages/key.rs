//! The page of one key: its properties, its usage, and its forms.

use askama::Template;
use http::StatusCode;
use serde_json::json;

use super::desk::{PageContext, day_of, end_of};
use super::examples::{CodeExample, examples};
use super::failure::{PageError, rendered};
use super::form::{PageForm, WHOLE};
use super::frame::PageLayout;
use super::keys::{FormRefusal, first_turn, show_secret};
use super::route::KeyFormAction;
use super::visit::PageResponse;
use crate::wire::admin::types;

/// The time for which the former secret of a rotated key stays valid.
struct GracePeriod {
    seconds: i64,
    label: &'static str,
}

const GRACES: [GracePeriod; 5] = [
    GracePeriod { seconds: 0, label: "grace.none" },
    GracePeriod { seconds: 3_600, label: "grace.hour" },
    GracePeriod { seconds: 86_400, label: "grace.day" },
    GracePeriod { seconds: 604_800, label: "grace.week" },
    GracePeriod { seconds: 2_592_000, label: "grace.month" },
];

#[derive(Template)]
#[template(path = "key.html", config = "src/gateway/pages/askama.toml")]
struct KeyPage {
    page: PageLayout,
    key: types::Key,
    path: String,
    form: PageForm,
    once: String,
    graces: &'static [GracePeriod],
    examples: Vec<CodeExample>,
    /// True if the key is active.
    is_good: bool,
    /// True if the viewer can neither enable nor rotate the key.
    is_locked: bool,
}

#[derive(Template)]
#[template(path = "delete.html", config = "src/gateway/pages/askama.toml")]
pub(super) struct DeletePage {
    pub(super) page: PageLayout,
    pub(super) name: String,
    pub(super) action: String,
    pub(super) back: String,
}

/// Shows the page of a key.
pub(super) async fn show(desk: &PageContext<'_>, id: &str) -> Result<PageResponse, PageError> {
    let key = desk.console().retrieve_key(desk.actor()?, id).await?;
    show_with(desk, StatusCode::OK, key, None)
}

fn show_with(
    desk: &PageContext<'_>,
    status: StatusCode,
    key: types::Key,
    form: Option<PageForm>,
) -> Result<PageResponse, PageError> {
    let as_it_is = || {
        let day = key.expires_at.map(day_of).unwrap_or_default();
        PageForm::default().with("name", key.name.clone()).with("expires_on", day)
    };
    let template = KeyPage {
        page: desk.page("keys"),
        path: format!("/keys/{}", key.id),
        form: form.unwrap_or_else(as_it_is),
        once: desk.issue_once()?,
        graces: &GRACES,
        examples: examples(desk.home, None),
        is_good: key.state == types::KeyState::Active,
        is_locked: key.locked.is_some() && !desk.is_admin(),
        key,
    };
    Ok(rendered(status, &template))
}

/// Asks for confirmation before a key is deleted.
pub(super) async fn ask_delete(desk: &PageContext<'_>, id: &str) -> Result<PageResponse, PageError> {
    let key = desk.console().retrieve_key(desk.actor()?, id).await?;
    let back = format!("/keys/{}", key.id);
    let template = DeletePage { page: desk.page("keys"), name: key.name, action: format!("{back}/delete"), back };
    Ok(rendered(StatusCode::OK, &template))
}

/// Carries out a form on a key.
pub(super) async fn act(desk: &PageContext<'_>, id: &str, act: KeyFormAction) -> Result<PageResponse, PageError> {
    match act {
        KeyFormAction::Disable => enable(desk, id, false).await,
        KeyFormAction::Enable => enable(desk, id, true).await,
        KeyFormAction::Change => change(desk, id).await,
        KeyFormAction::Rotate => rotate(desk, id).await,
        KeyFormAction::Delete => {
            desk.console().delete_key(desk.actor()?, id).await?;
            Ok(PageResponse::see("/keys?done=deleted"))
        }
    }
}

async fn enable(desk: &PageContext<'_>, id: &str, enabled: bool) -> Result<PageResponse, PageError> {
    let body = json!({ "enabled": enabled }).to_string();
    let key = desk.console().update_key(desk.actor()?, id, body.as_bytes()).await?;
    Ok(PageResponse::see(&format!("/keys/{}?done={}", key.id, if enabled { "enabled" } else { "disabled" })))
}

async fn change(desk: &PageContext<'_>, id: &str) -> Result<PageResponse, PageError> {
    let before = desk.console().retrieve_key(desk.actor()?, id).await?;
    let form = PageForm::sent(desk.visit, &["name", "expires_on"]);
    let day = form.value("expires_on");
    let mut body = json!({ "name": form.value("name") });
    // A day that was not changed is not sent, so that the exact time within it is kept.
    if day != before.expires_at.map(day_of).unwrap_or_default() {
        match (day, end_of(day)) {
            ("", _) => body["never_expires"] = true.into(),
            (_, Some(end)) => body["expires_at"] = json!(end),
            (_, None) => {
                let form = form.wrong("expires_on", desk.texts.of("error.expires_on"));
                return show_with(desk, StatusCode::UNPROCESSABLE_ENTITY, before, Some(form));
            }
        }
    }
    match desk.console().update_key(desk.actor()?, id, body.to_string().as_bytes()).await {
        Ok(key) => Ok(PageResponse::see(&format!("/keys/{}?done=saved", key.id))),
        Err(error) => {
            let form = form.refused(desk.texts, error)?;
            show_with(desk, StatusCode::UNPROCESSABLE_ENTITY, before, Some(form))
        }
    }
}

async fn rotate(desk: &PageContext<'_>, id: &str) -> Result<PageResponse, PageError> {
    let before = desk.console().retrieve_key(desk.actor()?, id).await?;
    let path = format!("/keys/{}", before.id);
    let turn = match first_turn(desk, "again.rotate", "again.to_key", &path) {
        Ok(turn) => turn,
        Err(FormRefusal::Again(shown)) => return Ok(*shown),
        Err(FormRefusal::Stale) => {
            let form = PageForm::default().with("name", before.name.clone()).wrong(WHOLE, desk.texts.of("error.stale"));
            return show_with(desk, StatusCode::UNPROCESSABLE_ENTITY, before, Some(form));
        }
    };
    let grace = desk.visit.sent("grace");
    let body =
        grace.parse::<i64>().map_or_else(|_| json!({ "grace_seconds": grace }), |n| json!({ "grace_seconds": n }));
    match desk.console().rotate_key(desk.actor()?, id, body.to_string().as_bytes()).await {
        Ok(created) => Ok(show_secret(desk, created, "rotated.title")),
        Err(error) => {
            desk.once().undo(&turn);
            let form = PageForm::default().with("name", before.name.clone()).refused(desk.texts, error)?;
            show_with(desk, StatusCode::UNPROCESSABLE_ENTITY, before, Some(form))
        }
    }
}
