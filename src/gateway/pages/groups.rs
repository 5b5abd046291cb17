//! The groups of keys: a list, and a form for a new one.

use askama::Template;
use http::StatusCode;
use serde_json::json;

use super::desk::PageContext;
use super::failure::{PageError, rendered};
use super::form::PageForm;
use super::frame::PageLayout;
use super::visit::{PageResponse, encoded};
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
    group.policy.as_ref().is_some_and(|policy| serde_json::to_value(policy).is_ok_and(|set| set != json!({})))
}

/// Shows the list.
pub(super) async fn show(desk: &PageContext<'_>) -> Result<PageResponse, PageError> {
    show_with(desk, StatusCode::OK, PageForm::default()).await
}

async fn show_with(desk: &PageContext<'_>, status: StatusCode, form: PageForm) -> Result<PageResponse, PageError> {
    if !desk.is_admin() {
        return Err(PageError::Denied);
    }
    let groups = desk.console().list_groups(desk.actor()?).await?.data;
    Ok(rendered(status, &GroupsPage { page: desk.page("groups"), groups, form }))
}

/// Creates a group.
pub(super) async fn create(desk: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let form = PageForm::sent(desk.visit, &["name"]);
    let body = json!({ "name": form.value("name") }).to_string();
    match desk.console().create_group(desk.actor()?, body.as_bytes()).await {
        Ok(group) => Ok(PageResponse::see(&format!("/groups/{}?done=group", encoded(&group.name)))),
        Err(error) => show_with(desk, StatusCode::UNPROCESSABLE_ENTITY, form.refused(desk.texts, error)?).await,
    }
}

/// Deletes a group that no key uses.
pub(super) async fn delete(desk: &PageContext<'_>, name: &str) -> Result<PageResponse, PageError> {
    match desk.console().delete_group(desk.actor()?, name).await {
        Ok(_) => Ok(PageResponse::see("/groups?done=group-deleted")),
        Err(error @ crate::error::Error::NotFound(_)) => Err(error.into()),
        Err(error) => {
            let form = PageForm::default().refused(desk.texts, error)?;
            show_with(desk, StatusCode::UNPROCESSABLE_ENTITY, form).await
        }
    }
}
