//! The profile of the signed-in user: password, other sessions, and admin tokens.

use askama::Template;
use chrono::{DateTime, Utc};
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::desk::{PageContext, end_of};
use super::door::refused;
use super::failure::{PageError, rendered};
use super::form::{PageForm, WHOLE};
use super::frame::PageLayout;
use super::keys::{FormRefusal, SecretPage, first_turn};
use super::visit::PageResponse;
use crate::gateway::people::IdentityError;
use crate::wire::admin::server::ListTokensQuery;
use crate::wire::admin::types;

#[derive(Template)]
#[template(path = "profile.html", config = "src/gateway/pages/askama.toml")]
struct ProfilePage {
    page: PageLayout,
    name: String,
    role: types::Role,
    groups: Vec<String>,
    sessions: Vec<SessionView>,
    tokens: Vec<types::Token>,
    /// The form of the password and of the token.
    form: PageForm,
    once: String,
}

/// A session as the page shows it.
struct SessionView {
    is_this: bool,
    address: String,
    agent: String,
    created_at: DateTime<Utc>,
    last_seen_at: DateTime<Utc>,
}

/// Shows the page.
pub(super) async fn show(desk: &PageContext<'_>) -> Result<PageResponse, PageError> {
    show_with(desk, StatusCode::OK, PageForm::default()).await
}

async fn show_with(desk: &PageContext<'_>, status: StatusCode, form: PageForm) -> Result<PageResponse, PageError> {
    let session = desk.session()?;
    let user = session.actor.user().ok_or(PageError::NotFound)?;
    let seen = desk.people().sessions(&user.id).await?;
    let tokens = ListTokensQuery { user: Some(user.id.to_string()) };
    let template = ProfilePage {
        page: desk.page("profile"),
        name: user.name.clone(),
        role: if session.actor.is_admin() { types::Role::Admin } else { types::Role::Member },
        groups: user.groups.clone(),
        sessions: seen
            .into_iter()
            .map(|row| SessionView {
                is_this: row.id == session.id,
                address: row.address,
                agent: row.agent,
                created_at: row.created_at.into(),
                last_seen_at: row.last_seen_at.into(),
            })
            .collect(),
        tokens: desk.console().list_tokens(&session.actor, &tokens).await?.data,
        once: desk.issue_once()?,
        form,
    };
    Ok(rendered(status, &template))
}

/// Sets another password, which ends every other session.
pub(super) async fn change_password(desk: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let wrong = |field: &'static str, key: &'static str| PageForm::default().wrong(field, desk.texts.of(key));
    let new = desk.visit.sent_as_is("password");
    let form = if new == desk.visit.sent_as_is("again") {
        match desk.people().change_password(desk.session()?, desk.visit.sent_as_is("old"), new).await {
            Ok(()) => return Ok(PageResponse::see("/profile?done=password")),
            Err(IdentityError::Wrong) => wrong("old", "error.old"),
            Err(error) => refused(desk, PageForm::default(), error)?,
        }
    } else {
        wrong("again", "error.again")
    };
    show_with(desk, StatusCode::UNPROCESSABLE_ENTITY, form).await
}

/// Ends every session, including this one.
pub(super) async fn sign_out_everywhere(desk: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let actor = desk.actor()?;
    let user = actor.user().ok_or(PageError::NotFound)?;
    desk.people().sign_out_everywhere(actor, &user.id.to_string()).await?;
    Ok(PageResponse::see("/sign-in?done=signed-out").set(&desk.session_cookie(None)))
}

/// Creates an admin token, and shows it in this answer and never again.
pub(super) async fn create_token(desk: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let form = PageForm::sent(desk.visit, &["name", "expires_on"]);
    let mut body = Map::from_iter([("name".to_owned(), Value::from(form.value("name")))]);
    match (form.value("expires_on"), end_of(form.value("expires_on"))) {
        ("", _) => {}
        (_, Some(end)) => drop(body.insert("expires_at".to_owned(), json!(end))),
        (_, None) => {
            let form = form.wrong("expires_on", desk.texts.of("error.expires_on"));
            return show_with(desk, StatusCode::UNPROCESSABLE_ENTITY, form).await;
        }
    }
    let turn = match first_turn(desk, "again.token", "again.to_profile", "/profile") {
        Ok(turn) => turn,
        Err(FormRefusal::Again(shown)) => return Ok(*shown),
        Err(FormRefusal::Stale) => {
            let form = form.wrong(WHOLE, desk.texts.of("error.stale"));
            return show_with(desk, StatusCode::UNPROCESSABLE_ENTITY, form).await;
        }
    };
    match desk.console().create_token(desk.actor()?, Value::Object(body).to_string().as_bytes()).await {
        Ok(created) => Ok(show_token(desk, created)),
        Err(error) => {
            desk.once().undo(&turn);
            show_with(desk, StatusCode::UNPROCESSABLE_ENTITY, form.refused(desk.texts, error)?).await
        }
    }
}

fn show_token(desk: &PageContext<'_>, created: types::CreatedToken) -> PageResponse {
    let mut page = desk.page("profile");
    page.back = None;
    let template = SecretPage {
        page,
        title: "token_made.title",
        name: created.token.name,
        label: "token_made.secret",
        warning: "token_made.once",
        secret: created.secret.expose().to_owned(),
        until: created.token.expires_at,
        until_label: "token_made.until",
        examples: Vec::new(),
        next: "/profile".to_owned(),
        next_label: "token_made.next",
    };
    rendered(StatusCode::OK, &template)
}

/// Revokes an admin token.
pub(super) async fn revoke_token(desk: &PageContext<'_>, id: &str) -> Result<PageResponse, PageError> {
    desk.console().delete_token(desk.actor()?, id).await?;
    Ok(PageResponse::see("/profile?done=revoked"))
}
