//! Fields of forms that show settings: a setting in JSON becomes the text of a field, and a submitted text becomes a
//! setting. The limits of groups, users and keys have the same fields.

use serde_json::{Map, Number, Value, json};

use super::form::{PageForm, WHOLE_FORM, digest_of};
use super::http_messages::PageRequest;
use super::language::{PageTexts, word_key};
use super::page_error::PageError;
use crate::error::Error;
use crate::gateway::console::Console;
use crate::wire::admin::types;

/// A field of a form, and the JSON pointer of the setting that it shows.
pub(super) struct SettingField {
    pub(super) name: &'static str,
    pub(super) label: &'static str,
    pub(super) pointer: &'static str,
    pub(super) kind: SettingFieldKind,
}

/// The kind of a form field.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SettingFieldKind {
    /// A text, or one of several words that the template names.
    Text,
    /// One of the words of the setting.
    Word,
    /// A checkbox.
    Checkbox,
    /// A list, one item on each line.
    Lines,
    /// A number. A text that is none is passed on, so that the error names the setting.
    Number,
    /// The name of an environment variable with a secret.
    SecretVariable,
}

include!("../../../generated/limit_fields.rs");

/// The value of a checked checkbox.
pub(super) const CHECKED: &str = "yes";

/// Adds the values of the settings to a form.
pub(super) fn with_settings(
    form: PageForm,
    fields: impl IntoIterator<Item = &'static SettingField>,
    settings: &Value,
) -> PageForm {
    fields.into_iter().fold(form, |form, field| form.with_value(field.name, field.form_value(settings)))
}

/// Adds the submitted values of the fields to a form.
pub(super) fn with_submitted(
    form: PageForm,
    fields: impl IntoIterator<Item = &'static SettingField>,
    request: &PageRequest,
) -> PageForm {
    fields.into_iter().fold(form, |form, field| form.with_value(field.name, request.form_field(field.name)))
}

/// Returns the settings that the values of a form describe. An empty field leaves its setting unset.
pub(super) fn settings_from_form<'a>(
    fields: impl IntoIterator<Item = &'static SettingField>,
    submitted_value: &dyn Fn(&str) -> &'a str,
) -> Map<String, Value> {
    let mut settings = Map::new();
    for field in fields {
        if let Some(value) = field.parse_value(submitted_value(field.name)) {
            insert_at_path(&mut settings, field.pointer, value);
        }
    }
    settings
}

/// Returns the values of the settings that are set, with the keys of their labels.
pub(super) fn labelled_settings(
    fields: impl IntoIterator<Item = &'static SettingField>,
    settings: &Value,
) -> Vec<(&'static str, String)> {
    let set_fields = fields.into_iter().filter(|field| settings.pointer(field.pointer).is_some());
    set_fields.map(|field| (field.label, field.form_value(settings))).collect()
}

/// Returns the name of the field for a setting such as `filter.words[3]`; [`WHOLE_FORM`] if it has no field.
pub(super) fn field_for_setting(
    fields: impl IntoIterator<Item = &'static SettingField>,
    setting: &str,
) -> &'static str {
    let setting = setting.split('[').next().unwrap_or_default().replace('.', "/");
    let found = fields.into_iter().find(|field| field.pointer.strip_prefix('/') == Some(setting.as_str()));
    found.map_or(WHOLE_FORM, |field| field.name)
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

/// Returns the limits of an object of the admin API, with their name in it.
pub(super) fn limits_as_settings(limits: Option<&types::RequestLimits>) -> Value {
    json!({ "limits": limits })
}

/// A digest that detects changes of the limits.
pub(super) fn limits_digest(limits: Option<&types::RequestLimits>) -> String {
    digest_of(limits_as_settings(limits).to_string())
}

/// Returns the change that the submitted fields of limits describe: all limits of a key or a user.
pub(super) fn submitted_limits(request: &PageRequest) -> String {
    let mut change = settings_from_form(LIMIT_FIELDS, &|name| request.raw_form_field(name));
    // Without a limit, the change removes all of them.
    change.entry("limits").or_insert_with(|| json!({}));
    Value::Object(change).to_string()
}

/// Adds the submitted fields of limits, and the error of the console at its field.
///
/// # Errors
///
/// Returns the console's error as a page error if it does not concern the form.
pub(super) fn with_refused_limits(
    form: PageForm,
    request: &PageRequest,
    texts: PageTexts,
    error: Error,
) -> Result<PageForm, PageError> {
    let form = with_submitted(form, LIMIT_FIELDS, request);
    match error {
        Error::Invalid(rejection) => {
            let field = field_for_setting(LIMIT_FIELDS, rejection.param.as_deref().unwrap_or_default());
            Ok(form.with_error(field, rejection.message))
        }
        error => form.with_console_error(texts, error),
    }
}

// === impl SettingField ===

impl SettingField {
    pub(super) const fn new(
        name: &'static str,
        label: &'static str,
        pointer: &'static str,
        kind: SettingFieldKind,
    ) -> Self {
        Self { name, label, pointer, kind }
    }

    /// The words of a setting of groups, among which a field lets the reader choose.
    pub(super) fn words(&self) -> Vec<String> {
        Console::group_setting_values(&self.pointer.trim_start_matches('/').replace('/', "."))
    }

    /// The key of the hint of a limit; empty if there is none.
    pub(super) fn hint(&self) -> &'static str {
        word_key("limit", format_args!("{}_hint", self.pointer.trim_start_matches("/limits/")))
    }

    /// The setting as the text of the form field.
    pub(super) fn form_value(&self, settings: &Value) -> String {
        let Some(value) = settings.pointer(self.pointer) else { return String::new() };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match self.kind {
            SettingFieldKind::Text | SettingFieldKind::Word => text(value),
            SettingFieldKind::Number => {
                if value.is_number() {
                    value.to_string()
                } else {
                    text(value)
                }
            }
            SettingFieldKind::Checkbox => if *value == Value::Bool(true) { CHECKED } else { "" }.to_owned(),
            SettingFieldKind::Lines => value.as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join("\n"),
            // For a secret from a file, the path of the file is shown.
            SettingFieldKind::SecretVariable => {
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
            SettingFieldKind::Text | SettingFieldKind::Word => text.into(),
            SettingFieldKind::Number => text.parse::<Number>().map_or_else(|_| text.into(), Value::Number),
            SettingFieldKind::Checkbox => (text == CHECKED).into(),
            SettingFieldKind::Lines => {
                let lines = submitted.lines().map(|line| line.trim_end_matches('\r'));
                lines.filter(|line| !line.trim().is_empty()).collect()
            }
            SettingFieldKind::SecretVariable => json!({ "env": text }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_survive_a_round_trip_through_the_form() {
        let limits = json!({
            "requests_per_minute": 60, "images_per_minute": 30, "concurrent_jobs": 8, "work_per_minute": 9000, "images_per_day": 1000,
            "max_size": "2560x1440", "max_quality": "medium", "models": ["gpt-image-2", "sketch-1"],
            "budget_usd": 12.5, "budget_period": "week", "budget_alert": 0.75,
        });
        for limits in [limits, json!({"images_per_day": 1}), json!({})] {
            let of_api = serde_json::from_value(limits.clone()).unwrap();
            let form = with_settings(PageForm::default(), LIMIT_FIELDS, &limits_as_settings(Some(&of_api)));
            let mut body = url::form_urlencoded::Serializer::new(String::new());
            for field in LIMIT_FIELDS {
                body.append_pair(field.name, &form.value(field.name).replace('\n', "\r\n"));
            }
            let request = PageRequest::with_form(body.finish().as_bytes());
            let change: Value = serde_json::from_str(&submitted_limits(&request)).unwrap();
            assert_eq!(change, json!({ "limits": limits }));
        }
    }

    #[test]
    fn an_error_of_a_limit_is_shown_at_its_field() {
        for field in LIMIT_FIELDS {
            let param = field.pointer.trim_start_matches('/').replace('/', ".");
            assert_eq!(field_for_setting(LIMIT_FIELDS, &param), field.name);
        }
        assert_eq!(field_for_setting(LIMIT_FIELDS, "limits.models[2]"), "limit_models");
        assert_eq!(field_for_setting(LIMIT_FIELDS, "limits"), WHOLE_FORM);
    }
}
