//! The profile of the signed-in user: password, sessions, and admin tokens.

use askama::Template;
use chrono::{DateTime, Utc};
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::form::{PageForm, WHOLE_FORM};
use super::http_messages::PageResponse;
use super::identity_proof::ask_for_proof;
use super::keys::{SecretPage, claim_form};
use super::page_context::{PageContext, end_of_day};
use super::page_error::{PageError, render};
use super::page_layout::PageLayout;
use super::setting_fields::{LIMIT_FIELDS, labelled_settings};
use super::sign_in::with_identity_error;
use crate::gateway::people::IdentityError;
use crate::gateway::store::{IdentityRow, UserRow};
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
    /// The values and errors of the password form and the token form.
    form: PageForm,
    nonce: String,
    /// The limits of the user, with the keys of their labels.
    limits: Vec<(&'static str, String)>,
    limit_usage: Vec<types::LimitUsage>,
    /// The number of recovery codes that were not used yet; `None` without a second factor.
    recovery_codes: Option<u64>,
    has_password: bool,
    /// The name of the provider with which users can sign in, if there is one.
    provider: Option<String>,
    identity: Option<IdentityRow>,
}

/// A session as the page shows it.
struct SessionView {
    id: String,
    is_this: bool,
    address: String,
    agent: String,
    created_at: DateTime<Utc>,
    last_seen_at: DateTime<Utc>,
}

/// Shows the profile.
pub(super) async fn show(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    render_page(context, StatusCode::OK, PageForm::default()).await
}

async fn render_page(context: &PageContext<'_>, status: StatusCode, form: PageForm) -> Result<PageResponse, PageError> {
    let session = context.session()?;
    let user = session.actor.user().ok_or(PageError::NotFound)?;
    let sessions = context.people().sessions(&user.id).await?;
    let tokens = ListTokensQuery { user: Some(user.id.to_string()) };
    let template = ProfilePage {
        page: context.layout("profile"),
        name: user.name.clone(),
        role: if session.actor.is_admin() { types::Role::Admin } else { types::Role::Member },
        groups: user.groups.clone(),
        sessions: sessions
            .into_iter()
            .map(|row| SessionView {
                is_this: row.id == session.id,
                id: row.id.to_string(),
                address: row.address,
                agent: row.agent,
                created_at: row.created_at.into(),
                last_seen_at: row.last_seen_at.into(),
            })
            .collect(),
        tokens: context.console().list_tokens(&session.actor, &tokens).await?.data,
        nonce: context.issue_form_nonce()?,
        limits: stored_limits(user),
        limit_usage: context
            .console()
            .retrieve_me(&session.actor)
            .await?
            .user
            .map_or_else(Vec::new, |user| user.limit_usage),
        recovery_codes: context.people().recovery_codes_left(&user.id).await?,
        has_password: user.has_password,
        provider: context.provider_label(),
        identity: context.own_identity().await?,
        form,
    };
    Ok(render(status, &template))
}

/// Returns the limits of a user, with the keys of their labels.
fn stored_limits(user: &UserRow) -> Vec<(&'static str, String)> {
    let limits = user.limits.as_deref().and_then(|limits| serde_json::from_str::<Value>(limits).ok());
    labelled_settings(LIMIT_FIELDS, &json!({ "limits": limits }))
}

/// Changes the password, which ends all other sessions.
pub(super) async fn change_password(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let form_with_error =
        |field: &'static str, key: &'static str| PageForm::default().with_error(field, context.texts.get(key));
    let new_password = context.request.raw_form_field("password");
    let form = if new_password == context.request.raw_form_field("again") {
        match context
            .people()
            .change_password(context.session()?, context.request.raw_form_field("old"), new_password)
            .await
        {
            Ok(()) => return Ok(PageResponse::redirect("/profile?done=password")),
            Err(IdentityError::WrongCredentials) => form_with_error("old", "error.old"),
            Err(error) => with_identity_error(context, PageForm::default(), error)?,
        }
    } else {
        form_with_error("again", "error.again")
    };
    render_page(context, StatusCode::UNPROCESSABLE_ENTITY, form).await
}

/// Ends all sessions of the user, including the current session.
pub(super) async fn sign_out_everywhere(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let actor = context.actor()?;
    let user = actor.user().ok_or(PageError::NotFound)?;
    context.people().sign_out_everywhere(actor, &user.id.to_string()).await?;
    Ok(PageResponse::redirect("/sign-in?done=signed-out").with_cookie(&context.session_cookie(None)))
}

/// Ends one session of the user. The user's own session ends like a sign-out.
pub(super) async fn end_session(context: &PageContext<'_>, id: &str) -> Result<PageResponse, PageError> {
    let session = context.session()?;
    if session.id.as_str() == id {
        return super::sign_in::sign_out(context).await;
    }
    context.people().end_own_session(session, id).await?;
    Ok(PageResponse::redirect("/profile?done=session-ended"))
}

/// Ends all sessions of the user except the current session.
pub(super) async fn end_other_sessions(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    context.people().end_other_sessions(context.session()?).await?;
    Ok(PageResponse::redirect("/profile?done=sessions-ended"))
}

/// Creates an admin token, and shows it. Only this answer can show the token.
pub(super) async fn create_token(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    if let Some(question) = ask_for_proof(context, "/profile").await? {
        return Ok(question);
    }
    let form = PageForm::from_request(context.request, &["name", "expires_on"]);
    let mut body = Map::from_iter([("name".to_owned(), Value::from(form.value("name")))]);
    match (form.value("expires_on"), end_of_day(form.value("expires_on"))) {
        ("", _) => {}
        (_, Some(end)) => drop(body.insert("expires_at".to_owned(), json!(end))),
        (_, None) => {
            let form = form.with_error("expires_on", context.texts.get("error.expires_on"));
            return render_page(context, StatusCode::UNPROCESSABLE_ENTITY, form).await;
        }
    }
    let Some(first_use) = claim_form(context, "again.token", "again.to_profile", "/profile").await? else {
        let form = form.with_error(WHOLE_FORM, context.texts.get("error.stale"));
        return render_page(context, StatusCode::UNPROCESSABLE_ENTITY, form).await;
    };
    match context.console().create_token(context.actor()?, Value::Object(body).to_string().as_bytes()).await {
        Ok(created) => Ok(render_token(context, created)),
        Err(error) => {
            first_use.release().await;
            render_page(context, StatusCode::UNPROCESSABLE_ENTITY, form.with_console_error(context.texts, error)?).await
        }
    }
}

fn render_token(context: &PageContext<'_>, created: types::CreatedToken) -> PageResponse {
    let mut page = context.layout("profile");
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
    render(StatusCode::OK, &template)
}

/// Revokes an admin token.
pub(super) async fn revoke_token(context: &PageContext<'_>, id: &str) -> Result<PageResponse, PageError> {
    context.console().delete_token(context.actor()?, id).await?;
    Ok(PageResponse::redirect("/profile?done=revoked"))
}
