//! The page of the users: a list, and a form to invite a user.

use askama::Template;
use http::StatusCode;
use serde_json::json;

use super::form::{PageForm, WHOLE_FORM};
use super::http_messages::PageResponse;
use super::identity_proof::ask_for_proof;
use super::keys::{SecretPage, claim_form, older_page_link};
use super::page_context::PageContext;
use super::page_error::{PageError, render};
use super::page_layout::PageLayout;
use super::sort_links::{SORT_FIELD, SortLinks};
use crate::wire::admin::server::ListUsersQuery;
use crate::wire::admin::types;

/// The maximum number of users on one page (our choice).
const PER_PAGE: i64 = 50;

#[derive(Template)]
#[template(path = "people.html", config = "src/gateway/pages/askama.toml")]
struct PeoplePage {
    page: PageLayout,
    users: types::UserList,
    groups: Vec<types::Group>,
    search: String,
    sort: SortLinks,
    /// The group that the list is limited to.
    group: String,
    is_open: bool,
    form: PageForm,
    nonce: String,
    newest: Option<String>,
    older: Option<String>,
}

/// Shows the list of users.
pub(super) async fn show(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let form = PageForm::default().with_value("role", "member").with_value("groups", "default");
    render_page(context, StatusCode::OK, form).await
}

async fn render_page(context: &PageContext<'_>, status: StatusCode, form: PageForm) -> Result<PageResponse, PageError> {
    let request = context.request;
    let query = ListUsersQuery {
        before: request.query_param("before").map(str::to_owned),
        group: request.query_param("group").map(str::to_owned),
        limit: types::PageLimit::new(PER_PAGE).ok(),
        role: None,
        search: request.query_param("search").map(str::to_owned),
        sort: request.query_param(SORT_FIELD).and_then(|word| word.parse().ok()),
    };
    let users = context.console().list_users(context.actor()?, &query).await?;
    let groups = context.console().list_groups(context.actor()?).await?.data;
    let template = PeoplePage {
        page: context.layout("people"),
        older: users.data.last().filter(|_| users.has_more).map(|last| older_page_link(request, "/people", &last.id)),
        newest: request
            .query_param("before")
            .map(|_| format!("/people?{}", request.query.to_query_without(&["before"]))),
        search: query.search.unwrap_or_default(),
        sort: SortLinks::new(request, "/people", query.sort.unwrap_or(types::UserSort::Created)),
        group: query.group.unwrap_or_default(),
        is_open: form.has_error(),
        nonce: context.issue_form_nonce()?,
        users,
        groups,
        form,
    };
    Ok(render(status, &template))
}

/// Invites a user, and shows the one-time link. Only this answer can show the link.
pub(super) async fn invite(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let makes_admin = context.request.form_field("role") == types::Role::Admin.to_string();
    if makes_admin && let Some(question) = ask_for_proof(context, "/people").await? {
        return Ok(question);
    }
    let mut form = PageForm::from_request(context.request, &["name", "role"]);
    let groups: Vec<String> = chosen_groups(context);
    for group in &groups {
        form = form.with_value("groups", group.clone());
    }
    let Some(first_use) = claim_form(context, "again.user", "again.to_user", "/people").await? else {
        let form = form.with_error(WHOLE_FORM, context.texts.get("error.stale"));
        return render_page(context, StatusCode::UNPROCESSABLE_ENTITY, form).await;
    };
    let body = json!({ "name": form.value("name"), "role": form.value("role"), "groups": groups }).to_string();
    match context.console().create_user(context.actor()?, body.as_bytes()).await {
        Ok(created) => {
            first_use.complete(&created.user.id).await;
            Ok(render_link(context, &created.user.id, created.user.name, &created.link, "invited.title"))
        }
        Err(error) => {
            first_use.release().await;
            let form = form.with_console_error(context.texts, error)?;
            render_page(context, StatusCode::UNPROCESSABLE_ENTITY, form).await
        }
    }
}

/// The groups that are selected in the submitted form.
pub(super) fn chosen_groups(context: &PageContext<'_>) -> Vec<String> {
    context
        .request
        .form
        .as_ref()
        .map_or_else(|_| Vec::new(), |form| form.get_all("groups").map(str::to_owned).collect())
}

/// Renders the page that shows a one-time link once.
pub(super) fn render_link(
    context: &PageContext<'_>,
    user: &str,
    name: String,
    link: &types::OneTimeLink,
    title: &'static str,
) -> PageResponse {
    let mut page = context.layout("people");
    page.back = None;
    let template = SecretPage {
        page,
        title,
        name,
        label: "link.label",
        warning: "link.once",
        secret: format!("{}{}", context.site.origin(), link.path.expose()),
        until: Some(link.expires_at),
        until_label: "link.until",
        examples: Vec::new(),
        next: format!("/people/{user}"),
        next_label: "link.to_user",
    };
    render(StatusCode::OK, &template)
}
