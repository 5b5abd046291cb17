//! The page of one user: permissions and access, with forms to change them.

use askama::Template;
use http::StatusCode;
use serde_json::json;

use super::form::{PageForm, WHOLE_FORM, digest_of, is_outdated};
use super::http_messages::PageResponse;
use super::identity_proof::ask_for_proof;
use super::keys::claim_form;
use super::page_context::PageContext;
use super::page_error::{PageError, render};
use super::page_layout::PageLayout;
use super::people::{chosen_groups, render_link};
use super::setting_fields::{
    LIMIT_FIELDS, limits_as_settings, limits_digest, submitted_limits, with_refused_limits, with_settings,
    with_submitted,
};
use crate::gateway::people::LastingOperation;
use crate::wire::admin::server::ListKeysQuery;
use crate::wire::admin::types;

#[derive(Template)]
#[template(path = "person.html", config = "src/gateway/pages/askama.toml")]
struct PersonPage {
    page: PageLayout,
    user: types::User,
    groups: Vec<types::Group>,
    /// The keys that were disabled because the user left the group of the key.
    stopped: Vec<types::Key>,
    path: String,
    form: PageForm,
    nonce: String,
}

/// The action of a form on a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PersonFormAction {
    Change,
    Limit,
    Disable,
    Enable,
    Reset,
    SignOut,
    ResetFactor,
    Disconnect,
}

/// Shows the page of a user.
pub(super) async fn show(context: &PageContext<'_>, id: &str) -> Result<PageResponse, PageError> {
    if !context.is_admin() {
        return Err(PageError::Denied);
    }
    let user = context.console().retrieve_user(context.actor()?, id).await?;
    render_page(context, StatusCode::OK, user, None).await
}

async fn render_page(
    context: &PageContext<'_>,
    status: StatusCode,
    user: types::User,
    form: Option<PageForm>,
) -> Result<PageResponse, PageError> {
    let groups = context.console().list_groups(context.actor()?).await?.data;
    let template = PersonPage {
        page: context.layout("people"),
        path: format!("/people/{}", user.id),
        stopped: keys_of_left_groups(context, &user).await?,
        form: form.unwrap_or_else(|| stored_values(&user)),
        nonce: context.issue_form_nonce()?,
        groups,
        user,
    };
    Ok(render(status, &template))
}

/// Returns the forms with the values of the user. A form without them would remove the groups and the limits.
fn stored_values(user: &types::User) -> PageForm {
    with_settings(stored_permissions(user), LIMIT_FIELDS, &limits_as_settings(user.limits.as_ref()))
}

fn stored_permissions(user: &types::User) -> PageForm {
    permissions_form(&user.role.to_string(), &user.groups)
}

fn permissions_form(role: &str, groups: &[String]) -> PageForm {
    groups.iter().fold(PageForm::default().with_value("role", role), |form, group| form.with_value("groups", group))
}

/// A digest that detects changes of the permissions.
fn permissions_digest(user: &types::User) -> String {
    digest_of(json!([user.role, user.groups]).to_string())
}

/// Returns the forms with what was entered, if the values that it replaces were changed after its page was loaded.
fn outdated_form(context: &PageContext<'_>, user: &types::User, action: PersonFormAction) -> Option<PageForm> {
    let (digest, form) = match action {
        PersonFormAction::Change => {
            let entered = permissions_form(context.request.form_field("role"), &chosen_groups(context));
            let limits = limits_as_settings(user.limits.as_ref());
            (permissions_digest(user), with_settings(entered, LIMIT_FIELDS, &limits))
        }
        PersonFormAction::Limit => {
            let form = with_submitted(stored_permissions(user), LIMIT_FIELDS, context.request);
            (limits_digest(user.limits.as_ref()), form)
        }
        PersonFormAction::Disable
        | PersonFormAction::Enable
        | PersonFormAction::Reset
        | PersonFormAction::ResetFactor
        | PersonFormAction::SignOut
        | PersonFormAction::Disconnect => return None,
    };
    is_outdated(context.request, &digest).then(|| form.with_error(WHOLE_FORM, context.texts.get("error.changed")))
}

/// The page looks for keys of groups that the user left among at most this many disabled keys of the user, the newest
/// (our choice). The page `/keys` lists all keys.
const KEYS_OF_LEFT_GROUPS_MAX: i64 = 100;

/// The keys that were disabled because the user left the group of the key, among the newest [`KEYS_OF_LEFT_GROUPS_MAX`]
/// disabled keys of the user.
async fn keys_of_left_groups(context: &PageContext<'_>, user: &types::User) -> Result<Vec<types::Key>, PageError> {
    let query = ListKeysQuery {
        limit: types::PageLimit::new(KEYS_OF_LEFT_GROUPS_MAX).ok(),
        state: Some(types::KeyState::Disabled),
        user: Some(user.id.clone()),
        ..ListKeysQuery::default()
    };
    let disabled = context.console().list_keys(context.actor()?, &query).await?.data;
    Ok(disabled.into_iter().filter(|key| key.locked == Some(types::KeyLock::LeftGroup)).collect())
}

/// Performs the action of a submitted form on a user.
pub(super) async fn perform(
    context: &PageContext<'_>,
    id: &str,
    action: PersonFormAction,
) -> Result<PageResponse, PageError> {
    let (console, actor) = (context.console(), context.actor()?);
    let user = console.retrieve_user(actor, id).await?;
    if !context.is_admin() {
        return Err(PageError::Denied);
    }
    if let Some(form) = outdated_form(context, &user, action) {
        return render_page(context, StatusCode::CONFLICT, user, Some(form)).await;
    }
    if lasting_operation(context, &user, action).is_some()
        && let Some(question) = ask_for_proof(context, "/people").await?
    {
        return Ok(question);
    }
    let redirect_done = |notice: &str| Ok(PageResponse::redirect(&format!("/people/{}?done={notice}", user.id)));
    match action {
        PersonFormAction::Reset => return reset(context, user).await,
        PersonFormAction::SignOut => {
            console.sign_out_user(actor, id).await?;
            return redirect_done("ended");
        }
        PersonFormAction::ResetFactor => {
            console.reset_user_factor(actor, id).await?;
            return redirect_done("factor-reset");
        }
        PersonFormAction::Disconnect => {
            console.disconnect_user(actor, id).await?;
            return redirect_done("person-disconnected");
        }
        PersonFormAction::Change | PersonFormAction::Limit | PersonFormAction::Disable | PersonFormAction::Enable => {}
    }
    let (body, notice) = match action {
        PersonFormAction::Disable => (json!({ "enabled": false }).to_string(), "user-disabled"),
        PersonFormAction::Enable => (json!({ "enabled": true }).to_string(), "user-enabled"),
        PersonFormAction::Limit => (submitted_limits(context.request), "saved"),
        _ => {
            let permissions = json!({ "role": context.request.form_field("role"), "groups": chosen_groups(context) });
            (permissions.to_string(), "saved")
        }
    };
    match console.update_user(actor, id, body.as_bytes()).await {
        Ok(_) => redirect_done(notice),
        Err(error) if action == PersonFormAction::Limit => {
            let form = with_refused_limits(stored_permissions(&user), context.request, context.texts, error)?;
            render_page(context, StatusCode::UNPROCESSABLE_ENTITY, user, Some(form)).await
        }
        Err(error) => {
            let form = stored_values(&user).with_console_error(context.texts, error)?;
            render_page(context, StatusCode::UNPROCESSABLE_ENTITY, user, Some(form)).await
        }
    }
}

/// Returns the operation that the action is, if its result outlasts the session and so needs a fresh proof.
fn lasting_operation(
    context: &PageContext<'_>,
    user: &types::User,
    action: PersonFormAction,
) -> Option<LastingOperation> {
    let is_admin = user.role == types::Role::Admin;
    let becomes_admin = !is_admin && context.request.form_field("role") == types::Role::Admin.to_string();
    match action {
        PersonFormAction::Reset => Some(LastingOperation::PasswordLink),
        PersonFormAction::ResetFactor => Some(LastingOperation::FactorReset),
        PersonFormAction::Enable => is_admin.then_some(LastingOperation::NewAdmin),
        PersonFormAction::Change => becomes_admin.then_some(LastingOperation::NewAdmin),
        PersonFormAction::Limit
        | PersonFormAction::Disable
        | PersonFormAction::SignOut
        | PersonFormAction::Disconnect => None,
    }
}

/// Creates a one-time link for a new password, and shows the link. Only this answer can show the link.
async fn reset(context: &PageContext<'_>, user: types::User) -> Result<PageResponse, PageError> {
    let path = format!("/people/{}", user.id);
    let Some(first_use) = claim_form(context, "again.reset", "again.to_user", &path).await? else {
        let form = stored_values(&user).with_error(WHOLE_FORM, context.texts.get("error.stale"));
        return render_page(context, StatusCode::UNPROCESSABLE_ENTITY, user, Some(form)).await;
    };
    match context.console().reset_user(context.actor()?, &user.id).await {
        Ok(link) => Ok(render_link(context, &user.id, user.name, &link, "reset_made.title")),
        Err(error) => {
            first_use.release().await;
            Err(error.into())
        }
    }
}
