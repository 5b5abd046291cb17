//! Checks that the admin API accepts the same accounts as the settings file, and that an error names its field.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::accounts::{NewAccountRequest, account_rejection, parse_account_change};
use crate::error::RejectionReason;
use crate::gateway::config::{self, schema_json};
use crate::gateway::store::AccountChange;
use crate::tables::{ACCOUNT_SETTINGS_FIELDS, ADMIN_OPENAPI, Field, FieldKind, NEW_ACCOUNT_FIELDS};

/// Returns the fields of `[[accounts]]`, from the schema of the settings.
fn file_properties() -> Value {
    let schema: Value = serde_json::from_str(&schema_json()).unwrap();
    schema["definitions"]["RawAccount"]["properties"].clone()
}

/// The fields that only the API document has; in the settings file, secret headers are part of `headers`.
const API_ONLY_FIELDS: [&str; 1] = ["secret_headers"];

/// Returns all words that the schema lists as allowed values.
fn words(schema: &Value) -> BTreeSet<String> {
    match schema {
        Value::Object(members) => {
            let enum_values = members.get("enum").or_else(|| members.get("const"));
            let enum_values =
                enum_values.map_or_else(Vec::new, |enum_values| enum_values.as_array().cloned().unwrap_or_default());
            let own_words = enum_values.iter().filter_map(|word| word.as_str().map(str::to_owned));
            own_words.chain(members.values().flat_map(words)).collect()
        }
        Value::Array(items) => items.iter().flat_map(words).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => BTreeSet::new(),
    }
}

/// Returns the words that a setting of the file allows. If the setting refers to a type, they are those of the type.
fn file_words(name: &str) -> BTreeSet<String> {
    let schema: Value = serde_json::from_str(&schema_json()).unwrap();
    let property = &schema["definitions"]["RawAccount"]["properties"][name];
    let reference_path = property["allOf"][0]["$ref"].as_str().or_else(|| property["$ref"].as_str());
    let target = reference_path.and_then(|reference| schema.pointer(reference.trim_start_matches('#')));
    words(target.unwrap_or(property))
}

fn check_choice(field: &Field, words: &[&str]) {
    let words: BTreeSet<String> = words.iter().map(|word| (*word).to_owned()).collect();
    assert_eq!(words, file_words(field.name), "{}", field.name);
}

fn number(schema: &Value, name: &str) -> Option<f64> {
    schema[name].as_f64()
}

#[test]
fn a_new_account_has_the_same_fields_as_the_file() {
    let file = file_properties();
    let names: BTreeSet<&str> = file.as_object().unwrap().keys().map(String::as_str).collect();
    let api_fields: BTreeSet<&str> = NEW_ACCOUNT_FIELDS.iter().map(|field| field.name).collect();
    assert_eq!(api_fields.difference(&names).copied().collect::<Vec<_>>(), API_ONLY_FIELDS);
    assert_eq!(names.difference(&api_fields).count(), 0, "every field of the file is a field of the API: {names:?}");
    for field in NEW_ACCOUNT_FIELDS {
        #[expect(clippy::cast_precision_loss, reason = "the bounds are small")]
        match field.kind {
            FieldKind::Choice(words) => check_choice(field, words),
            FieldKind::Integer { min, max } => {
                let bounds = (number(&file[field.name], "minimum"), number(&file[field.name], "maximum"));
                assert_eq!(bounds, (Some(min as f64), Some(max as f64)), "{}", field.name);
            }
            _ => {}
        }
    }
}

#[test]
fn every_secret_is_separated_from_the_settings() {
    let document: Value = serde_json::from_str(ADMIN_OPENAPI).unwrap();
    let schemas = &document["components"]["schemas"];
    let fields = schemas["NewAccount"]["properties"].as_object().unwrap();
    let secret = |field: &Value| field["anyOf"][0]["$ref"] == "#/components/schemas/Secret";
    let mut body = json!({"name": "a", "kind": "oauth", "secret_headers": {"x-key": "hidden"}, "scope": "seen"});
    for (name, _) in fields.iter().filter(|(_, field)| secret(field)) {
        body[name] = "hidden".into();
    }
    let NewAccountRequest { name, settings, secrets } = NewAccountRequest::parse(body.to_string().as_bytes()).unwrap();
    assert_eq!((name.as_str(), &settings), ("a", json!({"kind": "oauth", "scope": "seen"}).as_object().unwrap()));
    let expected = ["api_key", "client_secret", "headers.x-key", "refresh_token"];
    assert_eq!(secrets.keys().collect::<Vec<_>>(), expected);
    assert!(secrets.values().all(|secret| secret == "hidden"));
}

#[track_caller]
fn check_draft(body: &Value, param: Option<&str>, reason: RejectionReason) {
    let rejection = NewAccountRequest::parse(body.to_string().as_bytes()).map(|_| ()).unwrap_err();
    assert_eq!((rejection.param.as_deref(), rejection.reason), (param, Some(reason)), "{body}: {}", rejection.message);
}

#[test]
fn an_invalid_field_is_named() {
    check_draft(&json!([]), None, RejectionReason::InvalidJson);
    check_draft(&json!({"kind": "simulator"}), Some("name"), RejectionReason::MissingParameter);
    check_draft(&json!({"name": "a"}), Some("kind"), RejectionReason::MissingParameter);
    check_draft(&json!({"name": "a", "kind": "codex"}), Some("kind"), RejectionReason::InvalidValue);
    check_draft(&json!({"name": "a", "kind": "simulator", "bas": 1}), Some("bas"), RejectionReason::UnknownParameter);
    let body_with = |name: &str, value: Value| {
        let mut body = json!({"name": "a", "kind": "api_key"});
        body[name] = value;
        body
    };
    check_draft(&body_with("api_key", json!({"env": "HOME"})), Some("api_key"), RejectionReason::InvalidType);
    check_draft(&body_with("api_key", json!("")), Some("api_key"), RejectionReason::StringBelowMin);
    check_draft(&body_with("concurrency", json!(0)), Some("concurrency"), RejectionReason::IntegerBelowMin);
    check_draft(&body_with("priority", json!(1001)), Some("priority"), RejectionReason::IntegerAboveMax);
    check_draft(&body_with("allow_http", json!("yes")), Some("allow_http"), RejectionReason::InvalidType);
    check_draft(&body_with("groups", json!(["a", 1])), Some("groups[1]"), RejectionReason::InvalidType);
    check_draft(&body_with("groups", json!("a")), Some("groups"), RejectionReason::InvalidType);
    check_draft(&body_with("headers", json!({"x": {"env": "HOME"}})), Some("headers.x"), RejectionReason::InvalidType);
    let mut twice = body_with("headers", json!({"x": "1"}));
    twice["secret_headers"] = json!({"x": "2"});
    check_draft(&twice, Some("secret_headers.x"), RejectionReason::InvalidValue);
}

#[test]
fn a_problem_of_the_settings_names_the_field_of_the_request() {
    let rejected_field = |settings: &str, secrets: &[(&str, &str)]| {
        let secrets: BTreeMap<String, String> =
            secrets.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let hidden: Vec<String> = secrets.keys().cloned().collect();
        let problems = config::account_from_json("a", settings, secrets, false).map(|_| ()).unwrap_err();
        let rejection = account_rejection("", &problems, &hidden);
        assert!(
            !rejection.message.contains("account a"),
            "the message must not contain the location: {}",
            rejection.message
        );
        rejection.param.unwrap_or_default()
    };
    assert_eq!(rejected_field(r#"{"kind": "api_key"}"#, &[("api_key", "k")]), "base_url");
    let base = r#""kind": "api_key", "base_url": "https://a.example""#;
    assert_eq!(rejected_field(&format!("{{{base}}}"), &[]), "api_key");
    assert_eq!(rejected_field(&format!("{{{base}}}"), &[("api_key", "line\nbreak")]), "api_key");
    assert_eq!(rejected_field(&format!(r#"{{{base}, "groups": []}}"#), &[("api_key", "k")]), "groups");
    let header = format!(r#"{{{base}, "headers": {{"authorization": "k"}}}}"#);
    assert_eq!(rejected_field(&header, &[("api_key", "k")]), "headers.authorization");
    let hidden = [("api_key", "k"), ("headers.x-key", "line\nbreak")];
    assert_eq!(rejected_field(&format!("{{{base}}}"), &hidden), "secret_headers.x-key");
}

#[test]
fn only_disabling_an_account_can_state_a_reason() {
    let parse = |body: Value| parse_account_change(body.to_string().as_bytes()).map(|request| request.state);
    assert_eq!(parse(json!({"enabled": true})), Ok(Some(AccountChange::Enable)));
    assert_eq!(parse(json!({"enabled": true, "reason": null})), Ok(Some(AccountChange::Enable)));
    let disabled = |reason: &str| Ok(Some(AccountChange::Disable { reason: reason.to_owned() }));
    assert_eq!(parse(json!({"enabled": false, "reason": "unpaid"})), disabled("unpaid"));
    assert_eq!(parse(json!({"enabled": false})), disabled("disabled by an operator"));
    assert_eq!(parse(json!({"enabled": null, "api_key": "k"})), Ok(None));
    let refused = |body: Value| parse(body).unwrap_err().param;
    for body in [json!({}), json!({"enabled": null}), json!({"settings": null, "api_key": null})] {
        assert_eq!(refused(body.clone()), None, "{body}");
    }
    assert_eq!(refused(json!({"reason": "x"})).as_deref(), Some("reason"));
    assert_eq!(refused(json!({"enabled": "no"})).as_deref(), Some("enabled"));
    assert_eq!(refused(json!({"enabled": true, "reason": "x"})).as_deref(), Some("reason"));
    assert_eq!(refused(json!({"enabled": false, "reason": "  "})).as_deref(), Some("reason"));
    assert_eq!(refused(json!({"enabled": false, "name": "b"})).as_deref(), Some("name"));
}

#[test]
fn a_change_of_an_account_separates_its_settings_and_its_secrets() {
    let parse = |body: Value| parse_account_change(body.to_string().as_bytes());
    let change = parse(json!({
        "settings": {"base_url": "https://a.example", "headers": {"x": "1"}, "priority": null},
        "api_key": "hidden", "secret_headers": {"y": "hidden"},
    }));
    let revision = change.unwrap().revision.unwrap();
    let settings = json!({"base_url": "https://a.example", "headers": {"x": "1"}});
    assert_eq!(revision.settings.as_ref(), settings.as_object());
    assert_eq!(revision.secrets.keys().collect::<Vec<_>>(), ["api_key", "headers.y"]);
    let only_settings = parse(json!({"settings": {}})).unwrap().revision.unwrap();
    assert_eq!(only_settings.settings, Some(serde_json::Map::new()));
    let refused = |body: Value| parse(body).err().and_then(|rejection| rejection.param);
    assert_eq!(refused(json!({"settings": {"api_key": "k"}})).as_deref(), Some("settings.api_key"));
    assert_eq!(refused(json!({"settings": {"kind": "oauth"}})).as_deref(), Some("settings.kind"));
    assert_eq!(refused(json!({"settings": {"concurrency": 0}})).as_deref(), Some("settings.concurrency"));
    assert_eq!(refused(json!({"settings": []})).as_deref(), Some("settings"));
    assert_eq!(refused(json!({"api_key": ""})).as_deref(), Some("api_key"));
    let twice = json!({"settings": {"headers": {"x": "1"}}, "secret_headers": {"x": "2"}});
    assert_eq!(refused(twice).as_deref(), Some("secret_headers.x"));
}

#[test]
fn the_settings_of_an_account_are_the_fields_of_a_new_one() {
    let names = |fields: &'static [Field]| fields.iter().map(|field| field.name).collect::<BTreeSet<_>>();
    let secret = ["name", "kind", "api_key", "client_secret", "refresh_token", "secret_headers"];
    let expected: BTreeSet<&str> =
        names(NEW_ACCOUNT_FIELDS).into_iter().filter(|name| !secret.contains(name)).collect();
    assert_eq!(names(ACCOUNT_SETTINGS_FIELDS), expected);
}
