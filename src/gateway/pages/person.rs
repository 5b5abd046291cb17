//! The page of one user: its permissions and its forms.

use askama::Template;
use http::StatusCode;
use serde_json::json;

use super::desk::PageContext;
use super::failure::{PageError, rendered};
use super::form::{PageForm, WHOLE};
use super::frame::PageLayout;
use super::keys::{FormRefusal, first_turn};
use super::people::{chosen_groups, show_link};
use super::route::PersonFormAction;
use super::visit::PageResponse;
use crate::wire::admin::server::ListKeysQuery;
use crate::wire::admin::types;

#[derive(Template)]
#[template(path = "person.html", config = "src/gateway/pages/askama.toml")]
struct PersonPage {
    page: PageLayout,
    user: types::User,
    groups: Vec<types::Group>,
    /// The keys that were disabled because the user left their group.
    stopped: Vec<types::Key>,
    path: String,
    form: PageForm,
    once: String,
}

/// Shows the page of a user.
pub(super) async fn show(desk: &PageContext<'_>, id: &str) -> Result<PageResponse, PageError> {
    if !desk.is_admin() {
        return Err(PageError::Denied);
    }
    let user = desk.console().retrieve_user(desk.actor()?, id).await?;
    show_with(desk, StatusCode::OK, user, None).await
}

async fn show_with(
    desk: &PageContext<'_>,
    status: StatusCode,
    user: types::User,
    form: Option<PageForm>,
) -> Result<PageResponse, PageError> {
    let as_it_is = || {
        let form = PageForm::default().with("role", user.role.to_string());
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

async fn stopped(desk: &PageContext<'_>, user: &types::User) -> Result<Vec<types::Key>, PageError> {
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

/// Carries out a form on a user.
pub(super) async fn act(desk: &PageContext<'_>, id: &str, act: PersonFormAction) -> Result<PageResponse, PageError> {
    let (console, actor) = (desk.console(), desk.actor()?);
    let user = console.retrieve_user(actor, id).await?;
    let done = |word: &str| Ok(PageResponse::see(&format!("/people/{}?done={word}", user.id)));
    match act {
        PersonFormAction::Reset => return reset(desk, user).await,
        PersonFormAction::SignOut => {
            console.sign_out_user(actor, id).await?;
            return done("ended");
        }
        PersonFormAction::Change | PersonFormAction::Disable | PersonFormAction::Enable => {}
    }
    let (body, word) = match act {
        PersonFormAction::Disable => (json!({ "enabled": false }), "user-disabled"),
        PersonFormAction::Enable => (json!({ "enabled": true }), "user-enabled"),
        _ => (json!({ "role": desk.visit.sent("role"), "groups": chosen_groups(desk) }), "saved"),
    };
    match console.update_user(actor, id, body.to_string().as_bytes()).await {
        Ok(_) => done(word),
        Err(error) => {
            let form = PageForm::default().with("role", user.role.to_string());
            let form = user.groups.iter().fold(form, |form, group| form.with("groups", group.clone()));
            let form = form.refused(desk.texts, error)?;
            show_with(desk, StatusCode::UNPROCESSABLE_ENTITY, user, Some(form)).await
        }
    }
}

/// Creates a link for a new password, and shows it in this answer and never again.
async fn reset(desk: &PageContext<'_>, user: types::User) -> Result<PageResponse, PageError> {
    let path = format!("/people/{}", user.id);
    match first_turn(desk, "again.reset", "again.to_user", &path) {
        Ok(turn) => match desk.console().reset_user(desk.actor()?, &user.id).await {
            Ok(link) => Ok(show_link(desk, &user.id, user.name, &link, "reset_made.title")),
            Err(error) => {
                desk.once().undo(&turn);
                Err(error.into())
            }
        },
        Err(FormRefusal::Again(shown)) => Ok(*shown),
        Err(FormRefusal::Stale) => {
            let form =
                PageForm::default().with("role", user.role.to_string()).wrong(WHOLE, desk.texts.of("error.stale"));
            show_with(desk, StatusCode::UNPROCESSABLE_ENTITY, user, Some(form)).await
        }
    }
}
