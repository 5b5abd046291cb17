//! The groups in which keys are served.

use askama::Template;
use http::StatusCode;
use serde_json::json;

use super::desk::Desk;
use super::failure::{Failure, rendered};
use super::form::Form;
use super::frame::Page;
use super::visit::{Shown, encoded};
use crate::wire::admin::types;

#[derive(Template)]
#[template(path = "groups.html", config = "src/gateway/pages/askama.toml")]
struct GroupsPage {
    page: Page,
    groups: Vec<types::Group>,
    form: Form,
}

/// True if anything is set of a group.
fn has_policy(group: &types::Group) -> bool {
    group.policy.as_ref().is_some_and(|policy| serde_json::to_value(policy).is_ok_and(|set| set != json!({})))
}

/// The list.
pub(super) async fn show(desk: &Desk<'_>) -> Result<Shown, Failure> {
    show_with(desk, StatusCode::OK, Form::default()).await
}

async fn show_with(desk: &Desk<'_>, status: StatusCode, form: Form) -> Result<Shown, Failure> {
    if !desk.is_admin() {
        return Err(Failure::Denied);
    }
    let groups = desk.console().list_groups(desk.actor()?).await?.data;
    Ok(rendered(status, &GroupsPage { page: desk.page("groups"), groups, form }))
}

/// Makes a group.
pub(super) async fn create(desk: &Desk<'_>) -> Result<Shown, Failure> {
    let form = Form::sent(desk.visit, &["name"]);
    let body = json!({ "name": form.value("name") }).to_string();
    match desk.console().create_group(desk.actor()?, body.as_bytes()).await {
        Ok(group) => Ok(Shown::see(&format!("/groups/{}?done=group", encoded(&group.name)))),
        Err(error) => show_with(desk, StatusCode::UNPROCESSABLE_ENTITY, form.refused(desk.texts, error)?).await,
    }
}

/// Deletes a group that no key needs.
pub(super) async fn delete(desk: &Desk<'_>, name: &str) -> Result<Shown, Failure> {
    match desk.console().delete_group(desk.actor()?, name).await {
        Ok(_) => Ok(Shown::see("/groups?done=group-deleted")),
        Err(error @ crate::error::Error::NotFound(_)) => Err(error.into()),
        Err(error) => {
            let form = Form::default().refused(desk.texts, error)?;
            show_with(desk, StatusCode::UNPROCESSABLE_ENTITY, form).await
        }
    }
}
