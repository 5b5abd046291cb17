//! The keys: those there are, and a new one.

use askama::Template;
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::desk::{Desk, end_of};
use super::examples::{Example, examples};
use super::failure::{Failure, rendered};
use super::form::Form;
use super::frame::Page;
use super::once::Turn;
use super::visit::{Fields, Shown};
use crate::error::Error;
use crate::wire::admin::server::ListKeysQuery;
use crate::wire::admin::types;
use chrono::{DateTime, Utc};

/// So many keys stand on one page (ours).
const PER_PAGE: i64 = 50;

const STATES: [types::KeyState; 4] =
    [types::KeyState::Active, types::KeyState::Disabled, types::KeyState::Expired, types::KeyState::UserDisabled];

#[derive(Template)]
#[template(path = "keys.html", config = "src/gateway/pages/askama.toml")]
struct KeysPage {
    page: Page,
    keys: types::KeyList,
    groups: Vec<types::Group>,
    states: &'static [types::KeyState],
    query: Fields,
    is_filtered: bool,
    /// Whether the form for a new key stands open.
    is_open: bool,
    form: Form,
    once: String,
    newer: Option<String>,
    older: Option<String>,
}

/// The page of something that is shown once.
#[derive(Template)]
#[template(path = "secret.html", config = "src/gateway/pages/askama.toml")]
pub(super) struct SecretPage {
    pub(super) page: Page,
    pub(super) title: &'static str,
    pub(super) name: String,
    pub(super) label: &'static str,
    pub(super) warning: &'static str,
    pub(super) secret: String,
    pub(super) until: Option<DateTime<Utc>>,
    pub(super) until_label: &'static str,
    pub(super) examples: Vec<Example>,
    pub(super) next: String,
    pub(super) next_label: &'static str,
}

/// The page of a form that came a second time.
#[derive(Template)]
#[template(path = "again.html", config = "src/gateway/pages/askama.toml")]
struct AgainPage {
    page: Page,
    text: &'static str,
    link: String,
    link_label: &'static str,
}

/// The list.
pub(super) async fn show(desk: &Desk<'_>) -> Result<Shown, Failure> {
    show_with(desk, StatusCode::OK, Form::default().with("group", "default")).await
}

async fn show_with(desk: &Desk<'_>, status: StatusCode, form: Form) -> Result<Shown, Failure> {
    let visit = desk.visit;
    let asked = |name: &str| visit.asked(name).map(str::to_owned);
    let query = ListKeysQuery {
        before: asked("before"),
        group: asked("group"),
        limit: types::PageLimit::new(PER_PAGE).ok(),
        search: asked("search"),
        state: visit.asked("state").and_then(|word| word.parse().ok()),
        user: asked("user"),
    };
    let keys = desk.console().list_keys(desk.actor()?, &query).await?;
    let groups = desk.console().list_groups(desk.actor()?).await?.data;
    let older = keys.data.last().filter(|_| keys.has_more).map(|last| after(visit, "/keys", &last.id));
    let is_filtered = ["search", "state", "group", "user"].iter().any(|name| visit.asked(name).is_some());
    let template = KeysPage {
        is_open: form.is_wrong() || (keys.data.is_empty() && !is_filtered),
        newer: visit.asked("before").map(|_| format!("/keys?{}", visit.query.with("before", None))),
        query: visit.query.clone(),
        states: &STATES,
        once: desk.issue_once()?,
        page: desk.page("keys"),
        keys,
        groups,
        is_filtered,
        form,
        older,
    };
    Ok(rendered(status, &template))
}

/// The address of what is older than this.
pub(super) fn after(visit: &super::Visit, path: &str, id: &str) -> String {
    format!("{path}?{}", visit.query.with("before", Some(id)))
}

/// Makes a key, and shows its secret in this answer and never again.
pub(super) async fn create(desk: &Desk<'_>) -> Result<Shown, Failure> {
    let form = Form::sent(desk.visit, &["name", "group", "expires_on", "user"]);
    let body = match body(&form) {
        Ok(body) => body,
        Err(()) => {
            let form = form.wrong("expires_on", desk.texts.of("error.expires_on"));
            return show_with(desk, StatusCode::UNPROCESSABLE_ENTITY, form).await;
        }
    };
    let turn = match first_turn(desk, "again.key", "again.to_key", "/keys") {
        Ok(turn) => turn,
        Err(Turned::Again(shown)) => return Ok(*shown),
        Err(Turned::Stale) => {
            let form = form.wrong(super::form::WHOLE, desk.texts.of("error.stale"));
            return show_with(desk, StatusCode::UNPROCESSABLE_ENTITY, form).await;
        }
    };
    let body = Value::Object(body).to_string();
    match desk.console().create_key(desk.actor()?, body.as_bytes()).await {
        Ok(created) => {
            desk.once().made(&turn, &created.key.id);
            Ok(show_secret(desk, created, "made.title"))
        }
        Err(error) => {
            desk.once().undo(&turn);
            refused(desk, form, error).await
        }
    }
}

async fn refused(desk: &Desk<'_>, form: Form, error: Error) -> Result<Shown, Failure> {
    let form = form.refused(desk.texts, error)?;
    show_with(desk, StatusCode::UNPROCESSABLE_ENTITY, form).await
}

fn body(form: &Form) -> Result<Map<String, Value>, ()> {
    let mut body = Map::new();
    for name in ["name", "group", "user"] {
        if !form.value(name).is_empty() {
            body.insert(name.to_owned(), form.value(name).into());
        }
    }
    if !form.value("expires_on").is_empty() {
        body.insert("expires_at".to_owned(), json!(end_of(form.value("expires_on")).ok_or(())?));
    }
    Ok(body)
}

/// Why a form that makes something does not.
pub(super) enum Turned {
    /// It has already; this page says so.
    Again(Box<Shown>),
    /// It is too old.
    Stale,
}

/// The turn of a form that makes something, where it is its first.
pub(super) fn first_turn(
    desk: &Desk<'_>,
    text: &'static str,
    link_label: &'static str,
    path: &str,
) -> Result<String, Turned> {
    match desk.turn() {
        Turn::First(head) => Ok(head),
        Turn::Stale => Err(Turned::Stale),
        Turn::Again(made) => {
            let link = made.map_or_else(|| path.to_owned(), |id| format!("{path}/{id}"));
            let page = AgainPage { page: desk.page(""), text, link, link_label };
            Err(Turned::Again(Box::new(rendered(StatusCode::CONFLICT, &page))))
        }
    }
}

/// The one page with the secret of a key.
pub(super) fn show_secret(desk: &Desk<'_>, created: types::CreatedKey, title: &'static str) -> Shown {
    let secret = created.secret.expose().to_owned();
    let mut page = desk.page("keys");
    // A change of language would load another page, and the secret would be gone.
    page.back = None;
    let template = SecretPage {
        page,
        title,
        label: "made.secret",
        warning: "made.once",
        until: created.key.previous_until,
        until_label: "made.previous",
        examples: examples(desk.home, Some(&secret)),
        next: format!("/keys/{}", created.key.id),
        next_label: "made.to_key",
        name: created.key.name,
        secret,
    };
    rendered(StatusCode::OK, &template)
}
