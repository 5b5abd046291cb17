//! The page of one group. The settings of a group in the store are shown in a form; those of a group in the settings
//! file are shown as text.

use askama::Template;
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::form::{DIGEST_FIELD, PageForm, WHOLE_FORM, digest_of, is_outdated};
use super::group_overview::{ACCOUNTS_FIELD, AccountAssignment, GroupOverview, UNSERVED_FIELD};
use super::http_messages::{PageRequest, PageResponse};
use super::page_context::PageContext;
use super::page_error::{PageError, render};
use super::page_layout::PageLayout;
use super::setting_fields::{
    CHECKED, LIMIT_FIELDS, SettingField, SettingFieldKind, field_for_setting, labelled_settings, settings_from_form,
    with_settings, with_submitted,
};
use crate::error::Error;
use crate::gateway::console::Console;
use crate::wire::admin::types;

/// The fields of the form, without those of limits.
const POLICY_FIELDS: [SettingField; 19] = [
    SettingField::new("delivery", "group.delivery", "/delivery", SettingFieldKind::Text),
    SettingField::new("image_deadline", "group.image_deadline", "/image_deadline", SettingFieldKind::Text),
    SettingField::new("fallback", "group.fallback", "/fallback", SettingFieldKind::Text),
    SettingField::new("inject_image_tool", "group.inject", "/inject_image_tool", SettingFieldKind::Checkbox),
    SettingField::new("stored_context", "group.stored_context", "/stored_context", SettingFieldKind::Text),
    SettingField::new("budget_mode", "group.budget_mode", "/budget_mode", SettingFieldKind::Text),
    SettingField::new("max_response_usd", "group.max_response", "/max_response_usd", SettingFieldKind::Number),
    SettingField::new("dialects", "group.dialects", "/dialects", SettingFieldKind::Lines),
    SettingField::new("text_models", "group.text_models", "/text_models", SettingFieldKind::Lines),
    SettingField::new("tools", "group.tools", "/tools", SettingFieldKind::Lines),
    SettingField::new("words", "group.words", "/filter/words", SettingFieldKind::Lines),
    SettingField::new("patterns", "group.patterns", "/filter/patterns", SettingFieldKind::Lines),
    SettingField::new("filter_files", "group.filter_files", "/filter_files", SettingFieldKind::Text),
    SettingField::new("base_url", "group.base_url", "/filter/moderation/base_url", SettingFieldKind::Text),
    SettingField::new("allow_http", "group.allow_http", "/filter/moderation/allow_http", SettingFieldKind::Checkbox),
    SettingField::new("api_key", "group.api_key", "/filter/moderation/api_key", SettingFieldKind::SecretVariable),
    SettingField::new("model", "group.model", "/filter/moderation/model", SettingFieldKind::Text),
    SettingField::new("on_error", "group.on_error", "/filter/moderation/on_error", SettingFieldKind::Text),
    SettingField::new("timeout", "group.timeout", "/filter/moderation/timeout", SettingFieldKind::Text),
];
/// The lists that allow nothing if they are empty, each with the checkbox that sets an empty list.
const EMPTY_LIST_CHECKBOXES: [(&str, &str); 2] = [("text_models", "no_text_models"), ("tools", "no_tools")];
/// The checkbox that allows the loss of settings that the form does not show.
const REPLACE_FIELD: &str = "replace";

#[derive(Template)]
#[template(path = "group.html", config = "src/gateway/pages/askama.toml")]
struct GroupPage {
    page: PageLayout,
    group: types::Group,
    /// True if the group is defined in the settings file, so that the page cannot change it.
    of_file: bool,
    /// The settings with the keys of their labels, which are shown for a group in the settings file.
    facts: Vec<(&'static str, String)>,
    path: String,
    /// The stored settings, if the form cannot show all of them, or if they were changed after the form was loaded.
    stored: Option<String>,
    form: PageForm,
    overview: GroupOverview,
    /// The form that assigns accounts.
    accounts_form: PageForm,
    deliveries: Vec<String>,
    fallbacks: Vec<String>,
    stored_contexts: Vec<String>,
    filter_files: Vec<String>,
    budget_modes: Vec<String>,
    on_errors: Vec<String>,
}

/// The forms of the page.
struct GroupForms {
    policy: PageForm,
    /// The form that assigns accounts; `None` if it shows the accounts that serve the group.
    accounts: Option<PageForm>,
}

/// The words among which the fields of a policy let the reader choose.
pub(super) struct PolicyWords {
    pub(super) deliveries: Vec<String>,
    pub(super) fallbacks: Vec<String>,
}

/// All fields of the form.
fn policy_fields() -> impl Iterator<Item = &'static SettingField> {
    POLICY_FIELDS.iter().chain(LIMIT_FIELDS)
}

/// Shows the page of a group.
pub(super) async fn show(context: &PageContext<'_>, name: &str) -> Result<PageResponse, PageError> {
    if !context.is_admin() {
        return Err(PageError::Denied);
    }
    let (group, stored) = context.console().retrieve_stored_group(context.actor()?, name).await?;
    let form = form_from_policy(&parse_policy(&stored)).with_value(DIGEST_FIELD, digest_of(&stored));
    let stored = settings_lost_by_form(&stored);
    render_page(context, StatusCode::OK, group, stored, form.into()).await
}

/// Renders the page, with the stored settings if they are given.
async fn render_page(
    context: &PageContext<'_>,
    status: StatusCode,
    group: types::Group,
    stored: Option<String>,
    forms: GroupForms,
) -> Result<PageResponse, PageError> {
    let overview = GroupOverview::of(context, &group.name).await?;
    let served_now = || {
        let ids = overview.serving.iter().map(|summary| summary.account.id.clone());
        ids.fold(PageForm::default(), |form, id| form.with_value(ACCOUNTS_FIELD, id))
    };
    let words = PolicyWords::new();
    let template = GroupPage {
        page: context.layout("groups"),
        of_file: group.source == types::GroupSource::File,
        facts: labelled_settings(policy_fields(), &policy_as_json(&group)),
        path: format!("/groups/{}", super::http_messages::encode_path_segment(&group.name)),
        accounts_form: forms.accounts.unwrap_or_else(served_now),
        overview,
        group,
        stored,
        form: forms.policy,
        deliveries: words.deliveries,
        fallbacks: words.fallbacks,
        stored_contexts: Console::group_setting_values("stored_context"),
        filter_files: Console::group_setting_values("filter_files"),
        budget_modes: Console::group_setting_values("budget_mode"),
        on_errors: Console::group_setting_values("filter.moderation.on_error"),
    };
    Ok(render(status, &template))
}

/// Assigns accounts to a group from the form.
pub(super) async fn submit_accounts(context: &PageContext<'_>, name: &str) -> Result<PageResponse, PageError> {
    let (console, actor) = (context.console(), context.actor()?);
    let (group, stored) = console.retrieve_stored_group(actor, name).await?;
    let assignment = AccountAssignment::parse(context.request);
    let overview = GroupOverview::of(context, &group.name).await?;
    let form = assignment.form(&overview);
    let refused = if assignment.needs_consent(&overview, context.request) {
        form.with_error(UNSERVED_FIELD, context.texts.get("group.unserved_needed"))
    } else {
        match assignment.apply(console, actor, &group.name).await {
            Ok(()) => {
                let segment = super::http_messages::encode_path_segment(&group.name);
                return Ok(PageResponse::redirect(&format!("/groups/{segment}?done=group-accounts")));
            }
            Err(Error::Invalid(_)) => form.with_error(ACCOUNTS_FIELD, context.texts.get("group.last_group")),
            Err(error) => form.with_console_error(context.texts, error)?,
        }
    };
    let policy = form_from_policy(&parse_policy(&stored)).with_value(DIGEST_FIELD, digest_of(&stored));
    let forms = GroupForms { policy, accounts: Some(refused) };
    render_page(context, StatusCode::UNPROCESSABLE_ENTITY, group, settings_lost_by_form(&stored), forms).await
}

/// Sets the policy of a group from the form.
pub(super) async fn submit_policy(context: &PageContext<'_>, name: &str) -> Result<PageResponse, PageError> {
    let (group, stored) = context.console().retrieve_stored_group(context.actor()?, name).await?;
    let of_file = group.source == types::GroupSource::File;
    if !of_file && is_outdated(context.request, &digest_of(&stored)) {
        let form = submitted_form(context.request)
            .with_value(DIGEST_FIELD, digest_of(&stored))
            .with_error(WHOLE_FORM, context.texts.get("group.changed"));
        return render_page(context, StatusCode::CONFLICT, group, Some(pretty_json(&stored)), form.into()).await;
    }
    let lost_settings = settings_lost_by_form(&stored);
    if !of_file && lost_settings.is_some() && context.request.form_field(REPLACE_FIELD) != CHECKED {
        let form = submitted_form(context.request)
            .with_value(DIGEST_FIELD, digest_of(&stored))
            .with_error(REPLACE_FIELD, context.texts.get("group.replace_needed"));
        return render_page(context, StatusCode::UNPROCESSABLE_ENTITY, group, lost_settings, form.into()).await;
    }
    let policy = policy_from_form(&|name| context.request.raw_form_field(name));
    let body = json!({ "policy": policy }).to_string();
    let error = match context.console().update_group(context.actor()?, name, body.as_bytes()).await {
        Ok(_) => {
            return Ok(PageResponse::redirect(&format!(
                "/groups/{}?done=policy",
                super::http_messages::encode_path_segment(&group.name)
            )));
        }
        Err(error) => error,
    };
    let form = submitted_form(context.request).with_value(DIGEST_FIELD, digest_of(&stored));
    let form = match error {
        Error::Invalid(rejection) => {
            let field = form_field_for(rejection.param.as_deref().unwrap_or_default());
            form.with_error(field, rejection.message)
        }
        error => form.with_console_error(context.texts, error)?,
    };
    render_page(context, StatusCode::UNPROCESSABLE_ENTITY, group, lost_settings, form.into()).await
}

/// The stored settings; an empty object if they are not a JSON object.
fn parse_policy(stored: &str) -> Value {
    serde_json::from_str(stored).ok().filter(Value::is_object).unwrap_or_else(|| json!({}))
}

/// Returns the stored settings, indented if they are JSON, if the form would lose some of them or they are not a JSON
/// object; `None` if the form loses nothing.
fn settings_lost_by_form(stored: &str) -> Option<String> {
    let policy = parse_policy(stored);
    let form = form_from_policy(&policy);
    let expressed = Value::Object(policy_from_form(&|name| form.value(name)));
    let is_valid = serde_json::from_str::<Map<String, Value>>(stored).is_ok();
    (!is_valid || expressed != without_defaults(policy)).then(|| pretty_json(stored))
}

/// Removes the settings that mean the same as no setting, because the form leaves them out: `false` and empty values.
/// The empty lists of [`EMPTY_LIST_CHECKBOXES`] stay, because they allow nothing.
fn without_defaults(mut policy: Value) -> Value {
    let is_default = |value: &Value| *value == json!(false) || *value == json!([]) || *value == json!({});
    if let Some(filter) = policy.get_mut("filter").and_then(Value::as_object_mut) {
        filter.retain(|_, value| !is_default(value));
        if let Some(service) = filter.get_mut("moderation").and_then(Value::as_object_mut) {
            service.retain(|_, value| *value != json!(false));
        }
    }
    if let Some(policy) = policy.as_object_mut() {
        policy.retain(|name, value| !is_default(value) || EMPTY_LIST_CHECKBOXES.iter().any(|(list, _)| list == name));
    }
    policy
}

fn pretty_json(stored: &str) -> String {
    let parsed = serde_json::from_str::<Value>(stored);
    parsed.map_or_else(|_| stored.to_owned(), |policy| format!("{policy:#}"))
}

/// The settings of a group, as JSON.
fn policy_as_json(group: &types::Group) -> Value {
    serde_json::to_value(&group.policy).unwrap_or_default()
}

/// The form, filled in from the policy.
fn form_from_policy(policy: &Value) -> PageForm {
    let mut form = with_settings(PageForm::default(), policy_fields(), policy);
    for (list, checkbox) in EMPTY_LIST_CHECKBOXES {
        let is_empty = policy.get(list).and_then(Value::as_array).is_some_and(Vec::is_empty);
        form = form.with_value(checkbox, if is_empty { CHECKED } else { "" });
    }
    form
}

/// The form with the submitted values.
pub(super) fn submitted_form(request: &PageRequest) -> PageForm {
    let form = with_submitted(PageForm::default(), policy_fields(), request);
    let form = form.with_value(REPLACE_FIELD, request.form_field(REPLACE_FIELD));
    EMPTY_LIST_CHECKBOXES
        .iter()
        .fold(form, |form, (_, checkbox)| form.with_value(checkbox, request.form_field(checkbox)))
}

/// The policy that the values of a form describe. An empty field leaves its setting unset.
pub(super) fn policy_from_form<'a>(submitted_value: &dyn Fn(&str) -> &'a str) -> Map<String, Value> {
    let mut policy = settings_from_form(policy_fields(), submitted_value);
    for (list, checkbox) in EMPTY_LIST_CHECKBOXES {
        if submitted_value(checkbox).trim() == CHECKED && !policy.contains_key(list) {
            policy.insert(list.to_owned(), json!([]));
        }
    }
    policy
}

/// The form field for a console parameter such as `policy.filter.words[3]`; [`WHOLE_FORM`] if it has no field.
pub(super) fn form_field_for(param: &str) -> &'static str {
    field_for_setting(policy_fields(), param.strip_prefix("policy.").unwrap_or_default())
}

// === impl GroupForms ===

impl From<PageForm> for GroupForms {
    fn from(policy: PageForm) -> Self {
        Self { policy, accounts: None }
    }
}

// === impl PolicyWords ===

impl PolicyWords {
    pub(super) fn new() -> Self {
        let words = Console::group_setting_values;
        Self { deliveries: words("delivery"), fallbacks: words("fallback") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_survives_a_round_trip_through_the_form() {
        let policy = json!({
            "delivery": "fail", "image_deadline": "90s", "fallback": "x", "inject_image_tool": true,
            "stored_context": "own", "budget_mode": "strict", "max_response_usd": 2.5,
            "dialects": ["sizes", "url"], "text_models": [], "tools": ["image_generation", "web_search"],
            "filter": {
                "words": ["one", "two words"], "patterns": [r"\bred\b ", " x"],
                "moderation": {
                    "base_url": "https://judge.example/v1", "allow_http": true, "api_key": {"env": "MODERATION_KEY"},
                    "model": "m", "on_error": "closed", "timeout": "3s",
                },
            },
            "filter_files": "allow",
            "limits": {
                "requests_per_minute": 60, "images_per_minute": 30, "concurrent_jobs": 8, "work_per_minute": 9000, "images_per_day": 1000,
                "max_size": "2560x1440", "max_quality": "medium", "models": ["gpt-image-2"], "budget_usd": 12.5,
                "budget_period": "week", "budget_alert": 0.75,
            },
        });
        for policy in [policy, json!({}), json!({"tools": []}), json!({"filter": {"words": ["a"]}})] {
            let form = form_from_policy(&policy);
            let names = policy_fields()
                .map(|field| field.name)
                .chain(EMPTY_LIST_CHECKBOXES.iter().map(|(_, checkbox)| *checkbox));
            let mut body = url::form_urlencoded::Serializer::new(String::new());
            for name in names {
                // A browser ends each line of a text with CR and LF.
                body.append_pair(name, &form.value(name).replace('\n', "\r\n"));
            }
            let request = PageRequest::with_form(body.finish().as_bytes());
            assert_eq!(Value::Object(policy_from_form(&|name| request.raw_form_field(name))), policy);
            assert_eq!(settings_lost_by_form(&policy.to_string()), None);
        }
    }

    #[test]
    fn a_stored_policy_that_the_form_would_lose_is_detected() {
        for policy in [
            r#"{"colour":"red"}"#,
            r#"{"delivery":7}"#,
            r#"{"filter":{"words":"one"}}"#,
            r#"{"filter":{"moderation":{"base_url":"https://j.example","api_key":{"file":"/k"},"on_error":"open"}}}"#,
            r#"{"filter":{"words":["two
lines"]}}"#,
            "no JSON",
            "[]",
        ] {
            assert!(settings_lost_by_form(policy).is_some(), "{policy}");
        }
        for policy in [
            r#"{"inject_image_tool":false,"filter":{"words":[],"patterns":["x"]}}"#,
            r#"{"filter":{"moderation":{"base_url":"https://j.example","allow_http":false,"on_error":"open"}}}"#,
        ] {
            assert_eq!(settings_lost_by_form(policy), None, "{policy}");
        }
        assert_ne!(digest_of("{}"), digest_of("{ }"));
    }

    #[test]
    fn every_setting_of_a_group_has_a_field() {
        let schema: Value = serde_json::from_str(include_str!("../../../schemas/config.schema.json")).unwrap();
        let names = |table: &str| -> Vec<String> {
            let fields = schema["definitions"][table]["properties"].as_object().expect(table);
            fields.keys().cloned().collect()
        };
        let mut missing = Vec::new();
        for (table, prefix) in [
            ("RawGroup", ""),
            ("RawFilter", "/filter"),
            ("RawModeration", "/filter/moderation"),
            ("RequestLimits", "/limits"),
        ] {
            let settings = names(table).into_iter().map(|name| format!("{prefix}/{name}"));
            let without_field = ["/name", "/filter", "/filter/moderation", "/limits"];
            missing.extend(settings.filter(|setting| {
                !without_field.contains(&setting.as_str()) && policy_fields().all(|field| field.pointer != setting)
            }));
        }
        assert!(missing.is_empty(), "no field of the form: {missing:?}");
        for setting in [
            "delivery",
            "fallback",
            "stored_context",
            "budget_mode",
            "filter.moderation.on_error",
            "limits.max_quality",
            "limits.budget_period",
        ] {
            assert!(Console::group_setting_values(setting).len() >= 2, "{setting}");
        }
    }

    #[test]
    fn an_error_is_shown_at_its_field() {
        for (param, field) in [
            ("policy.filter.words[3]", "words"),
            ("policy.filter.moderation.api_key", "api_key"),
            ("policy.delivery", "delivery"),
            ("policy.filter", "form"),
            ("policy", "form"),
            ("", "form"),
        ] {
            assert_eq!(form_field_for(param), field, "{param}");
        }
    }
}
