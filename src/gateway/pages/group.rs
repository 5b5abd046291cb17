//! The page of one group. The settings of a group in the store are shown in a form; those of a group in the settings
//! file are shown as text.

use askama::Template;
use http::StatusCode;
use serde_json::{Map, Number, Value, json};
use sha2::{Digest as _, Sha256};

use super::form::{PageForm, WHOLE_FORM};
use super::http_messages::{PageRequest, PageResponse};
use super::page_context::PageContext;
use super::page_error::{PageError, render};
use super::page_layout::PageLayout;
use crate::error::Error;
use crate::gateway::console::Console;
use crate::wire::admin::types;

/// A field of the form, and the JSON pointer of the setting that it shows.
struct PolicyField {
    name: &'static str,
    label: &'static str,
    pointer: &'static str,
    kind: PolicyFieldKind,
}

/// The kind of a form field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PolicyFieldKind {
    /// A text, or one of several words.
    Text,
    /// A checkbox.
    Checkbox,
    /// A list, one item on each line.
    Lines,
    /// A number. A text that is none is passed on, so that the error names the setting.
    Number,
    /// The name of an environment variable with a secret.
    SecretVariable,
}

/// The fields of the form.
const POLICY_FIELDS: [PolicyField; 24] = [
    PolicyField::new("delivery", "group.delivery", "/delivery", PolicyFieldKind::Text),
    PolicyField::new("image_deadline", "group.image_deadline", "/image_deadline", PolicyFieldKind::Text),
    PolicyField::new("fallback", "group.fallback", "/fallback", PolicyFieldKind::Text),
    PolicyField::new("inject_image_tool", "group.inject", "/inject_image_tool", PolicyFieldKind::Checkbox),
    PolicyField::new("text_models", "group.text_models", "/text_models", PolicyFieldKind::Lines),
    PolicyField::new("tools", "group.tools", "/tools", PolicyFieldKind::Lines),
    PolicyField::new("words", "group.words", "/filter/words", PolicyFieldKind::Lines),
    PolicyField::new("patterns", "group.patterns", "/filter/patterns", PolicyFieldKind::Lines),
    PolicyField::new("base_url", "group.base_url", "/filter/moderation/base_url", PolicyFieldKind::Text),
    PolicyField::new("allow_http", "group.allow_http", "/filter/moderation/allow_http", PolicyFieldKind::Checkbox),
    PolicyField::new("api_key", "group.api_key", "/filter/moderation/api_key", PolicyFieldKind::SecretVariable),
    PolicyField::new("model", "group.model", "/filter/moderation/model", PolicyFieldKind::Text),
    PolicyField::new("on_error", "group.on_error", "/filter/moderation/on_error", PolicyFieldKind::Text),
    PolicyField::new("timeout", "group.timeout", "/filter/moderation/timeout", PolicyFieldKind::Text),
    PolicyField::new("limit_requests", "group.limit_requests", "/limits/requests_per_minute", PolicyFieldKind::Number),
    PolicyField::new("limit_images", "group.limit_images", "/limits/images_per_minute", PolicyFieldKind::Number),
    PolicyField::new("limit_jobs", "group.limit_jobs", "/limits/concurrent_jobs", PolicyFieldKind::Number),
    PolicyField::new("limit_day", "group.limit_day", "/limits/images_per_day", PolicyFieldKind::Number),
    PolicyField::new("limit_size", "group.limit_size", "/limits/max_size", PolicyFieldKind::Text),
    PolicyField::new("limit_quality", "group.limit_quality", "/limits/max_quality", PolicyFieldKind::Text),
    PolicyField::new("limit_models", "group.limit_models", "/limits/models", PolicyFieldKind::Lines),
    PolicyField::new("limit_budget", "group.limit_budget", "/limits/budget_usd", PolicyFieldKind::Number),
    PolicyField::new("limit_period", "group.limit_period", "/limits/budget_period", PolicyFieldKind::Text),
    PolicyField::new("limit_alert", "group.limit_alert", "/limits/budget_alert", PolicyFieldKind::Number),
];
/// The lists that allow nothing if they are empty, each with the checkbox that sets an empty list.
const EMPTY_LIST_CHECKBOXES: [(&str, &str); 2] = [("text_models", "no_text_models"), ("tools", "no_tools")];
/// The field with the digest of the stored policy that the form was filled in from.
const DIGEST_FIELD: &str = "shown";
/// The checkbox that allows the loss of settings that the form does not show.
const REPLACE_FIELD: &str = "replace";
/// The value of a checked checkbox.
const CHECKED: &str = "yes";

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
    deliveries: Vec<String>,
    fallbacks: Vec<String>,
    on_errors: Vec<String>,
    max_qualities: Vec<String>,
    budget_periods: Vec<String>,
}

/// Shows the page of a group.
pub(super) async fn show(context: &PageContext<'_>, name: &str) -> Result<PageResponse, PageError> {
    if !context.is_admin() {
        return Err(PageError::Denied);
    }
    let (group, stored) = context.console().retrieve_stored_group(context.actor()?, name).await?;
    let form = form_from_policy(&parse_policy(&stored)).with_value(DIGEST_FIELD, policy_digest(&stored));
    let stored = settings_lost_by_form(&stored);
    Ok(render_page(context, StatusCode::OK, (group, stored), form))
}

/// Renders the page, with the stored settings if they are given.
fn render_page(
    context: &PageContext<'_>,
    status: StatusCode,
    (group, stored): (types::Group, Option<String>),
    form: PageForm,
) -> PageResponse {
    let setting_values = Console::group_setting_values;
    let template = GroupPage {
        page: context.layout("groups"),
        of_file: group.source == types::GroupSource::File,
        facts: labelled_settings(&policy_as_json(&group)),
        path: format!("/groups/{}", super::http_messages::encode_path_segment(&group.name)),
        group,
        stored,
        form,
        deliveries: setting_values("delivery"),
        fallbacks: setting_values("fallback"),
        on_errors: setting_values("filter.moderation.on_error"),
        max_qualities: setting_values("limits.max_quality"),
        budget_periods: setting_values("limits.budget_period"),
    };
    render(status, &template)
}

/// Sets the policy of a group from the form.
pub(super) async fn submit_policy(context: &PageContext<'_>, name: &str) -> Result<PageResponse, PageError> {
    let (group, stored) = context.console().retrieve_stored_group(context.actor()?, name).await?;
    let of_file = group.source == types::GroupSource::File;
    if !of_file && context.request.form_field(DIGEST_FIELD) != policy_digest(&stored) {
        let form = submitted_form(context.request)
            .with_value(DIGEST_FIELD, policy_digest(&stored))
            .with_error(WHOLE_FORM, context.texts.get("group.changed"));
        return Ok(render_page(context, StatusCode::CONFLICT, (group, Some(pretty_json(&stored))), form));
    }
    let lost_settings = settings_lost_by_form(&stored);
    if !of_file && lost_settings.is_some() && context.request.form_field(REPLACE_FIELD) != CHECKED {
        let form = submitted_form(context.request)
            .with_value(DIGEST_FIELD, policy_digest(&stored))
            .with_error(REPLACE_FIELD, context.texts.get("group.replace_needed"));
        return Ok(render_page(context, StatusCode::UNPROCESSABLE_ENTITY, (group, lost_settings), form));
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
    let form = submitted_form(context.request).with_value(DIGEST_FIELD, policy_digest(&stored));
    let form = match error {
        Error::Invalid(rejection) => {
            let field = form_field_for(rejection.param.as_deref().unwrap_or_default());
            form.with_error(field, rejection.message)
        }
        error => form.with_console_error(context.texts, error)?,
    };
    Ok(render_page(context, StatusCode::UNPROCESSABLE_ENTITY, (group, lost_settings), form))
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

/// A digest that detects changes of the stored policy.
fn policy_digest(stored: &str) -> String {
    Sha256::digest(stored).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The settings of a group, as JSON.
fn policy_as_json(group: &types::Group) -> Value {
    serde_json::to_value(&group.policy).unwrap_or_default()
}

/// The form, filled in from the policy.
fn form_from_policy(policy: &Value) -> PageForm {
    let mut form = PageForm::default();
    for field in &POLICY_FIELDS {
        form = form.with_value(field.name, field.form_value(policy));
    }
    for (list, checkbox) in EMPTY_LIST_CHECKBOXES {
        let is_empty = policy.get(list).and_then(Value::as_array).is_some_and(Vec::is_empty);
        form = form.with_value(checkbox, if is_empty { CHECKED } else { "" });
    }
    form
}

/// The form with the submitted values.
fn submitted_form(request: &PageRequest) -> PageForm {
    let form = POLICY_FIELDS
        .iter()
        .fold(PageForm::default(), |form, field| form.with_value(field.name, request.form_field(field.name)));
    let form = form.with_value(REPLACE_FIELD, request.form_field(REPLACE_FIELD));
    EMPTY_LIST_CHECKBOXES
        .iter()
        .fold(form, |form, (_, checkbox)| form.with_value(checkbox, request.form_field(checkbox)))
}

/// The values of the settings that are set, with the keys of their labels.
fn labelled_settings(policy: &Value) -> Vec<(&'static str, String)> {
    let set_fields = POLICY_FIELDS.iter().filter(|field| policy.pointer(field.pointer).is_some());
    set_fields.map(|field| (field.label, field.form_value(policy))).collect()
}

/// The policy that the values of a form describe. An empty field leaves its setting unset.
fn policy_from_form<'a>(submitted_value: &dyn Fn(&str) -> &'a str) -> Map<String, Value> {
    let mut policy = Map::new();
    for field in &POLICY_FIELDS {
        if let Some(value) = field.parse_value(submitted_value(field.name)) {
            insert_at_path(&mut policy, field.pointer, value);
        }
    }
    for (list, checkbox) in EMPTY_LIST_CHECKBOXES {
        if submitted_value(checkbox).trim() == CHECKED && !policy.contains_key(list) {
            policy.insert(list.to_owned(), json!([]));
        }
    }
    policy
}

/// Inserts a value at a JSON pointer, and creates the objects around it if necessary.
fn insert_at_path(table: &mut Map<String, Value>, path: &str, value: Value) {
    let setting = path.trim_start_matches('/');
    let Some((name, remaining)) = setting.split_once('/') else {
        table.insert(setting.to_owned(), value);
        return;
    };
    let inner = table.entry(name).or_insert_with(|| json!({}));
    if let Some(inner) = inner.as_object_mut() {
        insert_at_path(inner, remaining, value);
    }
}

/// The form field for a console parameter such as `policy.filter.words[3]`; [`WHOLE_FORM`] if it has no field.
fn form_field_for(param: &str) -> &'static str {
    let setting = param.strip_prefix("policy").unwrap_or_default().replace('.', "/");
    let setting = setting.split('[').next().unwrap_or_default();
    let found = POLICY_FIELDS.iter().find(|field| field.pointer == setting);
    found.map_or(WHOLE_FORM, |field| field.name)
}

// === impl PolicyField ===

impl PolicyField {
    const fn new(name: &'static str, label: &'static str, pointer: &'static str, kind: PolicyFieldKind) -> Self {
        Self { name, label, pointer, kind }
    }

    /// The setting as the text of the form field.
    fn form_value(&self, policy: &Value) -> String {
        let Some(value) = policy.pointer(self.pointer) else { return String::new() };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match self.kind {
            PolicyFieldKind::Text => text(value),
            PolicyFieldKind::Number => {
                if value.is_number() {
                    value.to_string()
                } else {
                    text(value)
                }
            }
            PolicyFieldKind::Checkbox => if *value == Value::Bool(true) { CHECKED } else { "" }.to_owned(),
            PolicyFieldKind::Lines => value.as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join("\n"),
            // For a secret from a file, the path of the file is shown.
            PolicyFieldKind::SecretVariable => {
                ["env", "file"].into_iter().find_map(|from| value.get(from)).map(text).unwrap_or_default()
            }
        }
    }

    /// The setting that a submitted text stands for; `None` if the text is empty.
    fn parse_value(&self, submitted: &str) -> Option<Value> {
        let text = submitted.trim();
        if text.is_empty() {
            return None;
        }
        Some(match self.kind {
            PolicyFieldKind::Text => text.into(),
            PolicyFieldKind::Number => text.parse::<Number>().map_or_else(|_| text.into(), Value::Number),
            PolicyFieldKind::Checkbox => (text == CHECKED).into(),
            PolicyFieldKind::Lines => {
                let lines = submitted.lines().map(|line| line.trim_end_matches('\r'));
                lines.filter(|line| !line.trim().is_empty()).collect()
            }
            PolicyFieldKind::SecretVariable => json!({ "env": text }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_survives_a_round_trip_through_the_form() {
        let policy = json!({
            "delivery": "fail", "image_deadline": "90s", "fallback": "x", "inject_image_tool": true, "text_models": [],
            "tools": ["image_generation", "web_search"],
            "filter": {
                "words": ["one", "two words"], "patterns": [r"\bred\b ", " x"],
                "moderation": {
                    "base_url": "https://judge.example/v1", "allow_http": true, "api_key": {"env": "MODERATION_KEY"},
                    "model": "m", "on_error": "closed", "timeout": "3s",
                },
            },
            "limits": {
                "requests_per_minute": 60, "images_per_minute": 30, "concurrent_jobs": 8, "images_per_day": 1000,
                "max_size": "2560x1440", "max_quality": "medium", "models": ["gpt-image-2"], "budget_usd": 12.5,
                "budget_period": "week", "budget_alert": 0.75,
            },
        });
        for policy in [policy, json!({}), json!({"tools": []}), json!({"filter": {"words": ["a"]}})] {
            let form = form_from_policy(&policy);
            let names = POLICY_FIELDS
                .iter()
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
        assert_ne!(policy_digest("{}"), policy_digest("{ }"));
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
            ("RawLimits", "/limits"),
        ] {
            let settings = names(table).into_iter().map(|name| format!("{prefix}/{name}"));
            let without_field = ["/name", "/filter", "/filter/moderation", "/limits"];
            missing.extend(settings.filter(|setting| {
                !without_field.contains(&setting.as_str()) && POLICY_FIELDS.iter().all(|field| field.pointer != setting)
            }));
        }
        assert!(missing.is_empty(), "no field of the form: {missing:?}");
        for setting in
            ["delivery", "fallback", "filter.moderation.on_error", "limits.max_quality", "limits.budget_period"]
        {
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
