//! The keys: a list, and a form for a new one.

use askama::Template;
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::desk::{PageContext, end_of};
use super::examples::{CodeExample, examples};
use super::failure::{PageError, rendered};
use super::form::PageForm;
use super::frame::PageLayout;
use super::once::FormNonceStatus;
use super::visit::{PageResponse, UrlEncodedFields};
use crate::error::Error;
use crate::wire::admin::server::ListKeysQuery;
use crate::wire::admin::types;
use chrono::{DateTime, Utc};

/// The maximum number of keys on one page (ours).
const PER_PAGE: i64 = 50;

const STATES: [types::KeyState; 4] =
    [types::KeyState::Active, types::KeyState::Disabled, types::KeyState::Expired, types::KeyState::UserDisabled];

#[derive(Template)]
#[template(path = "keys.html", config = "src/gateway/pages/askama.toml")]
struct KeysPage {
    page: PageLayout,
    keys: types::KeyList,
    groups: Vec<types::Group>,
    states: &'static [types::KeyState],
    query: UrlEncodedFields,
    is_filtered: bool,
    /// True if the form for a new key is open.
    is_open: bool,
    form: PageForm,
    once: String,
    newer: Option<String>,
    older: Option<String>,
}

/// The page of a secret that is shown once.
#[derive(Template)]
#[template(path = "secret.html", config = "src/gateway/pages/askama.toml")]
pub(super) struct SecretPage {
    pub(super) page: PageLayout,
    pub(super) title: &'static str,
    pub(super) name: String,
    pub(super) label: &'static str,
    pub(super) warning: &'static str,
    pub(super) secret: String,
    pub(super) until: Option<DateTime<Utc>>,
    pub(super) until_label: &'static str,
    pub(super) examples: Vec<CodeExample>,
    pub(super) next: String,
    pub(super) next_label: &'static str,
}

/// The page for a form that was sent a second time.
#[derive(Template)]
#[template(path = "again.html", config = "src/gateway/pages/askama.toml")]
struct RepeatedFormPage {
    page: PageLayout,
    text: &'static str,
    link: String,
    link_label: &'static str,
}

/// Shows the list.
pub(super) async fn show(desk: &PageContext<'_>) -> Result<PageResponse, PageError> {
    show_with(desk, StatusCode::OK, PageForm::default().with("group", "default")).await
}

async fn show_with(desk: &PageContext<'_>, status: StatusCode, form: PageForm) -> Result<PageResponse, PageError> {
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

/// The address of the page with the rows that are older than this one.
pub(super) fn after(visit: &super::PageRequest, path: &str, id: &str) -> String {
    format!("{path}?{}", visit.query.with("before", Some(id)))
}

/// Creates a key, and shows its secret in this answer and never again.
pub(super) async fn create(desk: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let form = PageForm::sent(desk.visit, &["name", "group", "expires_on", "user"]);
    let body = match body(&form) {
        Ok(body) => body,
        Err(()) => {
            let form = form.wrong("expires_on", desk.texts.of("error.expires_on"));
            return show_with(desk, StatusCode::UNPROCESSABLE_ENTITY, form).await;
        }
    };
    let turn = match first_turn(desk, "again.key", "again.to_key", "/keys") {
        Ok(turn) => turn,
        Err(FormRefusal::Again(shown)) => return Ok(*shown),
        Err(FormRefusal::Stale) => {
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

async fn refused(desk: &PageContext<'_>, form: PageForm, error: Error) -> Result<PageResponse, PageError> {
    let form = form.refused(desk.texts, error)?;
    show_with(desk, StatusCode::UNPROCESSABLE_ENTITY, form).await
}

fn body(form: &PageForm) -> Result<Map<String, Value>, ()> {
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

/// The reason why a form creates nothing.
pub(super) enum FormRefusal {
    /// The form was already used; this page says so.
    Again(Box<PageResponse>),
    /// The form is too old.
    Stale,
}

/// Returns the head of the nonce if a form that creates something is sent for the first time.
pub(super) fn first_turn(
    desk: &PageContext<'_>,
    text: &'static str,
    link_label: &'static str,
    path: &str,
) -> Result<String, FormRefusal> {
    match desk.turn() {
        FormNonceStatus::First(head) => Ok(head),
        FormNonceStatus::Stale => Err(FormRefusal::Stale),
        FormNonceStatus::Again(made) => {
            let link = made.map_or_else(|| path.to_owned(), |id| format!("{path}/{id}"));
            let page = RepeatedFormPage { page: desk.page(""), text, link, link_label };
            Err(FormRefusal::Again(Box::new(rendered(StatusCode::CONFLICT, &page))))
        }
    }
}

/// The only page with the secret of a key.
pub(super) fn show_secret(desk: &PageContext<'_>, created: types::CreatedKey, title: &'static str) -> PageResponse {
    let secret = created.secret.expose().to_owned();
    let mut page = desk.page("keys");
    // A change of language would load another page, and the secret would be lost.
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
