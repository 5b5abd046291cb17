//! One key: what is known of it, how it is used, and what can be done to it.

use askama::Template;
use http::StatusCode;
use serde_json::json;

use super::desk::{Desk, day_of, end_of};
use super::examples::{Example, examples};
use super::failure::{Failure, rendered};
use super::form::{Form, WHOLE};
use super::frame::Page;
use super::keys::{Turned, first_turn, show_secret};
use super::route::KeyAct;
use super::visit::Shown;
use crate::wire::admin::types;

/// How long the former secret of a rotated key may stay good.
struct Grace {
    seconds: i64,
    label: &'static str,
}

const GRACES: [Grace; 5] = [
    Grace { seconds: 0, label: "grace.none" },
    Grace { seconds: 3_600, label: "grace.hour" },
    Grace { seconds: 86_400, label: "grace.day" },
    Grace { seconds: 604_800, label: "grace.week" },
    Grace { seconds: 2_592_000, label: "grace.month" },
];

#[derive(Template)]
#[template(path = "key.html", config = "src/gateway/pages/askama.toml")]
struct KeyPage {
    page: Page,
    key: types::Key,
    path: String,
    form: Form,
    once: String,
    graces: &'static [Grace],
    examples: Vec<Example>,
    /// Whether it lets anybody in.
    is_good: bool,
    /// True if the viewer can neither enable nor rotate the key.
    is_locked: bool,
}

#[derive(Template)]
#[template(path = "delete.html", config = "src/gateway/pages/askama.toml")]
pub(super) struct DeletePage {
    pub(super) page: Page,
    pub(super) name: String,
    pub(super) action: String,
    pub(super) back: String,
}

/// The page of a key.
pub(super) async fn show(desk: &Desk<'_>, id: &str) -> Result<Shown, Failure> {
    let key = desk.console().retrieve_key(desk.actor()?, id).await?;
    show_with(desk, StatusCode::OK, key, None)
}

fn show_with(desk: &Desk<'_>, status: StatusCode, key: types::Key, form: Option<Form>) -> Result<Shown, Failure> {
    let as_it_is = || {
        let day = key.expires_at.map(day_of).unwrap_or_default();
        Form::default().with("name", key.name.clone()).with("expires_on", day)
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

/// Asks before a key is deleted.
pub(super) async fn ask_delete(desk: &Desk<'_>, id: &str) -> Result<Shown, Failure> {
    let key = desk.console().retrieve_key(desk.actor()?, id).await?;
    let back = format!("/keys/{}", key.id);
    let template = DeletePage { page: desk.page("keys"), name: key.name, action: format!("{back}/delete"), back };
    Ok(rendered(StatusCode::OK, &template))
}

/// Does something to a key.
pub(super) async fn act(desk: &Desk<'_>, id: &str, act: KeyAct) -> Result<Shown, Failure> {
    match act {
        KeyAct::Disable => enable(desk, id, false).await,
        KeyAct::Enable => enable(desk, id, true).await,
        KeyAct::Change => change(desk, id).await,
        KeyAct::Rotate => rotate(desk, id).await,
        KeyAct::Delete => {
            desk.console().delete_key(desk.actor()?, id).await?;
            Ok(Shown::see("/keys?done=deleted"))
        }
    }
}

async fn enable(desk: &Desk<'_>, id: &str, enabled: bool) -> Result<Shown, Failure> {
    let body = json!({ "enabled": enabled }).to_string();
    let key = desk.console().update_key(desk.actor()?, id, body.as_bytes()).await?;
    Ok(Shown::see(&format!("/keys/{}?done={}", key.id, if enabled { "enabled" } else { "disabled" })))
}

async fn change(desk: &Desk<'_>, id: &str) -> Result<Shown, Failure> {
    let before = desk.console().retrieve_key(desk.actor()?, id).await?;
    let form = Form::sent(desk.visit, &["name", "expires_on"]);
    let day = form.value("expires_on");
    let mut body = json!({ "name": form.value("name") });
    // A day that was not touched is not sent, so that a moment within it stays to the second.
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
        Ok(key) => Ok(Shown::see(&format!("/keys/{}?done=saved", key.id))),
        Err(error) => {
            let form = form.refused(desk.texts, error)?;
            show_with(desk, StatusCode::UNPROCESSABLE_ENTITY, before, Some(form))
        }
    }
}

async fn rotate(desk: &Desk<'_>, id: &str) -> Result<Shown, Failure> {
    let before = desk.console().retrieve_key(desk.actor()?, id).await?;
    let path = format!("/keys/{}", before.id);
    let turn = match first_turn(desk, "again.rotate", "again.to_key", &path) {
        Ok(turn) => turn,
        Err(Turned::Again(shown)) => return Ok(*shown),
        Err(Turned::Stale) => {
            let form = Form::default().with("name", before.name.clone()).wrong(WHOLE, desk.texts.of("error.stale"));
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
            let form = Form::default().with("name", before.name.clone()).refused(desk.texts, error)?;
            show_with(desk, StatusCode::UNPROCESSABLE_ENTITY, before, Some(form))
        }
    }
}
