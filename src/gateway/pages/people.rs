//! The users: a list, and a form to invite one.

use askama::Template;
use http::StatusCode;
use serde_json::json;

use super::desk::PageContext;
use super::failure::{PageError, rendered};
use super::form::{PageForm, WHOLE};
use super::frame::PageLayout;
use super::keys::{FormRefusal, SecretPage, after, first_turn};
use super::visit::PageResponse;
use crate::wire::admin::server::ListUsersQuery;
use crate::wire::admin::types;

/// The number of rows on one page (ours).
const PER_PAGE: i64 = 50;

#[derive(Template)]
#[template(path = "people.html", config = "src/gateway/pages/askama.toml")]
struct PeoplePage {
    page: PageLayout,
    users: types::UserList,
    groups: Vec<types::Group>,
    search: String,
    is_open: bool,
    form: PageForm,
    once: String,
    newer: Option<String>,
    older: Option<String>,
}

/// Shows the list.
pub(super) async fn show(desk: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let form = PageForm::default().with("role", "member").with("groups", "default");
    show_with(desk, StatusCode::OK, form).await
}

async fn show_with(desk: &PageContext<'_>, status: StatusCode, form: PageForm) -> Result<PageResponse, PageError> {
    let visit = desk.visit;
    let query = ListUsersQuery {
        before: visit.asked("before").map(str::to_owned),
        limit: types::PageLimit::new(PER_PAGE).ok(),
        role: None,
        search: visit.asked("search").map(str::to_owned),
    };
    let users = desk.console().list_users(desk.actor()?, &query).await?;
    let groups = desk.console().list_groups(desk.actor()?).await?.data;
    let template = PeoplePage {
        page: desk.page("people"),
        older: users.data.last().filter(|_| users.has_more).map(|last| after(visit, "/people", &last.id)),
        newer: visit.asked("before").map(|_| format!("/people?{}", visit.query.with("before", None))),
        search: query.search.unwrap_or_default(),
        is_open: form.is_wrong(),
        once: desk.issue_once()?,
        users,
        groups,
        form,
    };
    Ok(rendered(status, &template))
}

/// Invites a user, and shows the link in this answer and never again.
pub(super) async fn invite(desk: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let mut form = PageForm::sent(desk.visit, &["name", "role"]);
    let groups: Vec<String> = chosen_groups(desk);
    for group in &groups {
        form = form.with("groups", group.clone());
    }
    let turn = match first_turn(desk, "again.user", "again.to_user", "/people") {
        Ok(turn) => turn,
        Err(FormRefusal::Again(shown)) => return Ok(*shown),
        Err(FormRefusal::Stale) => {
            let form = form.wrong(WHOLE, desk.texts.of("error.stale"));
            return show_with(desk, StatusCode::UNPROCESSABLE_ENTITY, form).await;
        }
    };
    let body = json!({ "name": form.value("name"), "role": form.value("role"), "groups": groups }).to_string();
    match desk.console().create_user(desk.actor()?, body.as_bytes()).await {
        Ok(created) => {
            desk.once().made(&turn, &created.user.id);
            Ok(show_link(desk, &created.user.id, created.user.name, &created.link, "invited.title"))
        }
        Err(error) => {
            desk.once().undo(&turn);
            let form = form.refused(desk.texts, error)?;
            show_with(desk, StatusCode::UNPROCESSABLE_ENTITY, form).await
        }
    }
}

/// The groups that are selected.
pub(super) fn chosen_groups(desk: &PageContext<'_>) -> Vec<String> {
    desk.visit.form.as_ref().map_or_else(|_| Vec::new(), |form| form.all("groups").map(str::to_owned).collect())
}

/// The only page with a one-time link.
pub(super) fn show_link(
    desk: &PageContext<'_>,
    user: &str,
    name: String,
    link: &types::OneTimeLink,
    title: &'static str,
) -> PageResponse {
    let mut page = desk.page("people");
    page.back = None;
    let template = SecretPage {
        page,
        title,
        name,
        label: "link.label",
        warning: "link.once",
        secret: format!("{}{}", desk.home.origin(), link.path.expose()),
        until: Some(link.expires_at),
        until_label: "link.until",
        examples: Vec::new(),
        next: format!("/people/{user}"),
        next_label: "link.to_user",
    };
    rendered(StatusCode::OK, &template)
}
