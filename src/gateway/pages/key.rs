//! The page of one key: its properties, its usage, and its forms.

use askama::Template;
use chrono::DateTime;
use http::StatusCode;
use serde_json::{Value, json};

use super::examples::{CodeExample, examples};
use super::form::{PageForm, WHOLE_FORM, digest_of, is_outdated};
use super::http_messages::PageResponse;
use super::keys::{claim_form, show_secret};
use super::page_context::{PageContext, end_of_day, last_valid_day};
use super::page_error::{PageError, render};
use super::page_layout::PageLayout;
use super::record_filters::{self, UNSUCCESSFUL};
use super::setting_fields::{
    LIMIT_FIELDS, SettingField, SettingFieldKind, labelled_settings, limits_as_settings, limits_digest,
    settings_from_form, submitted_limits, with_refused_limits, with_settings, with_submitted,
};
use crate::error::Error;
use crate::wire::admin::server::RetrieveUsageQuery;
use crate::wire::admin::types;

/// An option of the rotation form: the time for which the former secret stays valid.
struct GracePeriod {
    seconds: i64,
    label: &'static str,
}

const GRACE_PERIODS: [GracePeriod; 5] = [
    GracePeriod { seconds: 0, label: "grace.none" },
    GracePeriod { seconds: 3_600, label: "grace.hour" },
    GracePeriod { seconds: 86_400, label: "grace.day" },
    GracePeriod { seconds: 604_800, label: "grace.week" },
    GracePeriod { seconds: 2_592_000, label: "grace.month" },
];

/// The field of the form for dialects.
const DIALECT_FIELDS: [SettingField; 1] =
    [SettingField::new("dialects", "group.dialects", "/dialects", SettingFieldKind::Lines)];

#[derive(Template)]
#[template(path = "key.html", config = "src/gateway/pages/askama.toml")]
struct KeyPage {
    page: PageLayout,
    key: types::Key,
    /// The counts of all requests with the key.
    counts: types::UsageCounts,
    path: String,
    form: PageForm,
    nonce: String,
    graces: &'static [GracePeriod],
    examples: Vec<CodeExample>,
    /// True if the key is active.
    is_active: bool,
    /// True if the viewer can neither enable nor rotate the key.
    is_locked: bool,
    /// The limits with the keys of their labels, which are shown to a viewer who cannot change them.
    limits: Vec<(&'static str, String)>,
    /// The dialects with the key of their label, in the same way.
    dialects: Vec<(&'static str, String)>,
}

#[derive(Template)]
#[template(path = "delete.html", config = "src/gateway/pages/askama.toml")]
pub(super) struct DeletePage {
    pub(super) page: PageLayout,
    pub(super) name: String,
    pub(super) action: String,
    pub(super) back: String,
}

// === impl KeyPage ===

impl KeyPage {
    /// The address of the records of the key, in this state or in any.
    fn records(&self, state: &str) -> String {
        record_filters::records_link(&[("key", &self.key.id), ("state", state)])
    }
}

/// Shows the page of a key.
pub(super) async fn show(context: &PageContext<'_>, id: &str) -> Result<PageResponse, PageError> {
    let key = context.console().retrieve_key(context.actor()?, id).await?;
    render_page(context, StatusCode::OK, key, None).await
}

async fn render_page(
    context: &PageContext<'_>,
    status: StatusCode,
    key: types::Key,
    form: Option<PageForm>,
) -> Result<PageResponse, PageError> {
    let template = KeyPage {
        page: context.layout("keys"),
        counts: all_counts(context, &key).await?,
        path: format!("/keys/{}", key.id),
        form: form.unwrap_or_else(|| stored_values(&key)),
        nonce: context.issue_form_nonce()?,
        graces: &GRACE_PERIODS,
        examples: examples(context.site, None),
        is_active: key.state == types::KeyState::Active,
        is_locked: key.locked.is_some() && !context.is_admin(),
        limits: labelled_settings(LIMIT_FIELDS, &limits_as_settings(key.limits.as_ref())),
        dialects: labelled_settings(&DIALECT_FIELDS, &dialects_as_settings(&key)),
        key,
    };
    Ok(render(status, &template))
}

/// Returns the counts of all requests with a key.
async fn all_counts(context: &PageContext<'_>, key: &types::Key) -> Result<types::UsageCounts, PageError> {
    let since = Some(DateTime::UNIX_EPOCH.date_naive());
    let query = RetrieveUsageQuery { key: Some(key.id.clone()), since, ..RetrieveUsageQuery::default() };
    Ok(context.console().retrieve_usage(context.actor()?, &query).await?.totals)
}

/// Returns the forms with the values of the key. A form without them would remove the expiry and the limits.
fn stored_values(key: &types::Key) -> PageForm {
    let form = with_stored_dialects(stored_properties(key), key);
    with_settings(form, LIMIT_FIELDS, &limits_as_settings(key.limits.as_ref()))
}

fn with_stored_dialects(form: PageForm, key: &types::Key) -> PageForm {
    with_settings(form, &DIALECT_FIELDS, &dialects_as_settings(key))
}

/// Returns the dialects of the key, with their name; empty if it has none.
fn dialects_as_settings(key: &types::Key) -> Value {
    if key.dialects.is_empty() { json!({}) } else { json!({ "dialects": key.dialects }) }
}

fn stored_properties(key: &types::Key) -> PageForm {
    let day = key.expires_at.map(last_valid_day).unwrap_or_default();
    PageForm::default().with_value("name", key.name.clone()).with_value("expires_on", day)
}

/// A digest that detects changes of the name and of the expiry.
fn properties_digest(key: &types::Key) -> String {
    digest_of(json!([key.name, key.expires_at]).to_string())
}

/// A digest that detects changes of the dialects.
fn dialects_digest(key: &types::Key) -> String {
    digest_of(dialects_as_settings(key).to_string())
}

/// Shows the page with what was entered, because the values that it replaces were changed after its page was loaded.
async fn refuse_outdated(
    context: &PageContext<'_>,
    current: types::Key,
    form: PageForm,
) -> Result<PageResponse, PageError> {
    let form = form.with_error(WHOLE_FORM, context.texts.get("error.changed"));
    render_page(context, StatusCode::CONFLICT, current, Some(form)).await
}

/// Asks for confirmation before a key is deleted.
pub(super) async fn confirm_delete(context: &PageContext<'_>, id: &str) -> Result<PageResponse, PageError> {
    let key = context.console().retrieve_key(context.actor()?, id).await?;
    let back = format!("/keys/{}", key.id);
    let template = DeletePage { page: context.layout("keys"), name: key.name, action: format!("{back}/delete"), back };
    Ok(render(StatusCode::OK, &template))
}

/// Deletes a key.
pub(super) async fn delete(context: &PageContext<'_>, id: &str) -> Result<PageResponse, PageError> {
    context.console().delete_key(context.actor()?, id).await?;
    Ok(PageResponse::redirect("/keys?done=deleted"))
}

pub(super) async fn set_enabled(context: &PageContext<'_>, id: &str, enabled: bool) -> Result<PageResponse, PageError> {
    let body = json!({ "enabled": enabled }).to_string();
    let key = context.console().update_key(context.actor()?, id, body.as_bytes()).await?;
    Ok(PageResponse::redirect(&format!("/keys/{}?done={}", key.id, if enabled { "enabled" } else { "disabled" })))
}

pub(super) async fn submit_change(context: &PageContext<'_>, id: &str) -> Result<PageResponse, PageError> {
    let current = context.console().retrieve_key(context.actor()?, id).await?;
    let form = PageForm::from_request(context.request, &["name", "expires_on"]);
    let form = with_stored_dialects(form, &current);
    let form = with_settings(form, LIMIT_FIELDS, &limits_as_settings(current.limits.as_ref()));
    if is_outdated(context.request, &properties_digest(&current)) {
        return refuse_outdated(context, current, form).await;
    }
    let day = form.value("expires_on");
    let mut body = json!({ "name": form.value("name") });
    // If the day was not changed, it is not sent to the console, so that the exact time of the expiry is kept.
    if day != current.expires_at.map(last_valid_day).unwrap_or_default() {
        match (day, end_of_day(day)) {
            ("", _) => body["never_expires"] = true.into(),
            (_, Some(end)) => body["expires_at"] = json!(end),
            (_, None) => {
                let form = form.with_error("expires_on", context.texts.get("error.expires_on"));
                return render_page(context, StatusCode::UNPROCESSABLE_ENTITY, current, Some(form)).await;
            }
        }
    }
    match context.console().update_key(context.actor()?, id, body.to_string().as_bytes()).await {
        Ok(key) => Ok(PageResponse::redirect(&format!("/keys/{}?done=saved", key.id))),
        Err(error) => {
            let form = form.with_console_error(context.texts, error)?;
            render_page(context, StatusCode::UNPROCESSABLE_ENTITY, current, Some(form)).await
        }
    }
}

/// Sets all limits of a key. For admins.
pub(super) async fn submit_limits(context: &PageContext<'_>, id: &str) -> Result<PageResponse, PageError> {
    let current = context.console().retrieve_key(context.actor()?, id).await?;
    if context.is_admin() && is_outdated(context.request, &limits_digest(current.limits.as_ref())) {
        let form = with_stored_dialects(stored_properties(&current), &current);
        return refuse_outdated(context, current, with_submitted(form, LIMIT_FIELDS, context.request)).await;
    }
    let change = submitted_limits(context.request);
    match context.console().update_key(context.actor()?, id, change.as_bytes()).await {
        Ok(key) => Ok(PageResponse::redirect(&format!("/keys/{}?done=saved", key.id))),
        Err(error) => {
            let form = with_stored_dialects(stored_properties(&current), &current);
            let form = with_refused_limits(form, context.request, context.texts, error)?;
            render_page(context, StatusCode::UNPROCESSABLE_ENTITY, current, Some(form)).await
        }
    }
}

/// Sets all dialects of a key. For admins.
pub(super) async fn submit_dialects(context: &PageContext<'_>, id: &str) -> Result<PageResponse, PageError> {
    let current = context.console().retrieve_key(context.actor()?, id).await?;
    if context.is_admin() && is_outdated(context.request, &dialects_digest(&current)) {
        let form = with_submitted_dialects(context, &current);
        return refuse_outdated(context, current, form).await;
    }
    let mut change = settings_from_form(&DIALECT_FIELDS, &|name| context.request.form_field(name));
    // Without a line, the key has only the dialects of its group.
    change.entry("dialects").or_insert_with(|| json!([]));
    let change = Value::Object(change).to_string();
    match context.console().update_key(context.actor()?, id, change.as_bytes()).await {
        Ok(key) => Ok(PageResponse::redirect(&format!("/keys/{}?done=saved", key.id))),
        Err(error) => {
            let form = with_submitted_dialects(context, &current);
            let form = match error {
                Error::Invalid(rejection) => form.with_error("dialects", rejection.message),
                error => form.with_console_error(context.texts, error)?,
            };
            render_page(context, StatusCode::UNPROCESSABLE_ENTITY, current, Some(form)).await
        }
    }
}

fn with_submitted_dialects(context: &PageContext<'_>, current: &types::Key) -> PageForm {
    let form = with_submitted(stored_properties(current), &DIALECT_FIELDS, context.request);
    with_settings(form, LIMIT_FIELDS, &limits_as_settings(current.limits.as_ref()))
}

pub(super) async fn rotate(context: &PageContext<'_>, id: &str) -> Result<PageResponse, PageError> {
    let current = context.console().retrieve_key(context.actor()?, id).await?;
    let path = format!("/keys/{}", current.id);
    let Some(first_use) = claim_form(context, "again.rotate", "again.to_key", &path).await? else {
        let form = stored_values(&current).with_error(WHOLE_FORM, context.texts.get("error.stale"));
        return render_page(context, StatusCode::UNPROCESSABLE_ENTITY, current, Some(form)).await;
    };
    let grace = context.request.form_field("grace");
    let body = grace
        .parse::<i64>()
        .map_or_else(|_| json!({ "grace_seconds": grace }), |seconds| json!({ "grace_seconds": seconds }));
    match context.console().rotate_key(context.actor()?, id, body.to_string().as_bytes()).await {
        Ok(created) => Ok(show_secret(context, created, "rotated.title")),
        Err(error) => {
            first_use.release().await;
            let form = stored_values(&current).with_console_error(context.texts, error)?;
            render_page(context, StatusCode::UNPROCESSABLE_ENTITY, current, Some(form)).await
        }
    }
}
