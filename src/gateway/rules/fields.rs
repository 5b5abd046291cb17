//! Checks each field of a request against a table that `build.rs` generates from an API document.

use chrono::{DateTime, NaiveDate};
use serde_json::{Map, Value};

use super::unique_members::{JsonBodyError, parse_unique};
use crate::error::{Rejection, RejectionReason};
use crate::gateway::config::SizeRules;
use crate::image::SizeRequest;
use crate::tables::{Field, FieldKind};

/// The optional fields that the image operations and the image tool of the provider have and this API does not serve
/// (release 3.57.0 of its Python client). `null` in one of them means that it is absent, as in every other field.
const UNSERVED_FIELDS: [&str; 6] = ["complexity", "frame_count", "frame_duration_ms", "markup", "style", "svg"];

/// The values that a field may have for one model. They apply instead of those of the table.
#[derive(Clone, Debug)]
pub(super) enum FieldRestriction<'a> {
    /// One of these words.
    Words(Vec<&'a str>),
    /// One of these sizes.
    Sizes(Vec<&'a str>),
    /// `auto`, or a size that obeys these rules.
    SizeRules(&'a SizeRules),
    /// A number that is at most this, and at least the minimum of the table.
    AtMost(i64),
}

/// Parses a body as a JSON object. A member that is stated twice, at any depth, is rejected, because
/// some parsers take the first value and others the last.
pub(crate) fn parse_object(body: &[u8]) -> Result<Map<String, Value>, Rejection> {
    match parse_unique(body) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(value) => Err(not_object(type_name(&value))),
        Err(JsonBodyError::Duplicate(path)) => Err(duplicate_parameter(path)),
        Err(JsonBodyError::Syntax(error)) => Err(not_json(&error)),
    }
}

/// Rejects a body with an object that states a member twice, at any depth. A body that is not JSON is not rejected.
pub(crate) fn check_duplicates(body: &[u8]) -> Result<(), Rejection> {
    match parse_unique(body) {
        Err(JsonBodyError::Duplicate(path)) => Err(duplicate_parameter(path)),
        _ => Ok(()),
    }
}

/// Rejects a parameter that is stated twice.
pub(super) fn duplicate_parameter(name: String) -> Rejection {
    let message = format!("The parameter '{name}' is given more than once.");
    Rejection::new(name, RejectionReason::InvalidValue, message)
}

/// Rejects a body that is not JSON.
pub(super) fn not_json(error: &serde_json::Error) -> Rejection {
    Rejection::for_body(RejectionReason::InvalidJson, format!("The request body is not valid JSON: {error}."))
}

/// Rejects a body that is JSON but not an object.
pub(super) fn not_object(found: &str) -> Rejection {
    Rejection::for_body(
        RejectionReason::InvalidJson,
        format!("The request body must be a JSON object, but it is {found}."),
    )
}

/// Checks every field against the table, and normalizes the values: nullable fields with the value `null` are removed,
/// and whole numbers become integers.
///
/// `body` has no image fields, because those were read separately. `prefix` is the path of `body` in the request, which
/// rejections put before the name of a field: empty, or for example `tools[0].`.
pub(crate) fn check(prefix: &str, table: &'static [Field], body: &mut Map<String, Value>) -> Result<(), Rejection> {
    check_restricted(prefix, table, |_| None, body)
}

/// Checks every field like [`check`], with a restriction on some of the fields.
pub(super) fn check_restricted<'a>(
    prefix: &str,
    table: &'static [Field],
    restriction: impl Fn(&str) -> Option<FieldRestriction<'a>>,
    body: &mut Map<String, Value>,
) -> Result<(), Rejection> {
    let value_fields = || table.iter().filter(|field| !matches!(field.kind, FieldKind::Images | FieldKind::Image));
    body.retain(|name, value| !(value.is_null() && value_fields().any(|field| field.name == name && field.nullable)));
    if let Some(name) = body.keys().find(|name| value_fields().all(|field| field.name != name.as_str())) {
        return Err(unknown_parameter(format!("{prefix}{name}")));
    }
    for field in value_fields() {
        match body.get_mut(field.name) {
            Some(value) => check_field(&format!("{prefix}{}", field.name), field.kind, restriction(field.name), value)?,
            None if field.required => return Err(missing_parameter(format!("{prefix}{}", field.name))),
            None => {}
        }
    }
    Ok(())
}

/// True for an optional field of the provider's operations that this API does not serve.
pub(crate) fn is_unserved(name: &str) -> bool {
    UNSERVED_FIELDS.contains(&name)
}

/// Removes fields that are `null` and that this API does not serve, and also `model` if it is `null`, because it is
/// optional for the provider.
pub(super) fn remove_unserved_nulls(body: &mut Map<String, Value>) {
    body.retain(|name, value| !(value.is_null() && (is_unserved(name) || name == "model")));
}

/// Rejects a parameter that does not exist.
pub(super) fn unknown_parameter(name: String) -> Rejection {
    let message = format!("Unknown parameter: '{name}'.");
    Rejection::new(name, RejectionReason::UnknownParameter, message)
}

/// Rejects the absence of a required parameter.
pub(crate) fn missing_parameter(name: String) -> Rejection {
    let message = format!("Missing required parameter: '{name}'.");
    Rejection::new(name, RejectionReason::MissingParameter, message)
}

/// Rejects a parameter of the wrong JSON type.
pub(crate) fn wrong_type(name: &str, expected: &str, found: &str) -> Rejection {
    let message = format!("Invalid type for '{name}': expected {expected}, but got {found} instead.");
    Rejection::new(name, RejectionReason::InvalidType, message)
}

fn check_field(
    name: &str,
    kind: FieldKind,
    restriction: Option<FieldRestriction<'_>>,
    value: &mut Value,
) -> Result<(), Rejection> {
    match (kind, restriction) {
        (FieldKind::Integer { min, .. }, Some(FieldRestriction::AtMost(max))) => check_integer(name, value, min, max),
        (_, Some(FieldRestriction::Words(words))) => check_choice(name, value, &words),
        (_, Some(FieldRestriction::Sizes(sizes))) => check_available_size(name, value, &sizes),
        (_, Some(FieldRestriction::SizeRules(rules))) => check_size_rules(name, value, rules),
        (kind, _) => check_kind(name, kind, value),
    }
}

fn check_kind(name: &str, kind: FieldKind, value: &mut Value) -> Result<(), Rejection> {
    match kind {
        FieldKind::Text { min, max } => check_text(name, value, min, max),
        FieldKind::Integer { min, max } => check_integer(name, value, min, max),
        FieldKind::Choice(words) => check_choice(name, value, words),
        FieldKind::Number => value.as_f64().map(drop).ok_or_else(|| wrong_type(name, "a number", type_name(value))),
        FieldKind::Boolean => value.as_bool().map(drop).ok_or_else(|| wrong_type(name, "a boolean", type_name(value))),
        FieldKind::Size => check_size(name, value),
        FieldKind::Texts => check_texts(name, value),
        FieldKind::Choices(words) => check_choices(name, value, words),
        FieldKind::TextMap => check_map(name, value, Value::is_string, "a string"),
        FieldKind::NumberMap => check_map(name, value, Value::is_number, "a number"),
        FieldKind::Moment => check_moment(name, value),
        FieldKind::Day => check_day(name, value),
        FieldKind::Object => value.as_object().map(drop).ok_or_else(|| wrong_type(name, "an object", type_name(value))),
        FieldKind::Images | FieldKind::Image => Ok(()),
    }
}

fn check_texts(name: &str, value: &Value) -> Result<(), Rejection> {
    let items = value.as_array().ok_or_else(|| wrong_type(name, "an array", type_name(value)))?;
    let invalid = items.iter().enumerate().find(|(_, item)| !item.is_string());
    invalid.map_or(Ok(()), |(index, item)| Err(wrong_type(&format!("{name}[{index}]"), "a string", type_name(item))))
}

fn check_choices(name: &str, value: &Value, words: &[&str]) -> Result<(), Rejection> {
    let items = value.as_array().ok_or_else(|| wrong_type(name, "an array", type_name(value)))?;
    items.iter().enumerate().try_for_each(|(index, item)| check_choice(&format!("{name}[{index}]"), item, words))
}

fn check_map(name: &str, value: &Value, is_valid: fn(&Value) -> bool, expected: &str) -> Result<(), Rejection> {
    let members = value.as_object().ok_or_else(|| wrong_type(name, "an object", type_name(value)))?;
    let invalid = members.iter().find(|(_, member)| !is_valid(member));
    invalid.map_or(Ok(()), |(key, member)| Err(wrong_type(&format!("{name}.{key}"), expected, type_name(member))))
}

fn check_moment(name: &str, value: &Value) -> Result<(), Rejection> {
    let text = value.as_str().ok_or_else(|| wrong_type(name, "a string", type_name(value)))?;
    DateTime::parse_from_rfc3339(text).map(drop).map_err(|_| {
        let message =
            format!("Invalid '{name}': expected a date and time with an offset, such as '2026-11-21T03:00:00Z'.");
        Rejection::new(name, RejectionReason::InvalidValue, message)
    })
}

fn check_day(name: &str, value: &Value) -> Result<(), Rejection> {
    let text = value.as_str().ok_or_else(|| wrong_type(name, "a string", type_name(value)))?;
    text.parse::<NaiveDate>().map(drop).map_err(|_| {
        let message = format!("Invalid '{name}': expected a date, such as '2026-11-21'.");
        Rejection::new(name, RejectionReason::InvalidValue, message)
    })
}

pub(super) fn check_text(name: &str, value: &Value, min: u64, max: u64) -> Result<(), Rejection> {
    let text = value.as_str().ok_or_else(|| wrong_type(name, "a string", type_name(value)))?;
    let length = text.chars().count() as u64;
    // Every minimum of the tables is 0 or 1. If it is 1, white space alone counts as an empty text.
    if length < min || (min > 0 && text.trim().is_empty()) {
        let message = format!(
            "Invalid '{name}': empty string. Expected a string with at least {min} character that is not white space."
        );
        return Err(Rejection::new(name, RejectionReason::StringBelowMin, message));
    }
    if length > max {
        let message = format!(
            "Invalid '{name}': string too long. Expected a string with at most {max} characters, but got {length} instead."
        );
        return Err(Rejection::new(name, RejectionReason::StringAboveMax, message));
    }
    Ok(())
}

pub(super) fn check_integer(name: &str, value: &mut Value, min: i64, max: i64) -> Result<(), Rejection> {
    let number = parse_whole_number(value).ok_or_else(|| wrong_type(name, "an integer", type_name(value)))?;
    if number < min {
        let message = format!(
            "Invalid '{name}': integer below minimum value. Expected a value >= {min}, but got {number} instead."
        );
        return Err(Rejection::new(name, RejectionReason::IntegerBelowMin, message));
    }
    if number > max {
        let message = format!(
            "Invalid '{name}': integer above maximum value. Expected a value <= {max}, but got {number} instead."
        );
        return Err(Rejection::new(name, RejectionReason::IntegerAboveMax, message));
    }
    *value = number.into();
    Ok(())
}

/// Parses a whole number in any JSON notation: `2`, `2.0`, `2e0`. A number that is too large for an exact conversion is
/// clamped to ±2^53, which no limit allows.
fn parse_whole_number(value: &Value) -> Option<i64> {
    /// The greatest number up to which a 64-bit float represents every integer (2^53).
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    let number = value.as_number()?;
    number.as_i64().or_else(|| {
        let float = number.as_f64().filter(|float| float.fract() == 0.0)?;
        #[expect(clippy::cast_possible_truncation, reason = "clamped to ±2^53, which an i64 can hold")]
        Some(float.clamp(-EXACT_MAX, EXACT_MAX) as i64)
    })
}

pub(super) fn check_choice(name: &str, value: &Value, words: &[&str]) -> Result<(), Rejection> {
    let word = value.as_str().ok_or_else(|| wrong_type(name, "a string", type_name(value)))?;
    if words.contains(&word) {
        return Ok(());
    }
    let message = format!("Invalid value: '{}'. Supported values are: {}.", clip(word), join_words(words));
    Err(Rejection::new(name, RejectionReason::InvalidValue, message))
}

fn check_size(name: &str, value: &Value) -> Result<(), Rejection> {
    let text = value.as_str().ok_or_else(|| wrong_type(name, "a string", type_name(value)))?;
    let parsed = text.parse::<SizeRequest>();
    parsed.map(drop).map_err(|error| {
        Rejection::new(name, RejectionReason::InvalidValue, format!("Invalid size '{}'. {error}", clip(text)))
    })
}

/// Checks that a size is one of `sizes`.
fn check_available_size(name: &str, value: &Value, sizes: &[&str]) -> Result<(), Rejection> {
    let text = value.as_str().ok_or_else(|| wrong_type(name, "a string", type_name(value)))?;
    if sizes.contains(&text) {
        return Ok(());
    }
    let message = format!("Invalid size '{}'. Supported values are: {}.", clip(text), join_words(sizes));
    Err(Rejection::new(name, RejectionReason::InvalidValue, message))
}

/// Checks that a size is `auto`, or obeys the rules of a model.
fn check_size_rules(name: &str, value: &Value, rules: &SizeRules) -> Result<(), Rejection> {
    let text = value.as_str().ok_or_else(|| wrong_type(name, "a string", type_name(value)))?;
    let refuse = |reason: String| {
        let message = format!("Invalid size '{}'. {reason}", clip(text));
        Err(Rejection::new(name, RejectionReason::InvalidValue, message))
    };
    match SizeRequest::parse_for_own_rules(text) {
        Err(error) => refuse(error.to_string()),
        Ok(SizeRequest::Exact(size)) if !rules.allow(size.width(), size.height()) => {
            refuse(format!("Expected 'auto' or a size with {}.", rules.description()))
        }
        Ok(_) => Ok(()),
    }
}

pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.is_f64() => "a decimal number",
        Value::Number(_) => "an integer",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// Cuts a value to a length that fits into a message.
pub(super) fn clip(text: &str) -> String {
    const MAX_CHARS: usize = 60;
    let mut short: String = text.chars().take(MAX_CHARS).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// Joins words: `'a', 'b', and 'c'`.
pub(super) fn join_words(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [word] => format!("'{word}'"),
        [first, second] => format!("'{first}' and '{second}'"),
        [first @ .., last] => {
            format!("{}, and '{last}'", first.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(", "))
        }
    }
}
