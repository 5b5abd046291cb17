//! The page of one group: its settings, in a form if the group is in the store.

use askama::Template;
use http::StatusCode;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::desk::PageContext;
use super::failure::{PageError, rendered};
use super::form::{PageForm, WHOLE};
use super::frame::PageLayout;
use super::visit::{PageRequest, PageResponse};
use crate::error::Error;
use crate::gateway::console::Console;
use crate::wire::admin::types;

/// A field of the form, and the setting that it shows.
struct PolicyField {
    name: &'static str,
    label: &'static str,
    setting: &'static str,
    kind: PolicyFieldKind,
}

/// The kind of a form field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PolicyFieldKind {
    /// A text or a word.
    Text,
    /// A checkbox.
    Tick,
    /// A list, one item on each line.
    Lines,
    /// The name of a variable that holds a secret.
    Variable,
}

const FIELDS: [PolicyField; 14] = [
    PolicyField::new("delivery", "group.delivery", "/delivery", PolicyFieldKind::Text),
    PolicyField::new("image_deadline", "group.image_deadline", "/image_deadline", PolicyFieldKind::Text),
    PolicyField::new("fallback", "group.fallback", "/fallback", PolicyFieldKind::Text),
    PolicyField::new("inject_image_tool", "group.inject", "/inject_image_tool", PolicyFieldKind::Tick),
    PolicyField::new("text_models", "group.text_models", "/text_models", PolicyFieldKind::Lines),
    PolicyField::new("tools", "group.tools", "/tools", PolicyFieldKind::Lines),
    PolicyField::new("words", "group.words", "/filter/words", PolicyFieldKind::Lines),
    PolicyField::new("patterns", "group.patterns", "/filter/patterns", PolicyFieldKind::Lines),
    PolicyField::new("base_url", "group.base_url", "/filter/moderation/base_url", PolicyFieldKind::Text),
    PolicyField::new("allow_http", "group.allow_http", "/filter/moderation/allow_http", PolicyFieldKind::Tick),
    PolicyField::new("api_key", "group.api_key", "/filter/moderation/api_key", PolicyFieldKind::Variable),
    PolicyField::new("model", "group.model", "/filter/moderation/model", PolicyFieldKind::Text),
    PolicyField::new("on_error", "group.on_error", "/filter/moderation/on_error", PolicyFieldKind::Text),
    PolicyField::new("timeout", "group.timeout", "/filter/moderation/timeout", PolicyFieldKind::Text),
];
/// Lists that can be empty, which allows nothing, and the checkboxes that say so.
const NONE: [(&str, &str); 2] = [("text_models", "no_text_models"), ("tools", "no_tools")];
/// The digest of the stored policy that the form was filled in from.
const SHOWN: &str = "shown";
/// The checkbox that allows the loss of settings that the form does not show.
const REPLACE: &str = "replace";
/// The value of a checked box.
const TICKED: &str = "yes";

#[derive(Template)]
#[template(path = "group.html", config = "src/gateway/pages/askama.toml")]
struct GroupPage {
    page: PageLayout,
    group: types::Group,
    of_file: bool,
    /// The settings of a group that is in the file.
    facts: Vec<(&'static str, String)>,
    path: String,
    /// The stored settings, if the form cannot show all of them or another actor has changed them.
    stored: Option<String>,
    form: PageForm,
    deliveries: Vec<String>,
    fallbacks: Vec<String>,
    on_errors: Vec<String>,
}

/// Shows the page of a group.
pub(super) async fn show(desk: &PageContext<'_>, name: &str) -> Result<PageResponse, PageError> {
    if !desk.is_admin() {
        return Err(PageError::Denied);
    }
    let (group, stored) = desk.console().retrieve_stored_group(desk.actor()?, name).await?;
    let form = form_of(&parsed(&stored)).with(SHOWN, digest(&stored));
    let stored = hidden(&stored);
    Ok(show_with(desk, StatusCode::OK, (group, stored), form))
}

/// Shows the page, with the stored settings if the form cannot express them.
fn show_with(
    desk: &PageContext<'_>,
    status: StatusCode,
    (group, stored): (types::Group, Option<String>),
    form: PageForm,
) -> PageResponse {
    let words = Console::words_of_groups;
    let template = GroupPage {
        page: desk.page("groups"),
        of_file: group.source == types::GroupSource::File,
        facts: facts_of(&policy_of(&group)),
        path: format!("/groups/{}", super::visit::encoded(&group.name)),
        group,
        stored,
        form,
        deliveries: words("delivery"),
        fallbacks: words("fallback"),
        on_errors: words("filter.moderation.on_error"),
    };
    rendered(status, &template)
}

/// Sets the policy of a group from the form.
pub(super) async fn change(desk: &PageContext<'_>, name: &str) -> Result<PageResponse, PageError> {
    let (group, stored) = desk.console().retrieve_stored_group(desk.actor()?, name).await?;
    let of_file = group.source == types::GroupSource::File;
    if !of_file && desk.visit.sent(SHOWN) != digest(&stored) {
        let form = sent(desk.visit).with(SHOWN, digest(&stored)).wrong(WHOLE, desk.texts.of("group.changed"));
        return Ok(show_with(desk, StatusCode::CONFLICT, (group, Some(pretty(&stored))), form));
    }
    let hidden = hidden(&stored);
    if !of_file && hidden.is_some() && desk.visit.sent(REPLACE) != TICKED {
        let form = sent(desk.visit).with(SHOWN, digest(&stored)).wrong(REPLACE, desk.texts.of("group.replace_needed"));
        return Ok(show_with(desk, StatusCode::UNPROCESSABLE_ENTITY, (group, hidden), form));
    }
    let policy = read(&|name| desk.visit.sent_as_is(name));
    let body = json!({ "policy": policy }).to_string();
    let error = match desk.console().update_group(desk.actor()?, name, body.as_bytes()).await {
        Ok(_) => return Ok(PageResponse::see(&format!("/groups/{}?done=policy", super::visit::encoded(&group.name)))),
        Err(error) => error,
    };
    let form = sent(desk.visit).with(SHOWN, digest(&stored));
    let form = match error {
        Error::Invalid(rejection) => {
            let field = field_of(rejection.param.as_deref().unwrap_or_default());
            form.wrong(field, rejection.message)
        }
        other => form.refused(desk.texts, other)?,
    };
    Ok(show_with(desk, StatusCode::UNPROCESSABLE_ENTITY, (group, hidden), form))
}

/// The stored settings; none if they cannot be read.
fn parsed(stored: &str) -> Value {
    serde_json::from_str(stored).ok().filter(Value::is_object).unwrap_or_else(|| json!({}))
}

/// The stored settings, if the form would lose some of them.
fn hidden(stored: &str) -> Option<String> {
    let policy = parsed(stored);
    let form = form_of(&policy);
    let said = Value::Object(read(&|name| form.value(name)));
    let is_read = serde_json::from_str::<Map<String, Value>>(stored).is_ok();
    (!is_read || said != essential(policy)).then(|| pretty(stored))
}

/// The same settings without those that equal the default, which no form shows.
fn essential(mut policy: Value) -> Value {
    let is_nothing = |value: &Value| *value == json!(false) || *value == json!([]) || *value == json!({});
    if let Some(filter) = policy.get_mut("filter").and_then(Value::as_object_mut) {
        filter.retain(|_, value| !is_nothing(value));
        if let Some(service) = filter.get_mut("moderation").and_then(Value::as_object_mut) {
            service.retain(|_, value| *value != json!(false));
        }
    }
    if let Some(policy) = policy.as_object_mut() {
        policy.retain(|name, value| !is_nothing(value) || NONE.iter().any(|(list, _)| list == name));
    }
    policy
}

fn pretty(stored: &str) -> String {
    let read = serde_json::from_str::<Value>(stored);
    read.map_or_else(|_| stored.to_owned(), |policy| format!("{policy:#}"))
}

/// A digest that tells one stored policy from another.
fn digest(stored: &str) -> String {
    Sha256::digest(stored).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The settings of a group as the console returns them.
fn policy_of(group: &types::Group) -> Value {
    serde_json::to_value(&group.policy).unwrap_or_default()
}

/// The form, filled in from the policy.
fn form_of(policy: &Value) -> PageForm {
    let mut form = PageForm::default();
    for field in &FIELDS {
        form = form.with(field.name, field.shown(policy));
    }
    for (list, none) in NONE {
        let is_empty = policy.get(list).and_then(Value::as_array).is_some_and(Vec::is_empty);
        form = form.with(none, if is_empty { TICKED } else { "" });
    }
    form
}

/// The form as it was sent.
fn sent(visit: &PageRequest) -> PageForm {
    let form = FIELDS.iter().fold(PageForm::default(), |form, field| form.with(field.name, visit.sent(field.name)));
    let form = form.with(REPLACE, visit.sent(REPLACE));
    NONE.iter().fold(form, |form, (_, none)| form.with(none, visit.sent(none)))
}

/// The settings with their labels.
fn facts_of(policy: &Value) -> Vec<(&'static str, String)> {
    let shown = FIELDS.iter().filter(|field| policy.pointer(field.setting).is_some());
    shown.map(|field| (field.label, field.shown(policy))).collect()
}

/// The policy that a form expresses. A field that is left empty is not set.
fn read<'a>(sent: &dyn Fn(&str) -> &'a str) -> Map<String, Value> {
    let mut policy = Map::new();
    for field in &FIELDS {
        if let Some(value) = field.read(sent(field.name)) {
            put(&mut policy, field.setting, value);
        }
    }
    for (list, none) in NONE {
        if sent(none).trim() == TICKED && !policy.contains_key(list) {
            policy.insert(list.to_owned(), json!([]));
        }
    }
    policy
}

/// Puts a value at its place, and creates the tables around it if necessary.
fn put(table: &mut Map<String, Value>, setting: &str, value: Value) {
    let setting = setting.trim_start_matches('/');
    let Some((name, rest)) = setting.split_once('/') else {
        table.insert(setting.to_owned(), value);
        return;
    };
    let inner = table.entry(name).or_insert_with(|| json!({}));
    if let Some(inner) = inner.as_object_mut() {
        put(inner, rest, value);
    }
}

/// The form field for a console parameter such as `policy.filter.words[3]`.
fn field_of(param: &str) -> &'static str {
    let setting = param.strip_prefix("policy").unwrap_or_default().replace('.', "/");
    let setting = setting.split('[').next().unwrap_or_default();
    let found = FIELDS.iter().find(|field| field.setting == setting);
    found.map_or(WHOLE, |field| field.name)
}

// === impl PolicyField ===

impl PolicyField {
    const fn new(name: &'static str, label: &'static str, setting: &'static str, kind: PolicyFieldKind) -> Self {
        Self { name, label, setting, kind }
    }

    /// The setting as a text.
    fn shown(&self, policy: &Value) -> String {
        let Some(value) = policy.pointer(self.setting) else { return String::new() };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match self.kind {
            PolicyFieldKind::Text => text(value),
            PolicyFieldKind::Tick => if *value == Value::Bool(true) { TICKED } else { "" }.to_owned(),
            PolicyFieldKind::Lines => value.as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join("\n"),
            // A secret from a file is shown by the path of the file.
            PolicyFieldKind::Variable => {
                ["env", "file"].into_iter().find_map(|from| value.get(from)).map(text).unwrap_or_default()
            }
        }
    }

    /// The setting that the form expresses; `None` if the field is empty.
    fn read(&self, sent: &str) -> Option<Value> {
        let text = sent.trim();
        if text.is_empty() {
            return None;
        }
        Some(match self.kind {
            PolicyFieldKind::Text => text.into(),
            PolicyFieldKind::Tick => (text == TICKED).into(),
            PolicyFieldKind::Lines => {
                let lines = sent.lines().map(|line| line.trim_end_matches('\r'));
                lines.filter(|line| !line.trim().is_empty()).collect()
            }
            PolicyFieldKind::Variable => json!({ "env": text }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_comes_out_of_the_form_that_it_filled_in() {
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
        });
        for policy in [policy, json!({}), json!({"tools": []}), json!({"filter": {"words": ["a"]}})] {
            let form = form_of(&policy);
            let names = FIELDS.iter().map(|field| field.name).chain(NONE.iter().map(|(_, none)| *none));
            let mut body = url::form_urlencoded::Serializer::new(String::new());
            for name in names {
                // A browser ends each line of a text with CR and LF.
                body.append_pair(name, &form.value(name).replace('\n', "\r\n"));
            }
            let visit = PageRequest::with_form(body.finish().as_bytes());
            assert_eq!(Value::Object(read(&|name| visit.sent_as_is(name))), policy);
            assert_eq!(hidden(&policy.to_string()), None);
        }
    }

    #[test]
    fn a_stored_policy_that_the_form_would_lose_is_shown() {
        for lost in [
            r#"{"colour":"red"}"#,
            r#"{"delivery":7}"#,
            r#"{"filter":{"words":"one"}}"#,
            r#"{"filter":{"moderation":{"base_url":"https://j.example","api_key":{"file":"/k"},"on_error":"open"}}}"#,
            r#"{"filter":{"words":["two
lines"]}}"#,
            "no JSON",
            "[]",
        ] {
            assert!(hidden(lost).is_some(), "{lost}");
        }
        for said in [
            r#"{"inject_image_tool":false,"filter":{"words":[],"patterns":["x"]}}"#,
            r#"{"filter":{"moderation":{"base_url":"https://j.example","allow_http":false,"on_error":"open"}}}"#,
        ] {
            assert_eq!(hidden(said), None, "{said}");
        }
        assert_ne!(digest("{}"), digest("{ }"));
    }

    #[test]
    fn every_setting_of_a_group_has_its_field() {
        let schema: Value = serde_json::from_str(include_str!("../../../schemas/config.schema.json")).unwrap();
        let names = |table: &str| -> Vec<String> {
            let fields = schema["definitions"][table]["properties"].as_object().expect(table);
            fields.keys().cloned().collect()
        };
        let mut missing = Vec::new();
        for (table, place) in [("RawGroup", ""), ("RawFilter", "/filter"), ("RawModeration", "/filter/moderation")] {
            let settings = names(table).into_iter().map(|name| format!("{place}/{name}"));
            let inner = ["/name", "/filter", "/filter/moderation"];
            missing.extend(settings.filter(|setting| {
                !inner.contains(&setting.as_str()) && FIELDS.iter().all(|field| field.setting != setting)
            }));
        }
        assert!(missing.is_empty(), "no field of the form: {missing:?}");
        for word in ["delivery", "fallback", "filter.moderation.on_error"] {
            assert!(Console::words_of_groups(word).len() >= 2, "{word}");
        }
    }

    #[test]
    fn what_is_wrong_stands_beside_its_field() {
        for (param, field) in [
            ("policy.filter.words[3]", "words"),
            ("policy.filter.moderation.api_key", "api_key"),
            ("policy.delivery", "delivery"),
            ("policy.filter", "form"),
            ("policy", "form"),
            ("", "form"),
        ] {
            assert_eq!(field_of(param), field, "{param}");
        }
    }
}
