//! Checks the fields and files that a request may have because the operator has added them to its model.
//!
//! They are taken out of the request before the rules of the API document are applied, so these rules stay the same for
//! every model. A model of the document has none.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::fields::{self, type_name, unknown_parameter, wrong_type};
use crate::error::{Rejection, RejectionReason};
use crate::gateway::config::{FilePart, ImageModelSpec, ModelField, ModelFieldKind};
use crate::gateway::spool::ImageUpload;
use crate::tables::{Field, field};

/// The names that a form may have in addition to those of the API document, for any model: the form is read before its
/// model is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct AddedNames {
    fields: BTreeSet<String>,
    /// Those of the fields that are objects for some model.
    objects: BTreeSet<String>,
    files: BTreeSet<String>,
    allows_any_field: bool,
}

// === impl AddedNames ===

impl AddedNames {
    /// Collects the names of all models.
    pub(super) fn new<'a>(models: impl Iterator<Item = &'a ImageModelSpec>) -> Self {
        let mut names = Self::default();
        for model in models {
            names.fields.extend(model.fields.iter().map(|field| field.name.clone()));
            let objects = model.fields.iter().filter(|field| field.kind == ModelFieldKind::Object);
            names.objects.extend(objects.map(|field| field.name.clone()));
            names.files.extend(model.file_parts.iter().map(|part| part.name.clone()));
            names.allows_any_field |= model.passes_unknown;
        }
        names
    }

    /// True if some model has this field.
    pub(crate) fn has_field(&self, name: &str) -> bool {
        self.allows_any_field || self.fields.contains(name)
    }

    /// True if this field is an object for some model.
    pub(crate) fn has_object(&self, name: &str) -> bool {
        self.objects.contains(name)
    }

    /// True if some model has files under this name.
    pub(crate) fn has_file(&self, name: &str) -> bool {
        self.files.contains(name)
    }
}

/// Takes the fields out of the request that only this model has, and checks them. `documented` has the fields of the
/// API document. The values of a multipart form are texts, and are converted to the kind of their field.
pub(super) fn take_fields(
    model: &ImageModelSpec,
    documented: &'static [Field],
    object: &mut Map<String, Value>,
    is_edit: bool,
    is_multipart: bool,
) -> Result<Map<String, Value>, Rejection> {
    let mut taken = Map::new();
    for row in model.fields.iter().filter(|row| row.applies_to(is_edit)) {
        match object.remove(&row.name) {
            None | Some(Value::Null) if row.required => return Err(fields::missing_parameter(row.name.clone())),
            None | Some(Value::Null) => {}
            Some(value) => {
                let value = if is_multipart { from_text(&row.kind, value) } else { value };
                taken.insert(row.name.clone(), check(row, value)?);
            }
        }
    }
    if model.passes_unknown {
        let is_known = |name: &String| field(documented, name).is_some();
        let unknown: Vec<String> = object.keys().filter(|name| !is_known(name)).cloned().collect();
        taken.extend(unknown.into_iter().filter_map(|name| object.remove_entry(&name)));
    }
    Ok(taken)
}

/// Checks that the model has the name of each file, and that no name has too many files.
pub(super) fn check_files(model: &ImageModelSpec, files: &[ImageUpload]) -> Result<(), Rejection> {
    for file in files {
        let name = &file.param;
        let Some(FilePart { max_count, .. }) = model.file_parts.iter().find(|part| part.name == *name) else {
            return Err(unknown_parameter(name.clone()));
        };
        if files.iter().filter(|other| other.param == *name).count() as u64 > u64::from(*max_count) {
            let message = format!("Invalid '{name}': too many files. Expected at most {max_count}.");
            return Err(Rejection::new(name.clone(), RejectionReason::InvalidValue, message));
        }
    }
    Ok(())
}

/// Converts the text of a form to a value of this kind. A text that does not fit stays a text, and is then refused.
fn from_text(kind: &ModelFieldKind, value: Value) -> Value {
    let Some(text) = value.as_str() else { return value };
    let converted = match kind {
        ModelFieldKind::Integer { .. } => text.parse::<i64>().ok().map(Value::from),
        ModelFieldKind::Number { .. } | ModelFieldKind::Object => serde_json::from_str(text).ok(),
        ModelFieldKind::Boolean => text.parse::<bool>().ok().map(Value::from),
        ModelFieldKind::Choice(_) | ModelFieldKind::Text { .. } => None,
    };
    converted.unwrap_or(value)
}

fn check(row: &ModelField, mut value: Value) -> Result<Value, Rejection> {
    let name = row.name.as_str();
    match &row.kind {
        ModelFieldKind::Choice(words) => {
            fields::check_choice(name, &value, &words.iter().map(String::as_str).collect::<Vec<_>>())?;
        }
        ModelFieldKind::Integer { min, max } => {
            fields::check_integer(name, &mut value, min.unwrap_or(i64::MIN), max.unwrap_or(i64::MAX))?;
        }
        ModelFieldKind::Number { min, max } => check_number(name, &value, *min, *max)?,
        ModelFieldKind::Boolean if value.is_boolean() => {}
        ModelFieldKind::Boolean => return Err(wrong_type(name, "a boolean", type_name(&value))),
        ModelFieldKind::Text { max_chars } => fields::check_text(name, &value, 0, u64::from(*max_chars))?,
        ModelFieldKind::Object if value.is_object() => {}
        ModelFieldKind::Object => return Err(wrong_type(name, "an object", type_name(&value))),
    }
    Ok(value)
}

fn check_number(name: &str, value: &Value, min: Option<f64>, max: Option<f64>) -> Result<(), Rejection> {
    let number = value.as_f64().ok_or_else(|| wrong_type(name, "a number", type_name(value)))?;
    let broken = min
        .filter(|min| number < *min)
        .map(|min| format!(">= {min}"))
        .or_else(|| max.filter(|max| number > *max).map(|max| format!("<= {max}")));
    broken.map_or(Ok(()), |expected| {
        let message = format!("Invalid '{name}': expected a value {expected}, but got {number} instead.");
        Err(Rejection::new(name, RejectionReason::InvalidValue, message))
    })
}

#[cfg(test)]
mod tests {
    use chrono::Utc;
    use serde_json::json;

    use super::*;
    use crate::gateway::config::FieldOperations;
    use crate::gateway::rules::{ImageModels, Job};

    fn field(name: &str, kind: ModelFieldKind) -> ModelField {
        ModelField { name: name.to_owned(), kind, required: false, operations: FieldOperations::Both }
    }

    fn model() -> ImageModelSpec {
        ImageModelSpec {
            id: "next-1".to_owned(),
            name: "next-1".to_owned(),
            fields: vec![
                field("complexity", ModelFieldKind::Choice(vec!["plain".to_owned(), "rich".to_owned()])),
                field("frame_count", ModelFieldKind::Integer { min: Some(1), max: Some(8) }),
                field("weight", ModelFieldKind::Number { min: Some(0.0), max: Some(1.5) }),
                field("tiling", ModelFieldKind::Boolean),
                field("note", ModelFieldKind::Text { max_chars: 3 }),
                field("svg", ModelFieldKind::Object),
                ModelField { operations: FieldOperations::Edits, ..field("strength", ModelFieldKind::Boolean) },
            ],
            fidelities: vec!["low".to_owned()],
            can_stream: false,
            ..ImageModelSpec::default_model()
        }
    }

    fn check_request(model: ImageModelSpec, mut body: Value) -> Result<Job, Rejection> {
        (body["model"], body["prompt"]) = (model.id.as_str().into(), "red".into());
        ImageModels::new(&[model]).check_generation(body.to_string().as_bytes(), Utc::now())
    }

    #[track_caller]
    fn refused(body: Value, param: &str, reason: RejectionReason) {
        let rejection = check_request(model(), body.clone()).expect_err("breaks a rule");
        assert_eq!((rejection.param.as_deref(), rejection.reason), (Some(param), Some(reason)), "{body}");
    }

    #[test]
    fn added_fields_are_checked_and_sent_unchanged() {
        let added = json!({"complexity": "rich", "frame_count": 8, "weight": 1.5, "tiling": false, "note": "äöü",
            "svg": {"model": "x", "deep": [1, null]}, "input_fidelity": "low"});
        let job = check_request(model(), added.clone()).expect("within the rules");
        let mut expected = added;
        (expected["model"], expected["prompt"]) = ("next-1".into(), "red".into());
        assert_eq!(Value::Object(job.upstream_fields().clone()), expected);
        let job = check_request(model(), json!({"complexity": null, "frame_count": 2.0})).expect("null is absent");
        assert_eq!(job.upstream_fields().get("complexity"), None);
        assert_eq!(job.upstream_fields()["frame_count"], json!(2));
    }

    #[test]
    fn a_broken_rule_of_an_added_field_names_the_field() {
        refused(json!({"complexity": "huge"}), "complexity", RejectionReason::InvalidValue);
        refused(json!({"complexity": 1}), "complexity", RejectionReason::InvalidType);
        refused(json!({"frame_count": 9}), "frame_count", RejectionReason::IntegerAboveMax);
        refused(json!({"frame_count": 0}), "frame_count", RejectionReason::IntegerBelowMin);
        refused(json!({"frame_count": "1"}), "frame_count", RejectionReason::InvalidType);
        refused(json!({"weight": 1.6}), "weight", RejectionReason::InvalidValue);
        refused(json!({"weight": -0.1}), "weight", RejectionReason::InvalidValue);
        refused(json!({"tiling": 1}), "tiling", RejectionReason::InvalidType);
        refused(json!({"note": "abcd"}), "note", RejectionReason::StringAboveMax);
        refused(json!({"svg": []}), "svg", RejectionReason::InvalidType);
        refused(json!({"input_fidelity": "high"}), "input_fidelity", RejectionReason::InvalidValue);
        refused(json!({"stream": true}), "stream", RejectionReason::InvalidValue);
        // The field belongs to edits, and others to no model.
        refused(json!({"strength": true}), "strength", RejectionReason::UnknownParameter);
        refused(json!({"other": 1}), "other", RejectionReason::UnknownParameter);
    }

    #[test]
    fn a_required_field_must_be_there() {
        let required = ModelField { required: true, ..field("seed", ModelFieldKind::Boolean) };
        let model = ImageModelSpec { fields: vec![required], ..model() };
        for body in [json!({}), json!({"seed": null})] {
            let rejection = check_request(model.clone(), body).expect_err("missing");
            assert_eq!(rejection.reason, Some(RejectionReason::MissingParameter));
        }
    }

    #[test]
    fn unknown_fields_pass_only_if_the_model_passes_them() {
        let open = ImageModelSpec { passes_unknown: true, ..model() };
        let unknown = json!({"style": {"a": [1]}, "seed": 7, "nothing": null, "quality": "low"});
        let job = check_request(open.clone(), unknown.clone()).expect("passed on");
        for name in ["style", "seed", "nothing"] {
            assert_eq!(job.upstream_fields().get(name), unknown.get(name), "{name}");
        }
        // The rules of the document hold for the fields that it has.
        let rejection = check_request(open, json!({"quality": "best", "style": 1})).expect_err("a documented field");
        assert_eq!(rejection.param.as_deref(), Some("quality"));
        refused(json!({"style": {"a": [1]}}), "style", RejectionReason::UnknownParameter);
    }

    #[test]
    fn texts_of_a_form_become_values_of_their_kind() {
        let convert = |kind: ModelFieldKind, text: &str| from_text(&kind, text.into());
        let integer = || ModelFieldKind::Integer { min: None, max: None };
        assert_eq!(convert(integer(), "-7"), json!(-7));
        assert_eq!(convert(integer(), "7.5"), json!("7.5"));
        assert_eq!(convert(ModelFieldKind::Number { min: None, max: None }, "0.5"), json!(0.5));
        assert_eq!(convert(ModelFieldKind::Boolean, "true"), json!(true));
        assert_eq!(convert(ModelFieldKind::Boolean, "yes"), json!("yes"));
        assert_eq!(convert(ModelFieldKind::Object, "{\"a\":1}"), json!({"a": 1}));
        assert_eq!(convert(ModelFieldKind::Text { max_chars: 9 }, "1"), json!("1"));
    }

    #[test]
    fn a_form_may_have_the_names_of_any_model() {
        let part = FilePart { name: "markup".to_owned(), max_count: 1 };
        let names = AddedNames::new([model(), ImageModelSpec { file_parts: vec![part], ..model() }].iter());
        assert!(names.has_field("svg") && names.has_file("markup"));
        assert!(!names.has_field("other") && !names.has_file("svg") && !names.has_field("markup"));
        assert!(AddedNames::new([ImageModelSpec { passes_unknown: true, ..model() }].iter()).has_field("other"));
    }
}
