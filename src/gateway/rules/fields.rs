//! One field at a time, by the table that `build.rs` makes of the document.

use chrono::{DateTime, NaiveDate};
use serde_json::{Map, Value};

use crate::error::{Reason, Rejection};
use crate::image::SizeRequest;
use crate::tables::{Field, Kind};

/// What a field may be where that is another thing than the table says: not every model can do everything.
#[derive(Clone, Debug)]
pub(super) enum Narrowed<'a> {
    /// One of these words.
    Words(Vec<&'a str>),
    /// One of these sizes.
    Sizes(Vec<&'a str>),
    /// No more than this, and no less than the table says.
    AtMost(i64),
}

/// Reads a body as a JSON object. Of duplicate keys the last one wins.
pub(crate) fn object(body: &[u8]) -> Result<Map<String, Value>, Rejection> {
    let value: Value = serde_json::from_slice(body).map_err(|error| not_json(&error))?;
    match value {
        Value::Object(object) => Ok(object),
        other => Err(not_object(kind_of(&other))),
    }
}

/// The body is no JSON at all.
pub(super) fn not_json(error: &serde_json::Error) -> Rejection {
    Rejection::whole(Reason::InvalidJson, format!("The request body is not valid JSON: {error}."))
}

/// The body is JSON, and no object.
pub(super) fn not_object(found: &str) -> Rejection {
    Rejection::whole(Reason::InvalidJson, format!("The request body must be a JSON object, but it is {found}."))
}

/// Checks every field against the table, and makes what is left plain: `null` becomes absence, and whole numbers
/// their shortest spelling.
///
/// Fields of images are not in such a body: they have been read already. `place` is what stands before the names of the
/// fields in the words of the caller: nothing, or such as `tools[0].`.
pub(crate) fn check(place: &str, table: &'static [Field], body: &mut Map<String, Value>) -> Result<(), Rejection> {
    check_narrowed(place, table, |_| None, body)
}

/// The same, with another word on some of the fields.
pub(super) fn check_narrowed<'a>(
    place: &str,
    table: &'static [Field],
    narrow: impl Fn(&str) -> Option<Narrowed<'a>>,
    body: &mut Map<String, Value>,
) -> Result<(), Rejection> {
    let table: Vec<&Field> = table.iter().filter(|field| !matches!(field.kind, Kind::Images | Kind::Image)).collect();
    body.retain(|name, value| !(value.is_null() && table.iter().any(|field| field.name == name && field.nullable)));
    if let Some(name) = body.keys().find(|name| table.iter().all(|field| field.name != name.as_str())) {
        return Err(unknown(format!("{place}{name}")));
    }
    for field in table {
        match body.get_mut(field.name) {
            Some(value) => check_one(&format!("{place}{}", field.name), field.kind, narrow(field.name), value)?,
            None if field.required => return Err(missing(format!("{place}{}", field.name))),
            None => {}
        }
    }
    Ok(())
}

/// There is no such parameter.
pub(super) fn unknown(name: String) -> Rejection {
    let message = format!("Unknown parameter: '{name}'.");
    Rejection::new(name, Reason::UnknownParameter, message)
}

/// A required parameter is absent.
pub(super) fn missing(name: String) -> Rejection {
    let message = format!("Missing required parameter: '{name}'.");
    Rejection::new(name, Reason::MissingParameter, message)
}

/// The JSON type of a parameter is another one.
pub(super) fn wrong_type(name: &str, expected: &str, found: &str) -> Rejection {
    let message = format!("Invalid type for '{name}': expected {expected}, but got {found} instead.");
    Rejection::new(name, Reason::InvalidType, message)
}

fn check_one(name: &str, kind: Kind, narrowed: Option<Narrowed<'_>>, value: &mut Value) -> Result<(), Rejection> {
    match (kind, narrowed) {
        (Kind::Integer { min, .. }, Some(Narrowed::AtMost(max))) => integer(name, value, min, max),
        (_, Some(Narrowed::Words(words))) => choice(name, value, &words),
        (_, Some(Narrowed::Sizes(sizes))) => one_of_sizes(name, value, &sizes),
        (kind, _) => check_kind(name, kind, value),
    }
}

fn check_kind(name: &str, kind: Kind, value: &mut Value) -> Result<(), Rejection> {
    match kind {
        Kind::Text { min, max } => text(name, value, min, max),
        Kind::Integer { min, max } => integer(name, value, min, max),
        Kind::Choice(words) => choice(name, value, words),
        Kind::Boolean => value.as_bool().map(drop).ok_or_else(|| wrong_type(name, "a boolean", kind_of(value))),
        Kind::Size => size(name, value),
        Kind::Texts => texts(name, value),
        Kind::TextMap => text_map(name, value),
        Kind::Moment => moment(name, value),
        Kind::Day => day(name, value),
        Kind::Images | Kind::Image => Ok(()),
    }
}

fn texts(name: &str, value: &Value) -> Result<(), Rejection> {
    let items = value.as_array().ok_or_else(|| wrong_type(name, "an array", kind_of(value)))?;
    let wrong = items.iter().enumerate().find(|(_, item)| !item.is_string());
    wrong.map_or(Ok(()), |(at, item)| Err(wrong_type(&format!("{name}[{at}]"), "a string", kind_of(item))))
}

fn text_map(name: &str, value: &Value) -> Result<(), Rejection> {
    let members = value.as_object().ok_or_else(|| wrong_type(name, "an object", kind_of(value)))?;
    let wrong = members.iter().find(|(_, member)| !member.is_string());
    wrong.map_or(Ok(()), |(key, member)| Err(wrong_type(&format!("{name}.{key}"), "a string", kind_of(member))))
}

fn moment(name: &str, value: &Value) -> Result<(), Rejection> {
    let text = value.as_str().ok_or_else(|| wrong_type(name, "a string", kind_of(value)))?;
    DateTime::parse_from_rfc3339(text).map(drop).map_err(|_| {
        let message = format!("Invalid '{name}': expected a moment with its offset, such as '2026-11-21T03:00:00Z'.");
        Rejection::new(name, Reason::InvalidValue, message)
    })
}

fn day(name: &str, value: &Value) -> Result<(), Rejection> {
    let text = value.as_str().ok_or_else(|| wrong_type(name, "a string", kind_of(value)))?;
    text.parse::<NaiveDate>().map(drop).map_err(|_| {
        let message = format!("Invalid '{name}': expected a day, such as '2026-11-21'.");
        Rejection::new(name, Reason::InvalidValue, message)
    })
}

fn text(name: &str, value: &Value, min: u64, max: u64) -> Result<(), Rejection> {
    let text = value.as_str().ok_or_else(|| wrong_type(name, "a string", kind_of(value)))?;
    let length = text.chars().count() as u64;
    // A text of nothing but space says nothing: where one is needed, it counts as empty.
    if length < min || (min > 0 && text.trim().is_empty()) {
        let message = format!(
            "Invalid '{name}': empty string. Expected a string with at least {min} character that is no white space."
        );
        return Err(Rejection::new(name, Reason::StringBelowMin, message));
    }
    if length > max {
        let message = format!(
            "Invalid '{name}': string too long. Expected a string with at most {max} characters, but got {length} instead."
        );
        return Err(Rejection::new(name, Reason::StringAboveMax, message));
    }
    Ok(())
}

fn integer(name: &str, value: &mut Value, min: i64, max: i64) -> Result<(), Rejection> {
    let number = whole(value).ok_or_else(|| wrong_type(name, "an integer", kind_of(value)))?;
    if number < min {
        let message = format!(
            "Invalid '{name}': integer below minimum value. Expected a value >= {min}, but got {number} instead."
        );
        return Err(Rejection::new(name, Reason::IntegerBelowMin, message));
    }
    if number > max {
        let message = format!(
            "Invalid '{name}': integer above maximum value. Expected a value <= {max}, but got {number} instead."
        );
        return Err(Rejection::new(name, Reason::IntegerAboveMax, message));
    }
    *value = number.into();
    Ok(())
}

/// A whole number in any of JSON's spellings: `2`, `2.0`, `2e0`.
fn whole(value: &Value) -> Option<i64> {
    /// Beyond this a float no longer counts one by one.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let number = value.as_number()?;
    number.as_i64().or_else(|| {
        let float = number.as_f64().filter(|float| float.fract() == 0.0)?;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "clamped to what an i64 holds; far outside every bound either way"
        )]
        Some(float.clamp(-EXACT, EXACT) as i64)
    })
}

fn choice(name: &str, value: &Value, words: &[&str]) -> Result<(), Rejection> {
    let word = value.as_str().ok_or_else(|| wrong_type(name, "a string", kind_of(value)))?;
    if words.contains(&word) {
        return Ok(());
    }
    let message = format!("Invalid value: '{}'. Supported values are: {}.", clip(word), list(words));
    Err(Rejection::new(name, Reason::InvalidValue, message))
}

fn size(name: &str, value: &Value) -> Result<(), Rejection> {
    let text = value.as_str().ok_or_else(|| wrong_type(name, "a string", kind_of(value)))?;
    let parsed = text.parse::<SizeRequest>();
    parsed
        .map(drop)
        .map_err(|error| Rejection::new(name, Reason::InvalidValue, format!("Invalid size '{}'. {error}", clip(text))))
}

/// What breaks a rule is told so; of the rest only these can be had.
fn one_of_sizes(name: &str, value: &Value, sizes: &[&str]) -> Result<(), Rejection> {
    size(name, value)?;
    let text = value.as_str().unwrap_or_default();
    if sizes.contains(&text) {
        return Ok(());
    }
    let message = format!("Invalid size '{}'. Supported values are: {}.", clip(text), list(sizes));
    Err(Rejection::new(name, Reason::InvalidValue, message))
}

pub(super) fn kind_of(value: &Value) -> &'static str {
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

/// As much of a value as belongs into a message.
pub(super) fn clip(text: &str) -> String {
    const MOST: usize = 60;
    let mut short: String = text.chars().take(MOST).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// `'a', 'b', and 'c'`.
pub(super) fn list(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [one] => format!("'{one}'"),
        [one, two] => format!("'{one}' and '{two}'"),
        [first @ .., last] => {
            format!("{}, and '{last}'", first.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(", "))
        }
    }
}
