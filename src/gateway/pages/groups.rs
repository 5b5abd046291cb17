//! The page of the groups: a list, and a form for a new group.

use askama::Template;
use http::StatusCode;
use serde_json::json;

use super::form::PageForm;
use super::http_messages::{PageResponse, encode_path_segment};
use super::page_context::PageContext;
use super::page_error::{PageError, render};
use super::page_layout::PageLayout;
use crate::wire::admin::types;

#[derive(Template)]
#[template(path = "groups.html", config = "src/gateway/pages/askama.toml")]
struct GroupsPage {
    page: PageLayout,
    groups: Vec<types::Group>,
    form: PageForm,
}

/// True if a group has any setting.
fn has_policy(group: &types::Group) -> bool {
    group.policy.as_ref().is_some_and(|policy| serde_json::to_value(policy).is_ok_and(|policy| policy != json!({})))
}

/// Shows the list of groups.
pub(super) async fn show(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    render_page(context, StatusCode::OK, PageForm::default()).await
}

async fn render_page(context: &PageContext<'_>, status: StatusCode, form: PageForm) -> Result<PageResponse, PageError> {
    if !context.is_admin() {
        return Err(PageError::Denied);
    }
    let groups = context.console().list_groups(context.actor()?).await?.data;
    Ok(render(status, &GroupsPage { page: context.layout("groups"), groups, form }))
}

/// Creates a group.
pub(super) async fn create(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let form = PageForm::from_request(context.request, &["name"]);
    let body = json!({ "name": form.value("name") }).to_string();
    match context.console().create_group(context.actor()?, body.as_bytes()).await {
        Ok(group) => Ok(PageResponse::redirect(&format!("/groups/{}?done=group", encode_path_segment(&group.name)))),
        Err(error) => {
            render_page(context, StatusCode::UNPROCESSABLE_ENTITY, form.with_console_error(context.texts, error)?).await
        }
    }
}

/// Deletes a group. The console refuses this for the default group, for groups of the settings file, and for groups
/// that a key uses.
pub(super) async fn delete(context: &PageContext<'_>, name: &str) -> Result<PageResponse, PageError> {
    match context.console().delete_group(context.actor()?, name).await {
        Ok(_) => Ok(PageResponse::redirect("/groups?done=group-deleted")),
        Err(error @ crate::error::Error::NotFound(_)) => Err(error.into()),
        Err(error) => {
            let form = PageForm::default().with_console_error(context.texts, error)?;
            render_page(context, StatusCode::UNPROCESSABLE_ENTITY, form).await
        }
    }
}
