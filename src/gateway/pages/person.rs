//! One user: what they may do, and what can be done to them.

use askama::Template;
use http::StatusCode;
use serde_json::json;

use super::desk::Desk;
use super::failure::{Failure, rendered};
use super::form::{Form, WHOLE};
use super::frame::Page;
use super::keys::{Turned, first_turn};
use super::people::{chosen_groups, show_link};
use super::route::PersonAct;
use super::visit::Shown;
use crate::wire::admin::server::ListKeysQuery;
use crate::wire::admin::types;

#[derive(Template)]
#[template(path = "person.html", config = "src/gateway/pages/askama.toml")]
struct PersonPage {
    page: Page,
    user: types::User,
    groups: Vec<types::Group>,
    /// The keys that were disabled because the user left their group.
    stopped: Vec<types::Key>,
    path: String,
    form: Form,
    once: String,
}

/// The page of a user.
pub(super) async fn show(desk: &Desk<'_>, id: &str) -> Result<Shown, Failure> {
    if !desk.is_admin() {
        return Err(Failure::Denied);
    }
    let user = desk.console().retrieve_user(desk.actor()?, id).await?;
    show_with(desk, StatusCode::OK, user, None).await
}

async fn show_with(
    desk: &Desk<'_>,
    status: StatusCode,
    user: types::User,
    form: Option<Form>,
) -> Result<Shown, Failure> {
    let as_it_is = || {
        let form = Form::default().with("role", user.role.to_string());
        user.groups.iter().fold(form, |form, group| form.with("groups", group.clone()))
    };
    let groups = desk.console().list_groups(desk.actor()?).await?.data;
    let template = PersonPage {
        page: desk.page("people"),
        path: format!("/people/{}", user.id),
        stopped: stopped(desk, &user).await?,
        form: form.unwrap_or_else(as_it_is),
        once: desk.issue_once()?,
        groups,
        user,
    };
    Ok(rendered(status, &template))
}

/// Enough for this page; the list of keys shows all of them.
const MOST_STOPPED: i64 = 100;

async fn stopped(desk: &Desk<'_>, user: &types::User) -> Result<Vec<types::Key>, Failure> {
    let query = ListKeysQuery {
        before: None,
        group: None,
        limit: types::PageLimit::new(MOST_STOPPED).ok(),
        search: None,
        state: Some(types::KeyState::Disabled),
        user: Some(user.id.clone()),
    };
    let disabled = desk.console().list_keys(desk.actor()?, &query).await?.data;
    Ok(disabled.into_iter().filter(|key| key.locked == Some(types::KeyLock::LeftGroup)).collect())
}

/// Does something to a user.
pub(super) async fn act(desk: &Desk<'_>, id: &str, act: PersonAct) -> Result<Shown, Failure> {
    let (console, actor) = (desk.console(), desk.actor()?);
    let user = console.retrieve_user(actor, id).await?;
    let done = |word: &str| Ok(Shown::see(&format!("/people/{}?done={word}", user.id)));
    match act {
        PersonAct::Reset => return reset(desk, user).await,
        PersonAct::SignOut => {
            console.sign_out_user(actor, id).await?;
            return done("ended");
        }
        PersonAct::Change | PersonAct::Disable | PersonAct::Enable => {}
    }
    let (body, word) = match act {
        PersonAct::Disable => (json!({ "enabled": false }), "user-disabled"),
        PersonAct::Enable => (json!({ "enabled": true }), "user-enabled"),
        _ => (json!({ "role": desk.visit.sent("role"), "groups": chosen_groups(desk) }), "saved"),
    };
    match console.update_user(actor, id, body.to_string().as_bytes()).await {
        Ok(_) => done(word),
        Err(error) => {
            let form = Form::default().with("role", user.role.to_string());
            let form = user.groups.iter().fold(form, |form, group| form.with("groups", group.clone()));
            let form = form.refused(desk.texts, error)?;
            show_with(desk, StatusCode::UNPROCESSABLE_ENTITY, user, Some(form)).await
        }
    }
}

/// Makes a link for another password, and shows it in this answer and never again.
async fn reset(desk: &Desk<'_>, user: types::User) -> Result<Shown, Failure> {
    let path = format!("/people/{}", user.id);
    match first_turn(desk, "again.reset", "again.to_user", &path) {
        Ok(turn) => match desk.console().reset_user(desk.actor()?, &user.id).await {
            Ok(link) => Ok(show_link(desk, &user.id, user.name, &link, "reset_made.title")),
            Err(error) => {
                desk.once().undo(&turn);
                Err(error.into())
            }
        },
        Err(Turned::Again(shown)) => Ok(*shown),
        Err(Turned::Stale) => {
            let form = Form::default().with("role", user.role.to_string()).wrong(WHOLE, desk.texts.of("error.stale"));
            show_with(desk, StatusCode::UNPROCESSABLE_ENTITY, user, Some(form)).await
        }
    }
}
