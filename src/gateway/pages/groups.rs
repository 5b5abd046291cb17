//! The page of the groups: a list, and a form for a new group.

use askama::Template;
use http::StatusCode;
use serde_json::{Value, json};

use super::form::PageForm;
use super::group::{PolicyWords, form_field_for, policy_from_form, submitted_form};
use super::http_messages::{PageResponse, encode_path_segment};
use super::page_context::PageContext;
use super::page_error::{PageError, render};
use super::page_layout::PageLayout;
use crate::error::Error;
use crate::wire::admin::types;

#[derive(Template)]
#[template(path = "groups.html", config = "src/gateway/pages/askama.toml")]
struct GroupsPage {
    page: PageLayout,
    groups: Vec<types::Group>,
    form: PageForm,
    /// True if the form for a new group is open.
    is_open: bool,
    deliveries: Vec<String>,
    fallbacks: Vec<String>,
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
    let PolicyWords { deliveries, fallbacks } = PolicyWords::new();
    let is_open = form.has_error();
    let page = context.layout("groups");
    Ok(render(status, &GroupsPage { page, groups, form, is_open, deliveries, fallbacks }))
}

/// Creates a group, with the settings that the form has for it.
pub(super) async fn create(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let name = context.request.form_field("name");
    let form = submitted_form(context.request).with_value("name", name);
    let mut body = json!({ "name": name });
    let policy = policy_from_form(&|field| context.request.raw_form_field(field));
    if !policy.is_empty() {
        body["policy"] = Value::Object(policy);
    }
    let body = body.to_string();
    match context.console().create_group(context.actor()?, body.as_bytes()).await {
        Ok(group) => Ok(PageResponse::redirect(&format!("/groups/{}?done=group", encode_path_segment(&group.name)))),
        Err(error) => {
            let form = with_policy_error(context, form, error)?;
            render_page(context, StatusCode::UNPROCESSABLE_ENTITY, form).await
        }
    }
}

/// Adds an error of the console to the field of the policy that it concerns, or to the name.
fn with_policy_error(context: &PageContext<'_>, form: PageForm, error: Error) -> Result<PageForm, PageError> {
    match error {
        Error::Invalid(rejection) if rejection.param.as_deref().is_some_and(|param| param.starts_with("policy")) => {
            Ok(form.with_error(form_field_for(rejection.param.as_deref().unwrap_or_default()), rejection.message))
        }
        error => form.with_console_error(context.texts, error),
    }
}

/// Deletes a group. The console refuses this for the default group, for groups of the settings file, and for groups
/// that a key uses.
pub(super) async fn delete(context: &PageContext<'_>, name: &str) -> Result<PageResponse, PageError> {
    match context.console().delete_group(context.actor()?, name).await {
        Ok(_) => Ok(PageResponse::redirect("/groups?done=group-deleted")),
        Err(error @ Error::NotFound(_)) => Err(error.into()),
        Err(error) => {
            let form = PageForm::default().with_console_error(context.texts, error)?;
            render_page(context, StatusCode::UNPROCESSABLE_ENTITY, form).await
        }
    }
}
